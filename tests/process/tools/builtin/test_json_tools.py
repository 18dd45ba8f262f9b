"""The tests of `tests/unit/tools/builtin/test_json_tools.py` that start programs."""

import json
from typing import Any

import pytest
from tests.unit.tools.builtin.test_json_tools import call

from shepherd.tools.base import ToolError
from shepherd.tools.builtin.json_tools import json_format, json_parse, json_path, json_validate


@pytest.mark.grid(0.2)
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
    found = (await call(json_path, json=f"[{text}]", path="$[0]")).content
    assert found.replace("\n ", "").replace("\n", "") == f"[{text}]"  # long ones have a line of their own


async def test_a_key_that_comes_twice_is_told() -> None:
    text = '{"a": 1, "b": {"c": 1, "c": 2}, "a": 3}'
    note = '\n(the key "c" comes twice in one object; the last one counts)\n(the key "a" comes twice in one object; the last one counts)'  # fmt: skip  # noqa: E501
    assert (await call(json_parse, json=text)).content == '{"a": 3, "b": {"c": 2}}' + note
    assert (await call(json_format, json=text, indent=0)).content == '{"a": 3, "b": {"c": 2}}' + note
    assert (await call(json_path, json=text, path="$.a")).content == "[3]" + note
    verdict = json.loads((await call(json_validate, json=text, schema={"type": "object"})).content)
    assert not verdict["valid"]
    assert 'the key "c" comes twice' in verdict["errors"][0]


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


@pytest.mark.grid(0.2)
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
async def test_every_error_is_told_with_its_path(value: str, schema: Any, errors: list[str] | None) -> None:
    for said in (schema, json.dumps(schema)):
        result = await call(json_validate, json=value, schema=said)
        assert result.success
        verdict = json.loads(result.content)
        if errors is None:
            (error,) = verdict["errors"]
            assert len(error) < 350
            assert error.endswith("xxx' is not of type 'integer'")
        elif schema == {"multipleOf": 0.1}:
            assert isinstance(verdict["valid"], bool)
        else:
            assert sorted(verdict["errors"]) == sorted(errors)
            assert verdict["valid"] is not errors


async def test_many_errors_are_counted() -> None:
    result = await call(json_validate, json=json.dumps(["x"] * 80), schema={"items": {"type": "integer"}})
    errors = json.loads(result.content)["errors"]
    assert len(errors) == 51
    assert errors[-1] == "and 30 more errors"


@pytest.mark.grid(0.2)
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
        ({"$ref": "#"}, "nested too deeply"),
        ([1], "schema: it must be an object, not a list of 1"),
        ('{"type": ', "schema: line 1, column 10"),
    ],
)
async def test_a_schema_that_cannot_be_used_is_a_sentence(schema: Any, says: str) -> None:
    with pytest.raises(ToolError) as refused:
        await call(json_validate, json="1", schema=schema)
    assert says in refused.value.message


STORE = """{"store": {"book": [
    {"title": "One", "price": 8.50, "tags": ["x"]},
    {"title": "Two", "price": 20, "isbn": "1-2"},
    {"title": "Three", "price": 8.99}], "the shop": {"open": true}}}"""


@pytest.mark.grid(0.25)
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
async def test_a_path_finds_a_list(path: str, found: str) -> None:
    assert (await call(json_path, json=STORE, path=path)).content == found


async def test_the_whole_value_is_a_match_too() -> None:
    assert (await call(json_path, json="5", path="$")).content == "[5]"
    assert (await call(json_path, json="5", path="")).content == "[5]"
    assert (await call(json_path, json={"a": [1]}, path="a")).summary == "1 match"  # an object is as good as its text


@pytest.mark.grid(0.2)
@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("$[", "path: unexpected end of query of '$['"),
        ("$.a[?nope(@)]", "path: "),
        ("$[?search(@, '(')]", "missing )"),
        ("$[?" + "(" * 5_000 + "]", "recursion"),
        ("$[?__import__('os').system('id')]", "path: "),
    ],
)
async def test_a_wrong_path_is_a_sentence(path: str, says: str) -> None:
    with pytest.raises(ToolError) as refused:
        await call(json_path, json='["a"]', path=path)
    assert says in refused.value.message
    assert len(refused.value.message) < 500
