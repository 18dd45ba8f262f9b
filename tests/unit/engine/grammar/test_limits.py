"""Nested repetitions are refused where an answer would get stuck in them, and nowhere else."""

import json
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.engine.masks import constrainer

from shepherd.core import InvalidRequest
from shepherd.engine.base import Mask
from shepherd.engine.grammar import lark, limits
from shepherd.engine.grammar.gbnf import gbnf_to_lark
from shepherd.engine.grammar.lark import UnsupportedGrammar
from shepherd.engine.grammar.mask import MAX_STATES, GrammarFailed, fit_schema

WAYS = {
    "a": 1,
    "a{1,100}": 100,
    "(a{1,100}){1,100}": 10_000,
    "((a{1,100}){1,100}){1,100}": 1_000_000,
    "(?:(?P<x>a{0,30}){2,30}){0,3}": 2700,
    "(a{1,100}){100}": 10_000,
    "(a{100}){1,100}": 100,
    "((a|bb){1,9}){1,9}": 81,
    "(a{1,100})*": 100,
    "(a{1,100}){7,}": 700,
    r"([a-z]{1,63}\.){1,125}": 125,
    "([a-z]{1,63},?){1,125}": 125,
    "([^,]{1,63},){1,125}": 125,
    "([a-z.]{1,63}[.]){1,125}": 7875,
    r"(.{1,63}\.){1,125}": 7875,
    r"(\w{1,20} ){1,100}": 100,
    r"(\pL{1,20} ){1,100}": 2000,
    r"(\(a{1,9}\)){1,9}[)]{1,3}": 9,
    "[(a{1,100}]{1,100}": 100,
    r"\(a{1,100}\){1,100}": 100,
    r"[^\]{1,9}(]{1,9}": 9,
    "(?x) ( a {1,10} ) {1,10}": 100,
    "(a{1,10}|b){1,10}": 100,
    "(a{1,10}){1,10}|(b{1,5}){1,5}": 100,
    ")){1,3}((a{1,4}": 4,
}


@pytest.mark.parametrize(("pattern", "ways"), WAYS.items(), ids=WAYS)
def test_ways_of_counting_follow_from_the_pattern(pattern: str, ways: int) -> None:
    if pattern == "([a-z]{1,63},?){1,125}":
        ways = 63 * 125  # what separates may be missing
    assert limits.of_regex(pattern).ways == ways


BOMB = "((a{1,100}){1,100}){1,100}"
TOO_MUCH = {
    "a regex": lark.regex_to_lark(BOMB),
    "exact": lark.regex_to_lark("(a{1000}){1000}"),
    "in a longer one": lark.regex_to_lark(f"x|({BOMB}|[0-9])+y"),
    "a terminal": 'start: A\nA: ("a"{1,100}){1,100}',
    "terminals": 'start: A\nC: "a"{1,20}\nA: B{1,20}\nB: C{1,20}',
    "a terminal and a regex": "start: A\nA: B{1,100}\nB: /[a-z]{1,100}/",
    "rules": 'start: a{1,20}\na: b{1,20}\nb: "x"',
    "a rule": 'start: ("a"{1,100}){1,100}',
    "over lines": 'start: (\n  "a" {1,100}\n){1,100}',
    "GBNF": gbnf_to_lark('root ::= (("a"{1,100}){1,100}){1,100}'),
    "GBNF in rules": gbnf_to_lark("root ::= a{1,100}\na ::= b{1,100}\nb ::= [a-z]"),
    "GBNF with recursion": gbnf_to_lark('root ::= "(" root ")" | a\na ::= ([a-z]{1,100}){1,100}'),
    "a schema": 'start: %json {"items": {"properties": {"a": {"pattern": "^(a{1,100}){1,100}$"}}}}',
    "names": 'start: %json {"patternProperties": {"^(a{1,100}){1,100}$": {}}}',
    "blanks": 'start: %json {"type": "object", "x-guidance": {"whitespace_pattern": "( {1,100}){1,100}"}}',
}


@pytest.mark.parametrize("grammar", TOO_MUCH.values(), ids=TOO_MUCH)
def test_nested_repetitions_that_are_too_much_are_refused_with_the_limit(grammar: str) -> None:
    with pytest.raises(InvalidRequest, match=r"nests repetitions.* more than (1,000|200|100,000)"):
        constrainer().check(grammar, field="grammar")


def test_the_place_in_a_schema_is_named() -> None:
    for pattern in ("(a{1,100}){1,100}", "(a{1000}){1000}"):
        with pytest.raises(InvalidRequest) as raised:
            fit_schema({"properties": {"a": {"items": {"pattern": pattern}}}}, "s", strict=True)
        assert raised.value.field == "s.properties.a.items.pattern"
        assert "nests repetitions" in raised.value.message


@pytest.mark.parametrize(
    "pattern",
    [
        r"([a-z0-9-]{1,63}\.){1,125}[a-z]{2,63}", r"(\d{1,3}\.){3}\d{1,3}", r"([0-9a-f]{2}){0,10000}",
        r"[\w.+-]{1,64}@([\w-]{1,63}\.){1,8}\w{2,63}", r"([A-Z][a-z]{1,20} ?){1,10}", r".{1,1000000}",
        r"([0-9A-F]{4}:){7}[0-9A-F]{4}", r"(\w+ ?){1,500}", r"(- [^\n]{1,200}\n){1,100}", r"a{1,1000}b{1,1000}c{5000}",
        r'"([^"\\]|\\.){0,500}"',
    ],
)  # fmt: skip
def test_what_people_write_is_not_too_much(pattern: str) -> None:
    constrainer().check(lark.regex_to_lark(pattern))


def test_a_rule_takes_terminals_as_they_come() -> None:
    lark.check('start: (WORD " ")+ WORD{1,100}\nWORD: /[a-z]{1,100}/')
    lark.check('start: ("a"{1,100} ";"){1,100}')
    with pytest.raises(UnsupportedGrammar, match="nests repetitions: more than 200"):
        lark.check('start: (a{1,15} b?){1,15}\na: "a"\nb: "b"')


def drain(mask: Mask, tokens: list[int]) -> None:
    for token in tokens:
        assert mask.allows(token)
        mask.accept(token)


def test_an_answer_that_gets_stuck_names_the_reason_and_the_next_one_starts_fresh() -> None:
    made, hard, random = constrainer(), "start: /[ab]*a[ab]{40}/", Random(1)
    made.check(hard)
    mask = made.mask(hard)
    with pytest.raises(GrammarFailed, match="the grammar is too complex") as raised:
        drain(mask, random.choices(b"ab", k=2 * MAX_STATES))
    assert raised.value.status == 400
    assert made._checked.find(hard) is None, "its state machine is full: the next answer must not share it"
    assert made.mask(hard).allows(ord("a"))


@given(st.text(alphabet=r"ab()[]{}|*+?,1\.^-: x", max_size=40))
def test_anything_can_be_measured(pattern: str) -> None:
    assert limits.of_regex(pattern).ways >= 1
    assert check_text(json.dumps({"pattern": pattern}))


def check_text(schema: str) -> bool:
    try:
        lark.check("start: %json " + schema)
    except UnsupportedGrammar as error:
        return "nests" in error.message
    return True
