"""The scheduler of one cache: which jobs start, one decode at a time over all that run, and idle work. No thread here.

    waiting ── admit: plan, pool ──▶ running ── step: compose, decode, record, draw ──▶ idle sequences
       ▲                                │
       └────── preempt: cells run out ──┘

A job starts when there are cells for its prompt and its reserve. When cells run out, the youngest job waits in the
tiers and continues later, so a job that fills the pool never harms the others. A failed computation fails one job only:
the others begin again from the tokens they had.

The parts: `task_queue.py` (waiting and running), `admission.py` (how a job starts), `decode_step.py` (what a decode
computes and what follows), `recovery.py` (no cells, no positions, a decode that did not go well).
"""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Callable
from typing import Literal

from shepherd.core import EngineError, ShepherdError
from shepherd.core.dataclasses import dataclass, field
from shepherd.engine import priority
from shepherd.engine.admission import Admission, Placement
from shepherd.engine.base import Done, Runtime, Ticket
from shepherd.engine.decode_step import Batch, DecodeStep
from shepherd.engine.draft_model import DraftModel
from shepherd.engine.drafting import Drafting
from shepherd.engine.grammar.mask import Constrainer
from shepherd.engine.kv.checkpoint import CHECKPOINT_BYTES
from shepherd.engine.kv.plan import Limits
from shepherd.engine.kv.pool import Pool, Tiers
from shepherd.engine.recovery import Recovery
from shepherd.engine.speculation import REST
from shepherd.engine.task import Task
from shepherd.engine.task_queue import TaskQueue
from shepherd.engine.watchdog import FIRST_DECODE, SLACK, STALL_S
from shepherd.engine.window import Feed

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EngineOptions:
    sequences: int = 4
    """Jobs computed side by side."""
    queue: int = 64
    """Jobs that may wait; further ones are refused."""
    low_water: float = 0.75
    """Share of the context that is left filled after an eviction."""
    n_positions: int | None = None
    """Positions that may be used before a rebase; None = what the model was trained for."""
    reuse_tail: bool = False
    """Keep what stands behind an edit, although it was computed with the old text in view."""
    tiers: Tiers = field(default_factory=Tiers)
    checkpoint_bytes: int = CHECKPOINT_BYTES
    """Host memory for the states that a memory without roll-back is taken back to."""
    speculate: bool = False
    """Draft tokens from what a conversation holds, where a job does not say (`Job.speculate`)."""
    stall_s: float = STALL_S
    """Seconds without progress while work waits, until the cache counts as stalled; see `watchdog`."""


