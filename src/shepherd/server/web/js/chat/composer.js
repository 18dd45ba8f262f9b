/** Where a message is written: text, attachments, and the pickers of commands (`/`) and files (`@`). */
import { html } from "htm/preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { get } from "../api.js";
import { tell, toast } from "../state.js";
import { Button, Icon, counted, formatBytes } from "../ui.js";
import { options } from "./store.js";

/** @typedef {import("./store.js").Chat} Chat */
/** @typedef {import("./store.js").Attached} Attached */
/** @typedef {{word: string, start: number, rows: any[], at: number}} Found what the word at `start` may become */

const TEXT = /^($|text\/|application\/(json|xml|yaml|toml|javascript|x-))/;
/** Of each kind of file: its types, what it is called, its most bytes, and by which name an option says that the model takes it. */
const KINDS = {
  image: { types: /^image\/(png|jpeg|gif|webp|bmp)$/, name: "images", most_bytes: 20_000_000, takes: "images" },
  audio: { types: /^audio\//, name: "recordings", most_bytes: 30_000_000, takes: "audio" },
  text: { types: TEXT, name: "texts", most_bytes: 1_000_000, takes: "" },
};
/** Of all files of one message: a request has at most 64 MiB. */
const MOST_BYTES = 45_000_000;
const MOST_FILES = 20;

/** @param {Chat} chat */
const draftKey = (chat) => `shepherd.draft.${chat.id.value ?? "new"}`;

/** What the file is for a model; null = nothing. @param {File} file @returns {Attached["kind"] | null} */
function kindOf({ type }) {
  const kinds = /** @type {Attached["kind"][]} */ (Object.keys(KINDS));
  return kinds.find((kind) => KINDS[kind].types.test(type)) ?? null;
}

/** Why the file cannot be attached; "" = it can. @param {File} file @param {Attached[]} before */
function whyNot(file, before) {
  const { name, type, size } = file;
  const found = kindOf(file);
  if (!found) return `${name}: a file of the type ${type} cannot be attached; text, images and recordings can.`;
  const kind = KINDS[found];
  if (options.value?.takes[kind.takes] === false)
    return `${name}: this model takes no ${kind.name}; choose another one.`;
  if (size > kind.most_bytes)
    return `${name} has ${formatBytes(size)}; ${kind.name} may have ${formatBytes(kind.most_bytes)}.`;
  if (before.length >= MOST_FILES) return `At most ${MOST_FILES} files go with one message.`;
  if (before.reduce((sum, each) => sum + each.file.size, size) > MOST_BYTES)
    return `All files of one message together have at most ${formatBytes(MOST_BYTES)}.`;
  return "";
}

/** @param {File} file @returns {Promise<string>} its bytes in base64 */
const base64 = (file) =>
  new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(String(reader.result).replace(/^[^,]*,/, ""));
    reader.onerror = () =>
      reject(new Error(`${file.name} cannot be read: ${reader.error?.message ?? "unknown error"}`));
    reader.readAsDataURL(file);
  });

