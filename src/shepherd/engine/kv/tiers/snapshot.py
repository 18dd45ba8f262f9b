"""What is saved of a conversation, and how much of it a prompt can use again. Pure.

tokens   0 ........ 40 ........ 90 ............ 200        the conversation, evicted tokens included
runs     (0, 40, 0)            (90, 200, 90)               what the saved state holds, and at which positions
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, replace
from hashlib import blake2b

from shepherd.engine.base import Span
from shepherd.engine.kv.ledger import Match, Resident, Run


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
    low: int = 0
    """The lowest position that a sliding window still held (`Resident.low`)."""

    @property
    def size_bytes(self) -> int:
        """Host memory that it takes, about."""
        states = len(self.state) + sum(len(state) for _, state in self.checkpoints)
        return states + self.tokens.itemsize * len(self.tokens)

    @property
    def n_resident(self) -> int:
        """Tokens that the state holds: cells that loading it takes."""
        return sum(stop - start for start, stop, _ in self.runs)

    def outline(self) -> Snapshot:
        """The same without the bytes of its states."""
        return replace(self, state=b"", checkpoints=tuple((length, b"") for length, _ in self.checkpoints))

    def sequence(self) -> Resident:
        """The sequence that loading it makes, as the ledger describes one; in no ledger, and without states."""
        return Resident(
            id=-1,
            block=-1,
            tokens=self.tokens,
            runs=[Run(start, stop, position, -1) for start, stop, position in self.runs],
            spans=self.spans,
            n_prompt=self.n_prompt,
            checkpoints=[(length, b"") for length, _ in self.checkpoints],
            low=self.low,
        )

    def key(self, owner: str) -> str:
        """Its name among an owner's snapshots, from what it is the state of: a sequence that has not changed keeps it.

        O(tokens), some 0.1 ms for 32,000.
        """
        lengths = [length for length, _ in self.checkpoints]
        facts = repr((owner, self.runs, self.spans, self.n_prompt, lengths)).encode()
        return blake2b(facts + self.tokens.tobytes(), digest_size=16).hexdigest()


@dataclass(frozen=True, slots=True)
class SnapshotMatch:
    """What a prompt can use of one snapshot."""

    key: str
    match: Match
    """What the ledger finds once it is loaded: the same function says so. Its sequence is in no ledger yet; loading
    brings all of its tokens, and the caller removes those from `length` on."""
    in_ram: bool
    """False: `fetch` first."""

    @property
    def length(self) -> int:
        """Leading tokens of the prompt that need not be looked at again."""
        return self.match.length

    @property
    def saved(self) -> int:
        """Of those, the ones that the state holds: tokens that need not be computed. Fewer after evictions."""
        return self.match.saved

    @property
    def n_resident(self) -> int:
        """Cells that loading it takes, before the tokens behind `length` are removed."""
        return self.match.resident.n_resident


@dataclass(frozen=True, slots=True)
class SnapshotCounts:
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
    return _holds(new, old)


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
