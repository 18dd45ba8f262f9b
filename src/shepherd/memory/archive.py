"""Histories into the archive: what of one is stored already, and where the rest goes.

Runs on the writer's connection, inside its transaction.
"""

from __future__ import annotations

import time
import uuid as uuids
from collections.abc import Sequence

import apsw

from shepherd.memory import lanes
from shepherd.memory.rows import Entry


def add_conversation(
    connection: apsw.Connection,
    *,
    session: str | None = None,
    uuid: str | None = None,
    title: str = "",
    created_ms: int | None = None,
    model: str = "",
    source: str = "",
    parent: tuple[int, int] | None = None,
) -> int:
    """A new conversation; its id. `parent`: the conversation it branches off and the last `seq` they share."""
    row = (
        uuid or str(uuids.uuid4()),
        session,
        title,
        now_ms() if created_ms is None else created_ms,
        model,
        source,
        *(parent or (None, None)),
    )
    connection.execute(
        "INSERT INTO conversation(uuid, session, title, created_ms, model, source, parent, parent_seq) "
        "VALUES(?, ?, ?, ?, ?, ?, ?, ?)",
        row,
    )
    return connection.last_insert_rowid()


def add_message(
    connection: apsw.Connection,
    conversation: int,
    entry: Entry,
    *,
    seq: int,
    turn: int,
    chain: bytes,
    before: Sequence[str] = (),
) -> int:
    """Store one message and index it; its id. `before` are the texts of the messages before it, at least two."""
    created_ms = now_ms() if entry.created_ms is None else entry.created_ms
    body, indexed = entry.text, lanes.indexed(entry)
    context = None if entry.recalled or entry.role == "system" else lanes.context(created_ms, body, before)
    row = (
        conversation,
        seq,
        turn,
        entry.role,
        body,
        indexed if indexed != body else None,
        context,
        entry.meta,
        created_ms,
        int(entry.trusted),
        entry.sha,
        chain,
    )
    connection.execute(
        "INSERT INTO message"
        "(conversation, seq, turn, role, body, spaced, context, meta, created_ms, trust, sha, chain) "
        "VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        row,
    )
    id = connection.last_insert_rowid()
    lanes.index(connection, id, entry.role)
    return id


def now_ms() -> int:
    return time.time_ns() // 1_000_000
