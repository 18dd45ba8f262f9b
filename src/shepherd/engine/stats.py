"""What an engine tells about itself: counters and a snapshot of its sequences, for metrics and live displays.

The engine thread builds a new frozen snapshot now and then; anybody may read the last one.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Literal

State = Literal["prefill", "generate", "idle"]


EVICTION_BOUNDS_S: tuple[float, ...] = (1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 1.0)
"""From microseconds (a hole) to a rebase."""


class Histogram:
    """Counts of observations by upper bound, as Prometheus wants them. One writer; readers may look in between."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        """Per bucket, not cumulative; the last one is above every bound."""
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


def eviction_histogram() -> Histogram:
    """Of the seconds that evictions take."""
    return Histogram(EVICTION_BOUNDS_S)


@dataclass(frozen=True, slots=True)
class SequenceStats:
    """One conversation in the cache."""

    seq: int
    state: State
    session: str | None
    tokens: int
    """Resident: each takes a cell, unless it is shared."""
    evicted: int
    cached: int
    """Prompt tokens of the last job that were in the cache already."""
    new: int
    """Prompt tokens of the last job that had to be computed."""
    generated: int
    """By the last job."""
    tokens_per_s: float
    """Of the last job's generation so far; 0 before its second token."""
    idle_s: float


@dataclass(frozen=True, slots=True)
class CacheStats:
    """One cache: totals since the start, and what it holds now."""

    n_ctx: int
    """Cells."""
    used: int = 0
    """Cells that hold a token; those that sequences share count once."""
    live: int = 0
    """Jobs being computed."""
    waiting: int = 0
    """Jobs in the queue."""
    jobs: int = 0
    cached_tokens: int = 0
    prefilled_tokens: int = 0
    generated_tokens: int = 0
    evictions: int = 0
    evicted_messages: int = 0
    evicted_tokens: int = 0
    preemptions: int = 0
    """Live jobs that were put aside for older ones and went on later."""
    rebases: int = 0
    dropped: int = 0
    """Idle sequences that left the cache for others."""
    saved: int = 0
    """Of those, the ones kept in host memory or on disk."""
    restored: int = 0
    stalls: int = 0
    """Times that the engine thread got nothing done for too long while work waited."""
    quiet_s: float = 0.0
    """How long work has waited without progress by now."""
    ram_bytes: int = 0
    disk_bytes: int = 0
    eviction_s: Histogram = field(default_factory=eviction_histogram)
    sequences: tuple[SequenceStats, ...] = ()
