"""Translates SQLite's errors to `MemoryFailure`, one sentence for a user."""

from __future__ import annotations

import apsw

from shepherd.core import MemoryFailure

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
