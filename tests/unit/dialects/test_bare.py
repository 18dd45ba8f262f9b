"""Bare JSON as Llama 3 writes its calls, what is no call though it looks like one, and what `<|python_tag|>` heads."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import examples
from tests.unit.dialects.laws import DICE, TOOLS, assert_alike, assert_linear, calls_of, text_of
from tests.unit.dialects.streams import dialect, events_of
from tests.unit.dialects.writers import bare

from shepherd.core import Event, Text, TextDelta, ToolCall, ToolSpec
from shepherd.dialects import detect, get, parse

LLAMA = dialect("llama-3")
SIX = '{"sides": 6}'
ROLL = '{"name": "roll", "parameters": {"sides": 6}}'
MARKS = (
    *('{"name": "', ROLL, '"roll", "parameters": {', "<|python_tag|>", "<|eom_id|>", "<roll", "</roll>", "\n{", ";\n"),
    *("\n", "\n\n", " ", "Hello", "world.", "é", "```json\n", "```", "{}", *"{}[]\"'\\,:"),
)


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(st.sampled_from(MARKS), max_size=12).map("".join),
    st.sampled_from(["llama-3", "plain", "hermes", "mistral"]),
)
def test_without_tools_no_bare_json_and_no_tag_is_ever_touched(raw: str, name: str) -> None:
    text = raw.replace("<|python_tag|>", "").replace("<|eom_id|>", "")
    assert parse(text, dialect=name).text == text


@pytest.mark.grid(0.2)
@pytest.mark.parametrize(
    ("raw", "calls"),
    [
        ('{"name": "roll", "arguments": {"sides": 6}}', 1),
        ('{"type": "function", "name": "roll", "parameters": {"sides": 6}}', 1),
        ('{"type": "function", "function": {"name": "roll", "parameters": {"sides": 6}}}', 1),
        ('{"function": "roll", "parameters": {"sides": 6}}', 1),
        ('{"parameters": {"sides": 6}, "name": "roll"}', 1),
        ('{"name": "roll", "parameters": "{\\"sides\\": 6}"}', 1),
        ("{'name': 'roll', 'parameters': {'sides': 6}}", 1),
        ('{"name": "roll", "parameters": {"sides": 6}}}', 1),
        (f"[{ROLL}, {ROLL}]", 2),
        (f"{ROLL}; {ROLL}", 2),
        (f"{ROLL};\n{ROLL}", 2),
        (f"{ROLL}\n{ROLL}\n", 2),
        (f"{ROLL}{ROLL}", 2),
        (f"{ROLL}, {ROLL}", 2),
        (f"  {ROLL}", 1),
        (f"{ROLL}<|eom_id|>", 1),
        (f"<|python_tag|>{ROLL}", 1),
        (f"<|python_tag|>{ROLL}; {ROLL}<|eom_id|>", 2),
        (f"<|python_tag|>{ROLL}<|python_tag|>{ROLL}", 2),
        ("<|python_tag|>roll.call(sides=6)", 1),
        ("<|python_tag|>roll(sides=6)<|eom_id|>", 1),
        ("<|python_tag|>[roll(sides=6), roll(sides=6)]", 2),
        ("<|python_start|>[roll(sides=6)]<|python_end|>", 1),
        ('<function=roll>{"sides": 6}</function>', 1),
        ("<function=roll>\n<parameter=sides>\n6\n</parameter>\n</function>", 1),
        ('<tool_call>\n{"name": "roll", "arguments": {"sides": 6}}\n</tool_call>', 1),
    ],
)
def test_llama_is_read_however_it_calls(raw: str, calls: int) -> None:
    assert calls_of(raw, LLAMA) == [("roll", SIX)] * calls
    assert text_of(raw, LLAMA).strip() in {"", "<|eom_id|>"}


NO_CALLS = [
    '{"x": 1}',
    "{}",
    "[1, 2]",
    "[1] a note, [2]: another",
    '{"result": [1, 2, 3]}',
    '{"name": "Bob", "age": 3}',
    '{"name": "undeclared", "parameters": {}}',
    '{"name": "roll"}',
    '{"name": "roll", "sides": 6}',
    '{"name": "roll", "parameters": 6}',
    '{"name": "roll", "parameters": {"sides": 6}, "why": "for fun"}',
    '{"id": 1, "name": "roll", "parameters": {}}',
    '{"name": "roll", "description": "Rolls.", "parameters": {"type": "object", "properties": {}}}',
    '{"name": "roll", "parameters": {"type": "object", "properties": {"sides": {"type": "integer"}}}}',
    f"{ROLL} is what a call looks like.",
    f"Write {ROLL}",
    f'{{\n  "calls": [\n    {ROLL}\n  ]\n}}',
    f'[\n{{"title": "a"}},\n{ROLL}\n]',
    f'{{"a":\n{ROLL},\n"b": 2}}',
    f"```json\n{ROLL}\n```",
    f"```\n{ROLL}\nfoo\n```\nDone.",
    f"Like so: ```json\n{ROLL}\n```",
    f"~~~\n{ROLL}\n~~~",
    f"````md\n```json\n{ROLL}\n```\n{ROLL}\n````",
    f"```json\n{ROLL}",
    '{"parameters": {"sides": 6}, "unit": "cm"}',
    '{ "',
    '{"na',
]


@pytest.mark.grid(0.2, family="name")
@pytest.mark.parametrize("text", NO_CALLS)
@pytest.mark.parametrize("name", ["llama-3", "plain", "hermes", "kimi-k2"])
def test_json_that_calls_nothing_is_text(name: str, text: str) -> None:  # S4
    found = get(name)
    assert calls_of(text, found) == []
    assert text_of(text, found) == text


def test_a_call_counts_again_behind_a_fence() -> None:
    raw = f"Like so:\n```json\n{ROLL}\n```\n\n{ROLL}"
    assert calls_of(raw, LLAMA) == [("roll", SIX)]
    assert text_of(raw, LLAMA) == f"Like so:\n```json\n{ROLL}\n```"


def test_a_tool_that_takes_a_schema_may_be_given_one() -> None:
    schema = '{"type": "object", "properties": {"a": {}}}'
    define = ToolSpec("define", "", {"type": "object", "properties": {"type": {}, "properties": {}}})
    raw = f'{{"name": "define", "parameters": {schema}}}'
    assert calls_of(raw, LLAMA, [define]) == [("define", schema)]
    assert calls_of(raw, LLAMA, [ToolSpec("define")]) == []


@pytest.mark.parametrize(
    ("raw", "streamed"),
    [
        ('{"city": "Rome", "days": 3}', '{"c'),
        ('{"name": "Bob", "age": 3}', '{"name": "B'),
        ('{"name": "rolls", "parameters": {}}', '{"name": "rolls'),
        ('{"name": "roll", "sides": 6}\nok', '{"name": "roll", "sides": 6}'),
        ("[1, 2]", "[1"),
        ("{1}", "{1"),
    ],
)
def test_json_streams_as_soon_as_it_cannot_be_a_call(raw: str, streamed: str) -> None:
    parser = LLAMA.parser(tools=TOOLS)
    found: list[Event] = []
    for at, char in enumerate(raw):
        found += parser.feed(char)
        assert bool(found) == (at + 1 >= len(streamed)), raw[: at + 1]


@pytest.mark.parametrize(
    ("tools", "name", "key"),
    [
        ((), "code_interpreter", "code"),
        ((DICE,), "code_interpreter", "code"),
        ((ToolSpec("python", "", {"properties": {"script": {"type": "string"}}}),), "python", "script"),
        ((ToolSpec("ipython", "", {"properties": {"a": {}, "code": {}}}),), "ipython", "code"),
    ],
)
@pytest.mark.parametrize("code", ['import math\nprint(f"{math.pi:.3} <b>")', "x = {'a': 1}; print(x)", "2 + 2"])
def test_code_behind_the_python_tag_is_a_call_of_the_interpreter(
    tools: Sequence[ToolSpec], name: str, key: str, code: str
) -> None:
    for raw in (f"<|python_tag|>{code}", f"<|python_tag|>{code}<|eom_id|>", f"<|python_tag|>```python\n{code}\n```"):
        (call,) = parse(raw, dialect="llama-3", tools=tools).parts
        assert isinstance(call, ToolCall)
        assert (call.name, json.loads(call.arguments)) == (name, {key: code})


def test_a_built_in_tool_is_called_by_its_name() -> None:
    raw = '<|python_tag|>brave_search.call(query="How high is K2?")<|eom_id|>'
    assert calls_of(raw, LLAMA, ()) == [("brave_search", '{"query": "How high is K2?"}')]


def test_text_that_speaks_of_the_python_tag_stays_text() -> None:
    for text in ("The <|python_tag|> token begins code.", "`<|python_tag|>`"):
        assert assert_alike(text, LLAMA, range(1, len(text), 3)) == [TextDelta(text)]


def test_a_call_within_a_thought_is_a_part_of_it_unless_it_is_tagged() -> None:
    thinking = detect('ipython "parameters": </think>')
    assert thinking.name == "llama-3"
    assert parse(f"<think>\n{ROLL}\n</think>\nHi", dialect=thinking, tools=TOOLS).parts[1:] == (Text("Hi"),)
    parts = parse(f"<think>\nhm\n<|python_tag|>{ROLL}", dialect=thinking, tools=TOOLS).parts
    assert isinstance(parts[1], ToolCall)


def test_the_cost_is_linear_in_the_length_of_a_call() -> None:  # S18
    assert_linear(lambda text: bare([("roll", f'{{"note": "{text}"}}')]), LLAMA, TOOLS)


def test_endless_blanks_behind_a_bracket_are_not_held_for_ever() -> None:
    events = events_of(["{", *["\n"] * 200, "x"], LLAMA, tools=TOOLS)
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "{" + "\n" * 200 + "x"
    parser = LLAMA.parser(tools=TOOLS)
    assert any(parser.feed(chunk) for chunk in ("{", *["\n"] * 200))
