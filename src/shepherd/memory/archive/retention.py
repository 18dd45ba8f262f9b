"""Room: what is given up when the memory has grown to its limit, a little at a time.

    above 90 % of the limit     1. results of tools: their middle
                                2. answers: their text
                                3. what the user said: its text, the oldest first
                                4. the rows that are left of the oldest of those
    above the limit itself      5. the oldest messages, though they may still be in a context

Only what has left its context is touched in 1 to 4. What is pinned, noted, the source of a fact, or the newest of all
is never touched, facts neither: what nobody may give up can be larger than the limit. An empty row costs little and
keeps a message from being stored again when a client sends its history; when those take a tenth of the limit, the
oldest go before what the user said.

Who calls `step` again and again, while `is_due`, decides when there is time for it.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw

from shepherd.memory.archive import forget, index
from shepherd.memory.archive.history import NOTES
from shepherd.memory.records import Call, State

STEP = 20
"""Messages that one step touches: some 20 ms."""
STEP_CHARS = 40_000
"""No more is read in one step, but for the last message of it."""
FULL = 0.9
"""Of the limit: from here on there is something to do."""
HUSKS = 0.1
"""Of the limit: so much may be rows that say nothing any more."""
HUSK_BYTES = 200
"""Of one such row, with what the indexes keep of it."""
NEWEST = 4
"""Messages that stay whatever the limit is: what is being said."""
KEPT_CHARS = 500
"""Of a tool's result at either end."""
BULKY_CHARS = 1200
"""Results longer than this are shortened. There is an index of them, whose definition says the same."""
CALL_CHARS = 500
"""Arguments of a call that is given up, when they are longer than this."""
MERGE_PAGES = 64
"""Of each lane that are merged in one step."""
DENSE_BYTES = 2600
"""Of the 4,000 that a page of a lane can hold; with fewer it is worth merging."""


@dataclass(frozen=True, slots=True)
class Pruned:
    """What one step did."""

    n_messages: int = 0
    """0 = there is nothing more that could be given up."""
    freed_bytes: int = 0


def size_bytes(connection: apsw.Connection, path: Path | str) -> int:
    """What the memory takes: the pages in use, and the log beside the file."""
    return sum(_sizes(connection, path))


def _sizes(connection: apsw.Connection, path: Path | str) -> tuple[int, int]:
    pages = _number(connection, "page_count") - _number(connection, "freelist_count")
    try:
        log = os.stat(f"{os.fspath(path)}-wal").st_size
    except FileNotFoundError:
        log = 0
    return pages * _number(connection, "page_size"), log


def weight_bytes(connection: apsw.Connection, path: Path | str, limit_bytes: int) -> int:
    """What is held against the limit before anything is given up: the log for its proper length only.

    A reader of an old state keeps the log long, and whatever is given up then makes it longer: were all of it held
    against the limit, the whole archive would go for one reader.
    """
    pages, log = _sizes(connection, path)
    return pages + min(log, log_pages(limit_bytes) * _number(connection, "page_size"))


