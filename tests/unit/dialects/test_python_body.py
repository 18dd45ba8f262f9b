"""Calls as Python spells them, from LFM2, MiniCPM3 and Gemma 3: what they say, and where a block of them ends."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import examples
from tests.unit.dialects.streams import cuts, events_of, message_of

from shepherd.core import BadCall, Event, Reasoning, Text, TextDelta, ToolCall, ToolSpec
from shepherd.dialects.families.gemma import GEMMA
from shepherd.dialects.families.lfm import LFM
from shepherd.dialects.parse.bodies.python_body import read_python_calls
from shepherd.dialects.parse.call import Fault, Found

OPEN, CLOSE = "<|tool_call_start|>", "<|tool_call_end|>"


def read(text: str, *, whole: bool = True) -> list[tuple[str, str]]:
    """Name and arguments of every call; "bad" instead of arguments for a fault."""
    calls = read_python_calls(text, whole=whole)
    assert calls
    return [(call.name, call.arguments if isinstance(call, Found) else "bad") for call in calls]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ('"x"', '"x"'),
        ("'x'", '"x"'),
        ("'''a\n\"b\" 'c'''", '"a\\n\\"b\\" \'c"'),
        ('"""a"""', '"a"'),
        ("''", '""'),
        ("'a' 'b'\n\"c\"", '"abc"'),
        ("r'\\d+\\n'", '"\\\\d+\\\\n"'),
        ("f'plain'", '"plain"'),
        ("b'x'", '"x"'),
        ("'a\nb\tc'", '"a\\nb\\tc"'),
        ("'\\n\\t\\\\ \\' \\x41 \\u00e9 \\U0001F389 \\101 \\N{BULLET}'", '"\\n\\t\\\\ \' A é 🎉 A •"'),
        ("'\\ud83d\\ude00'", '"😀"'),
        ("'\\d \\N{NO SUCH} \\xg'", '"\\\\d \\\\N{NO SUCH} \\\\xg"'),
        ("'Łódź 東京'", '"Łódź 東京"'),
        (f"'x {CLOSE} </think> `y` {{z}}'", f'"x {CLOSE} </think> `y` {{z}}"'),
        ("12345678901234567890123", "12345678901234567890123"),
        ("9" * 5000, "9" * 5000),
        ("-3", "-3"),
        ("+7", "7"),
        ("007", "7"),
        ("1_000_000", "1000000"),
        ("0x1F", "31"),
        ("0b101", "5"),
        ("1.10", "1.10"),
        (".5", "0.5"),
        ("-5.", "-5.0"),
        ("1e5", "1e5"),
        ("2.5E-3", "2.5E-3"),
        ("1e999", "1e999"),
        ("True", "true"),
        ("false", "false"),
        ("None", "null"),
        ("null", "null"),
        ("[1, 'a', [None]]", '[1, "a", [null]]'),
        ("[1, 2,]", "[1, 2]"),
        ("(1, 2)", "[1, 2]"),
        ("(1,)", "[1]"),
        ("('a' 'b')", '"ab"'),
        ("()", "[]"),
        ("{1, 2}", "[1, 2]"),
        ("set()", "[]"),
        ("{}", "{}"),
        ("{'a': 1, \"b\": {'c': (True,)}}", '{"a": 1, "b": {"c": [true]}}'),
        ("{1: 'x', None: 2, bare: 3}", '{"1": "x", "null": 2, "bare": 3}'),
    ],
)
def test_a_literal_becomes_the_json_of_its_own_characters(value: str, expected: str) -> None:
    assert read(f"[f(v={value})]") == [("f", f'{{"v": {expected}}}')]


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("[f()]", [("f", "{}")]),
        ("f(a=1)", [("f", '{"a": 1}')]),
        ("[f(a=1), g(b='x')]", [("f", '{"a": 1}'), ("g", '{"b": "x"}')]),
        ("[f(a=1),\n  g(),\n]", [("f", '{"a": 1}'), ("g", "{}")]),
        ("f(a=1)\ng(b=2)", [("f", '{"a": 1}'), ("g", '{"b": 2}')]),
        ("[f(a=1)], [g()]", [("f", '{"a": 1}'), ("g", "{}")]),
        ("Calendar.create_event(title='x')", [("Calendar.create_event", '{"title": "x"}')]),
        ("search.call(query='x')", [("search.call", '{"query": "x"}')]),
        ("get-it(max-results=3, from='x', class=1)", [("get-it", '{"max-results": 3, "from": "x", "class": 1}')]),
        ("print(f(a=1))", [("f", '{"a": 1}')]),
        ("print(text='x')", [("print", '{"text": "x"}')]),
        ("weather = f(a=1)  # look it up\n", [("f", '{"a": 1}')]),
        ("f(**{'a': 1, 'b': '}'}, c=2)", [("f", '{"a": 1, "b": "}", "c": 2}')]),
        ('f("a": 1, "b"="x")', [("f", '{"a": 1, "b": "x"}')]),
        ("[f(a=1]", [("f", '{"a": 1}')]),
        ("[f(a=1)", [("f", '{"a": 1}')]),
        ('[{"name": "f", "arguments": {"a": 1}}]', [("f", '{"a": 1}')]),
        ("{'name': 'f', 'arguments': {'a': True}}", [("f", '{"a": true}')]),
        ('f{"a": 10000000000000000000000}', [("f", '{"a": 10000000000000000000000}')]),
    ],
)
def test_calls_are_read_however_they_stand_together(text: str, calls: list[tuple[str, str]]) -> None:
    assert read(text) == calls


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("[f(t='it's')]", {"t": "it's"}),
        ("[f(t='it's', u='x')]", {"t": "it's", "u": "x"}),
        ("[f(code='print('hello')')]", {"code": "print('hello')"}),
        ("[f(code='x = ['a', 'b']')]", {"code": "x = ['a', 'b']"}),
        ('[f(t="say "hi", then go", n=1)]', {"t": 'say "hi", then go', "n": 1}),
        (r"[f(path='C:\temp\')]", {"path": "C:\temp\\"}),
        (r"[f(path='C:\', text='x')]", {"path": "C:\\", "text": "x"}),
        ("[f(names=['O'Neil', 'Bo'])]", {"names": ["O'Neil", "Bo"]}),
    ],
)
def test_quotes_that_are_not_escaped_are_the_strings_own(text: str, arguments: dict[str, Any]) -> None:
    ((name, found),) = read(text)
    assert name == "f"
    assert json.loads(found) == arguments


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("f('Paris')", "f"),
        ("f('Paris', unit='c')", "f"),
        ("f(x=y)", "f"),
        ("f(x=today())", "f"),
        ("f(x=1 + 1)", "f"),
        ("f(x='a' + 'b')", "f"),
        ("f(x='a'.upper())", "f"),
        ("f(x=f'{y}')", "f"),
        ("f(x=1__0)", "f"),
        ("f(x=1.2.3)", "f"),
        ("f(x=2j)", "f"),
        ("f(x=2024-01-01)", "f"),
        ("f(x=...)", "f"),
        ("f(x={1: 2, 3})", "f"),
        ("f(x=)", "f"),
        ("f(x=1 y=2)", "f"),
        ("f(x='a", "f"),
        ("f(x=" + "[" * 100_000, "f"),
        ("[]", ""),
        ("", ""),
        ("get_weather for Paris", ""),
    ],
)
def test_what_is_no_call_with_named_literals_is_a_fault_that_says_why(text: str, name: str) -> None:
    (fault,) = read_python_calls(text)
    assert isinstance(fault, Fault)
    assert fault.name == name
    assert "write [name(argument=value" in fault.error


def test_calls_before_a_fault_count() -> None:
    assert read("[f(a=1), g(b=c), h()]") == [("f", '{"a": 1}'), ("g", "bad")]
    assert read("[f(a=1), g(b='x", whole=False) == [("f", '{"a": 1}'), ("g", "bad")]
    assert read("[f(a=1)", whole=False) == [("f", '{"a": 1}')]
    assert read("[f(a=1", whole=False) == [("f", "bad")]
    assert read("[", whole=False) == [("", "bad")]


values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
arguments = st.dictionaries(st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True), values, max_size=4)


def same(one: Any, other: Any) -> bool:
    """Equal, types included: True is no 1, and 1.0 may be 1 no more."""
    match one:
        case dict():
            return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
        case list():
            return len(one) == len(other) and all(map(same, one, other))
        case float():
            return type(other) is float and math.isclose(one, other, rel_tol=0)
        case _:
            return type(one) is type(other) and bool(one == other)


@settings(max_examples=examples(40), deadline=None)
@given(arguments, st.sampled_from([repr, json.dumps, lambda value: json.dumps(value, ensure_ascii=False)]))
def test_every_value_survives_as_python_and_as_json_writes_it(given: dict[str, Any], write: Any) -> None:
    spelled = ", ".join(f"{name}={write(value)}" for name, value in given.items())
    raw = f"Hi.{OPEN}[f({spelled}), g()]{CLOSE}Bye."
    message = message_of(raw, LFM)
    assert message.text == "Hi.Bye."
    first, second = (part for part in message.parts if isinstance(part, ToolCall))
    assert same(json.loads(first.arguments), given)
    assert (second.name, second.arguments) == ("g", "{}")


def told(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


@pytest.mark.parametrize(
    ("raw", "parts"),
    [
        (f"{OPEN}[f(a=1)]{CLOSE}", ["f"]),
        (f"Ok.{OPEN}[f(a=1), g()]{CLOSE}Done.", ["Ok.", "f", "g", "Done."]),
        (f"<think>Hm {OPEN}[f()]{CLOSE} no</think>{OPEN}[g()]{CLOSE}", ["Hm " + OPEN + "[f()]" + CLOSE + " no", "g"]),
        (f"<think>I will.\n{OPEN}[f()]{CLOSE}", ["I will.", "f"]),
        (f"{OPEN} [f()] {CLOSE}", ["f"]),
        (f"{OPEN}\n```python\nf(a=1)\n```\n{CLOSE}", ["f"]),
        (f"{OPEN}f(a=1){CLOSE}", ["f"]),
        (f'{OPEN}[{{"name": "f", "arguments": {{}}}}]{CLOSE}Done.', ["f", "Done."]),
        (f"{OPEN}[f(a=1)]\nDone (really).", ["f", "Done (really)."]),
        (f"{OPEN}f(a=1)\nDone.", ["f", "Done."]),
        (f"{OPEN}[f(a=1)]{OPEN}[g()]{CLOSE}", ["f", "g"]),
        (f"{OPEN}[f(a=1)]{CLOSE}{CLOSE}\nDone.", ["f", "Done."]),
        (f"{OPEN}{OPEN}[f(a=1)]{CLOSE}", ["f"]),
        (f"{OPEN}[f(a='it's')]{CLOSE}Done.", ["f", "Done."]),
        (f"{OPEN}[f(a='call [g()]{CLOSE} so')]{CLOSE}Done.", ["f", "Done."]),
        (f"{OPEN}[f(a='f('a)b')')]{CLOSE}Done.", ["f", "Done."]),
        (f"{OPEN}[f(a='''x''' )]{CLOSE}Done.", ["f", "Done."]),
        (f"{OPEN}[f(x=y)]{CLOSE}Done.", ["!f", "Done."]),
        (f"{OPEN}look it up{CLOSE}Done.", ["!", "Done."]),
        (f"Write {OPEN} and {CLOSE}.", [f"Write {OPEN} and {CLOSE}."]),
        (f"{OPEN}[f(a=1", ["!f"]),
        (f"{OPEN}[f(a=1)", ["f"]),
    ],
)
def test_a_block_ends_where_its_calls_end_under_every_cutting(raw: str, parts: list[str]) -> None:
    seen = []
    for part in message_of(raw, LFM).parts:
        match part:
            case Text() | Reasoning():
                seen.append(part.text)
            case ToolCall() | BadCall():
                seen.append(part.name if isinstance(part, ToolCall) else f"!{part.name}")
            case _:
                raise AssertionError(part)
    assert seen == parts
    whole = events_of([raw], LFM)
    for chunks in cuts(raw):
        assert events_of(chunks, LFM) == whole


def test_a_call_cut_off_anywhere_leaks_nothing_and_is_never_empty() -> None:
    call = f"{OPEN}[weather(city='It\\'s \"Rome\"', days=2, tags=['a', {{'b': None}}]), now()]{CLOSE}"
    for end in range(len(OPEN), len(call)):
        events = events_of([call[:end]], LFM, truncated=True)
        assert told(events) == ""
        for part in message_of(call[:end], LFM).parts:
            assert isinstance(part, BadCall) or (
                isinstance(part, ToolCall) and (part.arguments != "{}" or part.name == "now")
            )


TOOLS = (ToolSpec("weather", "", {"type": "object", "properties": {"city": {"type": "string"}}}), ToolSpec("now"))


@pytest.mark.parametrize(
    ("fence", "calls"),
    [
        ("```tool_code\nweather(city='Rome')\n```", ["weather"]),
        ("```tool_code\nprint(default_api.weather(city='Rome'))\n```", ["weather"]),
        ("```tool_code\n[weather(city='Rome'), now()]\n```", ["weather", "now"]),
        ("```tool_code\nweather(city='Rome')\nnow()\n```", ["weather", "now"]),
        ("```tool_code\nweather(city=place)\n```", ["!weather"]),
        ("```tool_code\nprint('weather')\n```", []),
        ("```tool_code\nx = 5\nprint(x)\n```", []),
        ("```tool_code\nother(city='Rome')\n```", []),
        ("```tool_code\nweather(city='Rome')\nother()\n```", []),
        ("```python\nweather(city='Rome')\n```", []),
        ("```tool_code\n```", []),
    ],
)
def test_gemma_3_calls_declared_tools_in_a_fence_and_any_other_fence_is_text(fence: str, calls: list[str]) -> None:
    raw = f"Let me see.\n{fence}\nThat is all."
    whole = events_of([raw], GEMMA, tools=TOOLS)
    for chunks in cuts(raw):
        assert events_of(chunks, GEMMA, tools=TOOLS) == whole
    assert told(events_of([raw], GEMMA)) == raw  # no tools, no calls
    message = [event.call for event in whole if hasattr(event, "call")]
    assert [call.name if isinstance(call, ToolCall) else f"!{call.name}" for call in message] == calls
    assert told(whole) == (raw if not calls else "Let me see.That is all.")
