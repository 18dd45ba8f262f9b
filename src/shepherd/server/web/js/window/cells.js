/**
 * The bar of cells: what a sequence holds, to scale, in rows that are read like text.
 *
 *   spans ─▶ piecesOf ─▶ place (pixels, along all rows) ─▶ paint (a canvas)
 *
 *   ▕▚▚▓▓██▒▒▒▒▒▒▒│││██▏     a span is a run of cells; │ a hole: what was there has left, and holds no cell
 *   ▕██▒▒▒▒▒▒      ///▏      then free cells, and those of other conversations
 *
 * A kind has a colour, a pattern and a name. The canvas is drawn in animation frames only; nothing is measured in them.
 */
import { html } from "htm/preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { theme } from "../state.js";
import { formatCount } from "../ui.js";

/** @typedef {import("./feed.js").Sequence} Sequence */
/** @typedef {{key: string, kind: string, start: number, stop: number, messages: number[], keep: boolean,
 *   cells: number}} Piece `cells`: how many of its tokens are held; a hole has none */
/** @typedef {Piece & {left: number, right: number}} Placed pixels along all rows */

/** Of each kind: its name, and its pattern in a tile of 6 × 6. */
export const KINDS = /** @type {Record<string, {name: string, pattern: string}>} */ ({
  system: { name: "System", pattern: "M1.5 1.5h1.500M4.5 4.500h1.500" },
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
  hole: { name: "Has left", pattern: "M3 0v2M3 4v2" },
  others: { name: "Others", pattern: "M-1 4l5-5M2 7l5-5" },
  free: { name: "Free", pattern: "" },
});
/** @param {string} kind */
export const nameOf = (kind) => KINDS[kind]?.name ?? kind;

const MOTION_MS = 150;
const HOLE_PX = 7;
/** At most this part of the bar is holes. */
const HOLES = 0.2;
const ROW_PX = /** @type {Record<number, number>} */ ({ 1: 28, 2: 20, 4: 14, 8: 10, 16: 8 });

/** Spans without those that have left: a run of these is one hole. @param {Sequence} sequence @returns {Piece[]} */
export function piecesOf({ spans }) {
  const pieces = /** @type {Piece[]} */ ([]);
  let at = 0;
  /** @param {number} start @param {number} stop @param {number | null} message */
  const leave = (start, stop, message) => {
    const last = pieces.at(-1);
    const messages = message === null ? [] : [message];
    if (last?.kind === "hole") {
      last.stop = stop;
      if (message !== null && !last.messages.includes(message)) last.messages.push(message);
    } else pieces.push({ key: `hole ${start}`, kind: "hole", start, stop, messages, keep: false, cells: 0 });
  };
  for (const { start, stop, kind, message, keep, held } of spans) {
    if (start > at) leave(at, start, null);
    at = stop;
    if (!held) leave(start, stop, message);
    else {
      const messages = message === null ? [] : [message];
      pieces.push({ key: `${kind} ${start}`, kind, start, stop, messages, keep, cells: stop - start });
    }
  }
  return pieces;
}

/** Tokens by kind, in the order of the legend. @param {Piece[]} pieces @returns {[string, number][]} */
export function countsOf(pieces) {
  const counts = new Map(Object.keys(KINDS).map((kind) => [kind, 0]));
  for (const { kind, start, stop } of pieces) counts.set(kind, (counts.get(kind) ?? 0) + stop - start);
  return [...counts].filter(([, n]) => n);
}

/** @param {Piece} piece */
export function describe({ kind, messages, start, stop, keep }) {
  const n = messages.length;
  const message = n > 1 ? `messages ${messages[0]} to ${messages[n - 1]}` : n ? `message ${messages[0]}` : "";
  const parts = [nameOf(kind), message, `${formatCount(stop - start)} tokens`, keep && "protected"];
  return parts.filter(Boolean).join(" · ");
}

/** How many rows a bar has at first. @param {number} n_ctx */
export const rowsFor = (n_ctx) => 2 ** Math.max(0, Math.min(5, Math.ceil(Math.log2(n_ctx / 512) / 2 + 1)));

