/** Ctrl-K: one field that finds chats by their titles, what was said in any of them, and what the page can do. */
import { html } from "htm/preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { get } from "./api.js";
import { useLoaded } from "./loaded.js";
import * as state from "./state.js";
import { Dialog, Icon, formatTime } from "./ui.js";

/** @typedef {Pick<state.Command, "label" | "hint" | "icon" | "keys" | "run">} Row */
const PAUSE_MS = 200;
/** Of chats and of actions; of what was said, more. */
const MOST = 8;
const MOST_SAID = 30;

export function Switcher() {
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  const list = useRef(/** @type {HTMLElement | null} */ (null));
  const query = text.trim();
  const canSearch = query.length > 1;
  const path = `v1/chats/search?q=${encodeURIComponent(query)}&limit=${MOST_SAID}`;
  const load = async (/** @type {AbortSignal} */ signal) => canSearch && { query, ...(await get(path, { signal })) };
  const { value: said, error } = useLoaded(load, [query], { pause_ms: PAUSE_MS });
  const isSearching = canSearch && said?.query !== query && !error;
  useEffect(() => setAt(0), [query]);

  const groups = [
    { title: "Chats", rows: matching(state.chats.value ?? [], (chat) => chat.title).map(rowOfChat) },
    { title: "Actions", rows: matching(state.commands.value, (each) => each.label) },
    { title: "Said in chats", rows: /** @type {Row[]} */ (said?.query === query ? said.results.map(rowOfResult) : []) },
  ].filter((group) => group.rows.length);
  const rows = groups.flatMap((group) => group.rows);

  /** @template T @param {T[]} items @param {(item: T) => string} nameOf @returns {T[]} */
  function matching(items, nameOf) {
    const words = query.toLowerCase().split(/\s+/);
    return items.filter((item) => words.every((word) => nameOf(item).toLowerCase().includes(word))).slice(0, MOST);
  }

  /** @param {Row | undefined} row */
  function choose(row) {
    if (!row) return;
    state.closeDialog();
    row.run();
  }

  /** @param {KeyboardEvent} event */
  function move(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (event.key === "Enter" && !event.isComposing) choose(rows[at]);
    if (!step || !rows.length) return;
    event.preventDefault();
    setAt((at + step + rows.length) % rows.length);
  }
  useEffect(() => list.current?.querySelector("[aria-selected=true]")?.scrollIntoView({ block: "nearest" }), [at]);

  return html`<${Dialog} title="Search and switch" class="switcher">
    <input role="combobox" aria-label="Search chats and actions" aria-expanded="true"
      aria-controls="switcher-list" aria-activedescendant=${rows.length ? `switcher-${at}` : undefined} autofocus
      placeholder="Search chats and actions" value=${text} onKeyDown=${move}
      onInput=${(/** @type {any} */ event) => setText(event.target.value)} />
    <div id="switcher-list" ref=${list} role="listbox" aria-label="Found">
      ${groups.map(
        (group) => html`<div key=${group.title} role="group" aria-label=${group.title}>
          <p class="group" aria-hidden="true">${group.title}</p>
          ${group.rows.map((row) => {
            const index = rows.indexOf(row);
            return html`<div key=${index} id=${`switcher-${index}`} role="option" aria-selected=${String(index === at)}
              onClick=${() => choose(row)} onMouseMove=${() => index !== at && setAt(index)}>
              <${Icon} name=${row.icon ?? "forward"} size=${18} /><span class="grow">${row.label}</span><small>${row.keys ?? row.hint}</small>
            </div>`;
          })}
        </div>`,
      )}
    </div>
    <p class="empty small" role="status">${error || (isSearching ? "Searching…" : rows.length ? "" : "Nothing found")}</p>
  <//>`;
}

/** @param {state.Chat} chat @returns {Row} */
const rowOfChat = (chat) => ({
  label: chat.title || "Untitled",
  hint: formatTime(chat.changed),
  icon: "chat",
  run: () => state.go("chat", chat.id),
});

/** @param {any} found @returns {Row} */
const rowOfResult = (found) => ({
  label: found.excerpt,
  hint: found.title ?? "",
  icon: "search",
  run() {
    if (typeof found.at === "number") state.target.value = { chat: found.chat, at: found.at };
    if (found.chat) state.go("chat", found.chat);
    else state.go("memory");
  },
});
