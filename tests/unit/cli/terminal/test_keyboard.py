"""Questions in a real terminal: which keys answer them, and which stay for the next prompt."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from prompt_toolkit.input import PipeInput, create_pipe_input
from prompt_toolkit.input.typeahead import get_typeahead
from prompt_toolkit.key_binding import KeyPress

from shepherd.cli.terminal.keyboard import END, ENTER, TerminalKeyboard

PATIENCE_S = 60.0


def name(press: KeyPress) -> str:
    return str(getattr(press.key, "value", press.key))


@contextmanager
def piped() -> Iterator[tuple[PipeInput, TerminalKeyboard]]:
    with create_pipe_input() as source:
        yield source, TerminalKeyboard(source)


@pytest.mark.parametrize(
    ("typed", "keys"),
    [
        ("y", ["y"]),
        ("xqs", ["x", "q", "s"]),
        ("\r", [ENTER]),
        ("\n", [ENTER]),
        ("\x04", [END]),
        ("\x1b[Aa", ["up", "a"]),
        ("é日", ["é", "日"]),
    ],
)
async def test_keys_come_one_by_one(typed: str, keys: list[str]) -> None:
    with piped() as (source, keyboard), keyboard.listen():
        source.send_text(typed)
        assert [await keyboard.key() for _ in keys] == keys


async def test_what_comes_before_is_kept_for_the_next_prompt_and_so_is_what_is_left() -> None:
    with piped() as (source, keyboard):
        source.send_text("early ")
        with keyboard.listen():
            source.send_text("ny")
            assert await keyboard.key() == "n"
        assert [name(press) for press in get_typeahead(source)] == [*"early y"]


@pytest.mark.parametrize("pasted", ["yes, always", "\x1b[200~y\x1b[201~"])
async def test_what_is_pasted_is_no_answer_and_is_kept(pasted: str) -> None:
    with piped() as (source, keyboard):
        with keyboard.listen():
            key = asyncio.create_task(keyboard.key())
            source.send_text(pasted)
            while not (kept := get_typeahead(source)):  # noqa: ASYNC110  # the store tells nobody
                await asyncio.sleep(0)
            source.send_text("n")
            assert await key == "n"
        assert "".join(press.data for press in kept) in {"yes, always", "y"}


async def test_an_enter_behind_the_key_belongs_to_it() -> None:
    with piped() as (source, keyboard):
        with keyboard.listen():
            source.send_text("y\r")
            assert await keyboard.key() == "y"
        assert get_typeahead(source) == []


async def test_the_end_of_the_terminal_is_a_key() -> None:
    with piped() as (source, keyboard), keyboard.listen():
        source.close()
        assert await asyncio.wait_for(keyboard.key(), PATIENCE_S) == END


# -- in a terminal ----------------------------------------------------------------------------------------------------
