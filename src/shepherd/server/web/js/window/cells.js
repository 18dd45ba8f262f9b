/**
 * The bar of cells: what a sequence holds, to scale, in rows that are read like text.
 *
 *   spans ─▶ piecesOf ─▶ place (pixels, along all rows) ─▶ paint (a canvas)
 *
 *   ▕▚▚▓▓██▒▒▒▒▒▒▒│││██▏     a piece is a run of cells; │ a hole: what was there has left, and has no cell
 *   ▕██▒▒▒▒▒▒      ///▏      then free cells, and those of other conversations
 *
 * A kind has a colour, a pattern and a name.
 */
import { html } from "htm/preact";
import { signal } from "@preact/signals";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { theme } from "../state.js";
import { formatCount } from "../ui.js";

/** @typedef {import("./feed.js").Sequence} Sequence */
/** @typedef {{kind: string, start: number, stop: number, messages: number[], keep: boolean,
 *   tokens: number}} Piece `tokens`: those that are held; of a hole those that have left */
/** @typedef {Piece & {left: number, right: number}} Placed in pixels */

/** Of each kind: its name, its pattern in a tile of 6 × 6, and its colour where that has another name. */
export const KINDS = /** @type {Record<string, {name: string, pattern: string, colour?: string}>} */ ({
  system: { name: "System", pattern: "M1 1.5h1M4 4.500h1" },
  tools: { name: "Tools", pattern: "M0 3h6M3 0v6" },
  user: { name: "You", pattern: "" },
  assistant: { name: "Answer", pattern: "M-1 4l5-5M2 7l5-5" },
  thought: { name: "Thought", pattern: "M2.5 3h1" },
  call: { name: "Call", pattern: "M0 1.500h6M0 4.500h6" },
  result: { name: "Result", pattern: "M1.5 0v6M4.5 0v6" },
  image: { name: "Image", pattern: "M0 0l6 6M6 0l-6 6" },
  audio: { name: "Recording", pattern: "M0 4.500l3-3 3 3" },
  recalled: { name: "Came back", pattern: "M-1 2l5 5M2-1l5 5" },
  notice: { name: "Notice", pattern: "M0 3h3" },
  markup: { name: "Markup", pattern: "" },
  hole: { name: "Has left", pattern: "M0 1.500h6M0 4.500h6", colour: "--bg" },
  others: { name: "Other chats", pattern: "M-1 4l5-5M2 7l5-5", colour: "--bg-active" },
  keep: { name: "Protected", pattern: "M0 5h6", colour: "--k-hole" },
  free: { name: "Free", pattern: "", colour: "--k-hole" },
});
/** A kind that this page does not know is drawn as markup. @param {string} kind */
const lookOf = (kind) => KINDS[kind] ?? { ...KINDS.markup, name: kind };
/** @param {string} kind */
export const nameOf = (kind) => lookOf(kind).name;
/** @param {string} kind */
const colourOf = (kind) => `var(${lookOf(kind).colour ?? `--k-${kind in KINDS ? kind : "markup"}`})`;

const GAP_PX = 3;
const HOLE_PX = 7;
/** At most this part of the bar is holes. */
const HOLES = 0.2;
/** @param {number} rows @returns {number} pixels of one */
const heightOf = (rows) => ({ 1: 36, 2: 26, 4: 18, 8: 12 })[rows] ?? 7;
/** How many rows a bar has at first, as a power of two. @param {number} n_ctx */
export const zoomFor = (n_ctx) => Math.max(0, Math.min(5, Math.ceil(Math.log2(n_ctx / 512) / 2 + 1)));

/** What stands side by side in the bar; all that has left between two pieces is one hole.
 * @param {Sequence} sequence @returns {Piece[]} */
export function piecesOf({ spans }) {
  const pieces = /** @type {Piece[]} */ ([]);
  for (const { start, stop, kind, message, keep, held } of spans) {
    const messages = message === null ? [] : [message];
    if (held) pieces.push({ kind, start, stop, messages, keep, tokens: held });
    const tokens = stop - start - held;
    const last = pieces.at(-1);
    if (tokens && last?.kind === "hole") {
      last.tokens += tokens;
      if (message !== null && last.messages.at(-1) !== message) last.messages.push(message);
    } else if (tokens) pieces.push({ kind: "hole", start, stop, messages, keep: false, tokens });
  }
  return pieces;
}

/** @param {Piece} piece */
export function describe({ kind, messages, tokens, keep }) {
  const [first, last] = [messages[0], messages.at(-1)];
  const where = first === last ? `message ${first}` : `messages ${first} to ${last}`;
  const parts = [nameOf(kind), messages.length && where, `${formatCount(tokens)} tokens`, keep && "protected"];
  return parts.filter(Boolean).join(" · ");
}

