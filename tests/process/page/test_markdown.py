"""Markdown of the page (`server/web/js/markdown.js`) in a browser: harmless elements, however a text is cut."""

from __future__ import annotations

import mimetypes
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import pytest_asyncio

import shepherd.server

pytestmark = pytest.mark.asyncio(loop_scope="session")

WEB = Path(shepherd.server.__file__).parent / "web"

_PAGE = """<!doctype html><script type="importmap">{map}</script><div id="box" class="markdown"></div>
<script type="module">
  import {{ MarkdownStream }} from "/web/js/markdown.js";
  window.MarkdownStream = MarkdownStream;
  window.ran = [];
  window.alert = (what) => window.ran.push(what);
  window.whole = (text) => {{
    const box = document.createElement("div");
    new MarkdownStream(box).update(text, true);
    return box.innerHTML;
  }};
  window.cut = (text, size) => {{
    const box = document.createElement("div");
    const stream = new MarkdownStream(box);
    for (let end = size; end < text.length; end += size) stream.update(text.slice(0, end), false);
    stream.update(text, false);
    stream.update(text, true);
    return box.innerHTML;
  }};
  window.show = (text) => {{
    const box = document.getElementById("box");
    box.replaceChildren();
    new MarkdownStream(box).update(text, true);
  }};
  window.ready = true;
</script>"""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def page(browser: Any) -> AsyncIterator[Any]:
    """A page with the renderer; the files come from the folder, and every other address is written down in `asked`."""
    import_map = re.search(r'<script type="importmap">(.*?)</script>', (WEB / "index.html").read_text(), re.DOTALL)
    assert import_map is not None
    page = await browser.new_page()
    page.asked = []

    async def answer(route: Any) -> None:
        url = urlsplit(route.request.url)
        path = WEB / url.path.removeprefix("/web/")
        if url.netloc != "page.test":
            page.asked.append(route.request.url)
            await route.abort()
        elif url.path == "/":
            await route.fulfill(body=_PAGE.format(map=import_map[1]), content_type="text/html")
        else:
            kind = "text/javascript" if path.suffix in (".js", ".mjs") else mimetypes.guess_type(path.name)[0]
            await route.fulfill(body=path.read_bytes(), content_type=kind or "application/octet-stream")

    await page.route("**/*", answer)
    await page.goto("http://page.test/")
    await page.wait_for_function("window.ready")
    yield page
    await page.close()


TEXTS = {
    "headings": "# One\n\ntext\n\nTwo\n===\nthree\n---\nfour\n\n---\n\n***\n",
    "lists": "1. a\n\n2. b\n3. c\n   - d\n\n     e\n   - f\n\n* g\n+ h\n\n"
    "- [x] done\n- [ ] open\n\n2\n\n-\n- i\nlazy\n\n\nend",
    "a list, then a number": "- a\n\n1\n\n1. x\n\n2",
    "code": "text\n```python\ndef f():\n\n    return '`'\n```\nmore\n\n"
    "    indented\n\n    twice\n\n~~~\nopen\n\n- no list\n",
    "quotes": "> a\n> b\nlazy\n\n> c\n> > d\n> - e\n>\n> ```\n> code\n> ```\nend\n",
    "tables": "a | b\n--- | :-:\n1 | `x|y`\n2 | **z**\n\ntext\nc | d\n-|-\n3 | 4\ntext again\n",
    "html": "a <b>bold</b> <i>it\n\n<div>\n- x\n\n</div>\n\n<!-- note\n\n- y -->\n\n"
    "x<br>y List<String> <script>1</script>\n",
    "mathematics": "$$\na\n- b\n= c\n$$\n\n$$ open\n- item\n\n"
    "\\[ x \\] and \\( y \\) and $5 and $6\n\n\\[\nz\n\n\\]\n\n$$x$$ $$y$$",
    "links": "[a] and [b][c] <https://x.test> https://y.test/(z) [r](v1/x) "
    "![i](https://z.test/i.png)\n\n[a]: https://a.test\n\n"
    '> [c]: https://c.test\n> "title"\n\n[a] again\n',
    "inline": "**bold *both* ** _x_ ~~gone~~ `co``de` \\* &amp; &lt; a\\\nb  \n"
    "c **open `tick\n\nsnake_case_name 2*3*4\n",
    "line ends": "a\r\nb\r\n\r\n- c\r\n- d\r\n\r\n```\r\ne\r\n```\r\nf",
    "emoji and wide letters": "# 日本語 🐑\n\n- 🧑‍🌾 **羊**\n- é\n\n| 羊 | 🐑 |\n|-|-|\n| é | ü |\n",
}


