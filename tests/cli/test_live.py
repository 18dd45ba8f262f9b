"""What a person sees of a stream: the same picture however it was cut, and nothing written twice."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from shepherd.cli import markdown
from shepherd.cli.answer import bar
from shepherd.cli.live import MarkdownAnswer
from shepherd.cli.screen import Screen
from shepherd.core import (
    CallDelta,
    CallEnded,
    CallStarted,
    Event,
    Evicted,
    Finished,
    Progress,
    ReasoningDelta,
    Started,
    TextDelta,
    ToolCall,
)

_CODE = re.compile(r"\x1b\[(\?)?([0-9;]*)([A-Za-z])|\x1b\]8;[^\x1b]*\x1b\\")


class Terminal:
    """A terminal small enough to trust: what a person sees after a program's output, scrollback included.

    Knows line feeds, wrapping at the last column, and the escape codes for colours, cursor up and erasing. Anything
    else in the output fails the test.
    """

    def __init__(self, width: int = 40, height: int = 10) -> None:
        self.width = width
        self.height = height
        self.rows: list[list[str]] = [[]]
        self.row = 0
        self.column = 0
        self.n_rewritten = 0
        """Lines erased so far: what flickers."""
        self.raw = ""
        """All that was written, codes included."""

    @property
    def top(self) -> int:
        """The first row that is on the screen; those before are scrollback and cannot be reached."""
        return max(0, len(self.rows) - self.height)

    def write(self, text: str) -> int:
        self.raw += text
        position = 0
        while position < len(text):
            character = text[position]
            if character == "\x1b":
                code = _CODE.match(text, position)
                assert code is not None, f"unknown escape code {text[position : position + 10]!r}"
                self._obey(code[2] or "", code[3] or "")
                position = code.end()
                continue
            position += 1
            if character == "\n":
                self._down()
                self.column = 0
            elif character == "\r":
                self.column = 0
            else:
                self._put(character)
        return len(text)

    def flush(self) -> None:
        pass

    def isatty(self) -> bool:
        return True

    @property
    def lines(self) -> list[str]:
        """Everything above the cursor, trailing spaces taken off."""
        return ["".join(row).rstrip() for row in self.rows[: self.row]]

    def _down(self) -> None:
        self.row += 1
        if self.row == len(self.rows):
            self.rows.append([])

    def _put(self, character: str) -> None:
        assert character >= " ", f"control character {character!r}"
        if self.column == self.width:
            self._down()
            self.column = 0
        row = self.rows[self.row]
        row.extend(" " * (self.column + 1 - len(row)))
        row[self.column] = character
        self.column += 1

    def _obey(self, number: str, name: str) -> None:
        match name:
            case "m" | "":
                pass
            case "A":
                self.row = max(self.top, self.row - int(number or 1))
            case "K" if number == "2":
                self.rows[self.row] = []
                self.n_rewritten += 1
            case "J" if not number:
                self.rows[self.row] = self.rows[self.row][: self.column]
                del self.rows[self.row + 1 :]
            case _:
                raise AssertionError(f"unknown escape code {number}{name}")


class Painter:
    """A markdown answer on such a terminal."""

    def __init__(self, width: int = 40, height: int = 12, *, frame_s: float = 1.0, show_thinking: bool = True) -> None:
        """`frame_s`: how far the clock goes on at every look."""
        self.terminal = Terminal(width, height)
        console = Console(
            file=self.terminal,  # type: ignore[arg-type]  # what a console needs of a file
            force_terminal=True,
            width=width,
            height=height,
            highlight=False,
            color_system="standard",
        )
        ticks = count()
        self.answer = MarkdownAnswer(Screen(console), show_thinking=show_thinking, clock=lambda: next(ticks) * frame_s)

    def show(self, *events: Event) -> list[str]:
        """Feed, and paint after every event."""
        for event in events:
            self.answer.feed(event)
            self.answer.tick()
        return self.terminal.lines

    def finish(self, *events: Event) -> list[str]:
        self.show(*events)
        self.answer.close()
        return self.terminal.lines


def cuts(text: str, sizes: Sequence[int]) -> list[str]:
    """`text` in pieces of these sizes, the last size repeated."""
    pieces, position = [], 0
    for size in (*sizes, *[sizes[-1] if sizes else 1] * len(text)):
        if position >= len(text):
            break
        pieces.append(text[position : position + size])
        position += size
    return pieces


def deltas(pieces: Iterable[str]) -> list[Event]:
    return [TextDelta(piece) for piece in pieces if piece]


def whole(text: str, width: int = 40) -> list[str]:
    """The picture of a text that comes at once."""
    return Painter(width, frame_s=0.0).finish(*deltas([text]))


SAMPLE = """\
# Heading

