"""The figures of an engine for metrics and live displays: counters, and a snapshot of its sequences.

The engine thread publishes a new snapshot several times a second; any thread may read the last one.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Literal

from shepherd.core import Evicted
from shepherd.core.dataclasses import dataclass, field, replace

State = Literal["prefill", "generate", "idle"]


EVICTION_BOUNDS_S: tuple[float, ...] = (1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 1.0)
"""From microseconds (a hole) to a rebase."""


class Histogram:
    """Counts of observations by upper bound, as in Prometheus. One writer; other threads may read at any time."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...] = EVICTION_BOUNDS_S) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        """Per bucket, not cumulative; the last one is above every bound."""
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def __add__(self, other: Histogram) -> Histogram:
        made = Histogram(self.bounds)
        made.counts = [one + another for one, another in zip(self.counts, other.counts, strict=True)]
        made.total = self.total + other.total
        return made


@dataclass(frozen=True, slots=True)
class SequenceStats:
    """One conversation in the cache."""

    seq: int
    state: State
    session: str | None
    tokens: int
    """Tokens in cells, shared ones included."""
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
    owner: str = ""
    """The name of its owner (`Owner`)."""
    background: bool = False
    """Only side tasks have used it: titles, digests."""
    drafted: int = 0
    accepted: int = 0
    """Both of the last job, as those of `Done`."""


@dataclass(slots=True)
class CacheStats:
    """One cache: totals since the start, and what it holds now. The engine thread publishes copies of one."""

    n_ctx: int
    """Cells."""
    used: int = 0
    """Cells that hold a token; those that sequences share count once."""
    live: int = 0
    """Jobs being computed."""
    waiting: int = 0
    """Jobs in the queue."""
    jobs: int = 0
    background_jobs: int = 0
    """Those of them that were side tasks."""
    cached_tokens: int = 0
    prefilled_tokens: int = 0
    generated_tokens: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    """Both as those of `Done`; those that were accepted are in `generated_tokens`, too."""
    decodes: int = 0
    decoded_chunks: int = 0
    """Jobs that had a part in a decode, summed over all of them."""
    prefill_s: float = 0.0
    """Time of decodes for prompts; a decode that also computes answers is shared out by tokens."""
    generate_s: float = 0.0
    evictions: int = 0
    evicted_messages: int = 0
    evicted_tokens: int = 0
    preemptions: int = 0
    """Running jobs that were preempted for older ones."""
    rebases: int = 0
    dropped: int = 0
    """Idle sequences that left the cells for others."""
    saved: int = 0
    """Those of them that were kept in host memory or on disk."""
    restored: int = 0
    removed_blocks: int = 0
    """Blocks of reusable tokens that left a cache which the library manages (TensorRT-LLM)."""
    removed_tokens: int = 0
    stalls: int = 0
    """How often the engine thread, or the projector of its model, made no progress for too long while work waited."""
    restarts: int = 0
    """How often the process of the engine has died, and another one was started."""
    quiet_s: float = 0.0
    """Seconds that work has waited without progress."""
    checkpoint_bytes: int = 0
    """Host memory for states that the sequences in the cells can be taken back to."""
    draft_bytes: int = 0
    """Host memory of what finds drafts for the running jobs."""
    ram_bytes: int = 0
    disk_bytes: int = 0
    eviction_s: Histogram = field(default_factory=Histogram)
    sequences: tuple[SequenceStats, ...] = ()

    def count_eviction(self, evicted: Evicted) -> None:
        self.evictions += 1
        self.evicted_messages += evicted.messages
        self.evicted_tokens += evicted.tokens

    def aged(self, age_s: float) -> CacheStats:
        """The same, read `age_s` seconds after it was published."""
        aged = (replace(s, idle_s=s.idle_s + age_s) if s.state == "idle" else s for s in self.sequences)
        return replace(self, sequences=tuple(aged))

    def after(self, earlier: CacheStats) -> CacheStats:
        """These figures, and in the totals those of an earlier life of the cache as well."""
        totals = {name: getattr(earlier, name) + getattr(self, name) for name in _TOTALS}
        return replace(self, **totals)


_TOTALS = (
    "jobs", "background_jobs", "cached_tokens", "prefilled_tokens", "generated_tokens", "drafted_tokens",
    "accepted_tokens", "decodes", "decoded_chunks", "prefill_s", "generate_s", "evictions", "evicted_messages",
    "evicted_tokens", "preemptions", "rebases", "dropped", "saved", "restored", "removed_blocks", "removed_tokens",
    "stalls", "restarts", "eviction_s",
)  # fmt: skip
"""Fields of `CacheStats` that only grow."""
