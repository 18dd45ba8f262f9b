"""Grammars as text: what is too much for llguidance is known before it reads it."""

import contextlib
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shepherd.core import InvalidRequest
from shepherd.engine.grammar import lark
from shepherd.engine.grammar.lark import UnsupportedGrammar
from shepherd.engine.grammar.numbers import Path


def of_schema(schema: object) -> str:
    return "start: %json " + json.dumps(schema)


def chain(n: int, link: Callable[[str], object]) -> dict[str, Any]:
    """A schema whose definitions refer to each other, one after the other."""
    links = {f"d{i}": link(f"#/$defs/d{i + 1}") for i in range(n)}
    return {"$ref": "#/$defs/d0", "$defs": {**links, f"d{n}": {"type": "string"}}}


GRAMMARS = {
    "tool calls": 'start: (free call)* TEXT\nfree[lazy]: TEXT "<t>"\ncall: %json {"type": "object"}\nTEXT: /(?s:.*)/',
    "ways out": 'start: a b c d\na: "x" a | "y"\nb: "x" (b)?\nc[lazy]: "x" | ("y" | c) c\nd: (d "x")* "y" [d] (d){0,2}',
    "recursion": 'start: value\nvalue: "[" (value ("," value)*)? "]" | /[0-9]+/',
    "many flat rules": "start: "
    + " | ".join(f"r{i}" for i in range(3000))
    + "".join(f'\nr{i}: "x"' for i in range(3000)),
    "a comment": "start: a // b: c\n# c: a\na: /x/",
    "a colon in a string": 'start: "a: b" /c: d/',
    "many properties": of_schema({"properties": {f"p{i}": {"type": "string"} for i in range(2000)}}),
    "a recursive schema": of_schema(
        {"$ref": "#/$defs/n", "$defs": {"n": {"properties": {"n": {"$ref": "#/$defs/n"}}}}}
    ),
    "forty definitions": of_schema(chain(40, lambda ref: {"properties": {"x": {"$ref": ref}}})),
    "options in rules": "start: " + " ".join('("a" /b*/)?' for _ in range(3000)),
    "a long choice": "start: /" + "|".join(f"word{i}" for i in range(3000)) + "/",
    "a small step": of_schema({"multipleOf": 0.01}),
    "patterns side by side": of_schema({"properties": {f"p{i}": {"pattern": "^a"} for i in range(50)}}),
    "a property called pattern": of_schema({"properties": {"pattern": {"type": "string"}, "multipleOf": {"const": 1}}}),
}


@pytest.mark.parametrize("grammar", GRAMMARS.values(), ids=GRAMMARS)
def test_what_people_write_is_not_too_much(grammar: str) -> None:
    lark.check(grammar)


TOO_MUCH: dict[str, tuple[str, str]] = {
    "length": ("start: " + '"x"' * 400_000, "is too long: 1200007 characters, at most 1048576"),
    "chain of rules": (
        "start: r0\n" + "".join(f'r{i}: r{i + 1} "x"\n' for i in range(5000)) + 'r5000: "y"',
        "is nested too deeply: too many rules build on each other",
    ),
    "chain of terminals, backwards": (
        'T5000: "y"\n' + "".join(f'T{i}: T{i + 1} "x"\n' for i in reversed(range(5000))) + "start: T0",
        "is nested too deeply: too many rules build on each other",
    ),
    "circle of rules": (
        "start: r0\n" + "".join(f'r{i}: "x" r{(i + 1) % 5000}\n' for i in range(5000)),
        "is nested too deeply: too many rules build on each other",
    ),
    "options on rules": (
        "start: r0\n" + "".join(f"r{i}[lazy]: r{i + 1}\n" for i in range(5000)) + "r5000: /y/",
        "is nested too deeply: too many rules build on each other",
    ),
    "parameters": (
        "start: r0::0\n" + "".join(f"r{i}::_: r{i + 1}::_\n" for i in range(5000)) + 'r5000::_: "y"',
        "is nested too deeply: too many rules build on each other",
    ),
    "brackets": (
        "start: " + "(" * 5000 + '"x"' + ")" * 5000,
        "is nested too deeply: too many rules build on each other",
    ),
    "brackets and rules": (
        "start: r0\n" + "".join(f"r{i}: {'(' * 100} r{i + 1} {')' * 100}\n" for i in range(10)) + 'r10: "y"',
        "is nested too deeply: too many rules build on each other",
    ),
    "another language": ('  {"grammars": []}', "is JSON, not Lark"),
    "JSON": ("start: %json " + "[" * 100_000 + "]" * 100_000, "is nested too deeply"),
    "statements on one line": (
        "start: r0\n" + "".join(f'%llguidance {{}} r{i}: r{i + 1} "x"\n' for i in range(5000)) + 'r5000: "y"',
        "is nested too deeply: too many rules build on each other",
    ),
    "options in an expression": ("start: /" + "a?" * 3000 + "/", lark.TOO_MANY_OPTIONS),
    "options in a terminal": ("start: A\nA: " + '"a"? ' * 3000, lark.TOO_MANY_OPTIONS),
    "options in terminals": (
        "start: A0\n" + "".join(f"A{i}: A{i + 1} A{i + 1}\n" for i in range(12)) + 'A12: "a"*',
        lark.TOO_MANY_OPTIONS,
    ),
    "no end": ('start: a | "x"\na: "x" a', "has a rule that no text can satisfy, as it always needs itself: a"),
    "a circle without end": (
        "start: c\nb: (c B)+ (B | /a/)\nc: b* A? b b /x/?\nA: B{3}\nB: /x?/",
        "has a rule that no text can satisfy, as it always needs itself: b",
    ),
    "a token": ('start: "x" <|im_start|>', "names the token <|im_start|>; write its text in quotes"),
    "a token by number": ('start: "x" <[12-99]>', "names the token <[12-99]>; write its text in quotes"),
}


