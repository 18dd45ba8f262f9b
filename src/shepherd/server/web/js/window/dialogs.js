/** What a click in the window opens: the text of what has left, and the tokens of a piece. */
import { html } from "htm/preact";
import { useState } from "preact/hooks";
import { get } from "../api.js";
import { Problem, useLoaded } from "../loaded.js";
import { forget } from "../memory.js";
import { closeDialog, toast } from "../state.js";
import { Button, Dialog, formatCount as count } from "../ui.js";
import { describe, nameOf, Swatch } from "./cells.js";

const MOST_MESSAGES = 100;
const PAGE = 500;
/** Of a role, where it has another name. @type {Record<string, string>} */
const KIND = { tool: "result" };

/** @param {{session: string | null, messages: number[], chat: import("../chat/store.js").Chat | null}} props
 *   `chat`: where the messages can be brought back; null = nowhere on this page */
export function LeftDialog({ session, messages, chat }) {
  const asked = messages.slice(0, MOST_MESSAGES);
  const query = new URLSearchParams({ session: session ?? "", messages: `${asked}` });
  const { value, error } = useLoaded(() => get(`v1/window/left?${query}`), [`${query}`]);
  const found = /** @type {{index: number, role: string, text: string, id: number | null}[]} */ (value?.messages ?? []);
  const archived = found.flatMap(({ id, role, text }) => (id === null ? [] : [{ id, role, text }]));

  const ids = archived.map(({ id }) => id);
  /** @param {import("../chat/store.js").Chat} chat */
  const back = ({ quotes }) => {
    const known = new Set(quotes.value.map(({ id }) => id));
    quotes.value = [...quotes.value, ...archived.filter(({ id }) => !known.has(id))];
    toast("They come back with your next message.");
    closeDialog();
  };
  const footer = html`<${Button} label="Forget…" icon="trash" kind="danger" onClick=${() => forget({ messages: ids }, "what has left")} />
    ${chat && html`<${Button} label="Bring back" icon="back" kind="primary" onClick=${() => back(chat)} />`}`;
  return html`<${Dialog} title="What has left" class="wide" footer=${archived.length > 0 && footer}>
    <${Problem} error=${error} />
    ${!value && !error && html`<p class="soft">Looking in the archive…</p>`}
    ${value && !found.length && html`<p class="soft">The archive has no text of it.</p>`}
    ${asked.length < messages.length && html`<p class="soft small">The first ${asked.length} of ${count(messages.length)} messages.</p>`}
    <div class="left-messages">
      ${found.map(
        ({ index, role, text }) => html`<article key=${index}>
          <h3 class="soft"><${Swatch} kind=${KIND[role] ?? role} />${nameOf(KIND[role] ?? role)} · message ${index}</h3>
          <p>${text}</p>
        </article>`,
      )}
    </div>
  <//>`;
}

/** @param {{sequence: import("./feed.js").Sequence, piece: import("./cells.js").Piece}} props */
export function TokensDialog({ sequence: { cache, seq }, piece }) {
  const [start, setStart] = useState(piece.start);
  const stop = Math.min(piece.stop, start + PAGE);
  const query = new URLSearchParams({ cache, seq: `${seq}`, start: `${start}`, stop: `${stop}` });
  const { value, error } = useLoaded(() => get(`v1/window/tokens?${query}`), [start]);
  const footer = html`<p class="grow small soft figures">Tokens ${count(start)} to ${count(stop)}</p>
    <${Button} label="Earlier" icon="back" disabled=${start === piece.start} onClick=${() => setStart(start - PAGE)} />
    <${Button} label="Later" icon="forward" disabled=${stop === piece.stop} onClick=${() => setStart(stop)} />`;
  return html`<${Dialog} title=${describe(piece)} class="wide" footer=${piece.stop - piece.start > PAGE && footer}>
    <${Problem} error=${error} />
    ${!value && !error && html`<p class="soft">Reading the tokens…</p>`}
    <p class="tokens">
      ${value?.tokens.map(
        (/** @type {{id: number | null, text: string | null}} */ { id, text }, /** @type {number} */ n) =>
          html`<span key=${start + n} title=${`token ${start + n}, id ${id ?? "none"}`}>${text?.replaceAll("\n", "↵\n") || "∅"}</span>`,
      )}
    </p>
  <//>`;
}
