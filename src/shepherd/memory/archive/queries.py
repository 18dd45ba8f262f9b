"""Reads messages, conversations and counts from the archive."""

from __future__ import annotations

import json
from collections.abc import Collection
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import apsw

from shepherd.core import InvalidRequest
from shepherd.memory.archive import retention
from shepherd.memory.records import Conversation, State, Stats, StoredMessage, Trust, clean

MOST = 2**63 - 1
"""The greatest integer of SQLite."""
_MESSAGE = "message.id, conversation, seq, turn, role, body, created_ms, trust, state, pinned, meta"
_CONVERSATION = (
    "id, uuid, title, created_ms, model, source, parent, parent_seq, "
    "(SELECT count(*) FROM message WHERE message.conversation = conversation.id)"
)
_LINEAGE = """
WITH RECURSIVE line(id, parent, parent_seq, last) AS (
    SELECT id, parent, parent_seq, 9223372036854775807 FROM conversation WHERE id = ?
    UNION
    SELECT c.id, c.parent, c.parent_seq, min(coalesce(line.parent_seq, -1), line.last)
    FROM line JOIN conversation c ON c.id = line.parent
)
"""
"""A conversation and those it branched off, each with the last `seq` that belongs to the branch."""
_STATS = """
SELECT (SELECT count(*) FROM conversation), (SELECT count(*) FROM message),
    -- two partial indexes; one query for both would read all rows
    (SELECT count(*) FROM message WHERE state = 1 AND pinned = 0)
        + (SELECT count(*) FROM message WHERE state = 1 AND pinned = 1),
    (SELECT count(*) FROM message WHERE state = 2), (SELECT count(*) FROM fact WHERE status = 'current'),
    (SELECT count(*) FROM vector),
    min((SELECT created_ms FROM message WHERE message.conversation = conversation.id ORDER BY seq LIMIT 1)),
    max((SELECT created_ms FROM message WHERE message.conversation = conversation.id ORDER BY seq DESC LIMIT 1))
FROM conversation
"""


_UNASKED = """
SELECT id FROM message AS m WHERE id IN (SELECT value FROM json_each(?))
    AND conversation NOT IN (SELECT value FROM about WHERE name > 'aside ' AND name < 'aside!')
    AND id NOT IN (SELECT value FROM about WHERE name > 'undone ' AND name < 'undone!')
    AND NOT (role = 'assistant' AND EXISTS (
        SELECT 1 FROM message WHERE role = 'tool' AND seq = m.seq - 1
        AND conversation IN (m.conversation, (SELECT parent FROM conversation WHERE conversation.id = m.conversation))))
"""
"""The message before the first of a branch is in the conversation that it branched off."""


def stored(connection: apsw.Connection, ids: Collection[int]) -> list[StoredMessage]:
    """The messages with these ids, in the order of `ids`; unknown ids are left out."""
    chosen = list(dict.fromkeys(ids))
    rows = connection.execute(
        f"SELECT {_MESSAGE} FROM json_each(?) AS wanted JOIN message ON message.id = wanted.value ORDER BY wanted.key",
        (json.dumps(chosen),),
    )
    return [_stored(row) for row in rows]


def messages(
    connection: apsw.Connection,
    conversation: int,
    *,
    after_seq: int = -1,
    limit: int | None = None,
    shared: bool = False,
) -> list[StoredMessage]:
    """The messages after `after_seq`, in order. `shared`: also those of the conversations that it branched off."""
    if not shared:
        sql = f"SELECT {_MESSAGE} FROM message WHERE conversation = ? AND seq > ? ORDER BY seq LIMIT ?"
    else:
        sql = (
            f"{_LINEAGE} SELECT {_MESSAGE} FROM line JOIN message ON conversation = line.id AND seq <= line.last "
            "WHERE seq > ? ORDER BY seq, message.id LIMIT ?"
        )
    rows = connection.execute(sql, (conversation, min(after_seq, MOST), -1 if limit is None else min(limit, MOST)))
    return [_stored(row) for row in rows]


def lineage(connection: apsw.Connection, conversation: int) -> list[tuple[int, int]]:
    """A conversation and those it branched off, the oldest first, each with the last `seq` that belongs to it."""
    return [
        (int(id), int(last))
        for id, last in connection.execute(f"{_LINEAGE} SELECT id, last FROM line ORDER BY id", (conversation,))
    ]


