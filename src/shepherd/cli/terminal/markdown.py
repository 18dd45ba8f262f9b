"""Markdown for a terminal: where a text can be cut into finished blocks, and how one block looks.

A block (paragraph, list, fence, table) is finished when a whole line after it starts another one: no later text can
change it. That holds for all of Markdown except reference definitions and raw HTML, which models rarely write; they are
plain text here. A line break in the source stays a line break, as models intend. Code is long, and most of its lines
are finished long before its end: see `OpenFence`. Pure. Import it late: rich is heavy.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import dropwhile, pairwise
from operator import not_
from typing import Any, ClassVar

from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich import markdown as rich_markdown
from rich.console import COLOR_SYSTEMS, Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.syntax import Syntax
from rich.text import Text

from shepherd.core.dataclasses import dataclass

_PARSER = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"]).disable("reference")

_LINE = re.compile(r".*\n|.+")
"""Not `splitlines`, which knows line ends that Markdown does not."""


@dataclass(frozen=True, slots=True)
class Block:
    """Lines of Markdown that are drawn together."""

    text: str
    goes_on: bool = False
    """It is an item of the list before it. Each item of a bullet list is a block, so that a long list is written while
    it grows; items of a numbered list depend on each other."""


def cut(text: str) -> tuple[list[Block], Block]:
    """The finished blocks at the start of `text`, all of which is parsed, and the rest, which may still change."""
    end = text.rfind("\n") + 1  # the last line is not complete, so it finishes nothing
    *finished, rest = blocks(text[:end]) or [Block("")]
    return finished, Block(rest.text + text[end:], rest.goes_on)


def blocks(text: str) -> list[Block]:
    lines = _LINE.findall(text)
    starts = [*_starts(text), (len(lines), False)]
    return [Block("".join(lines[start:stop]), goes_on) for (start, goes_on), (stop, _) in pairwise(starts)]


def _starts(text: str) -> Iterator[tuple[int, bool]]:
    """Line numbers at which blocks begin, and whether they continue the list before."""
    last = -1
    for token in _PARSER.parse(text):
        if token.map is None or token.nesting < 0 or token.map[0] == last:
            continue
        is_item = token.level == 1 and token.type == "list_item_open" and token.markup in {"-", "*", "+"}
        if token.level == 0 or is_item:
            last = token.map[0]
            yield last, is_item


# -- a text on its way ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Piece:
    """Lines for the terminal, with their escape codes."""

    lines: list[str]
    goes_on: bool = False
    """They belong to the block before them: no empty line between."""


class PlainFlow:
    """Plain text in one style: a line is finished when another one follows. With a limit only the first rows are
    finished, and of the others the newest are live, until their number takes their place."""

    LIVE = 3
    """Rows of the folded part that are shown while it is written."""

    def __init__(self, console: Console, style: str, most: int | None = None, hint: str = "") -> None:
        """`most`: rows that stay on the screen; None = all. `hint`: how to see the others."""
        self._console = console
        self._style = style
        self._most = most
        self._hint = hint
        self.was_folded = False
        """Whether the last text, which has ended, was folded."""
        self._clear()

    def _clear(self) -> None:
        self._pending = ""
        self._has_begun = False
        self._n_rows = 0
        self._hidden: list[str] = []
        """Finished rows behind the limit."""
        self.text = ""
        """The whole text so far."""

    def feed(self, text: str) -> None:
        self._pending += text
        self.text += text if self._most is not None else ""

    def picture(self) -> tuple[list[Piece], list[Piece]]:
        """The pieces that are finished since the last call, and the live ones."""
        finished = self._take(self._pending.rfind("\n"))
        rows = self._rows(self._pending)
        if self._most is not None and self._n_rows + len(rows) > self._most:
            n_hidden = len(self._hidden) + len(rows) - max(0, self._most - self._n_rows)
            shown = [*self._hidden[-self.LIVE :], *rows][-self.LIVE :]
            rows = [*(self._counted(n_hidden - len(shown)) if n_hidden > len(shown) else []), *shown]
        return finished, [Piece(rows, self._has_begun)] if rows else []

    def end(self) -> list[Piece]:
        """The live pieces as finished ones: the text is complete."""
        finished = self._take(len(self._pending))
        if len(self._hidden) == 1:  # its number would take the same room
            finished.append(Piece(self._hidden, self._has_begun))
        self.was_folded = len(self._hidden) > 1
        if self.was_folded:
            finished.append(Piece(self._counted(len(self._hidden), self._hint), self._has_begun))
        self._clear()
        return finished

    def _take(self, end: int) -> list[Piece]:
        text = self._pending[: max(0, end)].rstrip()
        rows = self._rows(text)
        if not rows:
            return []
        self._pending = self._pending[len(text) + 1 :]
        room = len(rows) if self._most is None else max(0, self._most - self._n_rows)
        self._hidden += rows[room:]
        self._n_rows += len(rows[:room])
        pieces = [Piece(rows[:room], self._has_begun)] if rows[:room] else []
        self._has_begun = True
        return pieces

    def _rows(self, text: str) -> list[str]:
        lines = text.rstrip().split("\n")
        while not self._has_begun and len(lines) > 1 and not lines[0].strip():
            del lines[0]
        return (
            [row for line in lines for row in to_rows(Text(line, self._style), self._console)] if text.strip() else []
        )

    def _counted(self, n: int, hint: str = "") -> list[str]:
        return to_rows(Text(f"… {n:,} more lines{hint}", self._style), self._console)


class MarkdownFlow:
    """Markdown: a block is finished when another one follows; of code, nearly every line is."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._pending = ""
        """The text that may still change, without an open fence."""
        self._goes_on = False
        """It begins with another item of the last list."""
        self._fence: OpenFence | None = None

    def feed(self, text: str) -> None:
        self._pending += text

    def picture(self) -> tuple[list[Piece], list[Piece]]:
        finished = []
        while pieces := self._next():
            finished += pieces
        if self._fence is None:
            return finished, self._drawn(blocks(self._pending))
        written, live = self._fence.picture()
        return [*finished, written], [live]

    def end(self) -> list[Piece]:
        finished, live = self.picture()
        if self._fence is not None:
            live = [self._fence.end()]
        self._pending, self._goes_on, self._fence = "", False, None
        return finished + live

    def _next(self) -> list[Piece]:
        """The next finished blocks, removed from the text; empty without any."""
        if self._fence is None:
            done, rest = cut(self._pending)
            self._pending = rest.text
            if done:
                pieces = self._drawn(done)
                self._goes_on = rest.goes_on
                return pieces
            if (found := OpenFence.find(self._pending, self._console)) is None:
                return []
            self._fence, self._pending = found
        behind = self._fence.feed(self._pending)
        self._pending = behind or ""
        if behind is None:
            return []
        piece = self._fence.end()
        self._fence = None
        return [piece]

    def _drawn(self, these: list[Block]) -> list[Piece]:
        goes_on = [block.goes_on or (not at and self._goes_on) for at, block in enumerate(these)]
        return [Piece(draw(block.text, self._console), on) for block, on in zip(these, goes_on, strict=True)]


