/** The memory: what was said is searched, read and forgotten; facts and the profile are corrected; upkeep. */
import { html } from "htm/preact";
import { useEffect, useState } from "preact/hooks";
import { get, key, post, del, request } from "./api.js";
import { Confirm, Problem, useLoaded } from "./loaded.js";
import { go, tell, toast } from "./state.js";
import { Button, Dialog, Field, Menu, copyText, formatBytes, formatCount, formatTime } from "./ui.js";

const M = "v1/memory";
const PAGE = 200;
const TABS = /** @type {const} */ ([
  ["", "Conversations"],
  ["facts", "Facts and profile"],
  ["upkeep", "Upkeep"],
]);
const ROLES = /** @type {Record<string, string>} */ ({
  user: "You",
  assistant: "Model",
  tool: "Tool",
  system: "System",
});

/**
 * @typedef {{id: number, key: string, value: string, kind: string, status: string, time: string, ended: string | null,
 *   message_id: number | null}} Fact
 * @typedef {{conversation: string, title: string, time: string, model: string, source: string, n_messages: number}} Conversation
 * @typedef {{id: number, seq: number, role: string, body: string, time: string, trust: string, state: string,
 *   calls?: {name: string, arguments: string}[], tool?: string}} Message
 * @typedef {{score: number, user_message: string, assistant_response: string, time: string, message_id: number, role: string,
 *   conversation: string, title: string, snippet: string, untrusted: boolean}} Hit
 * @typedef {{messages?: number[], conversation?: string, matching?: string, before?: string}} Selection
 */

const day = (/** @type {string} */ time) => formatTime(Date.parse(time) / 1000);
const path = (/** @type {string} */ text) => text.split("/").map(encodeURIComponent).join("/");

/** @param {{time: string}} props */
const When = ({ time }) => {
  const at = new Date(time);
  return html`<time datetime=${time} title=${at.toLocaleString("en")}>${formatTime(at.getTime() / 1000)}</time>`;
};

/** Counts first, then asks. @param {{selection: Selection, what: string, onClose: () => void, done: () => unknown}} props */
function Forget({ selection, what, onClose, done }) {
  const { value, error } = useLoaded(() => post(`${M}/forget`, { ...selection, dry_run: true }), []);
  const n = value?.messages;
  const run = async () => {
    const gone = await post(`${M}/forget`, selection);
    toast(
      `Forgotten: ${formatCount(gone.messages)} messages${gone.facts ? ` and ${formatCount(gone.facts)} facts` : ""}`,
    );
    await done();
  };
  return html`<${Confirm} title=${`Forget ${what}?`} label=${n === undefined ? "Forget" : `Forget ${formatCount(n)}`} onClose=${onClose} run=${run} disabled=${!n}>
    <${Problem} error=${error} />
    ${
      n === undefined
        ? !error && html`<p class="soft">Counting…</p>`
        : n === 0
          ? html`<p>No message matches; nothing would be forgotten.</p>`
          : html`<p>
      <strong>${formatCount(n)} ${n === 1 ? "message" : "messages"}</strong> would be forgotten, with the facts that came from them. No byte of
      them is left, here and in the caches: the next answers compute their prompts again. This cannot be undone.
    </p>`
    }
  <//>`;
}

/** The message that a fact came from. @param {{id: number, onClose: () => void}} props */
function Source({ id, onClose }) {
  const { value, error } = useLoaded(() => get(`${M}/messages/${id}`), [id]);
  return html`<${Dialog} title="Where it came from" onClose=${onClose}>
    <${Problem} error=${error} />
    ${
      value &&
      html`<p class="small soft">In “${value.conversation.title || "a conversation without a title"}”</p>
      <${MessageRow} message=${value.message} />
      <div class="actions"><a class="button" href=${`#/memory/${path(value.conversation.conversation)}`}>Read the conversation</a></div>`
    }
  <//>`;
}

