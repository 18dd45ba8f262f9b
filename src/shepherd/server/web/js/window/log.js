/** What happened in the window: its turns, and what left, came back, was missed and moved. */
import { html } from "htm/preact";
import { useState } from "preact/hooks";
import { Button, formatCount, formatTime, Icon } from "../ui.js";

/** @typedef {import("./feed.js").Happening} Happening @typedef {import("./feed.js").Turn} Turn */

const count = formatCount;
const FEW_TURNS = 6;
const FEW_HAPPENINGS = 12;

/** 0.1 ms, 80 ms, 1.2 s. @param {number} ms */
export function duration(ms) {
  if (ms < 1000) return `${ms < 10 ? ms.toFixed(1) : Math.round(ms)} ms`;
  return `${(ms / 1000).toFixed(ms < 10_000 ? 1 : 0)} s`;
}

/** idle 5 min. @param {number} s */
export function ago(s) {
  if (s < 5) return "now";
  const [n, unit] = s < 60 ? [s, "s"] : s < 3600 ? [s / 60, "min"] : s < 86400 ? [s / 3600, "h"] : [s / 86400, "days"];
  return `idle ${Math.floor(n)} ${unit}`;
}

/** Cached against computed tokens, the newest turn first. @param {{turns: Turn[]}} props */
export function Turns({ turns }) {
  const [all, setAll] = useState(false);
  const most = Math.max(1, ...turns.slice(-40).map((turn) => turn.cached + turn.new));
  const shown = [...turns.entries()].reverse().slice(0, all ? undefined : FEW_TURNS);
  return html`<section class="turns">
    <h3>Turns</h3>
    ${
      !turns.length
        ? html`<p class="soft small">None yet.</p>`
        : html`<table class="figures small">
            <thead>
              <tr>
                <th><span class="hidden">Turn</span></th>
                <th><i class="cached" />cached <i class="new" />computed</th>
                <th>first token</th>
                <th>speed</th>
              </tr>
            </thead>
            <tbody>
              ${shown.map(
                ([at, turn]) => html`<tr key=${at} title=${turn.at ? formatTime(turn.at) : undefined}>
                  <th scope="row">${at + 1}</th>
                  <td>
                    <span class="stack" aria-hidden="true" style=${{ "--cached": turn.cached / most, "--new": turn.new / most }}>
                      <i class="cached" /><i class="new" />
                    </span>
                    <span class="hidden">${count(turn.cached)} from the cache, </span>${count(turn.new)}<span class="hidden"> computed</span>
                  </td>
                  <td>${turn.first_token_s === null ? "" : duration(turn.first_token_s * 1000)}</td>
                  <td class="faint">${turn.tokens_per_s ? `${turn.tokens_per_s.toFixed(0)}/s` : ""}</td>
                </tr>`,
              )}
            </tbody>
          </table>`
    }
    ${
      turns.length > FEW_TURNS &&
      html`<${Button} label=${all ? "Fewer" : `All ${count(turns.length)}`} class="button quiet small" onClick=${() => setAll(!all)} />`
    }
  </section>`;
}

/** Of each type of happening: its icon, its sentence, what is said below. */
const SAYS = /** @type {Record<string, {icon: any, text: (of: any) => string, more: (of: any) => string}>} */ ({
  left: {
    icon: "forward",
    text: ({ reason }) => `Left: ${reason}`,
    more: ({ tokens, ms, archived }) => `${count(tokens)} tokens, ${duration(ms)}${archived ? "" : ", not archived"}`,
  },
  recalled: {
    icon: "back",
    text: ({ words }) => (words?.length ? `Came back: you said ${words.slice(0, 5).join(", ")}` : "Came back"),
    more: ({ tokens, oldest_s }) => `${count(tokens)} tokens${oldest_s ? `, from ${formatTime(oldest_s)}` : ""}`,
  },
  miss: {
    icon: "warning",
    text: ({ token, of }) => `Cache missed from token ${count(token)} of ${count(of)}`,
    more: ({ was, is, message }) =>
      `was ${quoted(was)}, is ${quoted(is)}${message == null ? "" : `, in message ${message}`}`,
  },
  moved: {
    icon: "memory",
    text: ({ from, to }) => `Moved: ${from} to ${to}`,
    more: ({ tokens, ms, why }) =>
      [`${count(tokens)} tokens`, ms != null && duration(ms), why].filter(Boolean).join(", "),
  },
});

/** @param {string | null | undefined} text */
const quoted = (text) => (text == null ? "nothing" : `“${text.replaceAll("\n", "↵")}”`);

/** @param {{items: Happening[], onOpen: (left: {session: string | null, messages: number[]}) => void,
 *   nameOf?: (session: string | null) => string}} props `nameOf`: each item says whose it is */
export function Happenings({ items, onOpen, nameOf }) {
  const [all, setAll] = useState(false);
  return html`<section class="happenings">
    <h3>What happened</h3>
    ${!items.length && html`<p class="soft small">Nothing has left or come back since you look.</p>`}
    <ol role="log" aria-label="What left, came back, was missed and moved" aria-live="polite">
      ${items.slice(0, all ? undefined : FEW_HAPPENINGS).map((item) => {
        const { icon, text, more } = SAYS[item.type];
        const opens = item.messages?.length > 0;
        const line = html`<${Icon} name=${icon} size=${16} /><span class="grow">
            ${text(item)}<small class="faint">${nameOf && `${nameOf(item.session)} · `}${more(item)}</small></span
          ><time class="small faint">${formatTime(item.at)}</time>`;
        return html`<li key=${item.key} data-type=${item.type}>
          ${opens ? html`<button type="button" onClick=${() => onOpen({ session: item.session, messages: item.messages })}>${line}</button>` : line}
        </li>`;
      })}
    </ol>
    ${
      items.length > FEW_HAPPENINGS &&
      html`<${Button} label=${all ? "Fewer" : `All ${count(items.length)}`} class="button quiet small" onClick=${() => setAll(!all)} />`
    }
  </section>`;
}