Flow = PlainFlow | MarkdownFlow
"""One text on its way to the screen."""


class OpenFence:
    """A code block at the top level that is still being written. Only its last lines are drawn again.

        ```python
        lines of an earlier window, which are forgotten
        lines that are finished           ┐ the window: the lexer's input. It begins where
        lines that are live               ┘ the live lines get the same colours without those before

    So every line costs the same, however many there are.
    """

    LIVE = 20
    """Lines whose colours may change with the following text, such as the end of a comment."""
    _WINDOW = 32
    """Written lines before the window moves; more where the colours would change."""
    _LARGEST_WINDOW = 320
    """At this size the window moves in any case."""

    def __init__(self, indent: int, mark: str, language: str, console: Console) -> None:
        self._console = console
        self._indent = re.compile(rf" {{0,{indent}}}")
        self._closing = re.compile(rf" {{0,3}}{re.escape(mark[0])}{{{len(mark)},}}[ \t]*")
        self._language = language
        self._lines: list[str] = []
        """Of the window, complete ones."""
        self._partial = ""
        self._n_written = 0
        """Of the window."""
        self._has_begun = False
        self._next_move = self._WINDOW

    @classmethod
    def find(cls, text: str, console: Console) -> tuple[OpenFence, str] | None:
        """The fence that the block at the start of `text` is, and what comes behind its first line; None if it is
        none, or its first line is not complete."""
        found = _OPENING.match(text)
        if found is None:
            return None
        return cls(len(found[1]), found[2], _language(found[3]), console), text[found.end() :]

    def feed(self, text: str) -> str | None:
        """Take the text that follows; what comes behind the end of the block, None before it."""
        lines = (self._partial + text).split("\n")
        for at, line in enumerate(lines[:-1]):
            if self._closing.fullmatch(line):
                self._partial = ""
                return "\n".join(lines[at + 1 :])
            self._lines.append(self._content(line))
        self._partial = lines[-1]
        return None

    def picture(self) -> tuple[Piece, Piece]:
        """The newly finished lines, and the live ones."""
        shown = [*self._lines, *([self._content(self._partial)] if self._partial else [])]
        n_final = _n_filled(self._lines[: max(self._n_written, len(self._lines) - self.LIVE)])
        n_final = max(self._n_written, n_final)
        coloured = _coloured(shown, self._language)
        live = self._rows(coloured[n_final:])
        if n_final == self._n_written:
            return Piece([], self._has_begun), Piece([*self._opening(), *live], self._has_begun)
        written = Piece([*self._opening(), *self._rows(coloured[self._n_written : n_final])], self._has_begun)
        self._has_begun = True
        self._n_written = n_final
        self._move_on(shown, live)
        return written, Piece(live, goes_on=True)

    def end(self) -> Piece:
        """The rest of the block, finished."""
        if self._partial and not self._closing.fullmatch(self._partial):
            self._lines.append(self._content(self._partial))
        shown = self._lines[: _n_filled(self._lines)]
        rest = _coloured(shown, self._language)[self._n_written :]
        return Piece([*self._opening(), *self._rows([*rest, _mark()])], self._has_begun)

    def _content(self, line: str) -> str:
        return self._indent.sub("", line.expandtabs(_TAB), count=1)

    def _opening(self) -> list[str]:
        return [] if self._has_begun else self._rows([_mark(self._language)])

    def _rows(self, lines: list[Text]) -> list[str]:
        return [row for line in lines for row in to_rows(line, self._console)]

    def _move_on(self, shown: list[str], live: list[str]) -> None:
        """Let the window begin at the live lines, if they look the same then."""
        n_written = self._n_written
        if n_written < self._next_move:
            return
        alone = self._rows(_coloured(shown[n_written:], self._language))
        if alone == live or n_written >= self._LARGEST_WINDOW:
            del self._lines[:n_written]
            self._n_written, self._next_move = 0, self._WINDOW
        else:
            self._next_move = n_written + n_written // 2


