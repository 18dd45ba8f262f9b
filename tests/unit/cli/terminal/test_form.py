"""The fields of an MCP server's form: its questions, and the answers that it accepts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shepherd.cli.terminal.form import Field, fields


def field(schema: dict[str, Any], *, required: bool = True) -> Field:
    found = fields({"type": "object", "properties": {"x": schema}, "required": ["x"] if required else []})
    assert len(found) == 1
    return found[0]


COLOURS = {"type": "string", "enum": ["r", "g"], "enumNames": ["Red", "Green"]}
TITLED = {"type": "string", "oneOf": [{"const": "r", "title": "Red"}, {"const": "g", "title": "Green"}]}
SEVERAL = {"type": "array", "items": {"anyOf": TITLED["oneOf"]}, "minItems": 1, "maxItems": 1}


@pytest.mark.parametrize(
    ("schema", "answer", "value"),
    [
        ({"type": "string"}, "  a b ", "a b"),
        ({}, "text", "text"),
        ({"type": "string", "minLength": 2, "maxLength": 3}, "日本", "日本"),
        ({"type": "string", "format": "email"}, "a@b.c", "a@b.c"),
        ({"type": "string", "format": "uri"}, "https://a.b/c?d", "https://a.b/c?d"),
        ({"type": "string", "format": "date"}, "2024-02-29", "2024-02-29"),
        ({"type": "string", "format": "date-time"}, "2024-02-29T12:00:00Z", "2024-02-29T12:00:00Z"),
        ({"type": "string", "format": "unheard-of"}, "x", "x"),
        ({"type": "integer", "minimum": 1, "maximum": 5}, "5", 5),
        ({"type": "integer"}, "-9007199254740993", -9007199254740993),
        ({"type": "number"}, "2.5", 2.5),
        ({"type": "number"}, "1e3", 1000.0),
        ({"type": "number"}, "7", 7),
        ({"type": ["integer", "null"]}, "7", 7),
        ({"type": "boolean"}, "Y", True),
        ({"type": "boolean"}, "false", False),
        (COLOURS, "2", "g"),
        (COLOURS, "red", "r"),
        (COLOURS, "r", "r"),
        (TITLED, "Green", "g"),
        (SEVERAL, " green ,", ["g"]),
        (SEVERAL | {"maxItems": 2}, "2, red, 1", ["g", "r"]),
        ({"type": "array", "items": {"type": "string", "enum": ["a", "b"]}}, "b,a", ["b", "a"]),
    ],
)
def test_an_answer_that_fits_becomes_the_value(schema: dict[str, Any], answer: str, value: Any) -> None:
    found = field(schema).read(answer)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("schema", "answer", "sentence"),
    [
        ({"type": "string"}, " ", "This needs an answer; Ctrl-D refuses the whole form."),
        ({"type": "string", "minLength": 3}, "ab", "'ab' is not text of at least 3 characters."),
        ({"type": "string", "maxLength": 1}, "ab", "'ab' is not text of at most 1 characters."),
        ({"type": "string", "minLength": 3, "maxLength": 3}, "ab", "'ab' is not text of exactly 3 characters."),
        ({"type": "string", "format": "email"}, "a b@c", "'a b@c' is not an e-mail address."),
        ({"type": "string", "format": "uri"}, "a.b", "'a.b' is not an address such as https://example.org."),
        ({"type": "string", "format": "uri"}, "http://[", "'http://[' is not an address such as https://example.org."),
        ({"type": "string", "format": "date"}, "2023-02-29", "'2023-02-29' is not a date such as 2026-01-31."),
        ({"type": "string", "format": "date"}, "20230228", "'20230228' is not a date such as 2026-01-31."),
        (
            {"type": "string", "format": "date-time"},
            "2023-02-28T10:00:00",
            "'2023-02-28T10:00:00' is not a time such as 2026-01-31T12:00:00Z.",
        ),
        ({"type": "integer", "minimum": 1, "maximum": 5}, "6", "'6' is not a whole number from 1 to 5."),
        ({"type": "integer"}, "1.5", "'1.5' is not a whole number."),
        ({"type": "integer"}, "1_0", "'1_0' is not a whole number."),
        ({"type": "number", "minimum": 0}, "-1", "'-1' is not a number of at least 0."),
        ({"type": "number"}, "nan", "'nan' is not a number."),
        ({"type": "number"}, "1e999", "'1e999' is not a number."),
        ({"type": "boolean"}, "maybe", "'maybe' is neither yes nor no."),
        (COLOURS, "3", "'3' is not one of the 2 choices."),
        (SEVERAL, "1,2", "2 chosen; it must be exactly 1 choices."),
        (SEVERAL, ",", "0 chosen; it must be exactly 1 choices."),
        (SEVERAL, "9" * 10_000, f"'{'9' * 60}…' is not one of the 2 choices."),
    ],
)
def test_an_answer_that_does_not_fit_gets_one_sentence(schema: dict[str, Any], answer: str, sentence: str) -> None:
    with pytest.raises(ValueError) as caught:
        field(schema).read(answer)
    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    ("schema", "default"),
    [
        ({"type": "string", "default": "a\nb"}, "a b"),
        ({"type": "integer", "default": 3}, "3"),
        ({"type": "boolean", "default": False}, "no"),
        (COLOURS | {"default": "g"}, "2"),
        (COLOURS | {"default": "blue"}, ""),
        (SEVERAL | {"default": ["g"]}, "2"),
        ({"type": "integer", "default": "3"}, ""),
        ({"type": "string"}, ""),
    ],
)
def test_a_default_is_an_answer_that_stands_there_already(schema: dict[str, Any], default: str) -> None:
    found = field(schema, required=False)
    assert found.default == default
    assert found.read(default) is None or default


def test_what_may_stay_empty_is_left_out() -> None:
    found = field({"type": "integer"}, required=False)
    assert found.read("  ") is None
    assert found.hint == "a whole number; may stay empty"


def test_a_form_without_fields_wants_a_yes_or_no() -> None:
    for schema in ({}, {"type": "object"}, {"type": "object", "properties": {}}, {"properties": 3}):
        assert fields(schema) == []


@pytest.mark.parametrize(
    ("of", "sentence"),
    [
        ({"type": "object"}, "The field 'x' has the type 'object', which forms do not allow."),
        ({"type": "array"}, "The field 'x' has the type 'array', which forms do not allow."),
        (7, "The field 'x' has no schema."),
    ],
)
def test_a_form_that_is_not_flat_is_refused_in_a_sentence(of: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        fields({"properties": {"x": of}})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)
KEYS = ["type", "enum", "enumNames", "oneOf", "items", "default", "minimum", "maxLength", "minItems", "format", "title"]
WORDS = st.sampled_from(["string", "integer", "number", "boolean", "array", "email"])


@given(st.dictionaries(st.sampled_from(KEYS), JSON | WORDS | st.lists(WORDS)), st.text())
def test_whatever_a_server_sends_is_asked_or_refused(schema: dict[str, Any], answer: str) -> None:
    try:
        found = fields({"properties": {"x": schema}, "required": ["x"]})[0]
        assert found.hint
        assert isinstance(found.default, str)
        found.read(answer)
    except ValueError as error:
        told = str(error)
    else:
        told = "a value"
    assert told
