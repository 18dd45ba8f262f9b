/** What the next message of a chat brings back from the memory. The window adds; the composer shows, sends, and empties. */
import { signal } from "@preact/signals";

/** @typedef {{id: number, role: string, text: string}} Quote a message of the archive */

const byChat = /** @type {Map<string | null, import("@preact/signals").Signal<Quote[]>>} */ (new Map());

/** @param {string | null} chat null: the one that the next message begins */
export function quotesOf(chat) {
  const found = byChat.get(chat) ?? signal(/** @type {Quote[]} */ ([]));
  byChat.set(chat, found);
  return found;
}

/** @param {string | null} chat @param {Quote[]} added */
export function bringBack(chat, added) {
  const quotes = quotesOf(chat);
  const known = new Set(quotes.value.map(({ id }) => id));
  quotes.value = [...quotes.value, ...added.filter(({ id }) => !known.has(id))];
}