_OPENING = re.compile(r"( {0,3})(`{3,}(?=[^`\n]*\n)|~{3,})(.*)\n")


def _n_filled(lines: list[str]) -> int:
    """How many lines there are without the empty ones at the end: those are not shown."""
    return next((n for n in range(len(lines), 0, -1) if lines[n - 1]), 0)


# -- what it looks like -----------------------------------------------------------------------------------------------


def draw(block: str, console: Console) -> list[str]:
    """One block as terminal lines with their escape codes, no wider than the console."""
    return to_lines(_Block(block), console)


def draw_page(text: str, console: Console) -> list[str]:
    """A whole text, whose paragraphs are filled: its line breaks are those of an editor."""
    return to_lines(_Block(text, keeps_breaks=False), console)


def to_lines(renderable: rich_markdown.Markdown | Text, console: Console) -> list[str]:
    """What the console would print, line by line, without blank lines at the ends or spaces at the right."""
    lines = [*dropwhile(not_, to_rows(renderable, console))]
    return lines[: _n_filled(lines)]


def to_rows(renderable: rich_markdown.Markdown | Text, console: Console) -> list[str]:
    """The same with its blank lines."""
    rendered = console.render_lines(renderable, console.options.update(height=None), pad=False)
    return [_one_row(segments, console) for segments in rendered]


