"""Memory that outlives the process that fills it: saved conversations of a child, whose parent holds the same file.

    child: keep(key, snapshot) ─▶ | region | region | ... |  ◀── the parent holds the handle, and knows the regions
                                                                  ─▶ the next child: left()

The file has no name, and goes when both processes have gone, however they end. It only grows; what is dropped becomes a
hole, which takes no memory. A region holds the same bytes as a file of the disk tier.
"""

from __future__ import annotations

import mmap
import os
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from shepherd.engine.kv.tiers import file
from shepherd.engine.kv.tiers.snapshot import Snapshot

IS_POSSIBLE = hasattr(os, "memfd_create") and hasattr(mmap, "MADV_REMOVE")
"""Linux has files without a name that can have holes."""


class Region(NamedTuple):
    start: int
    """Bytes, a multiple of the page size."""
    size: int


def create() -> int:
    """The handle of an empty arena. Raises: `OSError`."""
    return os.memfd_create("shepherd-conversations", os.MFD_CLOEXEC)


class Arena:
    """All regions of one child. Any thread."""

    def __init__(
        self, handle: int, regions: Mapping[str, Region], on_change: Callable[[str, Region | None], None]
    ) -> None:
        """`regions`: what earlier processes have left. `on_change`: called when one is full or of no use."""
        self._handle = handle
        self._regions = dict(regions)
        self._mapped: set[Region] = set()
        """Those whose bytes something holds."""
        self._on_change = on_change
        self._lock = threading.RLock()  # a view may be collected while it is held
        self._end = os.fstat(handle).st_size
        for start, size in self._holes():
            _punch(handle, start, size)

    def _holes(self) -> Iterator[Region]:
        """What a process was filling when it ended, and what it has not reported."""
        at = 0
        for start, size in sorted(self._regions.values()):
            if start > at:
                yield Region(at, start - at)
            at = start + _paged(size)
        if self._end > at:
            yield Region(at, self._end - at)

    def part(self, name: str, fingerprint: str) -> Part:
        """The regions of one cache, for snapshots of this fingerprint; what others have left under its name goes."""
        part = Part(self, f"{name}/", file.fingerprint_id(fingerprint))
        part.read_left()
        return part

    def mapped(self, region: Region) -> memoryview:
        """The bytes of a region, which stay until nothing holds the view any more."""
        mapping = mmap.mmap(self._handle, region.size, offset=region.start)
        with self._lock:
            self._mapped.add(region)
        weakref.finalize(mapping, self._free, region)
        return memoryview(mapping)

    def place(self, size: int) -> Region:
        """Raises: `OSError` where the memory has no room."""
        with self._lock:
            region = Region(self._end, size)
            self._end += _paged(size)
            os.ftruncate(self._handle, self._end)
            return region

    def note(self, key: str, region: Region | None) -> None:
        with self._lock:
            old = self._regions.pop(key, None)
            if region is not None:
                self._regions[key] = region
            if old is not None and old not in self._mapped:
                _punch(self._handle, *old)
        if old != region:
            self._on_change(key, region)

    def named(self, prefix: str) -> dict[str, Region]:
        with self._lock:
            return {key: region for key, region in self._regions.items() if key.startswith(prefix)}

    def _free(self, region: Region) -> None:
        with self._lock:
            self._mapped.discard(region)
            if region not in self._regions.values():
                _punch(self._handle, *region)


class Part:
    """The regions of one cache. The store calls it with its lock held."""

    def __init__(self, arena: Arena, prefix: str, fingerprint_id: str) -> None:
        self._arena = arena
        self._prefix = prefix
        self._fingerprint_id = fingerprint_id
        self.left: dict[str, Snapshot] = {}
        """What an earlier process has left, by key, the oldest first."""

    def read_left(self) -> None:
        for key, region in sorted(self._arena.named(self._prefix).items(), key=lambda each: each[1].start):
            view = self._arena.mapped(region)
            try:
                head, start = file.read_packed(view)
            except (file.Damaged, file.OtherVersion):
                head = None
            if head is None or head.fingerprint_id != self._fingerprint_id:
                self._arena.note(key, None)
            else:
                self.left[key.removeprefix(self._prefix)] = _with_states(head, view[start:])

    def keep(self, key: str, snapshot: Snapshot) -> Snapshot:
        """The snapshot with its states in a region; as it came where there is no room."""
        if key in self.left:
            return self.left.pop(key)
        packed, _ = file.pack(snapshot, self._fingerprint_id, 1, 0.0)
        states = [snapshot.state, *(state for _, state in snapshot.checkpoints)]
        size = len(packed) + sum(map(len, states))
        try:
            region = self._arena.place(size)
            view = self._arena.mapped(region)
        except (OSError, ValueError):
            return snapshot
        at = 0
        for each in (packed, *states):
            view[at : at + len(each)] = each
            at += len(each)
        head, start = file.read_packed(view)
        self._arena.note(self._prefix + key, region)
        return _with_states(replace(head, outline=snapshot), view[start:])

    def drop(self, key: str) -> None:
        self._arena.note(self._prefix + key, None)


def _with_states(head: file.Head, states: memoryview) -> Snapshot:
    ends = [sum(head.sizes[: n + 1]) for n in range(len(head.sizes))]
    parts = [states[end - size : end] for end, size in zip(ends, head.sizes, strict=True)]
    lengths = [length for length, _ in head.outline.checkpoints]
    return replace(head.outline, state=parts[0], checkpoints=tuple(zip(lengths, parts[1:], strict=True)))


def _paged(size: int) -> int:
    return -(-size // mmap.PAGESIZE) * mmap.PAGESIZE


def _punch(handle: int, start: int, size: int) -> None:
    """Give the memory of a part of the file back."""
    with mmap.mmap(handle, size, offset=start) as mapping:
        mapping.madvise(mmap.MADV_REMOVE)
