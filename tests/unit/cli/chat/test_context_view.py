"""The picture of the context: every turn is in it, no line is too wide, and it is readable without colours."""

from __future__ import annotations

from typing import get_args

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from shepherd.backends.local.window import RowState, Window, WindowRow
from shepherd.cli.chat import context_view


def row(
    state: RowState = "cached", n: int = 100, *, index: int = 1, kept: bool = False, held: int | None = None
) -> WindowRow:
    n_held = {"cached": n, "partly": n // 2}.get(state, 0) if held is None else held
    return WindowRow("turn", index, ("user", "assistant"), f"question {index}", n, n_held, state, kept)


def system(n: int = 50) -> WindowRow:
    return WindowRow("system", 0, ("system",), "Be kind.", n, n, "cached", True)


def drawn(of: Window, *, width: int = 80, plain: bool = False) -> list[str]:
    return ["".join(text for text, _ in line) for line in context_view.draw(of, width=width, plain=plain)]


CONVERSATION = Window(
    1000,
    350,
    (system(), row("evicted", 200, index=1), row("evicted", 100, index=2), row("partly", 200, index=3),
     row(index=4), row("new", 50, index=5)),
)  # fmt: skip


def test_the_bar_has_a_run_for_each_turn_and_one_column_for_those_that_left() -> None:
    bar = drawn(CONVERSATION, width=103, plain=True)[1]
    # A column for each of five runs, and 1000 tokens on the other 92: 50 pinned, 100 of 200 partly, 100 cached, 50 new.
    assert bar == "[" + "#" * 6 + "x" + "%" * 10 + "=" * 10 + "+" * 6 + "." * 64 + "]"


def test_head_legend_and_table_say_it_in_numbers() -> None:
    head, _, legend, blank, *table = drawn(CONVERSATION, width=120, plain=True)
    assert head == "Context: 350 of 1,000 tokens (35%)"
    pieces = ["# pinned 50", "= cached 100", "% partly cached 200", "+ new 50", "x evicted 300", ". free 650"]
    assert legend.rstrip() == "  ".join(pieces)
    assert blank == ""
    assert [line.split() for line in table] == [
        ["system", "50", "pinned", "Be", "kind."],
        ["1", "200", "evicted", "question", "1"],
        ["2", "100", "evicted", "question", "2"],
        ["3", "200", "partly", "cached", "question", "3"],
        ["4", "100", "cached", "question", "4"],
        ["5", "50", "new", "question", "5"],
    ]


def test_what_was_recalled_has_a_row_of_its_own() -> None:
    quotes = WindowRow("memory", 1, (), 'user: "My lock opens with 4711."', 40, 40, "cached", False)
    *_, memory, turn = drawn(Window(1000, 190, (system(), quotes, row())), plain=True)
    assert memory.split()[:4] == ["memory", "40", "cached", "user:"]
    assert turn.split()[:2] == ["1", "100"]


def test_neighbours_of_one_state_have_two_colours_and_every_state_its_own_sign() -> None:
    two = Window(100, 100, (row(n=50, index=1), row(n=50, index=2)))
    bar = context_view.draw(two, width=80)[1]
    runs = [(text[0], style) for text, style in bar if text and text not in "▕▏"]
    assert runs == [("█", "green"), ("█", "bright_green")]
    for signs in (
        {look.sign for look in context_view.STYLES.values()},
        {look.plain for look in context_view.STYLES.values()},
    ):
        assert len(signs) == len(context_view.STYLES)
    assert {*get_args(RowState), "pinned", "free"} == set(context_view.STYLES)


def test_saved_conversations_say_where_they_are() -> None:
    assert drawn(Window(100, 10, (row(n=10),), "disk"))[0].endswith("(10%), saved on disk")


def test_runs_of_evicted_turns_of_a_long_conversation_are_one_row() -> None:
    rows = (system(), *(row("evicted", 10, index=n) for n in range(1, 101)), *(row(index=n) for n in range(101, 104)))
    table = drawn(Window(1000, 350, rows), plain=True)[4:]
    assert len(table) == 5
    assert table[1].split()[:4] == ["1-100", "1,000", "evicted", "100"]


rows = st.builds(
    row,
    st.sampled_from(get_args(RowState)),
    st.integers(0, 10**6),
    index=st.integers(1, 10**6),
    kept=st.booleans(),
)


@given(st.integers(0, 10**6), st.lists(rows, max_size=60), st.integers(1, 200), st.booleans(), st.text(max_size=200))
def test_no_line_is_wider_than_the_terminal_and_the_bar_has_always_one_width(
    n_ctx: int, turns: list[WindowRow], width: int, plain: bool, words: str
) -> None:
    turns += [WindowRow("turn", 7, ("user",), words, 5, 5, "cached", False)]
    of = Window(n_ctx, sum(each.n_held for each in turns), tuple(turns))
    lines = drawn(of, width=width, plain=plain)
    room = max(24, width)
    assert all(cell_len(line) <= room for line in lines)
    assert cell_len(lines[1]) == min(room, 100) - 1


def test_a_narrow_terminal_has_signs_for_words() -> None:
    table = drawn(CONVERSATION, width=30, plain=True)[-6:]
    assert table[1] == "1       200  x  question 1"
    assert drawn(Window(10, 5, (row(n=5),)), width=24)[-1] == "1  5  █  question 1"