@pytest.mark.grid(0.2)
@pytest.mark.parametrize("name", TEXTS)
async def test_elements_are_those_of_the_whole_text_however_it_is_cut(page: Any, name: str) -> None:
    text = TEXTS[name]
    different = await page.evaluate(
        "(text) => [1, 2, 3, 5, 8, 13, 34].filter((size) => cut(text, size) !== whole(text))",
        text,
    )
    assert different == []


async def test_every_prefix_of_a_text_shows_what_the_prefix_alone_would(page: Any) -> None:
    """The open block is the true picture at each moment; only addresses that come later may change what is above."""
    text = "\n".join(text for name, text in TEXTS.items() if name != "links")
    different = await page.evaluate(
        """(text) => {
          const box = document.createElement("div");
          const stream = new MarkdownStream(box);
          const found = [];
          for (let end = 0; end <= text.length; end += 7) {
            stream.update(text.slice(0, end), false);
            if (box.innerHTML !== whole(text.slice(0, end))) found.push(text.slice(Math.max(0, end - 60), end));
          }
          return found.slice(0, 3);
        }""",
        text,
    )
    assert different == []


HARMFUL = [
    *(
        f"<{tag}>"
        for tag in (
            "script>alert(1)</script",
            "img src=x onerror=alert(1)",
            "svg onload=alert(1)",
            "svg><script>alert(1)</script></svg",
            "iframe srcdoc='<script>parent.alert(1)</script>'",
            "body onload=alert(1)",
            "details open ontoggle=alert(1)",
            "b onmouseover=alert(1) onclick=alert(1)>b</b",
            "math><mtext><table><mglyph><style><img src=x onerror=alert(1)></style></mglyph></table></mtext></math",
            "noscript><p title='</noscript><img src=x onerror=alert(1)>'",
            "form action='javascript:alert(1)'><button>b</button></form",
            "a href='javascript:alert(1)'>a</a",
            "base href='https://evil.test/'",
            "meta http-equiv=refresh content='0;url=https://evil.test/'",
            "link rel=stylesheet href='https://evil.test/a.css'",
            "style>@import 'https://evil.test/b.css';</style",
            "video src='https://evil.test/v' autoplay",
            "object data='https://evil.test/o'",
            "b style='background:url(https://evil.test/c)'>b</b",
            "sub id=app class=app>s</sub",
        )
    ),
    "[a](javascript:alert(1))",
    "[a](JaVaScRiPt&#58;alert(1))",
    "[a](data:text/html,<script>alert(1)</script>)",
    '[a](vbscript:alert(1) "t")',
    "[a](//evil.test/x)",
    "![a](https://evil.test/d.png)",
    "![a](//evil.test/d.png)",
    "![a](data:image/svg+xml,<svg/onload=alert(1)>)",
    '![" onerror="alert(1)](data:image/png;base64,AA)',
    '[a](https://x.test "" onmouseover="alert(1)")',
    "<javascript:alert(1)>",
    "[a]\n\n[a]: javascript:alert(1)",
    '```"><img/src=x/onerror=alert(1)>\ncode\n```',
    "```html\n<img src=x onerror=alert(1)>\n```",
    "```python\nx = '<img src=x onerror=alert(1)>'\n```",
    "\\(\\href{javascript:alert(1)}{x}\\)",
    "$$\\includegraphics{https://evil.test/e.png}$$",
    "$$<img src=x onerror=alert(1)>$$",
    "$$\\htmlStyle{background:url(https://evil.test/f)}{x}$$",
    "|<img src=x onerror=alert(1)>|b|\n|-|-|\n|c|d|",
    "# <img src=x onerror=alert(1)>",
]
"""Texts that would run a script or send a request if they became elements as they are."""


