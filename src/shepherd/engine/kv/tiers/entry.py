"""The store's record of one snapshot in host memory, on disk, or between them. The store locks and changes it."""

from __future__ import annotations

from dataclasses import dataclass, field

from shepherd.engine.kv.ledger import Resident
from shepherd.engine.kv.tiers.snapshot import Snapshot


@dataclass(slots=True, eq=False)
class Entry:
    """One snapshot of the store."""

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
    sequence: Resident = field(init=False)
    """The sequence that loading it makes."""

    def __post_init__(self) -> None:
        self.sequence = self.outline.sequence()

    @property
    def value(self) -> float:
        return self.uses * self.outline.cost_s / self.size
