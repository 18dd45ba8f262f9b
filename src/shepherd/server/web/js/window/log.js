/** What happened in the window: its turns, and what left, came back, was missed and moved. */
import { html } from "htm/preact";
import { useState } from "preact/hooks";
import { Button, formatCount as count, formatDuration, formatTime, Icon } from "../ui.js";

/** @typedef {{session: string | null, messages: number[]}} Left */

const FEW = 6;

/** The first few of a list, and a button for the rest. @template T @param {T[]} items
 * @returns {[T[], any]} */
function useFew(items) {
  const [all, setAll] = useState(false);
  const label = all ? "Fewer" : `All ${count(items.length)}`;
  const button = html`<${Button} label=${label} kind="quiet small" onClick=${() => setAll(!all)} />`;
  return [all ? items : items.slice(0, FEW), items.length > FEW && button];
}

/** Cached against computed tokens, the newest turn first. @param {{turns: import("./feed.js").Turn[]}} props */
export function Turns({ turns }) {
  const [shown, more] = useFew([...turns.entries()].reverse());
  const most = Math.max(1, ...shown.map(([, turn]) => turn.cached + turn.new));
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
              ([at, turn]) => html`<tr key=${at} title=${`${count(turn.cached)} cached, ${count(turn.new)} computed`}>
                <th scope="row">${at + 1}</th>
                <td>
                  <span class="stack" style=${{ "--cached": turn.cached / most, "--new": turn.new / most }}>
                    <i class="cached" /><i class="new" />
                  </span>
                  <span class="hidden">${count(turn.cached)} cached, </span>${count(turn.new)}<span class="hidden"> computed</span>
                </td>
                <td>${turn.first_token_s == null ? "" : formatDuration(turn.first_token_s)}</td>
                <td class="faint">${turn.tokens_per_s ? `${count(Math.round(turn.tokens_per_s))}/s` : ""}</td>
              </tr>`,
            )}
          </tbody>
        </table>`
    }
    ${more}
  </section>`;
}

/** @param {string | null | undefined} text */
const quoted = (text) => (text == null ? "nothing" : `“${text.replaceAll("\n", "↵")}”`);

/** Of each type of happening: its icon, what is said, and what is said below besides its tokens and its time.
 * @type {Record<string, (of: any) => [any, string, ...any[]]>} */
const SAYS = {
  gone: () => ["forward", "Left before you looked"],
  left: ({ reason }) => ["forward", `Left: ${reason}`],
  recalled({ words, oldest_s }) {
    const text = words?.length ? `Came back: you said ${words.slice(0, 5).join(", ")}` : "Came back";
    return ["back", text, oldest_s && `from ${formatTime(oldest_s)}`];
  },
  miss({ token, of, was, is, message }) {
    const text = `Cache missed from token ${count(token)} of ${count(of)}`;
    return ["warning", text, `was ${quoted(was)}`, `is ${quoted(is)}`, message != null && `in message ${message}`];
  },
  moved: ({ from, to, why }) => ["memory", `Moved: ${from} to ${to}`, why],
};

/** @param {{items: import("./feed.js").Happening[], onOpen: (left: Left) => void, nameOf?: (session: string | null) =>
 *   string}} props `nameOf`: each item says whose it is */
export function Happenings({ items, onOpen, nameOf }) {
  const [shown, more] = useFew(items);
  return html`<section class="happenings">
    <h3>What happened</h3>
    ${!items.length && html`<p class="soft small">Nothing has left or come back while you look.</p>`}
    <div role="log" aria-label="What left, came back, was missed and moved"><ol>
      ${shown.map((item) => {
        const { type, key, session, messages, at, tokens, ms } = item;
        const [icon, text, ...more] = SAYS[type](item);
        const below = [tokens != null && `${count(tokens)} tokens`, ms != null && formatDuration(ms / 1000), ...more];
        const line = html`<${Icon} name=${icon} size=${16} />
          <span class="grow">${text}<small class="faint">${nameOf && `${nameOf(session)} · `}${below.filter(Boolean).join(", ")}</small></span>
          <time class="small faint">${at && formatTime(at)}</time>`;
        return html`<li key=${key} data-type=${type}>
          ${messages?.length ? html`<button type="button" onClick=${() => onOpen({ session, messages })}>${line}</button>` : line}
        </li>`;
      })}
    </ol></div>
    ${more}
  </section>`;
}
