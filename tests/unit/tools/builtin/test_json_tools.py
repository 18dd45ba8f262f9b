"""The JSON tools: what they read, what they refuse, and what they leave as it is."""

import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shepherd.tools.arguments import coerce_arguments
from shepherd.tools.base import Result, ToolError
from shepherd.tools.builtin.json_tools import (
    json_format,
    json_parse,
    json_path,
    json_validate,
    matches,
    problems,
    read,
    rooted,
    write,
)
from shepherd.tools.tool import Tool, ToolContext


async def call(tool: Tool, **arguments: Any) -> Result:
    return await tool.run(ToolContext(), coerce_arguments(arguments, tool))


def checked(text: str, schema: Any) -> list[str]:
    """The errors that `json_validate` tells, without the child that looks for them."""
    return problems([write(read(text)[0]), schema if isinstance(schema, str) else write(schema)])


def taken(text: str, path: str) -> dict[str, Any]:
    """What `json_path` finds, without its child."""
    return matches([write(read(text)[0]), rooted(path)])


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@settings(deadline=None)
@given(json_values, st.integers(0, 16))
def test_any_value_goes_round(value: Any, indent: int) -> None:
    text = write(value, indent)
    assert json.loads(text) == value
    assert write(read(text)[0], indent) == text
    text.encode()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "the JSON text is empty"),
        (" \n", "the JSON text is empty"),
        ('{"a": 1,\n "b": ]}', "line 2, column 7: expecting value at ']}'"),
        ('{"a": 1,\n "b": [1,]}', "line 2, column 10: expecting value; there is one comma too many"),
        ("{'a': 1}", "line 1, column 2: expecting property name enclosed in double quotes; strings have double quotes"),
        ('{"a": 1', "line 1, column 8: expecting ',' delimiter; the text ends here"),
        ("[1] [2]", "line 1, column 5: extra data at '[2]'"),
        ("[1, // one\n2]", "line 1, column 5: expecting value; JSON has no comments"),
        ('["a\nb"]', "line 1, column 4: invalid control character"),
        ('"abc', "line 1, column 1: unterminated string at '\"abc'"),
        ("[1,\n NaN]", "line 2, column 2: NaN is not JSON; use null or text"),
        ("[-Infinity]", "line 1, column 2: -Infinity is not JSON"),
        ("[" * 100_000, "line 1, column 201: nested more than 200 levels deep"),
        ('{"a":' * 100_000 + "1" + "}" * 100_000, "nested more than 200 levels deep"),
        ("\n" + "[" * 300 + "]" * 300, "line 2, column 201: nested"),
        ('"' + '\\"' * 200_000 + "\\", "unterminated string"),
    ],
)
async def test_what_is_not_json_is_refused_with_its_place(text: str, says: str) -> None:
    for tool, arguments in ((json_parse, {}), (json_format, {}), (json_path, {"path": "$"})):
        with pytest.raises(ToolError) as refused:
            await call(tool, json=text, **arguments)
        assert says in refused.value.message
        assert " at at " not in f"{refused.value.message} "
        assert not refused.value.message.endswith(" at"), "the place is in front"
    result = json.loads((await call(json_validate, json=text)).content)
    assert result["valid"] is False
    assert says in result["errors"][0]


async def test_strings_may_look_like_anything() -> None:
    text = '["NaN", "[[[", "\\"NaN", "\\\\"]'
    assert (await call(json_parse, json=text)).content == text
    assert (await call(json_parse, json="\ufeff[1]")).content == "[1]"


