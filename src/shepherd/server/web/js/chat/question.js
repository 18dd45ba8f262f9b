/** Questions to the person during a turn: may this call run; the form of a server of tools. */
import { html } from "htm/preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { tell } from "../state.js";
import { Button, Field } from "../ui.js";
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

/** Of the formats that a string may have: what it looks like, in words, and the type of its control. */
const FORMATS = /** @type {Record<string, {test: RegExp, words: string, type?: string}>} */ ({
  email: { test: /^[^\s@]+@[^\s@]+$/, words: "an e-mail address", type: "email" },
  uri: { test: /^[a-z][a-z0-9+.-]*:\S+$/i, words: "a whole address, with https: in front", type: "url" },
  date: { test: /^\d{4}-\d\d-\d\d$/, words: "a date", type: "date" },
  "date-time": {
    test: /^\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)$/i,
    words: "a time such as 2026-01-31T12:00:00Z",
  },
});

/** The choices of a field: values with the texts that are shown; null = it has none.
 * @param {any} schema @returns {[string, string][] | null} */
function choicesOf({ oneOf, anyOf, enum: values, enumNames } = {}) {
  const titled = oneOf ?? anyOf;
  if (Array.isArray(titled) && titled.every((each) => each && "const" in each))
    return titled.map((each) => [String(each.const), String(each.title ?? each.const)]);
  if (!Array.isArray(values)) return null;
  return values.map((value, at) => [String(value), String(enumNames?.[at] ?? value)]);
}

/** The kind of a field: "one" or "several" of choices, or its type. @param {any} schema @returns {string} */
function kindOf(schema) {
  if (choicesOf(schema)) return "one";
  const type = [schema.type].flat().find((each) => each !== "null") ?? "string";
  return type === "array" ? "several" : type;
}

/** What is wrong with a number or a length, as a sentence.
 * @param {number} n @param {unknown} least @param {unknown} most @param {string} unit */
function rangeError(n, least, most, unit) {
  if (typeof least === "number" && n < least) return `At least ${least}${unit}, please; this is ${n}.`;
  if (typeof most === "number" && n > most) return `At most ${most}${unit}, please; this is ${n}.`;
  return undefined;
}

/**
 * The value of what was filled in, or a sentence about what is wrong with it; neither for a field that may stay empty.
 * @param {any} schema @param {any} given a text; true or false; a list of values @param {boolean} isRequired
 * @returns {{value?: unknown, error?: string}}
 */
function readField(schema, given, isRequired) {
  const kind = kindOf(schema);
  if (kind === "boolean") return { value: given === true };
  if (kind === "several") {
    const error = rangeError(given.length, schema.minItems, schema.maxItems, " of them");
    return error && (given.length || isRequired) ? { error } : { value: given };
  }
  const text = String(given ?? "").trim();
  if (!text) return isRequired ? { error: "This needs an answer." } : {};
  if (kind === "number" || kind === "integer") {
    const n = Number(text.replace(",", "."));
    if (!Number.isFinite(n)) return { error: `"${text.slice(0, 40)}" is not a number.` };
    if (kind === "integer" && !Number.isInteger(n)) return { error: "A whole number, please." };
    const error = rangeError(n, schema.minimum, schema.maximum, "");
    return error ? { error } : { value: n };
  }
  const format = FORMATS[schema.format];
  if (format && !format.test.test(text)) return { error: `This must be ${format.words}.` };
  const error = rangeError([...text].length, schema.minLength, schema.maxLength, " characters");
  return error ? { error } : { value: text };
}

