"""What the demo says, and when it asks for what has left. A whole one: `process/cli/test_demo.py`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from tests.unit.cli.conftest import shepherd
from tests.unit.cli.playing import Scripted, Stage

from shepherd.agent.session import Session
from shepherd.backends.local.window import EXCERPT_CHARS, RowState, Window, WindowRow
from shepherd.cli import logs
from shepherd.cli.chat import demo
from shepherd.cli.terminal.view import PipeView
from shepherd.core import Request

if TYPE_CHECKING:
    from shepherd.app.app import App


class Holding(Scripted):
    """A back end whose window has room for so many turns."""

    def __init__(self, n_turns: int) -> None:
        super().__init__()
        self.n_turns = n_turns

    async def window(self, request: Request) -> Window:
        asked = [message.text for message in request.messages if message.role == "user"]
        rows = []
        for index, text in enumerate(asked, 1):
            state: RowState = "cached" if index > len(asked) - self.n_turns else "evicted"
            rows.append(WindowRow("turn", index, ("user", "assistant"), text, 10, 10, state, False))
        return Window(1000, 10 * min(len(asked), self.n_turns), tuple(rows))


class Counted(Stage):
    def stats(self) -> Mapping[str, Any]:
        return {}


@pytest.mark.parametrize("n_turns", [1, 3, 5, 7, 8, 12, 22, 30])
async def test_small_talk_ends_when_the_fact_has_left_and_each_turn_leaves_once(
    n_turns: int, capsys: pytest.CaptureFixture[str]
) -> None:
    logs.set_up({})
    session = Session(Holding(n_turns), model="m", n_ctx=1000)
    await demo.Demo(cast("App", Counted(None)), session, PipeView()).play()
    told = capsys.readouterr().out
    asked = [message.text for message in session.messages if message.role == "user"]
    n_before = max(len(demo.FIRST), demo.FIRST.index(demo.FACT) + 1 + n_turns)  # when so many have followed, it is gone
    small_talk = demo.UNTIL_IT_LEFT[: n_before - len(demo.FIRST)]
    assert tuple(asked) == (*demo.FIRST, *small_talk, *demo.LAST)
    assert re.findall("^> (.*)$", told, re.MULTILINE) == asked
    named = re.findall("“(.*?)”", "".join(re.findall("left the window in .*", told)))
    assert named == [demo.quoted([text])[1:-1] for text in asked[: max(0, len(asked) - n_turns)]]
    assert told.count("tokens in the window") == len(asked)
    assert ("Nothing left the window" in told) == (not named)


def test_the_lines_of_the_user_can_be_told_apart_and_are_no_commands() -> None:
    lines = (*demo.FIRST, *demo.UNTIL_IT_LEFT, *demo.LAST)
    assert len(set(lines)) == len(lines)
    assert all(re.fullmatch(r"[A-Z][^@\n]+", line) and len(line) <= EXCERPT_CHARS for line in lines)


@given(st.lists(st.text(min_size=1), min_size=1, max_size=30), st.booleans())
def test_what_left_is_one_clean_line(texts: list[str], is_archived: bool) -> None:
    line = demo.left_line(texts, 0.26, is_archived=is_archived)
    assert line.startswith(f"{len(texts)} turn{'s' * (len(texts) > 1)} left the window in 0.3 ms and ")
    assert ("could not be kept" in line) != is_archived
    assert line.count("“") >= len(texts)
    assert "\n" not in line
    assert "\x1b" not in line


@given(st.integers(1, 2**31 - 1), st.data(), st.booleans())
def test_the_bar_of_the_window_takes_half_of_the_narrowest_terminal(n_ctx: int, data: Any, plain: bool) -> None:
    n_held = data.draw(st.integers(0, n_ctx))
    row = WindowRow("turn", 1, ("user",), "Hello!", n_held, n_held, "cached", False)
    *bar, (figures, _) = demo.window_line(Window(n_ctx, n_held, (row,)), plain=plain)
    drawn = "".join(text for text, _ in bar)
    assert cell_len(drawn) <= demo.LEAST_WIDTH // 2 + 4
    assert drawn.isascii() or not plain
    assert figures == f" {n_held:,} of {n_ctx:,} tokens in the window"


def test_a_configuration_is_not_read_and_not_silently_left_out(empty_home: Path) -> None:
    done = shepherd("demo", "--config", str(empty_home / "shepherd.toml"))
    assert done.exit_code == 2
    assert "reads no configuration; leave --config out" in done.output
