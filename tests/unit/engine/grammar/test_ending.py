"""Answers in JSON that would have no end: digits, and models that write the same again and again."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest
from tests.cases import amount, seed
from tests.unit.engine.masks import Pieces, allowed, constrainer, lark_of, reads

from shepherd.engine.grammar.ending import EXPONENT, LONGEST, MAX_ENDS, PLACES, digits_of

Json = dict[str, Any]
WORDS = Pieces([b"12", b"345", b"000", b"99999", b'", "', b"haha", b'"a"', b"]}", b", "])
MADE = constrainer(WORDS)
END = WORDS.ids["<end>"]


def text_of(tokens: list[int]) -> str:
    return b"".join(WORDS.piece(token) for token in tokens if token != END).decode()


def written(schema: Any, choose: Callable[[set[int], list[int]], int], n_tokens: int) -> tuple[str, bool]:
    """What a model writes that chooses among the tokens that may come; whether it has come to an end."""
    mask, tokens = MADE.mask(lark_of(schema), n_tokens=n_tokens), list[int]()
    while len(tokens) < n_tokens:
        token = choose(allowed(mask, WORDS.n_vocab), tokens)
        if token == END:
            return text_of(tokens), True
        mask.accept(token)
        tokens.append(token)
    return text_of(tokens), False


def stuck_on(*pieces: bytes) -> Callable[[set[int], list[int]], int]:
    """A model that writes these again and again where it may, and goes on with the next that it may."""
    wanted = [max(n for n in range(WORDS.n_vocab) if WORDS.piece(n) == piece) for piece in pieces]

    def choose(tokens: set[int], before: list[int]) -> int:
        last = max((at for at, token in enumerate(wanted) if before[-1:] == [token]), default=-1)
        for token in wanted[last + 1 :] + wanted:
            if token in tokens:
                return token
        return min(tokens - {32, 9, 10, 13}, key=lambda token: (token == END, token))

    return choose


def an_object(**properties: Json) -> Json:
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


@pytest.mark.parametrize(
    ("schema", "text", "expected"),
    [
        ({"type": "integer"}, str(2**53), "whole"),
        ({"type": "integer"}, str(-(2**53)), "whole"),
        ({"type": "integer"}, str(2**53 + 1), "stops at 15"),
        ({"type": "integer"}, "1" * 17, "stops at 16"),
        ({"type": "integer", "minimum": 0}, "1" * 17, "stops at 16"),
        ({"type": "integer", "minimum": 0, "maximum": 10**17}, str(10**17), "whole"),
        ({"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1}, str(2**63 - 1), "whole"),
        ({"type": "integer", "multipleOf": 3}, "3" * 16, "whole"),
        ({"type": "integer", "multipleOf": 3}, "3" * 17, "stops at 16"),
        ({"type": "number"}, "0." + "1" * PLACES, "whole"),
        ({"type": "number"}, "0." + "1" * (PLACES + 1), f"stops at {PLACES + 2}"),
        ({"type": "number"}, "1" * 17 + ".5", "stops at 16"),
        ({"type": "number"}, f"6.02e{EXPONENT}", "whole"),
        ({"type": "number"}, f"6.02e-{EXPONENT}", "whole"),
        ({"type": "number"}, f"6.02e{EXPONENT + 1}", "stops at 7"),
        ({"type": "number"}, "6e0001", "stops at 5"),
        ({"type": "number", "minimum": 0.5, "maximum": 3}, "1." + "0" * (PLACES + 1), f"stops at {PLACES + 2}"),
        ({"type": "number", "exclusiveMinimum": 1e-18, "maximum": 1}, "0.000000000000000002", "whole"),
        ({"const": 0.30000000000000004}, "0.30000000000000004", "whole"),
        ({"type": "array"}, f"[{'1' * 17}]", "stops at 17"),
        ({"type": "object"}, '{"a":' + "1" * 17, "stops at 21"),
        ({}, "1" * 17, "stops at 16"),
        ({"type": "string"}, f'"{"".join(map(str, range(100)))}"', "whole"),
        ({"type": "string", "pattern": "^[0-9]+$"}, f'"{"1" * 40}"', "whole"),
    ],
    ids=str,
)
def test_a_number_without_an_end_of_its_own_is_ended(schema: Any, text: str, expected: str) -> None:
    assert reads(MADE, lark_of(schema), text) == expected


def test_a_number_in_a_call_without_brackets_is_ended() -> None:
    lark = 'start: "<n>\\n" number "\\n</n>"\nnumber: %json {"type": "number"}'
    assert reads(MADE, lark, f"<n>\n{'1' * 16}\n</n>") == "whole"
    assert reads(MADE, lark, f"<n>\n{'1' * 17}") == "stops at 20"


def test_a_grammar_of_a_client_may_have_any_number_of_digits() -> None:
    assert reads(MADE, 'start: "[" /[0-9]+/ "]"', f"[{'1' * 100}]") == "whole"


@pytest.mark.grid(0.2)
@pytest.mark.parametrize(
    ("schema", "pieces"),
    [
        (an_object(age={"type": "integer"}), (b"345",)),
        (an_object(age={"type": "number"}), (b"99999",)),
        (an_object(age={"type": "number"}), (b"12", b".", b"000")),
        (an_object(name={"type": "string"}), (b"haha",)),
        (an_object(name={"type": "string"}, more={"type": "string"}), (b"h", b"a")),
        (an_object(tags={"type": "array", "items": {"type": "string"}}), (b'"a"', b", ")),
        (an_object(tags={"type": "array", "items": {"type": "string"}}), (b"h", b'", "')),
        (an_object(rows={"type": "array", "items": {"type": "array", "items": {"type": "integer"}}}), (b"1", b",")),
        (
            an_object(rows={"type": "array", "items": {"type": "array", "items": {"const": 1}}}),
            (b"[", b"1", b"]", b","),
        ),
        ({"type": "object"}, (b'"a"', b":", b"1", b",")),
        (an_object(quotes={"type": "string"}), (b"\\", b'"')),
    ],
    ids=str,
)
@pytest.mark.parametrize("n_tokens", [150, 20_000])
def test_a_model_that_is_stuck_comes_to_the_end_of_a_whole_answer(
    schema: Any, pieces: tuple[bytes, ...], n_tokens: int
) -> None:
    text, has_ended = written(schema, stuck_on(*pieces), n_tokens)
    assert has_ended, text[-80:]
    json.loads(text)


def test_a_table_of_zeros_is_whole() -> None:
    zeros = "[" + ",".join("0" * (LONGEST // 2)) + "]"
    mask = MADE.mask(lark_of({"type": "array", "items": {"type": "integer"}}), n_tokens=20_000)
    for byte in zeros.encode():
        assert mask.allows(byte)
        mask.accept(byte)
    assert mask.allows(END)


def test_what_a_schema_demands_is_written_however_often_it_is_the_same() -> None:
    schema = {"type": "array", "items": {"const": 0}, "minItems": 1200}
    text, has_ended = written(schema, stuck_on(b"0", b","), 20_000)
    assert has_ended
    assert json.loads(text) == [0] * 1200


def test_free_text_may_repeat_itself() -> None:
    lark = f'start: TEXT | call\ncall: "<call>" json\njson: %json {json.dumps({"type": "object"})}\nTEXT: /(?s:[^<].*)/'
    mask = MADE.mask(lark, n_tokens=100)
    for _ in range(LONGEST * 2):
        assert mask.allows(ord("a"))
        mask.accept(ord("a"))


def test_an_answer_that_was_ended_often_closes_all_that_it_can() -> None:
    nested: Json = {"type": "array", "items": {"type": "string"}}
    for _ in range(MAX_ENDS + 2):
        nested = {"type": "array", "items": nested}
    draw = random.Random(seed())

    def choose(tokens: set[int], before: list[int]) -> int:
        """Once in a while another letter: a loop, and then a new one."""
        letter = ord("ab"[len(before) // 3000 % 2])
        opening = [token for token in (ord("["), ord('"')) if token in tokens]
        return letter if letter in tokens else draw.choice(opening or sorted(tokens - {32, 9, 10, 13}))

    text, has_ended = written(nested, choose, amount(12_000, 40_000))
    assert has_ended, text[-200:]
    json.loads(text)


@pytest.mark.parametrize(
    ("tail", "expected"),
    [
        (b'{"a": 12', (b"12", 16)),
        (b"[1.5, 0.25", (b"25", 16)),
        (b"1.", (b"", 16)),
        (b"1.5e-3", (b"3", 3)),
        (b"1E+", (b"", 3)),
        (b'{"a": ', None),
        (b"", None),
    ],
)
def test_the_digits_at_the_end_of_an_answer_are_found(tail: bytes, expected: tuple[bytes, int] | None) -> None:
    found = digits_of(tail)
    assert (found and (found.text, found.most)) == expected
