/** The living window: what the model holds of a conversation, what it computed, what left and came back, while it happens. */
import { html } from "htm/preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { get } from "../api.js";
import { chats, go, online, toggleWindow, windowOpen } from "../state.js";
import { Button, formatBytes, formatCount } from "../ui.js";
import { Cells, countsOf, describe, nameOf, piecesOf, zoomFor, Swatch, ThinCells } from "./cells.js";
import { LeftDialog, TokensDialog } from "./dialogs.js";
import { beginning, failure, happenings, keyOf, pool, sequenceOf, sequences, TIERS, turns, useFeed } from "./feed.js";
import { ago, Happenings, Turns } from "./log.js";

/** @typedef {import("./feed.js").Sequence} Sequence @typedef {import("./feed.js").Turn} Turn */
/** @typedef {{session: string | null, messages: number[]}} Left @typedef {import("./cells.js").Piece} Piece */

const PLACES = { cells: "in cells", memory: "in memory", disk: "on disk" };
const count = formatCount;

/** The stored side of a chat: its session, its model, and its turns before the page looked.
 * @param {string | null} chat */
function useChat(chat) {
  const [found, setFound] = useState(/** @type {any} */ (null));
  const listed = chats.value?.find(({ id }) => id === chat);
  const round = [chat, beginning.value, listed?.changed, listed?.n_messages, listed?.running];
  useEffect(() => {
    const stop = new AbortController();
    if (found?.id !== chat) setFound(null);
    if (chat === null) return;
    get(`v1/chats/${encodeURIComponent(chat)}?limit=200`, { signal: stop.signal }).then(
      ({ session = null, model, messages }) => {
        const seen = turns.value.get(session)?.length ?? 0;
        setFound({
          id: chat,
          session,
          model,
          seen,
          before: messages.filter((/** @type {any} */ each) => each.stats).map(turnOf),
        });
      },
      () => stop.signal.aborted || setFound({ id: chat, session: null, model: "", seen: 0, before: [] }),
    );
    return () => stop.abort();
  }, round);
  return found?.id === chat ? found : null;
}

/** @param {any} message @returns {Turn} */
const turnOf = ({ at = null, stats }) => ({
  at,
  cached: stats.cached ?? 0,
  new: stats.new ?? 0,
  generated: stats.output ?? 0,
  first_token_s: stats.first_token_s ?? null,
  tokens_per_s: stats.tokens_per_s ?? null,
});

/** Cells that other conversations of the cache hold. @param {Sequence} sequence */
function othersOf({ cache, tier, held, n_ctx }) {
  const used = (pool.value[cache]?.used ?? 0) - (tier === "cells" ? held : 0);
  return Math.max(0, Math.min(used, n_ctx - held));
}

/** @param {Sequence} sequence @param {number} others */
function summaryOf(sequence, others) {
  const parts = countsOf(piecesOf(sequence)).map(([kind, n]) => `${nameOf(kind).toLowerCase()} ${count(n)}`);
  const free = Math.max(0, sequence.n_ctx - sequence.held - others);
  return `${count(sequence.held)} of ${count(sequence.n_ctx)} tokens: ${[...parts, `free ${count(free)}`].join(", ")}.`;
}

/** @param {{chat: string | null}} props */
export function WindowView({ chat }) {
  useFeed();
  return windowOpen.value ? html`<${Panel} chat=${chat} />` : html`<${ThinBar} chat=${chat} />`;
}

/** A low bar that is always seen; it opens and closes the window. @param {{chat: string | null}} props */
export function ThinBar({ chat }) {
  useFeed();
  const found = useChat(chat);
  const sequence = sequenceOf(found?.session ?? null);
  const others = sequence ? othersOf(sequence) : 0;
  const label = `${windowOpen.value ? "Close" : "Open"} the living window`;
  const held = sequence ? `${count(sequence.held)} of ${count(sequence.n_ctx)} tokens` : "";
  return html`<button type="button" class="thin-bar" title=${label} aria-expanded=${String(windowOpen.value)} onClick=${toggleWindow}>
    <span class="hidden">${label}. ${held}</span>
    ${sequence ? html`<${ThinCells} sequence=${sequence} others=${others} />` : html`<span class="thin-cells" />`}
  </button>`;
}

