"""The archive out of its file and into another: an exact copy as JSON Lines, and the import of what others export.

    {"type": "conversation", "uuid": …}        each before its messages, and behind the one it branched off
    {"type": "message", "uuid": …, "seq": …}   `uuid` is that of its conversation
    {"type": "fact", "key": …}

Vectors are not exported: they are made from the text. Not here: how files are read (`readers.py`, `formats.py`), and
what of them is new (`merge.py`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import apsw

from shepherd.core import InvalidRequest
from shepherd.memory.records import State, Trust, when
from shepherd.memory.transfer import as_json, readers
from shepherd.memory.transfer.formats import Problem, Record, Talk
from shepherd.memory.transfer.merge import Imported, Learnt, Merge

if TYPE_CHECKING:
    from shepherd.memory.store import MemoryStore

PAGE = 500
"""Messages that are read, or stored, at a time: nobody else waits for long, and no archive has to fit into memory."""
ALL = 2**62
"""Behind the last message of any conversation."""

Progress = Callable[[int, int], None]
"""Is told how many bytes have been read, and how many there are."""


# -- out --------------------------------------------------------------------------------------------------------------


def export(store: MemoryStore, write: Callable[[str], None], conversation: str | None = None) -> int:
    """Write `lines` with `write`; how many there were."""
    n_lines = 0
    for line in lines(store, conversation):
        write(line)
        n_lines += 1
    return n_lines


def lines(store: MemoryStore, conversation: str | None = None) -> Iterator[str]:
    """The archive as lines of JSON, each with its newline; or one conversation, with those it branched off.

    Facts come with the whole archive only. It is read page by page: what is said meanwhile may be in it or not.
    Raises: `InvalidRequest` at once for a conversation that is not there.
    """
    if conversation is None:
        return _archive(store)
    found = store.conversation(conversation)
    if found is None:
        raise InvalidRequest(f"conversation: none is called {conversation!r}", field="conversation")
    return _line_of(store, found.id)


def _archive(store: MemoryStore) -> Iterator[str]:
    last = 0
    while page := store.read(partial(_conversations, after=last, limit=PAGE)):
        for id, row in page:
            yield _json(row)
            yield from _messages(store, id, row["uuid"], ALL)
            last = id
    yield from map(_json, store.read(_facts))


def _line_of(store: MemoryStore, id: int) -> Iterator[str]:
    """A conversation behind those it branched off, of which only what it shares is told."""
    for its, upto in store.read(partial(_ancestors, id=id)):
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


def _iso(ms: int) -> str:
    return as_json.iso(when(ms))


def _ancestors(connection: apsw.Connection, id: int) -> list[tuple[int, int]]:
    """A conversation and those it branched off, the oldest first, each with the last `seq` that belongs to it."""
    rows = connection.execute(
        "WITH RECURSIVE line(id, upto) AS (VALUES(?, ?) UNION SELECT parent, min(upto, coalesce(parent_seq, -1)) "
        "FROM line JOIN conversation USING (id) WHERE parent IS NOT NULL) SELECT id, upto FROM line ORDER BY id",
        (id, ALL),
    )
    return [(int(id), int(upto)) for id, upto in rows]


def _conversations(connection: apsw.Connection, *, after: int, limit: int) -> list[tuple[int, dict[str, Any]]]:
    rows = connection.execute(
        "SELECT c.id, c.uuid, c.title, c.created_ms, c.model, c.source, c.session, p.uuid, c.parent_seq "
        "FROM conversation c LEFT JOIN conversation p ON p.id = c.parent WHERE c.id > ? ORDER BY c.id LIMIT ?",
        (after, limit),
    )
    made = []
    for id, uuid, title, created_ms, model, source, session, parent, parent_seq in rows:
        row = {"type": "conversation", "uuid": uuid, "title": title, "time": _iso(created_ms), "model": model}
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
        row = {"type": "message", "uuid": uuid, "seq": seq, "turn": turn, "role": role, "time": _iso(created_ms)}
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
        row = {"type": "fact", "key": key, "value": value, "kind": kind, "status": status, "time": _iso(created_ms)}
        row |= {"ended": _iso(ended_ms)} if ended_ms is not None else {}
        made.append(row | ({"source": {"uuid": uuid, "seq": seq}} if uuid is not None else {}))
    return made


# -- in ---------------------------------------------------------------------------------------------------------------


def import_file(store: MemoryStore, path: Path | str, *, on_progress: Progress | None = None) -> Imported:
    """Store what a file, a folder or a zip holds: exports of ChatGPT and Claude, JSON Lines, and our own.

    If it breaks off, what was stored stays, and is known the next time. Raises: `InvalidRequest` when nothing can be
    opened; `MemoryFailure`.
    """
    done = Imported()
    with readers.members(Path(path)) as found:
        total, before = sum(member.size_bytes for member in found), 0
        for member in found:
            on_bytes = partial(_tell, on_progress, before, total) if on_progress else None
            with member.open() as stream:
                done.add(import_stream(store, stream, name=member.name if len(found) > 1 else "", on_bytes=on_bytes))
            before += member.size_bytes
    return done


def _tell(on_progress: Progress, before: int, total: int, n_bytes: int) -> None:
    on_progress(before + n_bytes, total)


def import_stream(
    store: MemoryStore, stream: IO[bytes], *, name: str = "", on_bytes: Callable[[int], None] | None = None
) -> Imported:
    """`import_file` for one stream, which is read from its beginning to its end; problems are told with its `name`."""
    done, learnt = Imported(), Learnt()
    batch: list[Talk | Record] = []
    weight = 0
    for item in readers.read(stream, name, on_bytes):
        if isinstance(item, Problem):
            done.note(item)
            continue
        for piece in _pieces(item) if isinstance(item, Talk) else (item,):
            batch.append(piece)
            weight += len(piece.entries) if isinstance(piece, Talk) else 1
            if weight >= PAGE:
                done.add(_store(store, batch, learnt))
                batch, weight = [], 0
    done.add(_store(store, batch, learnt))
    return done


def _pieces(talk: Talk) -> Iterator[Talk]:
    for at in range(0, len(talk.entries), PAGE):
        goes_on, n_left_out = talk.goes_on or at > 0, 0 if at else talk.n_left_out
        yield replace(talk, entries=talk.entries[at : at + PAGE], goes_on=goes_on, n_left_out=n_left_out)


def _store(store: MemoryStore, batch: list[Talk | Record], learnt: Learnt) -> Imported:
    """Store a batch in one transaction. The job may be run twice: what it learns counts when it has succeeded."""

    def job(connection: apsw.Connection) -> Merge:
        merge = Merge(connection, learnt)
        merge.take(batch)
        return merge

    merge = store.write(job)
    learnt.places.update(merge.learnt.places)
    learnt.heads.update(merge.learnt.heads)
    learnt.homes.update(merge.learnt.homes)
    return merge.done
