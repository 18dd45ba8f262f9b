/** The head of a chat: its title, the model, the mode, and what else can be done with it. */
import { html } from "htm/preact";
import { useEffect, useState } from "preact/hooks";
import { blobUrl } from "../api.js";
import { drawerOpen, tell, toggleWindow, windowOpen } from "../state.js";
import { Button, Dialog, Field, Menu } from "../ui.js";
import { options, pathOf, refreshOptions } from "./store.js";

/** @typedef {import("./store.js").Chat} Chat */

/** Of sampling: the name on the wire, what it is called, its limits and what it does. */
const SAMPLING = /** @type {const} */ ([
  ["temperature", "Temperature", 0, 5, "0 always takes the likeliest token; higher is more varied."],
  ["top_p", "Top p", 0, 1, "Only the likeliest tokens that together have this share."],
  ["top_k", "Top k", 0, 1000, "Only this many of the likeliest tokens; 0 takes all."],
  ["min_p", "Min p", 0, 1, "Only tokens with this share of the likeliest one."],
  ["max_tokens", "Longest answer", 1, 1_000_000, "In tokens."],
  ["seed", "Seed", 0, 4_294_967_295, "The same number gives the same answer."],
]);
const WHOLE = new Set(["top_k", "max_tokens", "seed"]);

/** @param {Chat} chat @param {"markdown" | "json"} format */
export async function exportChat(chat, format) {
  const id = chat.id.value;
  if (id === null) return;
  try {
    const content = await blobUrl(`${pathOf(id)}/export?format=${format}`);
    const name = (chat.about.value?.title || id).replace(/[^\p{L}\p{N} _-]+/gu, "").trim();
    const download = `${name.slice(0, 80) || "chat"}.${format === "json" ? "json" : "md"}`;
    Object.assign(document.createElement("a"), { href: content, download }).click();
    setTimeout(() => URL.revokeObjectURL(content), 60_000);
  } catch (error) {
    tell(error);
  }
}

/**
 * @typedef {import("@preact/signals").Signal<boolean>} Flag
 * @typedef {{name: string, label?: string, does?: string, detail?: string, kind?: string}} Choice
 */

/** One of several, as a menu. @param {{what: string, icon?: "models" | "pin", rows?: Choice[], current?: string, onChoose: (name: string) => void}} props */
function Chooser({ what, icon, rows = [], current, onChoose }) {
  const chosen = rows.find(({ name }) => name === current);
  const label = chosen?.label ?? current ?? "";
  if (rows.length < 2) return label && html`<span class="badge">${label}</span>`;
  return html`<${Menu}
    label=${label || what}
    aria-label=${`${what}: ${label || "not chosen"}`}
    title=${what}
    icon=${icon}
    short=${false}
    kind="quiet chooser"
    items=${rows.map(({ name, label, does, detail, kind }) => ({
      label: label ?? name,
      note: does ?? (detail || kind),
      checked: name === current,
      run: () => onChoose(name),
    }))}
  />`;
}

