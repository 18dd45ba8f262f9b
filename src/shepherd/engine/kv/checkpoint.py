"""The checkpoints of the sequences in the cells: saved at marks, bounded together, shared by forks and left to others.

    marks ──▶ save ──▶ Resident.checkpoints ── bound ──▶ the bytes of all of them stay below a cap
                            │
                            └── bequeath: a sequence that leaves gives its system prompt's to one that begins alike

For memories that cannot be cut back (`Memory.checkpoint`): recurrent and hybrid models, small sliding windows. Which
marks are worth most is decided in `marks.py`. Engine thread only.
"""

from __future__ import annotations

from operator import itemgetter

from shepherd.engine.base import Job, Runtime, Saved
from shepherd.engine.kv import marks
from shepherd.engine.kv.ledger import Ledger, Resident, common_prefix

CHECKPOINT_BYTES = 2**30
"""For the checkpoints of all sequences in the cells."""


class Checkpoints:
    def __init__(self, runtime: Runtime, ledger: Ledger, cap: int) -> None:
        """`cap`: bytes; those of conversations in the tiers count there."""
        self._runtime = runtime
        self._ledger = ledger
        self._cap = cap
        self._state_bytes = 0
        """Of the largest state; 0 = not known yet."""

    @property
    def size_bytes(self) -> int:
        """Bytes of all states; those that sequences share count once."""
        return sum({id(state): len(state) for each in self._ledger for _, state in each.checkpoints}.values())

    def marks(self, job: Job, start: int, resident: Resident) -> frozenset[int]:
        """Where to save the state while `resident` is computed for `job` from token `start` on."""
        if not self._ledger.memory.checkpoint:
            return frozenset()
        others = (one for one in self._ledger if one is not resident and one.owner.can_share(job.owner))
        fork = max((common_prefix(one.tokens, job.tokens) for one in others), default=0)
        held = [at for at, _ in resident.checkpoints]
        return frozenset(marks.planned(job, start, held, self._n_most, fork=fork))

    def save(self, resident: Resident) -> None:
        """Save the part of the sequence's present state that cannot be rolled back."""
        if resident.state_at(len(resident)) is None and (state := self._runtime.save(resident.id, partial=True)):
            resident.checkpoints.append((len(resident), state))
            self.bound()

    def can_restore(self, source: Resident, length: int) -> bool:
        is_known = length == len(source) or source.state_at(length) is not None
        return self._ledger.memory.checkpoint and is_known

    def state_at(self, source: Resident, length: int) -> Saved | None:
        """What completes the cells of the first `length` tokens; None if it is not known."""
        if length == len(source):
            self.save(source)
        return source.state_at(length)

    def bound(self) -> None:
        """Drop the checkpoints that are worth least until the others fit: of the sequence that has most, and of equals
        the one that was used least recently."""
        sizes = (len(state) for each in self._ledger for _, state in each.checkpoints)
        self._state_bytes = max(self._state_bytes, *sizes, 0)
        for resident in self._ledger:
            resident.checkpoints = _best(resident, self._n_most)
        by_use = sorted(self._ledger, key=lambda resident: (resident.live, resident.used_at))
        while self.size_bytes > self._cap:
            resident = max(by_use, key=lambda resident: len(resident.checkpoints))
            resident.checkpoints = _best(resident, len(resident.checkpoints) - 1)

    def within(self, resident: Resident, size_bytes: int) -> list[tuple[int, Saved]]:
        """Those checkpoints of a sequence that are worth most and take so many bytes, or two of them if they do not."""
        return _best(resident, max(2, size_bytes // max(1, self._state_bytes)))

    def bequeath(self, resident: Resident) -> bool:
        """Give the checkpoint behind the system prompt to the owner's other sequences that begin alike; False if none
        does."""
        n = resident.n_system
        state = resident.state_at(n)
        heirs = [
            other
            for other in self._ledger
            if other is not resident
            and other.owner.can_share(resident.owner)
            and not other.aside
            and other.n_whole >= n
            and other.tokens[:n] == resident.tokens[:n]
        ]
        for heir in heirs:
            if state is not None and heir.state_at(n) is None:
                heir.checkpoints = sorted([*heir.checkpoints, (n, state)], key=itemgetter(0))
        return bool(heirs)

    @property
    def _n_most(self) -> int:
        """The most checkpoints of one sequence: at most half of what there is room for."""
        if not self._state_bytes:
            return marks.UNKNOWN
        return max(2, min(marks.MOST, self._cap // (2 * self._state_bytes)))


def _best(resident: Resident, n: int) -> list[tuple[int, Saved]]:
    lengths = [at for at, _ in resident.checkpoints]
    kept = set(marks.thinned(lengths, n, n_system=resident.n_system, spans=resident.spans))
    return [(at, state) for at, state in resident.checkpoints if at in kept]
