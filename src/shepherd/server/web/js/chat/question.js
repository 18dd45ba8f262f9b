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
            html`<details>
            <summary>Arguments</summary>
            <pre class="plain" tabindex="0" role="group" aria-label="Arguments">${given.map(([name, value]) => `${argumentsText({ [name]: value })}\n`)}</pre>
          </details>`
      }
    </div>
    <div class="verdicts" role="group" aria-label="Your answer" onKeyDown=${onKeyDown}>
      ${verdicts.map(
        (verdict, at) =>
          html`<button
            type="button"
            key=${verdict}
            ref=${verdict === "no" ? first : undefined}
            class="button"
            disabled=${busy}
            onClick=${() => give(verdict)}
          >
            <kbd>${at + 1}</kbd><span>${VERDICTS[verdict] ?? verdict}</span>
          </button>`,
      )}
    </div>`;
}

/** Tests of the formats that a string may have, and their words. */
const FORMATS = /** @type {Record<string, [RegExp, string, string]>} */ ({
  email: [/^[^\s@]+@[^\s@]+$/, "an e-mail address", "email"],
  uri: [/^[a-z][a-z0-9+.-]*:\S+$/i, "an address such as https://example.org", "url"],
  date: [/^\d{4}-\d\d-\d\d$/, "a date", "date"],
  "date-time": [
    /^\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)$/i,
    "a time such as 2026-01-31T12:00:00Z",
    "text",
  ],
});

/** The choices of a field: values with the texts that are shown; null = it has none.
 * @param {any} schema @returns {[string, string][] | null} */
function choicesOf(schema) {
  const titled = schema?.oneOf ?? schema?.anyOf;
  if (Array.isArray(titled) && titled.every((each) => each && "const" in each))
    return titled.map((each) => [String(each.const), String(each.title ?? each.const)]);
  if (!Array.isArray(schema?.enum)) return null;
  return schema.enum.map((/** @type {unknown} */ value, /** @type {number} */ at) => [
    String(value),
    String(schema.enumNames?.[at] ?? value),
  ]);
}

/** The kind of a field. @param {any} schema */
function kindOf(schema) {
  if (choicesOf(schema)) return "one";
  const type = Array.isArray(schema?.type)
    ? schema.type.find((/** @type {string} */ each) => each !== "null")
    : schema?.type;
  return type === "array" ? "several" : (type ?? "string");
}

/**
 * The value of what was filled in, or a sentence about what is wrong with it; neither for a field that may stay empty.
 * @param {any} schema @param {any} given a text; true or false; a list of values @param {boolean} isRequired
 * @returns {{value?: unknown, error?: string}}
 */
export function readField(schema, given, isRequired) {
  const kind = kindOf(schema);
  if (kind === "boolean") return { value: given === true };
  /** @param {number} n @param {string} low @param {string} high @param {string} unit */
  const range = (n, low, high, unit) => {
    if (typeof schema[low] === "number" && n < schema[low])
      return `At least ${schema[low]}${unit}, please; this is ${n}.`;
    if (typeof schema[high] === "number" && n > schema[high])
      return `At most ${schema[high]}${unit}, please; this is ${n}.`;
    return undefined;
  };
  if (kind === "several") {
    const error = range(given.length, "minItems", "maxItems", " of them");
    return error && (given.length || isRequired) ? { error } : { value: given };
  }
  const text = String(given ?? "").trim();
  if (!text) return isRequired ? { error: "This needs an answer." } : {};
  if (kind === "number" || kind === "integer") {
    const n = Number(text.replace(",", "."));
    if (!Number.isFinite(n)) return { error: `"${text.slice(0, 40)}" is not a number.` };
    if (kind === "integer" && !Number.isInteger(n)) return { error: "A whole number, please." };
    const error = range(n, "minimum", "maximum", "");
    return error ? { error } : { value: n };
  }
  const format = FORMATS[schema.format];
  if (format && !format[0].test(text)) return { error: `This must be ${format[1]}.` };
  const error = kind === "string" ? range([...text].length, "minLength", "maxLength", " characters") : undefined;
  return error ? { error } : { value: text };
}

/** @param {{chat: Chat, question: import("./store.js").Question}} props */
function Form({ chat, question }) {
  const fields = Object.entries(question.url ? {} : (question.schema?.properties ?? {}));
  const required = new Set(question.schema?.required ?? []);
  const [given, setGiven] = useState(() =>
    Object.fromEntries(
      fields.map(([name, schema]) => [name, schema.default ?? (kindOf(schema) === "several" ? [] : "")]),
    ),
  );
  const [errors, setErrors] = useState(/** @type {Record<string, string | undefined>} */ ({}));
  const box = useRef(/** @type {HTMLFormElement | null} */ (null));
  useAttention(box);
  /** @param {Record<string, unknown> | null} values */
  const answer = (values) => chat.answer(question.id, { values }).catch(tell);
  /** @param {Event} event */
  function send(event) {
    event.preventDefault();
    const read = fields.map(
      ([name, schema]) => /** @type {const} */ ([name, readField(schema, given[name], required.has(name))]),
    );
    const wrong = Object.fromEntries(read.filter(([, { error }]) => error).map(([name, { error }]) => [name, error]));
    setErrors(wrong);
    const firstWrong = fields.findIndex(([name]) => wrong[name]);
    if (firstWrong >= 0)
      return /** @type {HTMLElement} */ (box.current?.querySelectorAll("input, select, textarea")[firstWrong])?.focus();
    answer(
      Object.fromEntries(read.filter(([, { value }]) => value !== undefined).map(([name, { value }]) => [name, value])),
    );
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
    const all = kind === "boolean" ? [[name, schema.title ?? name]] : choices;
    return html`<fieldset class="field">
      <legend>${kind === "boolean" ? (schema.description ?? "") : label}</legend>
      ${all.map(([each, title]) => {
        const isOn = kind === "boolean" ? value === true : value.includes(each);
        const next = () =>
          kind === "boolean"
            ? !isOn
            : isOn
              ? value.filter((/** @type {string} */ one) => one !== each)
              : [...value, each];
        return html`<label class="check" key=${each}><input type="checkbox" checked=${isOn} onChange=${() => onChange(next())} />${title}</label>`;
      })}
      ${error && html`<p class="note error">${error}</p>`}
    </fieldset>`;
  }
  const shared = { label, hint: schema.description, error, value, onInput };
  if (kind === "one")
    return html`<${Field} as="select" ...${shared}>
      <option value=""></option>
      ${choices.map(([each, title]) => html`<option key=${each} value=${each}>${title}</option>`)}
    <//>`;
  const isNumber = kind === "number" || kind === "integer";
  return html`<${Field} ...${shared} type=${FORMATS[schema.format]?.[2] ?? "text"} inputmode=${isNumber ? "decimal" : undefined} />`;
}
