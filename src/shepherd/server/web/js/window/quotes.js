/** What the next message of a chat brings back from the memory. The window adds; the composer shows, sends and empties. */
import { signal } from "@preact/signals";

/** @typedef {{id: number, role: string, text: string}} Quote a message of the archive */

const byChat = /** @type {Map<string | null, import("@preact/signals").Signal<Quote[]>>} */ (new Map());

/** @param {string | null} chat null: the one that the next message begins */
export function quotesOf(chat) {
  const quotes = byChat.get(chat) ?? signal(/** @type {Quote[]} */ ([]));
  byChat.set(chat, quotes);
  return quotes;
}
