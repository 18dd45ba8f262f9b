"""Calls whose values are tags: MiniMax M3."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import examples
from tests.unit.dialects.streams import dialect, events_of
from tests.unit.dialects.tagged import Outcome, m3, told

from shepherd.core import ToolCall, ToolSpec
from shepherd.dialects import parse
from shepherd.dialects.parse.bodies.nested import spelled
from shepherd.dialects.parse.spelling import Json, Maybe, OneOf, Until

TOKEN = "]<]minimax[>["
PLAN = ToolSpec(
    "plan",
    "",
    {
        "type": "object",
        "properties": {
            "title": {"type": "string"},
            "days": {"type": "integer"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "stops": {"type": "array", "items": {"$ref": "#/$defs/stop"}},
            "who": {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "object"}]},
            "label": {"oneOf": [{"type": "string"}, {"type": "object"}]},
            "limit": {"oneOf": [{"type": "integer"}, {"properties": {"most": {"type": "integer"}}}]},
            "-v": {"type": "boolean"},
        },
        "required": ["title"],
        "$defs": {
            "stop": {
                "type": "object",
                "properties": {
                    "town": {"type": "string"},
                    "nights": {"type": "integer"},
                    "notes": {"type": "array", "items": {"type": "string"}},
                    "next": {"$ref": "#/$defs/stop"},
                },
            }
        },
    },
)
CLOCK = ToolSpec("clock", "", {"type": "object", "properties": {}})


def said(text: str, *tools: ToolSpec) -> list[Outcome]:
    """What an output says in which ¤ stands for the token."""
    return told(text.replace("¤", TOKEN), "minimax-m3", tools=tools or (PLAN, CLOCK))


def inside(text: str) -> str:
    return f'¤<tool_call>\n¤<invoke name="plan">{text}¤</invoke>\n¤</tool_call>'


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("¤<title>a¤</title>¤<days>12345678901234567890¤</days>", {"title": "a", "days": 12345678901234567890}),
        ("¤<tags>¤<item>a¤</item>¤<item>2¤</item>¤</tags>", {"tags": ["a", "2"]}),
        ("¤<tags>¤<item>a¤</item>¤</tags>", {"tags": ["a"]}),
        (
            "¤<stops>¤<item>¤<town>Rom¤</town>¤<nights>2¤</nights>¤<notes>¤<item>x¤</item>¤</notes>¤</item>¤</stops>",
            {"stops": [{"town": "Rom", "nights": 2, "notes": ["x"]}]},
        ),
        ("¤<who>¤<item>Ann¤</item>¤</who>", {"who": ["Ann"]}),
        ("¤<who>¤<boss>Ann¤</boss>¤</who>", {"who": {"boss": "Ann"}}),
        ("¤<limit>5¤</limit>", {"limit": 5}),
        ("¤<limit>¤<most>5¤</most>¤</limit>", {"limit": {"most": 5}}),
        ("¤<-v>true¤</-v>", {"-v": True}),
        ("¤<tags>¤</tags>¤<stops>\n¤</stops>", {"tags": [], "stops": []}),
        ("¤<title>¤</title>", {"title": ""}),
        ("¤<title>\n a\n¤</title>", {"title": "\n a\n"}),
        ("¤<title>a < b ]<] </title> <item>¤</title>", {"title": "a < b ]<] </title> <item>"}),
        ("\n¤<title>a¤</title>\n\n¤<days> 3 ¤</days>\n", {"title": "a", "days": 3}),
        ("¤<other>¤<item>1¤</item>¤<item>b¤</item>¤</other>", {"other": [1, "b"]}),
        ("¤<other>¤<k>¤<l>True¤</l>¤</k>¤</other>", {"other": {"k": {"l": True}}}),
        ("¤<with blank>x¤</with blank>", {"with blank": "x"}),
    ],
)
def test_elements_are_the_values_that_the_schema_asks_for(text: str, arguments: dict[str, Any]) -> None:
    assert said(inside(text)) == [("plan", json.dumps(arguments))]


def test_what_may_be_a_string_is_one_whatever_it_holds() -> None:
    label = {"label": f"{TOKEN}<text>hi{TOKEN}</text>"}
    assert said(inside("¤<label>¤<text>hi¤</text>¤</label>")) == [("plan", json.dumps(label))]


CASES: dict[str, tuple[str, list[Outcome]]] = {
    "JSON for an array": (inside("¤<tags>['a', \"b\"]¤</tags>"), [("plan", '{"tags": ["a", "b"]}')]),
    "no opener of the first argument": (
        inside("¤a b¤</title>¤<days>3¤</days>"),
        [("plan", '{"title": "a b", "days": 3}')],
    ),
    "no closer of a plain value": (inside("¤<title>a¤<days>3¤</days>"), [("plan", '{"title": "a", "days": 3}')]),
    "no closer of the last value": (inside("¤<title>a"), [("plan", '{"title": "a"}')]),
    "no closer of an empty list": (
        inside("¤<stops>¤<item>¤<town>Rom¤</town>¤<notes>¤</item>¤</stops>"),
        [("plan", '{"stops": [{"town": "Rom", "notes": []}]}')],
    ),
    "an argument several times": (inside("¤<tags>a¤</tags>¤<tags>b¤</tags>"), [("plan", '{"tags": ["a", "b"]}')]),
    "a plain argument twice": (inside("¤<title>a¤</title>¤<title>b¤</title>"), [("plan", '{"title": "b"}')]),
    "names as attributes": (inside('¤<parameter name="title">a¤</parameter>'), [("plan", '{"title": "a"}')]),
    "an empty element": (inside("¤<title>a¤</title>¤<tags/>"), [("plan", '{"title": "a", "tags": []}')]),
    "no closer of the call": (
        '¤<tool_call>\n¤<invoke name="plan">¤<title>a¤</title>\n¤<invoke name="clock">¤</invoke>¤</tool_call>',
        [("plan", '{"title": "a"}'), ("clock", "{}")],
    ),
    "only the wrapper is closed": (
        '¤<tool_call>\n¤<invoke name="plan">¤<title>a¤</title>¤</tool_call>x',
        [("plan", '{"title": "a"}'), "text: x"],
    ),
    "no wrapper": ('Hi. ¤<invoke name="clock">¤</invoke>\n\n  Bye.', ["text: Hi.", ("clock", "{}"), "text:   Bye."]),
    "no closing of the wrapper": (
        '¤<tool_call>¤<invoke name="clock">¤</invoke>\nBye.',
        [("clock", "{}"), "text: Bye."],
    ),
    "everything closed twice": (
        '¤<tool_call>\n¤<invoke name="clock">¤</invoke>¤</invoke>\n¤</tool_call>¤</tool_call>\nx',
        [("clock", "{}"), "text: x"],
    ),
    "wrapper twice": ('¤<tool_call>¤<tool_call>¤<invoke name="clock">¤</invoke>¤</tool_call>', [("clock", "{}")]),
    "no token before a call": (
        '¤<tool_call>\n<invoke name="clock">¤</invoke>\n</tool_call>x',
        [("clock", "{}"), "text: x"],
    ),
    "JSON": ('¤<tool_call>\n{"name": "clock"}\n¤</tool_call>x', [("clock", "{}"), "text: x"]),
    "text among the arguments": (inside("¤<title>a¤</title> and so"), ["bad: plan"]),
    "no call": ("¤<tool_call>\nclock()\n¤</tool_call>\nx", ["bad: ", "text: clock()x"]),
    "nothing in it": ("¤<tool_call>¤</tool_call>x", ["bad: ", "text: x"]),
    "no name": ("¤<tool_call>¤<title>a¤</title>¤</tool_call>", ["bad: "]),
    "the token alone": ("a ¤ b ¤</title> c ¤<b>d ¤</invoke>", ["text: a b </title> c <b>d </invoke>"]),
    "in a thought": ('<mm:think>Hm.¤<tool_call>¤<invoke name="clock">¤</invoke>', ["thought: Hm.", ("clock", "{}")]),
}


@pytest.mark.parametrize("case", CASES)
def test_m3_is_read_however_it_writes(case: str) -> None:
    raw, expected = CASES[case]
    assert said(raw) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('¤<tool_call>\n¤<invoke name="plan">¤<title>a', ["bad: plan"]),
        ('¤<tool_call>\n¤<invoke name="plan">¤<title>a¤</title>', ["bad: plan"]),
        ('¤<tool_call>\n¤<invoke name="plan">¤<title>a¤</title>¤</', [("plan", '{"title": "a"}')]),
        ('¤<tool_call>\n¤<invoke name="plan">¤<tags>¤<item>a¤</item>¤</', ["bad: plan"]),
        ("¤<tool_call>", ["bad: "]),
        ("¤<tool_", ["bad: "]),
    ],
)
def test_a_call_that_is_cut_off_is_whole_or_bad(text: str, expected: list[Outcome]) -> None:
    assert said(text) == expected


def test_elements_without_end_are_no_trouble() -> None:
    raw = f'{TOKEN}<tool_call>{TOKEN}<invoke name="plan">' + f"{TOKEN}<a>" * 3000 + f"{TOKEN}</invoke>"
    (call,) = parse(raw, dialect="minimax-m3").parts
    assert isinstance(call, ToolCall)
    assert call.arguments.startswith('{"a": {"a": ')


JSON = st.recursive(
    st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: st.lists(inner, min_size=1, max_size=3) | st.dictionaries(st.sampled_from("klm"), inner, min_size=1),
    max_leaves=8,
)


def schema_of(value: Any) -> dict[str, Any]:
    match value:
        case dict():
            return {"type": "object", "properties": {key: schema_of(item) for key, item in value.items()}}
        case list():
            schemas = [schema_of(item) for item in value]
            return {"type": "array", "items": schemas[0] if all(one == schemas[0] for one in schemas) else {}}
        case bool():
            return {"type": "boolean"}
        case int():
            return {"type": "integer"}
    return {"type": "string"}


def plain(value: Any) -> bool:
    """Whether a value means the same without a schema, where one is missing."""
    match value:
        case dict():
            return all(map(plain, value.values()))
        case list():
            alike = all(schema_of(item) == schema_of(value[0]) for item in value)
            return alike and all(map(plain, value))
    return not isinstance(value, str) or "]<]" not in value


@settings(max_examples=examples(40), deadline=None)
@given(st.dictionaries(st.sampled_from(["a", "b", "item"]), JSON.filter(plain), max_size=3), st.integers(0, 400))
def test_nested_values_come_back_as_the_template_prints_them(arguments: dict[str, Any], at: int) -> None:
    tool = ToolSpec("t", "", schema_of(arguments))
    raw = f"Hi{m3('t', arguments)}Bye"
    spoken = dialect("minimax-m3")
    (call,) = parse(raw, dialect=spoken, tools=[tool]).calls
    assert json.loads(call.arguments) == arguments
    assert events_of([raw[:at], raw[at:]], spoken, tools=[tool]) == events_of(list(raw), spoken, tools=[tool])


def test_a_call_is_spelt_as_the_template_prints_it() -> None:
    def flat(parts: tuple[Any, ...]) -> list[Any]:
        return [item for part in parts for item in (flat(part.parts) if isinstance(part, Maybe) else [part])]

    parts = flat(spelled("¤")(PLAN))
    assert parts[:4] == ['¤<invoke name="plan">', "¤<title>", Until("¤</title>"), "¤<days>"]
    assert next(parts[at + 1] for at, part in enumerate(parts) if part == "¤<nights>") == Json(
        {"type": "integer", "$defs": PLAN.parameters["$defs"]}
    )
    assert parts.count("¤<town>") > 1
    assert parts[-1] == "¤</invoke>\n"


def test_choices_and_least_numbers_of_items_are_spelt() -> None:
    schema = {
        "properties": {
            "size": {"enum": ["s", 3]},
            "pair": {"type": "array", "items": {"type": "string"}, "minItems": 2, "maxItems": 2},
        },
        "required": ["size", "pair"],
    }
    size, pair = OneOf((("s",), ("3",))), ("¤<item>", Until("¤</item>"))
    parts = ("¤<size>", size, "¤</size>", "¤<pair>", *pair, *pair, "¤</pair>")
    assert spelled("¤")(ToolSpec("t", "", schema)) == ('¤<invoke name="t">', *parts, "¤</invoke>\n")
