/** The rows of a conversation: questions, and answers with their thoughts, calls and figures. */
import { html } from "htm/preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { blobUrl } from "../api.js";
import { useLoaded } from "../loaded.js";
import { Markdown } from "../markdown.js";
import { tell } from "../state.js";
import { Button, Icon, copyText, counted, formatBytes, formatCount, formatTime } from "../ui.js";

/** @typedef {import("./store.js").Chat} Chat */
/** Lines of a result and of a difference that are shown folded, as in the terminal. */
const HEAD_LINES = 6;
const DIFF_LINES = 40;
/** Characters of a text of a person or a tool that one row shows. */
const MOST_CHARS = 20_000;

/** A quiet line. @param {{text: string}} props */
export const Note = ({ text }) => html`<p class="note-line">${text}</p>`;

/** What goes with a question: a text file, or what came back from the memory. @param {{text: string}} props */
function Aside({ text }) {
  const [first, ...rest] = text.trim().split("\n");
  if (!rest.length) return html`<${Note} text=${first} />`;
  return html`<details class="thought aside">
    <summary><${Icon} name="file" size=${16} />${first.replace(/^\[|[\]:]$/g, "")}</summary>
    <pre class="plain" tabindex="0" role="group" aria-label="Text">${rest.join("\n").slice(0, MOST_CHARS)}</pre>
  </details>`;
}

/** An image or a recording of a message, which needs the key to be read. @param {{part: any}} props */
function Media({ part }) {
  const { value: url, error } = useLoaded(async (signal) => part.url && blobUrl(part.url, signal), [part.url]);
  useEffect(() => () => url && URL.revokeObjectURL(url), [url]);
  if (part.type === "document")
    return html`<p class="file"><${Icon} name="file" size=${16} />${part.name || part.media_type}</p>`;
  if (error) return html`<p class="file"><${Icon} name="warning" size=${16} />${error}</p>`;
  if (part.type === "audio") return html`<audio controls src=${url || undefined} aria-label="Recording" />`;
  return html`<img class="picture" src=${url || undefined} alt=${part.name || "Attached image"} />`;
}

/** Text of which the first lines are shown. @param {{text: string, most: number, line?: (line: string, at: number) => any}} props */
function Folded({ text, most, line = (each) => `${each}\n` }) {
  const [isOpen, setOpen] = useState(false);
  const lines = text.replace(/\n+$/, "").split("\n");
  const n_hidden = lines.length - most;
  const isFolded = n_hidden > 1 && !isOpen;
  const shown = isFolded ? lines.slice(0, most) : lines;
  return html`<pre class="plain" tabindex="0" role="group" aria-label="Text">${shown.map(line)}</pre>
    ${n_hidden > 1 && html`<${Button} label=${isOpen ? "Show less" : `${formatCount(n_hidden)} more lines`} kind="quiet small" aria-expanded=${String(isOpen)} onClick=${() => setOpen(!isOpen)} />`}`;
}

/** @param {{diff: string}} props */
export const Diff = ({ diff }) =>
  html`<div class="diff"><${Folded} text=${diff} most=${DIFF_LINES} line=${diffLine} /></div>`;

/** @param {string} line @param {number} at */
function diffLine(line, at) {
  const kind = /^(\+\+\+|---)/.test(line) ? "file" : { "+": "added", "-": "removed", "@": "place" }[line[0]];
  return html`<span key=${at} class=${kind}>${line}${"\n"}</span>`;
}

/** Arguments as the terminal writes them: `path="a.py", n=3`. @param {unknown} given */
export function argumentsText(given) {
  if (typeof given === "string") return given;
  if (given === null || typeof given !== "object" || Array.isArray(given)) return JSON.stringify(given) ?? "";
  return Object.entries(given)
    .map(([name, value]) => `${name}=${JSON.stringify(value)}`)
    .join(", ");
}

/** A call as the terminal shows it: what it is, and the difference that it made; the rest is folded.
 * @param {{block: import("./store.js").CallBlock, isLive: boolean}} props */
