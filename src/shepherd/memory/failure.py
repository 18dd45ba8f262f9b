"""What SQLite says when it cannot, as one sentence for a user."""

from __future__ import annotations

import apsw

from shepherd.core import MemoryFailure

_SAYS: tuple[tuple[type[apsw.Error], str], ...] = (
    (apsw.FullError, "its disk is full; make room and try again"),
    (apsw.ReadOnlyError, "it cannot be written to; look at the rights of the file and of its folder"),
    (apsw.PermissionsError, "access to it is denied; look at the rights of the file and of its folder"),
    (apsw.CantOpenError, "it cannot be opened; look at the rights of the file and of its folder"),
    (apsw.BusyError, "another program keeps it locked; close that program or try again"),
    (apsw.LockedError, "another program keeps it locked; close that program or try again"),
    (apsw.CorruptError, "its file is damaged; run `shepherd memory check --repair` or restore a copy"),
    (apsw.NotADBError, "its file is damaged; restore a copy"),
    (apsw.IOError, "its disk failed"),
    (apsw.NoMemError, "the machine has no memory left for it"),
    (apsw.TooBigError, "a text is larger than SQLite can hold"),
    (apsw.ConnectionClosedError, "it is closed"),
)


def failure(name: str, error: apsw.Error) -> MemoryFailure:
    """What SQLite says, as one sentence about the memory `name`."""
    why = next((says for kind, says in _SAYS if isinstance(error, kind)), "SQLite refuses")
    return MemoryFailure(f"the memory {name} failed: {why} ({type(error).__name__}: {error})")
