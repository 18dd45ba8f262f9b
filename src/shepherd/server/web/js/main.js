/** The frame of the page: sidebar, panel, living window, what lies over them, and the keys that work everywhere. */
import { html } from "htm/preact";
import { render } from "preact";
import { useEffect, useState } from "preact/hooks";
import { needsKey, online, setKey } from "./api.js";
import { Problem, useLoaded } from "./loaded.js";
import * as state from "./state.js";
import { Switcher } from "./switcher.js";
import { Button, Dialog, Field, Form, Icon, Toasts } from "./ui.js";

/** Of each panel: its module, what it exports, its name, its icon. */
const PANELS = {
  chat: { load: () => import("./chat/view.js").then((module) => module.ChatView), title: "Chat", icon: "chat" },
  models: { load: () => import("./models.js").then((module) => module.ModelsView), title: "Models", icon: "models" },
  memory: { load: () => import("./memory.js").then((module) => module.MemoryView), title: "Memory", icon: "memory" },
  usage: { load: () => import("./usage.js").then((module) => module.UsageView), title: "Usage", icon: "usage" },
};
const OTHERS = Object.entries(PANELS).filter(([name]) => name !== "chat");
const loadChats = () => import("./chat/sidebar.js").then((module) => module.ChatList);
const loadWindow = () => import("./window/view.js").then((module) => module.WindowView);
const THEMES = /** @type {const} */ ({ system: "As the system", light: "Light", dark: "Dark" });

/** A part of the page that is loaded when it is needed. @param {{load: () => Promise<any>, [prop: string]: any}} props */
function Part({ load, ...props }) {
  const { value: view, error } = useLoaded(load, [load]);
  if (view) return html`<${view} ...${props} />`;
  return html`<${Problem} error=${error && `This part of the page did not load: ${error}`} />`;
}

function Sidebar() {
  const { panel } = state.route.value;
  return html`<nav class="sidebar" aria-label="Chats and panels" data-open=${state.drawerOpen.value}>
    <header>
      <a class="brand" href="#/chat"><img src="web/icon.svg" alt="" width="22" height="22" />Shepherd</a>
    </header>
    <a class="button new" href="#/chat"><${Icon} name="plus" /><span>New chat</span></a>
    <${Button} label="Search all chats" icon="search" kind="quiet find" title="Ctrl K" onClick=${search} />
    <div class="chats"><${Part} load=${loadChats} /></div>
    <footer>
      ${OTHERS.map(
        ([name, { title, icon }]) =>
          html`<a key=${name} href=${`#/${name}`} aria-current=${panel === name ? "page" : undefined}>
            <${Icon} name=${icon} />${title}
          </a>`,
      )}
      <div class="row">
        <${Button} label=${`Colours: ${THEMES[state.theme.value].toLowerCase()}`} kind="quiet" short
          icon=${{ system: "system", light: "sun", dark: "moon" }[state.theme.value]} onClick=${nextTheme} />
        <${Button} label="Keyboard shortcuts" icon="help" kind="quiet" short onClick=${help} />
      </div>
    </footer>
  </nav>`;
}

function nextTheme() {
  const names = /** @type {(keyof typeof THEMES)[]} */ (Object.keys(THEMES));
  state.theme.value = names[(names.indexOf(state.theme.value) + 1) % names.length];
}

function KeyDialog() {
  const [text, setText] = useState("");
  return html`<${Dialog} title="API key" onClose=${null}>
    <${Form} onSubmit=${() => text.trim() && setKey(text.trim())}>
      <p>${needsKey.value} It is kept in this tab until you close it, and sent to this server only.</p>
      <${Field} label="API key" type="password" autocomplete="off" autofocus value=${text} onText=${setText} />
      <div class="actions"><${Button} label="Continue" kind="primary" type="submit" disabled=${!text.trim()} /></div>
    <//>
  <//>`;
}

const search = () => (state.dialog.value = html`<${Switcher} />`);
const help = () => (state.dialog.value = html`<${Help} />`);
const Help = () =>
  html`<${Dialog} title="Keyboard shortcuts">
    <dl class="keys">
      ${state.commands.value.map(
        ({ id, label, keys }) =>
          keys &&
          html`<div key=${id}>
            <dt>${label}</dt>
            <dd>${keys.split(" ").map((key) => html`<kbd key=${key}>${key}</kbd> `)}</dd>
          </div>`,
      )}
    </dl>
  <//>`;