function Call({ block, isLive }) {
  const call = block.call.value;
  const result = block.result.value;
  const line = block.line.value;
  const hasFailed = result ? !result.ok : !!call.bad;
  const status = hasFailed ? "failed" : result ? "done" : isLive ? "running" : "not answered";
  const shown = argumentsText(call.arguments);
  const whole = typeof call.arguments === "string" ? shown : JSON.stringify(call.arguments, null, 2);
  return html`<div class="call" data-status=${status}>
    <details>
      <summary>
        <${Icon} name=${hasFailed ? "warning" : "tool"} size=${16} />
        <span class="call-name">${call.name}</span>
        <code class="call-arguments">${shown.slice(0, 200)}</code>
        <span class="call-status">${result?.summary || status}</span>
      </summary>
      ${shown && html`<h3>Arguments</h3><${Folded} text=${whole} most=${HEAD_LINES * 2} />`}
      ${result?.content && html`<h3>Result</h3><${Folded} text=${result.content} most=${HEAD_LINES} />`}
      ${result?.more && html`<${Note} text="The model has read more than the page shows." />`}
    </details>
    ${call.bad && html`<p class="bad">${call.bad}</p>`}
    ${result?.diff && html`<${Diff} diff=${result.diff} />`}
    ${(result?.media ?? []).map((/** @type {any} */ part, /** @type {number} */ at) => html`<${Media} key=${at} part=${part} />`)}
    ${!result && isLive && line && html`<p class="call-line">${line}</p>`}
  </div>`;
}

/** @param {{text: string, isLive: boolean}} props */
function Thought({ text, isLive }) {
  const [isOpen, setOpen] = useState(false);
  const n_words = text.split(/\s+/).filter(Boolean).length;
  return html`<details class="thought" onToggle=${(/** @type {any} */ event) => setOpen(event.target.open)}>
    <summary><${Icon} name="thought" size=${16} />${isLive ? "Thinking" : "Thought"} · ${counted(n_words, "word")}</summary>
    ${isOpen && html`<${Markdown} text=${text} isDone=${!isLive} />`}
  </details>`;
}

/** @param {{block: import("./store.js").Block, isLive: boolean}} props `isLive`: it may grow */
function BlockView({ block, isLive }) {
  if (block.type === "call") return html`<${Call} block=${block} isLive=${isLive} />`;
  if (block.type === "media") return html`<${Media} part=${block.part} />`;
  const text = block.text.value;
  if (block.type === "notice") return html`<${Note} text=${text} />`;
  if (block.type === "thought") return html`<${Thought} text=${text} isLive=${isLive} />`;
  return html`<${Markdown} text=${text} isDone=${!isLive} />`;
}

/** What the answers of one turn cost. @param {{stats: import("./store.js").Stats[]}} props */
function Figures({ stats }) {
  const last = stats.at(-1);
  if (!last) return null;
  /** @param {"cached" | "new" | "output"} name */
  const sum = (name) => formatCount(stats.reduce((sum, each) => sum + (each[name] ?? 0), 0));
  const parts = [`${sum("cached")} cached`, `${sum("new")} new`, `${sum("output")} written`];
  const { first_token_s } = stats[0];
  const { tokens_per_s } = last;
  if (first_token_s !== undefined) parts.push(`first after ${first_token_s.toFixed(2)} s`);
  if (tokens_per_s) parts.push(`${tokens_per_s.toFixed(tokens_per_s < 10 ? 1 : 0)} tokens/s`);
  return html`<span class="figures" title="Tokens of this turn, read from the cache, computed, and written">
    ${parts.map((part) => html`<span key=${part}>${part}</span> `)}
  </span>`;
}

/** @param {{chat: Chat, row: import("./store.js").AnswerRow, isLast: boolean}} props */
export function Answer({ chat, row, isLast }) {
  const live = row.live;
  const blocks = live ? [...row.blocks, ...live.blocks.value] : row.blocks;
  const stats = live ? [...row.stats, ...live.stats.value] : row.stats;
  const notes = chat.notes.value.get(row.index) ?? [];
  /** @param {"resume" | "retry"} action */
  const turn = (action) => chat.turn(action).catch(tell);
  const texts = blocks.map((block) => (block.type === "text" ? block.text.value : ""));
  const copy = () => copyText(texts.filter(Boolean).join("\n\n"), "Answer copied");
  return html`<article class="message answer" aria-label="Answer">
    ${notes.map((text, at) => html`<${Note} key=${`n${at}`} text=${text} />`)}
    ${blocks.map(
      (block, at) =>
        html`<${BlockView} key=${`${block.type}${at}`} block=${block} isLive=${!!live && (block.type === "call" || at === blocks.length - 1)} />`,
    )}
    ${
      live
        ? html`<p class="status"><span class="pulse" aria-hidden="true"></span>${live.status.value}…</p>`
        : html`<footer class="message-foot">
          <${Figures} stats=${stats} />
          <span class="message-actions">
            ${isLast && chat.about.value?.can_resume && html`<${Button} label="Continue" icon="play" kind="small" onClick=${() => turn("resume")} />`}
            <${Button} label="Copy answer" icon="copy" kind="quiet small" short onClick=${copy} />
            ${isLast && html`<${Button} label="Retry" icon="retry" kind="quiet small" short onClick=${() => turn("retry")} />`}
          </span>
        </footer>`
    }
  </article>`;
}