/**
 * @param {Piece[]} pieces @param {number} n_ctx @param {number} length of all rows, in pixels
 * @param {(piece: Piece) => number} cellsOf the cells that a piece is drawn with
 * @returns {Placed[]}
 */
function place(pieces, n_ctx, length, cellsOf) {
  const n_holes = pieces.filter(({ kind }) => kind === "hole").length;
  const hole_px = n_holes ? Math.min(HOLE_PX, (length * HOLES) / n_holes) : 0;
  const n_cells = Math.max(
    n_ctx,
    pieces.reduce((sum, piece) => sum + cellsOf(piece), 0),
  );
  const scale = (length - n_holes * hole_px) / Math.max(1, n_cells);
  let right = 0;
  return pieces.map((piece) => {
    const left = right;
    right += piece.kind === "hole" ? Math.max(hole_px, cellsOf(piece) * scale) : cellsOf(piece) * scale;
    return { ...piece, left, right };
  });
}

/** The piece at a place. @param {Placed[]} placed @param {number} at */
function pieceAt(placed, at) {
  let low = 0;
  let high = placed.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (placed[middle].right > at) high = middle;
    else low = middle + 1;
  }
  return placed.length && at < placed[low].right ? low : -1;
}

/** The colours of the kinds as they are now: a canvas does not read custom properties. @param {Element} inside */
function coloursIn(inside) {
  const probe = inside.appendChild(document.createElement("i"));
  /** @param {string} value */
  const read = (value) => {
    probe.style.color = value;
    return getComputedStyle(probe).color;
  };
  const names = Object.keys(KINDS).filter((kind) => kind !== "free" && kind !== "others");
  const colours = Object.fromEntries(names.map((kind) => [kind, read(`var(--k-${kind})`)]));
  const more = { others: read("var(--k-markup)"), ground: read("var(--bg)"), text: read("var(--text)"), focus: read("var(--focus)") };
  probe.remove();
  return /** @type {Record<string, string>} */ ({ ...colours, ...more });
}

/** The fill of a kind: its colour with its pattern in the ground's colour. @param {CanvasRenderingContext2D} context
 * @param {string} kind @param {Record<string, string>} colours @param {number} ratio */
function fillOf(context, kind, colours, ratio) {
  const tile = document.createElement("canvas");
  tile.width = tile.height = Math.round(6 * ratio);
  const pen = /** @type {CanvasRenderingContext2D} */ (tile.getContext("2d"));
  pen.scale(tile.width / 6, tile.width / 6);
  const isFaint = kind === "others";
  pen.globalAlpha = isFaint ? 0.16 : 1;
  pen.fillStyle = colours[kind];
  pen.fillRect(0, 0, 6, 6);
  pen.globalAlpha = isFaint ? 0.5 : 0.42;
  pen.strokeStyle = isFaint ? colours[kind] : kind === "hole" ? colours.text : colours.ground;
  pen.stroke(new Path2D(KINDS[kind]?.pattern));
  const fill = /** @type {CanvasPattern} */ (context.createPattern(tile, "repeat"));
  fill.setTransform(new DOMMatrix().scale(6 / tile.width));
  return fill;
}

/** A small field with a kind's colour and pattern, for the legend. @param {{kind: string}} props */
export function Swatch({ kind }) {
  const canvas = useRef(/** @type {HTMLCanvasElement | null} */ (null));
  const look = useLook();
  useEffect(() => {
    const box = /** @type {HTMLCanvasElement} */ (canvas.current);
    const context = box.getContext("2d");
    if (!context || kind === "free") return;
    box.width = box.height = 12 * devicePixelRatio;
    context.scale(devicePixelRatio, devicePixelRatio);
    const colours = coloursIn(/** @type {Element} */ (box.parentElement));
    context.fillStyle = fillOf(context, kind, colours, devicePixelRatio);
    context.fillRect(0, 0, 12, 12);
  }, [kind, look]);
  return html`<canvas ref=${canvas} class="swatch" data-kind=${kind} aria-hidden="true"></canvas>`;
}

const dark = matchMedia("(prefers-color-scheme: dark)");
const still = matchMedia("(prefers-reduced-motion: reduce)");

