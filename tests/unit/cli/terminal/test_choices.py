"""Lists that are narrowed down by typing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shepherd.agent import fitting
from shepherd.cli.terminal import choices
from shepherd.cli.text import n_columns

NAMES = ("/help", "/export", "/exit", "/context", "/continue", "/tools")


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("", [*NAMES]),
        ("/ex", ["/export", "/exit"]),
        ("/EXI", ["/exit"]),
        ("/ctx", ["/context"]),
        ("/cte", ["/context", "/continue"]),
        ("/ool", ["/tools"]),
        ("/hp", ["/help"]),
        ("/lp", ["/help"]),
        ("/pl", []),
        ("/help me", []),
    ],
)
def test_what_begins_so_comes_alone_and_else_what_has_the_letters_in_order(typed: str, expected: list[str]) -> None:
    assert [name for name, _ in fitting.fitting(typed, [(name, "") for name in NAMES])] == expected


def test_the_same_word_comes_before_a_longer_one() -> None:
    assert fitting.fitting("/prompt", [("/prompts", 1), ("/prompt", 2)]) == [("/prompt", 2), ("/prompts", 1)]


def test_a_long_text_is_looked_at_once() -> None:
    assert fitting.rank("a" * 60 + "b", "a" * 100_000) is None


@given(
    st.lists(st.tuples(st.text(min_size=1, max_size=30), st.text(max_size=80)), max_size=30),
    st.integers(0, 40),
    st.integers(10, 100),
    st.integers(0, 12),
)
def test_rows_fit_the_terminal_and_the_marked_one_is_among_them(
    offered: list[tuple[str, str]], at: int, width: int, room: int
) -> None:
    marked = at % len(offered) if offered else None
    lines = choices.rows(offered, marked, width=width, room=room)
    assert len(lines) <= room
    assert all(sum(n_columns(text) for _, text in line) <= width for line in lines)
    assert bool(offered and room) == any(line[0][0] == choices.MARKED for line in lines)


def test_a_list_that_is_too_long_says_how_many_there_are() -> None:
    offered = [(f"/{n:02}", f"note {n}") for n in range(26)]
    lines = ["".join(text for _, text in line) for line in choices.rows(offered, 4, width=60, room=4)]
    assert lines == [
        "  /02  note 2",
        "  /03  note 3",
        "› /04  note 4",
        "  5/26, the arrow keys show the others",
    ]


def test_names_without_notes_have_the_whole_width() -> None:
    ((_, name),) = choices.rows([("n" * 60, "")], 0, width=50, room=3)[0]
    assert name == f"{choices.MARK}{'n' * 47}…"
