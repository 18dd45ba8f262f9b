"""What a person sees of a call and its result: one line each, and of what is long, the beginning."""

from __future__ import annotations

import pytest
from rich.console import Console
from rich.text import Text

from shepherd.agent.turn import CallReturned
from shepherd.cli.terminal import call_view, markdown
from shepherd.core import Text as Said
from shepherd.core import ToolCall, ToolResult

CALL = ToolCall("1", "f", "{}")


def returned(text: str, summary: str = "", *, diff: str = "", is_error: bool = False) -> CallReturned:
    return CallReturned(CALL, ToolResult("1", (Said(text),), "f", is_error), summary, diff)


def shown(event: CallReturned, width: int = 80) -> list[str]:
    return [line.plain for line in call_view.outcome(event, width)]


def styles(lines: list[Text]) -> list[str]:
    return [str(line.style) for line in lines]


def test_a_short_result_is_one_line() -> None:
    assert shown(returned("blue")) == ["[Tool Result: blue]"]
    assert shown(returned("a\nb\n", "")) == ["[Tool Result: a b]"]
    assert shown(returned('{"success": true}', "wrote a.py", diff="+a"))[0] == "[Tool Result: wrote a.py]"
    assert shown(returned("x" * 200)) == ["[Tool Result: " + "x" * 64 + "…]"]


def test_of_a_long_result_the_first_lines_are_shown_and_the_others_counted() -> None:
    text = "\n".join(f"line {n}" for n in range(40))
    head = [f"  line {n}" for n in range(6)]
    assert shown(returned(text, "40 lines")) == ["[Tool Result: 40 lines]", *head, "  … 34 more lines"]
    assert shown(returned(text.replace("\n", "\r\n") + "\r\n", "40 lines"))[1:] == [*head, "  … 34 more lines"]


@pytest.mark.parametrize("n", [2, 6, 7, 8, 9])
def test_a_line_is_left_out_only_where_that_saves_one(n: int) -> None:
    lines = shown(returned("\n".join(f"line {at}" for at in range(n)), "some"))
    assert len(lines) - 1 == min(n, 7)
    assert lines[-1] == ("  … 2 more lines" if n == 8 else "  … 3 more lines" if n == 9 else f"  line {n - 1}")


def test_of_a_gigantic_result_every_line_is_counted_and_few_are_read() -> None:
    assert shown(returned("\x1b[1mx\n" * 1_000_000, "many"))[-1] == "  … 999,994 more lines"


def test_an_error_is_red_and_keeps_what_a_program_has_said() -> None:
    lines = call_view.outcome(returned("exit code 1\nno such file", is_error=True), 80)
    assert styles(lines) == ["red"]
    lines = call_view.outcome(returned("\n".join(["exit code 1"] * 30), is_error=True), 80)
    assert set(styles(lines)[:-1]) == {"red"}


def test_a_diff_is_shown_in_colours_instead_of_the_content() -> None:
    diff = "--- a.py\n+++ a.py\n@@ -1,2 +1,2 @@\n def f():\n-    return 1\n+    return 2\n"
    lines = call_view.outcome(returned('{"success": true}\nand more', "a.py: 1 replacement", diff=diff), 80)
    assert [line.plain for line in lines] == [
        "[Tool Result: a.py: 1 replacement]",
        *(f"  {line}" for line in diff.splitlines()),
    ]
    assert styles(lines) == ["cyan", "bold", "bold", "cyan", "dim", "red", "green"]


def test_a_long_diff_is_folded() -> None:
    lines = shown(returned("ok", diff="+x\n" * 100_000))
    assert len(lines) == 1 + call_view.DIFF_LINES + 1
    assert lines[-1] == f"  … {100_000 - call_view.DIFF_LINES:,} more lines"


@pytest.mark.parametrize("width", [10, 40, 81])
def test_no_line_of_a_result_takes_two_rows(width: int) -> None:
    console = Console(width=width, force_terminal=True, color_system=None, highlight=False)
    text = "\n".join(["日本語 " * 50, "a\tb" * 80, "\x1b[31mred" * 40, "👩\u200d💻" * 60, "שלום " * 60])
    for line in call_view.outcome(returned(text, "x" * 500, diff="+" + text), width)[1:]:
        rows = markdown.to_rows(line, console)
        assert len(rows) == 1
        assert console.render_str(rows[0], markup=False, emoji=False).cell_len <= width


@pytest.mark.parametrize(
    ("seconds", "name", "line", "wanted"),
    [
        (0.05, "", "", "⠋ 0 s"),
        (0.15, "", "", "⠙ 0 s"),
        (3.2, "", "12 of 30", "⠹ 3 s · 12 of 30"),
        (125.0, "", "two\nlines", "⠋ 2:05 min · two lines"),
        (1.0, "f", "", "⠋ f · 1 s"),
    ],
)
def test_a_call_that_runs_shows_its_time_and_its_progress(seconds: float, name: str, line: str, wanted: str) -> None:
    assert call_view.spinning(seconds, name, line).plain == wanted
