/** The parts of which all panels are made: dialogs, menus, toasts, fields, long lists, icons, and how figures are written. */
import { html } from "htm/preact";
import { useEffect, useId, useLayoutEffect, useRef, useState } from "preact/hooks";
import { blobUrl } from "./api.js";
import { dismiss, toast, toasts } from "./state.js";

/** 20 × 20, drawn with lines. */
const ICONS = {
  attach: "M14.5 9.5 9 15a3.2 3.2 0 0 1-4.5-4.5l6-6a2.1 2.1 0 0 1 3 3l-6 6a1 1 0 0 1-1.5-1.5L11.5 6.5",
  back: "M12 5l-5 5 5 5",
  chat: "M4 5h12v8.5H9L5.5 16.5v-3H4z",
  check: "M4.5 10.5l3.5 3.5 7.5-8",
  close: "M5 5l10 10M15 5L5 15",
  copy: "M7 7V4h9v9h-3M4 7h9v9H4z",
  down: "M5 8l5 5 5-5",
  download: "M10 3.5v9M6 9l4 4 4-4M4 16.5h12",
  edit: "M4 16l.8-3.5 8.4-8.4 2.7 2.7-8.4 8.4z",
  file: "M5.5 3h6L15 6.5V17H5.5zM11 3v4h4",
  forward: "M8 5l5 5-5 5",
  help: "M7.5 7.5a2.5 2.5 0 1 1 3.5 2.3c-.7.3-1 .8-1 1.7M10 14.3v.2",
  image: "M3.5 4.5h13v11h-13zM3.5 13l4-3.5 3 2.5 2.5-2 3.5 3M12.5 7.7v.1",
  info: "M10 9v5M10 6.2v.1M10 17a7 7 0 1 0 0-14 7 7 0 0 0 0 14",
  memory: "M5 3.5h9.5v11H6.5A1.5 1.5 0 0 0 5 16zM5 16a1.5 1.5 0 0 0 1.5 1.5h8v-3",
  menu: "M3.5 6h13M3.5 10h13M3.5 14h13",
  mic: "M10 3a2 2 0 0 1 2 2v4a2 2 0 0 1-4 0V5a2 2 0 0 1 2-2M5.5 9a4.5 4.5 0 0 0 9 0M10 13.5V17",
  models: "M10 3l6 3.5v7L10 17l-6-3.5v-7zM4 6.5l6 3.5 6-3.5M10 10v7",
  moon: "M15.5 11.8A6.2 6.2 0 0 1 8.2 4.5a6.2 6.2 0 1 0 7.3 7.3",
  more: "M4 10a.7.7 0 1 0 1.4 0 .7.7 0 1 0-1.4 0M9.3 10a.7.7 0 1 0 1.4 0 .7.7 0 1 0-1.4 0M14.6 10a.7.7 0 1 0 1.4 0 .7.7 0 1 0-1.4 0",
  play: "M6.5 4.5v11l9-5.5z",
  plus: "M10 4v12M4 10h12",
  retry: "M15.5 10a5.5 5.5 0 1 1-1.8-4.1M15.5 3.5v3.2h-3.2",
  search: "M9 14.5a5.5 5.5 0 1 0 0-11 5.5 5.5 0 0 0 0 11M13 13l4 4",
  send: "M10 16V4.5M5 9.5l5-5 5 5",
  settings:
    "M3.5 6.5h7M14.5 6.5h2M3.5 13.5h2M9.5 13.5h7M12.5 8.5a2 2 0 1 0 0-4 2 2 0 0 0 0 4M7.5 15.5a2 2 0 1 0 0-4 2 2 0 0 0 0 4",
  stop: "M6 6h8v8H6z",
  sun: "M10 13a3 3 0 1 0 0-6 3 3 0 0 0 0 6M10 2.5v1.5M10 16v1.5M2.5 10H4M16 10h1.5M4.7 4.7l1 1M14.3 14.3l1 1M4.7 15.3l1-1M14.3 5.7l1-1",
  system: "M3.5 4.5h13v9h-13zM7.5 16.5h5M10 13.5v3",
  thought: "M10 3.5a4.5 4.5 0 0 1 2.5 8.2v1.8h-5v-1.8A4.5 4.5 0 0 1 10 3.5M8 16.5h4",
  tool: "M12 4a4 4 0 0 0-3.7 5.4L4 13.7 6.3 16l4.3-4.3A4 4 0 0 0 16 8l-2.5 2.5-2-2L14 6a4 4 0 0 0-2-2",
  trash: "M4 6h12M8 6V4h4v2M5.5 6l.8 10.5h7.4L14.5 6",
  usage: "M4 16.5v-5M8 16.5v-9M12 16.5v-7M16 16.5v-12",
  warning: "M10 3.5l7 12.5H3zM10 8.5v3.5M10 14v.1",
  window: "M3 5.5h14v9H3zM6.5 5.5v9M9 5.5v9M13.5 5.5v9",
};

