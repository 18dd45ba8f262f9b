/** The living window: what the model holds of a conversation, what it computed, what left and came back. */
import { html } from "htm/preact";
import { useState } from "preact/hooks";
import { chatOf } from "../chat/store.js";
import { chats, dialog, go, online, toggleWindow, windowOpen } from "../state.js";
import { Button, formatBytes, formatCount as count, formatDuration } from "../ui.js";
import { Cells, describe, KINDS, nameOf, piecesOf, Swatch, ThinCells, zoomFor } from "./cells.js";
import { LeftDialog, TokensDialog } from "./dialogs.js";
import { failure, happenings, keyOf, pool, sequenceOf, sequences, TIERS, turns, useFeed } from "./feed.js";
import { Happenings, Turns } from "./log.js";

/** @typedef {import("./feed.js").Sequence} Sequence @typedef {import("./feed.js").Turn} Turn */
/** @typedef {import("./cells.js").Piece} Piece @typedef {import("./log.js").Left} Left */
/** @typedef {import("../chat/store.js").Chat} Chat */

const PLACES = { cells: "in cells", memory: "in memory", disk: "on disk" };
const STATES = /** @type {Record<string, string>} */ ({ prefill: "reads", generate: "writes" });

/** The answers of a chat, as turns: those that are saved, and those of the turn that runs. @param {Chat} chat @returns {Turn[]} */
const turnsOf = ({ messages, live }) =>
  /** @type {any[]} */ ([...messages.value.flatMap(({ stats }) => stats ?? []), ...(live.value?.stats.value ?? [])]);

/** Cells that other conversations hold beside this one. @param {Sequence} sequence */
const othersOf = ({ cache, tier, held, n_ctx }) =>
  tier === "cells" ? Math.max(0, Math.min(pool.value[cache]?.used ?? 0, n_ctx) - held) : 0;

/** @param {{id: string | null}} props of the open chat */
export function WindowView({ id }) {
  useFeed();
  const chat = chatOf(id);
  return windowOpen.value ? html`<${Panel} key=${chat.key} chat=${chat} />` : html`<${ThinBar} chat=${chat} />`;
}

/** A low bar in its place, which opens the window. @param {{chat: Chat}} props */
function ThinBar({ chat }) {
  const sequence = sequenceOf(chat.about.value?.session ?? null);
  const label = "Open the living window";
  const held = sequence ? `${count(sequence.held)} of ${count(sequence.n_ctx)} tokens` : "";
  return html`<button type="button" class="thin-bar" title=${label} aria-expanded="false"
    onClick=${toggleWindow}>
    <span class="hidden">${label}. ${held}</span>
    ${sequence ? html`<${ThinCells} sequence=${sequence} others=${othersOf(sequence)} />` : html`<span class="thin-cells" />`}
  </button>`;
}

/** @param {{chat: Chat}} props */
function Panel({ chat }) {
  const about = chat.about.value ?? {};
  const [chosen, choose] = useState(/** @type {string | null} */ (null));
  const own = sequenceOf(about.session ?? null);
  const sequence = (chosen && (sequenceOf(chosen) ?? sequences.value.get(chosen))) || own;
  const session = sequence?.session ?? about.session ?? null;
  const isOwn = sequence === own;
  const all = isOwn ? turnsOf(chat) : (turns.value.get(session ?? "") ?? []);
  const happened = happenings.value.filter((each) => each.session === session);
  const holes = sequence ? piecesOf(sequence).filter(({ kind }) => kind === "hole") : [];
  if (holes.length && !happened.some(({ type }) => type === "left")) happened.push(goneBefore(session, holes));
  const isShown = sequence || chat.id.value;
  /** @param {Left} left */
  const openLeft = (left) => (dialog.value = html`<${LeftDialog} ...${left} chat=${isOwn ? chat : null} />`);
  /** @param {Piece} piece */
  const open = (piece) => {
    if (piece.kind === "hole") openLeft({ session, messages: piece.messages });
    else dialog.value = html`<${TokensDialog} sequence=${sequence} piece=${piece} />`;
  };
  return html`<div class="living" data-stale=${!online.value}>
    <header>
      <h2>${isOwn ? "Living window" : titleOf(session)}</h2>
      ${!isOwn && html`<${Button} label="Back" icon="back" kind="quiet small" onClick=${() => choose(null)} />`}
      <${Button} label="Close the living window" icon="close" kind="quiet" short onClick=${toggleWindow} />
    </header>
    ${failure.value && html`<p class="notice" role="alert">${failure.value}</p>`}
    ${sequence && html`<${Bar} key=${session ?? keyOf(sequence)} sequence=${sequence} onOpen=${open} />`}
    ${!sequence && about.model && chat.id.value && !failure.value && html`<p class="note soft small">${reasonOf(about.model)}</p>`}
    ${isShown && html`<${Turns} turns=${all} /><${Happenings} items=${happened} onOpen=${openLeft} />`}
    <${Pool} shown=${sequence} onChoose=${choose} />
    ${!isShown && html`<${Happenings} items=${happenings.value} onOpen=${openLeft} nameOf=${titleOf} />`}
  </div>`;
}