class Scheduler:
    """All jobs of one cache. One thread at a time; `sole` and `describe` may be read by others."""

    def __init__(
        self,
        runtime: Runtime,
        options: EngineOptions,
        *,
        name: str,
        show: Callable[[int], bytes],
        is_urgent: Callable[[], bool],
        on_ready: Callable[[], None],
        constrainer: Constrainer | None = None,
        draft_model: DraftModel | None = None,
    ) -> None:
        """`is_urgent` says whether idle work must stop; `on_ready` is called when a snapshot has come from disk.

        Without a `constrainer` jobs that have a grammar fail.
        """
        self.sole: Ticket | None = None
        """The only running ticket: a decode may be interrupted for it."""
        self.pool = Pool(
            runtime, options.tiers, name=name, on_ready=on_ready, checkpoint_bytes=options.checkpoint_bytes
        )
        self._name = name
        self._options = options
        self._runtime = runtime
        self._is_urgent = is_urgent
        trained = options.n_positions or runtime.memory.n_positions
        # More context than positions is the user's decision: there is nothing to rebase into then.
        self._limits = Limits(runtime.n_ctx, options.low_water, trained if trained > runtime.n_ctx else 0)
        self.queue = TaskQueue(self.pool, name)
        self._admission = Admission(self.pool, self._limits, name, options.reuse_tail, show)
        self._decode = DecodeStep(
            runtime,
            self.pool,
            self.queue,
            name,
            show,
            constrainer,
            Drafting(runtime, self.pool, self.queue, options.speculate, self._limits.n_positions, draft_model),
        )
        self._recovery = Recovery(runtime, self.pool, self.queue, self._limits, name)
        self.waiting: deque[Task] = self.queue.waiting
        self.running: list[Task] = self.queue.running
        """In order of admission."""
        self.heartbeat = self.queue.heartbeat

    # -- the mailbox ---------------------------------------------------------------------------------------------------

    def withdraw(self, ticket: Ticket) -> None:
        """End a cancelled job that waits; `step` ends those that run."""
        for task in self.waiting:
            if task.ticket is ticket:
                if self._withdraw(task) == "ended":
                    self.waiting.remove(task)
                    self.queue.flush()
                return

    def _withdraw(self, task: Task) -> Literal["ended", "held up"]:
        """End a cancelled job that waits. While its image is being encoded it stays: if that never ends, or ends the
        process, the job is to blame."""
        last: Done | EngineError = Done("cancelled")
        try:
            if task.is_encoding and self._runtime.release([*task.job.media.values()]):
                return "held up"
        except EngineError as error:
            last = error
        self.queue.finish(task, last)
        return "ended"

    def clear(self) -> None:
        logger.info("cache %r is cleared: %d conversations are forgotten", self._name, len(self.pool.ledger.idle()))
        for resident in self.pool.ledger.idle():
            self.pool.forget(resident, "the cache was cleared")
        self.pool.snapshots.clear()
        self._decode.drafting.clear()

    def watch(self, feed: Feed) -> None:
        """Show `feed` all that is there, and from now on what changes."""
        self.pool.display.add(feed)
        if self.pool.display.is_on:  # else the engine is over, and its parts may be broken
            self.queue.publish()

    # -- when nothing runs ---------------------------------------------------------------------------------------------

    def idle(self) -> bool:
        """Do one piece of idle work (rebase a conversation, or save one to disk); False if there is none."""
        is_unknown = self._decode.speed.token_s == 0.0 or any(task.job.media for task in self.waiting)
        self.heartbeat.begin("rebasing and saving idle conversations", None if is_unknown else 0.0)
        has_done = self.pool.rebase_one(self._limits.n_positions, self._is_urgent) or self.pool.save_one()
        if not has_done:
            self._await_images()
        return has_done

    # -- admission -----------------------------------------------------------------------------------------------------

    def admit(self) -> None:
        """Start waiting jobs, in order of arrival, as long as there is room."""
        if self.waiting:
            self.queue.flush()  # planning takes long
            self._admit()
        if not self.running:
            self._await_images()
            self.queue.flush()  # the thread may wait for mail now; before a decode `step` does it

    def _await_images(self) -> None:
        """What the projector does is watched there, file by file: many may take long."""
        if any(task.is_encoding for task in self.waiting):
            self.heartbeat.begin("waiting for images to be encoded", math.inf)

    def _admit(self) -> None:
        if any(task.phase == "closing" for task in self.running):
            return  # its last token is one decode away, and the next turn of that conversation needs it
        for task in sorted(self.waiting, key=priority.is_background):
            has_place = (
                task.ticket.cancelled  # needs none
                or priority.has_place(task, self.running, self._options.sequences)
                or self._make_way(task)
            )
            if not has_place or (task.alone and self.running):
                return
            verdict = self._start(task)
            while verdict == "no room" and self._make_way(task):
                verdict = self._start(task)
            if verdict == "no room":
                return  # no job overtakes: a large prompt would never start
            if verdict != "held up":
                self.waiting.remove(task)

    def _make_way(self, task: Task) -> bool:
        """Preempt one background task for `task`; False if there is none. Its cells stay until they are needed. An
        answer that is repeatable ends first: its tokens would be computed again as a prompt."""
        if self.pool.ledger.memory.piece or (side := priority.background_victim(task, self.running)) is None:
            return False
        logger.info("a background job on cache %r waits for a conversation", self._name)
        self.queue.idle(side.cells)
        self.queue.requeue(side)
        self.pool.totals.preemptions += 1
        return True

    def _start(self, task: Task) -> Literal["started", "ended", "held up", "no room"]:
        if task.ticket.cancelled:
            return self._withdraw(task)
        self.heartbeat.begin(f"planning a prompt of {len(task.tokens)} tokens")
        match self._admission.start(task, self.running):
            case Placement() as placement:
                self.queue.start(task, placement)
                return "started"
            case (ShepherdError() | Done()) as last:
                self.queue.finish(task, last)
                return "ended"
            case waits:
                return waits

    # -- computing -----------------------------------------------------------------------------------------------------

    def step(self) -> None:
        self._runtime.interrupt(False)
        self.sole = self.running[0].ticket if len(self.running) == 1 else None
        self._end_cancelled()
        if self._recovery.ensure_cells():
            batch = self._decode.compose()
            # Not before: an event loop that is woken needs the interpreter lock, which only the decode releases.
            self.queue.flush()
            if batch.chunks:
                self._compute(batch)
        self.queue.post_last()

    def _end_cancelled(self) -> None:
        for task in list(self.running):
            if task.ticket.cancelled and task.phase != "closing":
                self.queue.end(task, Done("cancelled"))
            elif self._limits.n_positions and task.cells.end >= self._limits.n_positions:
                if task.phase == "closing":
                    self.queue.end(task)
                else:
                    self._recovery.rebase(task)

    def _compute(self, batch: Batch) -> None:
        n = batch.n_tokens
        expected_s = self._decode.speed.expected_s(n)
        if expected_s is not None and any(chunk.media for chunk in batch.chunks):  # it may be encoded again
            expected_s = max(expected_s, self._options.stall_s * FIRST_DECODE / SLACK)
        self.heartbeat.begin(f"decoding {n} tokens of {len(batch.tasks)} sequences", expected_s)
        begun = time.perf_counter()
        try:
            decoded = self._runtime.decode(batch.chunks)
        except EngineError as error:
            self._recovery.after_failure(error)
            return
        if decoded == "full" and batch.n_drafted:  # no conversation leaves because of a draft
            self._decode.drafting.speculator.rest = REST
            self._compute(batch.without_drafts())
            return
        if decoded != "full":
            self.heartbeat.beat()
        if decoded == "ok":
            self._decode.record(batch, time.perf_counter() - begun)
        elif decoded == "aborted":
            self._recovery.after_abort(batch)
        else:
            self._recovery.after_full(batch)

    # -- reporting -----------------------------------------------------------------------------------------------------

    def describe(self) -> str:
        """What runs and what waits, in numbers, for the log of a stalled thread. Any thread."""
        running = [
            f"{task.phase} of {len(task.tokens)} tokens, {task.n_todo} to compute, {task.n_left} to generate"
            for task in list(self.running)
        ]
        waiting = [
            f"{len(task.tokens)} tokens{', preempted' if task.admitted else ''}{', alone' if task.alone else ''}"
            for task in list(self.waiting)
        ]
        return (
            f"{self.pool.ledger.free} of {self._limits.n_ctx} cells are free; running: {'; '.join(running) or 'none'}; "
            f"waiting: {'; '.join(waiting) or 'none'}"
        )
