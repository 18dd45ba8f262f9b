"""Pruning: old text is deleted in small steps when the file is near its limit.

    above 90 % of the limit     1. tool results: their middle
                                2. answers: their text
                                3. users' messages: their text, the oldest first
                                4. the empty rows of the oldest of those
    above the limit itself      5. the oldest messages, even if they may be in a context

Steps 1 to 4 touch only messages that have left their context. Facts, pinned messages, notes, sources of facts and the
newest messages are never pruned, so their size can exceed the limit. An empty row costs little, and prevents that a
message is stored again when a client sends its history. When empty rows take a tenth of the limit, the oldest of them
are deleted before step 3.

The caller of `step` decides when there is time for it (`upkeep.py`).
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import apsw

from shepherd.memory.archive import forget, index
from shepherd.memory.archive.history import NOTES
from shepherd.memory.records import State
from shepherd.memory.schema import pragma_int

STEP = 20
"""Messages that one step touches; it takes some 20 ms."""
STEP_CHARS = 40_000
FULL = 0.9
"""The share of the limit above which text is pruned."""
EMPTY_ROWS = 0.1
"""The share of the limit that empty rows may take."""
EMPTY_ROW_BYTES = 200
"""Of one empty row, with its index entries."""
NEWEST = 4
"""Messages that are never pruned: the current conversation."""
KEPT_CHARS = 500
"""Kept at either end of a tool's result."""
BULKY_CHARS = 1200
"""Longer results are shortened. The index `message_bulky` has the same number."""
CALL_CHARS = 500
"""Longer arguments of a pruned call are deleted."""
MERGE_PAGES = 64
"""Pages of each FTS5 table that one step merges."""
DENSE_BYTES = 2600
"""Average fill of an FTS5 page, of 4,000; below it, pages are merged."""


def sizes(connection: apsw.Connection, path: Path | str) -> tuple[int, int]:
    """The bytes of the used pages, and of the log beside the file."""
    pages = pragma_int(connection, "page_count") - pragma_int(connection, "freelist_count")
    try:
        log = os.stat(f"{os.fspath(path)}-wal").st_size
    except FileNotFoundError:
        log = 0
    return pages * pragma_int(connection, "page_size"), log


def weight_bytes(connection: apsw.Connection, path: Path | str, limit_bytes: int) -> int:
    """The size that counts against the limit: the log counts up to its normal length only.

    A reader of an old state keeps the log long, and pruning makes it longer: if all of it counted, one reader could
    cause the deletion of the whole archive.
    """
    pages, log = sizes(connection, path)
    return pages + min(log, log_pages(limit_bytes) * pragma_int(connection, "page_size"))


