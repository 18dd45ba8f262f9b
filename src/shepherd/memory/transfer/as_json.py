"""The memory's records as plain values for JSON, the same over HTTP and on the command line.

Times are ISO 8601 in UTC; enumerations are words.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from shepherd.memory.records import Conversation, Fact, Hit, Stats, StoredMessage, to_datetime


def hit(found: Hit) -> dict[str, Any]:
    return {
        "score": round(found.score, 4),
        "user_message": found.user_message,
        "assistant_response": found.assistant_response,
        "time": _iso(found.timestamp),
        "message_id": found.message_id,
        "role": found.role,
        "conversation": found.conversation,
        "title": found.title,
        "snippet": found.snippet,
        "untrusted": found.untrusted,
    }


def conversation(one: Conversation) -> dict[str, Any]:
    return {
        "conversation": one.uuid,
        "title": one.title,
        "time": iso(one.created_ms),
        "model": one.model,
        "source": one.source,
        "n_messages": one.n_messages,
    }


def message(one: StoredMessage) -> dict[str, Any]:
    return {
        "id": one.id,
        "seq": one.seq,
        "turn": one.turn,
        "role": one.role,
        "body": one.body,
        **(json.loads(one.meta) if one.meta else {}),
        "time": iso(one.created_ms),
        "trust": one.trust.name.lower(),
        "state": one.state.name.lower(),
        "pinned": one.pinned,
    }


def fact(one: Fact) -> dict[str, Any]:
    return {
        "id": one.id,
        "key": one.key,
        "value": one.value,
        "kind": one.kind,
        "status": one.status,
        "time": iso(one.created_ms),
        "ended": None if one.ended_ms is None else iso(one.ended_ms),
        "message_id": one.source,
    }


def stats(one: Stats) -> dict[str, Any]:
    fields = asdict(one)
    oldest, newest = fields.pop("oldest_ms"), fields.pop("newest_ms")
    return fields | {name: None if ms is None else iso(ms) for name, ms in (("oldest", oldest), ("newest", newest))}


def iso(ms: int) -> str:
    """A stored time as text."""
    return _iso(to_datetime(ms))


def _iso(time: datetime) -> str:
    return time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
