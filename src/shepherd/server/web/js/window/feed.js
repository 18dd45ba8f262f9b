/**
 * What the engines' caches hold and what happens in them, live: one stream of events for all parts of the page. It is
 * open while a part shows it and the page is seen; the server does nothing for it otherwise.
 *
 *   GET v1/window/events ─▶ waiting ─▶ (once a frame) sequences, turns, happenings, pool
 */
import { batch, computed, effect, signal, untracked } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { follow } from "../api.js";

/**
 * @typedef {{start: number, stop: number, kind: string, message: number | null, keep: boolean, held: number}} Span
 *   `held`: how many of its tokens
 * @typedef {{cache: string, seq: number | string, session: string | null, tier: "cells" | "memory" | "disk",
 *   n_ctx: number, tokens: number, held: number, spans: Span[]}} Sequence
 * @typedef {{cached: number, new: number, first_token_s: number | null, tokens_per_s: number | null}} Turn
 * @typedef {{type: string, key: number, at?: number, session: string | null, [field: string]: any}} Happening
 * @typedef {{model: string, n_ctx: number, used?: number, ram_bytes?: number, disk_bytes?: number,
 *   sequences?: any[]}} Cache as `GET v1/caches` has it; before the first figures only its model and its size
 */

const VERSION = 1;
const MOST = 500;
export const TIERS = ["cells", "memory", "disk"];

/** By `keyOf`. */
export const sequences = signal(/** @type {Map<string, Sequence>} */ (new Map()));
/** By session, since the page looks; the newest last. */
export const turns = signal(/** @type {Map<string, Turn[]>} */ (new Map()));
/** The newest first. */
export const happenings = signal(/** @type {Happening[]} */ ([]));
/** By the name of the cache. */
export const pool = signal(/** @type {Record<string, Cache>} */ ({}));
/** Why there is no stream, as a sentence. */
export const failure = signal("");

/** @param {{cache: string, seq: number | string}} of */
export const keyOf = ({ cache, seq }) => JSON.stringify([cache, seq]);

/** The sequence of a session: the longest, of those in the cells if there are any. @param {string | null} session */
export function sequenceOf(session) {
  if (session === null) return null;
  const found = [...sequences.value.values()].filter((each) => each.session === session);
  found.sort((a, b) => TIERS.indexOf(a.tier) - TIERS.indexOf(b.tier) || b.tokens - a.tokens);
  return found[0] ?? null;
}

/** As of the last event; copied into `sequences` once a frame. */
const now = /** @type {Map<string, Sequence>} */ (new Map());
let n_happenings = 0;

/** @type {Record<string, (event: any, type: string) => void>} */
const APPLY = {
  hello({ version, caches }) {
    if (version === VERSION) {
      now.clear();
      pool.value = caches;
    } else failure.value = `The server sends version ${version} of the window; this page reads ${VERSION}. Reload it.`;
  },
  spans: (event) => now.set(keyOf(event), event),
  gone: (event) => now.delete(keyOf(event)),
  grow(event) {
    const before = now.get(keyOf(event));
    if (before) now.set(keyOf(event), grown(before, event));
  },
  turn(event) {
    const before = turns.value.get(event.session) ?? [];
    turns.value = new Map(turns.value).set(event.session, [...before.slice(1 - MOST), event]);
  },
  pool: ({ caches }) => (pool.value = caches),
  ...Object.fromEntries(["left", "recalled", "miss", "moved"].map((type) => [type, happen])),
};

/** @param {any} event @param {string} type */
function happen(event, type) {
  happenings.value = [{ ...event, type, key: ++n_happenings }, ...happenings.value.slice(0, MOST - 1)];
}

/** The sequence with what the model has written since. @param {Sequence} before @param {any} event @returns {Sequence} */
function grown(before, { tokens, kind }) {
  const n = tokens - before.tokens;
  const last = /** @type {Span} */ (before.spans.at(-1) ?? { kind: "" });
  const spans = before.spans.slice(0, last.kind === kind ? -1 : undefined);
  if (last.kind === kind) spans.push({ ...last, stop: tokens, held: last.held + n });
  else spans.push({ start: before.tokens, stop: tokens, kind, message: null, keep: true, held: n });
  return { ...before, tokens, held: before.held + n, spans };
}

let waiting = /** @type {{type: string, data: any}[]} */ ([]);
let frame = 0;

function flush() {
  const events = waiting;
  [frame, waiting] = [0, []];
  batch(() => {
    for (const { type, data } of events) if (!failure.value) APPLY[type]?.(data, type);
    if (events.some(({ type }) => ["hello", "spans", "grow", "gone"].includes(type))) sequences.value = new Map(now);
  });
}

const n_watching = signal(0);
const isSeen = signal(!document.hidden);
document.addEventListener("visibilitychange", () => (isSeen.value = !document.hidden));
const isWatched = computed(() => n_watching.value > 0 && isSeen.value);

effect(() => {
  if (!isWatched.value) return;
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
  return () => stop.abort();
});

/** Keeps the stream open while the component is there. */
export function useFeed() {
  useEffect(() => {
    n_watching.value += 1;
    return () => void (n_watching.value -= 1);
  }, []);
}
