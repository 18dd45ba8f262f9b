"""The file format of one snapshot: written whole or not at all, and used only if its checksum is right.

    magic | version | lengths, clock | facts (JSON) | tokens | checksum           the head, read alone for the index
    state | checkpoints                                                           as the runtime gave them
    checksum of everything before

A file's name is its snapshot's key (`Snapshot.key`). Only the tokens and the state reveal the conversation. A file with
the final name (`.kv`) is complete. A file being written is named `.part` and locked by its writer, so an unlocked one
is the rest of a killed process. I/O; no policy, no thread.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import struct
import sys
from array import array
from collections.abc import Callable, Iterator
from contextlib import suppress
from hashlib import blake2b
from io import FileIO
from math import isfinite
from pathlib import Path

from shepherd.core.dataclasses import astuple, dataclass, replace
from shepherd.engine.base import Owner, Saved, Span
from shepherd.engine.kv.tiers.snapshot import Snapshot

if sys.platform != "win32":
    import fcntl

MAGIC = b"shepkv\r\n"
VERSIONS = 1, 2, 3
"""The second has an owner, the third has adapters. Programs that do not know these must not take it for theirs."""
_PRELUDE = struct.Struct("<8sIIQd")
"""Magic, version, bytes of facts, number of tokens, clock. Every later version begins with the first two."""
_DIGEST = 32
_CHUNK = 8 << 20
"""Bytes between two checks whether the file is still wanted, about 15 ms."""
_MAX_HEAD = 256 << 20
"""Bytes, far more than any head: a damaged length must not cause a read of a whole large file."""
_NAME = re.compile(r"([0-9a-f]{32})\.(kv|part)")


class Damaged(ValueError):
    """The file is not as it was written."""


class OtherVersion(ValueError):
    """Written by another version of this format."""


@dataclass(frozen=True, slots=True)
class Head:
    """The head of a file: everything but the states."""

    fingerprint_id: str
    outline: Snapshot
    sizes: tuple[int, ...]
    """Bytes of the state and of each checkpoint."""
    uses: int
    clock: float
    """Of the disk's GDSF policy. Both as of the time of writing; later uses are not recorded in the file."""

    @property
    def size_bytes(self) -> int:
        return sum(self.sizes) + self.outline.size_bytes


def fingerprint_id(fingerprint: str) -> str:
    """An id for all snapshots of one fingerprint. States have the machine's byte order, so it is part of the id."""
    return blake2b(f"{sys.byteorder} {fingerprint}".encode(), digest_size=16).hexdigest()


def path(folder: Path, key: str) -> Path:
    return folder / f"{key}.kv"


def open_folder(folder: Path) -> None:
    """Create the folder, for this user only, if it does not exist. Raises: `OSError`."""
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)


def listing(folder: Path) -> dict[str, int]:
    """Bytes of each complete file by key, oldest first. Removes the files of killed writers. Raises: `OSError`."""
    facts = []
    with os.scandir(folder) as files:
        for found in files:
            name = _NAME.fullmatch(found.name)
            if name is None or not found.is_file(follow_symlinks=False):
                continue
            if name[2] == "part":
                _remove_leftover(found.path)
                continue
            with suppress(FileNotFoundError):
                fact = found.stat(follow_symlinks=False)
                facts.append((fact.st_mtime_ns, name[1], fact.st_size))
    return {key: size for _, key, size in sorted(facts)}


