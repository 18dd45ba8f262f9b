"""The fields of a form of an MCP server: their questions, and the values of the answers.

A flat JSON Schema (strings with formats, numbers, booleans, choices of one or several) becomes `Field`s, one question
each. Pure. Not here: the questions on the screen (`consent.py`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime
from typing import Any, Literal
from urllib.parse import urlsplit

from shepherd.core.dataclasses import dataclass

FieldKind = Literal["string", "number", "integer", "boolean", "one", "several"]

_QUOTED = 60
"""Characters of an answer that an error quotes."""
_BOOLEANS = dict.fromkeys(["yes", "y", "true", "on", "1"], True) | dict.fromkeys(
    ["no", "n", "false", "off", "0"], False
)


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    kind: FieldKind
    schema: Mapping[str, Any]
    is_required: bool = False
    choices: tuple[tuple[str, str], ...] = ()
    """Values, and the texts that a person sees."""

    @property
    def title(self) -> str:
        return _text(self.schema, "title") or self.name

    @property
    def description(self) -> str:
        return _text(self.schema, "description")

    @property
    def wanted(self) -> str:
        """The accepted answers, in a few words."""
        match self.kind:
            case "boolean":
                return "yes or no"
            case "one":
                return "its number or name"
            case "several":
                limits = _spelled(*_range(self.schema, "minItems", "maxItems"), "of them")
                return f"numbers or names, commas between{limits}"
            case "string":
                known = _FORMATS.get(_text(self.schema, "format"))
                limits = _spelled(*_range(self.schema, "minLength", "maxLength"), "characters")
                return f"{known[0] if known else 'text'}{limits}"
            case _:
                words = "a whole number" if self.kind == "integer" else "a number"
                return f"{words}{_spelled(*_range(self.schema, 'minimum', 'maximum'))}"

    @property
    def hint(self) -> str:
        return f"{self.wanted}{'' if self.is_required else '; may stay empty'}"

    @property
    def default(self) -> str:
        """The first text of the line: an answer that means the default."""
        default = self.schema.get("default")
        known = [value for value, _ in self.choices]
        match self.kind, default:
            case "boolean", bool():
                return "yes" if default else "no"
            case "several", list() if all(value in known for value in default):
                return ", ".join(str(known.index(value) + 1) for value in default)
            case "one", str() if default in known:
                return str(known.index(default) + 1)
            case "string", str():
                return " ".join(default.split())
            case "number" | "integer", int() | float() if not isinstance(default, bool):
                return str(default)
        return ""

    def read(self, answer: str) -> Any:
        """The value of an answer; None for an empty one. Raises: `ValueError`, one sentence for a person."""
        answer = answer.strip()
        if answer:
            return _READERS[self.kind](self, answer)
        if self.is_required:
            raise ValueError("This needs an answer; Ctrl-D refuses the whole form.")
        return None

    def choice(self, answer: str) -> str:
        """The value of a choice, given by number or name. Raises: `ValueError`."""
        wanted = answer.strip().casefold()
        if wanted.isdecimal() and len(wanted) < 9 and 1 <= int(wanted) <= len(self.choices):
            return self.choices[int(wanted) - 1][0]
        for value, shown in self.choices:
            if wanted in {value.casefold(), shown.casefold()}:
                return value
        raise ValueError(f"{_quoted(answer.strip())} is not one of the {len(self.choices)} choices.")


def fields(schema: Mapping[str, Any]) -> list[Field]:
    """The questions of a form, in order; none when it needs only a yes or no. Raises: `ValueError`, one sentence."""
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        return []
    required = schema.get("required")
    names = set(map(str, required)) if isinstance(required, Sequence) else set()
    if bare := [name for name, of in properties.items() if not isinstance(of, Mapping)]:
        raise ValueError(f"The field {bare[0]!r} has no schema.")
    return [_field(str(name), of, str(name) in names) for name, of in properties.items()]


def _field(name: str, schema: Mapping[str, Any], is_required: bool) -> Field:
    if choices := _choices(schema):
        return Field(name, "one", schema, is_required, choices)
    items = schema.get("items")
    if schema.get("type") == "array" and isinstance(items, Mapping) and (choices := _choices(items)):
        return Field(name, "several", schema, is_required, choices)
    kind = schema.get("type", "string")
    if isinstance(kind, list):  # an optional field may have the types X or null
        kind = next((each for each in kind if each != "null"), "string")
    match kind:
        case "string" | "number" | "integer" | "boolean":
            return Field(name, kind, schema, is_required)
        case _:
            raise ValueError(f"The field {name!r} has the type {kind!r}, which forms do not allow.")


def _choices(schema: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    titled = schema.get("oneOf") or schema.get("anyOf")
    if isinstance(titled, list) and all(isinstance(one, Mapping) and "const" in one for one in titled):
        return tuple((str(one["const"]), str(one.get("title", one["const"]))) for one in titled)
    values = schema.get("enum")
    if not isinstance(values, list):
        return ()
    names = schema.get("enumNames")
    shown = names if isinstance(names, list) and len(names) == len(values) else values
    return tuple((str(value), str(name)) for value, name in zip(values, shown, strict=True))


# -- answers ----------------------------------------------------------------------------------------------------------


def _text(schema: Mapping[str, Any], key: str) -> str:
    value = schema.get(key)
    return value if isinstance(value, str) else ""


def _range(schema: Mapping[str, Any], least: str, most: str) -> tuple[float, float]:
    """The limits in the schema; a limit that is not a number is ignored."""
    low, high = (
        value if isinstance(value := schema.get(key), int | float) and not isinstance(value, bool) else none
        for key, none in ((least, -math.inf), (most, math.inf))
    )
    return low, high


def _quoted(answer: str) -> str:
    return repr(answer if len(answer) <= _QUOTED else answer[:_QUOTED] + "…")


def _spelled(low: float, high: float, unit: str = "") -> str:
    unit = f" {unit}" if unit else ""
    if low <= 0 and unit:  # no limit for a count
        low = -math.inf
    if low == high:
        return f" of exactly {low:g}{unit}" if unit else f" that is {low:g}"
    if low > -math.inf and high < math.inf:
        return f" from {low:g} to {high:g}{unit}"
    if low > -math.inf:
        return f" of at least {low:g}{unit}"
    return f" of at most {high:g}{unit}" if high < math.inf else ""


def _is_uri(text: str) -> bool:
    parts = urlsplit(text)
    return bool(parts.scheme and (parts.netloc or parts.path)) and not re.search(r"\s", text)


_FORMATS: Mapping[str, tuple[str, Callable[[str], object]]] = {
    "email": ("an e-mail address", lambda text: re.fullmatch(r"[^\s@]+@[^\s@]+", text)),
    "uri": ("an address such as https://example.org", _is_uri),
    "date": (
        "a date such as 2026-01-31",
        lambda text: re.fullmatch(r"\d{4}-\d\d-\d\d", text) and date.fromisoformat(text),
    ),
    "date-time": (
        "a time such as 2026-01-31T12:00:00Z",
        lambda text: "T" in text.upper() and datetime.fromisoformat(text).tzinfo,
    ),
}
"""The words for each format, and a test that returns something false or raises `ValueError` for other texts."""


def _read_string(field: Field, answer: str) -> str:
    low, high = _range(field.schema, "minLength", "maxLength")
    known = _FORMATS.get(_text(field.schema, "format"))
    with suppress(ValueError):
        if low <= len(answer) <= high and (known is None or known[1](answer)):
            return answer
    raise ValueError(f"{_quoted(answer)} is not {field.wanted}.")


def _read_number(field: Field, answer: str) -> int | float:
    low, high = _range(field.schema, "minimum", "maximum")
    wanted = r"[+-]?\d{1,300}" if field.kind == "integer" else r"[+-]?(\d{1,300}(\.\d*)?|\.\d+)([eE][+-]?\d{1,3})?"
    if re.fullmatch(wanted, answer):
        value = int(answer) if re.fullmatch(r"[+-]?\d+", answer) else float(answer)
        if low <= value <= high and not math.isinf(value):
            return value
    raise ValueError(f"{_quoted(answer)} is not {field.wanted}.")


def _read_boolean(field: Field, answer: str) -> bool:
    found = _BOOLEANS.get(answer.casefold())
    if found is None:
        raise ValueError(f"{_quoted(answer)} is neither yes nor no.")
    return found


def _read_several(field: Field, answer: str) -> list[str]:
    low, high = _range(field.schema, "minItems", "maxItems")
    values = list(dict.fromkeys(field.choice(each) for each in answer.split(",") if each.strip()))
    if not low <= len(values) <= high:
        raise ValueError(f"{len(values)} chosen; it must be{_spelled(low, high, 'choices').replace(' of', '', 1)}.")
    return values


_READERS: Mapping[FieldKind, Callable[[Field, str], Any]] = {
    "string": _read_string,
    "number": _read_number,
    "integer": _read_number,
    "boolean": _read_boolean,
    "one": Field.choice,
    "several": _read_several,
}
