/** What panels share that show things of the server: asking for them, and saying what went wrong. */
import { html } from "htm/preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";
import { get } from "./api.js";
import { closeDialog, online, sentence, tell } from "./state.js";
import { Button, Dialog, Form } from "./ui.js";

/**
 * What `load` gives; asked for again when `keys` change, the server is back, every so many seconds while the page is in
 * sight, or `again` is called. The newest answer counts; others are given up.
 * @template T
 * @param {(signal: AbortSignal) => Promise<T>} load @param {unknown[]} keys
 * @param {{every_s?: number, pause_ms?: number}} [how] `pause_ms`: after a change of `keys`, which may change again
 */
export function useLoaded(load, keys, { every_s, pause_ms = 0 } = {}) {
  const [state, setState] = useState({ value: /** @type {T | null} */ (null), error: "" });
  const stop = useRef(new AbortController());
  async function again() {
    stop.current.abort();
    const { signal } = (stop.current = new AbortController());
    try {
      const value = await load(signal);
      if (!signal.aborted) setState({ value, error: "" });
    } catch (error) {
      if (!signal.aborted) setState((before) => ({ ...before, error: sentence(error) }));
    }
  }
  const latest = useRef(again);
  latest.current = again;
  useEffect(() => {
    const first = setTimeout(() => latest.current(), pause_ms);
    const timer = every_s && setInterval(() => document.hidden || latest.current(), every_s * 1000);
    return () => (clearTimeout(first), clearInterval(timer), stop.current.abort());
  }, [...keys, online.value]);
  return { ...state, again };
}

/**
 * A list that comes in pages: all that is read of it, the whole first answer, and a button for more.
 * @param {string} path with its query @param {string} field of the answer, which has the items
 */
export function usePages(path, field) {
  const first = useLoaded(() => get(path), [path]);
  const [later, setLater] = useState({ items: /** @type {any[]} */ ([]), next: null });
  useEffect(() => setLater({ items: [], next: first.value?.next ?? null }), [first.value]);
  const read = async () => {
    const page = await get(`${path}&cursor=${later.next}`);
    setLater({ items: [...later.items, ...page[field]], next: page.next });
  };
  const more = later.next !== null && html`<${Button} label="Show more" onClick=${() => read().catch(tell)} />`;
  return { ...first, items: [...(first.value?.[field] ?? []), ...later.items], more };
}

/** What went wrong, and what can be done about it. @param {{error: string, children?: any}} props */
export const Problem = ({ error, children }) =>
  error && html`<div class="notice row" role="alert"><span class="grow">${error}</span>${children}</div>`;

/** A part of a panel, under its heading. @param {{title: string, note?: string, action?: any, children?: any}} props */
export function Section({ title, note, action, children }) {
  const id = useId();
  return html`<section aria-labelledby=${id}>
    <div class="row"><h2 id=${id} class="grow">${title}</h2>${action}</div>
    ${note && html`<p class="small soft">${note}</p>`} ${children}
  </section>`;
}

/** A list on a card, or what is said where it is empty.
 * @template T @param {{items: T[], row: (item: T) => any, none?: string}} props */
export const Rows = ({ items, row, none }) =>
  items.length ? html`<ul class="card rows">${items.map(row)}</ul>` : none && html`<p class="empty card">${none}</p>`;

/**
 * A dialog that does something, such as what cannot be taken back, or what its fields say.
 * @param {{title: string, label: string, kind?: "danger" | "primary", run: () => unknown, disabled?: boolean,
 *   children?: any, [attribute: string]: any}} props `label`: of the button that does it
 */
export function Ask({ title, label, kind = "danger", run, disabled = false, children, ...rest }) {
  const [busy, setBusy] = useState(false);
  function go() {
    setBusy(true);
    Promise.resolve(run()).then(closeDialog, (error) => (tell(error), setBusy(false)));
  }
  return html`<${Dialog} title=${title} ...${rest}>
    <${Form} onSubmit=${go}>
      ${children}
      <div class="actions">
        <${Button} label="Cancel" autofocus=${kind === "danger"} onClick=${closeDialog} />
        <${Button} label=${label} kind=${kind} type="submit" disabled=${busy || disabled} />
      </div>
    <//>
  <//>`;
}
