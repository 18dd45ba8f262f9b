/**
 * The bar of cells: what a sequence holds, to scale, in rows that are read like text.
 *
 *   spans ─▶ piecesOf ─▶ place (pixels, along all rows) ─▶ paint (a canvas)
 *
 *   ▕▚▚▓▓██▒▒▒▒▒▒▒│││██▏     a piece is a run of cells; │ a hole: what was there has left, and has no cell
 *   ▕██▒▒▒▒▒▒      ///▏      then free cells, and those of other conversations
 *
 * A kind has a colour, a pattern and a name. The canvas is drawn in animation frames, in which nothing is measured.
 */
import { html } from "htm/preact";
import { signal } from "@preact/signals";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { theme } from "../state.js";
import { formatCount } from "../ui.js";

/** @typedef {import("./feed.js").Sequence} Sequence */
/** @typedef {{key: string, kind: string, start: number, stop: number, messages: number[], keep: boolean,
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

const MOTION_MS = 150;
const GAP_PX = 3;
const HOLE_PX = 7;
/** At most this part of the bar is holes. */
const HOLES = 0.2;
/** @param {number} rows @returns {number} pixels of one */
const heightOf = (rows) => ({ 1: 28, 2: 20, 4: 14, 8: 10 })[rows] ?? 7;
/** How many rows a bar has at first, as a power of two. @param {number} n_ctx */
export const zoomFor = (n_ctx) => Math.max(0, Math.min(5, Math.ceil(Math.log2(n_ctx / 512) / 2 + 1)));

/** What stands side by side in the bar; all that has left between two pieces is one hole.
 * @param {Sequence} sequence @returns {Piece[]} */
export function piecesOf({ spans }) {
  const pieces = /** @type {Piece[]} */ ([]);
  for (const { start, stop, kind, message, keep, held } of spans) {
    const messages = message === null ? [] : [message];
    if (held) pieces.push({ key: `${kind} ${start}`, kind, start, stop, messages, keep, tokens: held });
    const tokens = stop - start - held;
    const last = pieces.at(-1);
    if (tokens && last?.kind === "hole") {
      last.stop = stop;
      last.tokens += tokens;
      if (message !== null && last.messages.at(-1) !== message) last.messages.push(message);
    } else if (tokens) pieces.push({ key: `hole ${start}`, kind: "hole", start, stop, messages, keep: false, tokens });
  }
  return pieces;
}

/** Tokens by kind, in the order of `KINDS`. @param {Piece[]} pieces @returns {[string, number][]} */
export function countsOf(pieces) {
  const counts = new Map(Object.keys(KINDS).map((kind) => [kind, 0]));
  for (const { kind, tokens } of pieces) counts.set(kind, (counts.get(kind) ?? 0) + tokens);
  return [...counts].filter(([, n]) => n);
}

/** @param {Piece} piece */
export function describe({ kind, messages, tokens, keep }) {
  const [first, last] = [messages[0], messages.at(-1)];
  const where = first === last ? `message ${first}` : `messages ${first} to ${last}`;
  const parts = [nameOf(kind), messages.length && where, `${formatCount(tokens)} tokens`, keep && "protected"];
  return parts.filter(Boolean).join(" · ");
}

/** @param {Piece[]} pieces @param {number} n_ctx @param {number} length of all rows @param {Map<string, number>} cells
 * by key, as they are drawn now @returns {Placed[]} */
function place(pieces, n_ctx, length, cells) {
  const n_holes = pieces.filter(({ kind }) => kind === "hole").length;
  const hole_px = n_holes ? Math.min(HOLE_PX, (length * HOLES) / n_holes) : 0;
  const n_held = pieces.reduce((sum, { key }) => sum + (cells.get(key) ?? 0), 0);
  const scale = (length - n_holes * hole_px) / Math.max(1, n_ctx, n_held);
  let right = 0;
  return pieces.map((piece) => {
    const left = right;
    right += (piece.kind === "hole" ? hole_px : 0) + (cells.get(piece.key) ?? 0) * scale;
    return { ...piece, left, right };
  });
}

/** The number of the piece at a place, or -1. @param {Placed[]} placed @param {number} at */
function pieceAt(placed, at) {
  let low = 0;
  for (let high = placed.length; low < high;) {
    const middle = (low + high) >> 1;
    if (placed[middle].right > at) high = middle;
    else low = middle + 1;
  }
  return low < placed.length ? low : -1;
}

