"""The arguments of a call: read, named, brought to their types, and refused in a sentence that helps."""

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypedDict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import examples

from shepherd.tools.arguments import coerce_arguments, read_arguments
from shepherd.tools.base import Result, ToolError
from shepherd.tools.signature import tool
from shepherd.tools.tool import Tool, ToolContext


class Edit(TypedDict):
    old: str
    count: int


@tool(argument_aliases={"file": "path", "description": ""})
def everything(  # noqa: PLR0917
    path: str,
    n: Annotated[int, "how many", {"minimum": 1, "maximum": 9}] = 1,
    ratio: float = 0.5,
    deep: bool = False,
    mode: Literal["text", "Bytes"] = "text",
    names: list[str] | None = None,
    headers: dict[str, str] | None = None,
    body: str | dict[str, Any] | None = None,
    edits: list[Edit] | None = None,
    anything: Any = None,
    maybe: int | None = 3,
) -> None: ...


def made(parameters: Mapping[str, Any]) -> Tool:
    async def run(context: ToolContext, arguments: Mapping[str, Any]) -> Result:
        return Result()

    return Tool("theirs", "", parameters, run)


@pytest.mark.parametrize(
    ("sent", "taken"),
    [
        ({}, {}),
        ({"n": 5}, {"n": 5}),
        ({"n": "5"}, {"n": 5}),
        ({"n": " 5.0 "}, {"n": 5}),
        ({"n": 5.0}, {"n": 5}),
        ({"ratio": "0.25"}, {"ratio": 0.25}),
        ({"ratio": "1e-2"}, {"ratio": 0.01}),
        ({"ratio": "0"}, {"ratio": 0}),
        ({"ratio": 2}, {"ratio": 2}),
        ({"deep": "true"}, {"deep": True}),
        ({"deep": "No"}, {"deep": False}),
        ({"deep": 1}, {"deep": True}),
        ({"mode": "TEXT"}, {"mode": "text"}),
        ({"mode": " bytes"}, {"mode": "Bytes"}),
        ({"path": 42}, {"path": "42"}),
        ({"path": True}, {"path": "true"}),
        ({"path": ["ä"]}, {"path": '["ä"]'}),
        ({"path": 2**70}, {"path": str(2**70)}),
        ({"names": '["a", "b"]'}, {"names": ["a", "b"]}),
        ({"names": "a,b"}, {"names": ["a,b"]}),
        ({"names": [1, None]}, None),
        ({"headers": '{"A": 1}'}, {"headers": {"A": "1"}}),
        ({"body": {"a": 1}}, {"body": {"a": 1}}),
        ({"body": "text"}, {"body": "text"}),
        ({"body": '{"a": 1}'}, {"body": '{"a": 1}'}),
        ({"body": 7}, {"body": "7"}),
        ({"edits": {"old": "a", "count": "2"}}, {"edits": [{"old": "a", "count": 2}]}),
        ({"edits": '[{"old": 1, "count": 2.0}]'}, {"edits": [{"old": "1", "count": 2}]}),
        ({"anything": None}, {"anything": None}),
        ({"anything": "5"}, {"anything": "5"}),
        ({"maybe": None}, {"maybe": None}),
        ({"maybe": "4"}, {"maybe": 4}),
        ({"n": None, "names": None, "headers": None}, {}),
        ({"extra": None, "more": "", "most": {}, "": []}, {}),
        ({"description": "why I call this"}, {}),
        ({"Names": ["a"], "RATIO": 1}, {"names": ["a"], "ratio": 1}),
    ],
)
def test_what_models_send_is_brought_to_what_the_tool_takes(sent: dict[str, Any], taken: dict[str, Any] | None) -> None:
    arguments = {"path": "p"} | sent
    if taken is None:
        with pytest.raises(ToolError):
            read_arguments(json.dumps(arguments), everything)
    else:
        expected = {"path": "p"} | taken
        got = read_arguments(json.dumps(arguments), everything)
        assert got == expected
        assert {key: type(value) for key, value in got.items()} == {key: type(v) for key, v in expected.items()}