/** Changes with the colours of the page. */
function useLook() {
  const [round, setRound] = useState(0);
  useEffect(() => {
    const turn = () => setRound((n) => n + 1);
    dark.addEventListener("change", turn);
    return () => dark.removeEventListener("change", turn);
  }, []);
  return `${theme.value} ${round}`;
}

/**
 * @param {{sequence: Sequence, others: number, rows: number, summary: string, onOpen: (piece: Piece) => void,
 *   onPoint: (piece: Piece | null) => void}} props `others`: cells of other conversations
 */
export function Cells({ sequence, others, rows, summary, onOpen, onPoint }) {
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const pieces = useMemo(() => piecesOf(sequence), [sequence]);
  const drawing = useDrawing(box, { pieces, n_ctx: sequence.n_ctx, others, rows });
  const [current, setCurrent] = useState(-1);
  const row_px = heightOf(rows);

  /** @param {number} at @param {boolean} [focus] */
  const point = (at, focus = false) => {
    drawing.mark(at, focus);
    onPoint(pieces[at] ?? null);
  };
  /** @param {MouseEvent} event */
  const find = ({ clientX, clientY }) => {
    const area = /** @type {HTMLElement} */ (box.current).getBoundingClientRect();
    const row = Math.min(rows - 1, Math.floor((clientY - area.top) / (row_px + GAP_PX)));
    return pieceAt(drawing.placed(), row * area.width + clientX - area.left);
  };
  /** @param {KeyboardEvent} event */
  const move = (event) => {
    const steps = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 };
    const step = steps[/** @type {keyof typeof steps} */ (event.key)] ?? 0;
    const to = { Home: 0, End: pieces.length - 1 }[event.key] ?? current + step;
    if (!step && to === current) return;
    event.preventDefault();
    let next = Math.max(0, Math.min(pieces.length - 1, to));
    while (pieces[next]?.kind === "markup" && pieces[next + step] && step) next += step;
    setCurrent(next);
    point(next, true);
  };
  return html`<div class="cells" role="group" aria-label="Cells of this conversation">
    <p class="hidden">${summary}</p>
    <button
      type="button"
      ref=${box}
      style=${{ "--rows": rows, "--row": `${row_px}px`, "--gap": `${GAP_PX}px` }}
      aria-label=${pieces[current] ? describe(pieces[current]) : "Parts of the bar: arrow keys move, Enter opens"}
      onKeyDown=${move}
      onFocus=${() => current >= 0 && point(current, true)}
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
  useDrawing(box, { pieces, n_ctx: sequence.n_ctx, others, rows: 1 });
  return html`<span class="thin-cells" ref=${box}><canvas aria-hidden="true"></canvas></span>`;
}

const GAP_PX = 3;
/** @param {number} rows */
const heightOf = (rows) => ROW_PX[rows] ?? 7;

/**
 * Draws into the canvas of `box`, once when something changes and in each frame while something moves.
 * @param {{current: HTMLElement | null}} box
 * @param {{pieces: Piece[], n_ctx: number, others: number, rows: number}} shown
 */
function useDrawing(box, shown) {
  const look = useLook();
  const state = useRef({
    shown,
    width: 0,
    height: 0,
    colours: /** @type {Record<string, string>} */ ({}),
    fills: /** @type {Map<string, CanvasPattern>} */ (new Map()),
    /** Cells that the pieces had when they began to move, and have now. */
    from: /** @type {Map<string, number>} */ (new Map()),
    now: /** @type {Map<string, number>} */ (new Map()),
    began_ms: -1,
    placed: /** @type {Placed[]} */ ([]),
    marked: -1,
    focus: false,
    frame: 0,
  }).current;

  /** @param {number} at_ms */
  function draw(at_ms) {
    state.frame = 0;
    const canvas = box.current?.querySelector("canvas");
    const context = canvas?.getContext("2d");
    if (!canvas || !context || !state.width) return;
    const { pieces, n_ctx, others, rows } = state.shown;
    if (state.began_ms < 0) state.began_ms = at_ms;
    const part = still.matches ? 1 : Math.min(1, (at_ms - state.began_ms) / MOTION_MS);
    const all = [...pieces];
    if (others) all.push({ key: "others", kind: "others", start: 0, stop: others, messages: [], keep: false, cells: others });
    const now = new Map();
    for (const { key, cells } of all) {
      const from = state.from.get(key) ?? (key === "others" ? cells : 0);
      now.set(key, from + (cells - from) * part);
    }
    state.now = now;
    const length = state.width * rows;
    state.placed = place(all, n_ctx, length, ({ key }) => now.get(key));
    const last = others ? state.placed.pop() : null;
    paint(context, state, length, last ? { ...last, left: length - (last.right - last.left), right: length } : null);
    if (part < 1) ask();
  }
  const ask = () => (state.frame ||= requestAnimationFrame(draw));

  useEffect(() => {
    state.shown = shown;
    state.from = state.now;
    state.began_ms = -1;
    ask();
  }, [shown.pieces, shown.n_ctx, shown.others, shown.rows]);
  useEffect(() => {
    const element = /** @type {HTMLElement} */ (box.current);
    state.colours = coloursIn(element);
    state.fills.clear();
    const watch = new ResizeObserver(([{ contentRect }]) => {
      const canvas = /** @type {HTMLCanvasElement} */ (element.querySelector("canvas"));
      state.width = contentRect.width;
      state.height = contentRect.height;
      canvas.width = Math.round(contentRect.width * devicePixelRatio);
      canvas.height = Math.round(contentRect.height * devicePixelRatio);
      draw(performance.now());
    });
    watch.observe(element);
    ask();
    return () => watch.disconnect();
  }, [look]);
  useEffect(() => () => cancelAnimationFrame(state.frame), []);
  return {
    placed: () => state.placed,
    /** @param {number} at @param {boolean} focus */
    mark: (at, focus) => {
      state.marked = at;
      state.focus = focus;
      ask();
    },
  };
}

/** @param {CanvasRenderingContext2D} context @param {any} state of `useDrawing` @param {number} length
 * @param {Placed | null} others */
function paint(context, state, length, others) {
  const { width, height, placed, colours, fills, shown } = state;
  const ratio = devicePixelRatio;
  const gap = shown.rows > 1 ? GAP_PX : 0;
  const row_px = (height - gap * (shown.rows - 1)) / shown.rows;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  /** The parts of a piece, one in each row. @param {Placed} piece @param {(x: number, y: number, w: number) => void} each */
  const inRows = ({ left, right }, each) => {
    for (let row = Math.floor(left / width); row * width < right - 0.01 && row < shown.rows; row++) {
      const from = Math.max(left, row * width);
      each(from - row * width, row * (row_px + gap), Math.min(right, (row + 1) * width) - from);
    }
  };
  const free = { ...KINDS.free, left: 0, right: length };
  context.fillStyle = colours.hole;
  inRows(/** @type {any} */ (free), (x, y, w) => context.fillRect(x, y, w, row_px));
  for (const piece of others ? [...placed, others] : placed) {
    const { kind, left, right, keep } = piece;
    if (!fills.has(kind)) fills.set(kind, fillOf(context, KINDS[kind] ? kind : "markup", colours, ratio));
    // Neighbours are kept apart by a hair, where there is room for it.
    const hair = right - left > 4 ? 1 : 0;
    inRows(piece, (x, y, w) => {
      context.fillStyle = kind === "hole" ? colours.ground : fills.get(kind);
      context.fillRect(x, y, Math.max(0.5, w - hair), row_px);
      if (kind === "hole") {
        context.fillStyle = fills.get(kind);
        context.fillRect(x + 1, y, Math.max(0.5, w - 2), row_px);
      }
      context.fillStyle = colours.text;
      if (keep) context.fillRect(x, y + row_px - 2, Math.max(0.5, w - hair), 2);
    });
  }
  const marked = placed[state.marked];
  context.strokeStyle = state.focus ? colours.focus : colours.text;
  context.lineWidth = 2;
  if (marked) inRows(marked, (x, y, w) => context.strokeRect(x + 1, y + 1, Math.max(1, w - 2), row_px - 2));
}