/** @param {{chat: string | null}} props */
function Panel({ chat }) {
  const found = useChat(chat);
  const [chosen, choose] = useState(/** @type {string | null} */ (null));
  const [left, openLeft] = useState(/** @type {Left | null} */ (null));
  const [span, openSpan] = useState(/** @type {{sequence: Sequence, piece: Piece} | null} */ (null));
  useEffect(() => choose(null), [chat]);
  const own = sequenceOf(found?.session ?? null);
  const sequence = sequenceOf(chosen) ?? (chosen && sequences.value.get(chosen)) ?? own;
  const session = sequence ? sequence.session : (found?.session ?? null);
  const isOwn = sequence === own;
  const before = isOwn && found ? found.before : NO_TURNS;
  const recent =
    session === null ? NO_TURNS : (turns.value.get(session) ?? NO_TURNS).slice(isOwn && found ? found.seen : 0);
  const showsAll = !sequence && chat === null;
  const happened = showsAll ? happenings.value : happenings.value.filter((each) => each.session === session);

  /** @param {Piece} piece */
  const open = (piece) => {
    if (!sequence) return;
    if (piece.kind === "hole") openLeft({ session, messages: piece.messages });
    else openSpan({ sequence, piece });
  };
  return html`<div class="living" data-stale=${!online.value}>
    <header>
      <h2>${isOwn ? "Living window" : titleOf(session)}</h2>
      ${!isOwn && html`<${Button} label="Back" icon="back" class="button quiet small" onClick=${() => choose(null)} />`}
      <${Button} label="Close the living window" icon="close" kind="quiet" short onClick=${toggleWindow} />
    </header>
    ${failure.value && html`<p class="notice" role="alert">${failure.value}</p>`}
    ${
      sequence
        ? html`<${Bar} key=${keyOf(sequence)} sequence=${sequence} onOpen=${open} />`
        : chat !== null &&
          found &&
          !failure.value &&
          html`<${NoCells} model=${found.model} hasTurns=${before.length > 0} />`
    }
    ${(sequence || chat !== null) && html`<${Turns} turns=${[...before, ...recent]} />`}
    ${!showsAll && html`<${Happenings} items=${happened} onOpen=${openLeft} />`}
    <${Pool} shown=${sequence ? keyOf(sequence) : ""} onChoose=${choose} />
    ${showsAll && html`<${Happenings} items=${happened} onOpen=${openLeft} nameOf=${titleOf} />`}
    ${left && html`<${LeftDialog} ...${left} chat=${isOwn ? chat : undefined} onClose=${() => openLeft(null)} />`}
    ${span && html`<${TokensDialog} ...${span} onClose=${() => openSpan(null)} />`}
  </div>`;
}
const NO_TURNS = /** @type {Turn[]} */ ([]);

/** @param {{sequence: Sequence, onOpen: (piece: Piece) => void}} props */
function Bar({ sequence, onOpen }) {
  const [zoom, setZoom] = useState(() => zoomFor(sequence.n_ctx));
  const [pointed, point] = useState(/** @type {Piece | null} */ (null));
  const others = othersOf(sequence);
  const { n_ctx, held, tokens, tier } = sequence;
  const free = Math.max(0, n_ctx - held - others);
  const left = tokens - held;
  const counts = useMemo(() => countsOf(piecesOf(sequence)), [sequence]);
  const kept = sequence.spans.reduce((sum, each) => sum + (each.keep ? each.held : 0), 0);
  const rows = /** @type {[string, number][]} */ ([...counts, ["others", others], ["free", free], ["keep", kept]]);
  const rest = [`${count(free)} free`, left > 0 && `${count(left)} have left`].filter(Boolean).join(" · ");
  return html`<section class="bar">
    <div class="measure figures">
      <strong>${count(held)}</strong> of ${count(n_ctx)} tokens
      <span class=${`badge ${tier === "cells" ? "good" : ""}`}>${PLACES[tier]}</span>
      <label class="zoom" title="Zoom">
        <span class="hidden">Zoom: rows of the bar</span>
        <input type="range" min="0" max="6" value=${zoom} aria-valuetext=${`${2 ** zoom} rows`}
          onInput=${(/** @type {any} */ event) => setZoom(Number(event.target.value))} />
      </label>
    </div>
    <${Cells} sequence=${sequence} others=${others} rows=${2 ** zoom} summary=${summaryOf(sequence, others)}
      onOpen=${onOpen} onPoint=${point} />
    <p class="pointed figures small" aria-live="polite">${pointed ? describe(pointed) : html`<span class="faint">${rest}</span>`}</p>
    <ul class="legend figures">
      ${rows
        .filter(([, n]) => n)
        .map(
          ([kind, n]) => html`<li key=${kind} data-on=${pointed ? pointed.kind === kind : undefined}>
          <${Swatch} kind=${kind} /><span class="grow">${nameOf(kind)}</span><span>${count(n)}</span>
        </li>`,
        )}
    </ul>
  </section>`;
}