@pytest.mark.parametrize(
    "text",
    [
        '{"file": "p"}',
        '{"FILE": "p"}',
        '{"Path": "p"}',
        '{"path": "p", "file": "q"}',
        '{"file": "q", "path": "p"}',
        '{"path": null, "file": "p"}',
        '{"arguments": {"path": "p"}}',
        '{"parameters": "{\\"path\\": \\"p\\"}"}',
        '"{\\"path\\": \\"p\\"}"',
        ' {"path": "p"}\n',
    ],
)
def test_a_parameter_is_found_under_the_names_that_models_use(text: str) -> None:
    assert read_arguments(text, everything) == {"path": "p"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "the argument 'path' is missing"),
        ("{}", "the argument 'path' is missing"),
        ('{"path": null}', "the argument 'path' is missing"),
        ("[1]", "the arguments must be one JSON object, with the names of the parameters as keys"),
        ('"."', "the arguments are not JSON"),
        ("null", "the arguments must be one JSON object"),
        ('{"path": ', "the arguments are not JSON"),
        ('{"path": "p", "n": NaN}', "NaN is not a number"),
        ('{"path": "p", "ratio": 1e999}', "1e999 is not a number"),
        ('{"path": "p", "ratio": -Infinity}', "-Infinity is not a number"),
        ('{"path": "p", "n": "many"}', "the argument 'n' must be a whole number, not 'many'"),
        ('{"path": "p", "n": 1.5}', "the argument 'n' must be a whole number, not 1.5"),
        ('{"path": "p", "n": true}', "the argument 'n' must be a whole number, not true"),
        ('{"path": "p", "n": "0"}', "the argument 'n' must be at least 1, not 0"),
        ('{"path": "p", "n": 10}', "the argument 'n' must be at most 9, not 10"),
        ('{"path": "p", "ratio": "nan"}', "the argument 'ratio' must be a number, not 'nan'"),
        ('{"path": "p", "deep": "perhaps"}', "the argument 'deep' must be true or false, not 'perhaps'"),
        ('{"path": "p", "mode": "hex"}', "the argument 'mode' must be one of 'text', 'Bytes', not 'hex'"),
        ('{"path": "p", "headers": [1]}', "the argument 'headers' must be an object, not [1]"),
        ('{"path": "p", "maybe": "x"}', "the argument 'maybe' must be a whole number or null, not 'x'"),
        ('{"path": "p", "edits": [{"count": 1}]}', "the argument 'edits[0].old' is missing"),
        ('{"path": "p", "edits": [{"old": "a", "count": "b"}]}', "'edits[0].count' must be a whole number"),
        ('{"path": "p", "recursive": true}', "there is no argument 'recursive'; everything takes: path, n, ratio"),
        ('{"path": "p", "n": "' + "9" * 500 + '"}', "must be a whole number, not '999"),
        ('{"path": "\\ud83d"}', "the argument 'path' contains half of a character"),
        ('{"path": "p", "headers": {"a": "\\udc00"}}', "the argument 'headers' contains half of a character"),
        ('{"n": 0, "deep": 7}', "'path' is missing; the argument 'deep' must be true or false, not 7"),
        ('{"path": "p", "anything": ' + "[" * 100_000 + "]" * 100_000 + "}", "nested too deeply"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_in_a_sentence_that_names_the_argument(text: str, says: str) -> None:
    with pytest.raises(ToolError) as refused:
        read_arguments(text, everything)
    assert says in refused.value.message
    assert len(refused.value.message) < 500
    refused.value.message.encode()


def test_one_sentence_names_all_that_is_missing_once() -> None:
    @tool
    def two(a: Annotated[str, "the first"], b: str) -> None: ...

    with pytest.raises(ToolError, match=r"^the argument 'a' is missing: the first; the argument 'b' is missing$"):
        read_arguments("{}", two)


@pytest.mark.parametrize(
    ("schema", "sent", "taken"),
    [
        ({}, {"a": 1}, {"a": 1}),
        ({"type": "object"}, {"a": 1}, {"a": 1}),
        ({"type": "object", "properties": {}}, {"a": 1}, {}),
        ({"type": "object", "additionalProperties": False}, {"a": 1}, {}),
        ({"properties": {"a": {}}, "additionalProperties": True}, {"a": 1, "b": 2}, {"a": 1, "b": 2}),
        ({"properties": {"a": {}}, "additionalProperties": {"type": "integer"}}, {"b": "2"}, {"b": 2}),
        ({"properties": {"max_items": {"type": "integer"}}}, {"maxItems": "2"}, {"max_items": 2}),
        ({"properties": {"input": {"type": "object"}}}, {"input": {"x": 1}}, {"input": {"x": 1}}),
        ({"$defs": {"N": {"type": "integer"}}, "properties": {"a": {"$ref": "#/$defs/N"}}}, {"a": "1"}, {"a": 1}),
        ({"$defs": {"N": {"type": "integer"}}, "properties": {"a": {"anyOf": [{"$ref": "#/$defs/N"}]}}},
         {"a": "1"}, {"a": 1}),
        ({"properties": {"a": {"type": ["integer", "null"]}}}, {"a": None}, {"a": None}),
        ({"properties": {"a": {"enum": [None, 1]}}}, {"a": None}, {"a": None}),
        ({"properties": {"a": {"const": 1}}}, {"a": 1}, {"a": 1}),
        ({"properties": {"a": {"type": "string", "pattern": "^(x+x+)+y$"}}}, {"a": "x" * 40}, {"a": "x" * 40}),
    ],
)  # fmt: skip
def test_a_schema_of_somebody_else_is_taken_as_it_is(
    schema: dict[str, Any], sent: dict[str, Any], taken: dict[str, Any]
) -> None:
    assert coerce_arguments(sent, made(schema)) == taken


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "strange"},
        {"type": 7, "properties": 7, "required": 7},
        {"properties": {"a": 5}},
        {"properties": {"a": {"$ref": "http://localhost:1/schema.json"}}},
        {"properties": {"a": {"$ref": "#/nowhere"}}},
        {"properties": {"a": {"$ref": "#/properties/a"}}},
        {"properties": {"a": {"anyOf": [{"$ref": "#/properties/a"}, {"type": "array", "items": {"$ref": "#"}}]}}},
        {"properties": {"a": {"anyOf": "x", "oneOf": [], "enum": 3, "items": 3}}},
        {"$schema": 3, "properties": {"a": True}},
        {"properties": {"a": {"enum": {"x": 1}}}},
        {"required": 5, "properties": {"a": {"minimum": "x", "type": ["string", 5]}}},
        {"$schema": "http://json-schema.org/draft-07/schema#", "properties": {"a": {"multipleOf": 0}}},
    ],
)
def test_a_schema_that_makes_no_sense_refuses_nothing_and_breaks_nothing(schema: dict[str, Any]) -> None:
    values: tuple[Any, ...] = ("1", {"a": [{}]}, [[["x"]]], None, 2**2000)
    for value in values:
        try:
            assert isinstance(coerce_arguments({"a": value}, made(schema)), dict)
        except ToolError as refused:
            assert "nested too deeply" in refused.message  # noqa: PT017 - it may or may not be raised


