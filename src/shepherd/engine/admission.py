"""How a waiting job starts: what of its prompt is there, what that leads to, and one attempt to carry it out.

    cells ─── ledger.find ────┐
                              ├─▶ the better one ─▶ plan ─▶ does it fit? ─▶ restore, carry out ─▶ Begun
    tiers ─── snapshots.find ─┘          ▲                      │                   │
                                         └──── without it ──────┼───── refused ─────┘
                                                                └─▶ it waits; nothing has been done

Everything is decided before anything is done, and both sources are judged by the same function (`ledger.usable`), so
what is restored is what is then used. After `MAX_REFUSED` refusals a job is computed without anything cached, which
cannot be refused: so it starts after at most `MAX_REFUSED` + 1 attempts, each of which loads at most one snapshot, and
in all its life it loads at most `MAX_LOADS` (the law of `tests/engine/test_liveness.py`). Engine thread only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from shepherd.core import ContextFull, EngineError, ShepherdError
from shepherd.engine import decision_log, priority
from shepherd.engine.base import Done
from shepherd.engine.kv import lookup
from shepherd.engine.kv.ledger import Match, NoRoom, Resident
from shepherd.engine.kv.plan import Limits, Plan, plan
from shepherd.engine.kv.pool import Pool, Refused
from shepherd.engine.kv.tiers import Found
from shepherd.engine.task import Task

WORTH_LOADING = 32
"""Tokens that a snapshot must have more than the cells do, to be brought back."""
MAX_FETCHES = 8
"""Snapshots that are read from disk for one job: each may leave RAM again before its turn comes."""
MAX_LOADS = 8
"""Snapshots that are loaded into the cells for one job: it may be put aside that often before it has to start over."""
MAX_REFUSED = 3
"""Attempts that may fail for one job before it is computed without anything cached."""
WORTH_WAITING = 16
"""Tokens that a prompt which is being computed must share, to be waited for."""


@dataclass(frozen=True, slots=True)
class Placement:
    """The job has its sequence."""

    resident: Resident
    plan: Plan
    seconds: float
    """What planning and making room took."""


Verdict = Placement | ShepherdError | Done | Literal["held up", "no room"]
"""It runs; it has failed; it is over; it waits while others may start; it waits and so do all behind it."""


class Admission:
    """Starts the jobs of one cache."""

    def __init__(
        self, pool: Pool, limits: Limits, *, name: str, reuse_tail: bool, show: Callable[[int], bytes]
    ) -> None:
        self._pool = pool
        self._ledger = pool.ledger
        self._limits = limits
        self._name = name
        self._reuse_tail = reuse_tail
        self._show = show

    def start(self, task: Task, running: Sequence[Task]) -> Verdict:
        """Start a job if it can be. "no room" and "held up" only while others run or a snapshot is being read."""
        job = task.job
        reserve = max(1, min(job.reserve, task.n_left))
        promised = priority.promised_cells(running)
        refused: list[Resident] = []
        for n_refused in range(MAX_REFUSED + 1):
            is_last = n_refused == MAX_REFUSED or task.n_broken >= MAX_REFUSED or task.scores_prompt
            match, found = (None, None) if is_last else self._sources(task, refused)
            saved = match.saved if match else 0
            if any(priority.shared_prefix(task, other, self._ledger) > saved + WORTH_WAITING for other in running):
                return "held up"  # most of this prompt is being computed by another one right now
            if found is not None and not found.in_ram:
                if self._fetch(task, found.key):
                    return "held up"
                found = None
            source = found.match if found is not None else match
            begun = time.perf_counter()
            planned = self._plan(task, source, reserve)
            if isinstance(planned, NoRoom):
                needed = self._limits.n_ctx + planned.needed - planned.evictable
                return ContextFull(needed=needed, limit=self._limits.n_ctx, cache=self._name)
            n_loaded = self._ledger.used_if(None, ()) + found.n_resident if found is not None else 0
            if running and max(planned.n_cells + reserve, n_loaded) + promised > self._limits.n_ctx:
                return "no room"
            n_free = planned.n_new + reserve + promised
            if job.background and not self._pool.make_room_beside(planned, n_free):
                return self._has_no_room_beside(task, n_free, running)
            try:
                if found is not None and planned.source is not None:
                    task.n_loads += 1
                    task.unfit.add(found.key)
                    restored = self._pool.restore(found)
                    task.unfit.discard(found.key)
                    planned, source = replace(planned, source=restored), replace(found.match, resident=restored)
                resident = self._pool.carry_out(planned, n_free, background=job.background)
            except Refused:
                if planned.source is not None:
                    refused.append(planned.source)
                continue
            decision_log.log_match(self._name, task.tokens, job, source, planned, show=self._show)
            return Placement(resident, planned, time.perf_counter() - begun)
        return EngineError(f"cache {self._name!r} could not make a sequence for a job")

    def _sources(self, task: Task, refused: Sequence[Resident]) -> tuple[Match | None, Found | None]:
        """What the cells have of a prompt; and a snapshot, if there is one that is enough better to be loaded."""
        job, holes = task.job, task.job.on_full == "evict"
        match = self._ledger.find(task.tokens, holes=holes, spans=job.spans, without=refused)
        if job.background or task.n_loads == MAX_LOADS:
            return match, None  # to bring one back for a side task could cost others their cells
        found = self._pool.snapshots.find(task.tokens[:-1], holes=holes, spans=job.spans, without=task.unfit)
        gain = lookup.spared(found, holes=holes) - lookup.spared(match, holes=holes)
        return match, found if gain > WORTH_LOADING else None

    def _plan(self, task: Task, source: Match | None, reserve: int) -> Plan | NoRoom:
        return plan(
            self._ledger,
            task.tokens,
            task.job,
            source,
            limits=self._limits,
            reserve=reserve,
            reuse_tail=self._reuse_tail,
        )

    def _fetch(self, task: Task, key: str) -> bool:
        """Have a snapshot read from disk; False when that has been in vain too often."""
        if not self._pool.snapshots.is_coming(key):
            if task.n_fetches == MAX_FETCHES:
                return False
            task.n_fetches += 1
            self._pool.snapshots.fetch(key)
        return True

    def _has_no_room_beside(self, task: Task, needed: int, running: Sequence[Task]) -> Verdict:
        """A side task would need cells of conversations: it waits for those that run, not for those that idle."""
        if running:
            return "no room"
        if task.n_generated:
            return Done("length")  # what it has said stands
        return priority.no_room_error(self._name, needed=needed, free=self._ledger.free)