/** @param {{chat: Chat, handle: {current: HTMLTextAreaElement | null}, onEditLast: () => void}} props */
export function Composer({ chat, handle, onEditLast }) {
  const [text, setText] = useState(() => sessionStorage.getItem(draftKey(chat)) ?? "");
  const [isOver, setOver] = useState(false);
  const [busy, setBusy] = useState(false);
  const picker = usePicker(chat, handle, text, put);
  const input = useRef(/** @type {HTMLInputElement | null} */ (null));
  const { attached, quotes } = chat;
  const files = attached.value;
  const isRunning = chat.isRunning.value;
  const isEmpty = !text.trim() && !files.length;

  useEffect(() => {
    if (matchMedia("(pointer: fine)").matches) handle.current?.focus();
    // A file may be dropped anywhere; the browser would leave the page to show it.
    const stop = new AbortController();
    /** @param {string} type @param {(event: DragEvent) => void} act */
    const on = (type, act) => addEventListener(type, /** @type {any} */ (act), { signal: stop.signal });
    on("dragover", (event) => event.dataTransfer?.types.includes("Files") && (event.preventDefault(), setOver(true)));
    on("dragleave", (event) => event.relatedTarget === null && setOver(false));
    on("drop", (event) => {
      setOver(false);
      if (event.dataTransfer?.files.length) (event.preventDefault(), add(event.dataTransfer.files));
    });
    return () => stop.abort();
  }, [chat]);
  useLayoutEffect(() => {
    const area = handle.current;
    if (!area) return;
    area.style.height = "auto";
    area.style.height = `${area.scrollHeight + 2}px`;
  }, [text]);

  /** @param {string} now */
  function put(now) {
    setText(now);
    try {
      if (now) sessionStorage.setItem(draftKey(chat), now);
      else sessionStorage.removeItem(draftKey(chat));
    } catch {
      // The storage is full: the draft lasts as long as the page.
    }
  }
  /** @param {Iterable<File>} added */
  function add(added) {
    for (const file of added) {
      const problem = whyNot(file, attached.value);
      const kind = kindOf(file);
      if (problem || !kind) toast(problem, "error");
      else attached.value = [...attached.value, { file, kind, url: kind === "image" ? URL.createObjectURL(file) : "" }];
    }
  }
  /** @param {Attached} one */
  function remove(one) {
    if (one.url) URL.revokeObjectURL(one.url);
    attached.value = files.filter((each) => each !== one);
    handle.current?.focus();
  }
  async function send() {
    if (busy || isRunning || isEmpty) return;
    const name = /^\/[\w-]+/.exec(text)?.[0];
    const isCommand = options.value?.commands.some((/** @type {{name: string}} */ each) => each.name === name);
    const brought = quotes.value;
    setBusy(true);
    put("");
    handle.current?.focus(); // not behind the answer to it: a question may have the focus then
    try {
      if (isCommand) await chat.command(text.trim());
      else {
        const attachments = await Promise.all(
          files.map(async ({ file }) => ({ name: file.name, type: file.type, data: await base64(file) })),
        );
        await chat.turn("send", { text, attachments, quotes: brought.map(({ id }) => id) });
        for (const { url } of files) URL.revokeObjectURL(url);
        attached.value = [];
        quotes.value = [];
      }
    } catch (error) {
      put(text);
      tell(error);
    }
    setBusy(false);
  }
  /** @param {KeyboardEvent} event */
  function onKeyDown(event) {
    if (event.isComposing || picker.onKeyDown(event)) return;
    if (event.key === "Enter" && !event.shiftKey) (event.preventDefault(), send());
    if (event.key === "ArrowUp" && !text) (event.preventDefault(), onEditLast());
  }
  /** @param {ClipboardEvent} event */
  const onPaste = (event) => {
    if (event.clipboardData?.files.length) (event.preventDefault(), add(event.clipboardData.files));
  };
  const n_quotes = quotes.value.length;
  return html`<div class="composer" data-over=${isOver}>
    ${picker.view}
    ${
      (n_quotes > 0 || files.length > 0) &&
      html`<ul class="attachments" aria-label="Goes with the message">
      ${
        n_quotes > 0 &&
        html`<li title=${quotes.value.map((each) => each.text.slice(0, 200)).join("\n\n")}>
          <${Icon} name="memory" size=${16} /><span>${counted(n_quotes, "message")} brought back</span>
          <${Button} label="Do not bring back" icon="close" kind="quiet small" short onClick=${() => (quotes.value = [])} />
        </li>`
      }
      ${files.map(
        (each) =>
          html`<li key=${each}>
            ${each.url ? html`<img src=${each.url} alt="" />` : html`<${Icon} name=${each.kind === "audio" ? "mic" : "file"} />`}
            <span>${each.file.name}<small>${formatBytes(each.file.size)}</small></span>
            <${Button} label=${`Remove ${each.file.name}`} icon="close" kind="quiet small" short onClick=${() => remove(each)} />
          </li>`,
      )}
    </ul>`
    }
    <div class="composer-row">
      <${Button} label="Attach files" icon="attach" kind="quiet" short onClick=${() => input.current?.click()} />
      <input ref=${input} type="file" multiple hidden onChange=${(/** @type {any} */ event) => (add(event.target.files), (event.target.value = ""))} />
      <textarea ref=${handle} rows="1" value=${text} aria-label="Message"
        placeholder=${isOver ? "Drop the files" : "Message"} enterkeyhint="send" ...${picker.attributes}
        onInput=${(/** @type {any} */ event) => put(event.target.value)} onKeyDown=${onKeyDown}
        onPaste=${onPaste}></textarea>
      ${
        isRunning
          ? html`<${Button} label="Stop (Esc)" icon="stop" kind="primary" short onClick=${chat.stop} />`
          : html`<${Button} label="Send (Enter)" icon="send" kind="primary" short disabled=${busy || isEmpty} onClick=${send} />`
      }
    </div>
  </div>`;
}