def log_pages(limit_bytes: int) -> int:
    """After how many pages the log goes into the file (`wal_autocheckpoint`): it counts, too, so it must stay small."""
    return max(8, min(1000, limit_bytes // 2**17))


def is_due(size_bytes: int, limit_bytes: int) -> bool:
    """Whether something should be given up when there is time."""
    return size_bytes > limit_bytes * FULL


def is_over(size_bytes: int, limit_bytes: int) -> bool:
    """Whether something must be given up now, whoever waits."""
    return size_bytes > limit_bytes


def step(connection: apsw.Connection, path: Path | str, limit_bytes: int) -> Pruned:
    """Give up a little, if it `is_due`. In a transaction; the room is there once that is committed and checkpointed."""
    size = weight_bytes(connection, path, limit_bytes)
    if not is_due(size, limit_bytes):
        return Pruned()
    n = _give_up(connection, size, limit_bytes)
    for table in index.FTS_TABLES:
        _compact(connection, table)
    connection.execute(f"PRAGMA incremental_vacuum({_number(connection, 'freelist_count')})").fetchall()
    return Pruned(n, max(0, size - weight_bytes(connection, path, limit_bytes)))


def _give_up(connection: apsw.Connection, size: int, limit_bytes: int) -> int:
    """Do the first thing there is to do; how many messages it was."""
    if chosen := _choose(connection, f"role = 'tool' AND state = 1 AND pinned = 0 AND length(body) > {BULKY_CHARS}"):
        return _shorten(connection, chosen, KEPT_CHARS)
    if chosen := _choose(connection, "role = 'assistant' AND state = 1 AND pinned = 0"):
        return _shorten(connection, chosen, 0)
    if _husk_bytes(connection) < limit_bytes * HUSKS:
        for role in ("user", "tool"):
            if chosen := _choose(connection, f"role = '{role}' AND state = 1 AND pinned = 0"):
                return _shorten(connection, chosen, 0)
    chosen = _choose(connection, "state = 2 AND pinned = 0")
    if not chosen and is_over(size, limit_bytes):
        chosen = _choose(connection, "pinned = 0")
    forget.delete(connection, [(id, role) for id, role, _, _ in chosen])
    return len(chosen)


def _compact(connection: apsw.Connection, table: str) -> None:
    """Merge a little of a lane: what is taken out of it leaves its pages as they are, with air between the words."""
    merge, before = f"INSERT INTO {table}({table}, rank) VALUES('merge', ?)", connection.total_changes()
    connection.execute(merge, (MERGE_PAGES,))  # goes on with what was begun
    if connection.total_changes() - before > 1:
        return
    ((n_bytes,),) = connection.execute(
        f"SELECT avg(length(block)) FROM (SELECT block FROM {table}_data WHERE id >= ? ORDER BY id LIMIT 200)", (2**37,)
    )
    if n_bytes is None or n_bytes > DENSE_BYTES:
        return
    # One segment is never merged with itself: a message that is put in anew makes a second one.
    newest = f"SELECT id, role FROM message WHERE id = (SELECT max(id) FROM {table}_docsize)"
    for id, role in list(connection.execute(newest)):
        index.unindex(connection, id, role)
        index.index(connection, id, role)
    connection.execute(merge, (-MERGE_PAGES,))


_Row = tuple[int, str, str, str | None]
"""Id, role, body, meta."""


def _choose(connection: apsw.Connection, where: str) -> list[_Row]:
    """The oldest messages of this kind that may be touched."""
    rows = connection.execute(
        f"SELECT id, role, body, meta FROM message WHERE {where} "
        "AND id <= (SELECT max(id) FROM message) - ? "
        "AND id NOT IN (SELECT source FROM fact WHERE source IS NOT NULL) "
        "AND conversation NOT IN (SELECT id FROM conversation WHERE uuid = ?) ORDER BY id LIMIT ?",
        (NEWEST, NOTES, STEP),
    )
    chosen, n_chars = list[_Row](), 0
    for row in rows:
        chosen.append(row)
        n_chars += len(row[2])
        if n_chars > STEP_CHARS:
            break
    return chosen


def _shorten(connection: apsw.Connection, chosen: list[_Row], kept_chars: int) -> int:
    """Keep so much of either end of these messages, or nothing of them but their places; how many they are."""
    for id, role, body, meta in chosen:
        index.unindex(connection, id, role)
        short = shortened(body, kept_chars) if kept_chars else ""
        spaced = index.spaced(short)
        # SQLite joins half-empty pages where a row is deleted, not where one shrinks: so the row moves out and back.
        connection.execute(
            "UPDATE message SET id = -id, body = ?, spaced = ?, meta = ?, state = ? WHERE id = ?",
            (short, spaced if spaced != short else None, _without_arguments(meta), int(State.PRUNED), id),
        )
        if not short:  # its context would find it, and there is nothing to be found
            connection.execute("UPDATE message SET context = NULL, before1 = NULL, before2 = NULL WHERE id = ?", (-id,))
        connection.execute("UPDATE message SET id = -id WHERE id = ?", (-id,))
        index.index(connection, id, role)
    ids = [id for id, *_ in chosen]
    connection.execute("DELETE FROM vector WHERE message IN (SELECT value FROM json_each(?))", (json.dumps(ids),))
    forget.requote(connection, ids)
    return len(chosen)


def shortened(text: str, kept_chars: int) -> str:
    """Both ends of a text, and how much there was between them."""
    between = len(text) - 2 * kept_chars
    return f"{text[:kept_chars]}\n[{between} characters were given up here]\n{text[-kept_chars:]}"


def _without_arguments(meta: str | None) -> str | None:
    """What a message says beside its text, long arguments of its calls aside."""
    if not meta or len(meta) <= CALL_CHARS:
        return meta
    said = json.loads(meta)
    calls = [Call(**call) for call in said.get("calls", ())]
    said["calls"] = [
        (call if len(call.arguments) <= CALL_CHARS else call._replace(arguments="{}"))._asdict() for call in calls
    ]
    return json.dumps(said, ensure_ascii=False, separators=(",", ":"))


def _husk_bytes(connection: apsw.Connection) -> float:
    """About what the rows take that say nothing any more: some of all messages are looked at."""
    ((first, last),) = connection.execute("SELECT min(id), max(id) FROM message")
    if first is None:
        return 0.0
    looked_at = range(first, last + 1, max(1, (last - first) // 500))
    ((n,),) = connection.execute(
        "SELECT count(*) FROM message WHERE id IN (SELECT value FROM json_each(?)) AND state = 2",
        (json.dumps(list(looked_at)),),
    )
    return float(n * looked_at.step * HUSK_BYTES)


def _number(connection: apsw.Connection, pragma: str) -> int:
    value: Any = connection.pragma(pragma)
    return int(value)