/** @param {{name: keyof typeof ICONS, size?: number}} props a decoration: its control has a name of its own */
export const Icon = ({ name, size = 20 }) =>
  html`<svg class="icon" viewBox="0 0 20 20" width=${size} height=${size} aria-hidden="true"><path d=${ICONS[name]} /></svg>`;

/**
 * @param {{label: string, icon?: keyof typeof ICONS, kind?: "plain" | "primary" | "quiet" | "danger", short?: boolean,
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
 * @param {{title: string, onClose?: () => void, children?: any, footer?: any, wide?: boolean, class?: string}} props without `onClose`
 *   it cannot be closed
 */
export function Dialog({ title, onClose, children, footer, wide = false, class: name = "" }) {
  const box = useRef(/** @type {HTMLDialogElement | null} */ (null));
  const id = useId();
  useEffect(() => {
    const before = document.activeElement;
    box.current?.showModal();
    return () => before instanceof HTMLElement && before.isConnected && before.focus();
  }, []);
  return html`<dialog
    ref=${box}
    class=${`${wide ? "wide " : ""}${name}`}
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
 * @param {{label: string, icon?: keyof typeof ICONS, kind?: string, short?: boolean, items: MenuItem[],
 *   [attribute: string]: any}} props
 * @typedef {{label: string, note?: string, icon?: keyof typeof ICONS, danger?: boolean, checked?: boolean,
 *   disabled?: boolean, run: () => void}} MenuItem
 */
export function Menu({ label, icon, kind = "quiet", short = true, items, ...rest }) {
  const [open, setOpen] = useState(false);
  const button = useRef(/** @type {HTMLElement | null} */ (null));
  const list = useRef(/** @type {HTMLElement | null} */ (null));
  const id = useId();
  const entries = () => [
    .../** @type {HTMLElement} */ (list.current).querySelectorAll("[role^=menuitem]:not(:disabled)"),
  ];
  useLayoutEffect(() => {
    const box = list.current;
    if (!open || !box || !button.current) return;
    box.showPopover();
    const at = button.current.getBoundingClientRect();
    const below = at.bottom + box.offsetHeight + 8 < innerHeight || at.top < box.offsetHeight;
    box.style.top = `${below ? at.bottom + 4 : at.top - box.offsetHeight - 4}px`;
    box.style.left = `${Math.max(8, Math.min(at.left, innerWidth - box.offsetWidth - 8))}px`;
    /** @type {HTMLElement} */ (entries()[0])?.focus();
  }, [open]);
  /** @param {KeyboardEvent} event */
  function move(event) {
    const all = entries();
    const at = all.indexOf(/** @type {Element} */ (document.activeElement));
    const letter = event.key.length === 1 && !event.ctrlKey && !event.metaKey ? event.key.toLowerCase() : "";
    const to = { ArrowDown: at + 1, ArrowUp: at - 1 + all.length, Home: 0, End: all.length - 1 }[event.key];
    let found = to === undefined ? undefined : all[to % all.length];
    if (letter && letter !== " ") {
      const turned = [...all.slice(at + 1), ...all.slice(0, at + 1)];
      found = turned.find((each) => each.textContent?.trim().toLowerCase().startsWith(letter));
    }
    if (event.key === "Tab") setOpen(false);
    if (!found) return;
    event.preventDefault();
    /** @type {HTMLElement} */ (found).focus();
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
  const row = (
    /** @type {import("./state.js").Toast} */ { id, kind, text, action },
  ) => html`<div key=${id} class=${`toast ${kind}`}>
    <span>${text}</span>
    ${action && html`<${Button} label=${action.label} kind="quiet" onClick=${() => (dismiss(id), action.run())} />`}
    <${Button} label="Dismiss" icon="close" kind="quiet" short onClick=${() => dismiss(id)} />
  </div>`;
  return html`<div role="status" aria-live="polite">
    <div ref=${box} class="toasts" popover="manual">${toasts.value.map(row)}</div>
  </div>`;
}

/** @typedef {{scrollTo: (index: number) => void, toEnd: () => void}} ListHandle */

/**
 * A long list of which only the rows in sight are in the page. Rows may differ in height and change it; what is in
 * sight stays where it is while rows above it are measured or added.
 * @template T
 * @param {{items: T[], render: (item: T, index: number) => any, keyOf: (item: T, index: number) => string | number,
 *   height?: number, follow?: boolean, handle?: {current: ListHandle | null}, onTop?: () => void,
 *   onEnd?: (isAtEnd: boolean) => void, role?: string, rowRole?: string, label?: string, class?: string,
 *   [attribute: string]: any}} props `height`: the guess for a row not yet seen; `follow`: the list stays at its end
 *   while it grows; `onTop`, `onEnd`: the first row, the end, has come into sight
 */
export function VirtualList(props) {
  const { items, render, keyOf, height = 72, follow = false, handle, onTop, onEnd, role = "list", label } = props;
  const { rowRole = role === "list" ? "listitem" : undefined } = props;
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
  useEffect(() => {
    const watch = new ResizeObserver((entries) => {
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
    });
    resized.current = watch;
    if (box.current) watch.observe(box.current);
    for (const row of box.current?.querySelectorAll(":scope > .rows > *") ?? []) watch.observe(row);
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

  /** @param {any} row @param {string | number} key */
  function watched(row, key) {
    if (!row) return;
    row.rowKey = key;
    resized.current?.observe(row);
  }
  /** @param {T} item @param {number} index */
  function row(item, index) {
    const key = keyOf(item, index);
    const place = rowRole === "listitem" ? { "aria-setsize": items.length, "aria-posinset": index + 1 } : {};
    return html`<div key=${key} role=${rowRole} ...${place} ref=${(/** @type {any} */ row) => watched(row, key)}>${render(item, index)}</div>`;
  }
  const room = { paddingTop: `${tops[first]}px`, paddingBottom: `${total - tops[last]}px` };
  return html`<div ref=${box} class=${`virtual ${props.class ?? ""}`} role=${role} aria-label=${label} tabindex="0" onScroll=${look} onKeyDown=${jump}>
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

/** 4.2 GB. @param {number} n */
export function formatBytes(n) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let at = 0;
  for (; n >= 1000 && at < units.length - 1; at++) n /= 1000;
  return `${n.toFixed(at && n < 100 ? 1 : 0)} ${units[at]}`;
}

/** 14:05 of today, else with the day. @param {number} at_s seconds since 1970 */
export function formatTime(at_s) {
  const date = new Date(at_s * 1000);
  const now = new Date();
  if (date.toDateString() === now.toDateString()) return CLOCK.format(date);
  return (date.getFullYear() === now.getFullYear() ? DAY : DATE).format(date);
}

/** 5 min ago; the time itself where the clock says that it is to come. @param {number} at_s @param {number} [now_s] */
export function formatAgo(at_s, now_s = Date.now() / 1000) {
  const ago = now_s - at_s;
  if (ago < -60) return formatTime(at_s);
  if (ago < 60) return "just now";
  if (ago < 3600) return `${Math.floor(ago / 60)} min ago`;
  if (ago < 86400) return `${Math.floor(ago / 3600)} h ago`;
  return formatTime(at_s);
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
    const area = document.createElement("textarea");
    area.value = text;
    (document.querySelector("dialog[open]") ?? document.body).append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  toast(what);
}
