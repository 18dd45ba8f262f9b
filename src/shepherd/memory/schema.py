"""The database file: its tables, its version, and how a connection is opened.

One file holds the memory of one user. `message` is the archive. Users' messages and all others have an FTS5 table each,
with its own document frequencies: answers have twenty times as much text, which would outweigh the users' words. The
FTS5 tables store no text: they read the view `fts_source`.

The text of `_TABLES`, comments included, is part of the file format: SQLite keeps it in the file.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import apsw

from shepherd.core import ConfigError
from shepherd.memory.database import connect, failure, transaction, write_ahead

APPLICATION_ID = 0x53485044
"""`SHPD`."""
VERSION = 1
BUSY_MS = 10_000
READ_CACHE_KB = 65_536
"""Page cache of a reading connection: a search of a million messages is a quarter faster than with 2 MB."""

_TABLES = """
CREATE TABLE about(name TEXT PRIMARY KEY, value ANY) STRICT, WITHOUT ROWID;

CREATE TABLE conversation(
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    uuid TEXT NOT NULL UNIQUE,
    session TEXT,                -- what the client calls it, if anything
    title TEXT NOT NULL DEFAULT '',
    created_ms INTEGER NOT NULL,
    model TEXT NOT NULL DEFAULT '',
    source TEXT NOT NULL DEFAULT '',
    parent INTEGER,              -- the conversation it branched off
    parent_seq INTEGER
) STRICT;
CREATE INDEX conversation_session ON conversation(session) WHERE session IS NOT NULL;

CREATE TABLE message(
    id INTEGER PRIMARY KEY AUTOINCREMENT,  -- also the rowid in its lane and in vector
    conversation INTEGER NOT NULL REFERENCES conversation(id),
    seq INTEGER NOT NULL,
    turn INTEGER NOT NULL,
    role TEXT NOT NULL CHECK(role IN ('system', 'user', 'assistant', 'tool')),
    body TEXT NOT NULL,
    spaced TEXT,                 -- what is indexed in place of the body, where that differs
    context TEXT,                -- what is indexed beside it: the day, and the end of what was said before
    before1 INTEGER,             -- the messages whose ends `context` quotes, the nearest first
    before2 INTEGER,
    meta TEXT,                   -- JSON: calls, tool, call_id, recalled
    created_ms INTEGER NOT NULL,
    trust INTEGER NOT NULL,
    state INTEGER NOT NULL DEFAULT 0,
    pinned INTEGER NOT NULL DEFAULT 0,
    sha BLOB NOT NULL,           -- what it says
    chain BLOB NOT NULL UNIQUE,  -- what it says, and all that was said before it in its history
    UNIQUE(conversation, seq)
) STRICT;
CREATE INDEX message_prunable ON message(role, id) WHERE state = 1 AND pinned = 0;
CREATE INDEX message_bulky ON message(id) WHERE role = 'tool' AND state = 1 AND pinned = 0 AND length(body) > 1200;
CREATE INDEX message_pruned ON message(id) WHERE state = 2;
CREATE INDEX message_pinned ON message(state, id) WHERE pinned = 1;
CREATE INDEX message_before1 ON message(before1) WHERE before1 IS NOT NULL;
CREATE INDEX message_before2 ON message(before2) WHERE before2 IS NOT NULL;

CREATE TABLE alias(
    chain BLOB PRIMARY KEY,      -- names a message in a later history that was compacted or changed before it
    message INTEGER NOT NULL,
    tip INTEGER NOT NULL         -- the message behind which that history goes on
) STRICT, WITHOUT ROWID;
CREATE INDEX alias_message ON alias(message);
CREATE TRIGGER message_gone AFTER DELETE ON message BEGIN
    DELETE FROM alias WHERE message = old.id;
    UPDATE about SET value = value + 1 WHERE name = 'gone';  -- ids that somebody remembers may be wrong now
END;

CREATE VIEW fts_source AS
    SELECT id, coalesce(spaced, body) AS body, coalesce(context, '') AS context FROM message;
CREATE VIRTUAL TABLE fts_user USING fts5(
    body, context, content = 'fts_source', content_rowid = 'id',
    tokenize = 'porter unicode61 remove_diacritics 2');
CREATE VIRTUAL TABLE fts_other USING fts5(
    body, context, content = 'fts_source', content_rowid = 'id',
    tokenize = 'porter unicode61 remove_diacritics 2');
INSERT INTO fts_user(fts_user, rank) VALUES('secure-delete', 1);
INSERT INTO fts_other(fts_other, rank) VALUES('secure-delete', 1);
CREATE VIRTUAL TABLE terms_user USING fts5vocab(fts_user, 'row');
CREATE VIRTUAL TABLE terms_other USING fts5vocab(fts_other, 'row');

