/**
 * Requests to the server: JSON there and back, and streams of events. All addresses are relative to where the page's
 * files lie, so that the page also works as a part of a site. A refused key is asked for once more, and the request is
 * sent again with the new one.
 */
import { signal } from "@preact/signals";

/** The address in front of `v1/…`. */
const BASE = new URL("../../", import.meta.url);
const KEY = "shepherd.key";
/** No single event of the server is longer. */
const LONGEST_EVENT = 64 * 2 ** 20;

/** The API key of this tab; "" = none. It is forgotten with the tab. */
export const key = signal(sessionStorage.getItem(KEY) ?? "");
/** Why a key is asked for, as a sentence; null = it is not. */
export const needsKey = signal(/** @type {string | null} */ (null));
/** False while the server cannot be reached. */
export const online = signal(true);
/** The server's version, as its last answer said. */
export const serverVersion = signal("");

/** What the server refused, with its own sentence, and the JSON that it sent. `status` 0: it cannot be reached. */
export class ApiError extends Error {
  /** @param {number} status @param {string} message @param {any} [body] */
  constructor(status, message, body) {
    super(message);
    this.status = status;
    this.body = body;
  }
}

/** @param {string} text */
export function setKey(text) {
  sessionStorage.setItem(KEY, text);
  key.value = text;
  needsKey.value = null;
}

/**
 * @typedef {{method?: string, body?: unknown, signal?: AbortSignal}} Options
 * @typedef {{type: string, id: string, data: any}} ServerEvent
 */

/**
 * The answer, whatever its body is. Throws ApiError, and what `signal` throws.
 * @param {string} path such as `v1/models`
 * @param {Options} [options]
 * @returns {Promise<Response>}
 */
export async function request(path, { method = "GET", body, signal } = {}) {
  for (;;) {
    const headers = new Headers();
    const sent = key.value;
    if (sent) headers.set("authorization", `Bearer ${sent}`);
    if (body !== undefined) headers.set("content-type", "application/json");
    let answer;
    try {
      const content = body === undefined ? undefined : JSON.stringify(body);
      answer = await fetch(new URL(path, BASE), { method, headers, body: content, signal, cache: "no-store" });
    } catch (error) {
      if (signal?.aborted) throw error;
      online.value = false;
      throw new ApiError(0, "The server cannot be reached.");
    }
    online.value = true;
    serverVersion.value = answer.headers.get("x-shepherd-version") ?? "";
    if (answer.ok) return answer;
    const error = await errorOf(answer);
    if (answer.status !== 401) throw error;
    if (sent !== key.value) continue; // another request has asked for it meanwhile
    needsKey.value = sent ? "The server no longer takes this key." : "This server asks for an API key.";
    await keyGiven(signal);
  }
}

/** @param {Response} answer */
async function errorOf(answer) {
  const text = await answer.text().catch(() => "");
  let body;
  try {
    body = JSON.parse(text);
  } catch {
    // A proxy in between has answered with a page of its own.
  }
  const error = body?.error;
  const message = error?.message ?? error ?? body?.detail ?? `The server answered with the status ${answer.status}.`;
  return new ApiError(answer.status, String(message), body);
}

/** Resolves when the person has given a key. @param {AbortSignal} [signal] */
function keyGiven(signal) {
  return new Promise((resolve, reject) => {
    const stop = needsKey.subscribe((why) => {
      if (why === null) queueMicrotask(() => (stop(), resolve(undefined)));
    });
    signal?.addEventListener("abort", () => (stop(), reject(signal.reason)), { once: true });
  });
}

/** @param {string} path @param {Options} [options] @returns {Promise<any>} the JSON of the answer */
export async function get(path, options) {
  const answer = await request(path, options);
  return answer.status === 204 ? null : answer.json();
}
/** @param {string} path @param {unknown} [body] @param {Options} [options] */
export const post = (path, body = {}, options) => get(path, { ...options, method: "POST", body });
/** @param {string} path @param {unknown} body @param {Options} [options] */
export const patch = (path, body, options) => get(path, { ...options, method: "PATCH", body });
/** @param {string} path @param {Options} [options] */
export const del = (path, options) => get(path, { ...options, method: "DELETE" });

