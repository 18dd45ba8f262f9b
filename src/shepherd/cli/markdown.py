"""Markdown for a terminal: where a text may be cut for good, and what one block looks like.

A block (paragraph, list, fence, table) is finished when a whole line after it starts another one: no later text can
change it. That holds for all of Markdown but reference definitions and raw HTML, which models hardly write and which
are shown as plain text here. A line break in the source stays a line break: models mean it.
Not here: the terminal (`screen.py`) and the stream (`render.py`). Pure but for rich, which is heavy: import it late.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import ClassVar

from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich import markdown as rich_markdown
from rich.console import COLOR_SYSTEMS, Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.syntax import Syntax
from rich.text import Text

_PARSER = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"]).disable("reference")

_LINE = re.compile(r".*\n|.+")
"""`splitlines` knows line ends that Markdown does not."""


def cut(text: str) -> tuple[list[str], str]:
    """The finished blocks at the start of `text`, and the rest, which may still change.

    Parses the whole of `text`: hand in only what was not finished before.
    """
    end = text.rfind("\n") + 1  # the last line is not complete, so it finishes nothing
    *finished, rest = blocks(text[:end]) or [""]
    return finished, rest + text[end:]


def blocks(text: str) -> list[str]:
    """All blocks of a text that is complete."""
    lines = _LINE.findall(text)
    return ["".join(lines[start:stop]) for start, stop in pairwise([*_starts(text), len(lines)])]


def _starts(text: str) -> list[int]:
    """Line numbers at which the top-level blocks begin."""
    tokens = _PARSER.parse(text)
    return [token.map[0] for token in tokens if token.level == 0 and token.nesting >= 0 and token.map is not None]


def draw(block: str, console: Console) -> list[str]:
    """One block as terminal lines with their escape codes, no wider than the console."""
    return to_lines(_Block(block), console)


def to_lines(renderable: rich_markdown.Markdown | Text, console: Console) -> list[str]:
    """What the console would print, line by line, without blank lines at the ends or spaces at the right."""
    rendered = console.render_lines(renderable, console.options.update(height=None), pad=False)
    lines = [_one_line(segments, console) for segments in rendered]
    while lines and not lines[0]:
        lines.pop(0)
    while lines and not lines[-1]:
        lines.pop()
    return lines


def _one_line(segments: list[Segment], console: Console) -> str:
    while segments and not segments[-1].text.rstrip(" ") and not _is_visible_space(segments[-1]):
        segments = segments[:-1]
    if segments and not _is_visible_space(segments[-1]):
        last = segments[-1]
        segments = [*segments[:-1], Segment(last.text.rstrip(" "), last.style)]
    if console.no_color:
        segments = list(Segment.remove_color(segments))
    system = COLOR_SYSTEMS[console.color_system] if console.color_system else None
    return "".join(
        style.render(text, color_system=system) if style and system else text for text, style, _control in segments
    )


def _is_visible_space(segment: Segment) -> bool:
    style = segment.style
    return style is not None and (style.bgcolor is not None or bool(style.reverse) or bool(style.underline))


class _Heading(rich_markdown.Heading):
    """A heading at the left margin."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        text = self.text.copy()
        text.stylize("bold underline" if self.tag in {"h1", "h2"} else "bold")
        yield text


class _Code(rich_markdown.CodeBlock):
    """Code without a frame, so that it can be copied; its fence shows where it ends."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        name = self.lexer_name if self.lexer_name != "text" else ""
        yield Text(f"```{name}", style="dim")
        yield Syntax(
            str(self.text).rstrip("\n"),
            self.lexer_name,
            theme="ansi_dark",
            background_color="default",
            word_wrap=True,
        )
        yield Text("```", style="dim")


class _Block(rich_markdown.Markdown):
    elements: ClassVar[dict[str, type[rich_markdown.MarkdownElement]]] = {
        **rich_markdown.Markdown.elements,
        "heading_open": _Heading,
        "fence": _Code,
        "code_block": _Code,
    }

    def __init__(self, markup: str) -> None:
        super().__init__("", hyperlinks=False)  # a link's target is shown, not hidden behind its words
        self.parsed = _PARSER.parse(markup)
        _keep_line_breaks(self.parsed)


def _keep_line_breaks(tokens: list[Token]) -> None:
    for token in tokens:
        if token.type == "softbreak":
            token.type, token.tag = "hardbreak", "br"
        if token.children:
            _keep_line_breaks(token.children)