def log_pages(limit_bytes: int) -> int:
    """Pages of the log from which on a checkpoint is due. The log counts against the limit, so it must stay small."""
    return max(8, min(1000, limit_bytes // 2**17))


def is_due(size_bytes: int, limit_bytes: int) -> bool:
    """Whether pruning is due when there is time; above the limit itself, it is due at once."""
    return size_bytes > limit_bytes * FULL


def step(connection: apsw.Connection, path: Path | str, limit_bytes: int) -> int:
    """Prune a little, if it `is_due`, in a transaction; how many messages (0 = nothing more can be pruned)."""
    size = weight_bytes(connection, path, limit_bytes)
    if not is_due(size, limit_bytes):
        return 0
    n = _prune(connection, size, limit_bytes)
    for table in index.FTS_TABLES:
        _compact(connection, table)
    connection.execute(f"PRAGMA incremental_vacuum({pragma_int(connection, 'freelist_count')})").fetchall()
    return n


def _prune(connection: apsw.Connection, size: int, limit_bytes: int) -> int:
    """Prune some messages of the first kind that there is, and return how many."""
    if chosen := _choose(connection, f"role = 'tool' AND state = 1 AND pinned = 0 AND length(body) > {BULKY_CHARS}"):
        return _shorten(connection, chosen, KEPT_CHARS)
    if chosen := _choose(connection, "role = 'assistant' AND state = 1 AND pinned = 0"):
        return _shorten(connection, chosen, 0)
    if _empty_row_bytes(connection) < limit_bytes * EMPTY_ROWS:
        for role in ("user", "tool"):
            if chosen := _choose(connection, f"role = '{role}' AND state = 1 AND pinned = 0"):
                return _shorten(connection, chosen, 0)
    chosen = _choose(connection, "state = 2 AND pinned = 0")
    if not chosen and size > limit_bytes:
        chosen = _choose(connection, "pinned = 0")
    forget.delete(connection, [(id, role) for id, role, _, _ in chosen])
    return len(chosen)


def _compact(connection: apsw.Connection, table: str) -> None:
    """Merge some pages: removals leave gaps in them."""
    merge, before = f"INSERT INTO {table}({table}, rank) VALUES('merge', ?)", connection.total_changes()
    connection.execute(merge, (MERGE_PAGES,))  # continues a merge that was begun
    if connection.total_changes() - before > 1:
        return
    ((n_bytes,),) = connection.execute(
        f"SELECT avg(length(block)) FROM (SELECT block FROM {table}_data WHERE id >= ? ORDER BY id LIMIT 200)", (2**37,)
    )
    if n_bytes is None or n_bytes > DENSE_BYTES:
        return
    # A single segment is never merged with itself; inserting a message again makes a second one.
    newest = f"SELECT id, role FROM message WHERE id = (SELECT max(id) FROM {table}_docsize)"
    for id, role in list(connection.execute(newest)):
        index.unindex(connection, id, role)
        index.index(connection, id, role)
    connection.execute(merge, (-MERGE_PAGES,))


_Row = tuple[int, str, str, str | None]


def _choose(connection: apsw.Connection, where: str) -> list[_Row]:
    """The oldest messages of this kind that may be pruned."""
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
    """Keep `kept_chars` of either end of these messages, or no text at all; return how many messages there are."""
    for id, role, body, meta in chosen:
        index.unindex(connection, id, role)
        short = shortened(body, kept_chars) if kept_chars else ""
        spaced = index.spaced(short)
        # SQLite merges half-empty pages where a row is deleted, not where one shrinks: so the row moves away and back.
        connection.execute(
            "UPDATE message SET id = -id, body = ?, spaced = ?, meta = ?, state = ? WHERE id = ?",
            (short, spaced if spaced != short else None, _without_arguments(meta), int(State.PRUNED), id),
        )
        if not short:  # without text it must not be found by its context
            connection.execute("UPDATE message SET context = NULL, before1 = NULL, before2 = NULL WHERE id = ?", (-id,))
        connection.execute("UPDATE message SET id = -id WHERE id = ?", (-id,))
        index.index(connection, id, role)
    ids = [id for id, *_ in chosen]
    connection.execute("DELETE FROM vector WHERE message IN (SELECT value FROM json_each(?))", (json.dumps(ids),))
    forget.requote(connection, ids)
    return len(chosen)


def shortened(text: str, kept_chars: int) -> str:
    between = len(text) - 2 * kept_chars
    return f"{text[:kept_chars]}\n[{between} characters were given up here]\n{text[-kept_chars:]}"


def _without_arguments(meta: str | None) -> str | None:
    if not meta or len(meta) <= CALL_CHARS:
        return meta
    fields = json.loads(meta)
    for call in fields.get("calls", ()):
        if len(call["arguments"]) > CALL_CHARS:
            call["arguments"] = "{}"
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":"))


def _empty_row_bytes(connection: apsw.Connection) -> float:
    """The size of all empty rows, estimated from a sample of the messages."""
    ((first, last),) = connection.execute("SELECT min(id), max(id) FROM message")
    if first is None:
        return 0.0
    sample = range(first, last + 1, max(1, (last - first) // 500))
    ((n,),) = connection.execute(
        "SELECT count(*) FROM message WHERE id IN (SELECT value FROM json_each(?)) AND state = 2",
        (json.dumps(list(sample)),),
    )
    return float(n * sample.step * EMPTY_ROW_BYTES)
