/** The head of a chat: its title, the model, the mode, and what else can be done with it. */
import { html } from "htm/preact";
import { useEffect, useState } from "preact/hooks";
import { request } from "../api.js";
import { tell, toggleWindow, windowOpen } from "../state.js";
import { Button, Dialog, Field, Menu, formatBytes } from "../ui.js";
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
  if (chat.id.value === null) return;
  try {
    const content = await (await request(`${pathOf(chat.id.value)}/export?format=${format}`)).blob();
    const title = (chat.about.value?.title || chat.id.value)
      .replace(/[^\p{L}\p{N} _-]+/gu, "")
      .trim()
      .slice(0, 80);
    const url = URL.createObjectURL(content);
    Object.assign(document.createElement("a"), {
      href: url,
      download: `${title || "chat"}.${format === "json" ? "json" : "md"}`,
    }).click();
    setTimeout(() => URL.revokeObjectURL(url), 60_000);
  } catch (error) {
    tell(error);
  }
}

/** @param {{chat: Chat, renaming: import("@preact/signals").Signal<boolean>, configuring: import("@preact/signals").Signal<boolean>}} props */
export function Header({ chat, renaming, configuring }) {
  const about = chat.about.value ?? {};
  const known = options.value;
  const isNew = chat.id.value === null;
  const loading = chat.loading.value;
  useEffect(() => void refreshOptions(), [chat]);
  const model = about.model || known?.models?.find((/** @type {any} */ each) => each.current)?.name || "";
  const mode = known?.modes?.find((/** @type {any} */ each) => each.name === about.mode);
  return html`<header class="chat-head">
    ${
      renaming.value
        ? html`<${Rename} chat=${chat} onDone=${() => (renaming.value = false)} />`
        : html`<h1 class="chat-title">
          ${
            isNew
              ? "New chat"
              : html`<button type="button" title="Rename" onClick=${() => (renaming.value = true)}>${about.title || "Untitled"}</button>`
          }
        </h1>`
    }
    <div class="chat-tools">
      ${
        known?.models?.length
          ? html`<${Menu}
            label=${model || "Choose a model"}
            aria-label=${`Model: ${model || "none"}`}
            title="Model"
            icon="models"
            short=${false}
            class="button quiet model"
            items=${known.models.map((/** @type {any} */ each) => ({
              label: each.name,
              note: each.detail || each.kind,
              checked: each.name === model,
              run: () => chat.change({ model: each.name }),
            }))}
          />`
          : model && html`<span class="badge">${model}</span>`
      }
      ${
        known?.modes?.length > 1 &&
        html`<${Menu}
        label=${mode?.label ?? "Mode"}
        aria-label=${`Mode: ${mode?.label ?? "not chosen"}`}
        title="Mode"
        short=${false}
        class="button quiet mode"
        items=${known.modes.map((/** @type {any} */ each) => ({
          label: each.label,
          note: each.does,
          checked: each.name === about.mode,
          run: () => chat.change({ mode: each.name }),
        }))}
      />`
      }
      <${Button} label="System prompt and sampling" icon="settings" kind="quiet" short onClick=${() => (configuring.value = true)} />
      ${
        !isNew &&
        html`<${Menu}
        label="More"
        icon="more"
        items=${[
          { label: "Rename", icon: "edit", run: () => (renaming.value = true) },
          { label: "Export as Markdown", icon: "download", run: () => exportChat(chat, "markdown") },
          { label: "Export as JSON", icon: "download", run: () => exportChat(chat, "json") },
        ]}
      />`
      }
      <${Button}
        label=${windowOpen.value ? "Hide the living window" : "Show the living window"}
        icon="window"
        kind="quiet"
        short
        aria-expanded=${String(windowOpen.value)}
        onClick=${toggleWindow}
      />
    </div>
    ${
      loading &&
      html`<div class="loading" role="status">
      <span>Loading ${loading.model}${loading.total ? `: ${formatBytes(loading.done)} of ${formatBytes(loading.total)}` : "…"}</span>
      <progress aria-label=${`Loading ${loading.model}`} max=${loading.total || undefined} value=${loading.total ? loading.done : undefined} />
    </div>`
    }
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
  return html`<input
    class="chat-title"
    aria-label="Title"
    maxlength="200"
    value=${before}
    ref=${(/** @type {HTMLInputElement | null} */ box) => box && document.activeElement !== box && (box.focus(), box.select())}
    onKeyDown=${onKeyDown}
    onBlur=${keep}
  />`;
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
    const sampling = Object.fromEntries(
      SAMPLING.map(([name]) => [name, given[name].trim() ? Number(given[name]) : null]).filter(
        ([name, value]) => value !== null || about.sampling?.[/** @type {string} */ (name)] != null,
      ),
    );
    const what = {
      ...(system !== (about.system ?? "") && { system }),
      ...(Object.keys(sampling).length && { sampling }),
    };
    if (Object.keys(what).length) chat.change(what);
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
