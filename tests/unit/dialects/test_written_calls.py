"""Well-formed calls of the families that write JSON, whatever their arguments are and wherever they stand."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import examples
from tests.unit.dialects.laws import (
    ALL_FRAMES,
    Write,
    arguments,
    assert_alike,
    assert_calls_stand_between_text,
    assert_cut_calls_never_leak,
    calls_of_events,
    hard_arguments,
)
from tests.unit.dialects.streams import dialect
from tests.unit.dialects.writers import ALL, BARE, LISTED, NAMED

each_way = pytest.mark.parametrize(("name", "write", "marks"), ALL.values(), ids=ALL)
SIX = '{"sides": 6}'


@each_way
def test_calls_come_out_as_they_were_written_and_the_text_around_them_is_text(
    name: str, write: Write, marks: Sequence[str]
) -> None:
    assert_calls_stand_between_text(write, dialect(name), [("roll", SIX)], ALL_FRAMES)
    for text in hard_arguments(*marks):
        others = [] if write in BARE.values() else [("undeclared", text)]
        assert_calls_stand_between_text(write, dialect(name), [("roll", text), ("now", "{}"), *others])


@each_way
@settings(max_examples=examples(15), deadline=None)
@given(text=arguments(), places=st.lists(st.integers(0, 200), max_size=5))
def test_any_json_object_goes_through_as_arguments(
    name: str, write: Write, marks: Sequence[str], text: str, places: Sequence[int]
) -> None:
    raw = f"Hi\n{write([('roll', text), ('now', text)])}"
    shown = write in (BARE["bare"], BARE["indented"]) and {"type", "properties"} <= json.loads(text).keys()
    expected = [] if shown else [("roll", text), ("now", text)]
    assert calls_of_events(assert_alike(raw, dialect(name), places)) == expected


@pytest.mark.parametrize("name", [name for name in (*NAMED, *LISTED) if name != "command-r"])  # its marker is a word
def test_a_call_that_a_limit_cuts_off_is_bad_and_never_text(name: str) -> None:
    calls = [("roll", '{"sides": 6, "note": "a [b] {c}"}'), ("now", "{}")]
    assert_cut_calls_never_leak(ALL[name][1], dialect(name), calls)
