"""The two tiers: saved conversations in host memory and, if there is a folder, on disk; found by their tokens.

    put ──▶ RAM ──(own thread)──▶ disk        on disk at once, or when RAM fills
    take ◀── RAM ◀──(fetch: own thread)── disk

A lost snapshot costs only time: every fault (a full disk, a damaged file, another process that deletes files) means
that a snapshot is not found. One thread calls the methods; only `flush` and `close` wait for the disk. If there is a
folder, a second thread does all reading, writing and deleting. Both hold the one lock for bookkeeping only. Files are
independent of each other, so several processes may share a folder: every write begins with a listing of the folder.
"""

from __future__ import annotations

import logging
import threading
from array import array
from collections.abc import Callable, Container, Sequence
from functools import partial
from itertools import chain, islice
from math import inf, isfinite
from pathlib import Path
from typing import Literal

from shepherd.core.dataclasses import dataclass, field, replace
from shepherd.engine.base import UNOWNED, Memory, Owner, Span
from shepherd.engine.kv.ledger import Resident, common_prefix, usable
from shepherd.engine.kv.tiers import file
from shepherd.engine.kv.tiers.arena import Part
from shepherd.engine.kv.tiers.gdsf import GdsfPolicy
from shepherd.engine.kv.tiers.snapshot import Snapshot, SnapshotCounts, SnapshotMatch, covers

log = logging.getLogger(__name__)

_LENT = 64
"""Number of taken snapshots, in no tier any more, whose use counts are remembered."""


@dataclass(slots=True, eq=False)
class Entry:
    """The record of one snapshot in host memory, on disk, or between them. The store locks and changes it."""

    key: str
    outline: Snapshot
    size: int
    """Bytes in RAM."""
    uses: int = 1
    """One more than the number of times that it, or a snapshot that it continues, was taken."""
    snapshot: Snapshot | None = None
    """The whole snapshot, while it is in RAM."""
    on_disk: bool = False
    is_fetched: bool = False
    """Read from disk because a job is about to take it."""
    is_refused: bool = False
    """Not to be written: the disk is full of more valuable snapshots, or has a better one."""
    is_spare: bool = False
    """The cells have this conversation too: it is the first to leave RAM."""
    sequence: Resident = field(init=False)
    """The sequence that loading it makes."""

    def __post_init__(self) -> None:
        self.sequence = self.outline.sequence()

    @property
    def value(self) -> float:
        return self.uses * self.outline.cost_s / self.size


