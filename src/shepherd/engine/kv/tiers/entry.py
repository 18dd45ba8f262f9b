"""One saved conversation, wherever it is: in host memory, on disk, or on its way. The store locks and changes it."""

from __future__ import annotations

from dataclasses import dataclass, field

from shepherd.engine.kv.ledger import Resident
from shepherd.engine.kv.tiers.snapshot import Snapshot


@dataclass(slots=True, eq=False)
class Entry:
    """What the store knows of one snapshot."""

    key: str
    outline: Snapshot
    size: int
    """Bytes in RAM."""
    uses: int = 1
    """Times that it, or what it continues, was taken; and one."""
    snapshot: Snapshot | None = None
    """All of it, while it is in RAM."""
    on_disk: bool = False
    is_fetched: bool = False
    """Read because somebody is about to take it."""
    is_refused: bool = False
    """Not to be written: the disk is full of things that are worth more, or has something better."""
    sequence: Resident = field(init=False)
    """What loading it makes."""

    def __post_init__(self) -> None:
        self.sequence = self.outline.sequence()

    @property
    def value(self) -> float:
        return self.uses * self.outline.cost_s / self.size
