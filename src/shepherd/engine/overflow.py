"""Running out of cells or positions: which task gives way, which turns leave, which sequence is rebased.

    ensure_cells ── several tasks run ──▶ preempt the youngest: it continues later, from the tiers
                 └─ one task runs ──────▶ evict its oldest turns, or end its answer
    rebase       ── positions run out ──▶ everything that stays moves to the first positions

Engine thread only.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from shepherd.engine import priority
from shepherd.engine.base import Done
from shepherd.engine.kv.ledger import NoRoom, usable
from shepherd.engine.kv.plan import Limits, Range, evictable_turns, remaining
from shepherd.engine.kv.pool import OperationRefused, Pool
from shepherd.engine.task import Task
from shepherd.engine.task_queue import TaskQueue

logger = logging.getLogger(__name__)


class Overflow:
    """Makes room for the running tasks of one cache."""

    def __init__(self, pool: Pool, queue: TaskQueue, limits: Limits, *, name: str) -> None:
        self._pool = pool
        self._ledger = pool.ledger
        self._queue = queue
        self._limits = limits
        self._name = name

    def ensure_cells(self) -> bool:
        """Free one cell for every running task. False: a task's todo has changed, or none runs any more."""
        running = self._queue.running
        while running:
            n = len(running)
            if self._ledger.free >= n or self._pool.make_room(n, background=priority.all_background(running)):
                return True
            victim = priority.preemption_victim(running)
            if n == 1 and victim.phase != "closing":
                self._evict_turns(victim)
                if running and self._ledger.free < 1:
                    self._queue.end(victim, Done("length"))
            else:
                self.preempt(victim)
        return False

    def preempt(self, task: Task) -> None:
        """Move the sequence of `task` into the tiers until older tasks have ended. Its client sees a pause.

        A task that has only its end tag left has ended; the end tag is then not in the cache.
        """
        if task.phase == "closing":
            self._queue.retire(task)
            return
        resident = task.cells
        logger.info("cache %r is full: a job of %d tokens waits for older ones", self._name, len(task.tokens))
        resident.live = False
        self._pool.park(resident)
        self._queue.requeue(task)
        self._queue.counters.preemptions += 1

    def _evict_turns(self, task: Task) -> None:
        """Evict the oldest turns of the only running task, which fills the whole context, or end its answer."""
        resident = task.cells
        begun = time.perf_counter()
        if task.job.on_full != "evict":
            self._queue.end(task, Done("length"))
            return
        wish = self._limits.n_ctx - self._limits.n_low
        turns = evictable_turns(task.job.spans, list(resident.gaps()), excess=1, wish=wish)
        if isinstance(turns, NoRoom):
            self._queue.end(task, Done("length"))
            return
        ranges = [range_ for turn in turns for range_ in turn.ranges]
        if self._ledger.memory.hole:
            try:
                self._pool.evict(resident, ranges)
            except OperationRefused:
                self._queue.requeue(task, is_broken=True)
                return
        else:
            self.rebase(task, ranges)
        self._queue.report_eviction(task, turns, resident.n_resident, time.perf_counter() - begun)

    def rebase(self, task: Task, leaving: Sequence[Range] = ()) -> None:
        """Bring everything that stays of a running task to the first positions, without the ranges in `leaving`.

        What stays is moved where that is exact, and computed again otherwise.
        """
        resident = task.cells
        ledger, memory = self._ledger, self._ledger.memory
        gaps = [*resident.gaps(), *leaving]
        if not gaps:
            self._queue.end(task, Done("length"))  # every position is taken by a token that stays
            return
        first = min(start for start, _ in gaps)
        if not leaving and memory.shift and not ledger.is_shared(resident, resident.position_of(first)):
            try:
                self._pool.close_gaps(resident)
            except OperationRefused:
                self._queue.requeue(task, is_broken=True)
            return
        logger.info("Computing %d tokens again at the first positions", resident.n_resident)
        self._pool.give_up_tail(resident)
        task.tail = None
        n_computed = len(resident)
        reach = usable(resident, first, memory, holes=True).length
        try:
            if reach:
                self._pool.rewind(resident, reach)
            else:
                self._pool.apply(ledger.restart(resident))
        except OperationRefused:
            resident = task.resident = ledger.new()
            resident.live = True
        self._pool.counts.rebases += 1
        without = [gap for gap in gaps if gap[0] < n_computed]
        task.compute(remaining(len(resident), len(task.tokens), without))
        task.phase = "prefill"
        task.n_done, task.n_new = 0, task.n_todo
