"""The fields of a body as a table: the decoder reads what the table lists, and `/docs` shows the same table.

Field("n", integer(1, 16), "Choices.", default=1) ─┬─ read_fields ─▶ {"n": 1}
                                                   └─ body_schema ─▶ {"n": {"type": "integer", "minimum": 1, ...}}
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from shepherd.core.dataclasses import dataclass
from shepherd.wire.base import Fields, Json, Range, wrong


@dataclass(frozen=True, slots=True)
class FieldKind:
    read: Callable[[Fields, str], Any]
    """From an object and a key to the checked value, `None` if it is absent. Raises: `InvalidRequest`."""
    schema: Json
    is_plain: bool = False
    """An absent value needs no reading: it is `None` in every object."""


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    kind: FieldKind
    about: str = ""
    default: Any = None
    """In place of an absent value."""
    also: tuple[str, ...] = ()
    """Other names. All are checked, and the first that is present counts."""


def read_fields(body: Fields, table: Iterable[Field]) -> Json:
    """The value of every field of the table, by its name. Raises: `InvalidRequest`."""
    found = {}
    given = body.body
    for field in table:
        kind = field.kind  # most fields are absent
        value = kind.read(body, field.name) if field.name in given or not kind.is_plain else None
        for name in field.also:
            other = kind.read(body, name) if name in given or not kind.is_plain else None
            value = other if value is None else value
        found[field.name] = field.default if value is None else value
    return found


def body_schema(*table: Field, example: Json | None = None, required: Iterable[str] = ()) -> Json:
    """The JSON Schema of an object with these fields."""
    properties = {}
    for field in table:
        schema = field.kind.schema
        properties[field.name] = schema | _known(description=field.about, default=schema.get("default", field.default))
        for name in field.also:
            properties[name] = field.kind.schema | {"description": f"Another name of {field.name}."}
    return {"type": "object", "properties": properties} | _known(required=[*required], example=example)


def _known(**values: Any) -> Json:
    return {key: value for key, value in values.items() if value not in (None, "", [])}


# ---- kinds

ANYTHING = FieldKind(Fields.find_any, {}, is_plain=True)
STRING = FieldKind(Fields.find_string, {"type": "string"}, is_plain=True)
BOOLEAN = FieldKind(Fields.find_boolean, {"type": "boolean"}, is_plain=True)
STRINGS = FieldKind(Fields.find_strings, {"type": "array", "items": {"type": "string"}}, is_plain=True)
OBJECTS = FieldKind(Fields.find_any, {"type": "array", "items": {"type": "object"}}, is_plain=True)
"""Checked by their own decoder, as `ANYTHING` is."""
OBJECT = FieldKind(lambda body, key: (found := body.find_object(key)) and found.body, {"type": "object"}, is_plain=True)


def number(low: float, high: float) -> FieldKind:
    schema = {"type": "number", "minimum": low, "maximum": high}
    return FieldKind(partial(Fields.find_number, allowed=Range(low, high)), schema, is_plain=True)


def integer(low: int | None = None, high: int | None = None) -> FieldKind:
    schema = _known(type="integer", minimum=low, maximum=high)
    return FieldKind(partial(Fields.find_integer, allowed=Range(low, high)), schema, is_plain=True)


def one_of(*words: str) -> FieldKind:
    expected = f"one of {', '.join(words)}" if len(words) > 2 else " or ".join(f'"{word}"' for word in words)

    def read(body: Fields, key: str) -> str | None:
        value = body.find_string(key)
        if value is not None and value not in words:
            raise wrong(body.at(key), expected, value)
        return value

    return FieldKind(read, {"enum": list(words)}, is_plain=True)


def inside(*table: Field) -> FieldKind:
    """An object with fields of its own; an absent one has the values of an empty one."""

    def read(body: Fields, key: str) -> Json:
        return read_fields(body.find_object(key) or Fields({}, body.at(key)), table)

    return FieldKind(read, body_schema(*table))
