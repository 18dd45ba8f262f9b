"""What is saved of a conversation, and how much of it a prompt can use again. Pure.

tokens   0 ........ 40 ........ 90 ............ 200        the conversation, evicted tokens included
runs     (0, 40, 0)            (90, 200, 90)               what the saved state holds, and at which positions
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, replace

from shepherd.engine.base import Span


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The saved state of one sequence, and what it is the state of. Nobody changes `tokens` any more."""

    tokens: array[int]
    """The conversation's tokens (typecode `i`), evicted ones included; at least one."""
    runs: tuple[tuple[int, int, int], ...]
    """`(start, stop, position)`: tokens `[start, stop)` are in the state, the first at `position`. Ascending."""
    spans: tuple[Span, ...]
    n_prompt: int
    """Index of the token where the last generation began."""
    state: bytes
    """What `Runtime.save` gave."""
    cost_s: float
    """Seconds that computing it anew would take."""
    checkpoints: tuple[tuple[int, bytes], ...] = ()
    """`(length, partial state)` for a memory that cannot roll back: with it, the first `length` tokens can be gone back
    to."""

    @property
    def size_bytes(self) -> int:
        """Host memory that it takes, about."""
        states = len(self.state) + sum(len(state) for _, state in self.checkpoints)
        return states + self.tokens.itemsize * len(self.tokens)

    @property
    def n_resident(self) -> int:
        """Tokens that the state holds: cells that loading it takes."""
        return sum(stop - start for start, stop, _ in self.runs)

    @property
    def n_plain(self) -> int:
        """Leading tokens that are all there and stand at their own index, as if nothing had ever been evicted."""
        end = 0
        for start, stop, position in self.runs:
            if start != end or position != start:
                break
            end = stop
        return end

    def outline(self) -> Snapshot:
        """The same without the bytes of its states."""
        return replace(self, state=b"", checkpoints=tuple((length, b"") for length, _ in self.checkpoints))


@dataclass(frozen=True, slots=True)
class Found:
    """What a prompt can use of one snapshot."""

    key: str
    length: int
    """Leading tokens of the prompt that need not be looked at again. Loading the state brings all of the snapshot's
    tokens: the caller removes those from `length` on."""
    saved: int
    """Of those, the ones that the state holds: tokens that need not be computed. Less than `length` after evictions."""
    in_ram: bool
    """False: `fetch` first."""
    n_resident: int
    """Cells that loading it takes, before the tokens behind `length` are removed."""


@dataclass(frozen=True, slots=True)
class Tally:
    """What there is, and what happened since the start."""

    in_ram: int
    """Snapshots."""
    on_disk: int
    """Snapshots of this fingerprint."""
    taken: int
    written: int
    fetched: int
    dropped: int
    """Left RAM for want of room, or never came in, and are not on disk."""
    damaged: int
    """Files found that cannot be used."""


def reach(snapshot: Snapshot, common: int, *, holes: bool, exact: bool) -> tuple[int, int]:
    """`Found.length` and `Found.saved` for a prompt that shares the first `common` tokens; (0, 0) is of no use.

    holes: what stands behind an evicted token counts, too.
    exact: the state cannot be cut, only used whole or taken back to a checkpoint.
    """
    length = common if holes else min(common, snapshot.n_plain)
    if exact and length < len(snapshot.tokens):
        length = max((stop for stop, _ in snapshot.checkpoints if stop <= length), default=0)
    return length, sum(min(stop, length) - start for start, stop, _ in snapshot.runs if start < length)


def covers(new: Snapshot, old: Snapshot) -> bool:
    """Whether `new` serves every prompt at least as well as `old`, so that nobody needs `old` any more.

    True when `old` is an earlier moment of the same conversation and all that it holds is in `new`. Snapshots with
    checkpoints come from a memory that cannot roll back: then `new` must be able to stop wherever `old` could.
    """
    n = len(old.tokens)
    if n > len(new.tokens) or old.tokens[-1] != new.tokens[n - 1] or new.tokens[:n] != old.tokens:
        return False
    if (old.checkpoints or new.checkpoints) and not _stops(old) <= _stops(new):
        return False
    return old.n_plain <= new.n_plain and _holds(new, old)


def _stops(snapshot: Snapshot) -> set[int]:
    return {len(snapshot.tokens), *(length for length, _ in snapshot.checkpoints)}


def _holds(new: Snapshot, old: Snapshot) -> bool:
    """Whether every token that `old` holds is in `new`; positions may differ."""
    shared = sum(
        max(0, min(stop, other_stop) - max(start, other_start))
        for start, stop, _ in old.runs
        for other_start, other_stop, _ in new.runs
    )
    return shared == old.n_resident
