"""How a waiting job starts: find what of its prompt is cached, plan, and carry the plan out.

    cells ─── ledger.find ────┐
                              ├─▶ the better one ─▶ plan ─▶ does it fit? ─▶ restore, carry out ─▶ Placement
    tiers ─── snapshots.find ─┘          ▲                      │                   │
                                         └──── without it ──────┼───── refused ─────┘
                                                                └─▶ it waits; nothing has been done

All decisions come before any change. Both sources are judged by the same function (`ledger.usable`), so a restored
snapshot is used as it was planned. After `MAX_REFUSED` refusals a job starts without cached tokens, which cannot be
refused. So a job starts after at most `MAX_REFUSED` + 1 attempts, each attempt loads at most one snapshot, and a job
loads at most `MAX_LOADS` in all (the law of `tests/unit/engine/test_liveness.py`). Engine thread only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Literal

from shepherd.core import ContextFull, EngineError, RateLimited, ShepherdError
from shepherd.core.dataclasses import dataclass, replace
from shepherd.engine import decision_log, priority
from shepherd.engine.base import Done
from shepherd.engine.kv.ledger import Match, NoRoom, Resident
from shepherd.engine.kv.plan import Limits, Plan, plan
from shepherd.engine.kv.pool import OperationRefused, Pool
from shepherd.engine.kv.tiers import SnapshotMatch
from shepherd.engine.media import within
from shepherd.engine.task import Task

WORTH_LOADING = 32
"""A snapshot is restored if it has this many tokens more than the cells have."""
MAX_FETCHES = 8
"""Snapshots read from disk for one job: each may leave RAM again before the job starts."""
MAX_LOADS = 8
"""Snapshots loaded into the cells for one job: it may be preempted that often before it starts from nothing."""
MAX_REFUSED = 3
"""Failed attempts before a job starts without cached tokens."""
WORTH_WAITING = 16
"""A job waits for a running prompt that shares this many tokens with its own."""


@dataclass(frozen=True, slots=True)
class Placement:
    """The sequence of a job that starts, and the plan that made it."""

    resident: Resident
    plan: Plan
    seconds: float
    """Time that planning and making room took."""


Verdict = Placement | ShepherdError | Done | Literal["held up", "no room"]
"""It starts; it has failed; it has ended; it waits while others may start; it waits, and so do all behind it."""


@dataclass(frozen=True, slots=True)
class Admission:
    pool: Pool
    limits: Limits
    name: str
    reuse_tail: bool
    show: Callable[[int], bytes]

    def start(self, task: Task, running: Sequence[Task]) -> Verdict:
        """Start a job if it can start now. "no room" and "held up" only while others run or a snapshot is read."""
        job, task.is_encoding = task.job, False
        reserve = max(1, min(job.reserve, task.n_left))
        promised = priority.promised_cells(running)
        refused: list[Resident] = []
        for n_refused in range(MAX_REFUSED + 1):
            is_last = n_refused == MAX_REFUSED or task.n_broken >= MAX_REFUSED or task.scores_prompt
            match, found = (None, None) if is_last else self._sources(task, refused)
            saved = match.saved if match else 0
            if any(priority.awaited_prefix(task, other, self.pool.ledger) > saved + WORTH_WAITING for other in running):
                return "held up"  # another task computes most of this prompt right now
            if found is not None and not found.in_ram:
                if self._fetch(task, found.key):
                    return "held up"
                found = None
            source = found.match if found is not None else match
            begun = time.perf_counter()
            planned = plan(
                self.pool.ledger,
                task.tokens,
                job,
                source,
                limits=self.limits,
                reserve=reserve,
                reuse_tail=self.reuse_tail,
            )
            if isinstance(planned, NoRoom):
                needed = self.limits.n_ctx + planned.needed - planned.evictable
                return ContextFull(needed=needed, limit=self.limits.n_ctx, reserve=reserve, cache=self.name)
            n_loaded = self.pool.ledger.used_if(None, ()) + found.match.resident.n_resident if found is not None else 0
            if running and max(planned.n_cells + reserve, n_loaded) + promised > self.limits.n_ctx:
                return "no room"
            try:
                if not self._is_encoded(task, planned):
                    task.is_encoding = True
                    return "held up"
            except EngineError as error:
                return error
            n_free = planned.n_new + reserve + promised
            if job.background and not self.pool.make_room_beside(planned, n_free):
                return self._has_no_room_beside(task, n_free, running)
            try:
                if found is not None and planned.source is not None:
                    task.n_loads += 1
                    task.bad_snapshots.add(found.key)
                    restored = self.pool.restore(found)
                    task.bad_snapshots.discard(found.key)
                    if n_refused + 1 < MAX_REFUSED and self._sources(task, refused)[1] is not None:
                        continue  # it has the beginning that a saved conversation needs
                    planned, source = replace(planned, source=restored), replace(found.match, resident=restored)
                recent = self.pool.recent(job.owner)
                diverged = decision_log.find_divergence(recent, task.tokens, job, source)
                n_source = len(source.resident) if source else 0
                if source and self.pool.ledger.memory.piece:  # what a prompt of this length uses that begins with it
                    n_source = source.resident.reach(min(n_source, len(task.tokens) - 1), self.pool.ledger.memory)
                # Before the plan cuts the sequence.
                missed = self.pool.display.is_on and decision_log.find_miss(
                    task.tokens, job, source, n_source=n_source, show=self.show, at_s=time.time()
                )
                resident = self.pool.carry_out(planned, n_free, job.owner, background=job.background)
            except OperationRefused:
                if planned.source is not None:
                    refused.append(planned.source)
                continue
            if missed:
                self.pool.display.note(missed)
            decision_log.log_match(
                self.name, task.tokens, job, source, planned, n_source=n_source, diverged=diverged, show=self.show
            )
            return Placement(resident, planned, time.perf_counter() - begun)
        return EngineError(f"cache {self.name!r} could not make a sequence for a job")

    def _sources(self, task: Task, refused: Sequence[Resident]) -> tuple[Match | None, SnapshotMatch | None]:
        """The best match in the cells, and a snapshot if one is so much better that loading it pays."""
        job, holes = task.job, task.job.on_full == "evict"
        if job.background or task.n_loads == MAX_LOADS:  # a restored snapshot could take cells from conversations
            return self.pool.ledger.find(task.tokens, job.owner, holes=holes, spans=job.spans, without=refused), None
        bad = task.bad_snapshots
        return self.pool.find(
            task.tokens, job.owner, holes=holes, spans=job.spans, without=refused, bad=bad, least_gain=WORTH_LOADING
        )

    def _fetch(self, task: Task, key: str) -> bool:
        """Start reading a snapshot from disk; False after `MAX_FETCHES` reads for this job."""
        if not self.pool.snapshots.is_coming(key):
            if task.n_fetches == MAX_FETCHES:
                return False
            task.n_fetches += 1
            self.pool.snapshots.fetch(key)
        return True

    def _is_encoded(self, task: Task, planned: Plan) -> bool:
        """Whether the images that are to be computed are encoded; another thread is at it if not."""
        needed = within(task.job.media, planned.todo)
        return not needed or self.pool.runtime.prepare(needed, self.pool.on_ready)

    def _has_no_room_beside(self, task: Task, needed: int, running: Sequence[Task]) -> Verdict:
        """The verdict on a background task that would need cells of conversations: it waits only for running ones."""
        if running:
            return "no room"
        if task.n_generated:
            return Done("length")  # its answer so far is complete
        return RateLimited(
            f"cache {self.name!r} has no room for a background request beside its conversations ({needed} tokens are "
            f"needed, {self.pool.ledger.free} are free); give such requests a cache of their own",
            backend=f"local:{self.name}",
        )
