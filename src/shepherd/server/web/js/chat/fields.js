/** The fields of an object, by its JSON schema: their controls, and what was filled in. */
import { html } from "htm/preact";
import { Field } from "../ui.js";

const TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)$/i;
/** Of the formats that a string may have: what it looks like, in words, and the type of its control. */
const FORMATS = /** @type {Record<string, {test: RegExp, words: string, type?: string}>} */ ({
  email: { test: /^[^\s@]+@[^\s@]+$/, words: "an e-mail address", type: "email" },
  uri: { test: /^[a-z][a-z0-9+.-]*:\S+$/i, words: "a whole address, with https: in front", type: "url" },
  date: { test: /^\d{4}-\d\d-\d\d$/, words: "a date", type: "date" },
  "date-time": { test: TIME, words: "a time such as 2026-01-31T12:00:00Z" },
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

/** What stands in a field. @param {Record<string, any>} given @param {string} name @param {any} schema */
const standing = (given, name, schema) => given[name] ?? schema.default ?? (kindOf(schema) === "several" ? [] : "");

/**
 * The values of an object, or what is wrong with them. `first`: the place of the first field with an error, or -1.
 * @param {Record<string, any>} properties @param {Record<string, any>} given by name: a text; true or false; a list
 * @param {string[]} [required]
 */
export function readFields(properties, given, required = []) {
  const values = /** @type {Record<string, unknown>} */ ({});
  const errors = /** @type {Record<string, string>} */ ({});
  for (const [name, schema] of Object.entries(properties)) {
    const { value, error } = readField(schema, standing(given, name, schema), required.includes(name));
    if (error) errors[name] = error;
    else if (value !== undefined) values[name] = value;
  }
  return { values, errors, first: Object.keys(properties).findIndex((name) => name in errors) };
}

/**
 * @param {{properties: Record<string, any>, given: Record<string, any>, errors: Record<string, string>, required?: string[],
 *   onChange: (given: Record<string, any>) => void, placeholder?: string}} props without `required`, no field says whether it is
 */
export const Fields = ({ properties, given, errors, required, onChange, placeholder }) =>
  Object.entries(properties).map(([name, schema]) => {
    const canBeEmpty = required && !required.includes(name) && kindOf(schema) !== "boolean";
    const change = (/** @type {unknown} */ value) => onChange({ ...given, [name]: value });
    return html`<${FormField} key=${name} schema=${schema} value=${standing(given, name, schema)} error=${errors[name]}
      label=${`${schema.title ?? name}${canBeEmpty ? " (may stay empty)" : ""}`} placeholder=${placeholder} onChange=${change} />`;
  });

/** @param {{label: string, schema: any, value: any, error?: string, placeholder?: string, onChange: (value: unknown) => void}} props */
function FormField({ label, schema, value, error, placeholder, onChange }) {
  const kind = kindOf(schema);
  const choices = choicesOf(kind === "several" ? schema.items : schema) ?? [];
  if (kind === "boolean" || kind === "several") {
    const isOn = (/** @type {string} */ each) => (kind === "several" ? value.includes(each) : value === true);
    /** @param {string} each */
    function toggle(each) {
      const others = kind === "several" && value.filter((/** @type {string} */ one) => one !== each);
      onChange(kind === "several" ? (isOn(each) ? others : [...others, each]) : !isOn(each));
    }
    return html`<fieldset class="field">
      <legend>${kind === "boolean" ? schema.description : label}</legend>
      ${(kind === "boolean" ? [["", label]] : choices).map(
        ([each, title]) => html`<label class="check" key=${each}>
          <input type="checkbox" checked=${isOn(each)} onChange=${() => toggle(each)} />${title}
        </label>`,
      )}
      ${error && html`<p class="note error">${error}</p>`}
    </fieldset>`;
  }
  const shared = { label, hint: schema.description, error, value, onText: onChange };
  if (kind === "one")
    return html`<${Field} as="select" ...${shared}>
      <option value=""></option>
      ${choices.map(([each, title]) => html`<option key=${each} value=${each}>${title}</option>`)}
    <//>`;
  const mode = kind === "string" ? undefined : "decimal";
  return html`<${Field} ...${shared} type=${FORMATS[schema.format]?.type ?? "text"} inputmode=${mode} placeholder=${placeholder} />`;
}