async def test_json_is_printed_neatly() -> None:
    text = '{"b":[1,{"c":"é"}],"a":{},"e":[]}'
    neat = '{\n  "b": [\n    1,\n    {\n      "c": "é"\n    }\n  ],\n  "a": {},\n  "e": []\n}'
    assert (await call(json_format, json=text)).content == neat
    assert (await call(json_format, data=json.loads(text))).content == neat
    assert (await call(json_format, json=text, indent=0)).content == '{"b": [1, {"c": "é"}], "a": {}, "e": []}'
    assert (await call(json_format, data='a "quoted" text')).content == '"a \\"quoted\\" text"'
    assert (
        await call(json_parse, json=json.dumps(["x" * 300] * 2))
    ).content == f'[\n "{"x" * 300}",\n "{"x" * 300}"\n]'


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"json": "[1]", "indent": 17}, "indent must be 0 (all on one line) to 16, not 17"),
        ({"json": "[1]", "indent": -1}, "indent must be"),
        ({}, "nothing to print: give json (a text) or data (a value)"),
        ({"data": math.inf}, "inf is not JSON"),
        ({"data": 10**5000}, "more than 4000 digits"),
    ],
)
async def test_what_cannot_be_printed_is_a_sentence(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(ToolError) as refused:
        await json_format.run(ToolContext(), arguments)
    assert says in refused.value.message


@pytest.mark.parametrize(
    "text",
    [
        "123456789012345678901234567890",
        "-" + "9" * 10_000,
        "1.10",
        "1E400",
        "-0.0",
        "1e-5",
        '"\\ud800"',
        '{"ü": ["\\n", true, null, {}, []]}',
    ],
)
async def test_a_value_comes_out_as_it_went_in(text: str) -> None:
    assert (await call(json_parse, json=text)).content == text
    assert (await call(json_format, json=text, indent=0)).content == text
    found = taken(f"[{text}]", "$[0]")["text"]
    assert found.replace("\n ", "").replace("\n", "") == f"[{text}]"  # long ones have a line of their own


async def test_a_key_that_comes_twice_is_told() -> None:
    text = '{"a": 1, "b": {"c": 1, "c": 2}, "a": 3}'
    note = '\n(the key "c" comes twice in one object; the last one counts)\n(the key "a" comes twice in one object; the last one counts)'  # fmt: skip  # noqa: E501
    assert (await call(json_parse, json=text)).content == '{"a": 3, "b": {"c": 2}}' + note
    assert (await call(json_format, json=text, indent=0)).content == '{"a": 3, "b": {"c": 2}}' + note
    verdict = json.loads((await call(json_validate, json=text, schema={"type": "object"})).content)
    assert not verdict["valid"]
    assert 'the key "c" comes twice' in verdict["errors"][0]


# -- schemas ----------------------------------------------------------------------------------------------------------


PERSON = {
    "type": "object",
    "required": ["name", "age"],
    "properties": {
        "name": {"type": "string", "minLength": 2},
        "age": {"type": "integer"},
        "mail": {"type": "string", "format": "email"},
        "tags": {"type": "array", "items": {"$ref": "#/$defs/tag"}},
    },
    "additionalProperties": False,
    "$defs": {"tag": {"enum": ["a", "b"]}},
}


@pytest.mark.parametrize(
    ("value", "schema", "errors"),
    [
        ('{"name": "Ann", "age": 12345678901234567890}', PERSON, []),
        ('{"name": "Ann", "age": 5.0, "tags": ["a"]}', PERSON, []),
        (
            '{"name": "A", "tags": ["a", "z"], "x": 1, "mail": "no"}',
            PERSON,
            [
                "$: 'age' is a required property",
                "$: Additional properties are not allowed ('x' was unexpected)",
                "$.mail: 'no' is not a 'email'",
                "$.name: 'A' is too short",
                "$.tags[1]: 'z' is not one of ['a', 'b']",
            ],
        ),
        ("1", True, []),
        ("1", False, ["$: False schema does not allow 1"]),
        (
            "{}",
            {"$schema": "http://json-schema.org/draft-04/schema#", "required": ["a"]},
            ["$: 'a' is a required property"],
        ),
        ("{}", {"$ref": "https://json-schema.org/draft/2020-12/schema"}, []),
        ("0.3", {"multipleOf": 0.1}, []),
        ('"' + "x" * 1000 + '"', {"type": "integer"}, None),
    ],
)
def test_every_error_is_told_with_its_path(value: str, schema: Any, errors: list[str] | None) -> None:
    for said in (schema, json.dumps(schema)):
        found = checked(value, said)
        if errors is None:
            (error,) = found
            assert len(error) < 350
            assert error.endswith("xxx' is not of type 'integer'")
        elif schema == {"multipleOf": 0.1}:
            assert isinstance(found, list)
        else:
            assert sorted(found) == sorted(errors)


def test_many_errors_are_counted() -> None:
    errors = checked(json.dumps(["x"] * 80), {"items": {"type": "integer"}})
    assert len(errors) == 51
    assert errors[-1] == "and 30 more errors"


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({"type": "strin"}, "schema: $.type: 'strin' is not valid"),
        ({"pattern": "("}, "schema: $.pattern: '(' is not a 'regex'"),
        (
            {"$ref": "http://127.0.0.1:9/x.json"},
            "'http://127.0.0.1:9/x.json', which is not in the schema; other documents are not",
        ),
        ({"$ref": "file:///etc/passwd"}, "'file:///etc/passwd', which is not in the schema"),
        ({"$ref": "#/$defs/no"}, "'/$defs/no', which is not in the schema"),
        ([1], "schema: it must be an object, not a list of 1"),
    ],
)
def test_a_schema_that_cannot_be_used_is_a_sentence(schema: Any, says: str) -> None:
    with pytest.raises(ToolError) as refused:
        checked("1", schema)
    assert says in refused.value.message