/** @param {{chat: Chat, question: import("./store.js").Question}} props */
function Form({ chat, question }) {
  const fields = Object.entries(question.url ? {} : (question.schema?.properties ?? {}));
  const required = new Set(question.schema?.required ?? []);
  /** @param {any} schema */
  const initial = (schema) => schema.default ?? (kindOf(schema) === "several" ? [] : "");
  const [given, setGiven] = useState(() => Object.fromEntries(fields.map(([name, schema]) => [name, initial(schema)])));
  const [errors, setErrors] = useState(/** @type {Record<string, string | undefined>} */ ({}));
  const box = useRef(/** @type {HTMLFormElement | null} */ (null));
  useAttention(box);
  /** @param {Record<string, unknown> | null} values */
  const answer = (values) => chat.answer(question.id, { values }).catch(tell);
  /** @param {Event} event */
  function send(event) {
    event.preventDefault();
    const values = /** @type {Record<string, unknown>} */ ({});
    const wrong = /** @type {Record<string, string>} */ ({});
    for (const [name, schema] of fields) {
      const { value, error } = readField(schema, given[name], required.has(name));
      if (error) wrong[name] = error;
      else if (value !== undefined) values[name] = value;
    }
    setErrors(wrong);
    const at = fields.findIndex(([name]) => name in wrong);
    if (at < 0) answer(values);
    else
      /** @type {HTMLElement | null} */ (
        box.current?.querySelectorAll(".field")[at]?.querySelector("input, select")
      )?.focus();
  }
  const url = /^https?:\/\//i.test(question.url ?? "") ? question.url : "";
  return html`<form ref=${box} tabindex="-1" novalidate onSubmit=${send} aria-label=${`${question.server} asks`}>
    <h2>${question.server} asks</h2>
    <p class="form-message">${question.message}</p>
    ${url && html`<p><a href=${url} target="_blank" rel="noopener noreferrer">${url}</a></p>`}
    ${fields.map(([name, schema]) => {
      /** @param {unknown} value */
      const set = (value) => setGiven((before) => ({ ...before, [name]: value }));
      return html`<${FormField} key=${name} name=${name} schema=${schema} value=${given[name]} error=${errors[name]} isRequired=${required.has(name)} onChange=${set} />`;
    })}
    <div class="actions">
      <${Button} label=${fields.length ? "Refuse" : "No"} onClick=${() => answer(null)} />
      <${Button} label=${fields.length ? "Send" : "Yes"} kind="primary" type="submit" />
    </div>
  </form>`;
}

/** @param {{name: string, schema: any, value: any, error?: string, isRequired: boolean, onChange: (value: unknown) => void}} props */
function FormField({ name, schema, value, error, isRequired, onChange }) {
  const kind = kindOf(schema);
  const choices = choicesOf(kind === "several" ? schema.items : schema) ?? [];
  const label = `${schema.title ?? name}${isRequired ? "" : " (may stay empty)"}`;
  /** @param {any} event */
  const onInput = (event) => onChange(event.target.value);
  if (kind === "boolean" || kind === "several") {
    const on = new Set(kind === "several" ? value : value === true ? [name] : []);
    /** @param {string} each */
    function toggle(each) {
      if (!on.delete(each)) on.add(each);
      onChange(kind === "several" ? [...on] : on.size > 0);
    }
    return html`<fieldset class="field">
      <legend>${kind === "boolean" ? schema.description : label}</legend>
      ${(kind === "boolean" ? [[name, schema.title ?? name]] : choices).map(
        ([each, title]) => html`<label class="check" key=${each}>
          <input type="checkbox" checked=${on.has(each)} onChange=${() => toggle(each)} />${title}
        </label>`,
      )}
      ${error && html`<p class="note error">${error}</p>`}
    </fieldset>`;
  }
  const shared = { label, hint: schema.description, error, value, onInput };
  if (kind === "one")
    return html`<${Field} as="select" ...${shared}>
      <option value=""></option>
      ${choices.map(([each, title]) => html`<option key=${each} value=${each}>${title}</option>`)}
    <//>`;
  const mode = kind === "string" ? undefined : "decimal";
  return html`<${Field} ...${shared} type=${FORMATS[schema.format]?.type ?? "text"} inputmode=${mode} />`;
}