/** What left before the page looked. @param {string | null} session @param {Piece[]} holes */
const goneBefore = (session, holes) => ({
  type: "gone",
  key: 0,
  session,
  messages: [...new Set(holes.flatMap(({ messages }) => messages))],
  tokens: holes.reduce((sum, { tokens }) => sum + tokens, 0),
});

/** Why there is no bar. @param {string} model */
const reasonOf = (model) =>
  Object.values(pool.value).some((each) => each.model === model)
    ? "No token of this chat is held now. Its next answer fills the bar."
    : `No cell of this server holds this chat: ${model} is at a provider, or is not loaded. The turns have its figures.`;

/** @param {{sequence: Sequence, onOpen: (piece: Piece) => void}} props */
function Bar({ sequence, onOpen }) {
  const [zoom, setZoom] = useState(zoomFor(sequence.n_ctx));
  const [pointed, point] = useState(/** @type {Piece | null} */ (null));
  const { n_ctx, held, tokens, tier, spans } = sequence;
  const others = othersOf(sequence);
  const kept = spans.reduce((sum, each) => sum + (each.keep ? each.held : 0), 0);
  const counts = new Map(Object.keys(KINDS).map((kind) => [kind, 0]));
  for (const { kind, tokens } of piecesOf(sequence)) counts.set(kind, (counts.get(kind) ?? 0) + tokens);
  const rest = { others, keep: kept, free: Math.max(0, n_ctx - held - others) };
  const legend = Object.entries({ ...Object.fromEntries(counts), ...rest }).filter(([, n]) => n);
  const total = `${count(held)} of ${count(n_ctx)} tokens`;
  const summary = `${total}: ${legend.map(([kind, n]) => `${nameOf(kind).toLowerCase()} ${count(n)}`).join(", ")}.`;
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
    <${Cells} sequence=${sequence} others=${others} rows=${2 ** zoom} summary=${summary} onOpen=${onOpen} onPoint=${point} />
    <p class="pointed figures small" data-on=${pointed !== null} aria-live="polite">
      ${pointed ? describe(pointed) : tokens > held ? `${count(tokens - held)} tokens have left` : "Nothing has left"}
    </p>
    <ul class="legend figures">
      ${legend.map(
        ([kind, n]) => html`<li key=${kind} data-on=${pointed?.kind === kind}>
          <${Swatch} kind=${kind} /><span class="grow">${nameOf(kind)}</span><span>${count(n)}</span>
        </li>`,
      )}
    </ul>
  </section>`;
}

/** @param {string | null} session */
const listed = (session) => chats.value?.find((each) => each.session === session);
/** @param {string | null} session */
const titleOf = (session) =>
  listed(session)?.title || (session ? `Session ${session.slice(0, 12)}` : "Without a session");

/** All conversations, by cache and tier. @param {{shown: Sequence | null, onChoose: (key: string) => void}} props */
function Pool({ shown, onChoose }) {
  const all = Object.entries(pool.value);
  return html`<section class="pool">
    <h3>All conversations</h3>
    ${!all.length && html`<p class="soft small">No model is loaded.</p>`}
    ${all.map(([name, { model, n_ctx, used = 0, ram_bytes, disk_bytes, sequences: figures = [] }]) => {
      const rows = [...sequences.value.values()].filter(({ cache }) => cache === name);
      rows.sort((a, b) => TIERS.indexOf(a.tier) - TIERS.indexOf(b.tier) || b.held - a.held);
      const sizes = [`${count(used)} of ${count(n_ctx)} cells`];
      if (ram_bytes) sizes.push(`${formatBytes(ram_bytes)} memory`);
      if (disk_bytes) sizes.push(`${formatBytes(disk_bytes)} disk`);
      return html`<p class="small soft figures"><strong>${model || name}</strong> ${sizes.join(" · ")}</p>
        <ul>
          ${rows.map((each) => {
            const { state, idle_s } = figures.find(({ seq }) => seq === each.seq) ?? {};
            const idle = idle_s > 5 ? `, idle ${formatDuration(Math.floor(idle_s))}` : "";
            const chat = listed(each.session);
            return html`<li key=${keyOf(each)}>
              <button type="button" aria-current=${each === shown ? "true" : undefined}
                onClick=${() => (chat ? go("chat", chat.id) : onChoose(each.session ?? keyOf(each)))}>
                <span class="title">${titleOf(each.session)}</span>
                <span class="figures">${count(each.held)}</span>
                <span class="share" data-tier=${each.tier} style=${{ "--share": each.held / n_ctx }} />
                <span class="figures faint">${STATES[state] ?? PLACES[each.tier] + idle}</span>
              </button>
            </li>`;
          })}
        </ul>`;
    })}
  </section>`;
}
