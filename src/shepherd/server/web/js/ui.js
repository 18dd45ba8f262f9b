/** The parts of which all panels are made: dialogs, menus, toasts, fields, long lists, icons, and how figures are written. */
import { html } from "htm/preact";
import { useEffect, useId, useLayoutEffect, useRef, useState } from "preact/hooks";
import { blobUrl } from "./api.js";
import { closeDialog, dismiss, toast, toasts } from "./state.js";

/** The drawings of `icons.svg`, 20 × 20.
 * @typedef {"attach" | "back" | "chat" | "check" | "close" | "copy" | "down" | "download" | "edit" | "file" | "forward" |
 *   "help" | "image" | "info" | "memory" | "menu" | "mic" | "models" | "moon" | "more" | "play" | "plus" | "retry"
 *   | "search" | "send" | "settings" | "stop" | "sun" | "system" | "thought" | "tool" | "trash" | "usage" |
 *   "warning" | "window"} IconName */

/** @param {{name: IconName, size?: number}} props a decoration: its control has a name of its own */
export const Icon = ({ name, size = 20 }) =>
  html`<svg class="icon" width=${size} height=${size} aria-hidden="true"><use href=${`web/icons.svg#${name}`} /></svg>`;

/**
 * @param {{label: string, icon?: IconName, kind?: "plain" | "primary" | "quiet" | "danger", short?: boolean,
 *   onClick?: (event: MouseEvent) => void, [attribute: string]: any}} props `short`: only the icon is seen
 */
export function Button({ label, icon, kind = "plain", short = false, ...rest }) {
  const name = short ? { "aria-label": label, title: label } : {};
  return html`<button type="button" class=${`button ${kind}${short ? " short" : ""}`} ...${name} ...${rest}>
    ${icon && html`<${Icon} name=${icon} />`}${!short && html`<span>${label}</span>`}
  </button>`;
}

/** A form that the page itself takes care of. @param {{onSubmit: () => unknown, children?: any, [attribute: string]: any}} props */
export const Form = ({ onSubmit, children, ...rest }) =>
  html`<form ...${rest} onSubmit=${(/** @type {Event} */ event) => (event.preventDefault(), onSubmit())}>${children}</form>`;

/**
 * A control with its name, a hint under it, and what is wrong with its value.
 * @param {{label: string, hint?: string, error?: string, as?: "input" | "textarea" | "select", children?: any,
 *   onText?: (text: string) => void, [attribute: string]: any}} props `onText` gets the value whenever it changes
 */
export function Field({ label, hint, error, as = "input", onText, children, ...rest }) {
  const id = useId();
  const note = error || hint;
  return html`<div class="field">
    <label for=${id}>${label}</label>
    <${as} id=${id} aria-invalid=${error ? "true" : undefined} aria-describedby=${note ? `${id}-note` : undefined}
      onInput=${onText && ((/** @type {any} */ event) => onText(event.target.value))} ...${rest}>
      ${children}
    <//>
    ${note && html`<p id=${`${id}-note`} class=${error ? "note error" : "note"}>${note}</p>`}
  </div>`;
}

/**
 * A dialog over the page; the browser keeps the focus in it, and gives it back.
 * @param {{title: string, onClose?: (() => void) | null, children?: any, footer?: any, class?: string}} props null: it cannot
 *   be closed
 */
export function Dialog({ title, onClose = closeDialog, children, footer, class: name = "" }) {
  const box = useRef(/** @type {HTMLDialogElement | null} */ (null));
  const id = useId();
  useEffect(() => {
    const before = document.activeElement;
    box.current?.showModal();
    return () => before instanceof HTMLElement && before.isConnected && before.focus();
  }, []);
  return html`<dialog
    ref=${box}
    class=${name}
    aria-labelledby=${id}
    onCancel=${(/** @type {Event} */ event) => (event.preventDefault(), onClose?.())}
    onClick=${(/** @type {MouseEvent} */ event) => event.target === box.current && onClose?.()}
  >
    <div class="dialog-box">
      <header>
        <h2 id=${id}>${title}</h2>
        ${onClose && html`<${Button} label="Close" icon="close" kind="quiet" short onClick=${onClose} />`}
      </header>
      <div class="dialog-body">${children}</div>
      ${footer && html`<footer>${footer}</footer>`}
    </div>
  </dialog>`;
}

