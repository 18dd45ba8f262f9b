"""Numbers of a JSON schema that llguidance would handle wrongly.

It stores every number as a double, and bounds of integers in 64 bits. So a constant beyond 2**53 may become another
number, a bound beyond 2**63 cannot be enforced, and a range that begins and ends at -2**63 ends the process.

Bounds are moved here to numbers that can be enforced, always inwards: a value within the new bound is within the old
one. The bounds of the widest types are simplified: of int64 the lowest 1,024 numbers are lost, and a bound of uint64 or
beyond becomes that of int64; one near the largest double is removed (`ending` bounds such numbers). A bound that leaves
only such numbers stays, and llguidance refuses it. Constants cannot be moved; they are refused here.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

EXACT = 1 << 53
"""Up to here every integer is a double."""
BEYOND = 1 << 63
"""The first integer that 64 bits with a sign do not hold."""
WIDEST = BEYOND - 1024
"""The largest double below."""
LARGEST = 10**307
"""Beyond every number that an answer may write with an exponent."""
LOWER = ("minimum", "exclusiveMinimum")
UPPER = ("maximum", "exclusiveMaximum")
NAMED = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
"""Keywords whose members have names chosen by the author of the schema."""
CONSTANTS = frozenset({"const", "enum"})
LARGE = re.compile(r"[0-9][0-9.]{15}|[0-9.][eE]")
"""A document without a match contains no numbers beyond `EXACT`; a cheap test of its text."""

Path = tuple[str | int, ...]
"""Where something stands in a JSON document."""


def walk(value: Any) -> Iterator[tuple[Path, Any]]:
    """Every value of a JSON document with its path, from the outside in. A value may be changed when it comes."""
    waiting: list[tuple[Path, Any]] = [((), value)]
    while waiting:
        path, node = waiting.pop()
        yield path, node
        if not isinstance(node, (str, int, float)):  # most values are; this is the cheapest test
            waiting += [((*path, key), child) for key, child in reversed(members(node))]


def members(node: Any) -> list[tuple[str | int, Any]]:
    """The values in a JSON object or array, with their keys or indexes."""
    if isinstance(node, Mapping):
        return list(node.items())
    return list(enumerate(node)) if isinstance(node, (list, tuple)) else []


def constants(schema: Any) -> Iterator[tuple[Path, Any]]:
    """The values of `const` and `enum`, with the path of the keyword.

    A property may be named `const`. But a reference may make any object a schema, so such a member counts as a constant
    unless it looks like a schema.
    """
    for path, value in walk(schema):
        if path and path[-1] in CONSTANTS and not (is_named(path[:-1]) and isinstance(value, Mapping)):
            yield path, value


def is_named(path: Path) -> bool:
    """Whether the keys of the object at `path` are names chosen by the author of the schema."""
    is_named = False
    for key in path:
        is_named = key in NAMED and not is_named
    return is_named


def inexact_number(value: Any) -> str:
    """A number in a constant that would become another number, as text; empty if there is none."""
    for _, node in walk(value):
        if isinstance(node, (int, float)) and not _is_kept(node):
            return repr(node) if isinstance(node, float) or abs(node) < 10**40 else "too many digits"
    return ""


def _is_kept(number: float) -> bool:
    if -EXACT <= number <= EXACT or (number == BEYOND - 1 and isinstance(number, int)):
        return True
    if not -BEYOND < number < BEYOND:
        return not math.isfinite(number) if isinstance(number, float) else False  # nan and inf are refused as JSON
    # As an integer it is written with all of its digits, as a float with those that tell it from others.
    return int(float(number)) == (number if isinstance(number, int) else int(Decimal(repr(number))))


def multiples(schema: Any) -> Iterator[tuple[Path, int]]:
    """Every `multipleOf`, with the number of remainders (lexer states) that it and all before it need together.

    Schemas may be joined by a reference or an `allOf`; then both multiples count.
    """
    found, n_decimals = Decimal(0), 0
    for path, step in walk(schema):
        if not path or path[-1] != "multipleOf" or isinstance(step, bool) or not isinstance(step, (int, float)):
            continue
        if not 0 < abs(step) < 10**20:
            continue
        exact = abs(Decimal(repr(step)))
        decimals = max(0, -int(exact.normalize().as_tuple().exponent))
        if decimals > 20:
            yield path, 10**20
            continue
        yield path, int(exact.scaleb(decimals))
        scale = max(decimals, n_decimals)
        one, other = int(found.scaleb(scale - n_decimals)), int(exact.scaleb(scale))
        found, n_decimals = Decimal(min(math.lcm(one or other, other), 10**20)), scale
        yield path, int(found)


def with_safe_bounds(text: str) -> str:
    """A JSON document with its bounds moved to enforceable numbers; unchanged if it is not JSON."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return text
    waiting: list[tuple[Any, bool, bool]] = [(document, False, False)] if isinstance(document, (dict, list)) else []
    while waiting:
        node, is_named, is_data = waiting.pop()
        if isinstance(node, dict) and not is_named and not is_data:
            _ease(node)
        for key, value in node.items() if isinstance(node, dict) else enumerate(node):
            if isinstance(value, (dict, list)):
                is_constant = key in CONSTANTS and not is_named
                waiting.append((value, key in NAMED and not is_named, is_data or is_constant))
            elif isinstance(value, (int, float)) and value < -WIDEST and key not in UPPER:
                node[key] = -WIDEST  # a default, say; but a reference may lead anywhere
    return json.dumps(document)


def _ease(node: dict[str, Any]) -> None:
    """Move the bounds of one schema."""
    kind = node.get("type")
    is_integer = "integer" in (kinds := kind if isinstance(kind, list) else [kind]) and "number" not in kinds
    for sign, keys in ((-1, LOWER), (1, UPPER)):
        for key in keys:
            bound = node.get(key)
            if isinstance(bound, bool) or not isinstance(bound, (int, float)) or abs(bound) in (0, math.inf):
                continue
            is_strict = key == keys[1] or node.get(keys[1]) is True
            top = math.ceil(sign * bound) - 1 if is_strict else math.floor(sign * bound)
            if top > LARGEST:
                del node[key]  # no number of an answer is so large (`ending`)
            elif top > BEYOND:
                node[key] = BEYOND - 1 if is_integer and sign > 0 else sign * WIDEST
            elif top > EXACT and not (is_integer and sign > 0 and top >= BEYOND - 1):  # that it gets right
                node[key] = sign * _below(min(top, WIDEST))
            elif -WIDEST < top < -EXACT:
                node[key] = sign * _below(top)


def _below(number: int) -> int:
    """The largest double that is not larger than `number`."""
    nearest = float(number)
    return int(nearest if nearest <= number else math.nextafter(nearest, -math.inf))
