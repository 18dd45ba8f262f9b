/** Ctrl-K: one field that finds chats by their titles, what was said in any of them, and what the page can do. */
import { html } from "htm/preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { get } from "./api.js";
import * as state from "./state.js";
import { Dialog, Icon, formatAgo } from "./ui.js";

/** @typedef {{label: string, hint: string, icon: string, run: () => void}} Row */
const PAUSE_MS = 200;
const MOST = 8;

/** @param {{onClose: () => void}} props */
export function Switcher({ onClose }) {
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  const [said, setSaid] = useState(/** @type {Row[]} */ ([]));
  const list = useRef(/** @type {HTMLElement | null} */ (null));
  const query = text.trim();

  useEffect(() => {
    setAt(0);
    setSaid([]);
    if (query.length < 2) return;
    const stop = new AbortController();
    const timer = setTimeout(async () => {
      const path = `v1/chats/search?q=${encodeURIComponent(query)}&limit=${MOST}`;
      const found = await get(path, { signal: stop.signal }).catch(() => ({ results: [] }));
      if (!stop.signal.aborted) setSaid(found.results.map(rowOfResult));
    }, PAUSE_MS);
    return () => (clearTimeout(timer), stop.abort());
  }, [query]);

  const groups = [
    { title: "Chats", rows: matching(state.chats.value ?? [], (chat) => chat.title).map(rowOfChat) },
    { title: "Said in chats", rows: said },
    { title: "Actions", rows: matching([...state.commands.value.values()], (each) => each.label).map(rowOfCommand) },
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
    onClose();
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

  return html`<${Dialog} title="Search and switch" class="switcher" onClose=${onClose}>
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
              <${Icon} name=${row.icon} size=${18} /><span class="grow">${row.label}</span><small>${row.hint}</small>
            </div>`;
          })}
        </div>`,
      )}
    </div>
    ${!rows.length && html`<p class="empty">Nothing is called so.</p>`}
  <//>`;
}

/** @param {state.Chat} chat @returns {Row} */
const rowOfChat = (chat) => ({
  label: chat.title || "Untitled",
  hint: formatAgo(chat.changed),
  icon: "chat",
  run: () => state.go("chat", chat.id),
});

/** @param {any} found @returns {Row} */
const rowOfResult = (found) => ({
  label: found.excerpt,
  hint: found.title ?? "",
  icon: "search",
  run: () => (found.chat ? state.go("chat", found.chat) : state.go("memory")),
});

/** @param {state.Command} command @returns {Row} */
const rowOfCommand = ({ label, keys, hint, icon = "forward", run }) => ({ label, hint: keys ?? hint ?? "", icon, run });
