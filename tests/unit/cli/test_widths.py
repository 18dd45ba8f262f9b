"""Nothing breaks inside a word: help, lines and tables on a narrow terminal have the words of a wide one."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import examples

from shepherd.cli.main import cli
from shepherd.cli.text import broken, field_lines, n_columns, packed, table_lines, wrapped


def too_wide(lines: list[str], width: int) -> list[str]:
    """The lines that do not fit although they could be broken between two words."""
    return [line for line in lines if n_columns(line) > width and len(line.split()) > 1]


def words(lines: list[str]) -> list[str]:
    return " ".join(lines).split()


# -- help -------------------------------------------------------------------------------------------------------------


def commands(group: click.Command = cli, path: str = "shepherd") -> Iterator[tuple[str, click.Command]]:
    yield path, group
    if isinstance(group, click.Group):
        for name, command in group.commands.items():
            yield from commands(command, f"{path} {name}")


def help_of(command: click.Command, path: str, width: int) -> list[str]:
    context = command.context_class(command, info_name=path, terminal_width=width)
    return click.unstyle(command.get_help(context)).splitlines()


@pytest.mark.parametrize("width", [58, 78])  # click leaves two columns free
@pytest.mark.parametrize(("path", "command"), [pytest.param(*row, id=row[0]) for row in commands()])
def test_no_help_breaks_a_word(path: str, command: click.Command, width: int) -> None:
    shown = help_of(command, path, width)
    assert too_wide(shown, width) == []
    assert sorted(words(shown)) == sorted(words(help_of(command, path, 10_000)))


# -- lines ------------------------------------------------------------------------------------------------------------

LINES = st.lists(st.text(alphabet="ab日-.é  ", max_size=30), max_size=4).map("\n".join)


@settings(deadline=None, max_examples=examples(300))
@given(text=LINES, width=st.integers(1, 20))
def test_a_wrapped_text_has_the_same_words_in_lines_that_fit(text: str, width: int) -> None:
    lines = wrapped(text, width)
    assert words(lines) == text.split()
    indent = max((len(line) - len(line.lstrip(" ")) for line in text.split("\n")), default=0)
    assert too_wide(lines, width + indent) == []
    assert wrapped(text, None) == text.split("\n") == wrapped(text, 1000)


def test_a_broken_line_goes_on_below_its_own_first_word() -> None:
    assert wrapped("  one two three", 9) == ["  one two", "  three"]
    assert wrapped("  edit_file  Replace a text in a file that is there.", 40) == [
        "  edit_file  Replace a text in a file",
        "             that is there.",
    ]
    assert wrapped("one two three", 7, 4) == ["one two", "    three"]
    assert wrapped("see /a/very/long/path", 8) == ["see", "/a/very/long/path"]
    assert wrapped("a    b", 20) == ["a    b"]
    assert wrapped("get it with 'shepherd pull x'.", 20) == ["get it with", "'shepherd pull x'."]


def test_parts_of_a_line_stay_whole() -> None:
    parts = ["45 tokens", "31.2 tokens/s", "12 new + 340 cached", "▕█░▏ 397/4096", "3 calls in 2 of 32 rounds"]
    assert packed(parts, " · ", 45) == [
        "45 tokens · 31.2 tokens/s",
        "12 new + 340 cached · ▕█░▏ 397/4096",
        "3 calls in 2 of 32 rounds",
    ]
    assert packed(parts, " · ", None) == [" · ".join(parts)]


def lines_of(pieces: list[tuple[str, str]], width: int) -> list[str]:
    return ["".join(text for text, _ in row) for row in broken(pieces, width)]


def test_the_last_piece_of_a_line_goes_on_below_itself() -> None:
    row = [("on ", "green"), (" read_file  filesystem  ", ""), ("ask: changes files in the folder", "dim")]
    assert lines_of(row, 80) == ["on  read_file  filesystem  ask: changes files in the folder"]
    assert lines_of(row, 51) == [
        "on  read_file  filesystem  ask: changes files in",
        "                           the folder",
    ]
    assert broken(row, 51)[1] == [(" " * 27, ""), ("the folder", "dim")]


def test_where_there_is_no_room_behind_the_others_the_last_piece_begins_on_the_next_line() -> None:
    row = [("2026-11-27-1324-my-name-is-ada", "cyan"), ("  5 min  4 messages", "dim"), ("  My name is Ada", "")]
    assert lines_of(row, 60) == ["2026-11-27-1324-my-name-is-ada  5 min  4 messages", "    My name is Ada"]
    assert lines_of(row, 40) == ["2026-11-27-1324-my-name-is-ada", "  5 min  4 messages", "    My name is Ada"]


def test_a_field_goes_on_below_its_value() -> None:
    fields = {"Model": "lamb", "File": "a file with a long name"}
    assert field_lines(fields) == ["Model: lamb", "File:  a file with a long name"]
    assert field_lines(fields, 24) == ["Model: lamb", "File:  a file with a", "       long name"]
    assert field_lines(fields, 20) == ["Model: lamb", "File:", "  a file with a long", "  name"]


# -- tables -----------------------------------------------------------------------------------------------------------

COLUMNS = ("NAME", "SIZE", "GOOD FOR")
ROWS = [("qwen3-8b", "4.7 GiB", "talking, tools and code"), ("smollm2", "", "a first try")]


def table(width: int | None) -> list[str]:
    return [line for line, _ in table_lines(COLUMNS, ROWS, width)]


def test_a_table_becomes_narrower_between_words_and_then_a_list() -> None:
    assert table(None) == [
        "NAME      SIZE     GOOD FOR",
        "qwen3-8b  4.7 GiB  talking, tools and code",
        "smollm2            a first try",
    ]
    assert table(33) == [
        "NAME      SIZE     GOOD FOR",
        "qwen3-8b  4.7 GiB  talking, tools",
        "                   and code",
        "smollm2            a first try",
    ]
    assert table(20) == [
        "qwen3-8b",
        "  SIZE:     4.7 GiB",
        "  GOOD FOR:",
        "    talking, tools",
        "    and code",
        "smollm2",
        "  GOOD FOR:",
        "    a first try",
    ]
    heads = [line for line, is_head in table_lines(COLUMNS, ROWS, 20) if is_head]
    assert heads == ["qwen3-8b", "smollm2"]


CELLS = st.text(alphabet="ab日.  ", max_size=20)


@settings(deadline=None, max_examples=examples(300))
@given(rows=st.lists(st.tuples(CELLS, CELLS, CELLS), max_size=4), width=st.integers(12, 60))
def test_a_table_has_the_same_words_in_lines_that_fit(rows: list[tuple[str, str, str]], width: int) -> None:
    lines = [line for line, _ in table_lines(("A", "B", ""), rows, width)]
    assert too_wide(lines, width) == []
    cells = [word for row in rows for cell in row for word in cell.split()]
    assert sorted(word for word in words(lines) if word.strip(":") not in {"A", "B"}) == sorted(cells)
