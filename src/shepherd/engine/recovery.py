"""What follows when a decode did not compute its whole batch: aborted, refused for want of cells, or failed.

    aborted ──▶ the ledger follows what the library holds; tasks that are not cancelled continue
    full    ──▶ idle sequences are dropped, then the youngest task waits and is later computed alone
    failed  ──▶ all cells are emptied; a task that ran alone fails, others begin again from their tokens

Engine thread only.
"""

from __future__ import annotations

import logging

from shepherd.core import EngineError
from shepherd.engine import priority
from shepherd.engine.base import Remove, Runtime
from shepherd.engine.decode_step import Batch
from shepherd.engine.kv.pool import Pool
from shepherd.engine.overflow import Overflow
from shepherd.engine.task_queue import TaskQueue

logger = logging.getLogger(__name__)


class Recovery:
    """Brings one cache back into a known state."""

    def __init__(self, runtime: Runtime, pool: Pool, queue: TaskQueue, overflow: Overflow, *, name: str) -> None:
        self._runtime = runtime
        self._pool = pool
        self._queue = queue
        self._overflow = overflow
        self._name = name

    def after_abort(self, batch: Batch) -> None:
        """Record the part of an interrupted decode that the library kept."""
        self._runtime.interrupt(False)
        for chunk, task in zip(batch.chunks, batch.tasks, strict=True):
            held = self._runtime.held(chunk.seq)[1] + 1
            n = max(0, min(held - chunk.position, len(chunk.tokens)))
            if lost := n if chunk.each else n == len(chunk.tokens) and chunk.logits:
                # Its logits are gone with the abort: the last token is computed again.
                n -= lost
                if not self._runtime.apply(Remove(chunk.seq, chunk.position + n)):
                    self.after_failure(EngineError("a decode was interrupted by a job that had ended"))
                    return
            if n:
                self._pool.ledger.extend(task.cells, chunk.tokens[:n])
                task.advance(n)
                task.n_done += n

    def after_full(self, batch: Batch) -> None:
        """Free cells for a batch that the library has no room for, although the ledger counts enough."""
        idle = self._pool.ledger.idle()
        for resident in idle:
            self._pool.drop(resident)
        if idle:
            return
        if len(self._queue.running) > 1:
            victim = priority.preemption_victim(self._queue.running)
            victim.alone = True  # beside others it would be refused again, and they with it
            self._overflow.preempt(victim)
            return
        position = batch.chunks[0].position
        self.after_failure(EngineError(f"the KV cache has no room for {batch.n_tokens} tokens at position {position}"))

    def after_failure(self, error: EngineError) -> None:
        """Empty the cells, none of which can be trusted. A task that ran alone fails; others begin again."""
        logger.warning("a job failed on cache %r, which was cleared: %s", self._name, error)
        self._pool.forget_all()
        was_alone = len(self._queue.running) == 1
        for task in reversed(list(self._queue.running)):
            if task.phase != "closing" and not was_alone:
                task.alone = True
                self._queue.requeue(task)
                continue
            if task.phase != "closing":
                task.ticket.fail(error)
            self._queue.running.remove(task)
            self._queue.finish(task)
        self._queue.notifier.flush()
