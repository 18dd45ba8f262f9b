"""The engine: one cache, its thread, and the mailbox through which callers reach the thread.

    event loop ── submit, cancel, evict, clear ──▶ mailbox ──▶ thread: Scheduler.admit, step, idle
         ▲                                                        │
         └────────────────────── tickets ◀─── steps ──────────────┘

Not here: what is computed when (`scheduler.py`). If the thread breaks, every waiting ticket and every later one gets
`EngineDown`: no ticket ever waits for a dead thread. If the thread stalls, all waiting tickets and all new ones get
`EngineDown` until it makes progress again (`watchdog.py`).
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
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

from shepherd.core import ContextFull, EngineDown, Evicted, InvalidRequest, RateLimited
from shepherd.engine.base import CachedPrefix, Job, Runtime, Span, Whose
from shepherd.engine.grammar.mask import Constrainer
from shepherd.engine.kv.plan import kept_tokens
from shepherd.engine.scheduler import EngineOptions, Scheduler
from shepherd.engine.stats import CacheStats
from shepherd.engine.ticket import Ticket
from shepherd.engine.watchdog import STEP_S, Watchdog, call_stack

logger = logging.getLogger(__name__)

T = TypeVar("T")

IDLE_S = 0.5
"""Seconds without mail before idle work begins."""
PUBLISH_S = 0.25
"""Seconds between two snapshots for displays while a job runs."""
LONGEST_WAIT_S = 120.0
"""The longest `retry_after_s` of a refused request."""
CLOSE_S = 2.0
"""Seconds without progress until `close` abandons a thread that does not end; more if a decode is known to take it."""


class _Mail(NamedTuple):
    """A function that the thread calls between two decodes."""

    work: Callable[[], object]
    done: Future[Any] | None = None
    """Gets the result, if a caller waits for it."""


_WAKE_UP = _Mail(lambda: None)
"""A snapshot has come from disk, or the engine stops."""


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
        """Start a thread that owns `runtime`. `show` returns a token's text for log lines.

        `constrainer` is for the vocabulary of the runtime's model; without one, no job can have a grammar.
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
            on_ready=lambda: self._mailbox.put(_WAKE_UP),
            constrainer=constrainer,
        )
        self._stalled: str | None = None
        self._broken: str | None = None
        self._n_stalls = 0
        self._stopping = False
        self._lock = threading.Lock()
        """Guards the next two."""
        self._open: set[Ticket] = set()
        """Tickets that had not ended when the watchdog last checked."""
        self._asked: set[Future[Any]] = set()
        self._has_idle_work = True
        self._stats = CacheStats(self.n_ctx)
        self._published_s = time.monotonic()
        self._thread = threading.Thread(target=self._run, name=f"engine-{name}", daemon=True)
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
        """Queue a job. Call it on the event loop that will read the ticket.

        Raises: `InvalidRequest` for a job that can never run, `ContextFull` if its tokens that are never evicted do
        not fit, `RateLimited` if too many jobs wait, `EngineDown` if the thread has stalled or stopped.
        """
        if self.down is not None:
            raise EngineDown(self.down)
        if not job.tokens or (job.max_tokens < 1 and not job.n_turns_to_evict):
            raise InvalidRequest("a job needs at least one prompt token and room for one new token")
        if job.grammar is not None and self.constrainer is None:
            raise InvalidRequest(f"cache {self.name!r} cannot constrain answers to a grammar")
        if job.on_full == "evict":
            needed = kept_tokens(job) + job.reserve
            if needed > self.n_ctx:
                raise ContextFull(needed=needed, limit=self.n_ctx, cache=self.name)
        elif len(job.tokens) + job.max_tokens > self.n_ctx:
            raise InvalidRequest(f"{len(job.tokens)} + {job.max_tokens} tokens do not fit into {self.n_ctx}")
        n_waiting = len(self._scheduler.waiting) + self._mailbox.qsize()
        if n_waiting >= (max(1, self.options.queue // 2) if job.background else self.options.queue):
            wait_s = self._scheduler.queue.job_s * n_waiting / self.options.sequences
            raise RateLimited(
                f"cache {self.name!r} is busy: {n_waiting} requests are waiting already; try again later",
                backend=f"local:{self.name}",
                retry_after_s=min(max(1.0, wait_s), LONGEST_WAIT_S),
            )
        ticket = Ticket(job, asyncio.get_running_loop())
        with self._lock:
            self._open.add(ticket)
        self._mailbox.put(_Mail(partial(self._add, ticket)))
        self._watchdog.wake()
        return ticket

    def cancel(self, ticket: Ticket) -> None:
        """Stop a job as soon as possible, inside a decode if it runs alone. No effect on a job that has ended."""
        if ticket.cancelled or ticket.finished:
            return
        ticket.cancelled = True
        if self._scheduler.sole is ticket:
            self._runtime.interrupt(True)
        self._mailbox.put(_Mail(partial(self._scheduler.withdraw, ticket)))

    def stats(self) -> CacheStats:
        """What the cache holds and has done, at most a quarter of a second old."""
        stats, age_s = self._stats, time.monotonic() - self._published_s
        aged = (replace(s, idle_s=s.idle_s + age_s) if s.state == "idle" else s for s in stats.sequences)
        quiet_s = self._watchdog.quiet_s
        return replace(stats, sequences=tuple(aged), stalls=self._n_stalls, quiet_s=quiet_s)

    @property
    def down(self) -> str | None:
        """A sentence that says why the engine computes nothing at present; None if it works."""
        return self._broken or self._stalled

    @property
    def used(self) -> int:
        """Number of cells that hold a token; for displays."""
        return self._stats.used

    def wait_for_disk(self, timeout_s: float = 2.0) -> bool:
        """Wait until the conversations on disk are indexed, so that the first request finds its own. False on timeout:
        they are found as soon as the index is complete."""
        return self._scheduler.pool.snapshots.flush(timeout_s)

    async def clear(self) -> None:
        """Forget every idle conversation, the saved ones too. Running jobs continue."""
        await self._call(self._scheduler.clear)

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

    async def held(self, tokens: array[int], spans: Sequence[Span], whose: Whose, *, holes: bool) -> CachedPrefix:
        """The cached part of a prompt; see `Pool.held`. Raises: `EngineDown`."""
        return await self._call(lambda: self._scheduler.pool.held(tokens, spans, whose, holes=holes))

    async def beginning_with(self, tokens: array[int], owner: str) -> list[array[int]]:
        """The tokens of each of the owner's conversations that begin with these; see `Pool`. Raises: `EngineDown`."""
        return await self._call(lambda: self._scheduler.pool.beginning_with(tokens, owner))

    async def _call(self, work: Callable[[], T]) -> T:
        """Call `work` on the engine thread, between two decodes, and return its result."""
        if self.down is not None:
            raise EngineDown(self.down)
        done: Future[T] = Future()
        with self._lock:
            self._asked.add(done)
        self._mailbox.put(_Mail(work, done))
        self._watchdog.wake()
        return await asyncio.wrap_future(done)

    def close(self, timeout_s: float = 30.0) -> bool:
        """Cancel all jobs, save the conversations, end the thread and free the runtime.

        False if the thread makes no progress and does not end. Then the runtime is not freed, and the weights must not
        be freed either: the thread may still use them.
        """
        self._stopping = True
        self._runtime.interrupt(True)
        self._mailbox.put(_WAKE_UP)
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
        """The tickets and calls that wait for the thread; those that have ended are dropped."""
        with self._lock:
            self._open = {ticket for ticket in self._open if not ticket.finished}
            self._asked = {asked for asked in self._asked if not asked.done()}
            return self._open.copy(), self._asked.copy()

    def _stall(self, quiet_s: float) -> None:
        """Log that the thread makes no progress, and end everything that waits for it."""
        tickets, asked = self._pending()
        doing = self._scheduler.heartbeat.doing
        reason = f"the engine of cache {self.name!r} has made no progress for {quiet_s:.0f} s ({doing})"
        self._stalled = reason
        self._n_stalls += 1
        logger.error(
            "%s; %d requests that wait for it end with an error, and so do new ones until it recovers. %s. Stack: %s",
            reason, len(tickets), self._scheduler.describe(), call_stack(self._thread),
        )  # fmt: skip
        for ticket in tickets:
            ticket.abandon(EngineDown(reason))
        for done in asked:
            with contextlib.suppress(InvalidStateError):
                done.set_exception(EngineDown(reason))
        self._runtime.interrupt(True)  # ends a decode that hangs; nothing waits for its result any more

    def _recover(self, quiet_s: float) -> None:
        logger.warning("the engine of cache %r has recovered after %.0f s without progress", self.name, quiet_s)
        self._stalled = None

    # -- the thread ----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        scheduler = self._scheduler
        try:
            while not self._stopping:
                self._read_mail(block=not scheduler.running)
                scheduler.admit()
                if scheduler.running:
                    scheduler.step()
                if not scheduler.running:
                    scheduler.admit()  # jobs that waited for the last one to end
                self._publish()
            scheduler.queue.end_all()
            scheduler.heartbeat.begin("saving conversations to disk", None)
            while scheduler.pool.save_one():
                scheduler.heartbeat.beat()
            reason = "the engine was stopped"
        except Exception:
            logger.exception("the engine thread of cache %r broke", self.name)
            reason = "the engine broke and was shut down; restart Shepherd (the log says why)"
            self._broken = reason
        self._refuse_all(reason)

    def _read_mail(self, *, block: bool) -> None:
        """Handle all mail. `block`: nothing runs, so wait for mail and do idle work meanwhile."""
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
            work, done = mail
            if done is None:
                work()
            elif not done.done():  # the caller still waits
                self._scheduler.heartbeat.begin("answering a question about the cache")
                result = work()
                self._scheduler.heartbeat.beat()
                self._publish(now=True)
                with contextlib.suppress(InvalidStateError):  # cancelled, or failed by the watchdog
                    done.set_result(result)

    def _add(self, ticket: Ticket) -> None:
        self._scheduler.queue.add(ticket)
        self._has_idle_work = True

    def _publish(self, *, now: bool = False) -> None:
        """Renew the snapshot for displays, at most every `PUBLISH_S` seconds while jobs run."""
        clock = time.monotonic()
        if now or not self._scheduler.running or clock - self._published_s > PUBLISH_S:
            self._published_s = clock
            self._stats = self._scheduler.queue.stats()

    def _refuse_all(self, reason: str) -> None:
        """Answer all mail with `EngineDown` until `close` is called, so that no later ticket waits."""
        while True:
            self._scheduler.queue.end_all(EngineDown(reason))
            if self._stopping and self._mailbox.empty():
                return
            work, done = self._mailbox.get()
            if done is None:
                work()
            else:
                with contextlib.suppress(InvalidStateError):
                    done.set_exception(EngineDown(reason))