/**
 * A button with a menu. Arrows, Home, End and letters move in it; Escape closes it.
 * @param {{label: string, icon?: IconName, kind?: string, short?: boolean, items: MenuItem[],
 *   [attribute: string]: any}} props
 * @typedef {{label: string, note?: string, icon?: IconName, danger?: boolean, checked?: boolean,
 *   disabled?: boolean, run: () => void}} MenuItem
 */
export function Menu({ label, icon, kind = "quiet", short = true, items, ...rest }) {
  const [open, setOpen] = useState(false);
  const button = useRef(/** @type {HTMLElement | null} */ (null));
  const list = useRef(/** @type {HTMLElement | null} */ (null));
  const id = useId();
  const entries = () => /** @type {HTMLElement[]} */ ([...(list.current?.querySelectorAll("button:enabled") ?? [])]);
  useLayoutEffect(() => {
    const box = list.current;
    if (!open || !box || !button.current) return;
    box.showPopover();
    const at = button.current.getBoundingClientRect();
    const below = at.bottom + box.offsetHeight + 8 < innerHeight || at.top < box.offsetHeight;
    box.style.top = `${below ? at.bottom + 4 : at.top - box.offsetHeight - 4}px`;
    box.style.left = `${Math.max(8, Math.min(at.left, innerWidth - box.offsetWidth - 8))}px`;
    entries()[0]?.focus();
  }, [open]);
  /** @param {KeyboardEvent} event */
  function move(event) {
    const all = entries();
    const at = all.indexOf(/** @type {HTMLElement} */ (document.activeElement));
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: -1 }[event.key];
    const isLetter = /^\S$/.test(event.key) && !event.ctrlKey && !event.metaKey;
    const begins = (/** @type {HTMLElement} */ each) =>
      each.innerText.trim().toLowerCase().startsWith(event.key.toLowerCase());
    const named = isLetter && [...all.slice(at + 1), ...all.slice(0, at + 1)].find(begins);
    const found = to === undefined ? named : all.at(to % all.length);
    if (event.key === "Tab") setOpen(false);
    if (!found) return;
    event.preventDefault();
    found.focus();
  }
  const states = { "aria-haspopup": "menu", "aria-expanded": String(open), "aria-controls": open ? id : undefined };
  /** @param {ToggleEvent} event */
  function toggled(event) {
    if (event.newState !== "closed") return;
    setOpen(false);
    if (document.activeElement === document.body) button.current?.focus();
  }
  /** @param {MenuItem} item */
  function choose(item) {
    setOpen(false);
    button.current?.focus();
    item.run();
  }
  /** @param {MenuItem} item */
  function row(item) {
    const { label, note, icon, danger, checked, disabled } = item;
    const isChoice = checked !== undefined;
    const role = isChoice ? { role: "menuitemradio", "aria-checked": String(checked) } : { role: "menuitem" };
    const shown = isChoice ? checked && "check" : icon;
    return html`<button type="button" key=${label} ...${role} class=${danger ? "danger" : ""} disabled=${disabled} onClick=${() => choose(item)}>
      ${(isChoice || icon) && html`<span class="tick">${shown && html`<${Icon} name=${shown} size=${16} />`}</span>`}
      <span>${label}${note && html`<small>${note}</small>`}</span>
    </button>`;
  }
  return html`<${Button} ref=${button} label=${label} icon=${icon} kind=${kind} short=${short} onClick=${() => setOpen(!open)} ...${states} ...${rest} />
    ${
      open &&
      html`<div id=${id} ref=${list} class="menu" role="menu" popover="auto" aria-label=${label} onKeyDown=${move} onToggle=${toggled}>
        ${items.map(row)}
      </div>`
    }`;
}

/** The newest messages, over everything: a dialog that is open too. */
export function Toasts() {
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  useLayoutEffect(() => {
    box.current?.hidePopover();
    if (toasts.value.length) box.current?.showPopover();
  }, [toasts.value]);
  return html`<div role="status" aria-live="polite">
    <div ref=${box} class="toasts" popover="manual">
      ${toasts.value.map(
        ({ id, kind, text }) => html`<div key=${id} class=${`toast ${kind}`}>
          <span>${text}</span>
          <${Button} label="Dismiss" icon="close" kind="quiet" short onClick=${() => dismiss(id)} />
        </div>`,
      )}
    </div>
  </div>`;
}

