"""The engine: one cache, its thread, and the mailbox that leads to it.

    event loop ── submit, cancel, clear ──▶ mailbox ──▶ thread: Work.admit, Work.step, Work.idle
         ▲                                                 │
         └───────────────── tickets ◀─── steps ────────────┘

What is computed when is decided in `work`; here is only who may call what from where. If the thread itself breaks,
every waiting ticket and every later one gets `EngineDown`: no ticket ever waits for a dead thread.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from array import array
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from shepherd.core import ContextFull, EngineDown, InvalidRequest, RateLimited
from shepherd.engine import inquiry
from shepherd.engine.base import Held, Job, Runtime, Span
from shepherd.engine.constraint import Constrainer
from shepherd.engine.plan import kept_tokens
from shepherd.engine.stats import CacheStats
from shepherd.engine.ticket import Ticket
from shepherd.engine.work import EngineOptions, Work

logger = logging.getLogger(__name__)

T = TypeVar("T")

IDLE_S = 0.5
"""Quiet before idle work."""
PUBLISH_S = 0.25
"""Between two snapshots for displays while something runs."""
LONGEST_WAIT_S = 120.0
"""What a refused client is told to wait, at most."""


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
        self._work = Work(
            runtime,
            options,
            name=name,
            show=show,
            is_urgent=lambda: not self._mailbox.empty(),
            on_ready=lambda: self._mailbox.put(_Look()),
            constrainer=constrainer,
        )
        self._stopping = False
        self._has_idle_work = True
        self._stats = CacheStats(self.n_ctx)
        self._published_s = time.monotonic()
        self._thread = threading.Thread(target=self._live, name=f"engine-{name}", daemon=True)
        self._thread.start()

    # -- any thread ----------------------------------------------------------------------------------------------------

    def submit(self, job: Job) -> Ticket:
        """Queue a job; must be called on the event loop that will read the ticket.

        Raises: `InvalidRequest` for a job that can never run, `ContextFull` when what must be kept of it does not fit,
        `RateLimited` when too many wait.
        """
        if not job.tokens or job.max_tokens < 1:
            raise InvalidRequest("a job needs at least one prompt token and room for one new token")
        if job.grammar is not None and self.constrainer is None:
            raise InvalidRequest(f"cache {self.name!r} cannot constrain what its model says")
        if job.on_full == "evict":
            needed = kept_tokens(job) + job.reserve
            if needed > self.n_ctx:
                raise ContextFull(needed=needed, limit=self.n_ctx, cache=self.name)
        elif len(job.tokens) + job.max_tokens > self.n_ctx:
            raise InvalidRequest(f"{len(job.tokens)} + {job.max_tokens} tokens do not fit into {self.n_ctx}")
        n_waiting = len(self._work.waiting) + self._mailbox.qsize()
        if n_waiting >= (max(1, self.options.queue // 2) if job.background else self.options.queue):
            wait_s = self._work.job_s * n_waiting / self.options.sequences
            raise RateLimited(
                f"cache {self.name!r} is busy: {n_waiting} requests are waiting already; try again later",
                backend=f"local:{self.name}",
                retry_after_s=min(max(1.0, wait_s), LONGEST_WAIT_S),
            )
        ticket = Ticket(job, asyncio.get_running_loop())
        self._mailbox.put(_Submit(ticket))
        return ticket

    def cancel(self, ticket: Ticket) -> None:
        """Stop a job at the next possible moment, inside a decode if it runs alone. Harmless when it has ended."""
        if ticket.cancelled or ticket.finished:
            return
        ticket.cancelled = True
        if self._work.sole is ticket:
            self._runtime.interrupt(True)
        self._mailbox.put(_Cancel(ticket))

    def stats(self) -> CacheStats:
        """What it holds and has done, as of the last decode or a quarter of a second ago."""
        stats, age_s = self._stats, time.monotonic() - self._published_s
        aged = (replace(s, idle_s=s.idle_s + age_s) if s.state == "idle" else s for s in stats.sequences)
        return replace(stats, sequences=tuple(aged))

    @property
    def used(self) -> int:
        """Cells that hold a token; for displays."""
        return self._stats.used

    def wait_for_disk(self, timeout_s: float = 2.0) -> bool:
        """Wait until what was kept on disk is known, so that the first request finds its conversation; False when that
        takes too long: it is found as soon as it is known."""
        return self._work.pool.snapshots.flush(timeout_s)

    async def clear(self) -> None:
        """Forget every idle conversation, the saved ones too. Running jobs go on."""
        await self._ask(self._work.clear)

    async def held(self, tokens: array[int], spans: Sequence[Span], *, holes: bool) -> Held:
        """What a request with this prompt would find; see `inquiry.held`. Raises: `EngineDown`."""
        return await self._ask(lambda: inquiry.held(self._work.pool, tokens, spans, holes=holes))

    async def beginning_with(self, tokens: array[int]) -> list[array[int]]:
        """The tokens of every conversation that begins with these and goes on. Raises: `EngineDown`."""
        return await self._ask(lambda: inquiry.beginning_with(self._work.pool, tokens))

    async def _ask(self, work: Callable[[], T]) -> T:
        """What `work` returns, which the thread does between two decodes."""
        done: Future[T] = Future()
        self._mailbox.put(_Call(work, done))
        return await asyncio.wrap_future(done)

    def close(self, timeout_s: float = 30.0) -> None:
        """Cancel everything, save what is to survive, end the thread and free the runtime."""
        self._stopping = True
        self._runtime.interrupt(True)
        self._mailbox.put(_Look())
        self._thread.join(timeout_s)
        if not self._thread.is_alive():
            self._work.pool.close()
            self._runtime.close()

    # -- the thread ----------------------------------------------------------------------------------------------------

    def _live(self) -> None:
        work = self._work
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
            while work.pool.save_one():
                pass
            reason = "the engine was stopped"
        except Exception:
            logger.exception("the engine thread of cache %r broke", self.name)
            reason = "the engine broke and was shut down; restart Shepherd (the log says why)"
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
                while self._mailbox.empty() and not self._stopping and self._work.idle():
                    self._has_idle_work = True
                self._publish(now=True)
                continue
            block = False
            match mail:
                case _Submit(ticket):
                    self._work.add(ticket)
                    self._has_idle_work = True
                case _Cancel(ticket):
                    self._work.withdraw(ticket)
                case _Call(work, done):
                    if done.set_running_or_notify_cancel():  # whoever asked is still there
                        result = work()
                        self._publish(now=True)
                        done.set_result(result)
                case _Look():
                    pass

    def _publish(self, *, now: bool = False) -> None:
        """Renew the snapshot for displays, now and then."""
        clock = time.monotonic()
        if now or not self._work.running or clock - self._published_s > PUBLISH_S:
            self._published_s = clock
            self._stats = self._work.stats()

    def _refuse_all(self, reason: str) -> None:
        """Answer everything with `EngineDown` until `close` is called: whoever submits later must not wait for ever."""
        while True:
            self._work.end_all(EngineDown(reason))
            if self._stopping and self._mailbox.empty():
                return
            match self._mailbox.get():
                case _Submit(ticket):
                    self._work.add(ticket)
                case _Call(done=done):
                    if done.set_running_or_notify_cancel():
                        done.set_exception(EngineDown(reason))
                case _:
                    pass
