"""Forgetting: messages and everything that repeats them are deleted, down to the last byte of the file.

    find ─▶ ids, to be shown ─▶ remove, in one transaction ─▶ scrub, outside of any

The text of a message is also in its FTS5 table, in the contexts of later messages, in facts, in a title, in a vector.
What remains are hashes, so that a client which sends its history again does not bring the message back.

DELETE is not enough. SQLite overwrites deleted cells (`secure_delete`), and so does FTS5. But a cell that was moved to
another page has left a copy in a gap of the old page, which is never overwritten, and the log keeps old pages. `scrub`
rewrites the file without gaps and empties the log.

Not here: caches and snapshots of models, which hold the text as well; the caller clears them.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Collection, Iterator
from typing import Any

import apsw

from shepherd.core import InvalidRequest
from shepherd.core.dataclasses import dataclass
from shepherd.memory.archive import index
from shepherd.memory.archive.history import now_ms

BULK = 100
"""Up to this many messages are removed from the FTS5 tables one by one."""
REST = 100
"""More are, too, if at least this many times as many stay; else the FTS5 tables are rebuilt. To remove a message
costs a hundred times as much as to insert one: every page with one of its words is rewritten."""
SAYING_CHARS = 4
"""Shorter messages are part of too many facts."""


@dataclass(frozen=True, slots=True)
class Removed:
    n_messages: int = 0
    n_facts: int = 0
    shas: tuple[bytes, ...] = ()


def find(
    connection: apsw.Connection,
    *,
    messages: Collection[int] = (),
    conversation: str | None = None,
    matching: str | None = None,
    before_ms: int | None = None,
) -> list[int]:
    """Ids of the messages that meet all conditions, in order: they are among `messages`, in the conversation with this
    uuid, have this phrase (in any case, with any blanks, also in a call), are older than this time. A phrase takes a
    scan of all messages.

    Raises: `InvalidRequest` without a condition, so that a mistake does not delete everything.
    """
    if not messages and conversation is None and matching is None and before_ms is None:
        raise InvalidRequest("forget: give a condition: messages, a conversation, a phrase, or a time", field="forget")
    if matching is not None and not folded(matching):
        raise InvalidRequest("matching: must not be empty", field="matching")
    given = {
        "id IN (SELECT value FROM json_each(?))": json.dumps(list(messages)) if messages else None,
        "conversation = (SELECT id FROM conversation WHERE uuid = ?)": conversation,
        "created_ms < ?": before_ms,
    }
    conditions = {condition: value for condition, value in given.items() if value is not None}
    where = " AND ".join(conditions) or "TRUE"
    rows = connection.execute(f"SELECT id, body, meta FROM message WHERE {where} ORDER BY id", [*conditions.values()])
    if matching is None:
        return [id for id, _, _ in rows]
    phrase = folded(matching)
    return [id for id, body, meta in rows if any(phrase in folded(text) for text in (body, *_call_texts(meta)))]


def remove(connection: apsw.Connection, ids: Collection[int], *, matching: str | None = None) -> Removed:
    """Delete these messages, also pinned ones, and what was made of them: vectors, facts, titles, and quotations in
    other messages' contexts. `matching`: facts and titles with this phrase are deleted as well.

    They are not stored again when a client sends its history again. `scrub` deletes what is left in gaps.
    """
    chosen = json.dumps(list(ids))
    wanted = "id IN (SELECT value FROM json_each(?)) ORDER BY id"
    rows = list(connection.execute(f"SELECT id, conversation, role, body, sha FROM message WHERE {wanted}", (chosen,)))
    bodies = [body for _, _, _, body, _ in rows]
    n_facts = _remove_facts(connection, chosen, bodies, matching)
    _remove_titles(connection, {row[1] for row in rows}, bodies, matching)
    for name, table, id in (("sha", "message", "id"), ("chain", "message", "id"), ("chain", "alias", "message")):
        connection.execute(
            f"INSERT OR IGNORE INTO erased(sha, at_ms) SELECT {name}, ? FROM {table} "
            f"WHERE {id} IN (SELECT value FROM json_each(?))",
            (now_ms(), chosen),
        )
    delete(connection, [(id, role) for id, _, role, _, _ in rows])
    return Removed(len(rows), n_facts, tuple(dict.fromkeys(sha for *_, sha in rows)))


def scrub(connection: apsw.Connection) -> bool:
    """Rewrite the file without gaps, and empty its log. False when a reader of an old state keeps the log: try again
    later. Outside of any transaction.

    Takes about a second for 100 MB, and as much disk space as the file.
    """
    assert not connection.in_transaction
    connection.execute("VACUUM")
    ((busy, _, _),) = list(connection.execute("PRAGMA wal_checkpoint(TRUNCATE)"))
    return not busy


def delete(connection: apsw.Connection, messages: Collection[tuple[int, str]]) -> None:
    """Delete messages, (id, role), from all tables, and conversations without messages and branches.

    Facts stay, and the messages can be stored again; see `remove`.
    """
    ids = [id for id, _ in messages]
    chosen = json.dumps(ids)
    ((n_all,),) = connection.execute("SELECT count(*) FROM (SELECT 1 FROM message LIMIT ?)", (len(ids) * REST,))
    is_bulk = len(ids) > BULK and n_all < len(ids) * REST
    for id, role in () if is_bulk else messages:
        index.unindex(connection, id, role)
    connection.execute("DELETE FROM vector WHERE message IN (SELECT value FROM json_each(?))", (chosen,))
    sql = "DELETE FROM message WHERE id IN (SELECT value FROM json_each(?)) RETURNING conversation"
    conversations = {conversation for (conversation,) in connection.execute(sql, (chosen,))}
    connection.execute(
        "DELETE FROM conversation WHERE id IN (SELECT value FROM json_each(?)) "
        "AND NOT EXISTS (SELECT 1 FROM message WHERE message.conversation = conversation.id) "
        "AND NOT EXISTS (SELECT 1 FROM conversation AS branch WHERE branch.parent = conversation.id)",
        (json.dumps(list(conversations)),),
    )
    requote(connection, ids, are_indexed=not is_bulk)
    if is_bulk:
        reindex(connection)


def requote(connection: apsw.Connection, changed: Collection[int], *, are_indexed: bool = True) -> None:
    """Rewrite the contexts that quote these messages. `are_indexed`: False when the FTS5 tables are rebuilt anyway."""
    sql = (
        "WITH wanted(id) AS (SELECT value FROM json_each(?)) "
        "SELECT id, role, body, created_ms, before1, before2 FROM message WHERE id IN ("
        "SELECT m.id FROM wanted JOIN message m ON m.before1 = wanted.id "
        "UNION SELECT m.id FROM wanted JOIN message m ON m.before2 = wanted.id)"
    )
    for id, role, body, created_ms, *before in list(connection.execute(sql, (json.dumps(list(changed)),))):
        quoted = [
            row
            for other in before
            for row in connection.execute("SELECT id, body FROM message WHERE id = ? AND body <> ''", (other,))
        ]
        # The nearest is first in the row, and last in the context, in the order of time.
        context = index.context(created_ms, body, [text for _, text in reversed(quoted)])
        before1, before2 = [*(other for other, _ in quoted), None, None][:2]
        if are_indexed:
            index.unindex(connection, id, role)
        connection.execute(
            "UPDATE message SET context = ?, before1 = ?, before2 = ? WHERE id = ?", (context, before1, before2, id)
        )
        connection.execute("DELETE FROM vector WHERE message = ?", (id,))  # it may include the context
        if are_indexed:
            index.index(connection, id, role)


def reindex(connection: apsw.Connection) -> None:
    """Rebuild both FTS5 tables from the messages; some 30,000 a second."""
    for table in index.FTS_TABLES:
        connection.execute(f"INSERT INTO {table}({table}) VALUES('delete-all')")
    index.index_from(connection, 0, index.TABLE_OF_ROLE)


def folded(text: str) -> str:
    plain = text if text.isascii() else unicodedata.normalize("NFKC", text)
    return " ".join(plain.casefold().split())


def _remove_facts(connection: apsw.Connection, chosen: str, bodies: list[str], matching: str | None) -> int:
    """Delete facts taken from the messages, facts with the text of one, and facts with the phrase; return how many."""
    held = list(connection.execute("SELECT id, source, key, value FROM fact"))
    longest = max((len(value) for *_, value in held), default=0)
    texts = {folded(body) for body in bodies if len(body) <= longest}
    texts = {text for text in texts if len(text) >= SAYING_CHARS}
    sources, phrase, gone = set(json.loads(chosen)), folded(matching or ""), list[int]()
    for id, source, key, value in held:
        fact = folded(value)
        has_phrase = bool(phrase) and (phrase in fact or phrase in folded(key))
        if source in sources or has_phrase or any(text in fact for text in texts):
            gone.append(id)
    connection.execute("DELETE FROM fact WHERE id IN (SELECT value FROM json_each(?))", (json.dumps(gone),))
    return len(gone)


def _remove_titles(
    connection: apsw.Connection, conversations: Collection[int], bodies: list[str], matching: str | None
) -> None:
    """Clear titles made from these messages, in their conversations and branches; and titles with the phrase."""
    rows = connection.execute(
        "WITH RECURSIVE line(id) AS (SELECT value FROM json_each(?) "
        "UNION SELECT c.id FROM line JOIN conversation c ON c.parent = line.id) "
        "SELECT id, title, id IN (SELECT id FROM line) FROM conversation WHERE title <> ''",
        (json.dumps(sorted(conversations)),),
    )
    phrase, texts = folded(matching or ""), "".join(f"\0{folded(body)}" for body in bodies)
    gone = list[int]()
    for id, title, is_near in rows:
        shown = folded(title)
        if (phrase and phrase in shown) or (is_near and "\0" + shown.rstrip("….") in texts):
            gone.append(id)
    connection.execute(
        "UPDATE conversation SET title = '' WHERE id IN (SELECT value FROM json_each(?))", (json.dumps(gone),)
    )


def _call_texts(meta: str | None) -> Iterator[str]:
    """The texts in a message's calls, as stored and with JSON escapes decoded."""
    if not meta:
        return
    yield meta
    for call in json.loads(meta).get("calls", ()):
        yield call["arguments"]
        try:
            yield from _strings(json.loads(call["arguments"]))
        except (ValueError, RecursionError):
            continue  # a model wrote it: it may be invalid JSON


def _strings(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict():
            for key, inner in value.items():
                yield key
                yield from _strings(inner)
        case list():
            for inner in value:
                yield from _strings(inner)
        case _:
            yield json.dumps(value)