def pack(snapshot: Snapshot, fingerprint_id: str, uses: int, clock: float) -> tuple[bytes, int]:
    """The head of a snapshot's file, and the size of the whole file, which does not depend on the clock."""
    sizes = [len(part) for part in _parts(snapshot)]
    facts = {
        "owner": fingerprint_id,  # the word of the first version
        "whose": snapshot.owner.name,
        **({"adapters": snapshot.owner.adapters} if snapshot.owner.adapters else {}),
        "runs": snapshot.runs,
        "spans": [astuple(span)[: 8 if span.cleared else 6] for span in snapshot.spans],
        "n_prompt": snapshot.n_prompt,
        "cost_s": snapshot.cost_s,
        "checkpoints": [length for length, _ in snapshot.checkpoints],
        "low": snapshot.low,
        "n_system": snapshot.n_system,
        **({"n_base": snapshot.n_base} if snapshot.n_base else {}),  # never in a folder
        **({"n_pure": snapshot.n_pure} if snapshot.n_pure else {}),
        "sizes": sizes,
        "uses": uses,
    }
    text = json.dumps(facts, separators=(",", ":")).encode()
    version = VERSIONS[2 if snapshot.owner.adapters else bool(snapshot.owner.name)]
    head = _PRELUDE.pack(MAGIC, version, len(text), len(snapshot.tokens), clock) + text + snapshot.tokens.tobytes()
    head += blake2b(head, digest_size=_DIGEST).digest()
    return head, len(head) + sum(sizes) + _DIGEST


def write(folder: Path, key: str, head: bytes, snapshot: Snapshot, is_wanted: Callable[[], bool]) -> bool:
    """Write the file of a key that has none; it is synced to disk on return.

    False if `is_wanted` returned False meanwhile; then, and after an error, there is no file. Raises: `OSError`.
    """
    part, target = _create(folder)
    try:
        with target:
            digest = blake2b(digest_size=_DIGEST)
            for chunk in _chunks(head, *_parts(snapshot)):
                if not is_wanted():
                    return False
                digest.update(chunk)
                _write(target, chunk)
            _write(target, memoryview(digest.digest()))
            os.fsync(target.fileno())
            if not is_wanted():
                return False
            if sys.platform == "win32":
                target.close()  # an open file cannot be renamed there
            part.replace(path(folder, key))  # while locked, so that no process takes it for a leftover
            if sys.platform != "win32":
                _sync(folder)
            return True
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def read_head(source: Path) -> Head:
    """The head of a file; O(tokens). Raises: `Damaged`, `OtherVersion`, `OSError`."""
    with source.open("rb") as stream:
        return _read_head(stream.read, os.fstat(stream.fileno()).st_size)[0]


def read_packed(packed: memoryview) -> tuple[Head, int]:
    """The head of a snapshot in memory, and its length: the states stand behind it, and no checksum. O(tokens).
    Raises: `Damaged`, `OtherVersion`."""
    at = 0

    def read(n: int) -> bytes:
        nonlocal at
        at += n
        return bytes(packed[at - n : at])

    head, raw = _read_head(read, len(packed) + _DIGEST)
    return head, len(raw)


def read(source: Path) -> Snapshot:
    """The whole snapshot of a file, verified. Raises: `Damaged`, `OtherVersion`, `OSError`, `MemoryError`."""
    with source.open("rb") as stream:
        head, raw = _read_head(stream.read, os.fstat(stream.fileno()).st_size)
        digest = blake2b(raw, digest_size=_DIGEST)
        parts = []
        for size in head.sizes:
            parts.append(stream.read(size))
            digest.update(parts[-1])
        if stream.read(_DIGEST + 1) != digest.digest():
            raise Damaged("checksum")
    lengths = [length for length, _ in head.outline.checkpoints]
    checkpoints = tuple(zip(lengths, parts[1:], strict=True))
    return replace(head.outline, state=parts[0], checkpoints=checkpoints)


def _read_head(read: Callable[[int], bytes], size: int) -> tuple[Head, bytes]:
    prelude = read(_PRELUDE.size)
    if len(prelude) < _PRELUDE.size or not prelude.startswith(MAGIC):
        raise Damaged("magic")
    _, version, n_text, n_tokens, clock = _PRELUDE.unpack(prelude)
    if version not in VERSIONS:
        raise OtherVersion
    tokens = array("i")
    n_rest = n_text + n_tokens * tokens.itemsize + _DIGEST
    if n_rest > min(size, _MAX_HEAD):
        raise Damaged("length of the head")
    raw = prelude + read(n_rest)
    if blake2b(raw[:-_DIGEST], digest_size=_DIGEST).digest() != raw[-_DIGEST:]:
        raise Damaged("checksum of the head")
    tokens.frombytes(raw[_PRELUDE.size + n_text : -_DIGEST])
    head = _understand(raw[_PRELUDE.size : _PRELUDE.size + n_text], tokens, clock)
    if size != len(raw) + sum(head.sizes) + _DIGEST:
        raise Damaged("length")
    return head, raw


