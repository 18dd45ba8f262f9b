"""Replaces a file in one step: a reader sees the old content or the new one, and other users see neither."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


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