class Snapshots:
    """Saved conversations of one runtime fingerprint."""

    def __init__(
        self,
        fingerprint: str,
        memory: Memory,
        n_cells: int,
        *,
        ram_bytes: int,
        folder: Path | None = None,
        disk_bytes: int = 0,
        on_ready: Callable[[], None] = lambda: None,
        outliving: Part | None = None,
    ) -> None:
        """
        outliving: where the bytes of snapshots in RAM are, if they outlive this process.
        memory: capabilities of the cache that loads the snapshots.
        n_cells: of that cache; larger snapshots, which a larger cache has saved, are not found.
        ram_bytes: a cap; in addition, one larger snapshot may be on its way to the disk, and one from it.
        folder: created for this user only if it is missing; None = no disk tier.
        disk_bytes: a cap on all complete files in the folder, of every model and process; 0 = no disk tier.
        on_ready: called by the I/O thread after every `fetch`.
        """
        self._fingerprint_id = file.fingerprint_id(fingerprint)
        self._memory = memory
        self._n_cells = n_cells
        self._folder = folder or Path()
        self._on_ready = on_ready
        self._lock = threading.Condition()
        """Guards all that follow."""
        self._entries: dict[str, Entry] = {}
        self._lent: dict[str, Entry] = {}
        self._ram = GdsfPolicy(ram_bytes)
        self._passing: dict[Literal["in", "out"], Entry] = {}
        """Snapshots in RAM that are larger than its cap."""
        self._disk = GdsfPolicy(disk_bytes)
        """Every complete file in the folder, and the one being written."""
        self._foreign: set[str] = set()
        """Keys of files of other fingerprints."""
        self._fetches: dict[str, None] = {}
        self._writes: dict[str, None] = {}
        self._busy = ""
        """The key that the I/O thread reads or writes: its bytes stay in memory until then."""
        self._reading = ""
        """The same, only while it reads."""
        self._n_steps = 0
        """Parts of files that were written."""
        self._clearing = False
        self._closing = False
        self._has_warned = False
        self._outliving = outliving
        self._counts = dict.fromkeys(("taken", "written", "fetched", "dropped", "damaged"), 0)
        has_disk = folder is not None and disk_bytes > 0
        self._can_write = has_disk
        self._is_alive = has_disk
        self._is_indexed = not has_disk
        self._thread = threading.Thread(target=self._run, name="snapshots", daemon=True) if has_disk else None
        for left in list(outliving.left.values()) if outliving is not None else ():
            self.put(left, to_disk=False)
        if self._thread is not None:
            self._thread.start()

    # -- what the engine thread calls ------------------------------------------------------------------------------

    def find(
        self,
        prompt: array[int],
        owner: Owner = UNOWNED,
        *,
        holes: bool,
        spans: Sequence[Span] = (),
        without: Container[str] = (),
        n_held: int = 0,
    ) -> SnapshotMatch | None:
        """The snapshot of `owner` that has most of the prompt; of equals one in RAM, then the smallest.

        `n_held`: how many tokens of the prompt a sequence in the cells has in place; a snapshot that leaves out more
        cannot be loaded.

        With `holes`, evicted tokens count too: an older snapshot would bring them back. Each snapshot is judged by
        `ledger.usable` with the same `spans`. Keys in `without` are ignored. If one token must be left to compute,
        pass the prompt without it.

        Files are known once the folder has been listed, some milliseconds after the start. O(snapshots), about a
        microsecond for each that does not match.
        """
        kept = [span for span in spans if span.keep]
        best: SnapshotMatch | None = None
        best_rank = (1, False, -inf)
        head = prompt[:2]
        with self._lock:
            for entry in reversed(self._entries.values()):
                tokens, in_ram = entry.outline.tokens, entry.snapshot is not None
                n = best_rank[0] + ((in_ram, -entry.size) <= best_rank[1:])  # common tokens that a better one must have
                if n > min(len(tokens), len(head)) or tokens[n - 1] != head[n - 1] or tokens[:n] != head[:n]:
                    continue
                if not (entry.outline.owner.can_share(owner) and (in_ram or entry.on_disk)) or entry.key in without:
                    continue
                if entry.outline.n_base > n_held:
                    continue
                common = common_prefix(tokens, prompt)
                match = usable(entry.sequence, common, self._memory, holes=holes, kept=kept, spans=spans)
                rank = (match.length, in_ram, -entry.size)
                if match.saved and rank > best_rank and match.resident.n_resident <= self._n_cells:
                    best, best_rank = SnapshotMatch(entry.key, match, in_ram), rank
                    head = prompt[: match.length + 1]
        return best

    def outlines(self) -> dict[str, Snapshot]:
        with self._lock:
            entries = [entry for entry in self._entries.values() if entry.snapshot is not None or entry.on_disk]
            return {entry.key: entry.outline for entry in entries}

    def places(self) -> list[tuple[str, Resident, Literal["memory", "disk"]]]:
        """Of every snapshot its key, the sequence that it makes, which must not be changed, and where it is."""
        with self._lock:
            entries = [entry for entry in self._entries.values() if entry.snapshot is not None or entry.on_disk]
            return [(each.key, each.sequence, "memory" if each.snapshot is not None else "disk") for each in entries]

    def newest(self, owner: Owner, n: int) -> list[Resident]:
        """The sequences that loading the `n` newest snapshots of `owner` would make. They must not be changed."""
        with self._lock:
            own = (entry for entry in reversed(self._entries.values()) if entry.outline.owner.can_share(owner))
            return [entry.sequence for entry in islice((e for e in own if e.snapshot is not None or e.on_disk), n)]

    def take(self, key: str) -> Snapshot | None:
        """Remove a snapshot from RAM and return it; a copy on disk stays. None if it is not in RAM any more."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None or entry.snapshot is None:
                return None
            snapshot = entry.snapshot
            entry.uses += 1
            self._counts["taken"] += 1
            self._writes.pop(key, None)
            self._leave_ram(entry)
            if entry.on_disk:
                self._disk.touch(key, entry.value)
            elif key not in self._entries:
                self._lent[key] = entry
                if len(self._lent) > _LENT:
                    del self._lent[next(iter(self._lent))]
            return snapshot

    def fetch(self, key: str) -> None:
        """Start reading a snapshot into RAM; a snapshot that cannot be read is removed.

        Then `on_ready` is called: on the I/O thread, or on this one if there is no I/O thread.
        """
        with self._lock:
            has_thread = self._is_alive and not self._closing
            if has_thread:
                self._fetches[key] = None
                self._lock.notify_all()
        if not has_thread:
            self._on_ready()

    def is_coming(self, key: str) -> bool:
        with self._lock:
            return key in self._fetches or key == self._reading

    def touch(self, key: str) -> bool:
        """Whether a snapshot of this key is in RAM and need not be put again; it then counts as the newest."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None or entry.snapshot is None:
                return False
            entry.is_spare = False
            self._entries[key] = self._entries.pop(key)
            return True

    def is_on_disk(self, key: str) -> bool:
        with self._lock:
            return key in self._entries and self._entries[key].on_disk

    def key(self, outline: Snapshot) -> str:
        """The key under which `put` keeps this snapshot; its states do not matter."""
        return outline.key(self._fingerprint_id)

    def put(self, snapshot: Snapshot, *, to_disk: bool = True, waits: bool = False, is_spare: bool = False) -> bool:
        """Keep a snapshot in place of those that it continues. The least valuable ones leave; this may be one of them.

        to_disk: write it now; otherwise when RAM fills, or with `flush`. A snapshot that must leave RAM before it is
        written is lost; so those that are on disk leave first. waits: put nothing, and return False, while that would
        lose one; when the I/O thread is idle, it loses none. is_spare: the cells have it too; it drives nothing out of
        RAM.
        """
        assert snapshot.tokens, "a snapshot of nothing"
        assert snapshot.tokens.typecode == "i"
        assert not (snapshot.n_base and self._thread), "a file has to be of use by itself"
        cost_s = max(0.0, snapshot.cost_s) if isfinite(snapshot.cost_s) else 0.0
        snapshot = replace(snapshot, cost_s=cost_s)
        key, outline, size = snapshot.key(self._fingerprint_id), snapshot.outline(), snapshot.size_bytes
        with self._lock:
            if self._closing:
                return True  # nothing is kept any more
            if waits and not self._has_room(size):
                return False
            if is_spare and self._ram.used + size > self._ram.cap:
                return True
            # A sequence that comes back unchanged keeps its entry and its file.
            entry = self._entries.pop(key, None) or self._lent.pop(key, None) or Entry(key, outline, size)
            older = [
                other for other in chain(self._entries.values(), self._lent.values()) if covers(outline, other.outline)
            ]
            for other in older:
                self._lent.pop(other.key, None)
                self._writes.pop(other.key, None)
                self._leave_ram(other)
                entry.uses = max(entry.uses, other.uses)
            if entry.snapshot is None and key not in self._ram:
                entry.size = size
            self._entries[key] = entry  # the newest
            entry.snapshot, entry.is_refused, entry.is_spare = snapshot, False, is_spare
            if not self._enter_ram(entry, "out"):
                return True
            if self._outliving is not None and key in self._ram:
                entry.snapshot = self._outliving.keep(key, snapshot)
            if not entry.on_disk and self._can_write and (to_disk or self._passing.get("out") is entry):
                self._writes[entry.key] = None
            self._spill(self._ram.cap // 2)
            self._lock.notify_all()
            return True

    def clear(self) -> None:
        """Forget all snapshots of this fingerprint: those in RAM now, files soon on the I/O thread (`flush` waits).

        Files of other versions of the format are deleted too: they may be of this fingerprint.
        """
        with self._lock:
            for entry in list(self._entries.values()):
                self._leave_ram(entry)
            self._entries.clear()
            self._lent.clear()
            self._writes.clear()
            self._clearing = self._is_alive and not self._closing
            self._lock.notify_all()

    def flush(self, timeout_s: float, on_progress: Callable[[], None] = lambda: None) -> bool:
        """Write all snapshots that are only in RAM, and wait until the I/O thread is idle.

        False after `timeout_s` in which nothing was written, or if the disk tier has failed. `on_progress` is called
        when something was; it must not use this object.
        """
        with self._lock:
            self._spill(0)
            self._lock.notify_all()
            while not self._is_idle():
                before = self._n_steps
                if not self._lock.wait_for(lambda: self._is_idle() or self._n_steps != before, timeout_s):  # noqa: B023
                    return False
                on_progress()
            return self._thread is None or (self._can_write and not self._closing)

    def close(self) -> None:
        """End the I/O thread at once; snapshots that are not on disk are lost. Nothing is kept or found afterwards."""
        with self._lock:
            self._closing = True
            for entry in list(self._entries.values()):
                self._leave_ram(entry)
            self._entries.clear()
            self._lent.clear()
            self._lock.notify_all()
        if self._thread is not None:
            self._thread.join()

    @property
    def ram_bytes(self) -> int:
        with self._lock:
            return self._ram.used + sum(entry.size for entry in self._passing.values())

    @property
    def spare_bytes(self) -> int:
        """Those in RAM that leave for whatever else comes."""
        with self._lock:
            return sum(entry.size for entry in self._entries.values() if entry.is_spare and entry.snapshot is not None)

    @property
    def disk_bytes(self) -> int:
        """Of all files in the folder, as listed last."""
        with self._lock:
            return self._disk.used

    @property
    def counts(self) -> SnapshotCounts:
        with self._lock:
            entries = self._entries.values()
            in_ram = sum(entry.snapshot is not None for entry in entries)
            return SnapshotCounts(in_ram=in_ram, on_disk=sum(entry.on_disk for entry in entries), **self._counts)

    # -- bookkeeping, with the lock held ---------------------------------------------------------------------------

    def _enter_ram(self, entry: Entry, way: Literal["in", "out"]) -> bool:
        """Make room for an entry's bytes; False if it has to leave itself."""
        if entry.key in self._ram or entry in self._passing.values():
            return True  # it is counted already, or is being read or written now
        if entry.size <= self._ram.cap:
            self._ram.place(entry.key, entry.size, entry.value)
            for key in self._ram.overflow(entry.key, self._rank):
                self._writes.pop(key, None)
                self._drop(self._entries[key])
            return entry.key in self._ram
        other = self._passing.get(way)
        if way == "out" and (other or entry.on_disk or not self._can_write):
            self._drop(entry)
            return False
        if other:
            self._drop(other)
        self._passing[way] = entry
        return True

    def _has_room(self, size: int) -> bool:
        """Whether a snapshot can enter RAM, and none leaves it that is to be written or that a job waits for."""
        if self._is_idle():
            return True
        if size > self._ram.cap:
            return "out" not in self._passing
        stay = (entry for key in self._ram if (entry := self._entries.get(key)) and self._rank(key) not in {-1, 0})
        return sum(entry.size for entry in stay) + size <= self._ram.cap

    def _rank(self, key: str) -> int | None:
        """Rank for leaving RAM: first what the cells have, then what is on disk and no job waits for. See
        `GdsfPolicy.in_order`."""
        entry = self._entries.get(key)
        if key == self._busy or entry is None:
            return None
        return -1 if entry.is_spare else int(entry.is_fetched or self._is_unsaved(entry))

    def _is_unsaved(self, entry: Entry) -> bool:
        is_missing = entry.snapshot is not None and not entry.on_disk
        return is_missing and self._can_write and not entry.is_refused

    def _spill(self, allowed: int) -> None:
        """Queue writes, least valuable first, until at most `allowed` bytes of RAM are neither on disk nor queued."""
        if not self._can_write:
            return
        waiting = {
            key: entry.size
            for key, entry in self._entries.items()
            if self._is_unsaved(entry) and key not in self._writes and key != self._busy
        }
        excess = sum(waiting.values()) - allowed
        for key in self._ram.in_order() if excess > 0 else ():
            if excess > 0 and key in waiting:
                self._writes[key] = None
                excess -= waiting[key]

    def _drop(self, entry: Entry) -> None:
        self._counts["dropped"] += not entry.on_disk
        self._leave_ram(entry)

    def _leave_ram(self, entry: Entry) -> None:
        entry.snapshot = None
        if self._outliving is not None:
            self._outliving.drop(entry.key)
        entry.is_fetched = False
        if entry.key != self._busy:
            self._release(entry)

    def _release(self, entry: Entry) -> None:
        """Stop counting an entry's bytes once they are out of RAM; drop an entry that is in no tier."""
        if entry.snapshot is None:
            for way, passing in list(self._passing.items()):
                if passing is entry:
                    del self._passing[way]
            if self._entries.get(entry.key, entry) is not entry:
                return  # `clear` removed it while the I/O thread had it, and the same key was put again
            self._ram.remove(entry.key)
            if not entry.on_disk:
                self._entries.pop(entry.key, None)

    def _leave_disk(self, key: str, *, is_refused: bool = False) -> None:
        self._disk.remove(key)
        self._foreign.discard(key)
        entry = self._entries.get(key)
        if entry is not None:
            entry.on_disk = False
            entry.is_refused = is_refused
            if key != self._busy:
                self._release(entry)

    def _is_idle(self) -> bool:
        is_waiting = self._fetches or self._writes or self._busy or self._clearing
        return self._closing or not self._is_alive or (self._is_indexed and not is_waiting)

    # -- what the I/O thread does ----------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._try_survey()
            with self._lock:
                self._is_indexed = True
                self._lock.notify_all()
            while (task := self._next()) is not None:
                task()
        finally:  # after a bug too, which the thread's hook reports: no caller may wait for a dead thread
            with self._lock:
                self._is_alive = self._can_write = False
                self._fetches.clear()
                for key in list(self._disk):
                    self._leave_disk(key)
                self._done(self._entries.get(self._busy))
                is_down = not self._closing
            if is_down:
                self._on_ready()

    def _next(self) -> Callable[[], None] | None:
        with self._lock:
            self._lock.wait_for(lambda: self._closing or self._clearing or self._fetches or self._writes)
            if self._closing:
                return None
            if self._clearing:
                return self._delete_all
            queue, work = (self._fetches, self._read) if self._fetches else (self._writes, self._write)
            key = next(iter(queue))
            del queue[key]
            self._busy = key
            self._reading = key if queue is self._fetches else ""
            return partial(work, key)

    def _done(self, entry: Entry | None) -> None:
        """Release the bytes of the entry that the I/O thread has worked on. With the lock held."""
        self._busy = self._reading = ""
        if entry is not None:
            self._release(entry)
        self._lock.notify_all()

    def _try_survey(self) -> None:
        try:
            self._survey()
        except OSError as error:
            self._give_up(error)

    def _survey(self) -> None:
        """Update the bookkeeping to the files that are in the folder now. Raises: `OSError`."""
        file.open_folder(self._folder)
        sizes = file.listing(self._folder)
        with self._lock:
            known = set(self._disk)
            for key in known - sizes.keys():
                self._leave_disk(key)
        for key, size in sizes.items():
            if key not in known:
                self._adopt(key, size)
        with self._lock:
            leaving = self._disk.overflow()
            for key in leaving:
                self._leave_disk(key, is_refused=True)
        self._delete(leaving)
        self._warn()

    def _adopt(self, key: str, size: int) -> None:
        path = file.path(self._folder, key)
        try:
            head = file.read_head(path)
        except FileNotFoundError:
            return
        except file.Damaged:
            self._delete([key])
            self._count_damaged()
            return
        except (file.OtherVersion, OSError, MemoryError):
            with self._lock:
                self._disk.place(key, size, 0.0, clock=-inf)  # the first to leave when the disk is full
            self._count_damaged()
            return
        entry = Entry(key, head.outline, head.size_bytes, head.uses)
        with self._lock:
            self._disk.place(key, size, entry.value, clock=head.clock)
            self._disk.clock = max(self._disk.clock, head.clock)
            if head.fingerprint_id != self._fingerprint_id:
                self._foreign.add(key)
            elif not self._closing:  # another process may have saved what is in our RAM
                self._entries.setdefault(key, entry).on_disk = True

    def _write(self, key: str) -> None:
        with self._lock:
            entry = self._entries.get(key)
            snapshot = entry.snapshot if entry else None
            if entry is None or snapshot is None or entry.on_disk:
                self._done(entry)
                return
        leaving: list[str] = []
        is_written = False
        try:
            self._survey()
            uses = entry.uses
            _, size = file.pack(snapshot, self._fingerprint_id, uses, 0.0)
            with self._lock:
                is_needed = not entry.on_disk  # another process may have written it meanwhile
                if is_needed:
                    self._disk.remove(key)  # a file of this name that cannot be read
                    self._disk.place(key, size, entry.value)
                    leaving = self._disk.overflow(key)
                for other in leaving:
                    self._leave_disk(other, is_refused=True)
                clock = self._disk.clock
            if is_needed and key not in leaving:
                self._delete(leaving)
                head, _ = file.pack(snapshot, self._fingerprint_id, uses, clock)
                is_written = file.write(self._folder, key, head, snapshot, partial(self._is_wanted, key))
        except FileNotFoundError:  # the folder was deleted: the next write creates it again
            pass
        except OSError as error:
            self._give_up(error)
        with self._lock:
            leaving = []
            if is_written:
                self._counts["written"] += 1
                entry.on_disk = True
                leaving = [
                    other.key
                    for other in self._entries.values()
                    if other is not entry and other.on_disk and covers(entry.outline, other.outline)
                ]
                for other in leaving:
                    self._leave_disk(other, is_refused=True)
            elif not entry.on_disk:
                self._disk.remove(key)
            if self._passing.get("out") is entry:
                self._drop(entry)
        self._delete(leaving)
        with self._lock:
            self._done(entry)

    def _is_wanted(self, key: str) -> bool:
        """Whether a snapshot is to be written; asked before each part of it, when the one before has been written."""
        with self._lock:
            self._n_steps += 1
            self._lock.notify_all()
            return key in self._entries and not self._closing

    def _read(self, key: str) -> None:
        with self._lock:
            entry = self._entries.get(key)
            must_read = entry is not None and entry.snapshot is None and entry.on_disk
            if entry is not None and must_read:
                self._enter_ram(entry, "in")
        if entry is not None and must_read:
            snapshot = self._load(entry)
            with self._lock:
                if snapshot is None:
                    self._leave_disk(key)
                elif self._entries.get(key) is entry:
                    entry.snapshot = snapshot
                    entry.is_fetched = True
                    self._counts["fetched"] += 1
        with self._lock:
            self._done(entry)
        self._on_ready()

    def _load(self, entry: Entry) -> Snapshot | None:
        """Read a snapshot from its file; None if that fails. A damaged file is deleted."""
        try:
            snapshot = file.read(file.path(self._folder, entry.key))
            if snapshot.key("") != entry.outline.key(""):
                raise file.Damaged("another snapshot")
        except FileNotFoundError:
            return None
        except file.Damaged:
            self._delete([entry.key])
        except (file.OtherVersion, OSError, MemoryError):
            pass
        else:
            return snapshot
        self._count_damaged()
        self._warn()
        return None

    def _delete_all(self) -> None:
        """Delete every file that is, or may be, of this fingerprint."""
        self._try_survey()
        with self._lock:
            leaving = [key for key in self._disk if key not in self._foreign]
            for key in leaving:
                self._leave_disk(key)
        self._delete(leaving)
        with self._lock:
            self._clearing = False
            self._lock.notify_all()

    def _delete(self, keys: list[str]) -> None:
        for key in keys:
            try:
                file.path(self._folder, key).unlink(missing_ok=True)
            except OSError as error:
                self._give_up(error)

    def _count_damaged(self) -> None:
        with self._lock:
            self._counts["damaged"] += 1

    def _warn(self) -> None:
        with self._lock:
            n, has_warned = self._counts["damaged"], self._has_warned
            self._has_warned = has_warned or n > 0
        if n and not has_warned:
            log.warning("%d saved conversations in %s cannot be used: damaged, or of another version", n, self._folder)

    def _give_up(self, error: OSError) -> None:
        """Stop writing: the disk is full, or the folder cannot be used. Files that are there can still be read."""
        with self._lock:
            is_first, self._can_write = self._can_write, False
            self._writes.clear()
            stuck = self._passing.get("out")
            if stuck is not None:
                self._drop(stuck)
        if is_first:
            log.warning("no more conversations are saved in %s: %s", self._folder, error.strerror or error)