/** Why there is no bar. @param {{model: string, hasTurns: boolean}} props */
function NoCells({ model, hasTurns }) {
  const isHere = Object.values(pool.value).some((each) => each.model === model);
  if (!isHere && hasTurns)
    return html`<p class="note soft small">
      ${model} runs elsewhere, so its cells cannot be seen from here. The turns below have the figures that it reports.
    </p>`;
  return html`<p class="note soft small">
    ${hasTurns ? "No token of this chat is held now. Its next answer computes what fits." : "No token yet. The bar fills with the first answer."}
  </p>`;
}

/** @param {string | null} session */
function titleOf(session) {
  const chat = chats.value?.find((each) => each.id === session || /** @type {any} */ (each).session === session);
  return chat?.title || (session ? `Session ${session.slice(0, 12)}` : "No session");
}

/** All conversations, by where they are. @param {{shown: string, onChoose: (key: string) => void}} props */
function Pool({ shown, onChoose }) {
  const all = Object.entries(pool.value);
  const names = [
    ...new Set([...all.map(([name]) => name), ...[...sequences.value.values()].map(({ cache }) => cache)]),
  ];
  return html`<section class="pool">
    <h3>All conversations</h3>
    ${!names.length && html`<p class="soft small">No model is loaded.</p>`}
    ${names.map((name) => html`<${CachePool} key=${name} name=${name} cache=${pool.value[name]} shown=${shown} onChoose=${onChoose} />`)}
  </section>`;
}

/** @param {{name: string, cache?: import("./feed.js").Cache, shown: string, onChoose: (key: string) => void}} props */
function CachePool({ name, cache, shown, onChoose }) {
  const held = [...sequences.value.values()].filter((each) => each.cache === name);
  const rows = held.map((each) => {
    const figures = cache?.sequences?.find(({ seq }) => seq === each.seq);
    return {
      ...each,
      id: keyOf(each),
      idle_s: figures?.idle_s ?? null,
      state: figures?.state ?? "idle",
      speed: figures?.tokens_per_s,
    };
  });
  rows.sort((a, b) => TIERS.indexOf(a.tier) - TIERS.indexOf(b.tier) || (a.idle_s ?? 0) - (b.idle_s ?? 0));
  const used = cache?.used ?? 0;
  const n_ctx = cache?.n_ctx ?? held[0]?.n_ctx ?? 0;
  const sizes = [
    `${count(used)} of ${count(n_ctx)} cells`,
    cache?.ram_bytes && `${formatBytes(cache.ram_bytes)} memory`,
    cache?.disk_bytes && `${formatBytes(cache.disk_bytes)} disk`,
  ];
  return html`<div class="cache">
    <p class="small soft figures"><strong>${cache?.model || name}</strong> ${sizes.filter(Boolean).join(" · ")}</p>
    <ul>
      ${rows.map(
        ({ id, session, tier, held, idle_s, state }) => html`<li key=${id}>
          <button type="button" aria-current=${id === shown ? "true" : undefined} onClick=${() => chooseOr(session, id, onChoose)}>
            <span class="title">${titleOf(session)}</span>
            <span class="figures small">${count(held)}</span>
            <span class="share" data-tier=${tier} style=${{ "--share": n_ctx ? held / n_ctx : 0 }} />
            <span class="small faint figures">
              ${state === "idle" ? [PLACES[tier], idle_s !== null && ago(idle_s)].filter(Boolean).join(" · ") : state === "prefill" ? "reading" : "writing"}
            </span>
          </button>
        </li>`,
      )}
    </ul>
  </div>`;
}

/** The chat of the session opens; of other clients only the bar. @param {string | null} session @param {string} key
 * @param {(key: string) => void} choose */
function chooseOr(session, key, choose) {
  const chat = chats.value?.find((each) => /** @type {any} */ (each).session === session);
  if (chat) go("chat", chat.id);
  else choose(session ?? key);
}