def states(connection: apsw.Connection, ids: Collection[int]) -> dict[int, State]:
    """The states of these messages; unknown ids are left out."""
    rows = connection.execute(
        "SELECT id, state FROM message WHERE id IN (SELECT value FROM json_each(?))", (json.dumps(list(ids)),)
    )
    return {id: State(state) for id, state in rows}


def quotable(connection: apsw.Connection, ids: Collection[int]) -> frozenset[int]:
    """Of these messages, those that recall may quote: not of a conversation that was set aside (`set_aside`), not
    taken back (`take_back`), and no answer to the result of a tool, which repeats it or guesses after a failure.
    """
    return frozenset(id for (id,) in connection.execute(_UNASKED, (json.dumps(list(ids)),)))


def conversations(
    connection: apsw.Connection, limit: int | None = None, before: int | None = None
) -> list[Conversation]:
    """All conversations, newest first; `before`: those older than the one with this id."""
    sql = f"SELECT {_CONVERSATION} FROM conversation WHERE id < ? ORDER BY id DESC LIMIT ?"
    rows = connection.execute(
        sql, (MOST if before is None else min(before, MOST), -1 if limit is None else min(limit, MOST))
    )
    return [Conversation(*row) for row in rows]


def conversation(connection: apsw.Connection, uuid: str) -> Conversation | None:
    """The conversation with this uuid, or whose uuid begins with it. Raises: `InvalidRequest` when several do."""
    name = clean(uuid).strip()
    rows: list[Any] = connection.execute(
        f"SELECT {_CONVERSATION} FROM conversation WHERE uuid = ?1 OR (?1 <> '' AND substr(uuid, 1, length(?1)) = ?1) "
        "ORDER BY uuid = ?1 DESC LIMIT 2",
        (name,),
    ).fetchall()
    found = [Conversation(*row) for row in rows]
    if len(found) > 1 and found[0].uuid != name:
        raise InvalidRequest(f"conversation: several names begin with {uuid!r}; give more of it", field="conversation")
    return found[0] if found else None


def conversation_with(connection: apsw.Connection, id: int) -> Conversation:
    row: tuple[Any, ...]
    (row,) = connection.execute(f"SELECT {_CONVERSATION} FROM conversation WHERE id = ?", (id,))
    return Conversation(*row)


def sessions(connection: apsw.Connection, uuids: Collection[str]) -> dict[str, str]:
    """What clients call these conversations, by uuid; one without such a name is left out."""
    return dict(
        connection.execute(
            "SELECT uuid, session FROM conversation WHERE session IS NOT NULL "
            "AND uuid IN (SELECT value FROM json_each(?))",
            (json.dumps(list(uuids)),),
        )
    )


def newest_message(connection: apsw.Connection) -> int:
    """The id of the newest message; 0 = none."""
    return int(connection.execute("SELECT coalesce(max(id), 0) FROM message").get)


_NEWEST = (
    "FROM conversation WHERE session = ? ORDER BY "
    "(SELECT id FROM message WHERE message.conversation = conversation.id ORDER BY seq DESC LIMIT 1) DESC LIMIT 1"
)
"""The conversation of a session that has been added to last."""


def newest_conversation(connection: apsw.Connection, session: str) -> Conversation | None:
    """The newest conversation of a session; None for an unknown session."""
    rows: list[Any] = connection.execute(f"SELECT {_CONVERSATION} {_NEWEST}", (clean(session),)).fetchall()
    return Conversation(*rows[0]) if rows else None


def newest_turn(connection: apsw.Connection, session: str) -> list[int]:
    """Ids of the messages of a session's current turn, in order; none for an unknown session."""
    rows = connection.execute(
        f"SELECT message.id, turn FROM message WHERE conversation = (SELECT id {_NEWEST}) ORDER BY seq DESC",
        (clean(session),),
    )
    newest: list[Any] = next((list(group) for _, group in groupby(rows, key=itemgetter(1))), [])
    return [id for id, _ in reversed(newest)]


def stats(connection: apsw.Connection, path: Path, limit_bytes: int) -> Stats:
    row: tuple[Any, ...]
    (row,) = connection.execute(_STATS)
    pages, log = retention.sizes(connection, path)
    sizes = [pages + log, path.stat().st_size, log, limit_bytes]
    return Stats(*row[:6], *sizes, *row[6:])


def _stored(row: tuple[Any, ...]) -> StoredMessage:
    id, conversation, seq, turn, role, body, created_ms, trust, state, pinned, meta = row
    return StoredMessage(
        id, conversation, seq, turn, role, body, created_ms, Trust(trust), State(state), bool(pinned), meta
    )
