"""A snapshot: the saved state of one conversation, and how much of it a prompt can reuse. Pure.

tokens   0 ........ 40 ........ 90 ............ 200        the conversation, evicted tokens included
runs     (0, 40, 0)            (90, 200, 90)               what the saved state holds, and at which positions
"""

from __future__ import annotations

from array import array
from hashlib import blake2b

from shepherd.core.dataclasses import dataclass, replace
from shepherd.engine.base import UNOWNED, Owner, Saved, Span
from shepherd.engine.kv.ledger import Match, Resident, Run


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The saved state of one sequence, and the tokens that it belongs to. `tokens` must not be changed."""

    tokens: array[int]
    """The conversation's tokens (typecode `i`), evicted ones included; at least one."""
    runs: tuple[tuple[int, int, int], ...]
    """`(start, stop, position)`: tokens `[start, stop)` are in the state, the first at `position`. Ascending."""
    spans: tuple[Span, ...]
    n_prompt: int
    """Index of the token where the last generation began."""
    state: Saved
    """The bytes from `Runtime.save`."""
    cost_s: float
    """Seconds that computing it again would take."""
    checkpoints: tuple[tuple[int, Saved], ...] = ()
    """`(length, partial state)` for a memory that cannot roll back: each allows to cut back to `length` tokens."""
    low: int = 0
    """The lowest position that a sliding window still held (`Resident.low`)."""
    owner: Owner = UNOWNED
    """Whose conversation it is, without the tokens that others may share."""
    n_system: int = 0
    """Leading tokens that are the system prompt and the tools (`Job.n_system`)."""
    n_base: int = 0
    """Leading tokens that the state leaves out: it is loaded behind a sequence in the cells that has them in place."""
    n_pure: int = 0
    """As `Resident.n_pure`."""
    session: str | None = None
    """The conversation's name, for displays; not in files."""

    @property
    def size_bytes(self) -> int:
        states = len(self.state) + sum(len(state) for _, state in self.checkpoints)
        return states + self.tokens.itemsize * len(self.tokens)

    @property
    def n_resident(self) -> int:
        """Tokens in the state, which is the number of cells that loading it takes."""
        return sum(stop - start for start, stop, _ in self.runs)

    def outline(self) -> Snapshot:
        """The same without the bytes of its states."""
        return replace(self, state=b"", checkpoints=tuple((length, b"") for length, _ in self.checkpoints))

    def sequence(self) -> Resident:
        """The sequence that loading it makes, with what it leaves out; it belongs to no ledger and has no states."""
        runs = [(0, self.n_base, 0), *self.runs] if self.n_base else self.runs
        return Resident(
            id=-1,
            block=-1,
            tokens=self.tokens,
            runs=[Run(start, stop, position, -1) for start, stop, position in runs],
            spans=self.spans,
            n_prompt=self.n_prompt,
            n_pure=self.n_pure,
            checkpoints=[(length, b"") for length, _ in self.checkpoints],
            low=self.low,
            n_system=self.n_system,
            session=self.session,
            owner=self.owner,
        )

    def key(self, fingerprint_id: str) -> str:
        """A hash of fingerprint, owner, adapters, tokens, runs and spans: the same for a sequence that has not changed.

        O(tokens), about 0.1 ms for 32,000.
        """
        lengths = [length for length, _ in self.checkpoints]
        name, adapters = self.owner.name, self.owner.adapters
        # As before there were owners, and then adapters.
        owner = (fingerprint_id, name, *adapters) if name or adapters else fingerprint_id
        facts = repr((owner, self.runs, self.spans, self.n_prompt, lengths)).encode()
        return blake2b(facts + self.tokens.tobytes(), digest_size=16).hexdigest()


@dataclass(frozen=True, slots=True)
class SnapshotMatch:
    """The part of a prompt that one snapshot has."""

    key: str
    match: Match
    """The match that the ledger finds after loading (`ledger.usable`). Its sequence is in no ledger yet; loading brings
    all of its tokens, and the caller removes those from `length` on."""
    in_ram: bool
    """False: call `fetch` first."""


@dataclass(frozen=True, slots=True)
class SnapshotCounts:
    """Number of snapshots at present, and totals since the start."""

    in_ram: int
    on_disk: int
    """Of this fingerprint."""
    taken: int
    written: int
    fetched: int
    dropped: int
    """Lost for lack of RAM: not in RAM, not on disk."""
    damaged: int
    """Files that cannot be used."""


def covers(new: Snapshot, old: Snapshot) -> bool:
    """Whether `new` serves every prompt at least as well as `old`, so that `old` is not needed any more.

    True if `old` is an earlier state of the same conversation and `new` holds all that it holds. Snapshots with
    checkpoints come from a memory that cannot roll back: `new` must then have all lengths that `old` can be cut to. A
    system prompt by itself is never covered: it is smaller than what begins with it, and stays longer.
    """
    n = len(old.tokens)
    if n == old.n_system < len(new.tokens):
        return False
    if n > len(new.tokens) or old.tokens[-1] != new.tokens[n - 1] or new.tokens[:n] != old.tokens:
        return False
    if (old.checkpoints or new.checkpoints) and not _stops(old) <= _stops(new):
        return False
    return new.owner.can_share(old.owner) and _holds(new, old)


def _stops(snapshot: Snapshot) -> set[int]:
    return {len(snapshot.tokens), *(length for length, _ in snapshot.checkpoints)}


def _holds(new: Snapshot, old: Snapshot) -> bool:
    """Whether `new` holds every token that `old` holds; positions may differ."""
    shared = sum(
        max(0, min(stop, other_stop) - max(start, other_start))
        for start, stop, _ in old.runs
        for other_start, other_stop, _ in new.runs
    )
    return shared == old.n_resident