/**
 * The list of what the word at the cursor may become. Arrows choose, Tab or Enter takes, Escape closes.
 * @param {Chat} chat @param {{current: HTMLTextAreaElement | null}} area @param {string} text
 * @param {(text: string) => void} put
 */
function usePicker(chat, area, text, put) {
  const [found, setFound] = useState(/** @type {Found | null} */ (null));
  const closed = useRef("");
  useEffect(() => {
    const end = area.current?.selectionStart ?? text.length;
    const match = /(^\/[^\n]*|(?:^|\s)@[^\s]*)$/.exec(text.slice(0, end));
    const word = match ? match[0].trimStart() : "";
    if (!word || closed.current === word) return setFound(null);
    const stop = new AbortController();
    const { signal } = stop;
    const query = new URLSearchParams({ ...(chat.id.value !== null && { chat: chat.id.value }), text: word });
    const timer = setTimeout(async () => {
      const { suggestions } = await get(`v1/chats/complete?${query}`, { signal }).catch(() => ({ suggestions: [] }));
      const rows = suggestions.slice(0, 50);
      if (!signal.aborted) setFound(rows.length ? { word, start: end - word.length, rows, at: 0 } : null);
    }, 60);
    return () => (clearTimeout(timer), stop.abort());
  }, [text, chat]);

  /** @param {any} row */
  function take(row) {
    if (!found) return;
    const isFolder = row.text.endsWith("/");
    const goesOn = isFolder || /^\/\S+$/.test(row.text); // a folder has files, a command arguments
    const before = text.slice(0, found.start) + row.text + (isFolder ? "" : " ");
    closed.current = goesOn ? "" : `${row.text} `;
    setFound(null);
    put(before + text.slice(found.start + found.word.length).trimStart());
    requestAnimationFrame(() => (area.current?.focus(), area.current?.setSelectionRange(before.length, before.length)));
  }
  /** @param {KeyboardEvent} event @returns {boolean} whether the key was for the list */
  function onKeyDown(event) {
    if (!found) return false;
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const isWhole = found.rows[found.at].text === found.word;
    if (step) setFound({ ...found, at: (found.at + step + found.rows.length) % found.rows.length });
    else if (event.key === "Tab" || (event.key === "Enter" && !event.shiftKey && !isWhole)) take(found.rows[found.at]);
    else if (event.key === "Escape") ((closed.current = found.word), setFound(null));
    else return false;
    event.preventDefault();
    event.stopPropagation();
    return true;
  }
  const attributes = {
    "aria-autocomplete": "list",
    "aria-controls": found ? "picker" : undefined,
    "aria-activedescendant": found ? `picker-${found.at}` : undefined,
  };
  const view =
    found &&
    html`<ul id="picker" class="picker" role="listbox" aria-label="Suggestions">
      ${found.rows.map(
        (row, at) =>
          html`<li key=${row.text} id=${`picker-${at}`} role="option" aria-selected=${String(at === found.at)}
            ref=${(/** @type {any} */ node) => at === found.at && node?.scrollIntoView({ block: "nearest" })}
            onMouseDown=${(/** @type {Event} */ event) => (event.preventDefault(), take(row))}>
            <span>${row.label ?? row.text}</span>${row.note && html`<small>${row.note}</small>`}
          </li>`,
      )}
    </ul>`;
  return { view, onKeyDown, attributes };
}
