"""What answers are held to of a schema, keyword by keyword: the table of the product, its page, and random answers."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import jsonschema
import pytest
from tests.cases import amount, seed
from tests.places import ROOT
from tests.unit.engine.masks import random_answer, reads_json

from shepherd.core import InvalidRequest
from shepherd.engine.grammar.keywords import KEYWORDS, split_look_ahead, without
from shepherd.engine.grammar.mask import fit_schema, path_text

Json = dict[str, Any]


def an_object(properties: Json, required: list[str] | None = None, **more: Any) -> Json:
    return {
        "type": "object",
        "properties": properties,
        "required": required or [],
        "additionalProperties": False,
        **more,
    }


ONE = {"enum": [1]}
SHORT = {"type": "string", "maxLength": 3}
CAT = an_object({"kind": {"const": "cat", "default": "cat"}, "n": ONE}, ["n"])
DOG = an_object({"kind": {"enum": ["dog"]}, "n": ONE}, ["n"])
ZOD_EMAIL = r"^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$"
DECIMAL = r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$"

KEPT: list[tuple[str, Json, list[Any], list[Any]]] = [
    ("type", {"type": ["null", "boolean"]}, [None, True], ["a", 1]),
    ("enum", {"enum": [1, "a"]}, [1, "a"], [2]),
    ("const", {"const": None}, [None], [0]),
    ("minimum", {"type": "integer", "minimum": 3}, [3, 10], [2]),
    ("maximum", {"type": "integer", "maximum": 3}, [3, -10], [4]),
    ("exclusiveMinimum", {"type": "integer", "exclusiveMinimum": 3}, [4], [3]),
    ("exclusiveMaximum", {"type": "integer", "exclusiveMaximum": 3}, [2], [3]),
    ("multipleOf", {"type": "integer", "multipleOf": 7}, [0, 14, -7], [15]),
    ("minLength", {"type": "string", "minLength": 2.0}, ["ab"], ["a"]),
    ("maxLength", {"type": "string", "maxLength": 2}, ["ab"], ["abc"]),
    ("pattern", {"type": "string", "pattern": "^a+$"}, ["aa"], ["ab", ""]),
    (
        "pattern",
        {"type": "string", "format": "email", "pattern": ZOD_EMAIL},
        ["a@b.co", "a.b@c.de"],
        [".a@b.co", "a..b@c.de", "a", "a@b"],
    ),
    ("pattern", {"type": "string", "pattern": DECIMAL}, ["1.5", "-.5", "07", "3."], ["-", ".", "", "1.5.2", "a"]),
    ("pattern", {"type": "string", "pattern": r"^(?=.*\d)(?=.*[a-z])[a-z\d]{2,4}$"}, ["a1", "1bc"], ["ab", "12"]),
    ("pattern", {"type": "string", "pattern": r"^(?!\s*$).+"}, [" a"], ["", "  "]),
    ("format", {"type": "string", "format": "date"}, ["2024-02-29"], ["tomorrow"]),
    ("format", {"type": "string", "format": "uuid4"}, ["0b0e7b1c-1c1d-4a6b-8b1c-0123456789ab"], ["a"]),
    ("format", {"type": "integer", "format": "uint8"}, [0, 255], [256, -1]),
    ("format", {"type": "integer", "format": "int32", "minimum": 5}, [5, 2**31 - 1], [4, 2**31]),
    ("items", {"type": "array", "items": ONE}, [[], [1, 1]], [[2]]),
    ("additionalItems", {"items": [ONE], "additionalItems": False, "type": "array"}, [[1]], [[1, 1]]),
    ("prefixItems", {"type": "array", "prefixItems": [ONE], "items": {"type": "null"}}, [[1, None]], [[None]]),
    ("minItems", {"type": "array", "items": ONE, "minItems": 1}, [[1]], [[]]),
    ("maxItems", {"type": "array", "items": ONE, "maxItems": 1}, [[1]], [[1, 1]]),
    ("uniqueItems", {"type": "array", "items": ONE, "uniqueItems": False}, [[1, 1]], [[2]]),
    ("uniqueItems", {"type": "array", "items": ONE, "uniqueItems": True, "maxItems": 1}, [[1]], [[1, 1]]),
    ("unevaluatedItems", {"type": "array", "prefixItems": [ONE], "unevaluatedItems": False}, [[1]], [[1, 1]]),
    ("contains", {"type": "array", "items": ONE, "contains": {"const": 2}, "minContains": 0}, [[], [1]], [[2]]),
    ("minContains", {"type": "array", "items": ONE, "minContains": 2}, [[]], [[2]]),
    ("maxContains", {"type": "array", "items": ONE, "maxContains": 1}, [[1, 1]], [[2]]),
    ("properties", {"type": "object", "properties": {"a": ONE}}, [{}, {"a": 1}], [{"a": 2}]),
    ("required", an_object({"a": ONE}, ["a"]), [{"a": 1}], [{}]),
    ("additionalProperties", {"type": "object", "additionalProperties": ONE}, [{"x": 1}], [{"x": 2}]),
    ("patternProperties", an_object({}, patternProperties={"^a": ONE}), [{"ab": 1}], [{"ab": 2}, {"b": 1}]),
    (
        "propertyNames",
        {"type": "object", "propertyNames": {"type": "string"}, "additionalProperties": ONE},
        [{"x": 1}],
        [{"x": 2}],
    ),
    (
        "propertyNames",
        {"type": "object", "propertyNames": {"enum": ["a", "b"]}, "additionalProperties": ONE},
        [{"a": 1}, {"a": 1, "b": 1}],
        [{"c": 1}, {"a": 2}],
    ),
    (
        "propertyNames",
        {"type": "object", "propertyNames": {"$ref": "#/$defs/n"}, "$defs": {"n": {"pattern": "^a"}}},
        [{"ab": 0}],
        [{"b": 0}],
    ),
    (
        "propertyNames",
        {"type": "object", "propertyNames": {"minLength": 1, "maxLength": 2}},
        [{"ab": 0}],
        [{"": 0}, {"abc": 0}],
    ),
    (
        "unevaluatedProperties",
        {"type": "object", "properties": {"a": ONE}, "unevaluatedProperties": False},
        [{"a": 1}],
        [{"b": 1}],
    ),
    ("minProperties", {"type": "object", "additionalProperties": ONE, "minProperties": 1}, [{"a": 1}], [{}]),
    ("minProperties", an_object({"a": ONE, "b": ONE}, ["a"], minProperties=1), [{"a": 1}], [{}]),
    (
        "maxProperties",
        {"type": "object", "additionalProperties": ONE, "maxProperties": 1},
        [{"a": 1}],
        [{"a": 1, "b": 1}],
    ),
    ("maxProperties", {"type": "object", "properties": {"a": ONE}, "maxProperties": 1}, [{}, {"a": 1}], [{"b": 1}]),
    (
        "dependentRequired",
        an_object({"a": ONE, "b": ONE}, ["a"], dependentRequired={"a": ["b"]}),
        [{"a": 1, "b": 1}],
        [{"a": 1}],
    ),
    (
        "dependentSchemas",
        an_object({"a": ONE, "b": ONE}, ["a"], dependentSchemas={"a": {"required": ["b"]}}),
        [{"a": 1, "b": 1}],
        [{"a": 1}],
    ),
    ("dependencies", an_object({"a": ONE, "b": ONE}, ["a"], dependencies={"a": ["b"]}), [{"a": 1, "b": 1}], [{"a": 1}]),
    ("allOf", {"allOf": [{"type": "string"}, {"maxLength": 1}]}, ["a"], ["ab", 1]),
    ("anyOf", {"anyOf": [ONE, {"type": "null"}]}, [1, None], [2]),
    (
        "oneOf",
        {"oneOf": [CAT, DOG]},
        [{"kind": "cat", "n": 1}, {"kind": "dog", "n": 1}],
        [{"n": 1}, {"kind": "cow", "n": 1}],
    ),
    (
        "oneOf",
        {"oneOf": [{"$ref": "#/$defs/C"}, {"$ref": "#/$defs/D"}], "$defs": {"C": CAT, "D": DOG}},
        [{"kind": "dog", "n": 1}],
        [{"n": 1}],
    ),
    ("not", {"not": {"type": ["string", "object", "array", "number"]}}, [None, True], ["a", 1]),
    ("not", {"enum": [1, True, "a"], "not": {"const": 1.0}}, [True, "a"], [1]),
    ("not", {"type": "object", "properties": {"a": {"not": {}}}, "additionalProperties": ONE}, [{"b": 1}], [{"a": 1}]),
    ("if", {"if": True, "then": ONE, "else": False}, [1], [2]),
    ("then", {"type": "null", "then": False}, [None], [1]),
    ("else", {"type": "null", "else": False}, [None], [1]),
    ("$ref", {"$ref": "#/$defs/a", "$defs": {"a": ONE}}, [1], [2]),
    ("definitions", {"$ref": "#/definitions/a", "definitions": {"a": ONE}}, [1], [2]),
    ("$defs", {"$ref": "#/$defs/a", "$defs": {"a": ONE}}, [1], [2]),
    ("$anchor", {"$ref": "#one", "$defs": {"a": {"$anchor": "one", **ONE}}}, [1], [2]),
    ("$dynamicRef", {"$dynamicRef": "#one", "$defs": {"a": {"$dynamicAnchor": "one", **ONE}}}, [1], [2]),
    ("$recursiveRef", {"type": "array", "items": {"$recursiveRef": "#"}, "maxItems": 1}, [[], [[]]], [[1], 1]),
    ("$schema", {"$schema": "https://example.com/own", **ONE}, [1], [2]),
]
"""A keyword, a schema with it, and answers that its grammar allows and does not allow: all of it is kept."""

LEFT_OUT: list[tuple[Json, str]] = [
    ({"type": "string", "pattern": "a(?=b)"}, "pattern"),
    ({"type": "string", "pattern": "^(?=a)b|c"}, "pattern"),
    ({"$ref": "#"}, "$ref"),
    (an_object({"a": {"$ref": "#"}}, ["a"]), "properties.a.$ref"),
    ({"type": "array", "minItems": 1, "items": {"allOf": [{"$ref": "#"}]}}, "items.allOf[0].$ref"),
    ({"type": "string", "pattern": r"^(a)\1$"}, "pattern"),
    ({"type": "string", "pattern": "^(?:(?:a{1,60}){1,60})$"}, "pattern"),
    ({"type": "integer", "multipleOf": 1234567}, "multipleOf"),
    ({"type": "string", "format": "color"}, "format"),
    (an_object({"x": {"type": "string", "format": "path"}}), "properties.x.format"),
    ({"type": "array", "items": {"enum": [1, 2]}, "uniqueItems": True}, "uniqueItems"),
    ({"type": "array", "items": ONE, "contains": ONE, "minContains": 2}, "contains"),
    ({"type": "array", "allOf": [{"items": ONE}], "unevaluatedItems": False}, "unevaluatedItems"),
    (
        {"type": "object", "allOf": [{"properties": {"a": ONE}}], "unevaluatedProperties": False},
        "unevaluatedProperties",
    ),
    ({"type": "object", "additionalProperties": ONE, "propertyNames": {"format": "uuid"}}, "propertyNames"),
    ({"type": "object", "patternProperties": {"(?=a)": ONE}}, "patternProperties"),
    ({"type": "object", "patternProperties": {"a": ONE, "b": {"type": "null"}}}, "patternProperties"),
    (an_object({"a": ONE, "b": ONE}, minProperties=1), "minProperties"),
    (an_object({"a": ONE, "b": ONE}, maxProperties=1), "maxProperties"),
    (an_object({"a": ONE, "b": ONE}, dependentRequired={"a": ["b"]}), "dependentRequired"),
    (an_object({"a": ONE, "b": ONE}, dependentSchemas={"a": {"required": ["b"]}}), "dependentSchemas"),
    (an_object({"a": ONE, "b": ONE}, dependencies={"a": "b"}), "dependencies"),
    ({"oneOf": [{"type": "string", "minLength": 1}, {"type": "string", "maxLength": 2}]}, "oneOf"),
    ({"type": "string", "not": {"pattern": "a"}}, "not"),
    ({"if": {"type": "string"}, "then": {"const": "a"}, "else": {"const": 1}}, "if"),
    ({"anyOf": [{"$ref": "https://example.com/a"}, {"type": "null"}]}, "anyOf[0].$ref"),
    ({"$dynamicRef": "#a", "$defs": {"a": {"$dynamicAnchor": "a"}, "b": {"$dynamicAnchor": "a"}}}, "$dynamicRef"),
    ({"items": {"$recursiveRef": "#"}, "$defs": {"a": {"$recursiveAnchor": True}}}, "items.$recursiveRef"),
]
"""A schema, and its only part that is left out."""


WITH_OTHERS = {"then", "else", "minContains", "maxContains", "$dynamicAnchor", "$recursiveAnchor"}
"""Keywords whose path is that of another one, which decides about both."""


def names(schema: Json) -> list[str]:
    return [path_text("", path)[1:] for path in fit_schema(schema, "s").left_out]


@pytest.mark.parametrize(("keyword", "schema", "right", "wrong"), KEPT, ids=lambda case: json.dumps(case)[:60])
def test_what_is_kept_of_a_schema_is_all_of_it(keyword: str, schema: Json, right: list[Any], wrong: list[Any]) -> None:
    fitted = fit_schema(schema, "s", strict=True).schema
    assert keyword in json.dumps(schema)
    assert [answer for answer in right if not reads_json(fitted, answer)] == []
    assert [answer for answer in wrong if reads_json(fitted, answer)] == []


@pytest.mark.parametrize(("schema", "path"), LEFT_OUT, ids=lambda case: json.dumps(case)[:60])
def test_what_cannot_be_kept_to_is_left_out_by_name_or_refused_by_name(schema: Json, path: str) -> None:
    assert names(schema) == [path]
    with pytest.raises(InvalidRequest) as caught:
        fit_schema(schema, "form.schema", strict=True)
    assert caught.value.field == f"form.schema.{path}"
    assert re.match(re.escape(f"form.schema.{path}") + "[: ]", caught.value.message)


@pytest.mark.parametrize(
    "schema",
    [
        an_object({"next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}, ["next"]),
        an_object({"next": {"$ref": "#"}}),
        an_object({"all": {"type": "array", "items": {"$ref": "#"}}}, ["all"]),
        {"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/b"}, ONE]}, "b": {"$ref": "#/$defs/a"}}},
    ],
    ids=json.dumps,
)
def test_a_reference_to_what_may_end_is_kept(schema: Json) -> None:
    assert fit_schema(schema, "s").left_out == ()


@pytest.mark.grid(0.2)
@pytest.mark.parametrize("schema", [case[1] for case in KEPT] + [case[0] for case in LEFT_OUT], ids=json.dumps)
def test_no_answer_violates_what_is_kept(schema: Json) -> None:
    fitted = fit_schema(schema, "s")
    kept: Any = schema
    for path in fitted.left_out:
        kept = without(kept, path)
    if "https://example.com/own" in json.dumps(kept):
        kept = {key: value for key, value in kept.items() if key != "$schema"}
    older = {"dependencies", "additionalItems", "definitions"} & {*kept}
    validator = jsonschema.Draft7Validator(kept) if older else jsonschema.Draft202012Validator(kept)
    draw = random.Random(seed())
    for _ in range(amount(6, 100)):
        answer = random_answer(fitted.schema, draw)
        assert answer is None or not [*validator.iter_errors(answer)], answer


def test_each_keyword_has_a_row_a_case_and_a_line_on_the_page() -> None:
    kept = {case[0] for case in KEPT} | WITH_OTHERS
    left_out = {path.rpartition(".")[2] for _, path in LEFT_OUT}
    page = (ROOT / "docs" / "protocols.md").read_text(encoding="utf-8")
    table = page.partition("| keyword | an answer is held to it |")[2].partition("\n\n")[0]
    lines = {
        keyword: line.split("|")[2].strip()
        for line in table.splitlines()[2:]
        for keyword in re.findall(r"`([^`]+)`", line.split("|")[1])
    }
    assert kept == {*KEYWORDS}
    assert left_out | WITH_OTHERS == {keyword for keyword, (treatment, _) in KEYWORDS.items() if treatment != "kept"}
    assert lines.keys() == KEYWORDS.keys()
    for keyword, (treatment, _) in KEYWORDS.items():
        assert lines[keyword].startswith({"kept": "yes", "kept in part": "yes, ", "left out": "no"}[treatment]), keyword


@pytest.mark.parametrize("keyword", [each for each in KEYWORDS if each != "const"])
def test_a_keyword_that_is_null_says_nothing(keyword: str) -> None:
    assert fit_schema({"type": "null", keyword: None} if keyword != "type" else {"type": None}, "s").left_out == ()


def test_a_control_character_is_written_as_in_ecmascript() -> None:
    fitted = fit_schema({"type": "string", "pattern": r"^\cI?a\\c$"}, "s", strict=True).schema
    assert [text for text in ("\ta\\c", "a\\c", "a\\", "ca") if reads_json(fitted, text)] == ["\ta\\c", "a\\c"]


@pytest.mark.parametrize(
    ("pattern", "parts"),
    [
        ("^(?=a|b)c", ["^(?:a|b)", "^c"]),
        ("^(?![^x]*$)c", ["[x]", "^c"]),
        ("^(?=(a(?:b)))(?!\\d*$)c$", ["^(?:(a(?:b)))", "\\D", "^c$"]),
        ("^(?=[)|])c[|]", ["^(?:[)|])", "^c[|]"]),
        ("^(?=a)b|c", None),
        ("^(?!a)b", ["^(?:[^a]|$)", "^b"]),
        (r"^(?!\.)b", [r"^(?:[^\.]|$)", "^b"]),
        (r"^(?!.*\.\.)b", [r"^(?:\.?[^\.])*\.?$", "^b"]),
        ("^(?!ab)c", None),
        ("^(?!.*ab)c", None),
        ("^(?!.)c", None),
        ("^(?=a(?=b))c", None),
        ("^(?=a", None),
        ("^" + "(?=a)" * 7 + "b", None),
        ("(?=a)b", None),
        ("^(?<=a)b", None),
    ],
)
def test_look_ahead_at_the_beginning_of_a_pattern_becomes_patterns_of_its_own(
    pattern: str, parts: list[str] | None
) -> None:
    assert split_look_ahead(pattern) == parts


@pytest.mark.parametrize(
    ("schema", "field"),
    [
        ({"type": "strung"}, "s.type"),
        ({"type": "string", "pattern": "("}, "s.pattern"),
        ({"$ref": "#/$defs/no"}, "s.$ref"),
        ({"not": {}}, "s.not"),
        ({"properties": {"a": {"required": "a", "format": "color"}}}, "s.properties.a.required"),
        ({"type": "integer", "minimum": "0"}, "s.minimum"),
    ],
)
def test_what_is_wrong_is_refused_and_never_left_out(schema: Json, field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        fit_schema(schema, "s")
    assert caught.value.field == field


def test_a_copied_part_is_copied_only_as_often_as_there_is_room() -> None:
    """3,000 references to one object of 1,000 properties would be three million values."""
    kind = an_object({f"p{n}": {"const": n} for n in range(1000)}, ["p0"])
    wide = {"anyOf": [{"oneOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}]}] * 1500, "$defs": {"a": kind}}
    assert len(json.dumps(fit_schema(wide, "s").schema)) < 2 * len(json.dumps(wide))
