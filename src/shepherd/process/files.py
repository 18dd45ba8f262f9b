"""Replaces a file in one step: a reader sees the old content or the new one, and other users see neither; reads one up
to a limit, of JSON too; locks one against other processes; and knows the working folder."""

from __future__ import annotations

import errno
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from shepherd.core import ConfigError

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl


MOST_SETTINGS_BYTES = 4 * 2**20
"""Of a file of settings, of names, of keys: a device or a wrong file has no end."""
MOST_DOCUMENT_BYTES = 256 * 2**20
"""Of a file that holds a whole conversation, with its images."""


def working_folder() -> Path:
    """One without files where it has been deleted since the program started."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        return Path(os.devnull)


def read_within(path: Path, most_bytes: int = MOST_SETTINGS_BYTES) -> bytes:
    """The content of a file, which may be a pipe. Raises: `OSError`, also behind `most_bytes`."""
    with path.open("rb") as file:
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise OSError(errno.EFBIG, f"it has more than {most_bytes:,} bytes, the limit for such a file", str(path))
    return content


def find_object(path: Path, most_bytes: int = MOST_SETTINGS_BYTES) -> dict[str, Any] | None:
    """The object in a JSON file; None where there is no file, or none that can be read."""
    try:
        found = json.loads(read_within(path, most_bytes))
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def keep_json(path: Path, value: Any, *, indent: int | None = 1, durable: bool = False) -> None:
    """Replace a file by this JSON, and make its folder where there is none; both are private. Raises: `OSError`."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace_private(path, json.dumps(value, indent=indent).encode() + b"\n", durable=durable)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Raises: `ConfigError`, which names the file, where the block cannot write it."""
    try:
        yield
    except OSError as error:
        raise ConfigError(f"cannot be written: {error.strerror}", file=str(path)) from error


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


def lock_within(descriptor: int, wait_s: float) -> bool:
    """As `try_lock`, but waits so long at most for another process. Not on an event loop."""
    until_s = time.monotonic() + wait_s
    while not (has_lock := try_lock(descriptor)) and time.monotonic() < until_s:
        time.sleep(0.01)
    return has_lock
