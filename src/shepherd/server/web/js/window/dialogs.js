/** What a click in the window opens: the text of what has left, and the tokens of a piece. */
import { html } from "htm/preact";
import { useEffect, useState } from "preact/hooks";
import { get, post } from "../api.js";
import { toast } from "../state.js";
import { Button, Dialog, formatCount as count } from "../ui.js";
import { describe, nameOf, Swatch } from "./cells.js";
import { quotesOf } from "./quotes.js";

const MOST_MESSAGES = 100;
const PAGE = 500;
/** Of a role, where it has another name. @type {Record<string, string>} */
const KIND = { tool: "result" };

/** The answer to a GET, or the sentence why not. @param {string} path @returns {{value?: any, error?: string}} */
function useAnswer(path) {
  const [found, setFound] = useState({});
  useEffect(() => {
    const stop = new AbortController();
    get(path, { signal: stop.signal }).then(
      (value) => setFound({ value }),
      (error) => stop.signal.aborted || setFound({ error: error.message }),
    );
    return () => stop.abort();
  }, [path]);
  return found;
}

/** @param {{session: string | null, messages: number[], chat: string | null | undefined, onClose: () => void}} props
 *   `chat`: where the messages can be brought back; undefined = nowhere on this page */
export function LeftDialog({ session, messages, chat, onClose }) {
  const asked = messages.slice(0, MOST_MESSAGES);
  const { value, error } = useAnswer(
    `v1/window/left?${new URLSearchParams({ session: session ?? "", messages: `${asked}` })}`,
  );
  const [forgets, setForgets] = useState(/** @type {string | null} */ (null));
  const [trouble, setTrouble] = useState("");
  const found = /** @type {{index: number, role: string, text: string, id: number | null}[]} */ (value?.messages ?? []);
  const archived = found.flatMap(({ id, role, text }) => (id === null ? [] : [{ id, role, text }]));

  /** @param {boolean} dry_run */
  const forget = async (dry_run) => {
    try {
      const answer = await post("v1/memory/forget", { messages: archived.map(({ id }) => id), dry_run });
      const n = `${count(answer.messages)} message${answer.messages === 1 ? "" : "s"}`;
      if (dry_run) return setForgets(n);
      toast(`Forgotten: ${n}.`);
      onClose();
    } catch (error) {
      setTrouble(/** @type {Error} */ (error).message);
    }
  };
  const back = () => {
    const quotes = quotesOf(chat ?? null);
    const known = new Set(quotes.value.map(({ id }) => id));
    quotes.value = [...quotes.value, ...archived.filter(({ id }) => !known.has(id))];
    toast("They come back with your next message.");
    onClose();
  };
  const footer = forgets
    ? html`<p class="grow small">This deletes ${forgets} from the memory, for good.</p>
        <${Button} label="Keep" onClick=${() => setForgets(null)} />
        <${Button} label="Forget" icon="trash" kind="danger" onClick=${() => forget(false)} />`
    : html`<${Button} label="Forget…" icon="trash" kind="danger" onClick=${() => forget(true)} />
        ${chat !== undefined && html`<${Button} label="Bring back" icon="back" kind="primary" onClick=${back} />`}`;
  return html`<${Dialog} title="What has left" wide onClose=${onClose} footer=${archived.length > 0 && footer}>
    ${(error || trouble) && html`<p class="notice" role="alert">${error || trouble}</p>`}
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

/** @param {{sequence: import("./feed.js").Sequence, piece: import("./cells.js").Piece, onClose: () => void}} props */
export function TokensDialog({ sequence: { cache, seq }, piece, onClose }) {
  const [start, setStart] = useState(piece.start);
  const stop = Math.min(piece.stop, start + PAGE);
  const query = { cache, seq: `${seq}`, start: `${start}`, stop: `${stop}` };
  const { value, error } = useAnswer(`v1/window/tokens?${new URLSearchParams(query)}`);
  const footer = html`<p class="grow small soft figures">Tokens ${count(start)} to ${count(stop)}</p>
    <${Button} label="Earlier" icon="back" disabled=${start === piece.start} onClick=${() => setStart(start - PAGE)} />
    <${Button} label="Later" icon="forward" disabled=${stop === piece.stop} onClick=${() => setStart(stop)} />`;
  return html`<${Dialog} title=${describe(piece)} wide onClose=${onClose} footer=${piece.stop - piece.start > PAGE && footer}>
    ${error && html`<p class="notice" role="alert">${error}</p>`}
    ${!value && !error && html`<p class="soft">Reading the tokens…</p>`}
    <p class="tokens">
      ${value?.tokens.map(
        (/** @type {{id: number | null, text: string | null}} */ { id, text }, /** @type {number} */ n) =>
          html`<span key=${start + n} title=${`token ${start + n}, id ${id ?? "none"}`}>${text?.replaceAll("\n", "↵\n") || "∅"}</span>`,
      )}
    </p>
  <//>`;
}
