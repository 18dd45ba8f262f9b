"""Values of other programs' JSON, read leniently: what has the wrong type counts as absent."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

_LATEST_MS = 253_402_300_799_000
"""The end of the year 9999."""


def find_first(fields: Mapping[str, Any], *keys: str) -> Any:
    return next((fields[key] for key in keys if fields.get(key) is not None), None)


def find_text(fields: Mapping[str, Any], *keys: str) -> str:
    """The first of `keys` that holds text; "" = none."""
    return next((value for key in keys if isinstance(value := fields.get(key), str) and value), "")


def find_name(fields: Mapping[str, Any], keys: tuple[str, ...]) -> str | None:
    """The first of `keys` that holds text or a number."""
    given = (fields.get(key) for key in keys)
    return next((str(value) for value in given if isinstance(value, str | int) and str(value).strip()), None)


def find_object(fields: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = fields.get(key)
    return value if isinstance(value, dict) else {}


def find_objects(fields: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    value = fields.get(key)
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def as_ms(value: Any) -> int | None:
    """A time as exports write it: seconds or milliseconds since 1970, or ISO 8601; None for anything else."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            try:
                moment = datetime.fromisoformat(value.strip())
                value = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
            except (ValueError, OverflowError):
                return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _LATEST_MS:
        return None
    return round(value if value > 100_000_000_000 else value * 1000)
