/** The list of chats: by day, the newest first. */
import { html } from "htm/preact";
import { del } from "../api.js";
import { Ask, useLoaded } from "../loaded.js";
import { chatId, chats, dialog, drawerOpen, go, moreChats, nextChats, refreshChats, tell } from "../state.js";
import { Button, VirtualList } from "../ui.js";
import { chatOf, pathOf } from "./store.js";

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

/** @param {import("../state.js").Chat[]} all the newest first @returns {ListRow[]} */
function listRows(all) {
  const now = new Date();
  const days = Map.groupBy(all, ({ changed }) => dayOf(changed, now));
  return [...days].flatMap(([day, chats]) => [
    { key: `day ${day}`, day },
    ...chats.map((chat) => ({ key: chat.id, chat })),
  ]);
}

/** @param {import("../state.js").Chat} chat */
function remove(chat) {
  async function run() {
    await del(pathOf(chat.id));
    if (chatId.value === chat.id) go("chat");
    await refreshChats();
  }
  dialog.value = html`<${Ask} title=${`Delete "${nameOf(chat)}"?`} label="Delete" run=${run}>
    <p>The chat and its file are deleted. What was said in it stays in the memory.</p>
  <//>`;
}

/** @param {import("../state.js").Chat} chat */
const nameOf = (chat) => (chat.title || chat.first || "Untitled").slice(0, 80);

export function ChatList() {
  const open = chatId.value;
  useLoaded(refreshChats, [], { every_s: 20 });
  const rows = listRows(chats.value ?? []);
  /** @param {ListRow} row */
  const render = ({ chat, day }) =>
    chat ? html`<${Entry} chat=${chat} isOpen=${chat.id === open} />` : html`<h2 class="day">${day}</h2>`;
  if (!rows.length) return html`<p class="empty small">${chats.value === null ? "" : "No chats yet"}</p>`;
  return html`<div class="chat-list">
    <${VirtualList} label="Chats" class="list" items=${rows} keyOf=${(/** @type {ListRow} */ row) => row.key} height=${36} render=${render} />
    ${nextChats.value && html`<${Button} label="Older chats" kind="quiet small" onClick=${() => moreChats().catch(tell)} />`}
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
