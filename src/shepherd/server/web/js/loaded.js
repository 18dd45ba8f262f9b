/** What panels share that show things of the server: asking for them, and saying what went wrong. */
import { html } from "htm/preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";
import { get } from "./api.js";
import { online, tell } from "./state.js";
import { Button, Dialog } from "./ui.js";

/**
 * What `load` gives; asked for again when `keys` change, the server is back, every so many seconds while the page is in
 * sight, or `again` is called. The newest answer counts.
 * @template T
 * @param {() => Promise<T>} load @param {unknown[]} keys @param {{every_s?: number}} [how]
 */
export function useLoaded(load, keys, { every_s } = {}) {
  const [state, setState] = useState({ value: /** @type {T | null} */ (null), error: "" });
  const round = useRef(0);
  async function again() {
    const mine = ++round.current;
    try {
      const value = await load();
      if (mine === round.current) setState({ value, error: "" });
    } catch (error) {
      if (mine === round.current) setState((before) => ({ ...before, error: sentence(error) }));
    }
  }
  const latest = useRef(again);
  latest.current = again;
  useEffect(() => {
    again();
    const timer = every_s && setInterval(() => document.hidden || latest.current(), every_s * 1000);
    return () => (clearInterval(timer), void round.current++);
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

/** @param {unknown} error */
export const sentence = (error) => (error instanceof Error ? error.message : String(error));

/** @param {{error: string}} props */
export const Problem = ({ error }) => error && html`<p class="notice" role="alert">${error}</p>`;

/** A part of a panel, under its heading. @param {{title: string, note?: string, action?: any, children?: any}} props */
export function Section({ title, note, action, children }) {
  const id = useId();
  return html`<section aria-labelledby=${id}>
    <div class="row"><h2 id=${id} class="grow">${title}</h2>${action}</div>
    ${note && html`<p class="small soft">${note}</p>`} ${children}
  </section>`;
}

/**
 * A question before something that cannot be taken back.
 * @param {{title: string, label: string, onClose: () => void, run: () => Promise<unknown>, disabled?: boolean,
 *   children?: any}} props `label`: of the button that does it
 */
export function Confirm({ title, label, onClose, run, disabled = false, children }) {
  const [busy, setBusy] = useState(false);
  const go = () => {
    setBusy(true);
    run().then(onClose, (error) => (tell(error), setBusy(false)));
  };
  return html`<${Dialog}
    title=${title}
    onClose=${onClose}
    footer=${html`<${Button} label="Cancel" autofocus onClick=${onClose} />
      <${Button} label=${label} kind="danger" disabled=${busy || disabled} onClick=${go} />`}
  >
    ${children}
  <//>`;
}
