"""Numbers of schemas that llguidance would get wrong, or would end the process for."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import examples
from tests.unit.engine.masks import constrainer, reads

from shepherd.core import InvalidRequest
from shepherd.engine.grammar import numbers
from shepherd.engine.grammar.lark import UnsupportedGrammar, check
from shepherd.engine.grammar.mask import fit_schema

LOW, HIGH = -(2**63), 2**63 - 1
MADE = constrainer()


LOST = {
    "the lowest": ({"const": LOW}, ".const", LOW),
    "nearly the lowest": ({"const": LOW + 1}, ".const", LOW + 1),
    "below": ({"const": LOW - 1}, ".const", LOW - 1),
    "above": ({"enum": [1, HIGH + 1]}, ".enum", HIGH + 1),
    "rounded": ({"properties": {"id": {"enum": [2**53 + 1]}}}, ".properties.id.enum", 2**53 + 1),
    "in a list": ({"items": {"const": [{"a": -(2**53) - 1}]}}, ".items.const", -(2**53) - 1),
    "a large float": ({"const": 1e300}, ".const", 1e300),
    "under a property of that name": ({"properties": {"const": {"const": LOW}}}, ".properties.const.const", LOW),
    "a property called so": ({"properties": {"properties": {"const": LOW}}}, ".properties.properties.const", LOW),
}


@pytest.mark.parametrize(("schema", "path", "number"), LOST.values(), ids=LOST)
def test_a_constant_that_would_come_out_as_another_is_refused(schema: Any, path: str, number: float) -> None:
    with pytest.raises(InvalidRequest) as raised:
        fit_schema(schema, "s", strict=True)
    assert raised.value.field == f"s{path}"
    reason = "a number that cannot be written exactly; use a string"
    assert raised.value.message == f"s{path} holds {number!r}, {reason}"
    with pytest.raises(UnsupportedGrammar):
        check("start: %json " + json.dumps(schema))


@pytest.mark.parametrize(
    "number", [0, -0.0, 2**53, -(2**53), 2**53 + 2, 2**62, -(2**62), HIGH, LOW + 1024, 0.1, 5e-324, -12.5, 1e15]
)
@pytest.mark.parametrize("kind", [{}, {"type": "number"}], ids=str)
def test_a_constant_that_is_kept_is_what_comes_out(number: float, kind: dict[str, Any]) -> None:
    schema = {**kind, "const": number}
    fit_schema(schema, "s", strict=True)
    lark = "start: %json " + json.dumps(schema)
    MADE.check(lark)
    mask, text = MADE.mask(lark), bytearray()
    while not mask.allows(min(MADE._end_tokens)):
        token = next(token for token in range(256) if mask.allows(token))
        mask.accept(token)
        text.append(token)
    assert json.loads(text) == number


INT64: dict[str, Any] = {"type": "integer", "minimum": LOW, "maximum": HIGH}
BOUNDS: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "int64": (
        INT64,
        {"0": "whole", str(HIGH): "whole", str(HIGH + 1): "stops at 18", str(LOW + 1024): "whole", "-1": "whole",
         str(LOW - 1): "stops at 19", "9" * 20: "stops at 18"},
    ),
    "rounded by JavaScript": ({**INT64, "maximum": 2**63}, {str(HIGH): "whole", str(HIGH + 1): "stops at 18"}),
    "exclusive": (
        {"type": "integer", "exclusiveMaximum": 2**63, "exclusiveMinimum": LOW - 1},
        {str(HIGH): "whole", str(HIGH + 1): "stops at 18", "-5": "whole"},
    ),
    "of booleans": ({**INT64, "exclusiveMaximum": True}, {"7": "whole", str(HIGH): "stops at 18"}),
    "uint64": (
        {"type": "integer", "minimum": 0, "maximum": 2**64 - 1},
        {"0": "whole", str(HIGH): "whole", str(2**64 - 1): "stops at 19", "-1": "stops at 0"},
    ),
    "a number": ({"type": "number", "minimum": LOW, "maximum": HIGH}, {"1.5": "whole", str(HIGH): "stops at 18"}),
    "a double": ({"type": "number", "minimum": -1.7e308, "maximum": 1.7e308}, {"1e290": "whole", "-1e290": "whole"}),
    "no type": ({"minimum": -1e19, "maximum": 1e19}, {"true": "whole", "1e18": "stops at 1", "-1.5": "whole"}),
    "or nothing": ({**INT64, "type": ["integer", "null"]}, {"null": "whole", str(HIGH): "whole"}),
    "between doubles": (
        {"type": "integer", "minimum": 2**53 + 1, "maximum": 2**54 + 1},
        {str(2**53 + 1): "stops at 15", str(2**53 + 2): "whole", str(2**54): "whole", str(2**54 + 1): "stops at 16"},
    ),
    "deep inside": ({"properties": {"maximum": INT64}, "required": ["maximum"]}, {f'{{"maximum":{HIGH}}}': "whole"}),
    "beside a constant": ({"anyOf": [INT64, {"const": {"maximum": 7}}]}, {'{"maximum":7}': "whole"}),
}  # fmt: skip


@pytest.mark.parametrize(("schema", "texts"), BOUNDS.values(), ids=BOUNDS)
def test_bounds_of_the_widest_types_are_kept_to_as_far_as_can_be(schema: Any, texts: dict[str, str]) -> None:
    fit_schema(schema, "s", strict=True)
    lark = "start: %json " + json.dumps(schema)
    MADE.check(lark)
    assert {text: reads(MADE, lark, text) for text in texts} == texts


@pytest.mark.parametrize("bounds", [{"minimum": 1e30}, {"maximum": -1e30}, {"minimum": 10**18}, {"minimum": 2**80}])
def test_a_bound_that_leaves_only_what_cannot_be_counted_is_refused(bounds: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match="the numbers are too large for a range"):
        fit_schema({"type": "integer", **bounds}, "s", strict=True)


@pytest.mark.parametrize("steps", [(10**9,), (10**6,), (1e9,), (99991, 99989), (0.0001, 99991), (1e-7, 7)], ids=str)
def test_steps_that_need_millions_of_states_are_refused(steps: tuple[float, ...]) -> None:
    with pytest.raises(InvalidRequest, match="has too many digits"):
        fit_schema({"type": "integer", "allOf": [{"multipleOf": step} for step in steps]}, "s", strict=True)


@pytest.mark.parametrize("steps", [(0.01, 1000), (5, 5, 25), (0.25, 0.5), (100_000,), (60, 24, 7)], ids=str)
def test_steps_that_people_use_are_not_too_much(steps: tuple[float, ...]) -> None:
    fit_schema({"type": "number", "allOf": [{"multipleOf": step} for step in steps]}, "s", strict=True)


ANY = st.one_of(
    st.integers(-(2**70), 2**70), st.floats(allow_nan=False, allow_infinity=False), st.sampled_from([LOW, HIGH])
)


@given(st.sampled_from(["minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"]), ANY, st.booleans())
def test_bounds_only_move_inwards_and_nothing_lowest_is_left(key: str, bound: float, is_integer: bool) -> None:
    schema: dict[str, Any] = {key: bound, "default": bound, **({"type": "integer"} if is_integer else {})}
    moved = json.loads(numbers.with_safe_bounds(json.dumps(schema)))
    if key in moved:
        assert moved[key] >= bound if key in numbers.LOWER else moved[key] <= bound
        assert abs(moved[key] - bound) <= max(1024, abs(bound) * 2**-52) or abs(bound) > 2**63 > abs(moved[key])
    assert key in moved or abs(bound) >= 2**63
    assert min(moved.get(key, 0) if key in numbers.LOWER else 0, moved["default"]) > -(2**63)


@settings(max_examples=examples(30))
@given(st.recursive(st.one_of(st.booleans(), st.text(max_size=3), st.integers(-9, 9)), st.lists))
def test_what_is_not_large_stays_as_it_is(value: Any) -> None:
    schema = {"const": value, "enum": [value], "minimum": 3, "default": {"maximum": value}}
    assert json.loads(numbers.with_safe_bounds(json.dumps(schema))) == schema
    assert not numbers.inexact_number(value)