/** @typedef {{scrollTo: (index: number) => void, toEnd: () => void}} ListHandle */

/**
 * A long list of which only the rows in sight are in the page. Rows may differ in height and change it; what is in
 * sight stays where it is while rows above it are measured or added.
 * @template T
 * @param {{items: T[], render: (item: T, index: number) => any, keyOf: (item: T, index: number) => string | number,
 *   height?: number, follow?: boolean, handle?: {current: ListHandle | null}, onTop?: () => void,
 *   onEnd?: (isAtEnd: boolean) => void, label?: string, class?: string,
 *   [attribute: string]: any}} props `height`: the guess for a row not yet seen; `follow`: the list stays at its end
 *   while it grows; `onTop`, `onEnd`: the first row, the end, has come into sight
 */
export function VirtualList(props) {
  const { items, render, keyOf, height = 72, follow = false, handle, onTop, onEnd, label } = props;
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const heights = useRef(/** @type {Map<string | number, number>} */ (new Map()));
  /** The first row in sight, and how far it is scrolled out. */
  const anchor = useRef(/** @type {{key: string | number, by: number} | null} */ (null));
  const sticks = useRef(follow);
  const [view, setView] = useState({ top: 0, size: 900 });
  const [, setRound] = useState(0);

  const tops = new Float64Array(items.length + 1);
  items.forEach((item, at) => (tops[at + 1] = tops[at] + (heights.current.get(keyOf(item, at)) ?? height)));
  const total = tops[items.length];
  const top = sticks.current ? Math.max(0, total - view.size) : view.top;
  const first = Math.max(0, rowAt(tops, top - 400));
  const last = Math.min(items.length, rowAt(tops, top + view.size + 400) + 1);

  function look() {
    const el = box.current;
    if (!el) return;
    const isAtEnd = el.scrollHeight - el.scrollTop - el.clientHeight < 24;
    if (follow && isAtEnd !== sticks.current) onEnd?.(isAtEnd);
    sticks.current = follow && isAtEnd;
    const at = Math.min(rowAt(tops, el.scrollTop), items.length - 1);
    anchor.current = at < 0 ? null : { key: keyOf(items[at], at), by: el.scrollTop - tops[at] };
    if (at <= 0 && el.scrollTop < 200 && items.length) onTop?.();
    setView({ top: el.scrollTop, size: el.clientHeight });
  }

  const resized = useRef(/** @type {ResizeObserver | null} */ (null));
  const watch = (resized.current ??= new ResizeObserver((entries) => {
    let changed = false;
    for (const { target } of entries) {
      const row = /** @type {HTMLElement & {rowKey?: string | number}} */ (target);
      if (row === box.current) {
        changed = true;
        setView((before) => ({ ...before, size: row.clientHeight }));
      } else if (row.isConnected && row.rowKey !== undefined) {
        if (heights.current.get(row.rowKey) === row.offsetHeight) continue;
        heights.current.set(row.rowKey, row.offsetHeight);
        changed = true;
      }
    }
    if (changed) setRound((n) => n + 1);
  }));
  useEffect(() => {
    if (box.current) watch.observe(box.current);
    return () => watch.disconnect();
  }, []);

  useLayoutEffect(() => {
    const el = box.current;
    if (!el) return;
    if (sticks.current) el.scrollTop = el.scrollHeight;
    else if (anchor.current) {
      const { key, by } = anchor.current;
      const at = items.findIndex((item, index) => keyOf(item, index) === key);
      if (at >= 0 && Math.abs(el.scrollTop - (tops[at] + by)) > 0.5) el.scrollTop = tops[at] + by;
    }
  });
  /** @type {ListHandle} */
  const moves = {
    scrollTo: (index) => {
      if (!items.length) return;
      sticks.current = false;
      anchor.current = { key: keyOf(items[index], index), by: 0 };
      setView((before) => ({ ...before, top: tops[index] }));
    },
    toEnd: () => {
      if (!follow) return moves.scrollTo(items.length - 1);
      sticks.current = true;
      onEnd?.(true);
      setRound((n) => n + 1);
    },
  };
  if (handle) handle.current = moves;
  /** The browser's own way there would be cut short where a row on it is measured. @param {KeyboardEvent} event */
  function jump(event) {
    if (event.target !== box.current || !["Home", "End"].includes(event.key)) return;
    event.preventDefault();
    if (event.key === "Home") moves.scrollTo(0);
    else moves.toEnd();
  }

  /** @param {T} item @param {number} index */
  function row(item, index) {
    const key = keyOf(item, index);
    const place = { "aria-setsize": items.length, "aria-posinset": index + 1 };
    return html`<div key=${key} role="listitem" ...${place} ref=${(/** @type {any} */ row) => row && watch.observe(Object.assign(row, { rowKey: key }))}>${render(item, index)}</div>`;
  }
  const room = { paddingTop: `${tops[first]}px`, paddingBottom: `${total - tops[last]}px` };
  return html`<div ref=${box} class=${`virtual ${props.class ?? ""}`} role="list" aria-label=${label} tabindex="0" onScroll=${look} onKeyDown=${jump}>
    <div class="rows" role="presentation" style=${room}>${items.slice(first, last).map((item, at) => row(item, first + at))}</div>
  </div>`;
}

