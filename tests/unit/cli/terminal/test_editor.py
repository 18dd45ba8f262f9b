"""The line editor: what Tab and Enter do with what can be completed."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Iterable
from pathlib import Path
from typing import cast

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput
from rich.console import Console

from shepherd.cli.chat import completion
from shepherd.cli.chat.commands import COMMANDS
from shepherd.cli.chat.state import Chat
from shepherd.cli.terminal import editor
from shepherd.cli.terminal.reader import Suggest, Suggestion
from shepherd.cli.terminal.screen import Screen

WORDS = ("/help", "/export", "/exit", "/mcp")


def suggest(before: str) -> Iterable[Suggestion]:
    return [Suggestion(word, len(before)) for word in WORDS if before.startswith("/") and word.startswith(before)]


async def typed(keys: str, suggest: Suggest = suggest) -> str | None:
    """The line that comes of the keys."""
    with create_pipe_input() as keyboard, create_app_session(input=keyboard, output=DummyOutput()):
        reader = editor.TerminalReader()
        keyboard.send_text(keys)
        async with asyncio.timeout(30):  # not `wait_for`: out of a task of its own, Ctrl-C would end the event loop
            return await reader.read(suggest)


@pytest.fixture(autouse=True)
def no_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ("/he\t\r", "/help"),
        ("/ex\t\r\r", "/export"),
        ("/ex\t\t\r\r", "/exit"),
        ("/e\tp\t\r", "/export"),
        ("/x\t\r", "/x"),
        ("/help\t\r", "/help"),
        ("hello\t\r", "hello"),
        ("one\\\rtwo\r", "one\ntwo"),
        ("```\rx\r```\r", "```\nx\n```"),
        ("a\x1b\rb\r", "a\nb"),
        ("junk\x03fine\r", "fine"),
        ("\x1b[200~a\r\nb\rc\x1b[201~\r", "a\nb\nc"),
    ],
)
async def test_keys_make_lines_however_fast_they_come(keys: str, line: str) -> None:
    assert await typed(keys) == line


async def test_a_word_behind_a_completed_command_is_its_argument(tmp_path: Path) -> None:
    def offers(before: str) -> Iterable[Suggestion]:
        return completion.suggestions(cast("Chat", None), COMMANDS, before)

    for keys, line in (
        ("/he\tcontext\r", "/help context"),
        ("/he\t\r", "/help "),
        ("/\tcontext\r", "/help context"),
        ("/\t\texit\r", "/clear exit"),
        ("context\x01/he\t\r", "/help context"),
        (" context\x01/he\t\r", "/help context"),
        ("/ctx\r\r", "/context "),
        ("/sta\r", "/stats "),
        ("/he\rstats\r", "/help stats"),
        ("/prompt\r", "/prompt"),
        ("/\x1b[B\x1b[B\r", "/undo "),
        ("/\x1b[A\r", "/quit "),
        ("/zzz\r", "/zzz"),
        ("/un\x7f\x7fstat\r", "/stats "),
        ("\x1b[200~/undo or not\x1b[201~\r", "/undo or not"),
    ):
        assert await typed(keys, offers) == line, keys


async def test_ctrl_c_at_an_empty_prompt_and_ctrl_d_are_told_apart() -> None:
    with pytest.raises(KeyboardInterrupt):
        await typed("\x03")
    assert await typed("\x04") is None


async def test_what_ctrl_c_discards_stays_in_the_history(tmp_path: Path) -> None:
    assert await typed("half a line\x03fine\r") == "fine"
    assert "+half a line\n" in (tmp_path / "shepherd" / "history").read_text()


async def test_escape_closes_the_menu_and_the_line_is_sent_as_it_is() -> None:
    def offers(before: str) -> Iterable[Suggestion]:
        return completion.suggestions(cast("Chat", None), COMMANDS, before)

    menu = editor.Menu(offers)
    assert not menu.follow("/und", begins=True)
    assert [each.text for each in menu.offered] == ["/undo "]
    assert menu.marked == 0
    menu.close()
    for before in ("/und", "/undo"):
        menu.follow(before, begins=True)
        assert not menu.offered, before
    menu.follow("/un", begins=True)
    assert menu.offered


def test_the_menu_opens_by_typing_and_not_by_a_line_of_the_history() -> None:
    menu = editor.Menu(suggest)
    menu.follow("/e")
    assert not menu.offered
    menu.follow("/ex", begins=True)
    assert menu.offered
    assert menu.follow("see @x", begins=True), "files are searched in a thread"
    menu.offer("see @", [Suggestion("@late", 1)])
    assert not menu.offered, "what is found too late is dropped"
    menu.offer("see @x", [Suggestion("@xyz", 2)])
    assert menu.marked is None, "Enter sends the message unless a row is chosen"


async def test_ctrl_c_right_behind_enter_stops_the_answer_that_begins() -> None:
    stopped: list[str] = []
    with create_pipe_input() as keyboard, create_app_session(input=keyboard, output=DummyOutput()):
        reader = editor.TerminalReader()
        keyboard.send_text("hello\r\x03next")
        async with asyncio.timeout(30):
            assert await reader.read(suggest) == "hello"
        with reader.ahead(Screen(Console(file=io.StringIO())), lambda: stopped.append("the answer")):
            assert stopped == ["the answer"]
        assert reader.draft.text == "next"
