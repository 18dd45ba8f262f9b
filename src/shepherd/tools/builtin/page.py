"""A web page as plain text, with headings, lists, links and tables as in Markdown.

Runs in a child process (`process/isolated.py`): hostile pages can make the parser slow.
"""

from __future__ import annotations

import contextlib
import re
from html.parser import HTMLParser
from urllib.parse import urljoin

SKIPPED = frozenset({
    "script", "style", "noscript", "template", "svg", "math", "head", "iframe", "object", "canvas", "select",
})  # fmt: skip
APART = frozenset({
    "h1", "h2", "h3", "h4", "h5", "h6", "p", "pre", "table", "ul", "ol", "dl", "blockquote",
})  # fmt: skip
"""Blocks with an empty line around them."""
BLOCKS = APART | {
    "address", "article", "aside", "body", "br", "dd", "div", "dt", "figcaption", "figure", "footer", "form", "header",
    "hr", "html", "li", "main", "nav", "section", "tbody", "tfoot", "thead", "tr",
}  # fmt: skip
BEFORE = {f"h{level}": "#" * level + " " for level in range(1, 7)} | {"li": "- ", "td": "| ", "th": "| "}


def as_text(page: dict[str, str]) -> str:
    """`page`: `html`, and the `url` that its links start from."""
    reader = Reader(page["url"])
    reader.feed(page["html"])
    reader.close()
    return re.sub(r"\n{3,}", "\n\n", re.sub(r"[ \t]+\n", "\n", "".join(reader.parts))).strip()


class Reader(HTMLParser):
    def __init__(self, url: str) -> None:
        super().__init__(convert_charrefs=True)
        self._url = url
        self.parts: list[str] = []
        self._skipped: list[str] = []
        """The open tags whose text is left out."""
        self._n_pre = 0
        self._links: list[str] = []
        self._title: list[str] | None = None
        """Of an open `title`."""

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag == "title":
            self._title = []
        if tag in SKIPPED or self._skipped:
            if tag in SKIPPED:
                self._skipped.append(tag)
            return
        self._break(tag)
        values = dict(attributes)
        if tag == "pre":
            self._n_pre += 1
        elif tag == "a":
            self._links.append(values.get("href") or "")
            self.parts += ["["] if self._links[-1] else []
        elif tag == "img" and values.get("alt"):
            self.parts.append(f"[image: {values['alt']}]")
        if tag in BEFORE:
            self.parts.append(BEFORE[tag])

    def handle_endtag(self, tag: str) -> None:
        if tag == "title" and self._title is not None:
            self.parts.append("".join(self._title).strip() + "\n\n")
            self._title = None
        if self._skipped:
            if tag in self._skipped:
                del self._skipped[self._skipped.index(tag) :]
            return
        if tag == "pre":
            self._n_pre = max(0, self._n_pre - 1)
        elif tag == "a" and self._links and (link := self._links.pop()):
            with contextlib.suppress(ValueError):
                link = urljoin(self._url, link)
            self.parts.append(f"]({link})")
        elif tag in {"td", "th"}:
            self.parts.append(" ")
        self._break(tag)

    def handle_data(self, text: str) -> None:
        if self._title is not None:
            self._title.append(text)
        elif self._n_pre and not self._skipped:
            self.parts.append(text)
        elif not self._skipped:
            text = re.sub(r"\s+", " ", text)
            at_start = not self.parts or self.parts[-1].endswith(("\n", " "))
            self.parts.append(text.lstrip(" ") if at_start else text)

    def _break(self, tag: str) -> None:
        if tag in APART:
            self.parts.append("\n\n")
        elif tag in BLOCKS and self.parts and not self.parts[-1].endswith("\n"):
            self.parts.append("\n")
