/** The memory: what was said is searched, read and forgotten; facts and the profile are corrected; upkeep. */
import { html } from "htm/preact";
import { useState } from "preact/hooks";
import { get, key, post, del } from "./api.js";
import { Ask, Problem, Rows, Section, useLoaded, usePages } from "./loaded.js";
import { dialog, go, tell, toast } from "./state.js";
import {
  Button,
  Dialog,
  Field,
  Form,
  Menu,
  copyText,
  counted,
  formatBytes,
  formatCount,
  formatTime,
  saveFile,
} from "./ui.js";

const M = "v1/memory";
/** By its part of the address: the name of a tab, and what it shows. */
const TABS = new Map([
  ["", { label: "Conversations", Part: Search }],
  ["facts", { label: "Facts and profile", Part: Facts }],
  ["upkeep", { label: "Upkeep", Part: Upkeep }],
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

const path = (/** @type {string} */ text) => text.split("/").map(encodeURIComponent).join("/");

/** @param {{time: string}} props */
const When = ({ time }) =>
  html`<time datetime=${time} title=${new Date(time).toLocaleString("en")}>${formatTime(Date.parse(time) / 1000)}</time>`;

/** Counts first, then asks. @param {{selection: Selection, what: string, done?: () => unknown}} props */
function Forget({ selection, what, done }) {
  const { value, error } = useLoaded(() => post(`${M}/forget`, { ...selection, dry_run: true }), []);
  const n = value?.messages;
  const run = async () => {
    const gone = await post(`${M}/forget`, selection);
    const facts = gone.facts ? ` and ${counted(gone.facts, "fact")}` : "";
    toast(`Forgotten: ${counted(gone.messages, "message")}${facts}`);
    await done?.();
  };
  return html`<${Ask} title=${`Forget ${what}?`} label=${n === undefined ? "Forget" : `Forget ${formatCount(n)}`} run=${run} disabled=${!n}>
    <${Problem} error=${error} />
    ${n === undefined && !error && html`<p class="soft">Counting…</p>`}
    ${n === 0 && html`<p>No message matches; nothing would be forgotten.</p>`}
    ${
      n > 0 &&
      html`<p>
        <strong>${counted(n, "message")}</strong> would be forgotten, with the facts that came from them. No byte of them is left, here
        and in the caches: the next answers compute their prompts again. This cannot be undone.
      </p>`
    }
  <//>`;
}

/** @param {Selection} selection @param {string} what @param {() => unknown} [done] */
export const forget = (selection, what, done) =>
  (dialog.value = html`<${Forget} selection=${selection} what=${what} done=${done} />`);

/** The message that a fact came from. @param {{id: number}} props */
function Source({ id }) {
  const { value, error } = useLoaded(() => get(`${M}/messages/${id}`), [id]);
  return html`<${Dialog} title="Where it came from">
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
  const { value, error, again, items, more } = usePages(`${M}/conversations/${path(id)}?limit=200`, "messages");
  const about = /** @type {Conversation | undefined} */ (value?.conversation);
  const facts = about && [about.model, about.source && `from ${about.source}`, counted(about.n_messages, "message")];
  return html`<div>
    <a class="button quiet small" href="#/memory">Back to all conversations</a>
    <${Problem} error=${error} />
    ${
      about &&
      html`<header class="row wrap reading-head">
        <div class="grow">
          <h2>${about.title || "Without a title"}</h2>
          <p class="small soft"><${When} time=${about.time} /> · ${facts?.filter(Boolean).join(" · ")}</p>
        </div>
        <${Export} conversation=${about.conversation} />
        <${Button} label="Forget…" icon="trash" kind="danger small"
          onClick=${() => forget({ conversation: about.conversation }, "this conversation", () => go("memory"))} />
      </header>`
    }
    ${items.map((message) => html`<${MessageRow} key=${message.id} message=${message} onForget=${() => forget({ messages: [message.id] }, "this message", again)} />`)}
    ${more}
  </div>`;
}

/** @param {{conversation?: string}} props */
function Export({ conversation }) {
  const from = `${M}/export${conversation ? `?conversation=${encodeURIComponent(conversation)}` : ""}`;
  const name = "shepherd-memory.jsonl";
  // A browser writes what it downloads to the disk as it comes; a key can only be sent by a request of the page.
  if (!key.value) return html`<a class="button small" href=${from} download=${name}>Export</a>`;
  return html`<${Button} label="Export" kind="small" onClick=${() => saveFile(from, name).catch(tell)} />`;
}

const NO_FILTERS = { role: "", after: "", before: "", phrase: "", prefix: "", untrusted: "true" };

function Search() {
  const [text, setText] = useState("");
  const [asked, setAsked] = useState("");
  const [filters, setFilters] = useState(NO_FILTERS);
  const given = Object.entries(filters).filter(([name, value]) => value && value !== (name === "untrusted" && "true"));
  const isSearch = asked !== "" || given.length > 0;
  const query = new URLSearchParams({ q: asked, limit: "50", ...Object.fromEntries(given) });
  const search = async () => (isSearch ? await get(`${M}/search?${query}`) : null);
  const found = useLoaded(search, [isSearch && query.toString()]);
  const type = (/** @type {string} */ now) => (setText(now), now || setAsked(""));
  /** @param {keyof typeof NO_FILTERS} name */
  const field = (name) => ({
    value: filters[name],
    onText: (/** @type {string} */ text) => setFilters({ ...filters, [name]: text }),
  });
  return html`<${Form} role="search" class="search" onSubmit=${() => setAsked(text.trim())}>
      <${Field} label="Search what was said" type="search" value=${text} placeholder="What did I say about…" onText=${type} />
      <${Button} label="Search" icon="search" kind="primary" type="submit" />
      <details open=${given.length > 0}>
        <summary>Filters${given.length ? ` (${given.length})` : ""}</summary>
        <div class="filters">
          <${Field} label="Who" as="select" ...${field("role")}>
            <option value="">Everyone</option>
            ${["user", "assistant", "tool"].map((role) => html`<option value=${role}>${ROLES[role]}</option>`)}
          <//>
          <${Field} label="From" type="date" ...${field("after")} />
          <${Field} label="Before" type="date" ...${field("before")} />
          <${Field} label="These words side by side" ...${field("phrase")} />
          <${Field} label="Beginning of a word" ...${field("prefix")} />
          <${Field} label="Text of tools and the web" as="select" ...${field("untrusted")}>
            <option value="true">Included</option><option value="false">Left out</option>
          <//>
        </div>
      </details>
    <//>
    <${Problem} error=${found.error} />
    ${isSearch ? found.value && html`<${Hits} hits=${found.value.results} />` : html`<${Conversations} />`}`;
}

/** @param {{hits: Hit[]}} props */
function Hits({ hits }) {
  const total = hits.length === 50 ? "The best 50 exchanges" : counted(hits.length, "exchange");
  const row = (/** @type {Hit} */ hit) => html`<li key=${hit.message_id}>
    <a href=${`#/memory/${path(hit.conversation)}`}>${hit.title || "Without a title"}</a>
    <span class="small soft"> · ${ROLES[hit.role] ?? hit.role} · <${When} time=${hit.time} /></span>
    ${hit.untrusted && html` <span class="badge warning">from a tool or the web</span>`}
    <p class="clip">${hit.snippet || hit.user_message}</p>
    ${hit.role === "user" && hit.assistant_response && html`<p class="clip soft small">${hit.assistant_response}</p>`}
  </li>`;
  return html`<p class="small soft" role="status">${total}</p>
    <${Rows} items=${hits} row=${row} />`;
}

function Conversations() {
  const { value, error, items, more } = usePages(`${M}/conversations?limit=50`, "conversations");
  const row = (/** @type {Conversation} */ each) => html`<li key=${each.conversation}>
    <a class="row" href=${`#/memory/${path(each.conversation)}`}>
      <span class="grow clip-one">${each.title || "Without a title"}</span>
      <span class="small soft figures count">${counted(each.n_messages, "message")}</span>
      <span class="small soft when"><${When} time=${each.time} /></span>
    </a>
  </li>`;
  return html`<${Problem} error=${error} />
    ${value && html`<${Rows} items=${items} row=${row} none="Nothing is remembered yet. What is said in chats is kept here as it is said." />`} ${more}`;
}

/** @param {{fact: Fact, named?: boolean, children?: any}} props `named`: it has a name that counts, and a history */
function FactRow({ fact, named = false, children }) {
  const [past, setPast] = useState(/** @type {Fact[] | null} */ (null));
  const show = async () => setPast(past ? null : (await get(`${M}/facts/${path(fact.key)}?history=true`)).history);
  const from = html`<button type="button" class="link" onClick=${() => (dialog.value = html`<${Source} id=${fact.message_id} />`)}>where it came from</button>`;
  return html`<li class="fact">
    <div class="grow">
      ${named && html`<div class="small soft name">${fact.key}</div>`}
      <div class="said-body">${fact.value}</div>
      <div class="small soft row wrap">
        ${fact.kind !== "fact" && html`<span class="badge">${fact.kind}</span>`}
        <${When} time=${fact.time} /> ${fact.message_id === null ? html`<span>set by hand</span>` : from}
        ${named && html`<button type="button" class="link" aria-expanded=${past !== null} onClick=${() => show().catch(tell)}>history</button>`}
      </div>
      ${past && html`<ol class="history small">${past.map((each) => html`<li key=${each.id}>${each.value} <span class="soft">${each.ended ? html`until <${When} time=${each.ended} />` : "now"}</span></li>`)}</ol>`}
    </div>
    <div class="row">${children}</div>
  </li>`;
}

/** @typedef {{title: string, old?: Fact, named: boolean}} Edited */

/** A fact or an entry of the profile is written. @param {Edited & {done: () => Promise<unknown>}} props */
function EditFact({ title, old, named, done }) {
  const [name, setName] = useState(named ? (old?.key ?? "") : "");
  const [value, setValue] = useState(old?.value ?? "");
  const [kind, setKind] = useState(old?.kind ?? "instruction");
  const save = async () => {
    const kept = old && { kind: old.kind };
    if (named) await get(`${M}/facts`, { method: "PUT", body: { key: name, value, ...kept } });
    else {
      await post(`${M}/profile`, { value, kind });
      if (old && old.value.trim() !== value.trim()) await post(`${M}/profile/${old.id}`, { action: "reject" });
    }
    await done();
  };
  const isEmpty = !value.trim() || (named && !name.trim());
  return html`<${Ask} title=${title} label="Save" kind="primary" run=${save} disabled=${isEmpty}>
    ${named && !old && html`<${Field} label="Name" value=${name} maxlength="200" required autofocus onText=${setName} />`}
    ${!named && html`<${Field} label="Kind" as="select" value=${kind} onText=${setKind}><option value="instruction">Instruction</option><option value="preference">Preference</option><//>`}
    <${Field} label=${named ? "Value" : "What always holds"} as="textarea" rows="3" maxlength="10000" required value=${value} onText=${setValue}
      hint=${named ? "The earlier value becomes history." : "Models read it at the beginning of every conversation."} />
  <//>`;
}

function Facts() {
  const facts = useLoaded(async () => /** @type {Fact[]} */ ((await get(`${M}/facts?kind=fact`)).facts), []);
  const about = useLoaded(() => get(`${M}/profile`), []);
  const again = () => Promise.all([facts.again(), about.again()]);
  const judge = (/** @type {Fact} */ fact, /** @type {string} */ action) =>
    post(`${M}/profile/${fact.id}`, { action }).then(again).catch(tell);
  /** @param {Edited} edited */
  const edit = (edited) => (dialog.value = html`<${EditFact} ...${edited} done=${again} />`);
  /** @param {Fact} fact */
  const remove = ({ key }) =>
    (dialog.value = html`<${Ask} title=${`Delete ${key}?`} label="Delete"
      run=${async () => (await del(`${M}/facts?key=${encodeURIComponent(key)}`), await again())}>
      <p>The fact and its history are deleted. What was said in conversations stays.</p>
    <//>`);
  /** @param {Edited} edited */
  const adding = (edited) =>
    html`<${Button} label="Add" icon="plus" kind="small" aria-label=${edited.title} onClick=${() => edit(edited)} />`;
  const candidate = (/** @type {Fact} */ fact) => html`<${FactRow} key=${fact.id} fact=${fact}>
    <${Button} label="Confirm" icon="check" kind="small" aria-label=${`Confirm: ${fact.value}`} onClick=${() => judge(fact, "confirm")} />
    <${Button} label="Reject" kind="quiet small" aria-label=${`Reject: ${fact.value}`} onClick=${() => judge(fact, "reject")} />
  <//>`;
  const kept = (/** @type {boolean} */ named) => (/** @type {Fact} */ fact) => {
    const title = `Correct ${named ? fact.key : "the profile"}`;
    const away = () => (named ? remove(fact) : judge(fact, "reject"));
    return html`<${FactRow} key=${fact.id} fact=${fact} named=${named}>
      <${Button} label=${title} icon="edit" kind="quiet" short onClick=${() => edit({ title, old: fact, named })} />
      <${Button} label=${named ? `Delete ${fact.key}` : "Remove"} icon="trash" kind="quiet" short onClick=${away} />
    <//>`;
  };
  return html`<${Problem} error=${facts.error || about.error} />
    ${
      about.value?.candidates?.length > 0 &&
      html`<${Section} title="Proposed" note="Found in what you said. They have no effect until you confirm them.">
        <${Rows} items=${about.value.candidates} row=${candidate} />
      <//>`
    }
    <${Section} title="Profile" note="What models read at the beginning of every conversation."
      action=${adding({ title: "Add to the profile", named: false })}>
      ${about.value && html`<${Rows} items=${about.value.profile} row=${kept(false)} none="The profile is empty." />`}
    <//>
    <${Section} title="Facts" action=${adding({ title: "Add a fact", named: true })}>
      ${facts.value && html`<${Rows} items=${facts.value} row=${kept(true)} none="No facts yet. A model can note them with its tools, and you can add them." />`}
    <//>`;
}

function Upkeep() {
  const { value, error, again } = useLoaded(() => get(`${M}/stats`), []);
  const [matching, setMatching] = useState("");
  const [before, setBefore] = useState("");
  const selection = { ...(matching && { matching }), ...(before && { before }) };
  const size =
    value && formatBytes(value.size_bytes) + (value.limit_bytes ? ` of ${formatBytes(value.limit_bytes)}` : "");
  const ages = value?.oldest && html`<${When} time=${value.oldest} /> to <${When} time=${value.newest} />`;
  /** @type {[string, any][]} */
  const rows = value && [
    ["Conversations", formatCount(value.conversations)],
    ["Messages", formatCount(value.messages)],
    ["Out of the context of a model, only here", formatCount(value.evicted)],
    ["Shortened to save room", formatCount(value.pruned)],
    ["Facts and entries of the profile", formatCount(value.facts)],
    ["Vectors for the search by meaning", formatCount(value.vectors)],
    ["Size", size],
    ["Oldest and newest message", ages || "none"],
  ];
  return html`<${Problem} error=${error} />
    <${Section} title="What is kept">
      ${rows && html`<dl class="card facts-list figures">${rows.map(([name, text]) => html`<div><dt>${name}</dt><dd>${text}</dd></div>`)}</dl>`}
    <//>
    <${Section} title="Forget">
      <${Form} class="card" onSubmit=${() => forget(selection, "these messages", again)}>
        <div class="filters">
          <${Field} label="Messages with this phrase" value=${matching} onText=${setMatching} />
          <${Field} label="Messages before" type="date" value=${before} onText=${setBefore} />
        </div>
        <p class="small soft">With both, messages that meet both. You see how many they are before anything is forgotten.</p>
        <div class="actions"><${Button} label="See what would be forgotten" type="submit" disabled=${!matching && !before} /></div>
      <//>
    <//>
    <${Section} title="Export" action=${html`<${Export} />`}>
      <p class="small soft">Everything as lines of JSON, for <code>shepherd memory import</code> on another machine.</p>
    <//>`;
}

/** @param {{id?: string | null}} props a tab, or the id of a conversation */
export function MemoryView({ id }) {
  const tab = TABS.get(id ?? "");
  const current = tab ? (id ?? "") : ""; // a conversation is one of the first tab's
  return html`<section class="panel memory">
    <header class="panel-head">
      <h1>Memory</h1>
      <nav class="choice" aria-label="Parts of the memory">
        ${[...TABS].map(([name, { label }]) => html`<a key=${name} href=${`#/memory${name && `/${name}`}`} aria-current=${name === current ? "page" : undefined}>${label}</a>`)}
      </nav>
    </header>
    ${tab ? html`<${tab.Part} key=${id ?? ""} />` : html`<${Reading} key=${id} id=${id} />`}
  </section>`;
}