@pytest.mark.grid(0.2)
@pytest.mark.parametrize(("grammar", "message"), TOO_MUCH.values(), ids=TOO_MUCH)
def test_a_grammar_that_is_too_much_is_named(grammar: str, message: str) -> None:
    with pytest.raises(UnsupportedGrammar) as raised:
        lark.check(grammar)
    assert raised.value.message == message


NESTED = "is nested too deeply, its references included; at most 600 levels"
SCHEMAS: dict[str, tuple[object, str, Path]] = {
    "references": (chain(5000, lambda ref: {"$ref": ref}), NESTED, ()),
    "properties": (chain(1000, lambda ref: {"properties": {"x": {"$ref": ref}}}), NESTED, ()),
    "alternatives": (chain(1000, lambda ref: {"anyOf": [{"type": "null"}, {"$ref": ref}]}), NESTED, ()),
    "anchors": (
        {"$ref": "#a0", "$defs": {f"d{i}": {"$anchor": f"a{i}", "items": {"$ref": f"#a{i + 1}"}} for i in range(1000)}},
        NESTED,
        (),
    ),
    "a document inside of the document": (
        {"items": {"$id": "x", **chain(1000, lambda ref: {"items": {"$ref": ref}})}, "$defs": {"d0": {}}},
        NESTED,
        (),
    ),
    "a large step": (
        {"properties": {"n": {"type": "integer", "multipleOf": 1_000_003}}},
        "has too many digits, together with others of this schema; at most 100,000",
        ("properties", "n", "multipleOf"),
    ),
    "a fine step": (
        {"items": {"multipleOf": 0.1234567}},
        "has too many digits, together with others of this schema; at most 100,000",
        ("items", "multipleOf"),
    ),
    "an optional pattern": ({"pattern": "a?" * 3000}, lark.TOO_MANY_OPTIONS, ("pattern",)),
    "optional names": (
        {"patternProperties": {"a?" * 1500: {}, "b?" * 1500: {}}},
        lark.TOO_MANY_OPTIONS,
        ("patternProperties",),
    ),
    "patterns for names": (
        {"patternProperties": {f"^p{i}$": {} for i in range(300)}},
        "has too many members; at most 64",
        ("patternProperties",),
    ),
    "patterns for one text": (
        {"anyOf": [{"allOf": [{"pattern": f"a{i}"} for i in range(30)]}]},
        "joins too many patterns; at most 12",
        ("anyOf", 0, "allOf"),
    ),
    "patterns by reference": (
        {"allOf": [{"$ref": f"#/$defs/{i}"} for i in range(13)], "$defs": {f"{i}": {"pattern": ""} for i in range(13)}},
        "joins too many patterns; at most 12",
        ("allOf",),
    ),
}  # fmt: skip


@pytest.mark.grid(0.2)
@pytest.mark.parametrize(("schema", "message", "path"), SCHEMAS.values(), ids=SCHEMAS)
def test_a_schema_that_is_too_much_is_named_with_its_place(schema: object, message: str, path: Path) -> None:
    for run in (lambda: lark.check_document(schema), lambda: lark.check(of_schema(schema))):
        with pytest.raises(UnsupportedGrammar) as raised:
            run()
        assert (raised.value.message, raised.value.path) == (message, path)


@given(st.text(alphabet='abAB:|()[]"/\\ \n%json{}1,~&<>.#', max_size=60))
def test_any_text_can_be_looked_at(text: str) -> None:
    assert "".join(piece.text for piece in lark.pieces(text)) == text
    with contextlib.suppress(UnsupportedGrammar):
        lark.check(text)


# -- a client's own words


def test_a_regular_expression_becomes_a_rule() -> None:
    assert lark.regex_to_lark(r"a/b\/c\\/\d", root="answer") == r"answer: /a\/b\/c\\\/\d/" + "\n"
    assert lark.regex_to_lark("") == 'start: ""\n'
    for bad in ("a\\", "x" * 100_000):
        with pytest.raises(InvalidRequest) as raised:
            lark.regex_to_lark(bad, field="regex")
        assert raised.value.field == "regex"


def test_a_clients_rules_are_renamed_and_nothing_else() -> None:
    client = (
        '// start: here\n?start: item+ "start item"\n'
        'item[lazy, capture="item"]: WORD /item WORD/ %json {"const": "item"}\n'
        "_more: item{2,30} | lazy\nlazy: WORD\nWORD: /x/ // item\n%ignore WORD"
    )
    expected = (
        '// start: here\nanswer: answer_item+ "start item"\n'
        'answer_item[lazy, capture="item"]: ANSWER_WORD /item WORD/ %json {"const": "item"}\n'
        "answer__more: answer_item{2,30} | answer_lazy\nanswer_lazy: ANSWER_WORD\nANSWER_WORD: /x/ // item\n"
        "%ignore ANSWER_WORD\n"
    )
    assert lark.lark_to_rules(client, root="answer") == expected
    with pytest.raises(InvalidRequest, match=r"^grammar is nested too deeply$"):
        lark.lark_to_rules("start: %json " + "[" * 60_000, field="grammar")