/** A file of the API, as an address that an image can have; give it back with `URL.revokeObjectURL`.
 * @param {string} path @param {AbortSignal} [signal] */
export async function blobUrl(path, signal) {
  return URL.createObjectURL(await (await request(path, { signal })).blob());
}

/**
 * Reads server-sent events, or lines of JSON, until the server ends them. Throws as `request`.
 * @param {string} path
 * @param {Options & {lastId?: string, onEvent: (event: ServerEvent) => void, onOpen?: () => void}} options
 */
export async function stream(path, { lastId, onEvent, onOpen, ...options }) {
  const after = lastId ? `${path.includes("?") ? "&" : "?"}after=${encodeURIComponent(lastId)}` : "";
  const answer = await request(path + after, options);
  if (!answer.body) return;
  onOpen?.();
  const isLines = (answer.headers.get("content-type") ?? "").includes("ndjson");
  const separator = isLines ? /\r?\n/ : /\r?\n\r?\n/;
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      const parts = (rest + value).split(separator);
      rest = parts.pop() ?? "";
      if (rest.length > LONGEST_EVENT) throw new ApiError(0, "The server sent an event that is too long.");
      for (const part of parts) {
        const event = isLines ? lineEvent(part) : eventOf(part);
        if (event) onEvent(event);
      }
    }
  } catch (error) {
    if (options.signal?.aborted || error instanceof ApiError) throw error;
    if (error instanceof TypeError) throw new ApiError(0, "The connection broke.");
    throw error;
  } finally {
    reader.cancel().catch(() => {});
  }
}

/** @param {string} line @returns {ServerEvent | null} */
const lineEvent = (line) => (line.trim() ? { type: "message", id: "", data: JSON.parse(line) } : null);

/** @param {string} block @returns {ServerEvent | null} */
function eventOf(block) {
  const fields = block.split(/\r?\n/).map((line) => /^(event|id|data): ?([^]*)$/.exec(line) ?? []);
  const valuesOf = (/** @type {string} */ name) => fields.flatMap((found) => (found[1] === name ? [found[2]] : []));
  const [type = "message", id = "", data] = [valuesOf("event").at(-1), valuesOf("id").at(-1), valuesOf("data")];
  return data.length ? { type, id, data: JSON.parse(data.join("\n")) } : null;
}

/**
 * Runs `attempt` again and again, with growing pauses, until `signal` is aborted. `attempt` gets a function to call when
 * it works: the pauses begin again then. An error that trying again does not mend goes to `onError`, and ends it.
 * @param {{signal: AbortSignal, first_ms: number, most_ms: number, onError?: (error: ApiError) => void}} how
 * @param {(works: () => void) => Promise<void>} attempt
 */
export async function keepTrying({ signal, first_ms, most_ms, onError }, attempt) {
  let wait_ms = first_ms;
  while (!signal.aborted) {
    try {
      await attempt(() => void (wait_ms = first_ms));
    } catch (error) {
      if (signal.aborted) return;
      if (!(error instanceof ApiError)) throw error;
      if (error.status >= 400 && error.status < 500 && error.status !== 429) return onError?.(error);
    }
    await new Promise((resolve) => setTimeout(resolve, wait_ms));
    wait_ms = Math.min(wait_ms * 2, most_ms);
  }
}

/**
 * As `stream`, without end: connects again, behind the last event, as `keepTrying`.
 * @param {string} path
 * @param {{signal: AbortSignal, lastId?: string, onEvent: (event: ServerEvent) => void, onOpen?: () => void,
 *   onError?: (error: ApiError) => void}} options
 */
export function follow(path, { signal, lastId = "", onEvent, onOpen, onError }) {
  return keepTrying({ signal, first_ms: 250, most_ms: 4000, onError }, (works) =>
    stream(path, {
      signal,
      lastId,
      onOpen,
      onEvent: (event) => {
        works();
        if (event.id) lastId = event.id;
        onEvent(event);
      },
    }),
  );
}
