"""Replaces a file in one step: a reader sees the old content or the new one, and other users see neither; and locks one
against other processes."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl


def replace_private(path: Path, content: bytes, *, mode: int = 0o600, durable: bool = False) -> None:
    """Write the whole file `path`, whose folder exists. `durable`: it and its name are on the disk at the return.

    The draft beside it, `.<stem>.<random>.part`, is private from the start. A failure removes it; only a killed process
    leaves one. Raises: `OSError`.
    """
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}.", suffix=".part")  # made with 0600
    draft = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            if durable:
                file.flush()
                os.fsync(descriptor)
        if mode != 0o600:
            draft.chmod(mode)
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    if durable and os.name == "posix":
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def try_lock(descriptor: int) -> bool:
    """Whether this process has the lock of an open file now; it keeps it until the file is closed."""
    try:
        if sys.platform == "win32":
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