A paragraph with **bold**, *italic*, `code` and a [link](https://example.org), long enough to be wrapped.
A second line of it.

- one
- two
  - nested
- three

1. first

2. second

```python
def f(x):
    return x  # a comment that is longer than the screen is wide, so it wraps

f(1)
```

| a | b |
|---|---|
| 1 | 22 |

> quoted
> twice

Setext
======

    indented code

---

<b>not markup</b>, and [a]: http://reference
"""

MARKDOWN = st.text(alphabet=st.sampled_from(list("ab 1.-*#>`|=_~[]():\\<&\n\n\n\té日")), max_size=80) | st.lists(
    st.sampled_from([*SAMPLE.splitlines(keepends=True), "\n", "2. x\n", "* y\n", "   z\n", "---\n", "`" * 3 + "\n"]),
    max_size=12,
).map("".join)


@settings(max_examples=150, deadline=None)
@given(MARKDOWN, st.lists(st.integers(1, 9), max_size=12))
def test_however_markdown_is_cut_the_final_screen_is_that_of_the_whole(text: str, sizes: list[int]) -> None:
    assert Painter().finish(*deltas(cuts(text, sizes))) == whole(text)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 50])
@pytest.mark.parametrize("height", [4, 12, 100])
def test_a_screen_too_low_for_the_live_block_ends_with_the_same_picture(size: int, height: int) -> None:
    assert Painter(height=height).finish(*deltas(cuts(SAMPLE, [size]))) == whole(SAMPLE)


@settings(max_examples=150, deadline=None)
@given(MARKDOWN)
def test_cutting_into_blocks_loses_no_line(text: str) -> None:
    finished, rest = markdown.cut(text)
    assert ("".join(finished) + rest).split() == text.split()
    assert "".join(markdown.blocks(text)).split() == text.split()


def test_every_word_of_markdown_is_shown() -> None:
    shown = " ".join(whole(SAMPLE, width=100))
    for word in ("Heading", "bold", "italic", "code", "https://example.org", "nested", "second", "return x", "22"):
        assert word in shown
    for word in ("quoted", "Setext", "indented code", "<b>not markup</b>", "[a]: http://reference"):
        assert word in shown


def test_a_line_break_in_a_paragraph_stays_one() -> None:
    assert whole("roses\nare red\n") == ["roses", "are red"]


def test_finished_blocks_are_written_once() -> None:
    painter = Painter(height=50)
    painter.show(*deltas(cuts("one\n\ntwo\n\n", [1])))
    before = painter.terminal.lines[:1]
    painter.terminal.n_rewritten = 0
    painter.show(*deltas(cuts("three four five", [1])))
    assert painter.terminal.lines[:1] == before == ["one"]
    # One line is alive while "three four five" grows, the empty one and "two" are settled by its first characters.
    assert painter.terminal.n_rewritten <= len("three four five") + 3


def test_lines_that_do_not_change_are_not_written_again() -> None:
    painter = Painter(height=50)
    painter.show(*deltas(["- one\n- two\n- three\n"]))
    painter.terminal.n_rewritten = 0
    painter.show(*deltas(["- four\n"]))
    assert painter.terminal.n_rewritten == 1


def test_what_a_model_writes_cannot_steer_the_terminal() -> None:
    shown = Painter().finish(*deltas(["a\x1b[2Jb\x07\x9b", "1mc\r\nd"]))
    assert shown == ["a␛[2Jb␇\ufffd1mc", "d"]


def test_reasoning_calls_and_evictions_stand_apart_from_the_text() -> None:
    call = ToolCall("1", "read_file", '{"path": "a.txt", "n": 3}')
    shown = Painter(width=60).finish(
        Started("m"),
        Evicted(2, 100),
        ReasoningDelta("Hm, "),
        ReasoningDelta("let me see.\n"),
        TextDelta("I look.\n\n"),
        CallStarted("1", "read_file"),
        CallDelta(call.arguments),
        CallEnded(call),
        TextDelta("Done."),
        Finished("end"),
    )
    assert shown == [
        "[2 messages (100 tokens) left the context; the conversation",
        "goes on]",
        "",
        "Hm, let me see.",
        "",
        "I look.",
        "",
        '[Tool Call: read_file(path="a.txt", n=3)]',
        "",
        "Done.",
    ]


def test_what_leaves_in_the_middle_of_a_part_is_told_once_behind_it() -> None:
    events = (TextDelta("```\ncode\n"), Evicted(2, 9), TextDelta("more\n"), Evicted(1, 3), TextDelta("```\n\nText."))
    line = "[3 messages (12 tokens) left the context; the conversation goes on]"
    undisturbed = Painter(width=80).finish(*(event for event in events if isinstance(event, TextDelta)))
    assert Painter(width=80).finish(*events) == [*undisturbed, "", line]
    before_a_call = Painter(width=80).finish(
        TextDelta("a"), Evicted(3, 12), CallStarted("1", "f"), CallDelta("{}"), CallEnded(ToolCall("1", "f", "{}"))
    )
    assert before_a_call == ["a", "", line, "", "[Tool Call: f()]"]


def test_an_eviction_is_told_in_dim_letters() -> None:
    painter = Painter(width=80)
    painter.finish(Evicted(3, 12))
    assert "\x1b[2m[3 messages (12 tokens) left the context; the conversation goes on]\x1b[0m" in painter.terminal.raw


def test_hidden_thinking_shows_that_it_goes_on_and_then_nothing() -> None:
    painter = Painter(show_thinking=False)
    assert painter.show(ReasoningDelta("secret"), ReasoningDelta("secret")) == ["Thinking ... (2 tokens)"]
    assert painter.finish(TextDelta("Open.")) == ["Open."]


def test_a_long_prefill_shows_a_bar_that_goes_away() -> None:
    painter = Painter(width=80)
    assert painter.show(Started("m"), Progress(512, 1024)) == [f"Reading the prompt {bar(1, 2)} 512/1024 tokens"]
    assert painter.finish(TextDelta("Hello")) == ["Hello"]


def test_a_quick_prefill_shows_no_bar() -> None:
    painter = Painter(frame_s=0.001)
    painter.show(Started("m"), Progress(512, 1024))
    painter.answer.tick()
    assert painter.terminal.lines == []


def test_a_burst_of_deltas_is_painted_by_the_next_tick() -> None:
    painter = Painter(frame_s=0.0001)
    for event in deltas(["a", "b", "c"]):
        painter.answer.feed(event)
    assert painter.terminal.lines == ["a"]
    painter.answer.tick()
    assert painter.terminal.lines == ["abc"]


def test_a_record_of_the_log_comes_above_the_live_lines() -> None:
    terminal = Terminal()
    screen = Screen(Console(file=terminal, force_terminal=True, width=40, height=10))  # type: ignore[arg-type]  # as above
    screen.update(["done"], ["live"])
    screen.interject("[INFO ] something\n[INFO ] more")
    assert terminal.lines == ["done", "[INFO ] something", "[INFO ] more", "live"]
