"""What raw parameter text means, by the schema of its tool."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import examples

from shepherd.core import ToolSpec
from shepherd.dialects.parse.values import argument, find_items, find_member, find_tool, kinds, names, object_text

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "color": {"enum": ["red", "blue"]},
        "count": {"type": "integer"},
        "ratio": {"type": "number"},
        "flag": {"type": "boolean"},
        "list": {"type": "array", "items": {"type": "integer"}},
        "style": {"type": "object"},
        "maybe": {"type": ["string", "null"]},
        "limit": {"type": ["null", "integer"]},
        "either": {"anyOf": [{"type": "string"}, {"type": "object"}]},
        "level": {"enum": [1, 2, 3]},
        "point": {"$ref": "#/$defs/point"},
        "loop": {"$ref": "#/$defs/loop"},
        "old": {"type": "integer", "nullable": True},
        "all": {"allOf": [{"type": ["integer", "string"]}, {"type": "integer"}]},
        "shape": {"properties": {"x": {}}},
        "open": {},
        "odd": True,
    },
    "$defs": {"point": {"type": "object"}, "loop": {"$ref": "#/$defs/loop"}},
}
TOOL = ToolSpec("t", "", SCHEMA)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("text", "3", '"3"'),
        ("text", "null", '"null"'),
        ("text", ' "a"\n', '" \\"a\\"\\n"'),
        ("text", "", '""'),
        ("color", "red", '"red"'),
        ("color", "true", '"true"'),
        ("count", "3", "3"),
        ("count", " 12345678901234567890\n", "12345678901234567890"),
        ("count", "-0", "-0"),
        ("count", '"3"', "3"),
        ("count", "about 3", '"about 3"'),
        ("count", "", '""'),
        ("ratio", "1.10", "1.10"),
        ("ratio", "1e400", "1e400"),
        ("ratio", "NaN", '"NaN"'),
        ("ratio", ".5", "0.5"),
        ("flag", "True", "true"),
        ("flag", "FALSE", "false"),
        ("flag", "yes", '"yes"'),
        ("list", "[1, 2,]", "[1, 2]"),
        ("list", '"[1, 2]"', "[1, 2]"),
        ("list", "(1, 2)", "[1, 2]"),
        ("style", "{'color': 'red', 'on': True, 'x': None}", '{"color": "red", "on": true, "x": null}'),
        ("style", '{"id": 12345678901234567890,  "s": "\\u00e9"}', '{"id": 12345678901234567890,  "s": "\\u00e9"}'),
        ("style", '{"t": "a\nb"}', '{"t": "a\\nb"}'),
        ("style", '{"a": 1', '"{\\"a\\": 1"'),
        ("maybe", "null", "null"),
        ("maybe", "None", "null"),
        ("maybe", "none", '"none"'),
        ("maybe", "3", '"3"'),
        ("maybe", '"a"', '"\\"a\\""'),
        ("limit", "none", "null"),
        ("limit", "7", "7"),
        ("either", '{"a": 1}', '{"a": 1}'),
        ("either", "{'a': 1}", '{"a": 1}'),
        ("either", "2 dollars", '"2 dollars"'),
        ("either", "2", '"2"'),
        ("level", "2", "2"),
        ("point", '{"x": 1}', '{"x": 1}'),
        ("point", "x", '"x"'),
        ("loop", "3", "3"),
        ("old", "null", "null"),
        ("all", "3", "3"),
        ("shape", "{'x': 1}", '{"x": 1}'),
        ("open", "3", "3"),
        ("open", "True", "true"),
        ("open", "true story", '"true story"'),
        ("open", '"a"', '"\\"a\\""'),
        ("open", "1_000", '"1_000"'),
        ("odd", "[1]", "[1]"),
        ("missing", "3", "3"),
        ("missing", " a ", '" a "'),
        ("list", "[" * 100_000, json.dumps("[" * 100_000)),
    ],
)
def test_a_raw_text_is_the_value_that_the_schema_asks_for(name: str, text: str, value: str) -> None:
    assert argument(TOOL, name, text) == value


def test_a_parameter_of_an_undeclared_tool_is_json_or_a_string() -> None:
    assert object_text(None, [("a", "3"), ("b", "x"), ("a", '{"k": 1.0}')]) == '{"a": {"k": 1.0}, "b": "x"}'
    assert object_text(None, []) == "{}"
    assert object_text(TOOL, [('"', "é")]) == '{"\\"": "é"}'


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        ({"properties": {"a": {"const": 1.5}}}, {"number"}),
        ({"properties": {"a": {"type": "number"}}}, {"number", "integer"}),
        ({"properties": {"a": {"oneOf": [{"type": "string"}, {}]}}}, set()),
        ({"additionalProperties": {"type": "boolean"}}, {"boolean"}),
        ({"allOf": [{"properties": {"a": {"type": "array"}}}]}, {"array"}),
        ({"$ref": "#/definitions/x~1y", "definitions": {"x/y": {"properties": {"a": {"items": {}}}}}}, {"array"}),
        ({"properties": {"a": {"$ref": "#/nowhere"}}}, set()),
        ({"properties": {"a": {"$ref": "http://elsewhere"}}}, set()),
        ({"properties": ["a"], "anyOf": 3, "allOf": [None]}, set()),
        ({"properties": {"a": {"type": [{}, "null"], "enum": "x", "anyOf": {}}}}, {"null"}),
        ({"$ref": "#"}, set()),
    ],
)
def test_the_kinds_of_a_parameter_are_found_however_its_schema_is_put(schema: dict[str, Any], kind: set[str]) -> None:
    assert kinds(ToolSpec("t", "", schema), "a") == kind


def test_the_schemas_of_members_and_items_are_found_behind_references_and_alternatives() -> None:
    schema = {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/list"}], "$defs": {"list": {"items": {"type": "string"}}}}
    assert find_items(schema, schema) == {"type": "string"}
    assert find_items({"items": True}, {}) is None
    assert find_member({"oneOf": [{"properties": {"k": {"const": 1}}}]}, "k", {}) == {"const": 1}
    assert find_member(None, "k", {}) is None


def test_tools_and_their_parameters_are_found_by_name() -> None:
    assert find_tool([TOOL], "t") is TOOL
    assert find_tool([TOOL], "u") is None
    assert tuple(names(TOOL))[:2] == ("text", "color")
    assert names(None) == names(ToolSpec("t", "", {"properties": 3})) == ()


@settings(max_examples=examples(60), deadline=None)
@given(st.sampled_from([*SCHEMA["properties"], "missing"]), st.text() | st.from_regex(r"[-+\[{\"'0-9eE.}\]:, nulTrF]*"))
def test_every_text_is_some_json_value_and_a_string_is_itself(name: str, text: str) -> None:
    value = json.loads(argument(TOOL, name, text))
    allowed = kinds(TOOL, name)
    if isinstance(value, str) and (not allowed or "string" in allowed):
        assert value == text
    assert json.loads(argument(TOOL, "text", text)) == text


@settings(max_examples=examples(40), deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=9),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
        max_leaves=8,
    )
)
def test_a_value_that_is_no_string_comes_back_from_json_and_from_python(value: Any) -> None:
    name = "style" if isinstance(value, dict) else "list" if isinstance(value, list) else "open"
    if isinstance(value, str):
        return
    assert json.loads(argument(TOOL, name, json.dumps(value))) == value
    assert json.loads(argument(TOOL, name, repr(value))) == value