def test_alternatives_that_contain_themselves_do_not_take_for_ever() -> None:
    anything = {"anyOf": [{"type": "array", "items": {"$ref": "#/$defs/V"}} for _ in range(4)]
                + [{"type": "object", "additionalProperties": {"$ref": "#/$defs/V"}} for _ in range(4)]}  # fmt: skip
    value: Any = 7  # which is none of them
    for _ in range(30):
        value = [value]
    schema = {"$defs": {"V": anything}, "properties": {"a": {"$ref": "#/$defs/V"}}}
    assert coerce_arguments({"a": value}, made(schema)) == {"a": value}  # it is left to its server to see that
    with pytest.raises(ToolError, match="'a' must be a list or an object"):
        coerce_arguments({"a": 7}, made(schema))


def test_null_is_asked_of_alternatives_that_contain_themselves_only_once() -> None:
    twice = {"anyOf": [{"$ref": "#/$defs/V"}, {"$ref": "#/$defs/V"}, {"type": "string"}]}
    assert (
        coerce_arguments({"a": None}, made({"$defs": {"V": twice}, "properties": {"a": {"$ref": "#/$defs/V"}}})) == {}
    )


any_text = st.text(st.characters(exclude_categories=[]))  # halves of characters, too
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | any_text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(any_text, inner, max_size=3),
    max_leaves=8,
)
names = st.sampled_from([*everything.parameters["properties"], "file", "extra", "arguments"])


@settings(deadline=None, max_examples=examples(300))
@given(sent=st.dictionaries(names, json_values))
def test_arguments_are_such_as_the_schema_allows_or_refused_in_a_sentence(sent: dict[str, Any]) -> None:
    try:
        taken = read_arguments(json.dumps(sent), everything)
    except ToolError as refused:
        refused.message.encode()
    else:
        assert set(taken) <= set(everything.parameters["properties"])
        assert coerce_arguments(taken, everything) == taken  # what fits stays as it is
        json.dumps(taken, ensure_ascii=False, allow_nan=False).encode()


@settings(deadline=None, max_examples=examples(200))
@given(text=any_text)
def test_any_text_at_all_is_answered(text: str) -> None:
    try:
        assert isinstance(read_arguments(text, everything), dict)
    except ToolError as refused:
        refused.message.encode(errors="strict")