async def test_nothing_that_an_answer_brings_runs_or_is_fetched(page: Any) -> None:
    page.asked.clear()
    await page.evaluate("(text) => show(text)", "\n\n".join(HARMFUL))
    for text in HARMFUL:  # alone, and cut
        await page.evaluate(
            "(text) => { document.getElementById('box').insertAdjacentHTML('beforeend', cut(text, 3)); }", text
        )
    await page.wait_for_selector("#box .katex")  # the formulas of the first showing are set
    await page.wait_for_selector("#box .hljs-string")
    found = await page.evaluate(
        """() => [...document.querySelectorAll("#box *")].flatMap((each) =>
             [...each.attributes].filter(({ name, value }) =>
               /^on|^srcdoc$|^formaction$/.test(name) || /^\\s*(javascript|vbscript|data:text)/i.test(value)
               || (name === "id") || (/^(src|href)$/.test(name) && !/^(https?:|mailto:|data:image|#)/.test(value))
             ).map(({ name, value }) => `${each.tagName} ${name}=${value}`))"""
    )
    assert (found, await page.evaluate("window.ran"), page.asked) == ([], [], [])


async def test_links_open_elsewhere_and_a_remote_image_is_a_link(page: Any) -> None:
    await page.evaluate(
        "(text) => show(text)",
        "[a](https://a.test) <m@b.test> [c](v1/chats) ![d](https://d.test/p.png) ![e](data:image/png;base64,AA==)",
    )
    links = await page.eval_on_selector_all(
        "#box a", "all => all.map((a) => [a.textContent, a.getAttribute('href'), a.target, a.rel])"
    )
    kept = ["_blank", "noopener noreferrer nofollow"]
    assert links == [
        ["a", "https://a.test", *kept],
        ["m@b.test", "mailto:m@b.test", *kept],
        ["c", None, "", ""],
        ["Image: d", "https://d.test/p.png", *kept],
    ]
    assert await page.eval_on_selector_all("#box img", "all => all.map((image) => image.alt)") == ["e"]


async def test_tags_that_are_no_formatting_are_shown_as_they_are_written(page: Any) -> None:
    await page.evaluate("(text) => show(text)", "`x` List<String> a<br>b <tool_call> <details>\n\n<!-- c -->")
    assert (await page.inner_text("#box")).split("\n") == [
        "x List<String> a",
        "b <tool_call> <details>",
        "",
        "<!-- c -->",
    ]


async def test_a_settled_block_is_never_made_again(page: Any) -> None:
    """A long answer costs what is new: its first block is the same element to the end."""
    same = await page.evaluate(
        """() => {
          const box = document.createElement("div");
          const stream = new MarkdownStream(box);
          let text = "first\\n\\n";
          let longest = 0;
          stream.update(text + "second\\n\\n", false);
          const first = box.firstChild;
          for (let n = 0; n < 400; n++) {
            text += `paragraph ${n}\\n\\n`;
            stream.update(text.replace("first", "first\\n\\nsecond"), false);
            longest = Math.max(longest, stream.rest.length);
          }
          return [first === box.firstChild, box.childElementCount, longest < 40];
        }"""
    )
    assert same == [True, 402, True]


async def test_code_is_copied_and_coloured_and_names_its_language(page: Any) -> None:
    await page.evaluate("(text) => show(text)", "```py\nreturn 1\n```\n\n```\nplain\n```")
    await page.wait_for_selector("#box .hljs-keyword")
    assert await page.eval_on_selector_all("#box .code-head span", "all => all.map((each) => each.textContent)") == [
        "py",
        "text",
    ]
    assert await page.eval_on_selector_all("#box pre", "all => all.map((pre) => pre.getAttribute('aria-label'))") == [
        "Code, py",
        "Code",
    ]
    await page.evaluate("(document.execCommand = () => (window.copied = document.activeElement.value))")
    await page.evaluate("document.querySelector('[data-copy]').click()")
    await page.wait_for_function("window.copied === 'return 1'")