/** Which of the branches of a question is shown. @param {{chat: Chat, at: number}} props */
function Branches({ chat, at }) {
  const found = chat.about.value?.branches?.find((/** @type {any} */ each) => each.at === at);
  if (!found || found.count < 2) return null;
  const { current, count } = found;
  /** @param {number} to */
  const to = (to) => chat.switchBranch(at, to).catch(tell);
  const busy = chat.isRunning.value;
  return html`<span class="branches" role="group" aria-label="Branches">
    <${Button} label="Branch before" icon="back" kind="quiet small" short disabled=${busy || current <= 0} onClick=${() => to(current - 1)} />
    <span class="figures">${current + 1}/${count}</span>
    <${Button} label="Next branch" icon="forward" kind="quiet small" short disabled=${busy || current >= count - 1} onClick=${() => to(current + 1)} />
  </span>`;
}

/** @param {{chat: Chat, row: import("./store.js").UserRow}} props */
export function UserMessage({ chat, row }) {
  const { message } = row;
  const texts = message.parts.filter((part) => part.type === "text");
  const text = texts.map((part) => part.text).join("\n\n");
  const others = message.parts.filter((part) => part.type !== "text");
  const isEdited = chat.editing.value === message.index && !chat.isRunning.value;
  const shown = text.length > MOST_CHARS ? `${text.slice(0, MOST_CHARS)}…` : text;
  return html`<article class="message user" aria-label="You">
    ${others.map((part, at) => (part.type === "notice" ? html`<${Aside} key=${at} text=${part.text} />` : html`<${Media} key=${at} part=${part} />`))}
    ${
      isEdited
        ? html`<${Edit} chat=${chat} at=${message.index} text=${text} onDone=${() => (chat.editing.value = null)} />`
        : html`<div class="bubble">${shown}</div>
          ${text.length > MOST_CHARS && html`<${Note} text=${`${formatBytes(text.length)} of text; its beginning is shown`} />`}
          <footer class="message-foot">
            <${Branches} chat=${chat} at=${message.index} />
            <span class="message-actions">
              ${message.at && html`<time class="figures">${formatTime(message.at)}</time>`}
              <${Button} label="Copy question" icon="copy" kind="quiet small" short onClick=${() => copyText(text, "Question copied")} />
              <${Button} label="Edit question" icon="edit" kind="quiet small" short disabled=${chat.isRunning.value}
                onClick=${() => (chat.editing.value = message.index)} />
            </span>
          </footer>`
    }
  </article>`;
}

/** The question in place, to be asked in other words. @param {{chat: Chat, at: number, text: string, onDone: () => void}} props */
function Edit({ chat, at, text, onDone }) {
  const area = useRef(/** @type {HTMLTextAreaElement | null} */ (null));
  const [draft, setDraft] = useState(text);
  useLayoutEffect(() => {
    area.current?.focus();
    area.current?.setSelectionRange(text.length, text.length);
    return () => /** @type {HTMLElement | null} */ (document.querySelector(".composer textarea"))?.focus();
  }, []);
  const send = () => draft.trim() && chat.turn("edit", { text: draft, at }).then(onDone, tell);
  /** @param {KeyboardEvent} event */
  function onKeyDown(event) {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) (event.preventDefault(), send());
    if (event.key === "Escape") (event.stopPropagation(), onDone());
  }
  return html`<div class="edit">
    <textarea ref=${area} aria-label="Edit question" value=${draft} onKeyDown=${onKeyDown}
      onInput=${(/** @type {any} */ event) => setDraft(event.target.value)}></textarea>
    <div class="actions">
      <${Button} label="Cancel" onClick=${onDone} />
      <${Button} label="Ask" kind="primary" disabled=${!draft.trim()} onClick=${send} />
    </div>
  </div>`;
}
