"""The memory's records as plain values for JSON, the same over HTTP and on the command line.

Times are ISO 8601 in UTC; enumerations are words.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from shepherd.memory.records import Conversation, Fact, Hit, Stats, StoredMessage, to_datetime


def hit(one: Hit) -> dict[str, Any]:
    return {
        "score": round(one.score, 4),
        **_fields(one, "user_message", "assistant_response"),
        "time": _iso(one.timestamp),
        **_fields(one, "message_id", "role", "conversation", "title", "snippet", "untrusted"),
    }


def conversation(one: Conversation) -> dict[str, Any]:
    named = {"conversation": one.uuid, "title": one.title, "time": iso(one.created_ms)}
    return named | _fields(one, "model", "source", "n_messages")


def message(one: StoredMessage) -> dict[str, Any]:
    return {
        **_fields(one, "id", "seq", "turn", "role", "body"),
        **(json.loads(one.meta) if one.meta else {}),
        "time": iso(one.created_ms),
        "trust": one.trust.name.lower(),
        "state": one.state.name.lower(),
        "pinned": one.pinned,
    }


def fact(one: Fact) -> dict[str, Any]:
    ended = None if one.ended_ms is None else iso(one.ended_ms)
    times = {"time": iso(one.created_ms), "ended": ended, "message_id": one.source}
    return _fields(one, "id", "key", "value", "kind", "status") | times


def stats(one: Stats) -> dict[str, Any]:
    fields = asdict(one)
    oldest, newest = fields.pop("oldest_ms"), fields.pop("newest_ms")
    return fields | {name: None if ms is None else iso(ms) for name, ms in (("oldest", oldest), ("newest", newest))}


def _fields(one: object, *names: str) -> dict[str, Any]:
    return {name: getattr(one, name) for name in names}


def iso(ms: int) -> str:
    return _iso(to_datetime(ms))


def _iso(time: datetime) -> str:
    return time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