/** A kind's colour and pattern, for the legend. @param {{kind: string}} props */
export const Swatch = ({ kind }) => html`<svg class="swatch" viewBox="0 0 6 6" aria-hidden="true" data-kind=${kind}>
  <rect width="6" height="6" style=${{ fill: colourOf(kind) }} /><path d=${lookOf(kind).pattern} />
</svg>`;

/**
 * @param {{sequence: Sequence, others: number, rows: number, summary: string, onOpen: (piece: Piece) => void,
 *   onPoint: (piece: Piece | null) => void}} props `others`: cells of other conversations
 */
export function Cells({ sequence, others, rows, summary, onOpen, onPoint }) {
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const pieces = useMemo(() => piecesOf(sequence), [sequence]);
  const [marked, setMarked] = useState(-1);
  const [current, setCurrent] = useState(-1);
  const placed = useDrawing(box, pieces, sequence.n_ctx, others, rows, marked);
  const row_px = heightOf(rows);
  useEffect(() => onPoint(pieces[marked] ?? null), [pieces, marked]);

  /** The piece under the pointer. @param {MouseEvent} event */
  const find = ({ offsetX, offsetY }) => {
    const row = Math.min(rows - 1, Math.floor(offsetY / (row_px + GAP_PX)));
    const at = row * /** @type {HTMLElement} */ (box.current).offsetWidth + offsetX;
    return placed.current.findIndex(({ right }) => right > at);
  };
  /** @param {KeyboardEvent} event */
  const move = (event) => {
    const step = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1, Home: 1, End: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    let next = { Home: 0, End: pieces.length - 1 }[event.key] ?? current + step;
    while (pieces[next]?.kind === "markup") next += step;
    if (!pieces[next]) return;
    setCurrent(next);
    setMarked(next);
  };
  return html`<div class="cells" role="group" aria-label="Cells of this conversation">
    <p class="hidden">${summary}</p>
    <button
      type="button"
      ref=${box}
      style=${{ "--rows": rows, "--row": `${row_px}px`, "--gap": `${GAP_PX}px` }}
      aria-label=${pieces[current] ? describe(pieces[current]) : "Parts of the bar: arrow keys move, Enter opens"}
      onKeyDown=${move}
      onFocus=${() => setMarked(current)}
      onBlur=${() => setMarked(-1)}
      onMouseMove=${(/** @type {MouseEvent} */ event) => setMarked(find(event))}
      onMouseLeave=${() => setMarked(-1)}
      onClick=${(/** @type {MouseEvent} */ event) => {
        const piece = pieces[event.detail ? find(event) : current];
        if (piece) onOpen(piece);
      }}
    >
      <canvas aria-hidden="true"></canvas>
    </button>
  </div>`;
}

/** The bar in one low row, without control. @param {{sequence: Sequence, others: number}} props */
export function ThinCells({ sequence, others }) {
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const pieces = useMemo(() => piecesOf(sequence), [sequence]);
  useDrawing(box, pieces, sequence.n_ctx, others, 1, -1);
  return html`<span class="thin-cells" ref=${box}><canvas aria-hidden="true"></canvas></span>`;
}

const dark = matchMedia("(prefers-color-scheme: dark)");
const isDark = signal(dark.matches);
dark.addEventListener("change", () => (isDark.value = dark.matches));

/**
 * Draws into the canvas of `box` whenever the component is, and when its size changes.
 * @param {{current: HTMLElement | null}} box @param {Piece[]} pieces @param {number} n_ctx @param {number} others
 * @param {number} rows @param {number} marked the number of a piece
 * @returns {{current: Placed[]}} where the pieces are
 */
