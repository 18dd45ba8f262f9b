/** The frame of the page: sidebar, panel, living window, and what lies over them. */
import { signal } from "@preact/signals";
import { html } from "htm/preact";
import { render } from "preact";
import { useEffect, useState } from "preact/hooks";
import { get, needsKey, online, setKey } from "./api.js";
import * as state from "./state.js";
import { Button, Dialog, Field, Icon, Toasts } from "./ui.js";

/** Of each panel: its module, what it exports, its name. */
const PANELS = {
  chat: { load: () => import("./chat/view.js").then((module) => module.ChatView), title: "Chat" },
  models: { load: () => import("./models.js").then((module) => module.ModelsView), title: "Models" },
  memory: { load: () => import("./memory.js").then((module) => module.MemoryView), title: "Memory" },
  usage: { load: () => import("./usage.js").then((module) => module.UsageView), title: "Usage" },
};

/** A part of the page that is loaded when it is needed. @param {{load: () => Promise<any>, [prop: string]: any}} props */
function Part({ load, ...props }) {
  const [found, setFound] = useState(/** @type {{view?: any, error?: string}} */ ({}));
  useEffect(() => {
    load().then(
      (view) => setFound({ view }),
      (error) => setFound({ error: String(error.message ?? error) }),
    );
  }, [load]);
  if (found.error) return html`<p class="notice" role="alert">This part of the page did not load: ${found.error}</p>`;
  return found.view ? html`<${found.view} ...${props} />` : null;
}

const loadChats = () => import("./chat/sidebar.js").then((module) => module.ChatList);
const loadWindow = () => import("./window/view.js").then((module) => module.WindowView);

function Sidebar() {
  const { panel } = state.route.value;
  const themes = /** @type {const} */ (["system", "light", "dark"]);
  const next = themes[(themes.indexOf(state.theme.value) + 1) % 3];
  const icon = { system: "system", light: "sun", dark: "moon" }[state.theme.value];
  return html`<nav class="sidebar" aria-label="Chats and panels" data-open=${state.drawerOpen.value}>
    <header>
      <a class="brand" href="#/chat"><img src="web/icon.svg" alt="" width="22" height="22" />Shepherd</a>
      <${Button} label="Search and switch (Ctrl K)" icon="search" kind="quiet" short onClick=${() => (switching.value = true)} />
    </header>
    <a class="button new" href="#/chat"><${Icon} name="plus" /><span>New chat</span></a>
    <div class="chats"><${Part} load=${loadChats} /></div>
    <footer>
      ${["models", "memory", "usage"].map(
        (name) =>
          html`<a href=${`#/${name}`} aria-current=${panel === name ? "page" : undefined}>
            <${Icon} name=${name} />${PANELS[/** @type {keyof typeof PANELS} */ (name)].title}
          </a>`,
      )}
      <div class="row">
        <${Button} label=${`Colours: ${state.theme.value}. Change to ${next}`} icon=${icon} kind="quiet" short
          onClick=${() => (state.theme.value = next)} />
        <${Button} label="Keyboard shortcuts" icon="help" kind="quiet" short onClick=${() => (helping.value = true)} />
      </div>
    </footer>
  </nav>`;
}

const switching = signal(false);
const helping = signal(false);

function KeyDialog() {
  const [text, setText] = useState("");
  const [busy, setBusy] = useState(false);
  /** @param {Event} event */
  const give = (event) => {
    event.preventDefault();
    setBusy(true);
    if (text.trim()) setKey(text.trim());
  };
  return html`<${Dialog} title="API key">
    <form onSubmit=${give}>
      <p>${needsKey.value} It is kept in this tab until you close it, and sent to this server only.</p>
      <${Field} label="API key" type="password" autocomplete="off" autofocus value=${text}
        onInput=${(/** @type {any} */ event) => setText(event.target.value)} />
      <div class="actions"><${Button} label="Continue" kind="primary" type="submit" disabled=${busy || !text.trim()} /></div>
    </form>
  <//>`;
}

function Banners() {
  return html`<div class="banners" role="status">
    ${!online.value && html`<div class="banner warning"><${Icon} name="warning" />The server cannot be reached. Trying again…</div>`}
    ${
      state.isOld.value &&
      html`<div class="banner">
      <${Icon} name="info" />The server is a newer one than this page.
      <${Button} label="Reload" onClick=${() => location.reload()} />
    </div>`
    }
  </div>`;
}

function App() {
  const { panel } = state.route.value;
  const { load, title } = PANELS[/** @type {keyof typeof PANELS} */ (panel)] ?? PANELS.chat;
  useEffect(() => {
    state.drawerOpen.value = false;
    document.title = panel === "chat" ? "Shepherd" : `${title} · Shepherd`;
  }, [panel, state.route.value]);
  const isChat = load === PANELS.chat.load;
  return html`<a class="skip" href="#main" onClick=${skip}>Skip to the content</a>
    <div class="app" data-window=${isChat ? (state.windowOpen.value ? "open" : "closed") : "none"}>
      <${Sidebar} />
      ${state.drawerOpen.value && html`<div class="scrim" onClick=${() => (state.drawerOpen.value = false)} />`}
      <div class="top">
        <${Button} label="Chats and panels" icon="menu" kind="quiet" short class="button quiet short drawer-button"
          onClick=${() => (state.drawerOpen.value = true)} />
        <${Banners} />
      </div>
      <main id="main" tabindex="-1"><${Part} load=${load} key=${title} id=${state.route.value.id} /></main>
      ${isChat && html`<aside class="window" aria-label="Living window"><${Part} load=${loadWindow} chat=${state.chatId.value} /></aside>`}
    </div>
    <${Toasts} />
    ${needsKey.value !== null && html`<${KeyDialog} />`}`;
}

/** @param {Event} event */
function skip(event) {
  event.preventDefault();
  document.getElementById("main")?.focus();
}

async function start() {
  render(html`<${App} />`, /** @type {HTMLElement} */ (document.getElementById("app")));
  await Promise.all([state.refreshServer().catch(state.tell), state.refreshChats().catch(() => {})]);
  if (state.server.value.ready && !state.server.value.models.length && !location.hash) state.go("models");
}

/** While the server cannot be reached, look for it. */
setInterval(() => online.value || get("v1/health").catch(() => {}), 2000);

start();
