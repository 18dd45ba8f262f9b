"""Numbers of a JSON schema that llguidance would handle wrongly.

It stores every number as a double, and bounds of integers in 64 bits. So a constant beyond 2**53 may become another
number, a bound beyond 2**63 cannot be enforced, and a range that begins and ends at -2**63 ends the process.

Bounds are moved here to numbers that can be enforced, always inwards: a value within the new bound is within the old
one. The bounds of the widest types are simplified: of int64 the lowest 1,024 numbers are lost, and a bound of uint64 or
beyond is removed. A bound that leaves only such numbers stays, and llguidance refuses it. Constants cannot be moved;
they are refused here.
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
LOWER = ("minimum", "exclusiveMinimum")
UPPER = ("maximum", "exclusiveMaximum")
NAMED = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
"""Keywords whose members have names chosen by the author of the schema."""
CONSTANTS = ("const", "enum")
_LARGE = re.compile(r"[0-9][0-9.]{15}|[0-9.][eE]")

Path = tuple[str | int, ...]


def may_be_large(text: str) -> bool:
    """Whether a document may contain numbers beyond `EXACT`; a cheap test of its text."""
    return _LARGE.search(text) is not None


def constants(schema: Any) -> Iterator[tuple[Path, Any]]:
    """The values of `const` and `enum`, with the path of the keyword.

    A property may be named `const`. But a reference may make any object a schema, so such a member counts as a constant
    unless it looks like a schema.
    """
    waiting: list[tuple[Path, Any, bool]] = [((), schema, False)]
    while waiting:
        path, node, is_named = waiting.pop()
        if isinstance(node, Mapping):
            for key, value in node.items():
                if key in CONSTANTS and not (is_named and isinstance(value, Mapping)):
                    yield (*path, key), value
                else:
                    waiting.append(((*path, key), value, key in NAMED and not is_named))
        elif isinstance(node, (list, tuple)):
            waiting += [((*path, index), value, False) for index, value in enumerate(node)]


def inexact_number(value: Any) -> str:
    """A number in a constant that would become another number, as text; empty if there is none."""
    waiting = [value]
    while waiting:
        node = waiting.pop()
        if isinstance(node, (int, float)) and not _is_kept(node):
            return repr(node) if isinstance(node, float) or abs(node) < 10**40 else "too many digits"
        if isinstance(node, Mapping):
            waiting += node.values()
        elif isinstance(node, (list, tuple)):
            waiting += node
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
    waiting: list[tuple[Path, Any]] = [((), schema)]
    while waiting:
        path, node = waiting.pop()
        children = node.items() if isinstance(node, Mapping) else enumerate(node) if isinstance(node, list) else ()
        waiting += [((*path, key), value) for key, value in children]
        if not isinstance(node, Mapping):
            continue
        step = node.get("multipleOf")
        if isinstance(step, bool) or not isinstance(step, (int, float)) or not 0 < abs(step) < 10**20:
            continue
        exact = abs(Decimal(repr(step)))
        decimals = max(0, -int(exact.normalize().as_tuple().exponent))
        if decimals > 20:
            yield (*path, "multipleOf"), 10**20
            continue
        yield (*path, "multipleOf"), int(exact.scaleb(decimals))
        scale = max(decimals, n_decimals)
        one, other = int(found.scaleb(scale - n_decimals)), int(exact.scaleb(scale))
        found, n_decimals = Decimal(min(math.lcm(one or other, other), 10**20)), scale
        yield (*path, "multipleOf"), int(found)


def with_safe_bounds(text: str) -> str:
    """A JSON document with its bounds moved to enforceable numbers; unchanged if it is not JSON."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return text
    holder = [document]
    waiting: list[tuple[Any, Any, bool, bool]] = [(holder, 0, False, False)]
    while waiting:
        parent, key, is_named, is_data = waiting.pop()
        node = parent[key]
        if isinstance(node, dict):
            if not is_data and not is_named:
                _ease(node)
            waiting += [
                (node, name, name in NAMED and not is_named, is_data or (name in CONSTANTS and not is_named))
                for name in node
            ]
        elif isinstance(node, list):
            waiting += [(node, index, False, is_data) for index in range(len(node))]
        elif isinstance(node, (int, float)) and node < -WIDEST and key not in UPPER:
            parent[key] = -WIDEST  # a default, say; but a reference may lead anywhere
    return json.dumps(holder[0])


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
            if top > BEYOND:
                del node[key]
            elif top > EXACT and not (is_integer and sign > 0 and top >= BEYOND - 1):  # that it gets right
                node[key] = sign * _below(min(top, WIDEST))
            elif -WIDEST < top < -EXACT:
                node[key] = sign * _below(top)


def _below(number: int) -> int:
    """The largest double that is not larger than `number`."""
    nearest = float(number)
    return int(nearest if nearest <= number else math.nextafter(nearest, -math.inf))
