"""The part of the archive that a search covers: the filters as SQL."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from typing import Literal, NamedTuple

import apsw

from shepherd.core.dataclasses import dataclass
from shepherd.memory.records import Trust, clean
from shepherd.memory.search.query import NO_FILTERS, Filters

ASKED_CHARS = 300
"""A shorter message that ends with a question mark is a question, and the next message is its reply."""
BATCH = 34
ReplyKind = Literal["", "answered", "reply"]
"""What the message before it is: a question ("reply"), a model's answer ("answered"), anything else ("")."""


class MessageRow(NamedTuple):
    id: int
    conversation: int
    turn: int
    body: str
    """The indexed text."""
    context: str
    reply_kind: ReplyKind


_REPLY_KIND = f"""
    CASE WHEN length(b.body) < {ASKED_CHARS} AND rtrim(b.body) LIKE '%?' THEN 'reply'
    WHEN b.role != 'user' THEN 'answered' ELSE '' END"""


@dataclass(frozen=True, slots=True)
class Scope:
    where: str
    """"" = everything."""
    values: tuple[object, ...]
    first: int = 0
    last: int = 2**62
    """No id is outside of `first` to `last`."""

    def read(self, connection: apsw.Connection, ids: Sequence[int], without: Collection[int]) -> Iterator[MessageRow]:
        """The messages of `ids` inside the scope, in this order; read in batches, as the caller takes them."""
        left_out = frozenset(without)
        for start in range(0, len(ids), BATCH):
            batch = [id for id in ids[start : start + BATCH] if id not in left_out]
            rows = connection.execute(
                "SELECT id, conversation, turn, coalesce(spaced, body), coalesce(context, ''), coalesce("
                f"(SELECT {_REPLY_KIND} FROM message b WHERE b.id = m.before1), '') FROM message m "
                f"WHERE id IN (SELECT value FROM json_each(?)) AND {self.where or 'true'}",
                (json.dumps(batch), *self.values),
            )
            by_id = {row[0]: MessageRow(*row) for row in rows}
            yield from (by_id[id] for id in batch if id in by_id)


def find_scope(connection: apsw.Connection, filters: Filters) -> Scope | None:
    """The scope of the filters; None when it is empty."""
    inside, ids, first, last = "conversation IN (SELECT value FROM json_each(?))", None, 0, 2**62
    if filters.conversation is not None or filters.session is not None:
        rows = connection.execute(
            "SELECT id FROM conversation WHERE (?1 IS NULL OR uuid = ?1) AND (?2 IS NULL OR session = ?2)",
            [name if name is None else clean(name) for name in (filters.conversation, filters.session)],
        )
        ids = json.dumps([id for (id,) in rows])
        first, last = connection.execute(f"SELECT min(id), max(id) FROM message WHERE {inside}", (ids,)).get
        if first is None:
            return None
    elif not connection.execute("SELECT EXISTS (SELECT 1 FROM message)").get:
        return None
    given = {
        inside: ids,
        "role IN (SELECT value FROM json_each(?))": json.dumps(filters.roles) if filters.roles else None,
        "created_ms >= ?": filters.after_ms,
        "created_ms < ?": filters.before_ms,
        "trust < ?": None if filters.untrusted else int(Trust.UNTRUSTED),
    }
    conditions = {condition: value for condition, value in given.items() if value is not None}
    return Scope(" AND ".join(conditions), tuple(conditions.values()), first, last)


def newest(
    connection: apsw.Connection, *, limit: int, filters: Filters = NO_FILTERS, without: Collection[int] = ()
) -> list[int]:
    """The ids of the newest messages with text, newest first."""
    if (scope := find_scope(connection, filters)) is None:
        return []
    rows = connection.execute(
        "SELECT id FROM message WHERE role != 'system' AND body != '' AND id BETWEEN ? AND ? "
        f"AND {scope.where or 'true'} AND id NOT IN (SELECT value FROM json_each(?)) ORDER BY id DESC LIMIT ?",
        (scope.first, scope.last, *scope.values, json.dumps(list(without)), limit),
    )
    return [id for (id,) in rows]
