"""The archive as JSON Lines: an exact copy, but for vectors, which can be computed again.

{"type": "conversation", "uuid": …}        before its messages, and after the one it branched off
{"type": "message", "uuid": …, "seq": …}   `uuid` is that of its conversation
{"type": "fact", "key": …}
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import apsw

from shepherd.core import InvalidRequest
from shepherd.memory.archive import queries
from shepherd.memory.records import State, Trust
from shepherd.memory.transfer.as_json import iso

if TYPE_CHECKING:
    from shepherd.memory.store import MemoryStore

PAGE = 500
"""Messages read in one transaction, so that other readers do not wait for long and memory use stays small."""
ALL = 2**62


def lines(store: MemoryStore, conversation: str | None = None) -> Iterator[str]:
    """The archive as lines of JSON, each with its newline; or one conversation, with those it branched off.

    Facts are in an export of the whole archive only. Pages are read one by one: a message stored meanwhile may be
    missing. Raises: `InvalidRequest` at once for an unknown conversation.
    """
    if conversation is None:
        return _archive(store)
    found = store.conversation(conversation)
    if found is None:
        raise InvalidRequest(f"conversation: none is called {conversation!r}", field="conversation")
    return _with_ancestors(store, found.id)


def _archive(store: MemoryStore) -> Iterator[str]:
    last = 0
    while page := store.read(partial(_conversations, after=last, limit=PAGE)):
        for id, row in page:
            yield _json(row)
            yield from _messages(store, id, row["uuid"], ALL)
            last = id
    yield from map(_json, store.read(_facts))


def _with_ancestors(store: MemoryStore, id: int) -> Iterator[str]:
    """A conversation after those it branched off, which are cut where they part."""
    for its, upto in store.read(partial(queries.lineage, conversation=id)):
        for _, row in store.read(partial(_conversations, after=its - 1, limit=1)):
            yield _json(row)
            yield from _messages(store, its, row["uuid"], upto)


def _messages(store: MemoryStore, conversation: int, uuid: str, upto: int) -> Iterator[str]:
    after = -1
    while page := store.read(partial(_page, conversation=conversation, uuid=uuid, after=after, upto=upto)):
        yield from map(_json, page)
        after = page[-1]["seq"]


def _json(row: Mapping[str, Any]) -> str:
    return json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n"


def _conversations(connection: apsw.Connection, *, after: int, limit: int) -> list[tuple[int, dict[str, Any]]]:
    rows = connection.execute(
        "SELECT c.id, c.uuid, c.title, c.created_ms, c.model, c.source, c.session, p.uuid, c.parent_seq "
        "FROM conversation c LEFT JOIN conversation p ON p.id = c.parent WHERE c.id > ? ORDER BY c.id LIMIT ?",
        (after, limit),
    )
    made = []
    for id, uuid, title, created_ms, model, source, session, parent, parent_seq in rows:
        row = {"type": "conversation", "uuid": uuid, "title": title, "time": iso(created_ms), "model": model}
        row |= {"source": source} if source else {}
        row |= {"session": session} if session is not None else {}
        row |= {"parent": parent, "parent_seq": parent_seq} if parent is not None else {}
        made.append((id, row))
    return made


def _page(connection: apsw.Connection, *, conversation: int, uuid: str, after: int, upto: int) -> list[dict[str, Any]]:
    rows = connection.execute(
        "SELECT seq, turn, role, created_ms, body, meta, trust, state, pinned, sha, chain FROM message "
        "WHERE conversation = ? AND seq > ? AND seq <= ? ORDER BY seq LIMIT ?",
        (conversation, after, upto, PAGE),
    )
    made = []
    for seq, turn, role, created_ms, body, meta, trust, state, pinned, sha, chain in rows:
        row = {"type": "message", "uuid": uuid, "seq": seq, "turn": turn, "role": role, "time": iso(created_ms)}
        row |= {"body": body} | ({"meta": json.loads(meta)} if meta else {})
        row |= {"trust": Trust(trust).name.lower(), "state": State(state).name.lower()}
        row |= {"pinned": True} if pinned else {}
        made.append(row | {"sha": sha.hex(), "chain": chain.hex()})
    return made


def _facts(connection: apsw.Connection) -> list[dict[str, Any]]:
    rows = connection.execute(
        "SELECT f.key, f.value, f.kind, f.status, f.created_ms, f.ended_ms, c.uuid, m.seq FROM fact f "
        "LEFT JOIN message m ON m.id = f.source LEFT JOIN conversation c ON c.id = m.conversation ORDER BY f.id"
    )
    made = []
    for key, value, kind, status, created_ms, ended_ms, uuid, seq in rows:
        row = {"type": "fact", "key": key, "value": value, "kind": kind, "status": status, "time": iso(created_ms)}
        row |= {"ended": iso(ended_ms)} if ended_ms is not None else {}
        made.append(row | ({"source": {"uuid": uuid, "seq": seq}} if uuid is not None else {}))
    return made
