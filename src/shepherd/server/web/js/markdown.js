/**
 * Markdown of models, as it arrives, to elements.
 *
 *     ├─ settled: parsed once, never again ─┤├─ open: the last block, parsed at each frame ─┤
 *
 * A block is settled when another one has begun in a line that is complete: Markdown decides about blocks line by
 * line, so nothing that follows can change it. The elements are those of the whole text, however it was cut.
 *
 * Two walls stand between a text and the page: the renderer writes only what it knows, and DOMPurify lets through only
 * what is in the lists below. Nothing is fetched: images of other addresses become links.
 */
import DOMPurify from "dompurify";
import { html } from "htm/preact";
import { Lexer, Marked } from "marked";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { copyText } from "./ui.js";

const LINK = /^(https?:\/\/|mailto:)/i;
const OWN_IMAGE = /^(data:image\/(png|jpeg|gif|webp|avif);base64,|blob:)/i;
/** Tags that a text may bring itself, without attributes; others are shown as text. */
const WRITTEN = new Set("b br code del em hr i ins kbd mark s small strong sub sup u".split(" "));
const TAGS = [...WRITTEN, ..."a blockquote h1 h2 h3 h4 h5 h6 img input li ol p pre span".split(" ")];
TAGS.push(..."table tbody td th thead tr ul".split(" "));
const ATTRIBUTES = "align alt checked data-language data-math disabled href src start title type".split(" ");
/** A formula in a line: `$$…$$`, `\(…\)` or `\[…\]`, without an empty line in it. */
const INLINE_MATH = /^(?:\$\$((?:(?!\n\s*\n)[^])+?)\$\$|\\\(((?:(?!\n\s*\n)[^])+?)\\\)|\\\[((?:(?!\n\s*\n)[^])+?)\\\])/;
/** Characters that are drawn at once. */
const MOST_AT_ONCE = 50_000;
/** Characters of a block of code from which it is not coloured. */
const LONGEST_COLOURED = 100_000;
/** Names that models use for languages; the first of each group is its file in `vendor/highlight/languages`. */
const NAMES = `bash sh zsh shellscript, c h, cpp c++ cc cxx hpp, csharp cs c#, css, diff patch,
  dockerfile docker containerfile, go golang, ini toml conf, java, javascript js jsx mjs cjs, json jsonc json5 jsonl,
  kotlin kt, markdown md, php, python py python3, ruby rb, rust rs, shell console shellsession, sql sqlite postgresql,
  swift, typescript ts tsx, xml html svg xhtml vue, yaml yml`;
const LANGUAGES = new Map(
  NAMES.split(/,\s*/).flatMap((group) => {
    const names = group.split(" ");
    return names.map((name) => /** @type {const} */ ([name, names[0]]));
  }),
);