def _one_row(segments: list[Segment], console: Console) -> str:
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


_THEME = Syntax.get_theme("ansi_dark")  # of the terminal's own colours, so that it suits light ones, too
_TAB = 4


def _coloured(lines: list[str], language: str) -> list[Text]:
    """The lines of a program in colours."""
    code = "".join(f"{line.expandtabs(_TAB)}\n" for line in lines)
    text = Text()
    if (lexer := _lexer(language)) is not None:
        text.append_tokens((piece, _THEME.get_style_for_token(kind)) for kind, piece in lexer.get_tokens(code))
    if text.plain != code:  # there is no lexer, or one that leaves something out
        text = Text(code)
    return [*text.split("\n")] if lines else []


@lru_cache(maxsize=32)
def _lexer(language: str) -> Any:
    """Of pygments, which has no types; None where the language is not known."""
    return Syntax("", language).lexer


def _language(info: str) -> str:
    """The first word behind a fence."""
    return info.strip().split(" ", maxsplit=1)[0] or "text"


def _mark(language: str = "text") -> Text:
    return Text(f"```{language if language != 'text' else ''}", style="dim")


class _Heading(rich_markdown.Heading):
    """A heading at the left margin."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        text = self.text.copy()
        text.stylize("bold underline" if self.tag in {"h1", "h2"} else "bold")
        yield text


class _Code(rich_markdown.CodeBlock):
    """Code without a frame, so that it can be copied; its fence shows where it ends."""

    @classmethod
    def create(cls, markdown: rich_markdown.Markdown, token: Token) -> _Code:
        return cls(_language(token.info), markdown.code_theme)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = str(self.text).split("\n")
        yield _mark(self.lexer_name)
        yield from _coloured(lines[: _n_filled(lines)], self.lexer_name)
        yield _mark()


class _Block(rich_markdown.Markdown):
    elements: ClassVar[dict[str, type[rich_markdown.MarkdownElement]]] = {
        **rich_markdown.Markdown.elements,
        "heading_open": _Heading,
        "fence": _Code,
        "code_block": _Code,
    }

    def __init__(self, markup: str, *, keeps_breaks: bool = True) -> None:
        super().__init__("", hyperlinks=False)  # a link's target is shown, not hidden behind its words
        self.parsed = _PARSER.parse(markup)
        _adapt(self.parsed, keeps_breaks)


def _adapt(tokens: list[Token], keeps_breaks: bool) -> None:
    """Keep line breaks, and show targets: of images, too, and of links that are their own words, once."""
    for token in tokens:
        if token.type == "softbreak" and keeps_breaks:
            token.type, token.tag = "hardbreak", "br"
        elif token.type == "image":
            words, target = token.content, str(token.attrs.get("src", ""))
            token.type, token.tag, token.children = "text", "", None
            token.content = f"{words} ({target})" if words else target
        if token.children:
            token.children = _without_echoes(token.children)
            _adapt(token.children, keeps_breaks)


def _without_echoes(tokens: list[Token]) -> list[Token]:
    kept: list[Token] = []
    for token in tokens:
        if token.type == "link_close" and len(kept) > 1 and kept[-2].type == "link_open":
            target = str(kept[-2].attrs.get("href", ""))
            if kept[-1].type == "text" and kept[-1].content in {target, target.removeprefix("mailto:")}:
                del kept[-2]
                continue
        kept.append(token)
    return kept