def _understand(text: bytes, tokens: array[int], clock: float) -> Head:
    """Parse the facts of a head. The checksum proves that they are as written, not that they make sense."""
    try:
        facts = json.loads(text)
        outline = Snapshot(
            tokens=tokens,
            runs=tuple((int(start), int(stop), int(position)) for start, stop, position in facts["runs"]),
            spans=tuple(Span(*span) for span in facts["spans"]),
            n_prompt=int(facts["n_prompt"]),
            state=b"",
            cost_s=float(facts["cost_s"]),
            checkpoints=tuple((int(length), b"") for length in facts["checkpoints"]),
            low=int(facts.get("low", sys.maxsize)),  # missing in older files: then nothing can be cut
            owner=Owner(
                str(facts.get("whose", "")),
                adapters=tuple((str(adapter), float(scale)) for adapter, scale in facts.get("adapters", ())),
            ),
            n_system=int(facts.get("n_system", 0)),  # missing in older files
            n_base=int(facts.get("n_base", 0)),
            n_pure=int(facts.get("n_pure", 0)),
        )
        sizes = tuple(int(size) for size in facts["sizes"])
        head = Head(str(facts["owner"]), outline, sizes, int(facts["uses"]), clock)
    except (ValueError, TypeError, LookupError, OverflowError, RecursionError) as error:
        raise Damaged("facts") from error
    edges = [0, *(edge for start, stop, _ in outline.runs for edge in (start, stop)), len(tokens)]
    are_finite = isfinite(outline.cost_s) and isfinite(head.clock)
    are_all_there = len(tokens) > 0 and len(sizes) == 1 + len(outline.checkpoints) and min(sizes) >= 0
    if edges != sorted(edges) or not are_finite or not are_all_there:
        raise Damaged("facts")
    return head


def _parts(snapshot: Snapshot) -> list[Saved]:
    return [snapshot.state, *(state for _, state in snapshot.checkpoints)]


def _chunks(*parts: Saved) -> Iterator[memoryview]:
    for part in parts:
        view = memoryview(part)
        for start in range(0, len(view), _CHUNK):
            yield view[start : start + _CHUNK]


def _create(folder: Path) -> tuple[Path, FileIO]:
    """A new locked file. Its name is new each time: a file that was taken for a leftover may still be removed."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    while True:
        part = folder / f"{secrets.token_hex(16)}.part"
        target = FileIO(os.open(part, flags, 0o600), "wb")
        try:
            _lock(target.fileno())
        except BlockingIOError:
            is_ours = False  # another process found it unlocked and is about to remove it
        except OSError:
            is_ours = True  # this file system has no locks, so no process removes leftovers
        else:
            is_ours = os.fstat(target.fileno()).st_nlink > 0  # 0: it has been removed
        if is_ours:
            return part, target
        target.close()
        part.unlink(missing_ok=True)


def _write(target: FileIO, chunk: memoryview) -> None:
    while chunk:
        chunk = chunk[target.write(chunk) :]


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> None:
    """Lock a file as being written. Raises: `BlockingIOError` if another writer has it, `OSError`."""
    if sys.platform != "win32":  # Windows does not remove an open file, which has the same effect
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _remove_leftover(name: str) -> None:
    with suppress(OSError):  # it is being written, or removed already
        if sys.platform == "win32":
            Path(name).unlink()
        else:
            with open(name, "rb") as stream:
                _lock(stream.fileno())
                Path(name).unlink()
