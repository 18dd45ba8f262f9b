"""Checks a memory file, and repairs what can be repaired.

FTS5 tables can be rebuilt from the messages and indexes from the tables; rows without a parent are deleted. Messages
cannot be rebuilt: if SQLite finds the tables themselves damaged, restore a copy, or export what can still be read.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

import apsw

from shepherd.core.dataclasses import dataclass
from shepherd.memory.archive import forget, index
from shepherd.memory.database import file_of
from shepherd.memory.schema import APPLICATION_ID, VERSION

MOST = 20
"""Problems of one kind that are reported one by one."""


@dataclass(frozen=True, slots=True)
class Problem:
    kind: str
    """`file`, `damage`, `index`, `orphan`, `gap` or `fact`."""
    text: str
    can_repair: bool = False


_REFERENCES = (
    ("message", "conversation", "conversation", None),
    ("vector", "message", "message", "DELETE FROM vector"),
    ("vector", "embedder", "embedder", "DELETE FROM vector"),
    ("alias", "message", "message", "DELETE FROM alias"),
    ("fact", "source", "message", "UPDATE fact SET source = NULL"),
    ("message", "before1", "message", ""),
    ("message", "before2", "message", ""),
)
"""A table, its column with the id of a row of another table, that table; how `repair` removes the reference (None = it
cannot, "" = `forget.requote` does)."""


def check(connection: apsw.Connection, *, deep: bool = False) -> list[Problem]:
    """The problems of a file, worst first. `deep`: also compares every index with its table.

    The connection must be a writing one, since FTS5 checks itself by an INSERT. Reads the whole file: about a second
    for 100 MB, somewhat more when deep.
    """
    found: list[Problem] = []
    for find in (_damage, _fts_tables, _orphans, _gaps, _facts, _file):
        try:
            found += find(connection, deep)
        except (apsw.CorruptError, apsw.NotADBError, apsw.IOError) as error:
            found.append(Problem("damage", f"the file cannot be read through: {error}"))
    return found


def repair(connection: apsw.Connection) -> list[Problem]:
    """Repair what can be repaired; the remaining problems. In a transaction."""
    for _, column, other, mend in _REFERENCES:
        if mend:
            connection.execute(f"{mend} WHERE {column} NOT IN (SELECT id FROM {other})")
    missing = connection.execute(
        "SELECT before1 FROM message WHERE before1 NOT IN (SELECT id FROM message) "
        "UNION SELECT before2 FROM message WHERE before2 NOT IN (SELECT id FROM message)"
    )
    forget.requote(connection, [id for (id,) in missing], are_indexed=False)
    connection.execute("REINDEX")
    for table in index.FTS_TABLES:
        connection.execute(f"INSERT INTO {table}({table}, rank) VALUES('secure-delete', 1)")
    forget.reindex(connection)
    for path in _files(connection):
        os.chmod(path, 0o600)
    return check(connection)


def _damage(connection: apsw.Connection, deep: bool) -> Iterator[Problem]:
    pragma = "integrity_check" if deep else "quick_check"
    for (finding,) in connection.execute(f"PRAGMA {pragma}({MOST})"):
        if finding != "ok":
            yield Problem("damage", f"SQLite finds: {finding}", can_repair="index" in finding)
    identity = (connection.pragma("application_id"), connection.pragma("user_version"))
    if identity != (APPLICATION_ID, VERSION):
        yield Problem("damage", f"the header of the file has id {identity[0]:#x}, version {identity[1]}")


def _fts_tables(connection: apsw.Connection, _deep: bool) -> Iterator[Problem]:
    for table in index.FTS_TABLES:
        try:
            # Its own structure only (0): the view that it reads has the messages of both tables.
            connection.execute(f"INSERT INTO {table}({table}, rank) VALUES('integrity-check', 0)")
        except apsw.CorruptError:
            yield Problem("index", f"the full-text index {table} is damaged", can_repair=True)
        wanted = ", ".join(f"'{role}'" for role, its in index.TABLE_OF_ROLE.items() if its == table)
        ((n_missing, n_foreign),) = connection.execute(
            f"WITH wanted AS (SELECT id FROM message WHERE role IN ({wanted})) SELECT "
            f"(SELECT count(*) FROM wanted WHERE id NOT IN (SELECT id FROM {table}_docsize)), "
            f"(SELECT count(*) FROM {table}_docsize WHERE id NOT IN (SELECT id FROM wanted))"
        )
        if n_missing:
            yield Problem("index", f"{n_missing} messages are not in {table}: they cannot be found", can_repair=True)
        if n_foreign:
            yield Problem("index", f"{n_foreign} entries of {table} belong to no message of it", can_repair=True)
        secure = list(connection.execute(f"SELECT v FROM {table}_config WHERE k = 'secure-delete'"))
        if secure != [(1,)]:
            yield Problem("index", f"{table} keeps words that were deleted", can_repair=True)


def _orphans(connection: apsw.Connection, _deep: bool) -> Iterator[Problem]:
    for table, column, other, mend in _REFERENCES:
        ((n,),) = connection.execute(
            f"SELECT count(*) FROM {table} WHERE {column} IS NOT NULL AND {column} NOT IN (SELECT id FROM {other})"
        )
        if n:
            yield Problem("orphan", f"{n} rows of {table} refer to a {column} that is missing", mend is not None)


def _gaps(connection: apsw.Connection, _deep: bool) -> Iterator[Problem]:
    """Missing messages within a conversation. A file from which messages were deleted is not checked."""
    ((n_gone,),) = connection.execute("SELECT coalesce(max(value), 0) FROM about WHERE name = 'gone'")
    if n_gone:
        return
    for uuid, n in connection.execute(
        "SELECT uuid, max(seq) - min(seq) + 1 - count(*) AS n FROM message JOIN conversation ON conversation.id = "
        "message.conversation GROUP BY conversation.id HAVING n <> 0 LIMIT ?",
        (MOST,),
    ):
        yield Problem("gap", f"{n} messages of the conversation {uuid} are missing")


def _facts(connection: apsw.Connection, _deep: bool) -> Iterator[Problem]:
    for key, n in connection.execute(
        "SELECT key, count(*) AS n FROM fact NOT INDEXED WHERE status = 'current' GROUP BY kind, key HAVING n > 1 "
        "LIMIT ?",
        (MOST,),
    ):
        yield Problem("fact", f"{key!r} has {n} current values")


def _file(connection: apsw.Connection, _deep: bool) -> Iterator[Problem]:
    for path in _files(connection):
        mode = stat.S_IMODE(os.stat(path).st_mode)
        if mode & 0o077:
            yield Problem("file", f"{path} may be read or written by others (mode {mode:o})", can_repair=True)


def _files(connection: apsw.Connection) -> list[str]:
    name = file_of(connection)
    return [path for end in ("", "-wal", "-shm") if name and os.path.exists(path := name + end)]