/** A kind's colour and pattern, for the legend. @param {{kind: string}} props */
export const Swatch = ({ kind }) => html`<svg class="swatch" viewBox="0 0 6 6" aria-hidden="true" data-kind=${kind}>
  <rect width="6" height="6" style=${{ fill: colourOf(kind) }} /><path d=${lookOf(kind).pattern} />
</svg>`;

const dark = matchMedia("(prefers-color-scheme: dark)");
const still = matchMedia("(prefers-reduced-motion: reduce)");
const isDark = signal(dark.matches);
dark.addEventListener("change", () => (isDark.value = dark.matches));

/**
 * @param {{sequence: Sequence, others: number, rows: number, summary: string, onOpen: (piece: Piece) => void,
 *   onPoint: (piece: Piece | null) => void}} props `others`: cells of other conversations
 */
export function Cells({ sequence, others, rows, summary, onOpen, onPoint }) {
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const pieces = useMemo(() => piecesOf(sequence), [sequence]);
  const drawing = useDrawing(box, pieces, sequence.n_ctx, others, rows);
  const [current, setCurrent] = useState(-1);
  const row_px = heightOf(rows);

  /** @param {number} at */
  const point = (at) => {
    drawing.mark(at);
    onPoint(pieces[at] ?? null);
  };
  /** @param {MouseEvent} event */
  const find = ({ offsetX, offsetY }) => {
    const row = Math.min(rows - 1, Math.floor(offsetY / (row_px + GAP_PX)));
    return pieceAt(drawing.placed, row * /** @type {HTMLElement} */ (box.current).offsetWidth + offsetX);
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
    point(next);
  };
  return html`<div class="cells" role="group" aria-label="Cells of this conversation">
    <p class="hidden">${summary}</p>
    <button
      type="button"
      ref=${box}
      style=${{ "--rows": rows, "--row": `${row_px}px`, "--gap": `${GAP_PX}px` }}
      aria-label=${pieces[current] ? describe(pieces[current]) : "Parts of the bar: arrow keys move, Enter opens"}
      onKeyDown=${move}
      onFocus=${() => point(current)}
      onBlur=${() => point(-1)}
      onMouseMove=${(/** @type {MouseEvent} */ event) => point(find(event))}
      onMouseLeave=${() => point(-1)}
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
  useDrawing(box, pieces, sequence.n_ctx, others, 1);
  return html`<span class="thin-cells" ref=${box}><canvas aria-hidden="true"></canvas></span>`;
}

/**
 * Draws into the canvas of `box`, once when something changes and in each frame while something moves.
 * @param {{current: HTMLElement | null}} box @param {Piece[]} pieces @param {number} n_ctx @param {number} others
 * @param {number} rows
 */
function useDrawing(box, pieces, n_ctx, others, rows) {
  const [now] = useState(() => new Drawing());
  useEffect(() => now.show(pieces, n_ctx, others, rows), [pieces, n_ctx, others, rows]);
  useEffect(() => {
    const element = /** @type {HTMLElement} */ (box.current);
    now.dress(element);
    const watch = new ResizeObserver(([{ contentRect }]) => now.resize(contentRect.width, contentRect.height));
    watch.observe(element);
    return () => {
      watch.disconnect();
      now.stop();
    };
  }, [theme.value, isDark.value]);
  return now;
}

/** A canvas, and the pieces on their way to where they belong. */
class Drawing {
  shown = { pieces: /** @type {Piece[]} */ ([]), n_ctx: 1, others: 0, rows: 1 };
  size = { width: 0, height: 0 };
  /** Cells of the pieces by key: when they began to move, and as they were drawn last. */
  from = /** @type {Map<string, number>} */ (new Map());
  drawn = /** @type {Map<string, number>} */ (new Map());
  began_ms = 0;
  placed = /** @type {Placed[]} */ ([]);
  marked = -1;
  frame = 0;
  canvas = /** @type {HTMLCanvasElement | null} */ (null);
  /** By kind. */
  fills = /** @type {Map<string, CanvasPattern>} */ (new Map());
  ground = "";
  ink = "";

  /** @param {Piece[]} pieces @param {number} n_ctx @param {number} others @param {number} rows */
  show(pieces, n_ctx, others, rows) {
    this.shown = { pieces, n_ctx, others, rows };
    this.from = this.drawn;
    this.began_ms = performance.now();
    this.ask();
  }
  /** @param {number} at */
  mark(at) {
    this.marked = at;
    this.ask();
  }
  /** Takes the colours that the page has now: a canvas does not read custom properties. @param {HTMLElement} box */
  dress(box) {
    this.canvas = box.querySelector("canvas");
    const probe = box.appendChild(document.createElement("i"));
    /** @param {string} colour */
    const read = (colour) => {
      probe.style.color = colour;
      return getComputedStyle(probe).color;
    };
    [this.ground, this.ink] = [read("var(--bg-side)"), read("var(--text)")];
    for (const kind of Object.keys(KINDS)) {
      const tile = document.createElement("canvas");
      tile.width = tile.height = Math.round(6 * devicePixelRatio);
      const pen = /** @type {CanvasRenderingContext2D} */ (tile.getContext("2d"));
      pen.scale(tile.width / 6, tile.width / 6);
      pen.fillStyle = read(colourOf(kind));
      pen.fillRect(0, 0, 6, 6);
      pen.globalAlpha = kind === "hole" ? 0.6 : 0.3;
      pen.strokeStyle = kind === "hole" ? this.ink : this.ground;
      pen.stroke(new Path2D(lookOf(kind).pattern));
      const fill = /** @type {CanvasPattern} */ (pen.createPattern(tile, "repeat"));
      fill.setTransform(new DOMMatrix().scale(6 / tile.width));
      this.fills.set(kind, fill);
    }
    probe.remove();
  }
  /** @param {number} width @param {number} height */
  resize(width, height) {
    this.size = { width, height };
    const canvas = /** @type {HTMLCanvasElement} */ (this.canvas);
    canvas.width = Math.round(width * devicePixelRatio);
    canvas.height = Math.round(height * devicePixelRatio);
    this.draw(performance.now());
  }
  ask() {
    this.frame ||= requestAnimationFrame((at_ms) => {
      this.frame = 0;
      this.draw(at_ms);
    });
  }
  stop() {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
  }

  /** @param {number} at_ms */
  draw(at_ms) {
    const { pieces, n_ctx, others, rows } = this.shown;
    const length = this.size.width * rows;
    if (!length) return;
    const part = still.matches ? 1 : Math.max(0, Math.min(1, (at_ms - this.began_ms) / MOTION_MS));
    const isFirst = !this.from.size;
    const cells = pieces.map(({ key, kind, tokens }) => {
      const to = kind === "hole" ? 0 : tokens;
      const from = isFirst ? to : (this.from.get(key) ?? 0);
      return /** @type {const} */ ([key, from + (to - from) * part]);
    });
    this.drawn = new Map(cells);
    this.placed = place(pieces, n_ctx, length, this.drawn);
    this.paint(length, length - (others / n_ctx) * length);
    if (part < 1) this.ask();
  }

  /** @param {number} length of all rows @param {number} end where other conversations begin */
  paint(length, end) {
    const { width, height } = this.size;
    const { rows } = this.shown;
    const gap = rows > 1 ? GAP_PX : 0;
    const row_px = (height - gap * (rows - 1)) / rows;
    const pen = this.canvas?.getContext("2d");
    if (!pen) return;
    pen.setTransform(devicePixelRatio, 0, 0, devicePixelRatio, 0, 0);
    pen.clearRect(0, 0, width, height);
    /** @param {number} left @param {number} right @param {(x: number, y: number, w: number) => void} each row's part */
    const inRows = (left, right, each) => {
      for (let row = Math.floor(left / width); row * width < right - 0.01 && row < rows; row++) {
        const from = Math.max(left, row * width);
        each(from - row * width, row * (row_px + gap), Math.min(right, (row + 1) * width) - from);
      }
    };
    /** @param {string} kind @param {number} left @param {number} right @param {boolean} [keep] */
    const fill = (kind, left, right, keep) => {
      // Neighbours are kept apart by a hair, where there is room for it.
      const hair = right - left > 4 ? 1 : 0;
      inRows(left, right, (x, y, w) => {
        pen.fillStyle = /** @type {CanvasPattern} */ (this.fills.get(kind) ?? this.fills.get("markup"));
        pen.fillRect(x, y, Math.max(0.5, w - hair), row_px);
        pen.fillStyle = this.ink;
        if (keep) pen.fillRect(x, y + row_px - 2, Math.max(0.5, w - hair), 2);
      });
    };
    fill("free", 0, length);
    fill("others", end, length);
    for (const { kind, left, right, keep } of this.placed) fill(kind, left, right, keep);
    const marked = this.placed[this.marked];
    pen.strokeStyle = this.ink;
    pen.lineWidth = 2;
    if (marked)
      inRows(marked.left, marked.right, (x, y, w) => pen.strokeRect(x + 1, y + 1, Math.max(1, w - 2), row_px - 2));
  }
}