function Banners() {
  const { status, detail } = state.server.value;
  let trouble = status === "loading" ? "The model is loading…" : `The server cannot answer: ${detail}`;
  if (!status || state.isReady.value) trouble = "";
  if (!online.value) trouble = "The server cannot be reached. Trying again…";
  return html`<div class="top" role="status">
    ${trouble && html`<div class="banner warning"><${Icon} name="warning" />${trouble}</div>`}
    ${
      state.isOld.value &&
      html`<div class="banner">
        <${Icon} name="info" /><span class="grow">The server is a newer one than this page.</span>
        <${Button} label="Reload" onClick=${() => location.reload()} />
      </div>`
    }
  </div>`;
}

function App() {
  const { panel, id } = state.route.value;
  const { load, title } = PANELS[/** @type {keyof typeof PANELS} */ (panel)] ?? PANELS.chat;
  const isChat = load === PANELS.chat.load;
  useEffect(() => {
    state.drawerOpen.value = false;
    if (!isChat) document.title = `${title} · Shepherd`;
    else if (!id) document.title = "Shepherd";
  }, [panel, id]);
  return html`<${Button} label="Skip to the content" kind="skip" onClick=${() => document.getElementById("main")?.focus()} />
    <div class="app" data-window=${isChat ? (state.windowOpen.value ? "open" : "closed") : "none"}>
      <${Sidebar} />
      ${state.drawerOpen.value && html`<div class="scrim" onClick=${() => (state.drawerOpen.value = false)} />`}
      <${Banners} />
      <${Button} label="Chats and panels" icon="menu" kind="quiet drawer" short aria-expanded=${String(state.drawerOpen.value)}
        onClick=${() => (state.drawerOpen.value = true)} />
      <main id="main" tabindex="-1"><${Part} load=${load} key=${title} id=${id} /></main>
      ${isChat && html`<aside class="window" aria-label="Living window"><${Part} load=${loadWindow} id=${id} /></aside>`}
    </div>
    <${Toasts} />
    ${state.dialog.value} ${needsKey.value !== null && html`<${KeyDialog} />`}`;
}

state.addCommands([
  { id: "switch", label: "Search and switch", icon: "search", keys: "Ctrl K", run: search },
  { id: "new", label: "New chat", icon: "plus", keys: "Ctrl Shift O", run: () => state.go("chat") },
  { id: "window", label: "Open or close the living window", icon: "window", keys: "Ctrl J", run: state.toggleWindow },
  ...OTHERS.map(([id, { title, icon }]) => ({ id, label: title, icon, run: () => state.go(id) })),
  { id: "theme", label: "Change the colours", icon: "moon", run: nextTheme },
  { id: "help", label: "Keyboard shortcuts", icon: "help", keys: "?", run: help },
]);

addEventListener("keydown", (event) => {
  if (event.key === "Escape" && state.drawerOpen.value) return (state.drawerOpen.value = false);
  const typing = event.target instanceof Element && event.target.matches("input, textarea, select, [contenteditable]");
  const held = (event.ctrlKey || event.metaKey ? "Ctrl " : "") + (event.shiftKey && event.key !== "?" ? "Shift " : "");
  const pressed = held + (event.key.length === 1 ? event.key.toUpperCase() : event.key);
  const isKey = !typing || held.startsWith("Ctrl") || pressed === "Escape";
  const isFree = isKey && !document.querySelector("dialog[open], .menu:popover-open");
  const command = isFree && state.commands.value.find((each) => each.keys === pressed);
  if (!command || event.altKey || event.defaultPrevented) return;
  event.preventDefault();
  command.run();
});

/** Whether there is no model, or this is the first visit and none was chosen yet. */
async function needsModel() {
  if (!state.server.value.models.length) return true;
  if (localStorage.getItem("shepherd.visited")) return false;
  localStorage.setItem("shepherd.visited", "yes");
  return (await import("./models.js")).isUnchosen().catch(() => false);
}

/** Asks the server what it has, at the start and whenever it was away or is not ready. */
async function keepLooking() {
  for (let isFirst = true; ; await new Promise((resolve) => setTimeout(resolve, 1500))) {
    if (!isFirst && online.value && state.isReady.value) continue;
    await state.refreshServer().catch(state.tell);
    if (!online.value || !state.isReady.value) continue;
    if (isFirst && !location.hash && (await needsModel()) && !location.hash)
      state.go("models", null, { replace: true });
    isFirst = false;
  }
}

render(html`<${App} />`, /** @type {HTMLElement} */ (document.getElementById("app")));
keepLooking();
// The other panels, so that they are there when the server is not.
for (const { load } of Object.values(PANELS)) load().catch(() => {});
