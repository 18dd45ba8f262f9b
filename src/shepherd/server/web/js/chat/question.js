/** Questions to the person during a turn: may this call run; the form of a server of tools. */
import { html } from "htm/preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { tell } from "../state.js";
import { Button } from "../ui.js";
import { Fields, readFields } from "./fields.js";
import { Diff, argumentsText } from "./message.js";

/** @typedef {import("./store.js").Chat} Chat */

const WANTS = /** @type {Record<string, string>} */ ({
  read: "look at something",
  write: "change something",
  run: "run a program",
  net: "call another machine",
});
const VERDICTS = /** @type {Record<string, string>} */ ({
  once: "Allow once",
  session: "Allow in this conversation",
  always: "Always allow in this folder",
  no: "Do not allow",
  never: "Never in this conversation",
});

/** The open questions; the oldest one first. @param {{chat: Chat}} props */
export function Questions({ chat }) {
  const question = chat.questions.value[0];
  if (!question) return null;
  const n_more = chat.questions.value.length - 1;
  const View = question.kind === "form" ? Form : Consent;
  return html`<section class="question" aria-label="A question waits for your answer">
    <${View} key=${question.id} chat=${chat} question=${question} />
    ${n_more > 0 && html`<p class="note-line">${n_more} more ${n_more === 1 ? "question waits" : "questions wait"}</p>`}
  </section>`;
}

/** Takes the focus, unless the person is writing something. @param {{current: HTMLElement | null}} box */
function useAttention(box) {
  useEffect(() => {
    const active = document.activeElement;
    const isWriting = active instanceof HTMLTextAreaElement && active.value.trim() !== "";
    if (!isWriting) box.current?.focus();
  }, []);
}

/**
 * Keys: the number of a choice, or arrows and Enter. What has the focus first is "Do not allow", so that nothing is
 * allowed by accident.
 * @param {{chat: Chat, question: import("./store.js").Question}} props
 */
function Consent({ chat, question }) {
  const verdicts = /** @type {string[]} */ (question.verdicts ?? Object.keys(VERDICTS));
  const first = useRef(/** @type {HTMLElement | null} */ (null));
  const [busy, setBusy] = useState(false);
  useAttention(first);
  /** @param {string} verdict */
  function give(verdict) {
    setBusy(true);
    chat.answer(question.id, { verdict }).catch((error) => (setBusy(false), tell(error)));
  }
  /** @param {KeyboardEvent} event */
  function onKeyDown(event) {
    const chosen = event.ctrlKey || event.metaKey || event.altKey ? undefined : verdicts[Number(event.key) - 1];
    if (chosen && !busy) return (event.preventDefault(), give(chosen));
    const step = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const all = [.../** @type {HTMLElement} */ (event.currentTarget).querySelectorAll("button")];
    const at = all.indexOf(/** @type {HTMLButtonElement} */ (document.activeElement));
    all[(at + step + all.length) % all.length].focus();
  }
  const given = Object.entries(question.arguments ?? {});
  return html`<h2>${question.tool} wants to ${WANTS[question.effect] ?? "do something"}</h2>
    ${question.why && html`<p class="why">${question.why}</p>`}
    <div class="question-body">
      ${question.subject && html`<pre class="plain subject" tabindex="0" role="group" aria-label="What it is about">${question.subject}</pre>`}
      ${
        question.diff
          ? html`<${Diff} diff=${question.diff} />`
          : given.length > 0 &&
            html`<details><summary>Arguments</summary>
            <pre class="plain" tabindex="0" role="group" aria-label="Arguments">${given.map(([name, value]) => `${argumentsText({ [name]: value })}\n`)}</pre></details>`
      }
    </div>
    <div class="verdicts" role="group" aria-label="Your answer" onKeyDown=${onKeyDown}>
      ${verdicts.map(
        (verdict, at) =>
          html`<button type="button" key=${verdict} ref=${verdict === "no" ? first : undefined} class="button"
            disabled=${busy} onClick=${() => give(verdict)}>
            <kbd>${at + 1}</kbd><span>${VERDICTS[verdict] ?? verdict}</span>
          </button>`,
      )}
    </div>`;
}

/** @param {{chat: Chat, question: import("./store.js").Question}} props */
function Form({ chat, question }) {
  const properties = question.url ? {} : (question.schema?.properties ?? {});
  const required = question.schema?.required ?? [];
  const isEmpty = Object.keys(properties).length === 0;
  const [given, setGiven] = useState({});
  const [errors, setErrors] = useState(/** @type {Record<string, string>} */ ({}));
  const box = useRef(/** @type {HTMLFormElement | null} */ (null));
  useAttention(box);
  /** @param {Record<string, unknown> | null} values */
  const answer = (values) => chat.answer(question.id, { values }).catch(tell);
  /** @param {Event} event */
  function send(event) {
    event.preventDefault();
    const { values, errors, first } = readFields(properties, given, required);
    setErrors(errors);
    if (first < 0) return answer(values);
    const control = box.current?.querySelectorAll(".field")[first].querySelector("input, select");
    /** @type {HTMLElement | null | undefined} */ (control)?.focus();
  }
  const url = /^https?:\/\//i.test(question.url ?? "") ? question.url : "";
  return html`<form ref=${box} tabindex="-1" novalidate onSubmit=${send} aria-label=${`${question.server} asks`}>
    <h2>${question.server} asks</h2>
    <p class="form-message">${question.message}</p>
    ${url && html`<p><a href=${url} target="_blank" rel="noopener noreferrer">${url}</a></p>`}
    <${Fields} properties=${properties} given=${given} errors=${errors} required=${required} onChange=${setGiven} />
    <div class="actions">
      <${Button} label=${isEmpty ? "No" : "Refuse"} onClick=${() => answer(null)} />
      <${Button} label=${isEmpty ? "Yes" : "Send"} kind="primary" type="submit" />
    </div>
  </form>`;
}
