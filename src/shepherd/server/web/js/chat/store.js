/**
 * An open chat: its messages, and what is written now.
 *
 *     GET chat ─▶ messages ─▶ rows      events of the running turn ─▶ live ─▶ the last row
 *                    ▲                                                  │ at its end: the final messages
 *                    └──────────────────────────────────────────────────┘
 *
 * A connection that breaks begins again with the chat itself, so a page that was away shows what is true now.
 */
import { batch, computed, signal } from "@preact/signals";
import { get, keepTrying, patch, post, stream } from "../api.js";
import * as state from "../state.js";
import { formatCount } from "../ui.js";

/**
 * @typedef {import("@preact/signals").Signal<any>} AnySignal
 * @typedef {{type: string, [field: string]: any}} Part
 * @typedef {{index: number, role: string, parts: Part[], origin?: string, at?: number, stats?: Stats}} Message
 * @typedef {{cached?: number, new?: number, output?: number, first_token_s?: number, tokens_per_s?: number}} Stats
 * @typedef {{type: "text" | "thought" | "notice", text: AnySignal}} TextBlock
 * @typedef {{type: "call", id: string, call: AnySignal, line: AnySignal, result: AnySignal}} CallBlock
 * @typedef {{type: "media", part: Part}} MediaBlock
 * @typedef {TextBlock | CallBlock | MediaBlock} Block
 * @typedef {{key: string, kind: "user", index: number, message: Message}} UserRow
 * @typedef {{key: string, kind: "answer", index: number, blocks: Block[], stats: Stats[], live?: Live}} AnswerRow
 * @typedef {UserRow | AnswerRow} Row
 * @typedef {{index: number, blocks: import("@preact/signals").Signal<Block[]>, status: AnySignal, stats: AnySignal}} Live
 * @typedef {{id: string, kind: "consent" | "form", [field: string]: any}} Question
 * @typedef {{name: string, type: string, data: string}} Attachment
 * @typedef {{file: File, kind: "text" | "image" | "audio", url: string}} Attached
 * @typedef {{id: number, role: string, text: string}} Quote a message of the archive
 */

/** So long a message waits for the events of its chat; something between here and the server may hold them. */
const MOST_WAIT_MS = 10_000;

/** The models, modes and commands of the open chat, and what its model takes; null = not asked yet. */
export const options = signal(/** @type {any} */ (null));
/** @param {string | null} id */
export async function refreshOptions(id) {
  const found = await get(`v1/chats/options${id === null ? "" : `?chat=${encodeURIComponent(id)}`}`).catch(() => null);
  if (found) options.value = found;
}

/** What the turn does now, by the event that says so. */
const DOES = /** @type {Record<string, (event: any) => string>} */ ({
  started: () => "Reading",
  progress: ({ done, total }) => `Reading ${formatCount(done)} of ${formatCount(total)} tokens`,
  text: () => "Writing",
  thought: () => "Thinking",
  call: ({ name }) => `Calling ${name}`,
  called: ({ name }) => `Running ${name}`,
  question: () => "Waiting for your answer",
});
/** Quiet lines, by the event that they tell; "" = none. */
const NOTES = /** @type {Record<string, (event: any) => string>} */ ({
  missing_model: ({ model, instead }) => `${model} is not there any more: ${instead} answers`,
  loaded: ({ model, error }) => (error ? `${model} was not loaded: ${error}` : ""),
  evicted: ({ tokens }) => `${formatCount(tokens)} tokens left the window`,
  started: ({ model, instead_of }) =>
    instead_of?.length ? `${model} answers instead of ${instead_of.join(", ")}` : "",
});

/** Messages that are read at once. */
const PAGE = 200;
/** Characters after which a text is read out without waiting for its end. */
const LONGEST_SENTENCE = 1000;
/** @param {string} id */
export const pathOf = (id) => `v1/chats/${encodeURIComponent(id)}`;

/** @param {string} type @param {string} text @returns {TextBlock} */
const textBlock = (type, text) => ({ type: /** @type {any} */ (type), text: signal(text) });
/** @param {any} call @returns {CallBlock} */
const callBlock = (call) => ({ type: "call", id: call.id, call: signal(call), line: signal(""), result: signal(null) });

/** @param {Part} part @returns {Block | null} null: a result, which its call shows */
function blockOf(part) {
  if (part.type === "call") return callBlock(part);
  if (part.type === "result") return null;
  if (part.type === "text" || part.type === "thought" || part.type === "notice") return textBlock(part.type, part.text);
  return { type: "media", part };
}

