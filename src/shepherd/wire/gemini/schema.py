"""JSON Schema as Gemini's API accepts it (`parametersJsonSchema`, `responseJsonSchema`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shepherd.wire.base import Json

_DROPPED = frozenset({
    "$schema", "$id", "$comment", "title", "examples", "discriminator", "exclusiveMinimum", "exclusiveMaximum",
    "default", "deprecated", "readOnly", "writeOnly",
})  # fmt: skip
_NAMED = frozenset({"properties", "$defs", "definitions", "patternProperties"})
"""Keywords whose members are names, not keywords."""
_FORMATS = frozenset({"date-time", "date", "time", "duration", "enum"})
"""Of strings; the API refuses others."""


def accepted(schema: Mapping[str, Any]) -> Json:
    """The schema without what the API refuses; what words can express goes into the description."""
    made: Json = {}
    notes: list[str] = []
    for key, value in schema.items():
        if key in _DROPPED:
            continue
        if key == "const":
            made["enum"] = [value]
        elif key == "format" and schema.get("type") == "string" and value not in _FORMATS:
            notes.append(f"format: {value}")
        elif key in _NAMED and isinstance(value, Mapping):
            made[key] = {name: _inside(each) for name, each in value.items()}
        elif key in ("enum", "required"):
            made[key] = value
        else:
            made[key] = _inside(value)
    if made.get("type") == "array":
        made.setdefault("items", {})
    if notes:
        made["description"] = " ".join(filter(None, (made.get("description"), f"({', '.join(notes)})")))
    return made


def _inside(value: Any) -> Any:
    match value:
        case Mapping():
            return accepted(value)
        case list():
            return [_inside(each) for each in value]
        case _:
            return value
