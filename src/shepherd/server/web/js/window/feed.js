/**
 * What the engine's caches hold and what happens in them, live: one stream of events for all parts of the page. It is
 * open while a part shows it and the page is seen; the server does nothing for it otherwise.
 *
 *   GET v1/window/events ─▶ waiting ─▶ (once a frame) sequences, turns, happenings, pool
 *
 * Not here: how it is drawn (`cells.js`, `view.js`).
 */
import { batch, effect, signal, untracked } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { follow } from "../api.js";

/**
 * @typedef {{start: number, stop: number, kind: string, message: number | null, keep: boolean, held: number}} Span
 *   `held`: how many of its tokens
 * @typedef {{cache: string, seq: number | string, session: string | null, tier: "cells" | "memory" | "disk",
 *   n_ctx: number, tokens: number, held: number, spans: Span[]}} Sequence
 * @typedef {{at: number | null, cached: number, new: number, generated: number, first_token_s: number | null,
 *   tokens_per_s: number | null}} Turn
 * @typedef {{type: "left" | "recalled" | "miss" | "moved", key: number, at: number, session: string | null,
 *   cache?: string, [field: string]: any}} Happening
 * @typedef {{model: string, n_ctx: number, used?: number, ram_bytes?: number, disk_bytes?: number,
 *   sequences?: any[]}} Cache as `GET v1/caches` has it; before the first figures only its model and its size
 */

const VERSION = 1;
const MOST_TURNS = 500;
const MOST_HAPPENINGS = 500;

/** By `keyOf`. */
export const sequences = signal(/** @type {Map<string, Sequence>} */ (new Map()));
/** By session, since the page looks; older first. */
export const turns = signal(/** @type {Map<string, Turn[]>} */ (new Map()));
/** The newest first. */
export const happenings = signal(/** @type {Happening[]} */ ([]));
/** By the name of the cache. */
export const pool = signal(/** @type {Record<string, Cache>} */ ({}));
/** How often the stream has begun; 0 = not yet. What came before may have been missed. */
export const beginning = signal(0);
/** Why there is no stream, as a sentence. */
export const failure = signal("");

/** @param {{cache: string, seq: number | string}} of */
export const keyOf = ({ cache, seq }) => JSON.stringify([cache, seq]);
export const TIERS = ["cells", "memory", "disk"];

/** The sequence of a session: the longest, of those in the cells if there are any. @param {string | null} session */
export function sequenceOf(session) {
  if (session === null) return null;
  const found = [...sequences.value.values()].filter((each) => each.session === session);
  found.sort((a, b) => TIERS.indexOf(a.tier) - TIERS.indexOf(b.tier) || b.tokens - a.tokens);
  return found[0] ?? null;
}

let n_happenings = 0;

/** A draft of the signals, and one event. @type {Record<string, (draft: Draft, event: any) => void>} */
const APPLY = {
  hello(draft, { version, caches }) {
    if (version !== VERSION) {
      failure.value = `The server sends version ${version} of the window's events; this page reads version ${VERSION}. Reload the page.`;
      return;
    }
    draft.sequences.clear();
    draft.pool = caches;
    draft.beginning += 1;
  },
  spans(draft, event) {
    draft.sequences.set(keyOf(event), event);
  },
  grow(draft, event) {
    const before = draft.sequences.get(keyOf(event));
    if (before && event.tokens > before.tokens) draft.sequences.set(keyOf(event), grown(before, event));
  },
  turn(draft, event) {
    const before = draft.turns.get(event.session) ?? [];
    draft.turns.set(event.session, [...before.slice(1 - MOST_TURNS), event]);
  },
  left: happen("left"),
  recalled: happen("recalled"),
  miss: happen("miss"),
  moved: happen("moved"),
  gone(draft, event) {
    draft.sequences.delete(keyOf(event));
  },
  pool(draft, { caches }) {
    draft.pool = caches;
  },
};

/** @typedef {{sequences: Map<string, Sequence>, turns: Map<string, Turn[]>, happenings: Happening[],
 *   pool: Record<string, Cache>, beginning: number}} Draft */

/** @param {Happening["type"]} type @returns {(draft: Draft, event: any) => void} */
function happen(type) {
  return (draft, event) => {
    const happening = { ...event, type, key: ++n_happenings };
    draft.happenings = [happening, ...draft.happenings.slice(0, MOST_HAPPENINGS - 1)];
  };
}

/** The sequence with the tokens that the model has written since. @param {Sequence} before @param {any} event */
function grown(before, { tokens, kind }) {
  const n = tokens - before.tokens;
  const last = before.spans.at(-1);
  const spans =
    last?.kind === kind
      ? [...before.spans.slice(0, -1), { ...last, stop: tokens, held: last.held + n }]
      : [...before.spans, { start: before.tokens, stop: tokens, kind, message: null, keep: true, held: n }];
  return { ...before, tokens, held: before.held + n, spans };
}

let waiting = /** @type {{type: string, data: any}[]} */ ([]);
let frame = 0;

function flush() {
  frame = 0;
  const signals = { sequences, turns, happenings, pool, beginning };
  const before = { sequences: sequences.value, turns: turns.value };
  const draft = {
    sequences: new Map(before.sequences),
    turns: new Map(before.turns),
    happenings: happenings.value,
    pool: pool.value,
    beginning: beginning.value,
  };
  const types = new Set(waiting.map(({ type }) => type));
  for (const { type, data } of waiting) if (!failure.value) APPLY[type]?.(draft, data);
  waiting = [];
  // A map is a new one each time; the parts that show it are drawn again only when it has changed.
  if (!["hello", "spans", "grow", "gone"].some((type) => types.has(type))) draft.sequences = before.sequences;
  if (!types.has("turn")) draft.turns = before.turns;
  batch(() => {
    for (const [name, each] of Object.entries(signals)) each.value = /** @type {any} */ (draft)[name];
  });
}

const n_watching = signal(0);
const isSeen = signal(!document.hidden);
document.addEventListener("visibilitychange", () => (isSeen.value = !document.hidden));

effect(() => {
  if (!n_watching.value || !isSeen.value) return;
  const stop = new AbortController();
  failure.value = "";
  const ended = untracked(() =>
    follow("v1/window/events", {
      signal: stop.signal,
      onEvent(event) {
        if (failure.value) return stop.abort();
        waiting.push(event);
        frame ||= requestAnimationFrame(flush);
      },
      onError: (error) => (failure.value = error.message),
    }),
  );
  ended.catch(() => (failure.value = "The server sent an event that this page cannot read. Reload the page."));
  return () => {
    stop.abort();
    waiting = [];
  };
});

/** Keeps the stream open while the component is there. */
export function useFeed() {
  useEffect(() => {
    n_watching.value += 1;
    return () => {
      n_watching.value -= 1;
    };
  }, []);
}