/** The rows of messages: a question each, and all that answers it. @param {Message[]} messages @returns {Row[]} */
export function rowsOf(messages) {
  const rows = /** @type {Row[]} */ ([]);
  const calls = /** @type {Map<string, CallBlock>} */ (new Map());
  for (const message of messages) {
    if (message.role === "system") continue;
    const isResult = message.parts.length > 0 && message.parts.every((part) => part.type === "result");
    if (message.role === "user" && !isResult) {
      rows.push({ key: `q${message.index}`, kind: "user", index: message.index, message });
      continue;
    }
    let row = rows.at(-1);
    if (row?.kind !== "answer") {
      row = { key: `a${message.index}`, kind: "answer", index: message.index, blocks: [], stats: [] };
      rows.push(row);
    }
    for (const part of message.parts) {
      const block = blockOf(part);
      if (block) row.blocks.push(block);
      if (block?.type === "call") calls.set(block.id, block);
      const call = part.type === "result" ? calls.get(part.id) : undefined;
      if (call) call.result.value = part;
    }
    if (message.stats) row.stats.push(message.stats);
  }
  return rows;
}

const known = /** @type {Map<string, Chat>} */ (new Map());
let fresh = /** @type {Chat | null} */ (null);
let n_chats = 0;

/** The chat of an id; without one, the chat that is not begun yet. @param {string | null} id @returns {Chat} */
export function chatOf(id) {
  if (id === null) return (fresh ??= new Chat(null));
  const chat = known.get(id) ?? new Chat(id);
  known.set(id, chat);
  return chat;
}

export class Chat {
  /** @param {string | null} id */
  constructor(id) {
    this.id = signal(id);
    /** Stays, also when the id changes. */
    this.key = ++n_chats;
    /** What GET answers, without the messages; null = not read yet. */
    this.about = signal(/** @type {any} */ (id === null ? {} : null));
    this.messages = signal(/** @type {Message[]} */ ([]));
    this.live = signal(/** @type {Live | null} */ (null));
    this.questions = signal(/** @type {Question[]} */ ([]));
    /** The event of the model that is loaded now; null = none is. */
    this.loading = signal(/** @type {any} */ (null));
    /** Why the last turn failed, or why the chat cannot be read. */
    this.problem = signal("");
    /** Quiet lines, by the index of the answer in front of which they stand. */
    this.notes = signal(/** @type {Map<number, string[]>} */ (new Map()));
    /** The index of the question that is asked in other words; null = none is. */
    this.editing = signal(/** @type {number | null} */ (null));
    /** What goes with the next message: files, and what it brings back from the memory. */
    this.attached = signal(/** @type {Attached[]} */ ([]));
    this.quotes = signal(/** @type {Quote[]} */ ([]));
    /** The newest whole sentences, for screen readers. */
    this.spoken = signal("");
    this.isRunning = computed(() => this.live.value !== null);
    this.rows = computed(() => {
      const rows = rowsOf(this.messages.value);
      const live = this.live.value;
      if (!live) return rows;
      const last = rows.at(-1);
      if (last?.kind === "answer" && last.index >= live.index) rows[rows.length - 1] = { ...last, live };
      else rows.push({ key: `a${live.index + 1}`, kind: "answer", index: live.index + 1, blocks: [], stats: [], live });
      return rows;
    });
    this.unspoken = "";
    this.isReading = false;
    this.abort = /** @type {AbortController | null} */ (null);
    /** When the events are read, or it is time to do without. */
    this.opened = /** @type {Promise<any>} */ (Promise.resolve());
  }

  get path() {
    return pathOf(this.id.value ?? "");
  }
  /** What the model has got of the AGENTS.md of the server's folder, and why it has not got more. @returns {string[]} */
  get instructions() {
    const { given, left_out = [] } = this.about.value?.instructions ?? {};
    return given ? [`The model has read ${given}`, ...left_out] : left_out;
  }

  /** Reads the chat and its events until the function that comes back is called. */
  open() {
    this.abort = new AbortController();
    if (this.id.value !== null) this.#follow(this.abort.signal);
    const mine = this.abort;
    return () => (mine.abort(), this.abort === mine && (this.abort = null));
  }

  /** @param {AbortSignal} stop */
  #follow(stop) {
    let onOpen = () => {};
    this.opened = new Promise((go) => (setTimeout(go, MOST_WAIT_MS), (onOpen = () => go(null))));
    const onError = (/** @type {Error} */ error) => void (this.problem.value = error.message);
    return keepTrying({ signal: stop, first_ms: 300, most_ms: 8000, onError }, async (works) => {
      const about = await this.#load(stop);
      await stream(`${this.path}/events`, {
        signal: stop,
        lastId: about.running ? "" : String(about.last_event ?? ""),
        onOpen,
        onEvent: ({ type, data }) => {
          works();
          batch(() => this.#hear(type, data));
        },
      });
    });
  }

