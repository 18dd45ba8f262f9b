"""What one protocol reports that the others have no word for, such as prices, citations, or why an answer paused.

    decoder of a provider ─ kept ─▶ Started.own, Finished.own, OpaqueBlock ─ facts_of ─▶ a surface of the same protocol

Surfaces of other protocols leave it out.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from shepherd.core import Opaque
from shepherd.wire.base import Json, compact_json, parse_object
from shepherd.wire.signature import Protocol


def kept(protocol: Protocol, facts: Mapping[str, Any]) -> Opaque | None:
    """The facts that are not null; None where there are none."""
    known = {key: value for key, value in facts.items() if value is not None and value != {}}
    return Opaque(protocol, compact_json(known)) if known else None


def facts_of(protocol: Protocol, block: Opaque | None) -> Json:
    """The facts; none in those of another protocol."""
    return parse_object(block.body) or {} if block is not None and block.protocol == protocol else {}


def besides(record: Any, names: Collection[str]) -> Json:
    """The fields of an object that have none of these names, and a value."""
    if not isinstance(record, dict):
        return {}
    return {key: value for key, value in record.items() if key not in names and value is not None}


def merge_facts(facts: Json, more: Mapping[str, Any]) -> None:
    """Put pieces of facts behind those that came before: texts and arrays grow, objects are merged."""
    for key, value in more.items():
        match facts.get(key), value:
            case (str() as old, str()) if key not in ("id", "type"):
                facts[key] = old + value
            case list() as old, list():
                facts[key] = [*old, *value]
            case dict() as old, dict():
                facts[key] = merged = dict(old)
                merge_facts(merged, value)
            case _ if value is not None:
                facts[key] = value