/** @param {string} text */
const escape = (text) => text.replace(/[&<>"']/g, (sign) => `&#${sign.charCodeAt(0)};`);

/** @param {string} tex @param {boolean} isBlock */
const mathHtml = (tex, isBlock) => `<span data-math="${isBlock ? "block" : "inline"}">${escape(tex.trim())}</span>`;

const marked = new Marked({
  gfm: true,
  renderer: {
    html: ({ text, block }) => {
      const tags = [...text.matchAll(/<\/?([a-z][\w-]*)[^>]*>/gi)].map(([, tag]) => tag.toLowerCase());
      const isKnown = tags.length > 0 && tags.every((tag) => WRITTEN.has(tag)) && !/<[!?]/.test(text);
      const bare = text.replace(/<(\/?)([a-z]+)[^>]*>/gi, "<$1$2>");
      const shown = isKnown ? bare : escape(text.trim());
      return block ? `<p>${shown}</p>\n` : shown;
    },
    code: ({ text, lang }) =>
      `<pre data-language="${escape((lang ?? "").trim().split(/\s/)[0].slice(0, 40))}"><code>${escape(text)}\n</code></pre>`,
    image: ({ href, text }) => {
      const alt = escape(text);
      if (OWN_IMAGE.test(href)) return `<img src="${escape(href)}" alt="${alt}">`;
      return LINK.test(href) ? `<a href="${escape(href)}">Image: ${alt || escape(href)}</a>` : alt;
    },
  },
  extensions: [
    {
      name: "math",
      level: "block",
      // From `$$` or `\[` at the start of a line to its end, or to the first empty line: then it is a plain paragraph.
      tokenizer(source) {
        const found = /^ {0,3}(\$\$|\\\[)((?:(?!\$\$|\\\]|\n[ \t]*\n)[^])*)(\$\$|\\\])?([^\n]*)(\n|$)/.exec(source);
        if (!found || (found[3] && found[4].trim())) return undefined;
        const [raw, , tex, end] = found;
        return end ? { type: "math", raw, tex } : { type: "math", raw, tokens: this.lexer.inline(raw.trim()) };
      },
      renderer(token) {
        return `<p>${token.tokens ? this.parser.parseInline(token.tokens) : mathHtml(token.tex, true)}</p>\n`;
      },
    },
    {
      name: "math_inline",
      level: "inline",
      start: (source) => source.match(/\$\$|\\[([]/)?.index,
      tokenizer(source) {
        const found = INLINE_MATH.exec(source);
        if (!found) return undefined;
        const [raw, display, inline, bracketed] = found;
        return { type: "math_inline", raw, tex: display ?? inline ?? bracketed, isBlock: inline === undefined };
      },
      renderer: (token) => mathHtml(token.tex, token.isBlock),
    },
  ],
});

const purify = DOMPurify(window);
purify.addHook("afterSanitizeAttributes", (node) => {
  if (node.nodeName === "A") {
    const address = node.getAttribute("href") ?? "";
    if (!LINK.test(address)) return node.removeAttribute("href");
    node.setAttribute("target", "_blank");
    node.setAttribute("rel", "noopener noreferrer nofollow");
    if (!node.hasAttribute("title")) node.setAttribute("title", address);
  }
  if (node.nodeName === "IMG" && !OWN_IMAGE.test(node.getAttribute("src") ?? "")) node.remove();
});

/** @param {string} text as HTML @param {string[]} tags @param {string[]} attributes @returns {DocumentFragment} */
const clean = (text, tags = TAGS, attributes = ATTRIBUTES) =>
  purify.sanitize(text, {
    ALLOWED_TAGS: tags,
    ALLOWED_ATTR: attributes,
    ALLOW_DATA_ATTR: false,
    ALLOW_ARIA_ATTR: false,
    RETURN_DOM_FRAGMENT: true,
  });

/** The elements of blocks. @param {import("marked").Token[]} tokens */
function toElements(tokens) {
  const fragment = document.createDocumentFragment();
  for (const token of tokens) fragment.append(clean(marked.parser([token]).trim())); // each alone: a tag may be left open
  for (const pre of fragment.querySelectorAll("pre")) frameCode(pre);
  for (const table of fragment.querySelectorAll("table")) {
    const frame = element("div", { class: "table", tabindex: "0", role: "group", "aria-label": "Table" });
    table.replaceWith(frame);
    frame.append(table);
  }
  for (const box of fragment.querySelectorAll("input")) box.setAttribute("aria-label", "Task");
  return fragment;
}

/** A head with the language and a button above the code. @param {HTMLElement} pre */
function frameCode(pre) {
  const language = pre.dataset.language ?? "";
  const copy = element("button", { type: "button", class: "button quiet small", "data-copy": "" }, "Copy");
  const head = element("div", { class: "code-head" }, element("span", {}, language || "text"), copy);
  const frame = element("div", { class: "code" }, head);
  put(pre, { tabindex: "0", role: "group", "aria-label": `Code${language && `, ${language}`}` });
  pre.replaceWith(frame);
  frame.append(pre);
}

/** @param {Element} of @param {Record<string, string>} attributes */
const put = (of, attributes) => Object.entries(attributes).forEach(([name, value]) => of.setAttribute(name, value));

/** @param {string} name @param {Record<string, string>} attributes @param {(Node | string)[]} children */
function element(name, attributes, ...children) {
  const made = document.createElement(name);
  put(made, attributes);
  made.append(...children);
  return made;
}

/** Colours code and sets formulas in a block that is settled. @param {Element} block */
function finish(block) {
  for (const pre of /** @type {NodeListOf<HTMLElement>} */ (block.querySelectorAll("pre"))) {
    const file = LANGUAGES.get((pre.dataset.language ?? "").toLowerCase());
    const code = pre.firstElementChild;
    if (file && code?.textContent && code.textContent.length <= LONGEST_COLOURED) colour(code, file).catch(() => {});
  }
  for (const formula of /** @type {NodeListOf<HTMLElement>} */ (block.querySelectorAll("[data-math]")))
    setFormula(formula).catch(() => {});
}

/** @param {Element} code @param {string} file */
async function colour(code, file) {
  const [{ default: highlighter }, { default: language }] = await Promise.all([
    import("highlight.js"),
    import(`highlight.js/${file}.min.js`),
  ]);
  if (!highlighter.getLanguage(file)) highlighter.registerLanguage(file, language);
  const { value } = highlighter.highlight(code.textContent ?? "", { language: file, ignoreIllegals: true });
  code.replaceChildren(clean(value, ["span"], ["class"]));
}

/** @param {HTMLElement} formula */
async function setFormula(formula) {
  const tex = formula.textContent ?? "";
  if (!document.getElementById("katex")) {
    const href = new URL("../vendor/katex/katex.min.css", import.meta.url).href;
    document.head.append(element("link", { id: "katex", rel: "stylesheet", href }));
  }
  const { default: katex } = await import("katex");
  const isBlock = formula.dataset.math === "block";
  const limits = { throwOnError: false, trust: false, strict: false, maxSize: 20, maxExpand: 500 };
  katex.render(tex, formula, { displayMode: isBlock, ...limits });
}

/** Makes the children of `old` behind `after` those of `fresh`, and leaves what is alike: a selection, the place of a
 * scroll bar. No node in front of `after` is looked at. @param {Node} old @param {Node} fresh @param {Node | null} [after] */
function morph(old, fresh, after = null) {
  let there = after ? after.nextSibling : old.firstChild;
  for (const node of [...fresh.childNodes]) {
    const next = there?.nextSibling ?? null;
    if (!there) old.appendChild(node);
    else if (there.nodeType === Node.TEXT_NODE && node.nodeType === Node.TEXT_NODE) there.nodeValue = node.nodeValue;
    else if (!there.isEqualNode(node)) {
      if (there.nodeType === Node.ELEMENT_NODE && there.cloneNode().isEqualNode(node.cloneNode())) morph(there, node);
      else old.replaceChild(node, there);
    }
    there = next;
  }
  for (let next; there; there = next) {
    next = there.nextSibling;
    old.removeChild(there);
  }
}

/** The elements of one text, in `box`. */
export class MarkdownStream {
  /** The text so far, as it was given. */
  text = "";
  /** What is behind the settled blocks. */
  rest = "";
  /** The last element of `box` that stays. @type {Element | null} */
  last = null;
  /** Addresses that `[name]: address` gave. @type {Record<string, any>} */
  links = Object.create(null);
  isDone = false;

  /** @param {HTMLElement} box empty */
  constructor(box) {
    this.box = box;
    box.addEventListener("click", (event) => {
      const button = /** @type {Element} */ (event.target).closest("[data-copy]");
      const code = button?.closest(".code")?.querySelector("code")?.textContent;
      if (code) copyText(code.replace(/\n$/, ""), "Code copied");
    });
  }

  #restart() {
    this.box.replaceChildren();
    Object.assign(this, { text: "", rest: "", last: null, links: Object.create(null), isDone: false });
  }

  /** @param {string} text the whole text so far @param {boolean} isDone no more will come */
  update(text, isDone) {
    if (text === this.text && isDone === this.isDone) return;
    if (this.isDone || !text.startsWith(this.text)) this.#restart();
    this.rest += text.slice(this.text.length).replaceAll("\r", "");
    Object.assign(this, { text, isDone });
    this.#settle(isDone ? this.rest : this.rest.slice(0, this.rest.lastIndexOf("\n") + 1));
    if (!isDone) {
      const open = toElements(this.#lex(this.rest));
      morph(this.box, open, this.last);
    } else if (this.last && Object.keys(this.links).length) {
      // A name may have got its address behind the text that uses it.
      const links = this.links;
      this.#restart();
      Object.assign(this, { text, isDone, links });
      this.#settle(text.replaceAll("\r", ""));
    }
  }

  /** Settles the blocks of complete lines that nothing can change any more. @param {string} lines */
  #settle(lines) {
    const blocks = this.#lex(lines);
    let n = blocks.length;
    if (!this.isDone) n = blocks.findLastIndex((block) => block.type !== "space");
    while (!this.isDone && n > 0 && blocks[n - 1].type === "space") n--;
    n = Math.max(0, n);
    if (!n && !this.isDone) return;
    const settled = blocks.slice(0, n);
    const source = settled.map((block) => block.raw).join("");
    this.rest = this.rest.slice(source.length);
    if (source.includes("]:")) this.#lex(source, this.links);
    const before = this.last;
    morph(this.box, toElements(settled), before);
    this.last = this.box.lastElementChild;
    for (let each = before?.nextElementSibling ?? this.box.firstElementChild; each; each = each.nextElementSibling)
      finish(each);
  }

  /** @param {string} text @param {Record<string, any>} [links] gets the addresses that the text has */
  #lex(text, links = Object.assign(Object.create(null), this.links)) {
    const lexer = new Lexer(marked.defaults);
    lexer.tokens.links = links;
    return [...lexer.lex(text)];
  }
}

/** Heights of long texts that were drawn whole, so that a list that shows one again does not jump. @type {Map<string, number>} */
const heights = new Map();

/**
 * A text of a model. While it grows it is parsed at most once a frame, and less often where that takes long; a long one
 * is drawn in steps, so that the page hears its person in between.
 * @param {{text: string, isDone?: boolean}} props
 */
export function Markdown({ text, isDone = true }) {
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const stream = useRef(/** @type {MarkdownStream | null} */ (null));
  const latest = useRef({ text, isDone, at: 0, due_ms: 0 });
  Object.assign(latest.current, { text, isDone });
  useEffect(() => () => cancelAnimationFrame(latest.current.at), []);
  useLayoutEffect(() => {
    const state = latest.current;
    const element = /** @type {HTMLElement} */ (box.current);
    stream.current ??= new MarkdownStream(element);
    const drawing = stream.current;
    function draw() {
      const start_ms = performance.now();
      const { text } = state;
      const end = drawing.text.length + MOST_AT_ONCE;
      const isWhole = end >= text.length;
      const isEarly = !state.isDone && start_ms < state.due_ms;
      if (!isEarly) drawing.update(isWhole ? text : text.slice(0, end), isWhole && state.isDone);
      state.at = isEarly || !isWhole ? requestAnimationFrame(draw) : 0;
      const took_ms = performance.now() - start_ms;
      if (!isEarly) state.due_ms = start_ms + took_ms * (isWhole ? 4 : 2);
      if (text.length <= MOST_AT_ONCE) return;
      element.style.minHeight = isWhole ? "" : `${heights.get(text) ?? 0}px`;
      if (isWhole && state.isDone) heights.set(text, element.offsetHeight);
    }
    if (isDone) (cancelAnimationFrame(state.at), draw());
    else if (!state.at) state.at = requestAnimationFrame(draw);
  }, [text, isDone]);
  return html`<div class="markdown" ref=${box}></div>`;
}
