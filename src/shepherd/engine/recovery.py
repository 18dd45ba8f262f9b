"""What follows when cells or positions run out, or a decode did not compute its whole batch.

    ensure_cells ── several tasks run ──▶ preempt the youngest: it continues later, from the tiers
                 └─ one task runs ──────▶ evict its oldest turns, or end its answer
    rebase       ── positions run out ──▶ everything that stays moves to the first positions
    aborted      ──▶ the ledger follows what the library holds; tasks that are not cancelled continue
    full         ──▶ idle sequences are dropped, then the youngest task waits and is later computed alone
    failed       ──▶ all cells are emptied; a task that ran alone fails, others begin again from their tokens

Engine thread only.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from shepherd.core import EngineError
from shepherd.core.dataclasses import dataclass
from shepherd.engine import priority
from shepherd.engine.base import Done, Remove, Runtime
from shepherd.engine.decode_step import Batch
from shepherd.engine.kv.ledger import NoRoom, usable
from shepherd.engine.kv.plan import Limits, Range, evictable_turns, remaining
from shepherd.engine.kv.pool import OperationRefused, Pool
from shepherd.engine.task import Task
from shepherd.engine.task_queue import TaskQueue

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Recovery:
    """Makes room for the running tasks of one cache, and brings the cache back into a known state."""

    runtime: Runtime
    pool: Pool
    queue: TaskQueue
    limits: Limits
    name: str

    # -- before a decode ---------------------------------------------------------------------------------------------

    def ensure_cells(self) -> bool:
        """Free one cell for every running task, and those of the next image of the first that has one. False: a task's
        todo has changed, or none runs any more."""
        running = self.queue.running
        while running:
            images = (media.n_tokens for task in running if (media := task.next_media) is not None)
            n = len(running) + next(images, 1) - 1
            if self.pool.ledger.free >= n or self.pool.make_room(
                n, background=all(map(priority.is_background, running))
            ):
                return True
            victim = priority.preemption_victim(running)
            if len(running) == 1 and victim.phase != "closing":
                self._evict_turns(victim, n - self.pool.ledger.free)
                if running and self.pool.ledger.free < n:
                    self.queue.end(victim, Done("length"))
            else:
                self.preempt(victim)
        return False

    def preempt(self, task: Task) -> None:
        """Move the sequence of `task` into the tiers until older tasks have ended. Its client sees a pause.

        A task that has only its end tag left has ended; the end tag is then not in the cache.
        """
        if task.phase == "closing":
            self.queue.end(task)
            return
        resident = task.cells
        logger.info("cache %r is full: a job of %d tokens waits for older ones", self.name, len(task.tokens))
        resident.live = False
        self.pool.park(resident, "its job waits for older ones")
        self.queue.requeue(task)
        self.pool.totals.preemptions += 1

    def _evict_turns(self, task: Task, n: int) -> None:
        """Free `n` cells, which the only running task needs: evict its oldest turns, or end its answer."""
        resident = task.cells
        begun = time.perf_counter()
        if task.job.on_full != "evict":
            self.queue.end(task, Done("length"))
            return
        wish = self.limits.n_ctx - self.limits.n_low
        turns = evictable_turns(task.job.spans, list(resident.gaps()), excess=n, wish=wish)
        if isinstance(turns, NoRoom):
            self.queue.end(task, Done("length"))
            return
        ranges = [range_ for turn in turns for range_ in turn.ranges]
        if self.pool.ledger.memory.hole:
            try:
                self.pool.evict(resident, ranges)
            except OperationRefused:
                self.queue.requeue(task, is_broken=True)
                return
        else:
            self.rebase(task, ranges)
        self.queue.report_eviction(task, turns, resident.n_resident, time.perf_counter() - begun)

    def rebase(self, task: Task, leaving: Sequence[Range] = ()) -> None:
        """Bring everything that stays of a running task to the first positions, without the ranges in `leaving`.

        What stays is moved where that is exact, and computed again otherwise.
        """
        resident = task.cells
        ledger, memory = self.pool.ledger, self.pool.ledger.memory
        gaps = [*resident.gaps(), *leaving]
        if not gaps:
            self.queue.end(task, Done("length"))  # every position is taken by a token that stays
            return
        first = min(start for start, _ in gaps)
        if not leaving and memory.shift and not ledger.is_shared(resident, resident.position_of(first)):
            try:
                self.pool.close_gaps(resident)
            except OperationRefused:
                self.queue.requeue(task, is_broken=True)
            return
        logger.info("Computing %d tokens again at the first positions", resident.n_resident)
        self.pool.give_up_tail(resident)
        task.tail = None
        n_computed = len(resident)
        reach = usable(resident, first, memory, holes=True).length
        try:
            if reach:
                self.pool.rewind(resident, reach)
            else:
                self.pool.apply(ledger.restart(resident))
        except OperationRefused:
            resident = task.resident = ledger.new(task.job.owner)
            resident.live = True
        self.pool.totals.rebases += 1
        without = [gap for gap in gaps if gap[0] < n_computed]
        task.compute(remaining(len(resident), len(task.tokens), without))
        task.phase = "prefill"
        task.n_done, task.n_new = 0, task.n_todo

    # -- after a decode ----------------------------------------------------------------------------------------------

    def after_abort(self, batch: Batch) -> None:
        """Record the part of an interrupted decode that the library kept."""
        self.runtime.interrupt(False)
        for chunk, task in zip(batch.chunks, batch.tasks, strict=True):
            held = self.runtime.held(chunk.seq)[1] + 1
            n = max(0, min(held - chunk.position, len(chunk.tokens)))
            # The logits of the last token are gone with the abort, and a part of a piece is not what the whole one is.
            all_again = chunk.each or self.pool.ledger.memory.piece
            if lost := n if all_again else n == len(chunk.tokens) and chunk.logits:
                n -= lost
                if not self.runtime.apply(Remove(chunk.seq, chunk.position + n)):
                    self.after_failure(EngineError("a decode was interrupted by a job that had ended"))
                    return
            if n:
                self.pool.ledger.extend(task.cells, chunk.tokens[:n])
                task.advance(n)
                task.n_done += n

    def after_full(self, batch: Batch) -> None:
        """Free cells for a batch that the library has no room for, although the ledger counts enough."""
        idle = self.pool.ledger.idle()
        for resident in idle:
            self.pool.drop(resident)
        if idle:
            return
        if len(self.queue.running) > 1:
            victim = priority.preemption_victim(self.queue.running)
            victim.alone = True  # beside others it would be refused again, and they with it
            self.preempt(victim)
            return
        position = batch.chunks[0].position
        self.after_failure(EngineError(f"the KV cache has no room for {batch.n_tokens} tokens at position {position}"))

    def after_failure(self, error: EngineError) -> None:
        """Empty the cells, none of which can be trusted. A task that ran alone fails; others begin again."""
        logger.warning("a job failed on cache %r, which was cleared: %s", self.name, error)
        self.pool.forget_all()
        was_alone = len(self.queue.running) == 1
        for task in reversed(list(self.queue.running)):
            if task.phase != "closing" and not was_alone:
                task.alone = True
                self.queue.requeue(task)
                continue
            self.queue.running.remove(task)
            self.queue.finish(task, error)
        self.queue.flush()
