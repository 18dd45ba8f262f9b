"""A disk for SQLite that remembers in which order it was written to, and can fail.

What a power cut leaves of a file is what was synced, and any part of what was written since then.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import apsw

NAME = "shepherd-test-disk"
SECTOR = 512


@dataclass(frozen=True, slots=True)
class Op:
    kind: str
    """`write`, `cut`, `delete`, `sync`, `lost` (a sync that failed: what was written may never arrive), or `note`."""
    file: str = ""
    offset: int = 0
    data: bytes = b""
    noted: object = None


@dataclass
class Disk:
    """What has been done to all files, in order."""

    log: list[Op] = field(default_factory=list)
    fails: Callable[[str, str], type[apsw.Error] | None] = lambda _kind, _file: None
    """Kind of operation and name of the file -> the error that it ends in."""

    def note(self, noted: object) -> None:
        """Remember that something was acknowledged at this moment."""
        self.log.append(Op("note", noted=noted))

    def at(self, moment: int, rng: random.Random | None) -> dict[str, bytes]:
        """The files as a power cut before the operation `moment` leaves them; without `rng` all unsynced is lost."""
        durable: dict[str, bytearray] = {}
        pending: dict[str, list[Op]] = {}
        for op in (op for op in self.log[:moment] if op.file):  # those without a name are SQLite's own notes
            if op.kind in {"write", "cut"}:
                pending.setdefault(op.file, []).append(op)
            elif op.kind in {"sync", "lost"}:
                waiting = pending.pop(op.file, [])
                _apply(durable.setdefault(op.file, bytearray()), waiting if op.kind == "sync" else [])
            elif op.kind == "delete":
                durable.pop(op.file, None)
                pending.pop(op.file, None)
        for file, waiting in pending.items():
            content = durable.setdefault(file, bytearray())
            _apply(content, [] if rng is None else [_torn(op, rng) for op in waiting if rng.random() < 0.5])
        return {file: bytes(content) for file, content in durable.items()}

    def noted(self, moment: int) -> list[object]:
        return [op.noted for op in self.log[:moment] if op.kind == "note"]


def _apply(content: bytearray, ops: Sequence[Op]) -> None:
    for op in ops:
        if op.kind == "cut":
            del content[op.offset :]
            continue
        content.extend(bytes(max(0, op.offset + len(op.data) - len(content))))
        content[op.offset : op.offset + len(op.data)] = op.data


def _torn(op: Op, rng: random.Random) -> Op:
    n_sectors = len(op.data) // SECTOR
    if op.kind == "cut" or n_sectors < 2 or rng.random() < 0.8:
        return op
    return Op("write", op.file, op.offset, op.data[: SECTOR * rng.randrange(1, n_sectors)])


@contextmanager
def disk() -> Iterator[Disk]:
    """A disk that all new connections are on. Its files have one connection each: there is no shared memory."""
    made = Disk()

    class File(apsw.VFSFile):
        def __init__(self, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
            super().__init__("unix", name, flags)
            self.name = Path(name.filename() if isinstance(name, apsw.URIFilename) else name or "").name

        def _may_fail(self, kind: str) -> None:
            if error := made.fails(kind, self.name):
                if kind == "sync":
                    made.log.append(Op("lost", self.name))
                raise error(f"planted: {kind} of {self.name}")

        def xWrite(self, data: bytes, offset: int) -> None:
            self._may_fail("write")
            made.log.append(Op("write", self.name, offset, bytes(data)))
            super().xWrite(data, offset)

        def xTruncate(self, newsize: int) -> None:
            made.log.append(Op("cut", self.name, newsize))
            super().xTruncate(newsize)

        def xSync(self, flags: int) -> None:
            self._may_fail("sync")
            made.log.append(Op("sync", self.name))
            super().xSync(flags)

    class Vfs(apsw.VFS):
        def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> File:
            return File(name, flags)

        def xDelete(self, filename: str, syncdir: bool) -> None:
            made.log.append(Op("delete", Path(filename).name))
            super().xDelete(filename, syncdir)

    def alone(connection: apsw.Connection) -> None:
        connection.execute("PRAGMA locking_mode = EXCLUSIVE").fetchall()

    vfs = Vfs(NAME, "unix", makedefault=True)
    apsw.connection_hooks.append(alone)
    try:
        yield made
    finally:
        apsw.connection_hooks.remove(alone)
        apsw.set_default_vfs("unix")
        vfs.unregister()
