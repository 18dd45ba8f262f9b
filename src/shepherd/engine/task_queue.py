"""The tasks of one cache, waiting and running, and how each of them leaves. Engine thread only.

add ──▶ waiting ── start ──▶ running ── end ──▶ its sequence idles ── post_last: figures, then its last step
           ▲                    │
           └───── requeue ──────┘            preempted, or its sequence was lost
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Sequence

from shepherd.core import EngineError, ShepherdError
from shepherd.core.dataclasses import dataclass, field, replace
from shepherd.engine import decision_log
from shepherd.engine.admission import Placement
from shepherd.engine.base import Admitted, Done, Notifier, Ticket
from shepherd.engine.kv.ledger import LedgerError, Resident, TurnEviction, evicted
from shepherd.engine.kv.pool import Pool
from shepherd.engine.stats import CacheStats, SequenceStats
from shepherd.engine.task import Task
from shepherd.engine.watchdog import Heartbeat

logger = logging.getLogger(__name__)

FIRST_WORDS = 32
"""Tokens of an answer that count with its prompt when room is made for it."""


@dataclass(slots=True)
class TaskQueue:
    pool: Pool
    name: str
    waiting: deque[Task] = field(default_factory=deque)
    running: list[Task] = field(default_factory=list)
    """In order of admission."""
    job_s: float = 0.0
    """What a job takes, on average."""
    notifier: Notifier = field(default_factory=Notifier)
    heartbeat: Heartbeat = field(default_factory=Heartbeat)
    published: tuple[CacheStats, float] = field(init=False)
    """The newest snapshot for displays, and its moment by `time.monotonic`. Any thread."""
    _ended: list[tuple[Ticket, Done | ShepherdError]] = field(default_factory=list)
    """Tickets of tasks that are over, with the last step or the error that each still gets."""
    _last: dict[int, tuple[SequenceStats, int, float]] = field(default_factory=dict)
    """Sequence -> figures of its last job, its rank of use at the end of that job, and the time of the end."""

    def __post_init__(self) -> None:
        self.publish()

    def add(self, ticket: Ticket) -> None:
        self.waiting.append(Task(ticket, ticket.job.tokens[:]))

    def start(self, task: Task, placement: Placement) -> None:
        """Run `task` on the sequence that admission has made for it. The caller removes it from `waiting`."""
        resident, plan, job = placement.resident, placement.plan, task.job
        task.resident, resident.background = resident, job.background
        resident.spans, resident.session, resident.n_prompt = job.spans, job.session, len(job.tokens)
        resident.n_system = job.n_system
        task.marks = self.pool.checkpoints.marks(job, plan.length, resident)
        if len(resident) in task.marks:
            self.pool.checkpoints.save(resident)
        task.compute(plan.todo)
        task.tail = plan.tail if resident.id in self.pool.parked else None
        task.phase = "prefill"
        task.n_done, task.n_new, task.n_cached = 0, plan.n_new, plan.n_cached
        self.running.append(task)
        if not task.admitted:
            task.admitted = True
            self.heartbeat.beat()
            task.started_s = time.perf_counter()
            self.pool.totals.jobs += 1
            self.pool.totals.background_jobs += job.background
            self.pool.totals.cached_tokens += plan.n_cached
            task.ticket.post(Admitted(plan.n_cached, plan.n_new, time.perf_counter_ns(), resident.id))
        if plan.evictions:
            self.report_eviction(task, plan.evictions, plan.n_cached + plan.n_new, placement.seconds)
        self.notifier.add(task.ticket)
        self.pool.tidy(task.n_todo + min(job.max_tokens, FIRST_WORDS))

    def report_eviction(self, task: Task, turns: Sequence[TurnEviction], n_kept: int, seconds: float) -> None:
        """Count, log and post that `turns` have left the sequence of `task`, which keeps `n_kept` tokens."""
        left = evicted(turns)
        self.pool.totals.count_eviction(left)
        self.pool.totals.eviction_s.observe(seconds)
        decision_log.log_eviction(turns, n_kept)
        task.n_evicted += left.tokens
        if self.pool.display.is_on:
            for notice in decision_log.departures(task.job, turns, seconds, time.time()):
                self.pool.display.note(notice)
        task.ticket.post(left)
        self.notifier.add(task.ticket)

    def requeue(self, task: Task, *, is_broken: bool = False) -> None:
        """Put a running task first in the queue. It has lost its sequence and keeps its tokens."""
        self.running.remove(task)
        task.n_broken += is_broken
        task.resident, task.phase = None, "waiting"
        task.todo.clear()
        self.waiting.appendleft(task)

    def end(self, task: Task, last: Done | ShepherdError | None = None) -> None:
        """Remove a running task that is over; its sequence idles. Without `last` it has `task.last`."""
        self.running.remove(task)
        resident = task.resident
        if self.pool.display.is_on:
            self.pool.display.note(task.turn())
        self.finish(task, last)
        if resident is None:
            return
        self.idle(resident)
        self._last[resident.id] = (task.stats(resident, time.perf_counter()), resident.used_at, time.monotonic())
        self.job_s = 0.8 * self.job_s + 0.2 * (time.perf_counter() - task.started_s)

    def idle(self, resident: Resident) -> None:
        """Let a sequence idle, or drop it if it is not what the ledger says."""
        try:
            self.pool.settle(resident)
        except LedgerError as error:
            logger.warning("a conversation was dropped from cache %r: %s", self.name, error)

    def finish(self, task: Task, last: Done | ShepherdError | None) -> None:
        """Release what a task holds that no longer runs; `post_last` posts its last step."""
        self.heartbeat.beat()
        last = task.last or last
        assert last is not None
        if isinstance(last, Done):
            last = Done(last.reason, last.end_token, *task.drafts)
        self._ended.append((task.ticket, last))
        if task.sampler is not None:
            task.sampler.close()
            task.sampler = None

    def end_all(self, error: EngineError | None = None) -> None:
        """Cancel every task, or fail it with `error`."""
        for task in [*self.running, *self.waiting]:
            self.finish(task, error or Done("cancelled"))
            if task.resident is not None:
                task.resident.live = False
        self.running.clear()
        self.waiting.clear()
        try:
            self.flush()
        except Exception:  # a bug has ended the engine, and left the ledger without figures
            logger.exception("the figures of cache %r cannot be read", self.name)

    def flush(self) -> None:
        try:
            self.post_last()
        finally:
            self.notifier.flush()

    def post_last(self) -> None:
        """Post the last steps of tasks that have ended, behind figures that contain all that they have done."""
        if not self._ended:
            return
        try:
            self.publish()
        finally:  # no ticket waits because of a figure
            for ticket, last in self._ended:
                ticket.end(last)
                self.notifier.add(ticket)
            self._ended.clear()

    def publish(self) -> None:
        self.published = self.stats(), time.monotonic()
        if self.pool.display.is_on:
            self.pool.display.show(self.pool.pictures())

    def stats(self) -> CacheStats:
        now_s, clock_s = time.perf_counter(), time.monotonic()
        owners = {task.cells.id: task for task in self.running}
        ledger, snapshots = self.pool.ledger, self.pool.snapshots
        return replace(
            self.pool.totals,
            used=ledger.used,
            live=len(self.running),
            waiting=len(self.waiting),
            checkpoint_bytes=self.pool.checkpoints.size_bytes,
            draft_bytes=sum(task.speculation.size_bytes for task in self.running if task.speculation),
            ram_bytes=snapshots.ram_bytes,
            disk_bytes=snapshots.disk_bytes,
            sequences=tuple(
                owners[resident.id].stats(resident, now_s) if resident.id in owners else self._idling(resident, clock_s)
                for resident in ledger
            ),
        )

    def _idling(self, resident: Resident, clock_s: float) -> SequenceStats:
        last, rank, since_s = self._last.get(resident.id, (None, 0, 0.0))
        n = resident.n_resident
        if last is None or rank != resident.used_at:  # it came from a tier, or was forked off
            owner = resident.owner
            return SequenceStats(
                resident.id, "idle", resident.session, n, len(resident) - n, 0, 0, 0, 0.0, 0.0, owner.name,
                resident.background,
            )  # fmt: skip
        return replace(last, state="idle", tokens=n, idle_s=clock_s - since_s)