/** @param {{message: Message, onForget?: () => void}} props */
const MessageRow = ({ message, onForget }) => html`<article class="said" data-role=${message.role}>
  <header class="row small soft">
    <strong>${ROLES[message.role] ?? message.role}${message.tool ? ` ${message.tool}` : ""}</strong>
    <${When} time=${message.time} />
    ${message.trust === "untrusted" && html`<span class="badge warning">from a tool or the web</span>`}
    ${message.state === "pruned" && html`<span class="badge">shortened to save room</span>`}
    <span class="grow" />
    ${
      onForget &&
      html`<${Menu} label="More about this message" icon="more" items=${[
        { label: "Copy", icon: "copy", run: () => void copyText(message.body) },
        { label: "Forget…", icon: "trash", danger: true, run: onForget },
      ]} />`
    }
  </header>
  <div class="said-body">${message.body || html`<span class="faint">${message.calls ? "" : "No text"}</span>`}</div>
  ${message.calls?.map((call) => html`<pre class="said-call"><b>${call.name}</b> ${call.arguments}</pre>`)}
</article>`;

/** @param {{id: string}} props */
function Reading({ id }) {
  const [messages, setMessages] = useState(/** @type {Message[]} */ ([]));
  const [forgetting, setForgetting] = useState(/** @type {{selection: Selection, what: string} | null} */ (null));
  const [next, setNext] = useState(/** @type {number | null} */ (null));
  const { value, error, again } = useLoaded(() => get(`${M}/conversations/${path(id)}?limit=${PAGE}`), [id]);
  useEffect(() => {
    setMessages(value?.messages ?? []);
    setNext(value?.next ?? null);
  }, [value]);
  const more = async () => {
    const page = await get(`${M}/conversations/${path(id)}?limit=${PAGE}&cursor=${next}`);
    setMessages([...messages, ...page.messages]);
    setNext(page.next);
  };
  const about = /** @type {Conversation | undefined} */ (value?.conversation);
  const all = forgetting?.selection.conversation !== undefined;
  return html`<div>
    <a class="button quiet small" href="#/memory">Back to all conversations</a>
    <${Problem} error=${error} />
    ${
      about &&
      html`<header class="row wrap reading-head">
      <div class="grow">
        <h2>${about.title || "Without a title"}</h2>
        <p class="small soft">${[formatTime(Date.parse(about.time) / 1000), about.model, about.source && `from ${about.source}`, `${formatCount(about.n_messages)} messages`].filter(Boolean).join(" · ")}</p>
      </div>
      <${Export} conversation=${about.conversation} small />
      <${Button} label="Forget…" icon="trash" kind="danger" class="button danger small"
        onClick=${() => setForgetting({ selection: { conversation: about.conversation }, what: "this conversation" })} />
    </header>`
    }
    ${messages.map((message) => html`<${MessageRow} key=${message.id} message=${message} onForget=${() => setForgetting({ selection: { messages: [message.id] }, what: "this message" })} />`)}
    ${next !== null && html`<${Button} label="Show more" onClick=${() => more().catch(tell)} />`}
    ${forgetting && html`<${Forget} ...${forgetting} onClose=${() => setForgetting(null)} done=${() => (all ? go("memory") : again())} />`}
  </div>`;
}

/** @param {{conversation?: string, small?: boolean}} props */
function Export({ conversation, small = false }) {
  const from = `${M}/export${conversation ? `?conversation=${encodeURIComponent(conversation)}` : ""}`;
  const name = `button${small ? " small" : ""}`;
  // A browser writes what it downloads to the disk as it comes; a key can only be sent by a request of the page.
  if (!key.value) return html`<a class=${name} href=${from} download="shepherd-memory.jsonl">Export</a>`;
  const save = async () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(await (await request(from)).blob());
    link.download = "shepherd-memory.jsonl";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
  };
  return html`<${Button} label="Export" icon="download" class=${name} onClick=${() => save().catch(tell)} />`;
}