CREATE TABLE fact(
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    key TEXT NOT NULL,
    value TEXT NOT NULL,
    kind TEXT NOT NULL CHECK(kind IN ('fact', 'preference', 'instruction')),
    status TEXT NOT NULL CHECK(status IN ('candidate', 'current', 'past', 'cleared')),
    created_ms INTEGER NOT NULL,
    ended_ms INTEGER,
    source INTEGER               -- the message it was taken from
) STRICT;
CREATE UNIQUE INDEX fact_current ON fact(kind, key) WHERE status = 'current';
CREATE INDEX fact_key ON fact(key);

CREATE TABLE embedder(id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, dim INTEGER NOT NULL) STRICT;
CREATE TABLE vector(
    seq INTEGER PRIMARY KEY AUTOINCREMENT,  -- the order of writing, which is not that of the messages
    message INTEGER NOT NULL UNIQUE,
    embedder INTEGER NOT NULL REFERENCES embedder(id),
    bits BLOB NOT NULL,          -- the signs, one bit for each dimension
    q8 BLOB NOT NULL             -- float32 scale, then one int8 for each dimension
) STRICT;
CREATE INDEX vector_bits ON vector(embedder, seq, message, bits);  -- the bits of all, without reading the rest

CREATE TABLE erased(
    sha BLOB PRIMARY KEY,        -- sha, chain or alias of what must not come back when a client sends it again
    at_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
"""


def open_file(path: Path | str, *, user: str = "", mmap_size: int = 0, readonly: bool = False) -> apsw.Connection:
    """A connection to the memory at `path`. A new file is readable by its owner only.

    `":memory:"` is a memory that ends with its connection. `user` is written into a new file, and must be the same for
    an old one.

    Raises: `ConfigError` for a file that is no memory, has a newer version, or belongs to another user; `MemoryFailure`
    when the file is damaged or locked.
    """
    name = os.fspath(path)
    in_file = name != ":memory:"
    try:
        if in_file and not readonly:
            Path(name).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            os.close(os.open(name, os.O_RDWR | os.O_CREAT, 0o600))
        flags = apsw.SQLITE_OPEN_READONLY if readonly else apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
        connection = connect(name, flags)
    except (OSError, apsw.CantOpenError) as error:
        why = getattr(error, "strerror", None) or error
        raise ConfigError(f"the memory {name} cannot be opened: {why}", key="memory.database_path") from error
    try:
        connection.set_busy_timeout(BUSY_MS)
        if not readonly:
            _prepare(connection, name, user)
        # Rows must be fetched before the next statement runs.
        settings = f"PRAGMA synchronous = FULL; PRAGMA secure_delete = ON; PRAGMA mmap_size = {mmap_size:d}"
        connection.execute(settings).fetchall()
        if readonly:
            connection.execute(f"PRAGMA cache_size = -{READ_CACHE_KB}")
    except BaseException as error:
        connection.close()
        if isinstance(error, apsw.NotADBError):
            raise ConfigError(f"{name} is not a memory of Shepherd: {error}", key="memory.database_path") from error
        if isinstance(error, apsw.Error):
            raise failure(name, error) from error
        raise
    return connection


def _prepare(connection: apsw.Connection, name: str, user: str) -> None:
    """Check an old file before the first change to it; create the tables of a new one."""
    if is_new := _is_new(connection, name):
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # must come before the first table
    else:
        _check_version_and_user(connection, name, user)
    write_ahead(connection, BUSY_MS)
    if not is_new:
        return
    with transaction(connection):  # another process may be creating the file
        if _is_new(connection, name):
            connection.execute(_TABLES)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {VERSION}")
            rows = [("user", user), ("key", secrets.token_bytes(32)), ("gone", 0)]
            connection.executemany("INSERT INTO about(name, value) VALUES(?, ?)", rows)
        else:
            _check_version_and_user(connection, name, user)


def _is_new(connection: apsw.Connection, name: str) -> bool:
    """Whether the file is empty. Raises: `ConfigError` when it is another program's database.

    Tables are checked first: another process may create them and the application id in one transaction.
    """
    if not connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchall():
        return True
    if pragma_int(connection, "application_id") != APPLICATION_ID:
        raise ConfigError(f"{name} is a database, but not a memory of Shepherd", key="memory.database_path")
    return False


def _check_version_and_user(connection: apsw.Connection, name: str, user: str) -> None:
    if (version := pragma_int(connection, "user_version")) > VERSION:
        raise ConfigError(
            f"{name} was written by a newer Shepherd (version {version} of the file, this one knows {VERSION}); "
            "update Shepherd or choose another file",
            key="memory.database_path",
        )
    owner = connection.execute("SELECT value FROM about WHERE name = 'user'").get
    if owner != user:
        raise ConfigError(f"{name} is the memory of another user", key="memory.database_path")


def pragma_int(connection: apsw.Connection, pragma: str) -> int:
    value = connection.pragma(pragma)
    assert isinstance(value, int)
    return value
