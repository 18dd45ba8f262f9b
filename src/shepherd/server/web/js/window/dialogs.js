/** What a click in the window opens: the text of what has left, and the tokens of a span. */
import { html } from "htm/preact";
import { useEffect, useState } from "preact/hooks";
import { get, post } from "../api.js";
import { toast } from "../state.js";
import { Button, Dialog, formatCount } from "../ui.js";
import { describe, Swatch } from "./cells.js";
import { bringBack } from "./quotes.js";

/** @typedef {{index: number, role: string, text: string, id: number | null}} Message of the archive */

const MOST_MESSAGES = 200;
const PAGE = 500;

/** What `load` gives, or the sentence why not. @template T @param {(signal: AbortSignal) => Promise<T>} load
 * @param {unknown[]} inputs @returns {{value?: T, error?: string}} */
function useLoaded(load, inputs) {
  const [found, setFound] = useState(/** @type {{value?: T, error?: string}} */ ({}));
  useEffect(() => {
    const stop = new AbortController();
    load(stop.signal).then(
      (value) => setFound({ value }),
      (error) => stop.signal.aborted || setFound({ error: error.message }),
    );
    return () => stop.abort();
  }, inputs);
  return found;
}

/** @param {{session: string | null, messages: number[], chat: string | null | undefined, onClose: () => void}} props
 *   `chat`: where the messages can be brought back; undefined = nowhere on this page */
export function LeftDialog({ session, messages, chat, onClose }) {
  const asked = messages.slice(0, MOST_MESSAGES);
  const path = `v1/window/left?session=${encodeURIComponent(session ?? "")}&messages=${asked.join(",")}`;
  const { value, error } = useLoaded(
    async (signal) => (asked.length ? (await get(path, { signal })).messages : []),
    [path],
  );
  const [forgets, setForgets] = useState(/** @type {number | null} */ (null));
  const [trouble, setTrouble] = useState("");
  const found = /** @type {Message[]} */ (value ?? []);
  const ids = found.flatMap(({ id }) => (id == null ? [] : [id]));

  /** @param {boolean} dry_run */
  const forget = async (dry_run) => {
    try {
      const answer = await post("v1/memory/forget", { messages: ids, dry_run });
      if (dry_run) return setForgets(answer.messages);
      toast(`Forgotten: ${messagesOf(answer.messages)}.`);
      onClose();
    } catch (error) {
      setTrouble(/** @type {Error} */ (error).message);
    }
  };
  const back = () => {
    bringBack(
      chat ?? null,
      found.flatMap(({ id, role, text }) => (id == null ? [] : [{ id, role, text }])),
    );
    toast("They come back with your next message.");
    onClose();
  };
  const footer = html`${
    forgets === null
      ? html`<${Button} label="Forget…" icon="trash" kind="danger" onClick=${() => forget(true)} />
        ${chat !== undefined && html`<${Button} label="Bring back" icon="back" kind="primary" onClick=${back} />`}`
      : html`<p class="grow small">This deletes ${messagesOf(forgets)} from the memory, for good.</p>
        <${Button} label="Keep" onClick=${() => setForgets(null)} />
        <${Button} label="Forget" icon="trash" kind="danger" onClick=${() => forget(false)} />`
  }`;
  return html`<${Dialog} title="What has left" wide onClose=${onClose} footer=${ids.length > 0 && footer}>
    ${(error || trouble) && html`<p class="notice" role="alert">${error || trouble}</p>`}
    ${!value && !error && html`<p class="soft">Looking in the archive…</p>`}
    ${value && !found.length && html`<p class="soft">The archive has no text of it.</p>`}
    ${asked.length < messages.length && html`<p class="soft small">The first ${MOST_MESSAGES} of ${formatCount(messages.length)} messages.</p>`}
    <div class="left-messages">
      ${found.map(
        ({ index, role, text }) => html`<article key=${index}>
          <h3 class="small soft"><${Swatch} kind=${role === "tool" ? "result" : role} /> ${role === "user" ? "You" : role} · message ${index}</h3>
          <p>${text}</p>
        </article>`,
      )}
    </div>
  <//>`;
}

/** @param {number} n */
const messagesOf = (n) => `${formatCount(n)} message${n === 1 ? "" : "s"}`;

/** @param {{sequence: import("./feed.js").Sequence, piece: import("./cells.js").Piece, onClose: () => void}} props */
export function TokensDialog({ sequence, piece, onClose }) {
  const [page, setPage] = useState(0);
  const start = piece.start + page * PAGE;
  const stop = Math.min(piece.stop, start + PAGE);
  const n_pages = Math.ceil((piece.stop - piece.start) / PAGE);
  const at = new URLSearchParams({
    cache: sequence.cache,
    session: sequence.session ?? "",
    start: `${start}`,
    stop: `${stop}`,
  });
  const { value, error } = useLoaded((signal) => get(`v1/window/tokens?${at}`, { signal }), [start, stop]);
  const footer = html`<p class="grow small soft figures">Tokens ${formatCount(start)} to ${formatCount(stop)}</p>
    <${Button} label="Earlier" icon="back" disabled=${page === 0} onClick=${() => setPage(page - 1)} />
    <${Button} label="Later" icon="forward" disabled=${page + 1 >= n_pages} onClick=${() => setPage(page + 1)} />`;
  return html`<${Dialog} title=${describe(piece)} wide onClose=${onClose} footer=${n_pages > 1 && footer}>
    ${error && html`<p class="notice" role="alert">${error}</p>`}
    ${!value && !error && html`<p class="soft">Reading the tokens…</p>`}
    <p class="tokens" data-kind=${piece.kind}>
      ${value?.tokens.map(
        (/** @type {{id: number, text: string}} */ { id, text }, /** @type {number} */ n) =>
          html`<span key=${start + n} title=${`token ${start + n}, id ${id}`}>${seen(text)}</span>`,
      )}
    </p>
  <//>`;
}

/** A token with its blanks and line ends to be seen. @param {string} text */
const seen = (text) => text.replaceAll("\n", "↵\n").replaceAll("\t", "→") || "∅";