const NO_FILTERS = { role: "", after: "", before: "", phrase: "", prefix: "", untrusted: "true" };

function Search() {
  const [text, setText] = useState("");
  const [asked, setAsked] = useState("");
  const [filters, setFilters] = useState(NO_FILTERS);
  const given = Object.entries(filters).filter(
    ([name, value]) => value && value !== /** @type {any} */ (NO_FILTERS)[name],
  );
  const isSearch = asked !== "" || given.length > 0;
  const query = new URLSearchParams({ q: asked, limit: "50", ...Object.fromEntries(given) });
  const found = useLoaded(
    async () => (isSearch ? await get(`${M}/search?${query}`) : null),
    [isSearch && query.toString()],
  );
  const set = (/** @type {string} */ name) => (/** @type {any} */ event) =>
    setFilters({ ...filters, [name]: event.target.value });
  return html`<form role="search" class="search" onSubmit=${(/** @type {Event} */ event) => (event.preventDefault(), setAsked(text.trim()))}>
      <${Field} label="Search what was said" type="search" value=${text} placeholder="What did I say about…"
        onInput=${(/** @type {any} */ event) => (setText(event.target.value), event.target.value || setAsked(""))} />
      <${Button} label="Search" icon="search" kind="primary" type="submit" />
      <details open=${given.length > 0}>
        <summary>Filters${given.length ? ` (${given.length})` : ""}</summary>
        <div class="filters">
          <${Field} label="Who" as="select" value=${filters.role} onChange=${set("role")}>
            <option value="">Everyone</option>
            ${["user", "assistant", "tool"].map((role) => html`<option value=${role}>${ROLES[role]}</option>`)}
          <//>
          <${Field} label="From" type="date" value=${filters.after} onChange=${set("after")} />
          <${Field} label="Before" type="date" value=${filters.before} onChange=${set("before")} />
          <${Field} label="These words side by side" value=${filters.phrase} onChange=${set("phrase")} />
          <${Field} label="Beginning of a word" value=${filters.prefix} onChange=${set("prefix")} />
          <${Field} label="Text of tools and the web" as="select" value=${filters.untrusted} onChange=${set("untrusted")}>
            <option value="true">Included</option><option value="false">Left out</option>
          <//>
        </div>
      </details>
    </form>
    <${Problem} error=${found.error} />
    ${isSearch ? found.value && html`<${Hits} hits=${found.value.results} />` : html`<${Conversations} />`}`;
}

/** @param {{hits: Hit[]}} props */
const Hits = ({
  hits,
}) => html`<p class="small soft" role="status">${hits.length === 50 ? "The best 50 exchanges" : `${formatCount(hits.length)} ${hits.length === 1 ? "exchange" : "exchanges"}`}</p>
  <ul class="card rows hits">
    ${hits.map(
      (hit) => html`<li key=${hit.message_id}>
      <a href=${`#/memory/${path(hit.conversation)}`}>${hit.title || "Without a title"}</a>
      <span class="small soft"> · ${ROLES[hit.role] ?? hit.role} · <${When} time=${hit.time} /></span>
      ${hit.untrusted && html` <span class="badge warning">from a tool or the web</span>`}
      <p class="clip">${hit.snippet || hit.user_message}</p>
      ${hit.role === "user" && hit.assistant_response && html`<p class="clip soft small">${hit.assistant_response}</p>`}
    </li>`,
    )}
  </ul>`;

