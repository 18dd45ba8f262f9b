"""Quotations: on one line, within their quotes, and around what was found."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shepherd.memory.recall.quotation import MIN_CHARS, escape_quote, longest_fitting, to_one_line
from shepherd.memory.search.excerpt import TermSpan


@settings(deadline=None)
@given(st.text(max_size=200))
@example("servers[0].port = a[12, 3]")
def test_a_quotation_of_a_quotation_is_the_same(text: str) -> None:
    assert to_one_line(to_one_line(text)) == to_one_line(text)
    assert escape_quote(escape_quote(text)) == escape_quote(text)


def test_code_keeps_its_indexes_and_its_words() -> None:
    assert escape_quote('x = servers[0].port  # "main"\ny = a[1:2]') == "x = servers[0].port # 'main' / y = a[1:2]"
    assert escape_quote("[link](there) [] [x]") == "(link)(there) () (x)"
    assert escape_quote("می‌خواهم 👩‍🚀") == "می‌خواهم 👩‍🚀"


@pytest.mark.parametrize("room", [30, 60, 100])
@pytest.mark.parametrize("filler", ["so it is and was ", "雨が降る"])
def test_what_was_found_is_in_the_part_that_fits(filler: str, room: int) -> None:
    text = filler * 300 + "4711 " + filler * 300
    start = text.index("4711")
    piece = longest_fitting(text, [TermSpan(start, start + 4, 0)], lambda piece: len(piece) <= room, room)
    assert piece is not None
    assert "4711" in piece
    assert len(piece) <= room
    assert piece[0] == piece[-1] == "…"


def test_what_fits_is_whole_and_what_is_too_little_is_nothing() -> None:
    assert longest_fitting("short", [], lambda piece: True, 10) == "short"
    assert longest_fitting("short", [], lambda piece: False, 10) is None
    assert longest_fitting("", [], lambda piece: True, 10) is None
    assert longest_fitting("long " * 40, [], lambda piece: len(piece) < MIN_CHARS - 4, 10) is None


def test_a_long_text_is_not_counted_as_a_whole() -> None:
    asked: list[int] = []
    longest_fitting("word " * 1_000_000, [], lambda piece: asked.append(len(piece)) or len(piece) < 100, 50)  # type: ignore[func-returns-value]
    assert max(asked) <= 400
    assert len(asked) <= 20
