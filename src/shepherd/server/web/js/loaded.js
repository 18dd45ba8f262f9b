/** What panels share that show things of the server: asking for them, and saying what went wrong. */
import { html } from "htm/preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { online, tell } from "./state.js";
import { Button, Dialog } from "./ui.js";

/**
 * What `load` gives; asked for again when `keys` change, the server is back, or `again` is called. The newest answer counts.
 * @template T
 * @param {() => Promise<T>} load @param {unknown[]} keys
 */
export function useLoaded(load, keys) {
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
  useEffect(() => {
    again();
    return () => void round.current++;
  }, [...keys, online.value]);
  return { ...state, again };
}

/** Asks again every so many seconds, while the page is in sight. @param {() => unknown} ask @param {number} every_s */
export function useOften(ask, every_s) {
  const latest = useRef(ask);
  latest.current = ask;
  useEffect(() => {
    const timer = setInterval(() => document.hidden || latest.current(), every_s * 1000);
    return () => clearInterval(timer);
  }, [every_s]);
}

/** @param {unknown} error */
export const sentence = (error) => (error instanceof Error ? error.message : String(error));

/** @param {{error: string}} props */
export const Problem = ({ error }) => error && html`<p class="notice" role="alert">${error}</p>`;

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