function Conversations() {
  const [pages, setPages] = useState(/** @type {Conversation[]} */ ([]));
  const [cursor, setCursor] = useState(/** @type {number | null} */ (null));
  const { value, error } = useLoaded(() => get(`${M}/conversations?limit=50`), []);
  useEffect(() => setCursor(value?.next ?? null), [value]);
  const more = async () => {
    const page = await get(`${M}/conversations?limit=200&cursor=${cursor}`);
    setPages([...pages, ...page.conversations]);
    setCursor(page.next);
  };
  const all = /** @type {Conversation[]} */ ([...(value?.conversations ?? []), ...pages]);
  return html`<${Problem} error=${error} />
    ${value && !all.length && html`<p class="empty">Nothing is remembered yet. What is said in chats is kept here as it is said.</p>`}
    ${
      all.length > 0 &&
      html`<ul class="card rows">
      ${all.map(
        (each) => html`<li key=${each.conversation}>
        <a class="row" href=${`#/memory/${path(each.conversation)}`}>
          <span class="grow clip-one">${each.title || "Without a title"}</span>
          <span class="small soft figures count">${formatCount(each.n_messages)} ${each.n_messages === 1 ? "message" : "messages"}</span>
          <span class="small soft when"><${When} time=${each.time} /></span>
        </a>
      </li>`,
      )}
    </ul>`
    }
    ${cursor !== null && html`<${Button} label="Show more" onClick=${() => more().catch(tell)} />`}`;
}

/** @param {{fact: Fact, named?: boolean, history?: boolean, children?: any}} props */
function FactRow({ fact, named = false, children }) {
  const [source, setSource] = useState(false);
  const [past, setPast] = useState(/** @type {Fact[] | null} */ (null));
  const show = async () => setPast(past ? null : (await get(`${M}/facts/${path(fact.key)}?history=true`)).history);
  return html`<li class="fact">
    <div class="grow">
      ${named && html`<div class="small soft name">${fact.key}</div>`}
      <div class="said-body">${fact.value}</div>
      <div class="small soft row wrap">
        ${fact.kind !== "fact" && html`<span class="badge">${fact.kind}</span>`}
        <${When} time=${fact.time} />
        ${fact.message_id === null ? html`<span>set by hand</span>` : html`<button type="button" class="link" onClick=${() => setSource(true)}>where it came from</button>`}
        ${named && html`<button type="button" class="link" aria-expanded=${past !== null} onClick=${() => show().catch(tell)}>history</button>`}
      </div>
      ${past && html`<ol class="history small">${past.map((each) => html`<li key=${each.id}>${each.value} <span class="soft">${each.ended ? html`until <${When} time=${each.ended} />` : "now"}</span></li>`)}</ol>`}
    </div>
    <div class="row">${children}</div>
    ${source && fact.message_id !== null && html`<${Source} id=${fact.message_id} onClose=${() => setSource(false)} />`}
  </li>`;
}

/** @typedef {{title: string, old?: Fact, named: boolean}} Edited */

/** A fact or an entry of the profile is written. @param {Edited & {onClose: () => void, done: () => Promise<unknown>}} props */
function EditFact({ title, old, named, onClose, done }) {
  const [name, setName] = useState(named ? (old?.key ?? "") : "");
  const [value, setValue] = useState(old?.value ?? "");
  const [kind, setKind] = useState(old?.kind ?? "instruction");
  const save = async () => {
    if (named)
      await get(`${M}/facts`, { method: "PUT", body: { key: name, value, ...(old ? { kind: old.kind } : {}) } });
    else {
      await post(`${M}/profile`, { value, kind });
      if (old && old.value.trim() !== value.trim()) await post(`${M}/profile/${old.id}`, { action: "reject" });
    }
    await done();
    onClose();
  };
  const input = (/** @type {(text: string) => void} */ set) => (/** @type {any} */ event) => set(event.target.value);
  return html`<${Dialog} title=${title} onClose=${onClose}>
    <form onSubmit=${(/** @type {Event} */ event) => (event.preventDefault(), save().catch(tell))}>
      ${named && !old && html`<${Field} label="Name" value=${name} maxlength="200" required autofocus onInput=${input(setName)} />`}
      ${!named && html`<${Field} label="Kind" as="select" value=${kind} onChange=${input(setKind)}><option value="instruction">Instruction</option><option value="preference">Preference</option><//>`}
      <${Field} label=${named ? "Value" : "What always holds"} as="textarea" rows="3" maxlength="10000" required value=${value} onInput=${input(setValue)}
        hint=${named ? "The earlier value becomes history." : "Models read it at the beginning of every conversation."} />
      <div class="actions">
        <${Button} label="Cancel" onClick=${onClose} />
        <${Button} label="Save" kind="primary" type="submit" disabled=${!value.trim() || (named && !name.trim())} />
      </div>
    </form>
  <//>`;
}

function Facts() {
  const facts = useLoaded(async () => /** @type {Fact[]} */ ((await get(`${M}/facts?kind=fact`)).facts), []);
  const about = useLoaded(() => get(`${M}/profile`), []);
  const [editing, setEditing] = useState(/** @type {Edited | null} */ (null));
  const [deleting, setDeleting] = useState(/** @type {Fact | null} */ (null));
  const again = () => Promise.all([facts.again(), about.again()]);
  const judge = (/** @type {Fact} */ fact, /** @type {string} */ action) =>
    post(`${M}/profile/${fact.id}`, { action }).then(again).catch(tell);
  const profile = /** @type {Fact[]} */ (about.value?.profile ?? []);
  const proposed = /** @type {Fact[]} */ (about.value?.candidates ?? []);
  return html`<${Problem} error=${facts.error || about.error} />
    ${
      proposed.length > 0 &&
      html`<section aria-labelledby="proposed">
      <h2 id="proposed">Proposed</h2>
      <p class="small soft">Found in what you said. They have no effect until you confirm them.</p>
      <ul class="card rows">
        ${proposed.map(
          (fact) => html`<${FactRow} key=${fact.id} fact=${fact}>
          <${Button} label="Confirm" icon="check" class="button small" aria-label=${`Confirm: ${fact.value}`} onClick=${() => judge(fact, "confirm")} />
          <${Button} label="Reject" kind="quiet" class="button quiet small" aria-label=${`Reject: ${fact.value}`} onClick=${() => judge(fact, "reject")} />
        <//>`,
        )}
      </ul>
    </section>`
    }
    <section aria-labelledby="profile">
      <div class="row"><h2 id="profile" class="grow">Profile</h2><${Button} label="Add" icon="plus" class="button small" aria-label="Add to the profile" onClick=${() => setEditing({ title: "Add to the profile", named: false })} /></div>
      <p class="small soft">What models read at the beginning of every conversation.</p>
      ${
        about.value &&
        (profile.length
          ? html`<ul class="card rows">
        ${profile.map(
          (fact) => html`<${FactRow} key=${fact.id} fact=${fact}>
          <${Button} label="Correct" icon="edit" kind="quiet" short onClick=${() => setEditing({ title: "Correct the profile", old: fact, named: false })} />
          <${Button} label="Remove" icon="trash" kind="quiet" short onClick=${() => judge(fact, "reject")} />
        <//>`,
        )}
      </ul>`
          : html`<p class="empty card">The profile is empty.</p>`)
      }
    </section>
    <section aria-labelledby="facts">
      <div class="row"><h2 id="facts" class="grow">Facts</h2><${Button} label="Add" icon="plus" class="button small" aria-label="Add a fact" onClick=${() => setEditing({ title: "Add a fact", named: true })} /></div>
      ${
        facts.value &&
        (facts.value.length
          ? html`<ul class="card rows">
        ${facts.value.map(
          (fact) => html`<${FactRow} key=${fact.id} fact=${fact} named>
          <${Button} label=${`Correct ${fact.key}`} icon="edit" kind="quiet" short onClick=${() => setEditing({ title: `Correct ${fact.key}`, old: fact, named: true })} />
          <${Button} label=${`Delete ${fact.key}`} icon="trash" kind="quiet" short onClick=${() => setDeleting(fact)} />
        <//>`,
        )}
      </ul>`
          : html`<p class="empty card">No facts yet. A model can note them with its tools, and you can add them.</p>`)
      }
    </section>
    ${editing && html`<${EditFact} ...${editing} onClose=${() => setEditing(null)} done=${again} />`}
    ${
      deleting &&
      html`<${Confirm} title=${`Delete ${deleting.key}?`} label="Delete" onClose=${() => setDeleting(null)}
      run=${async () => (await del(`${M}/facts?key=${encodeURIComponent(deleting.key)}`), await again())}>
      <p>The fact and its history are deleted. What was said in conversations stays.</p>
    <//>`
    }`;
}

function Upkeep() {
  const { value, error, again } = useLoaded(() => get(`${M}/stats`), []);
  const [selection, setSelection] = useState(/** @type {Selection} */ ({}));
  const [asking, setAsking] = useState(false);
  const set = (/** @type {"matching" | "before"} */ name) => (/** @type {any} */ event) => {
    const { [name]: _, ...rest } = selection;
    setSelection(event.target.value ? { ...rest, [name]: event.target.value } : rest);
  };
  /** @type {[string, string][]} */
  const rows = value && [
    ["Conversations", formatCount(value.conversations)],
    ["Messages", formatCount(value.messages)],
    ["Out of the context of a model, only here", formatCount(value.evicted)],
    ["Shortened to save room", formatCount(value.pruned)],
    ["Facts and entries of the profile", formatCount(value.facts)],
    ["Vectors for the search by meaning", formatCount(value.vectors)],
    [
      "Size",
      value.limit_bytes
        ? `${formatBytes(value.size_bytes)} of ${formatBytes(value.limit_bytes)}`
        : formatBytes(value.size_bytes),
    ],
    ["Oldest and newest message", value.oldest ? `${day(value.oldest)} to ${day(value.newest)}` : "none"],
  ];
  return html`<${Problem} error=${error} />
    ${
      value &&
      html`<section aria-labelledby="stats">
      <h2 id="stats">What is kept</h2>
      <dl class="card facts-list figures">${rows.map(([name, text]) => html`<div><dt>${name}</dt><dd>${text}</dd></div>`)}</dl>
    </section>`
    }
    <section aria-labelledby="forget">
      <h2 id="forget">Forget</h2>
      <form class="card" onSubmit=${(/** @type {Event} */ event) => (event.preventDefault(), setAsking(true))}>
        <div class="filters">
          <${Field} label="Messages with this phrase" value=${selection.matching ?? ""} onInput=${set("matching")} />
          <${Field} label="Messages before" type="date" value=${selection.before ?? ""} onInput=${set("before")} />
        </div>
        <p class="small soft">With both, messages that meet both. You see how many they are before anything is forgotten.</p>
        <div class="actions"><${Button} label="See what would be forgotten" type="submit" disabled=${!Object.keys(selection).length} /></div>
      </form>
    </section>
    <section aria-labelledby="export">
      <h2 id="export">Export</h2>
      <p class="soft">Everything as lines of JSON, for <code>shepherd memory import</code> on another machine.</p>
      <${Export} />
    </section>
    ${asking && html`<${Forget} selection=${selection} what="these messages" onClose=${() => setAsking(false)} done=${again} />`}`;
}

/** @param {{id?: string | null}} props a tab, or the id of a conversation */
export function MemoryView({ id }) {
  const tab = TABS.find(([name]) => name === (id ?? ""));
  const Part = id === "facts" ? Facts : id === "upkeep" ? Upkeep : Search;
  return html`<section class="panel memory">
    <header class="panel-head">
      <h1>Memory</h1>
      <nav class="choice" aria-label="Parts of the memory">
        ${TABS.map(([name, label]) => html`<a key=${name} href=${`#/memory${name ? `/${name}` : ""}`} aria-current=${name === (id === "facts" || id === "upkeep" ? id : "") ? "page" : undefined}>${label}</a>`)}
      </nav>
    </header>
    ${tab ? html`<${Part} key=${id ?? ""} />` : html`<${Reading} key=${id} id=${id} />`}
  </section>`;
}