/** The row at a height: the last one that begins at or above `y`. @param {Float64Array} tops @param {number} y */
function rowAt(tops, y) {
  let low = 0;
  let high = tops.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (tops[middle] <= y) low = middle;
    else high = middle - 1;
  }
  return low;
}

const COUNT = new Intl.NumberFormat("en");
const SHORT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const CLOCK = new Intl.DateTimeFormat("en", { hour: "2-digit", minute: "2-digit", hour12: false });
const DAY = new Intl.DateTimeFormat("en", { day: "numeric", month: "short" });
const DATE = new Intl.DateTimeFormat("en", { day: "numeric", month: "short", year: "numeric" });

/** 12,345; `short`: 12.3K. @param {number} n @param {{short?: boolean}} [how] */
export const formatCount = (n, { short = false } = {}) => (short ? SHORT : COUNT).format(n);

/** 4.2 GB; with a part of it: 1.2 of 4.2 GB. @param {number} n @param {number} [part] */
export function formatBytes(n, part) {
  const at = Math.max(0, Math.min(4, Math.floor(Math.log10(n) / 3)));
  const figure = (/** @type {number} */ each) => (each / 1000 ** at).toFixed(at && n < 100 * 1000 ** at ? 1 : 0);
  return `${part === undefined ? "" : `${figure(part)} of `}${figure(n)} ${["B", "kB", "MB", "GB", "TB"][at]}`;
}

/** 14:05 of today, else with the day. @param {number} at_s seconds since 1970 */
export function formatTime(at_s) {
  const date = new Date(at_s * 1000);
  const now = new Date();
  if (date.toDateString() === now.toDateString()) return CLOCK.format(date);
  return (date.getFullYear() === now.getFullYear() ? DAY : DATE).format(date);
}

/** 0.1 ms, 80 ms, 2 s, 2.4 s, 2 min 5 s, 3 h 4 min. @param {number} s seconds */
export function formatDuration(s) {
  const round = (/** @type {number} */ n) => Number(n.toFixed(n < 10 ? 1 : 0));
  if (s < 1) return `${round(s * 1000)} ms`;
  if (s < 60) return `${round(s)} s`;
  const [all, large, small] = s < 3600 ? [s, "min", "s"] : [s / 60, "h", "min"];
  return `${Math.floor(all / 60)} ${large} ${Math.floor(all % 60)} ${small}`;
}

/** 1 message, 1,204 messages. @param {number} n @param {string} noun */
export const counted = (n, noun) => `${formatCount(n)} ${noun}${n === 1 ? "" : "s"}`;

/** Saves a file of the API to the disk. @param {string} path @param {string} name */
export async function saveFile(path, name) {
  const link = Object.assign(document.createElement("a"), { href: await blobUrl(path), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

/** @param {string} text @param {string} [what] of the toast */
export async function copyText(text, what = "Copied") {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // A page without https may not use the clipboard's API.
    const area = Object.assign(document.createElement("textarea"), { value: text });
    (document.querySelector("dialog[open]") ?? document.body).append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  toast(what);
}