function useDrawing(box, pieces, n_ctx, others, rows, marked) {
  const placed = useRef(/** @type {Placed[]} */ ([]));
  const look = useRef(/** @type {ReturnType<typeof lookIn> | null} */ (null));
  useEffect(() => {
    look.current = lookIn(/** @type {HTMLElement} */ (box.current));
  }, [theme.value, isDark.value]);
  useEffect(() => {
    const element = /** @type {HTMLElement} */ (box.current);
    const canvas = /** @type {HTMLCanvasElement} */ (element.querySelector("canvas"));
    // It reports the size at once, before the next picture: nothing is measured.
    const watch = new ResizeObserver(
      ([
        {
          contentRect: { width, height },
        },
      ]) => {
        const [wide, high] = [Math.round(width * devicePixelRatio), Math.round(height * devicePixelRatio)];
        if (canvas.width !== wide) canvas.width = wide;
        if (canvas.height !== high) canvas.height = high;
        placed.current = place(pieces, n_ctx, width * rows);
        const shown = { width, height, rows, others: others / n_ctx, placed: placed.current, marked };
        if (width) paint(/** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d")), look.current, shown);
      },
    );
    watch.observe(element);
    return () => watch.disconnect();
  });
  return placed;
}

/** @param {Piece[]} pieces @param {number} n_ctx @param {number} length of all rows */
function place(pieces, n_ctx, length) {
  const isHole = (/** @type {Piece} */ { kind }) => kind === "hole";
  const n_holes = pieces.filter(isHole).length;
  const hole_px = n_holes ? Math.min(HOLE_PX, (length * HOLES) / n_holes) : 0;
  const n_held = pieces.reduce((sum, piece) => sum + (isHole(piece) ? 0 : piece.tokens), 0);
  const scale = (length - n_holes * hole_px) / Math.max(1, n_ctx, n_held);
  let right = 0;
  return pieces.map((piece) => {
    const left = right;
    right += isHole(piece) ? hole_px : piece.tokens * scale;
    return { ...piece, left, right };
  });
}

/** The fills of the kinds and the colour of marks, as they are now: a canvas does not read custom properties.
 * @param {HTMLElement} box */
function lookIn(box) {
  const probe = box.appendChild(document.createElement("i"));
  /** @param {string} colour */
  const read = (colour) => {
    probe.style.color = colour;
    return getComputedStyle(probe).color;
  };
  const [ground, ink] = [read("var(--bg-side)"), read("var(--text)")];
  const fills = Object.keys(KINDS).map((kind) => {
    const tile = document.createElement("canvas");
    tile.width = tile.height = Math.round(6 * devicePixelRatio);
    const pen = /** @type {CanvasRenderingContext2D} */ (tile.getContext("2d"));
    pen.scale(tile.width / 6, tile.width / 6);
    pen.fillStyle = read(colourOf(kind));
    pen.fillRect(0, 0, 6, 6);
    pen.globalAlpha = kind === "hole" ? 0.6 : 0.3;
    pen.strokeStyle = kind === "hole" || kind === "others" ? ink : ground;
    pen.stroke(new Path2D(lookOf(kind).pattern));
    const fill = /** @type {CanvasPattern} */ (pen.createPattern(tile, "repeat"));
    fill.setTransform(new DOMMatrix().scale(6 / tile.width));
    return /** @type {const} */ ([kind, fill]);
  });
  probe.remove();
  return { fills: new Map(fills), ink };
}

/** @param {CanvasRenderingContext2D} pen @param {ReturnType<typeof lookIn> | null} look @param {{width: number,
 *   height: number, rows: number, others: number, placed: Placed[], marked: number}} shown */
function paint(pen, look, { width, height, rows, others, placed, marked }) {
  if (!look) return;
  const gap = rows > 1 ? GAP_PX : 0;
  const row_px = (height - gap * (rows - 1)) / rows;
  const length = width * rows;
  pen.setTransform(devicePixelRatio, 0, 0, devicePixelRatio, 0, 0);
  pen.clearRect(0, 0, width, height);
  /** @param {number} left @param {number} right @param {(x: number, y: number, w: number) => void} each row's part */
  const inRows = (left, right, each) => {
    for (let row = Math.floor(left / width); row * width < right - 0.01 && row < rows; row++) {
      const from = Math.max(left, row * width);
      each(from - row * width, row * (row_px + gap), Math.min(right, (row + 1) * width) - from);
    }
  };
  /** @param {{kind: string, left: number, right: number, keep?: boolean}} piece */
  const fill = ({ kind, left, right, keep }) => {
    const hair = right - left > 4 ? 1 : 0; // keeps neighbours apart, where there is room for it
    inRows(left, right, (x, y, w) => {
      pen.fillStyle = /** @type {CanvasPattern} */ (look.fills.get(kind) ?? look.fills.get("markup"));
      pen.fillRect(x, y, Math.max(0.5, w - hair), row_px);
      pen.fillStyle = look.ink;
      if (keep && row_px > 6) pen.fillRect(x, y + row_px - 2, Math.max(0.5, w - hair), 2);
    });
  };
  fill({ kind: "free", left: 0, right: length });
  fill({ kind: "others", left: length * (1 - others), right: length });
  placed.forEach(fill);
  pen.strokeStyle = look.ink;
  pen.lineWidth = 2;
  const { left, right } = placed[marked] ?? { left: 0, right: 0 };
  inRows(left, right, (x, y, w) => pen.strokeRect(x + 1, y + 1, Math.max(1, w - 2), row_px - 2));
}
