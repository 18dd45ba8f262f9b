"""Totals of one cache, and the figures of the last job on each sequence. Engine thread only."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from shepherd.engine.kv.ledger import Resident
from shepherd.engine.kv.pool import Pool
from shepherd.engine.stats import CacheStats, SequenceStats, eviction_histogram
from shepherd.engine.task import Task


class Counters:
    """Counts what happens; the fields are those of `CacheStats`."""

    def __init__(self) -> None:
        self.jobs = self.preemptions = 0
        self.cached_tokens = self.prefilled_tokens = self.generated_tokens = 0
        self.evictions = self.evicted_messages = self.evicted_tokens = 0
        self.eviction_s = eviction_histogram()
        self._last: dict[int, tuple[SequenceStats, int, float]] = {}
        """Sequence -> figures of its last job, its rank of use at the end of that job, and the time of the end."""

    def record_eviction(self, messages: int, tokens: int, seconds: float) -> None:
        self.evictions += 1
        self.evicted_messages += messages
        self.evicted_tokens += tokens
        self.eviction_s.observe(seconds)

    def record_end(self, task: Task, resident: Resident) -> None:
        """Keep the figures of a job that is over, and whose sequence idles."""
        self._last[resident.id] = (task.stats(resident, time.perf_counter()), resident.used_at, time.monotonic())

    def stats(self, pool: Pool, running: Sequence[Task], *, n_waiting: int) -> CacheStats:
        """A snapshot for displays."""
        now_s, clock_s = time.perf_counter(), time.monotonic()
        owners = {task.cells.id: task for task in running}
        ledger, counts, snapshots = pool.ledger, pool.counts, pool.snapshots
        return CacheStats(
            n_ctx=ledger.n_cells,
            used=ledger.used,
            live=len(running),
            waiting=n_waiting,
            jobs=self.jobs,
            cached_tokens=self.cached_tokens,
            prefilled_tokens=self.prefilled_tokens,
            generated_tokens=self.generated_tokens,
            evictions=self.evictions,
            evicted_messages=self.evicted_messages,
            evicted_tokens=self.evicted_tokens,
            preemptions=self.preemptions,
            rebases=counts.rebases,
            dropped=counts.dropped,
            saved=counts.saved,
            restored=counts.restored,
            ram_bytes=snapshots.ram_bytes,
            disk_bytes=snapshots.disk_bytes,
            eviction_s=self.eviction_s,
            sequences=tuple(
                owners[resident.id].stats(resident, now_s) if resident.id in owners else self._idling(resident, clock_s)
                for resident in ledger
            ),
        )

    def _idling(self, resident: Resident, clock_s: float) -> SequenceStats:
        last, rank, since_s = self._last.get(resident.id, (None, 0, 0.0))
        if last is None or rank != resident.used_at:  # it came from a tier, or was forked off
            last, since_s = Task.at_rest(resident), clock_s
        return replace(last, state="idle", tokens=resident.n_resident, idle_s=clock_s - since_s)
