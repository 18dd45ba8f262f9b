"""What is typed during an answer: lines that wait, the open line, Escape."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import PipeInput, create_pipe_input
from prompt_toolkit.output import DummyOutput
from rich.console import Console
from tests.unit.cli.small_terminal import Terminal

from shepherd.cli.terminal.ahead import Ahead, Draft, is_unfinished
from shepherd.cli.terminal.screen import Screen
from shepherd.cli.text import clean, n_columns


def typed(*keys: str) -> Draft:
    draft = Draft()
    for key in keys:
        draft.press(key, key)
    return draft


@pytest.mark.parametrize(
    ("keys", "waiting", "text"),
    [
        ([*"one", "c-m", *"two", "c-m", *"thr"], ["one", "two"], "thr"),
        (["c-m", " ", "c-m"], [], ""),
        ([*"one", "c-m", *"two", "c-m", "up"], ["one"], "two"),
        ([*"one", "c-m", *"two", "up"], [], "one\ntwo"),
        (["up", *"a", "c-h", "c-h"], [], ""),
        ([*"a\\", "c-m", *"b", "c-m"], ["a\nb"], ""),
        ([*"```", "c-m", *"x", "c-m", *"```", "c-m"], ["```\nx\n```"], ""),
        ([*"a long word", "c-w"], [], "a long "),
        ([*"all", "c-u"], [], ""),
        (["left", "f5", "c-t", *"é日"], [], "é日"),
    ],
)
def test_enter_lets_a_line_wait_and_up_takes_it_back(keys: list[str], waiting: list[str], text: str) -> None:
    draft = typed(*keys)
    assert (draft.waiting, draft.text) == (waiting, text)


def test_what_is_pasted_is_one_piece_and_sends_nothing() -> None:
    draft = Draft()
    draft.press("<bracketed-paste>", "a\r\nb\rc\n")
    assert (draft.waiting, draft.text) == ([], "a\nb\nc\n")


def test_ctrl_d_leaves_behind_the_lines_that_wait_and_not_with_an_open_one() -> None:
    assert typed(*"/stats", "c-m", "c-d").is_over
    taken_back = typed(*"/stats", "c-m", "c-d", "up")
    assert (taken_back.is_over, taken_back.waiting) == (False, ["/stats"])
    assert not typed(*"half", "c-d").is_over


def test_nothing_is_lost_when_the_answer_is_stopped() -> None:
    draft = typed(*"one", "c-m", *"two", "c-m", *"thr", "c-d")
    draft.take_back()
    assert (draft.waiting, draft.text, draft.is_over) == ([], "one\ntwo\nthr", False)


@given(st.lists(st.text(max_size=60), max_size=8), st.text(max_size=200), st.integers(12, 80))
def test_rows_are_never_too_wide(waiting: list[str], text: str, width: int) -> None:
    draft = Draft()
    draft.waiting, draft.text = waiting, text
    assert all(n_columns(row) <= width for _, row in draft.rows(width))
    assert all(row == clean(row) and "\n" not in row for _, row in draft.rows(width))


@pytest.mark.parametrize(("text", "expected"), [("a", False), ("a\\", True), ("```", True), ("```\n```", False)])
def test_a_backslash_or_an_open_fence_goes_on(text: str, expected: bool) -> None:
    assert is_unfinished(text) == expected


# -- the keyboard -----------------------------------------------------------------------------------------------------


class PastingTerminal(Terminal):
    """It knows the codes for marked pastes, too."""

    def write(self, text: str) -> int:
        return super().write(text.replace("\x1b[?2004h", "").replace("\x1b[?2004l", ""))


class Desk:
    def __init__(self, keyboard: PipeInput, height: int = 12) -> None:
        self.keyboard = keyboard
        self.terminal = PastingTerminal(40, height)
        console = Console(file=self.terminal, force_terminal=True, width=40, height=height)  # type: ignore[arg-type]  # as a file
        self.screen = Screen(console)
        self.draft = Draft()
        self.touches: list[str] = []
        self.stopped, self.marked = asyncio.Event(), asyncio.Event()
        keys = {"escape": self.stopped.set, "c-o": self.marked.set}
        self.ahead = Ahead(
            keyboard, self.screen, self.draft, keys, lambda width: "status", touched=lambda: self.touches.append("key")
        )

    async def types(self, text: str) -> None:
        """Until the keys have been read."""
        self.marked.clear()
        self.keyboard.send_text(f"{text}\x0f")
        async with asyncio.timeout(30):
            await self.marked.wait()


@asynccontextmanager
async def desk(height: int = 12) -> AsyncIterator[Desk]:
    with create_pipe_input() as keyboard, create_app_session(input=keyboard, output=DummyOutput()):
        yield Desk(keyboard, height)


async def test_the_foot_shows_what_waits_below_the_answer_and_goes_with_it() -> None:
    async with desk() as it:
        it.screen.update(["finished"], ["live"])
        with it.ahead.listening():
            assert it.terminal.lines == ["finished", "live", "status"]
            await it.types("one\rtw")
            assert it.terminal.lines == ["finished", "live", "  waits: one", "> tw▌", "status"]
            it.screen.update(["more"], ["alive"])
            assert it.terminal.lines == ["finished", "more", "alive", "  waits: one", "> tw▌", "status"]
            with it.ahead.paused():
                assert it.terminal.lines == ["finished", "more", "alive"]
            with it.screen.front() as show:
                show(["a question"], ["keys"])
                assert it.terminal.lines == ["finished", "more", "a question", "keys"]
            assert it.terminal.lines[-4:] == ["alive", "  waits: one", "> tw▌", "status"]
            it.screen.update([])
        assert it.terminal.lines == ["finished", "more", "a question", ""]
        assert it.draft.waiting == ["one"]


async def test_escape_stops_and_alt_with_a_key_does_not() -> None:
    async with desk() as it:
        with it.ahead.listening():
            await it.types("a\x1b\rb\x1bx")
            assert it.draft.text == "a\nb"
            assert not it.stopped.is_set()
            it.keyboard.send_text("\x1b")
            async with asyncio.timeout(30):
                await it.stopped.wait()
        assert it.draft.text == "a\nb"


async def test_whoever_types_during_an_answer_is_there() -> None:
    async with desk() as it:
        with it.ahead.listening():
            assert it.touches == []
            await it.types("x")
            assert it.touches


@pytest.mark.parametrize("height", [3, 5, 8, 12])
async def test_in_a_low_terminal_the_foot_leaves_room_for_the_answer_and_stays_one(height: int) -> None:
    async with desk(height) as it:
        with it.ahead.listening():
            await it.types("".join(f"line {n}\r" for n in range(9)) + "open")
            for n in range(30):
                it.screen.update([f"finished {n}"], ["alive"])
            assert it.terminal.lines[:30] == [f"finished {n}" for n in range(30)]
            assert "alive" in it.terminal.lines[-height + 1 :]
        assert it.terminal.lines == [*(f"finished {n}" for n in range(30)), "alive"]
