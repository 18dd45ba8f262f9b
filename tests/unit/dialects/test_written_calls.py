"""Calls of the families that write JSON: whatever their arguments are, wherever they stand, cut off and spoilt."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import examples
from tests.unit.dialects.laws import (
    ALL_FRAMES,
    TOOLS,
    Write,
    arguments,
    assert_alike,
    assert_calls_stand_between_text,
    assert_cut_calls_never_leak,
    calls_of_events,
    hard_arguments,
    text_of,
)
from tests.unit.dialects.streams import dialect
from tests.unit.dialects.writers import (
    ALL,
    ARGUMENTS,
    BARE,
    BEGIN,
    END,
    LISTED,
    NAMED,
    SECTION,
    SECTION_END,
    WIDE,
    WIDE_BEGIN,
    WIDE_CALL_END,
    WIDE_SEP,
)

from shepherd.core import BadCall, TextDelta
from shepherd.dialects import parse

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


@pytest.mark.parametrize(
    ("name", "raw", "called", "error"),
    [
        ("mistral", '[TOOL_CALLS]roll[ARGS]{"sides": 6', "roll", "ended inside"),
        ("mistral", "[TOOL_CALLS]roll[ARGS]", "roll", ""),
        ("mistral", "[TOOL_CALLS]ro", "ro", ""),
        ("mistral", "[TOOL_CALLS]", "", "empty"),
        ("mistral", "[TOOL_CALLS]roll[ARGS][1, 2]", "roll", "must be a JSON object"),
        ("mistral", '[TOOL_CALLS]roll[ARGS]{"a": NaN}', "roll", "NaN"),
        ("mistral", "[TOOL_CALLS]roll the dice", "roll", "not a name and a JSON object"),
        ("kimi-k2", f"{SECTION}{SECTION_END}", "", "empty"),
        ("kimi-k2", f"{BEGIN}functions.roll_all:0{ARGUMENTS}{END}", "roll_all", "no arguments"),
        ("kimi-k2", f"{BEGIN}functions.roll:0{ARGUMENTS}six{END}", "functions.roll:0", "not a name and a JSON object"),
        ("deepseek-r1", f"{WIDE}{WIDE_BEGIN}function{WIDE_SEP}roll\n```js", "roll", ""),
        ("deepseek-v3.1", f"{WIDE_BEGIN}roll{WIDE_SEP}{{sides: 6}}{WIDE_CALL_END}", "roll", "not valid JSON"),
        ("apertus", '<|tools_prefix|>[{"roll": {"sid', "", "ended inside"),
        ("apertus", '<|tools_prefix|>[{"roll": 6}]<|tools_suffix|>', "", ""),
        ("nemotron-v2", "<TOOLCALL>roll a die</TOOLCALL>", "", "not valid JSON"),
        ("command-r", 'Action:\n```json\n[{"tool_na', "", "ended inside"),
        ("llama-3", '{"name": "ro', "", "ended inside"),
        ("llama-3", '{"name": "roll", "par', "roll", "ended inside"),
        ("llama-3", '{"name": "roll", "parameters": {"sides": 6', "roll", "ended inside"),
        ("llama-3", '{"type": "function", "name": "roll", "parameters": {"note": "a', "roll", "ended inside"),
        ("llama-3", '{"name": "roll", "parameters": {sides: 6}}', "roll", "not valid JSON"),
        ("llama-3", "<|python_tag|>", "", "empty"),
        ("llama-3", "<|python_tag|>roll.call(sides=", "roll", "ended inside"),
    ],
)
def test_what_cannot_be_read_is_a_bad_call_that_says_why(name: str, raw: str, called: str, error: str) -> None:
    (bad,) = parse(raw, dialect=name, tools=TOOLS).parts
    assert isinstance(bad, BadCall)
    assert (bad.name, bad.raw) == (called, raw)
    assert error in bad.error


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("mistral", "Use the [TOOL_CALLS] token."),
        ("mistral", "The tokens `[TOOL_CALLS]`, [ARGS] and [CALL_ID] are Mistral's."),
        ("mistral", "[TOOL_CALLS] is the marker, [ARGS] too."),
        ("mistral", "[1] is a citation, [link](x) a link,\n[ ] a box."),
        ("kimi-k2", f"Write {SECTION} before a call, {BEGIN} is next."),
        ("deepseek-r1", f"The marker {WIDE} is what begins the calls."),
        ("deepseek-v3.1", f"(see {WIDE_BEGIN}, please)"),
        ("command-r", "Action: go left\nAction:\nThen stop."),
        ("apertus", "Use <|tools_prefix|> to begin, please."),
        ("minimax-m1", "Write <tool_calls> first."),
        ("apriel", "So: Here are my reasoning steps: none."),
    ],
)
def test_text_that_speaks_of_a_marker_stays_text(name: str, text: str) -> None:
    assert assert_alike(text, dialect(name), range(1, len(text), 3)) == [TextDelta(text)]
    assert text_of(text, dialect(name), ()) == text
