/** The head of a chat: its title, the model, the mode, and what else can be done with it. */
import { html } from "htm/preact";
import { useEffect, useState } from "preact/hooks";
import { Ask } from "../loaded.js";
import { dialog, tell, toggleWindow, windowOpen } from "../state.js";
import { Button, Field, Menu, formatBytes, saveFile } from "../ui.js";
import { Fields, readFields } from "./fields.js";
import { options, refreshOptions } from "./store.js";

/** @typedef {import("./store.js").Chat} Chat */
/** @typedef {{name: string, label?: string, does?: string, detail?: string, kind?: string}} Choice */

/** @param {string} title @param {number} maximum @param {string} description */
const number = (title, maximum, description, type = "number") => ({ title, type, minimum: 0, maximum, description });

/** Of sampling, by the name on the wire: what it is called, its limits and what it does. */
const SAMPLING = {
  temperature: number("Temperature", 5, "0 always takes the likeliest token; higher is more varied."),
  top_p: number("Top p", 1, "Only the likeliest tokens that together have this share."),
  top_k: number("Top k", 1000, "Only this many of the likeliest tokens; 0 takes all.", "integer"),
  min_p: number("Min p", 1, "Only tokens with this share of the likeliest one."),
  max_tokens: { ...number("Longest answer", 1_000_000, "In tokens.", "integer"), minimum: 1 },
  seed: number("Seed", 4_294_967_295, "The same number gives the same answer.", "integer"),
};

/** @param {Chat} chat @param {"markdown" | "json"} format */
function exportChat(chat, format) {
  const name = (chat.about.value?.title ?? "").replace(/[^\p{L}\p{N} _-]+/gu, "").trim();
  const file = `${name.slice(0, 80) || "chat"}.${format === "json" ? "json" : "md"}`;
  return saveFile(`${chat.path}/export?format=${format}`, file).catch(tell);
}

/** What can be done with a chat, in its menu and the switcher. @param {Chat} chat @returns {import("../state.js").Command[]} */
export function actionsOf(chat) {
  const settings = () => (dialog.value = html`<${Settings} chat=${chat} />`);
  const rename = () => (dialog.value = html`<${Rename} chat=${chat} />`);
  const actions = [
    { id: "chat-settings", label: "System prompt and sampling", icon: "settings", run: settings },
    { id: "chat-rename", label: "Rename this chat", icon: "edit", run: rename },
    { id: "chat-md", label: "Export as Markdown", icon: "download", run: () => exportChat(chat, "markdown") },
    { id: "chat-json", label: "Export as JSON", icon: "download", run: () => exportChat(chat, "json") },
  ];
  return chat.id.value === null ? actions.slice(0, 1) : actions;
}

/** One of several, as a menu. @param {{what: string, icon?: "models", rows?: Choice[], current?: string, onChoose: (name: string) => void}} props */
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

/** @param {{chat: Chat}} props */
export function Header({ chat }) {
  const about = chat.about.value ?? {};
  const { models, modes } = options.value ?? {};
  const id = chat.id.value;
  const loading = chat.loading.value;
  const title = id === null ? "New chat" : about.title || "Untitled";
  useEffect(() => void refreshOptions(id), [id]);
  useEffect(() => void (document.title = id === null ? "Shepherd" : `${title} · Shepherd`), [title]);
  const model = (id === null && about.model) || models?.find((/** @type {any} */ each) => each.current)?.name;
  const actions = actionsOf(chat);
  const [{ label, run: configure }, renaming] = actions;
  return html`<header class="chat-head">
    <h1 class="chat-title">
      ${renaming ? html`<button type="button" title="Rename" onClick=${renaming.run}>${title}</button>` : title}
    </h1>
    <div class="chat-tools">
      <${Chooser} what="Model" icon="models" rows=${models} current=${model ?? about.model} onChoose=${(/** @type {string} */ name) => chat.change({ model: name })} />
      <${Chooser} what="Mode" rows=${modes} current=${about.mode ?? modes?.[0]?.name} onChoose=${(/** @type {string} */ name) => chat.change({ mode: name })} />
      <${Button} label=${label} icon="settings" kind="quiet wide" short onClick=${configure} />
      <${Menu} label="More" icon="more" items=${actions} />
      <${Button} label=${windowOpen.value ? "Hide the living window" : "Show the living window"} icon="window" kind="quiet wide" short
        aria-expanded=${String(windowOpen.value)} onClick=${toggleWindow} />
    </div>
    ${loading && html`<${Loading} ...${loading} />`}
  </header>`;
}

/** @param {{model: string, share: number | null, loaded_bytes: number | null, total_bytes: number | null}} props */
function Loading({ model, share, loaded_bytes: part, total_bytes: all }) {
  const bytes = part !== null && all !== null ? `${formatBytes(all, part)}, ` : "";
  return html`<p class="loading">
    <span role="status">Loading ${model}</span><progress aria-label=${`Loading ${model}`} value=${share ?? undefined} />
    <span class="figures">${share !== null && `${bytes}${Math.round(100 * share)} %`}</span>
  </p>`;
}

/** @param {{chat: Chat}} props */
function Rename({ chat }) {
  const [title, setTitle] = useState(chat.about.value?.title ?? "");
  const keep = () => chat.change({ title: title.trim() });
  return html`<${Ask} title="Rename this chat" label="Rename" kind="primary" run=${keep} disabled=${!title.trim()}>
    <${Field} label="Title" maxlength="200" autofocus value=${title} onText=${setTitle} />
  <//>`;
}

/** @param {{chat: Chat}} props */
function Settings({ chat }) {
  const about = chat.about.value ?? {};
  const [system, setSystem] = useState(about.system ?? "");
  const [given, setGiven] = useState(/** @type {Record<string, any>} */ (about.sampling ?? {}));
  const { values: sampling, errors, first } = readFields(SAMPLING, given);
  const keep = () => chat.change({ system, sampling });
  const isWrong = first >= 0 || chat.isRunning.value;
  return html`<${Ask} title="System prompt and sampling" class="wide" label="Save" kind="primary" run=${keep} disabled=${isWrong}>
    <${Field} label="System prompt" as="textarea" rows="8" value=${system} onText=${setSystem}
      hint=${["What the model is asked to be and to do in this chat.", ...chat.instructions].join(" ")} />
    <div class="sampling">
      <${Fields} properties=${SAMPLING} given=${given} errors=${errors} onChange=${setGiven} placeholder="Default" />
    </div>
  <//>`;
}
