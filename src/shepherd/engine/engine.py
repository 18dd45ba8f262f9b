"""The engine: one cache, its thread, and the mailbox that leads to it.

    event loop ── submit, cancel, clear ──▶ mailbox ──▶ thread: Work.admit, Work.step, Work.idle
         ▲                                                 │
         └───────────────── tickets ◀─── steps ────────────┘

What is computed when is decided in `work`; here is only who may call what from where. If the thread itself breaks,
every waiting ticket and every later one gets `EngineDown`: no ticket ever waits for a dead thread. If it stalls, all
that wait get the same until it goes on (`watchdog`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import queue
import threading
import time
from array import array
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from shepherd.core import ContextFull, EngineDown, Evicted, InvalidRequest, RateLimited
from shepherd.engine.base import Held, Job, Runtime, Span
from shepherd.engine.grammar.mask import Constrainer
from shepherd.engine.kv import lookup
from shepherd.engine.kv.plan import kept_tokens
from shepherd.engine.scheduler import EngineOptions, Scheduler
from shepherd.engine.stats import CacheStats
from shepherd.engine.ticket import Ticket
from shepherd.engine.watchdog import STEP_S, Watchdog, call_stack

logger = logging.getLogger(__name__)

T = TypeVar("T")

IDLE_S = 0.5
"""Quiet before idle work."""
PUBLISH_S = 0.25
"""Between two snapshots for displays while something runs."""
LONGEST_WAIT_S = 120.0
"""What a refused client is told to wait, at most."""
CLOSE_S = 2.0
"""Without progress, until `close` leaves a thread alone that does not end; more where a decode is known to take it."""


@dataclass(frozen=True, slots=True)
class _Submit:
    ticket: Ticket


@dataclass(frozen=True, slots=True)
class _Cancel:
    ticket: Ticket


@dataclass(frozen=True, slots=True)
class _Call:
    """Something to be done between two decodes."""

    work: Callable[[], object]
    done: Future[Any]


@dataclass(frozen=True, slots=True)
class _Look:
    """Look again: a snapshot has come from disk, or the engine is to stop."""


_Mail = _Submit | _Cancel | _Call | _Look


class Engine:
    """One cache and its thread. `cancel` and `stats` are for any thread; `close` once, by the owner."""

    def __init__(
        self,
        runtime: Runtime,
        *,
        name: str = "main",
        show: Callable[[int], bytes] = lambda token: b"<%d>" % token,
        options: EngineOptions = EngineOptions(),  # noqa: B008 - frozen
        constrainer: Constrainer | None = None,
    ) -> None:
        """Take over `runtime` and start. `show` gives a token's text for log lines.

        Without a `constrainer`, for the vocabulary of the runtime's model, no job can have a grammar.
        """
        self.name = name
        self.n_ctx = runtime.n_ctx
        self.options = options
        self.constrainer = constrainer
        self._runtime = runtime
        self._mailbox: queue.SimpleQueue[_Mail] = queue.SimpleQueue()
        self._scheduler = Scheduler(
            runtime,
            options,
            name=name,
            show=show,
            is_urgent=lambda: not self._mailbox.empty(),
            on_ready=lambda: self._mailbox.put(_Look()),
            constrainer=constrainer,
        )
        self._stalled: str | None = None
        self._broken: str | None = None
        self._n_stalls = 0
        self._stopping = False
        self._turn = threading.Lock()
        """Guards the next two."""
        self._open: set[Ticket] = set()
        """Tickets that have not ended, as of the watchdog's last look."""
        self._asked: set[Future[Any]] = set()
        self._has_idle_work = True
        self._stats = CacheStats(self.n_ctx)
        self._published_s = time.monotonic()
        self._thread = threading.Thread(target=self._live, name=f"engine-{name}", daemon=True)
        self._thread.start()
        self._watchdog = Watchdog(
            self._scheduler.heartbeat,
            name=name,
            stall_s=options.stall_s,
            has_work=lambda: any(self._pending()),
            on_stall=self._stall,
            on_recovery=self._recover,
        )

    # -- any thread ----------------------------------------------------------------------------------------------------

    def submit(self, job: Job) -> Ticket:
        """Queue a job; must be called on the event loop that will read the ticket.

        Raises: `InvalidRequest` for a job that can never run, `ContextFull` when what must be kept of it does not fit,
        `RateLimited` when too many wait, `EngineDown` when the thread has stalled.
        """
        if self.down is not None:
            raise EngineDown(self.down)
        if not job.tokens or (job.max_tokens < 1 and not job.n_turns_to_evict):
            raise InvalidRequest("a job needs at least one prompt token and room for one new token")
        if job.grammar is not None and self.constrainer is None:
            raise InvalidRequest(f"cache {self.name!r} cannot constrain what its model says")
        if job.on_full == "evict":
            needed = kept_tokens(job) + job.reserve
            if needed > self.n_ctx:
                raise ContextFull(needed=needed, limit=self.n_ctx, cache=self.name)
        elif len(job.tokens) + job.max_tokens > self.n_ctx:
            raise InvalidRequest(f"{len(job.tokens)} + {job.max_tokens} tokens do not fit into {self.n_ctx}")
        n_waiting = len(self._scheduler.waiting) + self._mailbox.qsize()
        if n_waiting >= (max(1, self.options.queue // 2) if job.background else self.options.queue):
            wait_s = self._scheduler.job_s * n_waiting / self.options.sequences
            raise RateLimited(
                f"cache {self.name!r} is busy: {n_waiting} requests are waiting already; try again later",
                backend=f"local:{self.name}",
                retry_after_s=min(max(1.0, wait_s), LONGEST_WAIT_S),
            )
        ticket = Ticket(job, asyncio.get_running_loop())
        with self._turn:
            self._open.add(ticket)
        self._mailbox.put(_Submit(ticket))
        self._watchdog.wake()
        return ticket

    def cancel(self, ticket: Ticket) -> None:
        """Stop a job at the next possible moment, inside a decode if it runs alone. Harmless when it has ended."""
        if ticket.cancelled or ticket.finished:
            return
        ticket.cancelled = True
        if self._scheduler.sole is ticket:
            self._runtime.interrupt(True)
        self._mailbox.put(_Cancel(ticket))

    def stats(self) -> CacheStats:
        """What it holds and has done, as of the last decode or a quarter of a second ago."""
        stats, age_s = self._stats, time.monotonic() - self._published_s
        aged = (replace(s, idle_s=s.idle_s + age_s) if s.state == "idle" else s for s in stats.sequences)
        quiet_s = self._watchdog.quiet_s
        return replace(stats, sequences=tuple(aged), stalls=self._n_stalls, quiet_s=quiet_s)

    @property
    def down(self) -> str | None:
        """Why nothing is computed at present, in a sentence; None while all is well."""
        return self._broken or self._stalled

    @property
    def used(self) -> int:
        """Cells that hold a token; for displays."""
        return self._stats.used

    def wait_for_disk(self, timeout_s: float = 2.0) -> bool:
        """Wait until what was kept on disk is known, so that the first request finds its conversation; False when that
        takes too long: it is found as soon as it is known."""
        return self._scheduler.pool.snapshots.flush(timeout_s)

    async def clear(self) -> None:
        """Forget every idle conversation, the saved ones too. Running jobs go on."""
        await self._ask(self._scheduler.clear)

    async def evict(self, job: Job, n_turns: int) -> Evicted:
        """Evict the `n_turns` oldest turns of a conversation that may leave, at least one; returns what has left.

        What stays of the prompt is computed where it is not in the cells; no token is generated. `job` must allow
        eviction (`on_full`). Raises: as `submit`, and `EngineError` when the computation fails.
        """
        assert job.on_full == "evict"
        assert n_turns > 0
        ticket = self.submit(replace(job, max_tokens=0, reserve=1, n_turns_to_evict=n_turns))
        evicted: list[Evicted] = []
        try:
            async with contextlib.aclosing(ticket.batches()) as batches:
                async for batch in batches:
                    evicted += [step for step in batch if isinstance(step, Evicted)]
        finally:
            self.cancel(ticket)
        return Evicted(
            sum(step.messages for step in evicted),
            sum(step.tokens for step in evicted),
            tuple(at for step in evicted for at in step.gone),
        )

    async def held(self, tokens: array[int], spans: Sequence[Span], *, holes: bool) -> Held:
        """What a request with this prompt would find; see `inquiry.held`. Raises: `EngineDown`."""
        return await self._ask(lambda: lookup.held(self._scheduler.pool, tokens, spans, holes=holes))

    async def beginning_with(self, tokens: array[int]) -> list[array[int]]:
        """The tokens of every conversation that begins with these and goes on. Raises: `EngineDown`."""
        return await self._ask(lambda: lookup.beginning_with(self._scheduler.pool, tokens))

    async def _ask(self, work: Callable[[], T]) -> T:
        """What `work` returns, which the thread does between two decodes."""
        if self.down is not None:
            raise EngineDown(self.down)
        done: Future[T] = Future()
        with self._turn:
            self._asked.add(done)
        self._mailbox.put(_Call(work, done))
        self._watchdog.wake()
        return await asyncio.wrap_future(done)

    def close(self, timeout_s: float = 30.0) -> bool:
        """Cancel everything, save what is to survive, end the thread and free the runtime.

        False: the thread does not end, and has got nothing done for a while. The runtime stays as it is, and so must
        the weights: the thread may still use them.
        """
        self._stopping = True
        self._runtime.interrupt(True)
        self._mailbox.put(_Look())
        heartbeat = self._scheduler.heartbeat
        left_s, quiet_s, seen = timeout_s, self._watchdog.quiet_s, heartbeat.n_beats
        while self._thread.is_alive() and left_s > 0 and quiet_s < heartbeat.allowed_s(CLOSE_S):
            self._thread.join(STEP_S)
            left_s -= STEP_S
            quiet_s, seen = (quiet_s + STEP_S if heartbeat.n_beats == seen else 0.0), heartbeat.n_beats
        self._watchdog.close()
        if self._thread.is_alive():
            logger.error("the engine thread of cache %r does not end and is left: %s", self.name, heartbeat.doing)
            return False
        self._scheduler.pool.close()
        self._runtime.close()
        return True

    # -- the watchdog's thread -----------------------------------------------------------------------------------------

    def _pending(self) -> tuple[set[Ticket], set[Future[Any]]]:
        """What waits for the thread; the rest is let go of."""
        with self._turn:
            self._open = {ticket for ticket in self._open if not ticket.finished}
            self._asked = {asked for asked in self._asked if not asked.done()}
            return self._open.copy(), self._asked.copy()

    def _stall(self, quiet_s: float) -> None:
        """Work waits, and the thread gets nothing done: say so, and let nothing wait for it."""
        tickets, asked = self._pending()
        doing = self._scheduler.heartbeat.doing
        reason = f"the engine of cache {self.name!r} has got nothing done for {quiet_s:.0f} s ({doing})"
        self._stalled = reason
        self._n_stalls += 1
        logger.error(
            "%s; %d requests that wait for it end with an error, and so do new ones until it goes on. %s. It is at: %s",
            reason, len(tickets), self._scheduler.describe(), call_stack(self._thread),
        )  # fmt: skip
        for ticket in tickets:
            ticket.abandon(EngineDown(reason))
        for done in asked:
            with contextlib.suppress(InvalidStateError):
                done.set_exception(EngineDown(reason))
        self._runtime.interrupt(True)  # a decode that takes for ever ends here; nothing waits for it any more

    def _recover(self, quiet_s: float) -> None:
        self._stalled = None
        logger.warning("the engine of cache %r goes on, after %.0f s in which it got nothing done", self.name, quiet_s)

    # -- the thread ----------------------------------------------------------------------------------------------------

    def _live(self) -> None:
        work = self._scheduler
        try:
            while not self._stopping:
                self._read_mail(block=not work.running)
                work.admit()
                if work.running:
                    work.step()
                if not work.running:
                    work.admit()  # whoever waited for the last one
                self._publish()
            work.end_all()
            work.heartbeat.begin("saving conversations to disk", None)
            while work.pool.save_one():
                work.heartbeat.beat()
            reason = "the engine was stopped"
        except Exception:
            logger.exception("the engine thread of cache %r broke", self.name)
            reason = "the engine broke and was shut down; restart Shepherd (the log says why)"
            self._broken = reason
        self._refuse_all(reason)

    def _read_mail(self, *, block: bool) -> None:
        """Take all mail. `block`: there is nothing to compute, so wait for some and use the quiet."""
        while not self._stopping:
            try:
                if block:
                    mail = self._mailbox.get(timeout=IDLE_S if self._has_idle_work else None)
                else:
                    mail = self._mailbox.get_nowait()
            except queue.Empty:
                if not block:
                    return
                self._has_idle_work = False
                while self._mailbox.empty() and not self._stopping and self._scheduler.idle():
                    self._has_idle_work = True
                self._publish(now=True)
                continue
            block = False
            match mail:
                case _Submit(ticket):
                    self._scheduler.add(ticket)
                    self._has_idle_work = True
                case _Cancel(ticket):
                    self._scheduler.withdraw(ticket)
                case _Call(work, done):
                    if not done.done():  # the one who asked is still there
                        self._scheduler.heartbeat.begin("answering a question about the cache")
                        result = work()
                        self._scheduler.heartbeat.beat()
                        self._publish(now=True)
                        with contextlib.suppress(InvalidStateError):  # gone meanwhile, or answered by the watchdog
                            done.set_result(result)
                case _Look():
                    pass

    def _publish(self, *, now: bool = False) -> None:
        """Renew the snapshot for displays, now and then."""
        clock = time.monotonic()
        if now or not self._scheduler.running or clock - self._published_s > PUBLISH_S:
            self._published_s = clock
            self._stats = self._scheduler.stats()

    def _refuse_all(self, reason: str) -> None:
        """Answer everything with `EngineDown` until `close` is called: whoever submits later must not wait for ever."""
        while True:
            self._scheduler.end_all(EngineDown(reason))
            if self._stopping and self._mailbox.empty():
                return
            match self._mailbox.get():
                case _Submit(ticket):
                    self._scheduler.add(ticket)
                case _Call(done=done):
                    with contextlib.suppress(InvalidStateError):
                        done.set_exception(EngineDown(reason))
                case _:
                    pass
