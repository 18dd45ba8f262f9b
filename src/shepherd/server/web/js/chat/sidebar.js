/** The list of chats: by day, the newest first; the search over all of them; deleting with a way back. */
import { signal } from "@preact/signals";
import { html } from "htm/preact";
import { useEffect, useState } from "preact/hooks";
import { del, get } from "../api.js";
import { chatId, chats, drawerOpen, go, hasMoreChats, moreChats, refreshChats, tell, toast } from "../state.js";
import { Button, VirtualList } from "../ui.js";
import { chatOf, pathOf } from "./store.js";

/** The message that the open chat should show: a result of the search. */
export const target = signal(/** @type {{chat: string, at: number} | null} */ (null));

/** How long a deleted chat can be taken back. */
const UNDO_MS = 6000;
const REFRESH_MS = 20_000;
/** Chats that are hidden, and will be deleted if they are not taken back. */
const deleting = signal(/** @type {Set<string>} */ (new Set()));

/** @typedef {{key: string, day?: string, chat?: import("../state.js").Chat}} ListRow */

/** @param {number} changed_s @param {Date} now */
function dayOf(changed_s, now) {
  const midnight = new Date(now.getFullYear(), now.getMonth(), now.getDate()).getTime() / 1000;
  const days = Math.ceil((midnight - changed_s) / 86_400);
  if (days <= 0) return "Today";
  if (days === 1) return "Yesterday";
  if (days <= 7) return "Last 7 days";
  if (days <= 30) return "Last 30 days";
  return new Date(changed_s * 1000).toLocaleDateString("en", { month: "long", year: "numeric" });
}

/** @param {import("../state.js").Chat[]} all @returns {ListRow[]} */
function listRows(all) {
  const now = new Date();
  const rows = /** @type {ListRow[]} */ ([]);
  let last = "";
  for (const chat of all) {
    const day = dayOf(chat.changed, now);
    if (day !== last) rows.push({ key: `day ${day} ${rows.length}`, day });
    last = day;
    rows.push({ key: chat.id, chat });
  }
  return rows;
}

/** @param {import("../state.js").Chat} chat */
function remove(chat) {
  const show = () => (deleting.value = new Set([...deleting.value].filter((id) => id !== chat.id)));
  deleting.value = new Set(deleting.value).add(chat.id);
  if (chatId.value === chat.id) go("chat");
  const timer = setTimeout(() => del(pathOf(chat.id)).then(refreshChats).catch(tell).finally(show), UNDO_MS);
  const undo = { label: "Undo", run: () => (clearTimeout(timer), show()) };
  toast(`"${nameOf(chat)}" is deleted`, { action: undo, stay_ms: UNDO_MS - 200 });
}

/** @param {import("../state.js").Chat} chat */
const nameOf = (chat) => (chat.title || chat.first || "Untitled").slice(0, 80);

export function ChatList() {
  const [text, setText] = useState("");
  const open = chatId.value;
  useEffect(() => {
    const refresh = () => document.visibilityState === "visible" && refreshChats().catch(() => {});
    const timer = setInterval(refresh, REFRESH_MS);
    document.addEventListener("visibilitychange", refresh);
    return () => (clearInterval(timer), document.removeEventListener("visibilitychange", refresh));
  }, []);
  const shown = (chats.value ?? []).filter((chat) => !deleting.value.has(chat.id));
  return html`<div class="chat-list">
    <input type="search" aria-label="Search all chats" placeholder="Search all chats" maxlength="500" value=${text}
      onInput=${(/** @type {any} */ event) => setText(event.target.value)}
      onKeyDown=${(/** @type {KeyboardEvent} */ event) => event.key === "Escape" && text && (event.preventDefault(), setText(""))} />
    ${
      text.trim()
        ? html`<${Results} text=${text.trim()} />`
        : shown.length === 0
          ? html`<p class="empty small">${chats.value === null ? "" : "No chats yet"}</p>`
          : html`<${VirtualList} label="Chats" class="list" items=${listRows(shown)}
            keyOf=${(/** @type {ListRow} */ row) => row.key} height=${36}
            render=${(/** @type {ListRow} */ row) => (row.chat ? html`<${Entry} chat=${row.chat} isOpen=${row.chat.id === open} />` : html`<h2 class="day">${row.day}</h2>`)} />
          ${hasMoreChats.value && html`<${Button} label="Older chats" kind="quiet small" onClick=${() => moreChats().catch(tell)} />`}`
    }
  </div>`;
}

/** @param {{chat: import("../state.js").Chat, isOpen: boolean}} props */
function Entry({ chat, isOpen }) {
  const isRunning = isOpen ? chatOf(chat.id).isRunning.value : chat.running;
  return html`<div class="entry">
    <a href=${`#/chat/${encodeURIComponent(chat.id)}`} aria-current=${isOpen ? "page" : undefined}
      title=${chat.error || chat.first || nameOf(chat)} onClick=${() => (drawerOpen.value = false)}>
      <span class="entry-title">${nameOf(chat)}</span>
      ${isRunning && html`<span class="pulse"><span class="hidden">an answer is being written</span></span>`}
      ${chat.error && html`<span class="badge bad">unreadable</span>`}
    </a>
    <${Button} label=${`Delete ${nameOf(chat)}`} icon="trash" kind="quiet small" short onClick=${() => remove(chat)} />
  </div>`;
}

/** @param {{text: string}} props */
function Results({ text }) {
  const [found, setFound] = useState(/** @type {{text: string, results?: any[], error?: string}} */ ({ text: "" }));
  useEffect(() => {
    const stop = new AbortController();
    const timer = setTimeout(() => {
      get(`v1/chats/search?q=${encodeURIComponent(text)}&limit=30`, { signal: stop.signal }).then(
        ({ results }) => setFound({ text, results }),
        (error) => stop.signal.aborted || setFound({ text, error: error.message }),
      );
    }, 250);
    return () => (clearTimeout(timer), stop.abort());
  }, [text]);
  if (found.error) return html`<p class="empty small" role="alert">${found.error}</p>`;
  if (!found.results) return html`<p class="empty small" role="status">Searching…</p>`;
  return html`<p class="hidden" role="status">${found.results.length} results</p>
    <ul class="list results" aria-label="Results">
      ${found.results.map((result, at) => {
        const inside = html`<span class="entry-title">${result.title || "Conversation"}</span><small>${result.excerpt}</small>`;
        if (!result.chat) return html`<li key=${at}><div class="result">${inside}</div></li>`;
        const show = () => {
          if (typeof result.at === "number") target.value = { chat: result.chat, at: result.at };
          drawerOpen.value = false;
        };
        return html`<li key=${at}><a class="result" href=${`#/chat/${encodeURIComponent(result.chat)}`} onClick=${show}>${inside}</a></li>`;
      })}
      ${found.results.length === 0 && html`<li class="empty small">Nothing found</li>`}
    </ul>`;
}