/** @param {{chat: Chat, renaming: Flag, configuring: Flag}} props */
export function Header({ chat, renaming, configuring }) {
  const about = chat.about.value ?? {};
  const { models, modes } = options.value ?? {};
  const id = chat.id.value;
  const loading = chat.loading.value;
  const title = id === null ? "New chat" : about.title || "Untitled";
  useEffect(() => void refreshOptions(id), [id]);
  useEffect(() => void (document.title = id === null ? "Shepherd" : `${title} · Shepherd`), [title]);
  const model = (id === null && about.model) || models?.find((/** @type {any} */ each) => each.current)?.name;
  const rename = () => (renaming.value = true);
  const configure = () => (configuring.value = true);
  const actions = [
    { label: "Rename", icon: "edit", run: rename },
    { label: "System prompt and sampling", icon: "settings", run: configure },
    { label: "Export as Markdown", icon: "download", run: () => exportChat(chat, "markdown") },
    { label: "Export as JSON", icon: "download", run: () => exportChat(chat, "json") },
  ];
  return html`<header class="chat-head">
    <${Button} label="Chats and panels" icon="menu" kind="quiet narrow" short aria-expanded=${String(drawerOpen.value)}
      onClick=${() => (drawerOpen.value = true)} />
    ${
      renaming.value
        ? html`<${Rename} chat=${chat} onDone=${() => (renaming.value = false)} />`
        : html`<h1 class="chat-title">
          ${id === null ? title : html`<button type="button" title="Rename" onClick=${rename}>${title}</button>`}
        </h1>`
    }
    <div class="chat-tools">
      <${Chooser} what="Model" icon="models" rows=${models} current=${model ?? about.model} onChoose=${(/** @type {string} */ name) => chat.change({ model: name })} />
      <${Chooser} what="Mode" icon="pin" rows=${modes} current=${about.mode ?? modes?.[0]?.name} onChoose=${(/** @type {string} */ name) => chat.change({ mode: name })} />
      <${Button} label="System prompt and sampling" icon="settings" kind="quiet wide" short onClick=${configure} />
      <${Menu} label="More" icon="more" items=${id === null ? actions.slice(1, 2) : actions} />
      <${Button} label=${windowOpen.value ? "Hide the living window" : "Show the living window"} icon="window" kind="quiet wide" short
        aria-expanded=${String(windowOpen.value)} onClick=${toggleWindow} />
    </div>
    ${loading && html`<p class="loading" role="status">Loading ${loading}…<progress aria-label=${`Loading ${loading}`} /></p>`}
    ${configuring.value && html`<${Settings} chat=${chat} onClose=${() => (configuring.value = false)} />`}
  </header>`;
}

/** @param {{chat: Chat, onDone: () => void}} props */
function Rename({ chat, onDone }) {
  const before = chat.about.value?.title ?? "";
  /** @param {any} event */
  function keep(event) {
    const title = event.target.value.trim();
    if (title && title !== before) chat.change({ title });
    onDone();
  }
  /** @param {any} event */
  function onKeyDown(event) {
    if (event.key === "Enter") event.target.blur();
    if (event.key === "Escape") (event.stopPropagation(), (event.target.value = before), event.target.blur());
  }
  return html`<input class="chat-title" aria-label="Title" maxlength="200" value=${before}
    ref=${(/** @type {HTMLInputElement | null} */ box) => box && document.activeElement !== box && (box.focus(), box.select())}
    onKeyDown=${onKeyDown} onBlur=${keep} />`;
}

/** @param {{chat: Chat, onClose: () => void}} props */
function Settings({ chat, onClose }) {
  const about = chat.about.value ?? {};
  const [system, setSystem] = useState(about.system ?? "");
  const [given, setGiven] = useState(() =>
    Object.fromEntries(SAMPLING.map(([name]) => [name, String(about.sampling?.[name] ?? "")])),
  );
  /** @param {typeof SAMPLING[number]} row @returns {string} what is wrong */
  function problem([name, , low, high]) {
    const text = given[name].trim();
    const n = Number(text);
    if (!text) return "";
    if (!Number.isFinite(n)) return `"${text.slice(0, 20)}" is not a number.`;
    if (WHOLE.has(name) && !Number.isInteger(n)) return "A whole number, please.";
    return n < low || n > high ? `From ${low} to ${high}, please.` : "";
  }
  const isWrong = SAMPLING.some(problem);
  function keep() {
    const filled = SAMPLING.filter(([name]) => given[name].trim());
    const sampling = Object.fromEntries(filled.map(([name]) => [name, Number(given[name])]));
    chat.change({ system, sampling });
    onClose();
  }
  const footer = html`<${Button} label="Cancel" onClick=${onClose} />
    <${Button} label="Save" kind="primary" disabled=${isWrong || chat.isRunning.value} onClick=${keep} />`;
  return html`<${Dialog} title="System prompt and sampling" wide onClose=${onClose} footer=${footer}>
    <${Field} label="System prompt" as="textarea" rows="8" value=${system} hint="What the model is asked to be and to do in this chat."
      onInput=${(/** @type {any} */ event) => setSystem(event.target.value)} />
    <div class="sampling">
      ${SAMPLING.map((row) => {
        const [name, label, , , hint] = row;
        return html`<${Field} key=${name} label=${label} hint=${hint} error=${problem(row)} inputmode="decimal" placeholder="Default"
          value=${given[name]} onInput=${(/** @type {any} */ event) => setGiven({ ...given, [name]: event.target.value })} />`;
      })}
    </div>
  <//>`;
}
