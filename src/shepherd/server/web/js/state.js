/** What all parts of the page share, as signals, and the functions that change it. */
import { computed, effect, signal } from "@preact/signals";
import { get, serverVersion } from "./api.js";

export { key, needsKey, online, serverVersion } from "./api.js";

/** @typedef {{panel: string, id: string | null}} Route */
/** @typedef {{id: string, title: string, model?: string, changed: number, n_messages: number, running?: boolean, error?: string,
 *   first?: string, session?: string | null}} Chat */

/** The version of the server that sent this page. */
export const pageVersion = document.documentElement.dataset.version ?? "";
/** The server is another one than that which sent this page. */
export const isOld = computed(() => serverVersion.value !== "" && serverVersion.value !== pageVersion);

/** `#/chat/ID`, `#/chat`, `#/models`, … */
export const route = signal(routeOf(location.hash));
addEventListener("hashchange", () => {
  route.value = routeOf(location.hash);
  closeDialog();
});

/** @param {string} hash @returns {Route} */
function routeOf(hash) {
  const [panel = "", ...id] = hash.replace(/^#\/?/, "").split("/");
  try {
    return { panel: panel || "chat", id: id.length ? decodeURIComponent(id.join("/")) : null };
  } catch {
    return { panel: "chat", id: null };
  }
}

/** @param {string} panel @param {string | null} [id] @param {{replace?: boolean}} [how] */
export function go(panel, id = null, { replace = false } = {}) {
  const hash = `#/${panel}${id ? `/${encodeURIComponent(id)}` : ""}`;
  if (replace) {
    history.replaceState(null, "", hash);
    route.value = routeOf(hash);
  } else location.hash = hash;
}

/** The open chat; null = none, or a new one. */
export const chatId = computed(() => (route.value.panel === "chat" ? route.value.id : null));

/** The message that the open chat should show: a result of the search. */
export const target = signal(/** @type {{chat: string, at: number} | null} */ (null));

/** What lies over the page, a `Dialog`; null = nothing. */
export const dialog = signal(/** @type {any} */ (null));
export const closeDialog = () => (dialog.value = null);

/** What the server has. `status`: of its health, "" = not known yet; `active`: the model that answers where none is named. */
export const server = signal({ status: "", detail: "", active: "", models: /** @type {string[]} */ ([]) });

export const isReady = computed(() => ["ok", "degraded"].includes(server.value.status));

export async function refreshServer() {
  const health = await get("v1/health").catch((error) => error.body);
  if (!health) return;
  const models = health.backend_connected ? (await get("v1/models")).data : [];
  const names = models.map((/** @type {{id: string}} */ model) => model.id);
  const { status, detail = "", model } = health;
  server.value = { status, detail, active: model ?? names[0] ?? "", models: names };
}

/** The conversations, the newest first; null = not asked yet. */
export const chats = signal(/** @type {Chat[] | null} */ (null));
/** Where the next page of chats begins; "" = there is none. */
export const nextChats = signal("");

export const refreshChats = () => readChats(`limit=${Math.max(100, chats.value?.length ?? 0)}`);
export const moreChats = () => readChats(`limit=200&cursor=${encodeURIComponent(nextChats.value)}`, chats.value ?? []);
/** @param {string} query @param {Chat[]} before */
async function readChats(query, before = []) {
  const { chats: page, next } = await get(`v1/chats?${query}`);
  chats.value = [...before, ...page];
  nextChats.value = next ?? "";
}

/** @typedef {{id: number, text: string, kind: "info" | "error"}} Toast */
export const toasts = signal(/** @type {Toast[]} */ ([]));
let n_toasts = 0;

/** @param {string} text @param {Toast["kind"]} [kind] */
export function toast(text, kind = "info") {
  const id = ++n_toasts;
  toasts.value = [...toasts.value.slice(-3), { id, text, kind }];
  setTimeout(() => dismiss(id), kind === "error" ? 9000 : 4000);
}
/** @param {unknown} error */
export const sentence = (error) => (error instanceof Error ? error.message : String(error));
/** Tells an error to the person. @param {unknown} error */
export const tell = (error) => toast(sentence(error), "error");
/** @param {number} id */
export const dismiss = (id) => (toasts.value = toasts.value.filter((each) => each.id !== id));

/** @template {string} T @param {string} name @param {T} initial a choice that this browser keeps */
function kept(name, initial) {
  const value = signal(/** @type {T} */ (localStorage.getItem(`shepherd.${name}`) ?? initial));
  effect(() => localStorage.setItem(`shepherd.${name}`, value.value));
  return value;
}
/** "system", "light" or "dark". */
export const theme = kept("theme", /** @type {"system" | "light" | "dark"} */ ("system"));
effect(() => {
  if (theme.value === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme.value;
});
const windowChoice = kept("window", /** @type {"open" | "closed"} */ ("open"));
const isNarrow = matchMedia("(max-width: 900px)");
/** The living window is open: beside the chat, or as a sheet where there is no room beside it. */
export const windowOpen = signal(windowChoice.value === "open" && !isNarrow.matches);
isNarrow.addEventListener("change", () => (windowOpen.value = windowChoice.value === "open" && !isNarrow.matches));
export function toggleWindow() {
  windowOpen.value = !windowOpen.value;
  if (!isNarrow.matches) windowChoice.value = windowOpen.value ? "open" : "closed";
}
/** The sidebar is shown as a drawer (under 700 px). */
export const drawerOpen = signal(false);

/** @typedef {{id: string, label: string, hint?: string, icon?: string, keys?: string, run: () => void}} Command */
/** What the switcher (Ctrl-K) and the list of shortcuts offer; parts of the page add theirs. */
export const commands = signal(/** @type {Command[]} */ ([]));
/** @param {Command[]} added @returns {() => void} takes them out again */
export function addCommands(added) {
  commands.value = [...commands.value, ...added];
  return () => void (commands.value = commands.value.filter((each) => !added.includes(each)));
}
