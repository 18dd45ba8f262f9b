"""A private SQLite file of a program: opened, or made; what another program or version wrote is refused."""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import quote

import apsw

from shepherd.core import ConfigError, MemoryFailure
from shepherd.core.dataclasses import dataclass, field

BUSY_MS = 5_000
"""No other process writes for long; a person may read."""


@dataclass(frozen=True, slots=True)
class FileKind:
    purpose: str
    """Of what it stores, for messages: `answers`."""
    key: str
    """Of the configuration, that names the file."""
    application_id: int
    version: int
    tables: str
    upgrades: Mapping[int, str] = field(default_factory=dict)
    """By an older version, the statements that make it this one."""


def connect(name: str, flags: int = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE) -> apsw.Connection:
    """A connection to the file with this name, which may hold bytes that are not UTF-8. Raises: `apsw.Error`."""
    if any("\ud800" <= char <= "\udfff" for char in name):
        # SQLite takes any bytes, but its binding only UTF-8: an address spells the others in ASCII.
        address = quote(os.path.abspath(os.fsencode(name)))
        return apsw.Connection(f"file:{address}", flags=flags | apsw.SQLITE_OPEN_URI)
    return apsw.Connection(name, flags=flags)


def file_of(connection: apsw.Connection) -> str:
    """The path of its file; empty for a memory."""
    try:
        return connection.filename
    except UnicodeDecodeError as error:
        return os.fsdecode(error.object)


def open_database(path: Path | None, kind: FileKind) -> apsw.Connection:
    """`path`: the file, made if it is not there, readable by its owner alone; None = in memory. What is deleted is
    overwritten.

    Raises: `ConfigError` for a file that cannot be opened or holds something else.
    """
    if path is None:
        file = apsw.Connection(":memory:")
        file.execute(f"PRAGMA foreign_keys = ON; {kind.tables}").fetchall()
        return file
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        file = connect(os.fspath(path))
    except (OSError, apsw.Error) as error:
        raise ConfigError(f"{path} cannot be opened: {getattr(error, 'strerror', 0) or error}", key=kind.key) from error
    try:
        file.set_busy_timeout(BUSY_MS)
        _prepare(file, path, kind)
        # Written to the disk from time to time only: only a crash of the machine can lose the last.
        write_ahead(file, BUSY_MS)
        file.execute("PRAGMA synchronous = NORMAL; PRAGMA secure_delete = ON; PRAGMA foreign_keys = ON").fetchall()
    except (apsw.Error, ConfigError) as error:
        file.close()
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"{path} cannot be used for {kind.purpose}: {error}", key=kind.key) from error
    return file


def write_ahead(file: apsw.Connection, busy_ms: int) -> None:
    """Switch the file to a write-ahead log.

    Two connections that do this at the same moment can get in each other's way, and SQLite does not always wait then:
    each attempt is short, and repeated. Raises: `apsw.BusyError` after `busy_ms`, the connection's timeout from
    then on.
    """
    deadline = time.monotonic() + busy_ms / 1_000
    try:
        while True:
            file.set_busy_timeout(random.randrange(2, 40))
            try:
                file.execute("PRAGMA journal_mode = WAL").fetchall()
            except apsw.BusyError:
                if time.monotonic() > deadline:
                    raise
            else:
                return
    finally:
        file.set_busy_timeout(busy_ms)


@contextlib.contextmanager
def transaction(file: apsw.Connection) -> Iterator[None]:
    """All of the block, or nothing. Waits for other processes: apsw's own `with file` holds the interpreter meanwhile,
    and one that reads before it writes does not wait."""
    file.execute("BEGIN IMMEDIATE")
    try:
        yield
        file.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(apsw.Error):
            file.execute("ROLLBACK")
        raise


def _prepare(file: apsw.Connection, path: Path, kind: FileKind) -> None:
    with transaction(file):  # another process may be making the file
        known, version = file.pragma("application_id"), file.pragma("user_version")
        statements = ""
        if known != kind.application_id:
            if file.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchall():
                raise ConfigError(f"{path} belongs to another program; choose another file", key=kind.key)
            statements = f"{kind.tables} PRAGMA application_id = {kind.application_id};"
        elif isinstance(version, int) and version in kind.upgrades:
            statements = kind.upgrades[version]
        elif version != kind.version:
            message = f"{path} was written by another version of Shepherd; choose another file"
            raise ConfigError(message, key=kind.key)
        file.execute(f"{statements} PRAGMA user_version = {kind.version}").fetchall()


_REASONS: tuple[tuple[type[apsw.Error] | tuple[type[apsw.Error], ...], str], ...] = (
    (apsw.FullError, "its disk is full; make room and try again"),
    (apsw.ReadOnlyError, "it cannot be written; check the permissions of the file and its folder"),
    (apsw.PermissionsError, "access to it is denied; check the permissions of the file and its folder"),
    (apsw.CantOpenError, "it cannot be opened; check the permissions of the file and its folder"),
    ((apsw.BusyError, apsw.LockedError), "another program has locked it; close that program or try again"),
    (apsw.CorruptError, "its file is damaged; run `shepherd memory check --repair` or restore a copy"),
    (apsw.NotADBError, "its file is damaged; restore a copy"),
    (apsw.IOError, "its disk failed"),
    (apsw.NoMemError, "the machine has no free memory"),
    (apsw.TooBigError, "a text is too large for SQLite"),
    (apsw.ConnectionClosedError, "it is closed"),
)


def failure(name: str, error: apsw.Error) -> MemoryFailure:
    """The error to raise for an error of SQLite. `name` is the path of the memory."""
    why = next((reason for kind, reason in _REASONS if isinstance(error, kind)), "SQLite refuses")
    return MemoryFailure(f"the memory {name} failed: {why} ({type(error).__name__}: {error})")
