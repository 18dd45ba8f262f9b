"""The line editor: what Tab and Enter do with what can be completed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import cast

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from shepherd.cli.chat import completion
from shepherd.cli.chat.commands import COMMANDS
from shepherd.cli.chat.state import Chat
from shepherd.cli.terminal import editor
from shepherd.cli.terminal.reader import Suggest, Suggestion

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
    ):
        assert await typed(keys, offers) == line, keys


async def test_ctrl_c_at_an_empty_prompt_and_ctrl_d_are_told_apart() -> None:
    with pytest.raises(KeyboardInterrupt):
        await typed("\x03")
    assert await typed("\x04") is None