  /** @param {string} type @param {any} event */
  #hear(type, event) {
    const note = NOTES[type]?.(event);
    if (note) this.note(note);
    /** @type {any} */ (this)[`on_${type}`]?.(event);
    if (this.live.value && type in DOES) this.live.value.status.value = DOES[type](event);
  }

  /** @param {AbortSignal} [stop] */
  async #load(stop) {
    const { messages, questions, ...about } = await get(`${this.path}?limit=${PAGE}`, { signal: stop });
    batch(() => {
      this.#replace(messages[0]?.index ?? 0, messages);
      this.questions.value = questions ?? [];
      this.about.value = about;
      this.problem.value = "";
      this.loading.value = null;
      // Where a turn runs, its events are replayed from its beginning.
      if (!about.running) this.live.value = null;
    });
    return about;
  }

  /** Reads the page in front of the first message, and on until the message `index` is there. @param {number} [index] */
  async readEarlier(index = Infinity) {
    const first = () => this.messages.value[0]?.index ?? 0;
    if (this.isReading || first() === 0) return;
    this.isReading = true;
    try {
      do {
        const before = first();
        const page = await get(`${this.path}?before=${before}&limit=${PAGE}`);
        if (!page.messages.length || first() !== before) break;
        this.messages.value = [...page.messages, ...this.messages.value];
      } while (first() > index);
    } finally {
      this.isReading = false;
    }
  }

  /** The messages from `index` on are others. @param {number} index @param {Message[]} messages */
  #replace(index, messages) {
    this.messages.value = [...this.messages.value.filter((each) => each.index < index), ...messages];
  }

  // what a person does

  /** @param {string} action @param {{text?: string, at?: number, attachments?: Attachment[], quotes?: number[]}} [how] */
  async turn(action, how = {}) {
    await this.begin();
    this.problem.value = "";
    await post(`${this.path}/turn`, { action, ...how });
  }

  /** Makes the chat on the server, if it is not there yet, and reads its events: who does not is asked nothing. */
  async begin() {
    if (this.id.value !== null) return this.opened;
    const { model, system, title: _, ...later } = this.about.value;
    const made = await post("v1/chats", { ...(model && { model }), ...(system !== undefined && { system }) });
    fresh = null;
    known.set(made.id, this);
    this.id.value = made.id;
    if (Object.keys(later).length) await patch(pathOf(made.id), later);
    state.go("chat", made.id, { replace: true });
    if (this.abort) this.#follow(this.abort.signal);
    return this.opened;
  }

  /** @param {Record<string, unknown>} what of title, system, model, sampling, mode */
  async change(what) {
    const before = this.about.value;
    this.about.value = { ...before, ...what };
    if (this.id.value === null) return;
    try {
      const now = await patch(this.path, what);
      if (now?.model) this.about.value = { ...this.about.value, model: now.model };
      if ("model" in what) refreshOptions(this.id.value);
      if ("title" in what) state.refreshChats().catch(() => {});
    } catch (error) {
      this.about.value = before;
      state.tell(error);
    }
  }

  stop = () => this.id.value !== null && post(`${this.path}/stop`).catch(state.tell);

  /** @param {string} line */
  async command(line) {
    await this.begin();
    const { lines, changed } = await post(`${this.path}/command`, { line });
    for (const each of lines ?? []) this.note(each);
    if (changed) await this.#load();
  }

  /** @param {string} question @param {Record<string, unknown>} answer */
  async answer(question, answer) {
    await post(`${this.path}/questions/${encodeURIComponent(question)}`, answer);
    this.on_answered({ id: question });
  }

  /** @param {number} at @param {number} branch */
  async switchBranch(at, branch) {
    await post(`${this.path}/branch`, { at, branch });
    this.#replace(at, []);
    await this.#load();
  }

  /** A quiet line in front of what is written next. @param {string} text */
  note(text) {
    const at = this.live.value ? this.live.value.index + 1 : (this.messages.value.at(-1)?.index ?? -1) + 1;
    this.notes.value = new Map(this.notes.value).set(at, [...(this.notes.value.get(at) ?? []), text]);
  }

  // events of the server, by their type

  /** @param {any} event */
  on_turn({ index, messages = [] }) {
    this.#replace(index, messages);
    this.unspoken = "";
    this.notes.value = new Map([...this.notes.value].filter(([at]) => at <= index));
    this.live.value = { index, blocks: signal([]), status: signal("Waiting for the model"), stats: signal([]) };
    this.problem.value = "";
  }
  /** @param {any} event */
  on_started({ recalled }) {
    if (recalled) this.note(`Came back: ${recalled.words?.join(", ") || "something said earlier"}`);
  }
  on_loading = (/** @type {any} */ event) => void (this.loading.value = event);
  on_loaded = () => void (this.loading.value = null);
  /** @param {any} event */
  on_text({ text }) {
    this.#append("text", text);
    this.unspoken += text;
    const whole = /^[^]*[.!?:\n](?=\s)/.exec(this.unspoken)?.[0] ?? "";
    if (!whole && this.unspoken.length < LONGEST_SENTENCE) return;
    this.spoken.value = whole || this.unspoken;
    this.unspoken = this.unspoken.slice(this.spoken.value.length);
  }
  on_thought = (/** @type {any} */ event) => this.#append("thought", event.text);
  /** @param {"text" | "thought"} type @param {string} text */
  #append(type, text) {
    const last = this.live.value?.blocks.value.at(-1);
    if (last?.type === type) last.text.value += text;
    else this.#push(textBlock(type, text));
  }
  /** @param {Part} part that only one provider has */
  on_part(part) {
    const block = blockOf(part);
    if (block) this.#push(block);
    else this.on_returned(part);
  }
  /** @param {Block} block */
  #push(block) {
    if (this.live.value) this.live.value.blocks.value = [...this.live.value.blocks.value, block];
  }
  /** @param {string} id @returns {Partial<CallBlock>} nothing, where the call is not of this turn */
  #call(id) {
    const found = this.live.value?.blocks.value.findLast((block) => block.type === "call" && block.id === id);
    return found?.type === "call" ? found : {};
  }
  on_call = (/** @type {any} */ event) => this.#push(callBlock({ ...event, arguments: "" }));
  /** @param {any} event */
  on_arguments({ id, text }) {
    const { call } = this.#call(id);
    if (call) call.value = { ...call.value, arguments: call.value.arguments + text };
  }
  /** @param {any} event */
  on_called(event) {
    const { call } = this.#call(event.id);
    if (call) call.value = event;
    else this.#push(callBlock(event));
  }
  /** @param {any} event */
  on_call_progress(event) {
    const { line } = this.#call(event.id);
    if (line) line.value = event.line;
  }
  /** @param {any} event */
  on_returned(event) {
    const { result } = this.#call(event.id);
    if (result) result.value = event;
  }
  /** @param {Question} question */
  on_question(question) {
    this.questions.value = [...this.questions.value.filter(({ id }) => id !== question.id), question];
  }
  /** @param {{id: string}} event */
  on_answered({ id }) {
    this.questions.value = this.questions.value.filter((each) => each.id !== id);
  }
  /** @param {any} event */
  on_finished({ usage, first_token_s, tokens_per_s }) {
    const live = this.live.value;
    if (live) live.stats.value = [...live.stats.value, { ...usage, first_token_s, tokens_per_s }];
  }
  /** @param {any} event */
  on_end({ reason, error, messages, can_resume, index }) {
    this.#replace(index ?? messages[0]?.index ?? this.live.value?.index ?? 0, messages);
    this.live.value = null;
    this.questions.value = [];
    this.about.value = { ...this.about.value, can_resume };
    this.problem.value = error?.message ?? "";
    this.spoken.value = reason === "stopped" ? "Stopped." : error ? "" : this.unspoken || "The answer is complete.";
    this.unspoken = "";
    state.refreshChats().catch(() => {});
    this.#refreshAbout();
  }
  /** What a turn changes besides its messages: the title, branches, the use. */
  async #refreshAbout() {
    const found = await get(`${this.path}?limit=1`).catch(() => null);
    if (found) this.about.value = found;
    refreshOptions(this.id.value);
  }
  /** @param {any} event */
  on_saved({ id, title }) {
    const before = this.id.value;
    known.set(id, this);
    this.id.value = id;
    this.about.value = { ...this.about.value, id, title };
    if (before !== id && state.chatId.value === before) state.go("chat", id, { replace: true });
    state.refreshChats().catch(() => {});
  }
  /** @param {{what: string[]}} event */
  on_changed({ what }) {
    if (what.includes("deleted")) this.problem.value = "This chat has been deleted.";
    else if (what.includes("messages")) this.#load().catch(state.tell);
    else
      this.#refreshAbout().then(
        () => what.includes("instructions") && this.instructions.forEach((line) => this.note(line)),
      );
    state.refreshChats().catch(() => {});
  }
}