async def test_a_schema_that_is_no_json_is_refused_with_its_place() -> None:
    with pytest.raises(ToolError) as refused:
        await call(json_validate, json="1", schema='{"type": ')
    assert "schema: line 1, column 10" in refused.value.message


# -- paths ------------------------------------------------------------------------------------------------------------


STORE = """{"store": {"book": [
    {"title": "One", "price": 8.50, "tags": ["x"]},
    {"title": "Two", "price": 20, "isbn": "1-2"},
    {"title": "Three", "price": 8.99}], "the shop": {"open": true}}}"""


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("$.store.book[0].title", '["One"]'),
        ("store.book[0].title", '["One"]'),
        (".store.book[-1].title", '["Three"]'),
        ("$.store.book[*].price", "[8.50, 20, 8.99]"),
        ("$..price", "[8.50, 20, 8.99]"),
        ("$.store.book[?(@.price < 10)].title", '["One", "Three"]'),
        ("$.store.book[?@.price == 8.50].title", '["One"]'),
        ("$.store.book[?@.isbn].title", '["Two"]'),
        ("$.store.book[?search(@.title, '^T')].title", '["Two", "Three"]'),
        ("$.store['the shop'].open", "[true]"),
        ("$.store.book[0:2].title", '["One", "Two"]'),
        ("$.nothing", "[]"),
        ("$.store.book[99]", "[]"),
        ("$.store.book[0].tags", '[["x"]]'),
    ],
)
def test_a_path_finds_a_list(path: str, found: str) -> None:
    assert taken(STORE, path)["text"] == found


def test_the_whole_value_is_a_match_too() -> None:
    assert taken("5", "$")["text"] == "[5]"
    assert taken("5", "")["text"] == "[5]"


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("$[", "path: unexpected end of query of '$['"),
        ("$.a[?nope(@)]", "path: "),
        ("$[?__import__('os').system('id')]", "path: "),
    ],
)
def test_a_wrong_path_is_a_sentence(path: str, says: str) -> None:
    with pytest.raises(ToolError) as refused:
        taken('["a"]', path)
    assert says in refused.value.message
    assert len(refused.value.message) < 500


# -- how they are offered ---------------------------------------------------------------------------------------------


def test_the_tools_have_the_names_that_prompts_use() -> None:
    aliases = {tool.name: tool.aliases for tool in (json_parse, json_validate, json_format, json_path)}
    assert "parse_json" in aliases["json_parse"]
    assert "serialize_json" in aliases["json_format"]
    assert "query_json" in aliases["json_path"]
    for tool in (json_parse, json_validate, json_format, json_path):
        assert (tool.category, tool.effect) == ("json", "read")
        assert len(json.dumps(tool.parameters)) < 300
