"""What a person sees of a stream: the same picture however it was cut, and nothing written twice."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from tests.cases import examples
from tests.unit.cli.small_terminal import Terminal

from shepherd.agent.turn import CallProgress, CallReturned, TurnEvent
from shepherd.cli.terminal import markdown
from shepherd.cli.terminal.call_view import Folds
from shepherd.cli.terminal.live import MarkdownAnswer
from shepherd.cli.terminal.screen import Screen
from shepherd.cli.text import bar
from shepherd.core import (
    CallDelta,
    CallEnded,
    CallStarted,
    Event,
    Evicted,
    Finished,
    Progress,
    ReasoningDelta,
    Recalled,
    Started,
    Text,
    TextDelta,
    ToolCall,
    ToolResult,
)

_SPINNER = re.compile(r"[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏] \d+ s")


class Painter:
    """A markdown answer on such a terminal."""

    def __init__(
        self,
        width: int = 40,
        height: int = 12,
        *,
        frame_s: float = 0.1,
        show_thinking: bool = True,
        no_color: bool = False,
        folds: Folds | None = None,
    ) -> None:
        """`frame_s`: how far the clock advances at every look."""
        self.terminal = Terminal(width, height)
        console = Console(
            file=self.terminal,  # type: ignore[arg-type]  # what a console needs of a file
            force_terminal=True,
            width=width,
            height=height,
            highlight=False,
            color_system="standard",
            no_color=no_color,
        )
        ticks = count()
        self.answer = MarkdownAnswer(
            Screen(console), show_thinking=show_thinking, folds=folds, clock=lambda: next(ticks) * frame_s
        )

    def show(self, *events: TurnEvent) -> list[str]:
        """Feed, and paint after every event."""
        for event in events:
            self.answer.feed(event)
            self.answer.tick()
        return self.terminal.lines

    def finish(self, *events: TurnEvent) -> list[str]:
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


@settings(max_examples=examples(150), deadline=None)
@given(MARKDOWN, st.lists(st.integers(1, 9), max_size=12))
def test_however_markdown_is_cut_the_final_screen_is_that_of_the_whole(text: str, sizes: list[int]) -> None:
    assert Painter().finish(*deltas(cuts(text, sizes))) == whole(text)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 50])
@pytest.mark.parametrize("height", [4, 12, 100])
@pytest.mark.grid(0.2)
def test_a_screen_too_low_for_the_live_block_ends_with_the_same_picture(size: int, height: int) -> None:
    assert Painter(height=height).finish(*deltas(cuts(SAMPLE, [size]))) == whole(SAMPLE)


@settings(max_examples=examples(150), deadline=None)
@given(MARKDOWN)
def test_cutting_into_blocks_loses_no_line(text: str) -> None:
    finished, rest = markdown.cut(text)
    assert ("".join(block.text for block in finished) + rest.text).split() == text.split()
    assert "".join(block.text for block in markdown.blocks(text)).split() == text.split()


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
        "continues]",
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
    line = "[3 messages (12 tokens) left the context; the conversation continues]"
    undisturbed = Painter(width=80).finish(*(event for event in events if isinstance(event, TextDelta)))
    assert Painter(width=80).finish(*events) == [*undisturbed, "", line]
    before_a_call = Painter(width=80).finish(
        TextDelta("a"), Evicted(3, 12), CallStarted("1", "f"), CallDelta("{}"), CallEnded(ToolCall("1", "f", "{}"))
    )
    assert before_a_call == ["a", "", line, "", "[Tool Call: f()]"]


def test_an_eviction_is_told_in_dim_letters() -> None:
    painter = Painter(width=80)
    painter.finish(Evicted(3, 12))
    assert "\x1b[2m[3 messages (12 tokens) left the context; the conversation continues]\x1b[0m" in painter.terminal.raw


def test_what_was_recalled_is_told_in_dim_letters_before_the_answer() -> None:
    painter = Painter(60)
    lines = painter.finish(Started("m", recalled=Recalled(2, 30, 0.0, 0.0)), TextDelta("Otto."))
    assert lines[0].startswith("[recalled 2 messages of 19")
    assert lines[1:] == ["", "Otto."]
    assert "\x1b[2m[recalled" in painter.terminal.raw


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


# -- long texts -------------------------------------------------------------------------------------------------------

FUNCTION = '''\
def f{n}(x):
    """Words.

    {words}
    """
    return "a" + 'b'  # {n}


'''
PROGRAM = "".join(FUNCTION.format(n=n, words="\n    ".join(["so many words"] * (n % 15))) for n in range(20))


def test_the_lines_of_a_long_program_are_written_as_they_come_and_hardly_any_twice() -> None:
    lines = f"```python\n{PROGRAM}".splitlines(keepends=True)
    painter = Painter(width=80, height=40)
    painter.show(*deltas(lines))
    assert painter.terminal.lines == [line.rstrip() for line in lines][: len(painter.terminal.lines)]
    assert painter.terminal.n_rewritten <= len(lines) * (markdown.OpenFence.LIVE + 2)


def test_a_long_program_has_the_colours_that_it_has_at_once() -> None:
    block = f"```python\n{PROGRAM}```\n"
    console = Console(width=80, force_terminal=True, color_system="standard", highlight=False)
    flow = markdown.MarkdownFlow(console)
    shown: list[str] = []
    for line in block.splitlines(keepends=True):
        flow.feed(line)
        shown += [row for piece in flow.picture()[0] for row in piece.lines]
    assert shown == markdown.draw(block, console)


@pytest.mark.parametrize("program", ["", "\n", "\n\nx\n\n", "    x\n\n\n\n", "``\n", "\tx\n", "日本" * 30 + "\n"])
@pytest.mark.parametrize("fence", ["```", "~~~~", "  ```py", "``` no-such-language x"])
@pytest.mark.parametrize("end", ["", "\n", "\nafter\n"])
@pytest.mark.grid(0.2)
def test_a_fence_that_grows_ends_as_the_whole(program: str, fence: str, end: str) -> None:
    text = f"before\n{fence}\n{program}{fence.split(maxsplit=1)[0].rstrip('py').strip()}{end}"
    console = Console(width=40, force_terminal=True, color_system="standard", highlight=False)
    expected = markdown.MarkdownFlow(console)
    expected.feed(text)
    for size in (1, 2, 5):
        flow = markdown.MarkdownFlow(console)
        pieces: list[markdown.Piece] = []
        for piece in cuts(text, [size]):
            flow.feed(piece)
            pieces += flow.picture()[0]
        pieces += flow.end()
        wanted = [row for piece in expected.picture()[0] + expected.end() for row in piece.lines]
        assert [row for piece in pieces for row in piece.lines] == wanted
        expected.feed(text)


def test_a_program_that_no_lexer_reads_to_the_end_is_shown_without_colours() -> None:
    assert whole("```python\n\ufeffx = 1\n```\n") == ["```python", "\ufeffx = 1", "```"]


def test_of_a_long_list_the_items_are_finished_one_by_one() -> None:
    painter = Painter(width=80, height=50)
    items = [f"- **item** {n}\n" for n in range(200)]
    painter.show(*deltas(items))
    assert painter.terminal.n_rewritten <= 2 * len(items) + 2
    assert painter.terminal.lines == [f" • item {n}" for n in range(200)]


def test_of_reasoning_every_line_is_written_once() -> None:
    painter = Painter(width=80, height=50)
    painter.show(ReasoningDelta("\n \n"), *(ReasoningDelta(f"line {n}\n{chr(10) * (n % 2)}") for n in range(100)))
    assert painter.terminal.n_rewritten <= 160
    shown = painter.finish(TextDelta("So."))
    assert [line for line in shown if line] == [*(f"line {n}" for n in range(100)), "So."]
    assert shown[:4] == ["line 0", "line 1", "", "line 2"]


def unfolded(folds: Folds) -> list[str]:
    return [line.plain for line in folds.take()]


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_long_thoughts_fold_to_their_beginning_and_can_be_seen_whole(size: int) -> None:
    folds = Folds()
    painter = Painter(width=40, height=20, folds=folds)
    text = "\n".join(f"thought {n}" for n in range(40))
    shown = painter.show(*[ReasoningDelta(piece) for piece in cuts(text, [size])])
    head = [f"thought {n}" for n in range(6)]
    assert shown == [*head, "… 31 more lines", *(f"thought {n}" for n in range(37, 40))]
    shown = painter.finish(TextDelta("So."))
    assert shown == [*head, "… 34 more lines (Ctrl-O)", "", "So."]
    assert unfolded(folds) == ["1 of 1 folded", text]


@pytest.mark.parametrize("n", [1, 6, 7])
def test_thoughts_fold_only_where_that_saves_a_line(n: int) -> None:
    folds = Folds()
    painter = Painter(folds=folds)
    lines = [f"thought {at}" for at in range(n)]
    assert painter.finish(*(ReasoningDelta(f"{line}\n") for line in lines)) == lines
    assert folds.take() == []


def test_the_newest_of_what_was_folded_comes_first_and_then_the_one_before() -> None:
    folds = Folds()
    painter = Painter(width=40, height=20, folds=folds)
    call, text = ToolCall("1", "f", "{}"), "\n".join(f"line {n} {'x' * 50}" for n in range(9))
    result = CallReturned(call, ToolResult("1", (Text(text),), "f"), "9 lines")
    short = CallReturned(call, ToolResult("1", (Text("blue"),), "f"))
    painter.show(ReasoningDelta("\n".join("abcdefghij")), CallEnded(call), Finished("tool_calls"), result, short)
    assert painter.finish()[-1] == "[Tool Result: blue]"
    assert "  … 3 more lines (Ctrl-O)" in painter.terminal.lines
    result_lines = ["2 of 2 folded", "[Tool Result: 9 lines]", *(f"  {line}" for line in text.split("\n"))]
    assert [unfolded(folds) for _ in range(3)] == [
        result_lines, ["1 of 2 folded", "\n".join("abcdefghij")], result_lines
    ]  # fmt: skip


def test_targets_are_shown_once() -> None:
    text = (
        "![a cat](http://c.at) ![](http://d.og) <http://e.mu> <me@f.ox> [gnu](http://g.nu) [http://h.en](http://h.en)\n"
    )
    assert whole(text, width=200) == [
        "a cat (http://c.at) http://d.og http://e.mu me@f.ox gnu (http://g.nu) http://h.en"
    ]


# -- calls ------------------------------------------------------------------------------------------------------------


def call(number: int, name: str = "f") -> ToolCall:
    return ToolCall(str(number), name, f'{{"n": {number}}}')


def made(*calls: ToolCall) -> list[TurnEvent]:
    return [event for each in calls for event in (CallStarted(each.id, each.name), CallEnded(each))]


def back(each: ToolCall, text: str, *, is_error: bool = False, summary: str = "", diff: str = "") -> CallReturned:
    return CallReturned(each, ToolResult(each.id, (Text(text),), each.name, is_error), summary, diff)


def test_a_call_that_is_being_written_says_so() -> None:
    painter = Painter()
    assert painter.show(CallStarted("1", "write_file"), CallDelta("{"), CallDelta('"')) == [
        "Calling write_file ... (2 tokens)"
    ]
    assert painter.show(CallEnded(call(1, "write_file"))) == ["[Tool Call: write_file(n=1)]"]


def test_calls_that_run_have_a_line_each_that_becomes_the_result() -> None:
    one, two = call(1), call(2)
    painter = Painter(width=60, frame_s=0.01)

    def shown() -> list[str]:
        painter.answer.tick()
        return [_SPINNER.sub("* 0 s", line) for line in painter.terminal.lines]

    painter.show(Started("m"), TextDelta("I look."), *made(one, two), Finished("tool_calls"))
    heads = ["I look.", "", "[Tool Call: f(n=1)]"]
    assert shown() == [*heads, "* 0 s", "[Tool Call: f(n=2)]", "* 0 s"]
    painter.show(CallProgress(two, "12 of 30"), CallProgress(one, "compiling\n\x1b[31mred"))
    assert shown() == [*heads, "* 0 s · compiling red", "[Tool Call: f(n=2)]", "* 0 s · 12 of 30"]
    painter.show(back(two, "second"))
    assert shown() == [*heads, "* 0 s · compiling red", "[Tool Call: f(n=2)]", "[Tool Result: second]"]
    painter.show(back(one, "first"))
    results = [*heads, "[Tool Result: first]", "[Tool Call: f(n=2)]", "[Tool Result: second]"]
    assert shown() == results
    assert painter.finish(Started("m"), TextDelta("So.")) == [*results, "", "So."]


def test_a_spinner_turns_without_any_event_and_rewrites_its_line_alone() -> None:
    painter = Painter(width=60, frame_s=0.1)
    painter.show(*made(call(1)), Finished("tool_calls"))
    before = painter.terminal.lines
    painter.terminal.n_rewritten = 0
    painter.answer.tick()
    assert painter.terminal.lines[0] == before[0]
    assert painter.terminal.lines[1] != before[1]
    assert painter.terminal.n_rewritten == 1


def test_what_is_said_behind_a_call_comes_behind_its_line() -> None:
    one, two = call(1), call(2)
    events = (*made(one, two), TextDelta("Wait."), Finished("tool_calls"), back(one, "1"), back(two, "2"))
    assert Painter(width=60).finish(*events) == [
        "[Tool Call: f(n=1)]",
        "[Tool Call: f(n=2)]",
        "",
        "Wait.",
        "",
        "[Tool Result: 1]",
        "[Tool Result: 2]",
    ]


def test_a_turn_that_is_stopped_leaves_the_calls_that_ran() -> None:
    painter = Painter(width=60)
    shown = painter.finish(*made(call(1), call(2)), Finished("tool_calls"), back(call(1), "done"))
    assert shown == ["[Tool Call: f(n=1)]", "[Tool Result: done]", "[Tool Call: f(n=2)]"]
    assert painter.show() == shown


def test_calls_that_are_equal_get_a_result_each() -> None:
    one, again = call(1), call(1)
    shown = Painter(width=60).finish(*made(one, again), Finished("tool_calls"), back(again, "b"), back(one, "a"))
    assert shown == ["[Tool Call: f(n=1)]", "[Tool Result: a]", "[Tool Call: f(n=1)]", "[Tool Result: b]"]


@pytest.mark.parametrize("width", [1, 2, 5, 20, 33, 200])
@pytest.mark.parametrize("height", [1, 3, 30])
def test_no_terminal_is_too_small(width: int, height: int) -> None:
    painter = Painter(width=width, height=height)
    long = "\n".join(f"{n}: 日本語 {'x' * n}" for n in range(50))
    painter.show(
        *deltas(cuts(SAMPLE, [30])), *made(call(1), call(2)), Finished("tool_calls"), CallProgress(call(2), long)
    )
    painter.finish(back(call(1), long, diff="+" + long), back(call(2), long, is_error=True), Progress(1, 2))
    assert painter.terminal.lines


def test_colours_can_be_off() -> None:
    painter = Painter(no_color=True)
    painter.finish(*deltas([SAMPLE]), *made(call(1)), back(call(1), "a\nb\nc", is_error=True, diff="+a\n-b"))
    assert not re.search(r"\x1b\[[0-9;]*(3[0-7]|9[0-7]|4[0-7])m", painter.terminal.raw)


def test_silence_shows_a_spinner_that_goes_away() -> None:
    painter = Painter(width=60, frame_s=0.4)
    painter.show(Started("m"), TextDelta("I look."))
    for _ in range(3):
        painter.answer.tick()
    assert painter.terminal.lines[:2] == ["I look.", ""]
    assert _SPINNER.fullmatch(painter.terminal.lines[2])
    assert painter.show(TextDelta(" Yes.")) == ["I look. Yes."]
    assert painter.finish() == ["I look. Yes."]
    for _ in range(9):
        painter.answer.tick()
    assert painter.terminal.lines == ["I look. Yes."]
