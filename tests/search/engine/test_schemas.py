"""Random schemas, and random answers that their grammars allow: none violates what is kept of its schema."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
from tests.cases import amount, seed
from tests.unit.engine.masks import random_answer

from shepherd.core import InvalidRequest
from shepherd.engine.grammar.keywords import without
from shepherd.engine.grammar.mask import fit_schema

Json = dict[str, Any]
NAMES = ("a", "b", "kind")
PATTERNS = ("^a", "b$", "[ab]{1,2}", "^(?=.*a)(?=.*b)[abc]{2,3}$", r"^(?!\s*$).+", "^(?!a)b", r"^\d{2}$")
VALUES: tuple[Any, ...] = (None, True, 0, 1, -2.5, "a", "ab", [], [1], {"a": 1})


class Maker:
    """Draws schemas, most of whose parts fit together."""

    def __init__(self, draw: random.Random) -> None:
        self.draw = draw

    def schema(self, depth: int = 0) -> Any:
        draw = self.draw
        kinds = ("null", "boolean", "integer", "number", "string", "array", "object")
        kind = draw.choice(kinds[:5] if depth > 2 else kinds)
        made: Json = {} if draw.random() < 0.1 else {"type": kind}
        for key, value in self.keywords(kind, depth):
            if draw.random() < 0.3:
                made[key] = value
        if draw.random() < 0.15 and depth < 3:
            made[draw.choice(("anyOf", "oneOf", "allOf"))] = [self.schema(depth + 1) for _ in range(draw.randint(1, 3))]
        if draw.random() < 0.1:
            made["not"] = draw.choice(
                ({"const": draw.choice(VALUES)}, {"type": draw.choice(kinds)}, {"required": ["a"]})
            )
        if draw.random() < 0.05:
            made["if"], made["then"] = draw.choice((True, False, {"type": "string"})), self.schema(depth + 1)
        return made

    def keywords(self, kind: str, depth: int) -> Iterator[tuple[str, Any]]:
        draw = self.draw
        n = draw.randint(0, 3)
        match kind:
            case "integer" | "number":
                yield draw.choice(("minimum", "exclusiveMinimum")), draw.choice((-1000, -2.5, 0, 3, 2**40, 10**19))
                yield draw.choice(("maximum", "exclusiveMaximum")), draw.choice((1000, 2.5, 7, 2**60, 10**20, 1e300))
                yield "multipleOf", draw.choice((1, 3, 0.25))
                yield "format", draw.choice(("int32", "uint8", "double", "own"))
                yield "enum", draw.sample(VALUES, 4)
            case "string":
                yield "minLength", n
                yield "maxLength", n + draw.randint(0, 3)
                yield "pattern", draw.choice(PATTERNS)
                yield "format", draw.choice(("date", "uuid4", "ipv4", "path"))
                yield "enum", draw.sample(VALUES, 6)
            case "array":
                yield "items", self.schema(depth + 1)
                yield "prefixItems", [self.schema(depth + 1) for _ in range(n)]
                yield "minItems", draw.randint(0, 2)
                yield "maxItems", draw.randint(1, 4)
                yield "uniqueItems", draw.random() < 0.7
                yield "contains", self.schema(3)
                yield "minContains", draw.randint(0, 1)
                yield "unevaluatedItems", False
            case "object":
                yield "properties", {name: self.schema(depth + 1) for name in NAMES[:n]}
                yield "required", draw.sample(NAMES, draw.randint(0, 2))
                yield "additionalProperties", draw.choice((False, True, self.schema(3)))
                yield "patternProperties", {draw.choice(PATTERNS): self.schema(3)}
                yield (
                    "propertyNames",
                    draw.choice(({"enum": ["a", "x"]}, {"pattern": "^[ab]"}, {"maxLength": 2}, {"format": "own"})),
                )
                yield "minProperties", draw.randint(0, 2)
                yield "maxProperties", draw.randint(1, 3)
                yield "dependentRequired", {"a": ["b"]}
                yield "dependentSchemas", {"b": {"required": ["kind"]}}
                yield "unevaluatedProperties", False


@pytest.mark.parametrize("part", range(amount(2, 20)))
def test_no_answer_violates_what_is_kept_of_a_random_schema(part: int) -> None:
    draw = random.Random(seed() * 1000 + part)
    n_answers = n_refused = 0
    for _ in range(amount(150, 2000)):
        schema = Maker(draw).schema()
        try:
            fitted = fit_schema(schema, "s")
        except InvalidRequest:
            n_refused += 1  # nothing satisfies many of them
            continue
        kept: Any = schema
        for path in fitted.left_out:
            kept = without(kept, path)
        for _ in range(3):
            answer = random_answer(fitted.schema, draw)
            if answer is not None:
                n_answers += 1
                errors = [error.message for error in jsonschema.Draft202012Validator(kept).iter_errors(answer)]
                assert not errors, (json.dumps(schema), answer, errors, fitted.left_out)
    assert n_answers > n_refused
