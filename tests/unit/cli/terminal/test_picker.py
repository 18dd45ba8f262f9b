"""The list from which a saved conversation is chosen."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from shepherd.cli.terminal import choices, picker
from shepherd.cli.terminal.picker import List, Row
from shepherd.cli.text import n_columns

ROWS = [
    Row("a", "What is a llama?", "5 min · ~/zoo", "what is a llama? 2026-11-27", "And do they spit?"),
    Row("b", "A plan", "3 days · ~/work", "make a plan for the week 2026-11-24", "Shorter."),
    Row("c", "A poem", "4 days · ~/work", "write about rain 2026-11-23", "Again."),
]


async def picked(keys: str) -> str | None:
    with create_pipe_input() as keyboard, create_app_session(input=keyboard, output=DummyOutput()):
        keyboard.send_text(keys)
        async with asyncio.timeout(30):
            return await picker.pick("Which?", ROWS)


@pytest.mark.parametrize(
    ("keys", "name"),
    [
        ("\r", "a"),
        ("\x1b[B\r", "b"),
        ("\x1b[B\x1b[B\x1b[B\x1b[B\r", "c"),
        ("\x1b[B\x1b[A\r", "a"),
        ("\x1b[F\r", "c"),
        ("rain\r", "c"),
        ("WORK po\r", "c"),
        ("11-24\r", "b"),
        ("~/work\r", "b"),
        ("rainx\x7f\r", "c"),
        ("zzz\r\x15\r", "a"),
        ("\x1b[200~a llama\n\x1b[201~\r", "a"),
        ("\x03", None),
        ("\x04", None),
        ("\x1b", None),
    ],
)
async def test_arrows_move_typing_filters_enter_takes_and_escape_leaves(keys: str, name: str | None) -> None:
    assert await picked(keys) == name


def test_the_list_shows_the_marked_row_and_its_preview() -> None:
    shown = List("Which?", ROWS)
    shown.move(1)
    lines = ["".join(text for _, text in line) for line in shown.draw(60, 12)]
    assert lines == [
        "Which? 3",
        "> ▌",
        "  What is a llama?  5 min · ~/zoo",
        "› A plan            3 days · ~/work",
        "  A poem            4 days · ~/work",
        "Shorter.",
        "Enter takes it, Esc leaves; typing filters",
    ]
    shown.type("xyz")
    assert "None has these words." in ["".join(text for _, text in line) for line in shown.draw(60, 12)]


@given(
    st.lists(st.builds(Row, st.text(), st.text(max_size=70), st.text(max_size=40), st.text(), st.text()), max_size=20),
    st.text(max_size=5),
    st.integers(0, 30),
    st.integers(20, 90),
    st.integers(6, 30),
)
def test_it_fits_any_terminal(rows: list[Row], typed: str, at: int, width: int, height: int) -> None:
    shown = List("Continue which?", rows)
    shown.type(typed)
    shown.move(at)
    lines = shown.draw(width, height)
    assert len(lines) <= height
    assert all(sum(n_columns(text) for _, text in line) <= width for line in lines)
    assert (shown.marked is not None) == any(line[0][0] == choices.MARKED for line in lines)
