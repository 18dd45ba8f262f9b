/** The panel of one chat. */
import { html } from "htm/preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { Problem } from "../loaded.js";
import { addCommands, isReady, server, target, tell } from "../state.js";
import { Button, VirtualList } from "../ui.js";
import { Composer } from "./composer.js";
import { Header, actionsOf } from "./header.js";
import { Answer, Note, UserMessage } from "./message.js";
import { Questions } from "./question.js";
import { chatOf } from "./store.js";

/** @typedef {import("./store.js").Row} Row */

/** @param {{id: string | null}} props null: a new chat */
export function ChatView({ id }) {
  const chat = useMemo(() => chatOf(id), [id]);
  return html`<${OpenChat} key=${chat.key} chat=${chat} />`;
}

/** @param {{chat: import("./store.js").Chat}} props */
function OpenChat({ chat }) {
  const [isAtEnd, setAtEnd] = useState(true);
  const list = useRef(/** @type {import("../ui.js").ListHandle | null} */ (null));
  const input = useRef(/** @type {HTMLTextAreaElement | null} */ (null));
  const rows = chat.rows.value;
  const isRunning = chat.isRunning.value;

  useEffect(() => chat.open(), [chat]);
  useEffect(() => {
    if (!chat.isRunning.value) return;
    chat.editing.value = null;
    list.current?.toEnd(); // the question that was just asked
  }, [isRunning]);

  function editLast() {
    const last = chat.rows.value.findLast((row) => row.kind === "user");
    if (last?.kind === "user" && !chat.isRunning.value) chat.editing.value = last.message.index;
  }
  const id = chat.id.value;
  const stop = () => chat.isRunning.value && chat.stop();
  const retry = () => chat.turn("retry").catch(tell);
  useEffect(() => {
    const hint = "Up in an empty message";
    return addCommands([
      { id: "chat-write", label: "Write a message", icon: "edit", run: () => input.current?.focus() },
      { id: "chat-stop", label: "Stop the answer", icon: "stop", keys: "Escape", run: stop },
      { id: "chat-retry", label: "Answer again", icon: "retry", run: retry },
      { id: "chat-edit", label: "Edit the last question", icon: "edit", hint, run: editLast },
      ...actionsOf(chat),
    ]);
  }, [chat, id]);

  // A result of the search names a message: read back to it, and show it.
  const wanted = target.value;
  useEffect(() => {
    if (!wanted || wanted.chat !== chat.id.value || !chat.about.value) return;
    target.value = null;
    chat.readEarlier(wanted.at).then(() => {
      const at = chat.rows.value.findLastIndex((row) => row.index <= wanted.at);
      if (at >= 0) list.current?.scrollTo(at);
    }, tell);
  }, [wanted, chat.about.value]);

  const lastNotes = chat.notes.value.get((chat.messages.value.at(-1)?.index ?? -1) + 1) ?? [];
  /** @param {Row} row @param {number} at */
  const render = (row, at) =>
    row.kind === "user"
      ? html`<${UserMessage} chat=${chat} row=${row} />`
      : html`<${Answer} chat=${chat} row=${row} isLast=${at === rows.length - 1} />`;
  return html`<section class="chat" aria-label="Chat">
    <${Header} chat=${chat} />
    ${
      rows.length === 0
        ? html`<${Empty} chat=${chat} />`
        : html`<${VirtualList} class="log" label="Messages" items=${rows} render=${render} keyOf=${(/** @type {Row} */ row) => row.key}
          height=${160} follow=${true} handle=${list} onEnd=${setAtEnd} onTop=${() => chat.readEarlier().catch(tell)} />`
    }
    <div class="chat-foot">
      ${
        !isAtEnd &&
        html`<div class="below">
        <${Button} label=${isRunning ? "New text below" : "To the end"} icon="down" kind="small" onClick=${() => list.current?.toEnd()} />
      </div>`
      }
      ${!isRunning && lastNotes.map((text, at) => html`<${Note} key=${at} text=${text} />`)}
      <${Problem} error=${chat.problem.value}>
        ${rows.length > 0 && !isRunning && html`<${Button} label="Try again" icon="retry" kind="small" onClick=${retry} />`}
      <//>
      <${Questions} chat=${chat} />
      <${Composer} chat=${chat} handle=${input} onEditLast=${editLast} />
    </div>
    <div class="hidden" role="log" aria-live="polite">${chat.spoken.value}</div>
  </section>`;
}

/** @param {{chat: import("./store.js").Chat}} props */
function Empty({ chat }) {
  if (chat.id.value !== null && chat.about.value === null)
    return html`<p class="chat-empty" role="status">${chat.problem.value ? "" : "Reading the chat…"}</p>`;
  const hasModel = !isReady.value || server.value.models.length > 0;
  if (!hasModel)
    return html`<div class="chat-empty">
      <h2>No model yet</h2>
      <p class="soft">This server has no model that answers.</p>
      <a class="button primary" href="#/models">Choose a model</a>
    </div>`;
  return html`<div class="chat-empty">
    <h2>What is on your mind?</h2>
    <p class="soft">Old turns that leave the window are kept in the memory, and come back when they matter.
      <span class="keys"><kbd>/</kbd> commands <kbd>@</kbd> files <kbd>Ctrl K</kbd> switch</span></p>
  </div>`;
}
