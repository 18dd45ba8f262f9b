"""An engine in this process: one cache, its thread, and the mailbox through which callers reach the thread.

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
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, InvalidStateError
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

from shepherd.core import EngineDown, Evicted
from shepherd.engine.base import CachedPrefix, Engine, Job, Owner, Runtime, Span, Ticket
from shepherd.engine.draft_model import DraftModel
from shepherd.engine.gate import Gate, evict_turns
from shepherd.engine.grammar.mask import Constrainer
from shepherd.engine.scheduler import EngineOptions, Scheduler
from shepherd.engine.stats import CacheStats
from shepherd.engine.watchdog import CLOSE_S, STEP_S, Watchdog, call_stack
from shepherd.engine.window import LOOK_S, Feed

logger = logging.getLogger(__name__)

T = TypeVar("T")

IDLE_S = 0.5
"""Seconds without mail before idle work begins."""
PUBLISH_S = 0.25
"""Seconds between two snapshots for displays while a job runs."""


class _Mail(NamedTuple):
    """A function that the thread calls between two decodes."""

    work: Callable[[], object]
    done: Future[Any] | None = None
    """Gets the result, if a caller waits for it."""


_WAKE_UP = _Mail(lambda: None)
"""A snapshot has come from disk, or the engine stops."""


class InProcessEngine:
    """One cache and its thread; satisfies `Engine`."""

    def __init__(
        self,
        runtime: Runtime,
        *,
        name: str = "main",
        show: Callable[[int], bytes] = lambda token: b"<%d>" % token,
        options: EngineOptions = EngineOptions(),  # noqa: B008 - frozen
        constrainer: Constrainer | None = None,
        draft_model: DraftModel | None = None,
    ) -> None:
        """Start a thread that owns `runtime`. `show` returns a token's text for log lines.

        `constrainer` is for the vocabulary of the runtime's model; without one, no job can have a grammar.
        `draft_model` is closed with the engine.
        """
        self.name = name
        self.n_ctx = runtime.n_ctx
        self.n_low = int(runtime.n_ctx * options.low_water)
        self.gate = Gate(name, runtime.n_ctx, options.sequences, options.queue, has_grammars=constrainer is not None)
        self._runtime = runtime
        self._draft_model = draft_model
        self._mailbox: queue.SimpleQueue[_Mail] = queue.SimpleQueue()
        self._scheduler = Scheduler(
            runtime,
            options,
            name=name,
            show=show,
            is_urgent=lambda: not self._mailbox.empty(),
            on_ready=lambda: self._mailbox.put(_WAKE_UP),
            constrainer=constrainer,
            draft_model=draft_model,
        )
        self._stalled: str | None = None
        self._broken: str | None = None
        self._n_stalls = 0
        self._stopping = False
        self.is_saving = False
        self._lock = threading.Lock()
        """Guards the next two, and mail against the end of the thread."""
        self._open: set[Ticket] = set()
        """Tickets that had not ended when the watchdog last checked."""
        self._asked: set[Future[Any]] = set()
        self._has_idle_work = True
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
        if self.down is not None:
            raise EngineDown(self.down)
        n_waiting = len(self._scheduler.waiting) + self._mailbox.qsize()
        self.gate.check(job, n_waiting=n_waiting, job_s=self._scheduler.queue.job_s)
        ticket = Ticket(job, asyncio.get_running_loop())
        with self._posting():
            self._open.add(ticket)
            self._mailbox.put(_Mail(partial(self._add, ticket)))
        return ticket

    def cancel(self, ticket: Ticket) -> None:
        """As `Engine.cancel`; stops inside a decode if the job runs alone."""
        if ticket.cancelled or ticket.finished:
            return
        ticket.cancelled = True
        if self._scheduler.sole is ticket:
            self._runtime.interrupt(True)
        self._mailbox.put(_Mail(partial(self._scheduler.withdraw, ticket)))

    def stats(self) -> CacheStats:
        published, at_s = self._scheduler.queue.published
        stats = published.aged(time.monotonic() - at_s)
        n_stalls, quiet_s = self._runtime.waits()
        return replace(stats, stalls=self._n_stalls + n_stalls, quiet_s=max(self._watchdog.quiet_s, quiet_s))

    @property
    def down(self) -> str | None:
        return self._broken or self._stalled

    @property
    def used(self) -> int:
        return self._scheduler.queue.published[0].used

    def wait_for_disk(self, timeout_s: float = 2.0) -> bool:
        """Wait until the conversations on disk are indexed, so that the first request finds its own. False on timeout:
        they are found as soon as the index is complete."""
        return self._scheduler.pool.snapshots.flush(timeout_s)

    async def clear(self) -> None:
        await self._call(self._scheduler.clear)

    async def evict(self, job: Job, n_turns: int) -> Evicted:
        return await evict_turns(self, job, n_turns)

    async def held(self, tokens: array[int], spans: Sequence[Span], owner: Owner, *, holes: bool) -> CachedPrefix:
        return await self._call(lambda: self._scheduler.pool.held(tokens, spans, owner, holes=holes))

    async def beginning_with(
        self, tokens: array[int], owner: Owner, spans: Sequence[Span] = (), n_other: int = 0
    ) -> list[array[int]]:
        return await self._call(lambda: self._scheduler.pool.beginning_with(tokens, owner, spans, n_other))

    async def tokens(self, seq: int, owner: str, start: int, stop: int) -> array[int]:
        return await self._call(lambda: self._scheduler.pool.tokens(seq, owner, start, stop))

    @property
    def is_watched(self) -> bool:
        return self._scheduler.pool.display.is_on

    def watch(self) -> Feed:
        feed = Feed(asyncio.get_running_loop())
        with self._posting():
            self._mailbox.put(_Mail(partial(self._scheduler.watch, feed)))
        return feed

    def unwatch(self, feed: Feed) -> None:
        feed.end()
        self._mailbox.put(_Mail(partial(self._scheduler.pool.display.remove, feed)))

    async def _call(self, work: Callable[[], T]) -> T:
        done: Future[T] = Future()
        with self._posting():
            self._asked.add(done)
            self._mailbox.put(_Mail(work, done))
        return await asyncio.wrap_future(done)

    @contextlib.contextmanager
    def _posting(self) -> Iterator[None]:
        """Mail that is put within it is answered: the thread ends only when there is none. Raises: `EngineDown`."""
        with self._lock:
            if self.down is not None:
                raise EngineDown(self.down)
            yield
        self._watchdog.wake()

    def close(self, timeout_s: float = 30.0) -> bool:
        """As `Engine.close`. Saving may take longer than `timeout_s`, as long as the disk makes progress."""
        self._stopping = True
        self._runtime.interrupt(True)
        self._mailbox.put(_WAKE_UP)
        heartbeat = self._scheduler.heartbeat
        left_s, quiet_s, seen = timeout_s, self._watchdog.quiet_s, heartbeat.n_beats
        while self._thread.is_alive() and left_s > 0 and quiet_s < heartbeat.allowed_s(CLOSE_S):
            self._thread.join(STEP_S)
            self._runtime.interrupt(True)  # again: a decode that began meanwhile does not know of the first one
            left_s -= 0 if self.is_saving else STEP_S
            quiet_s, seen = (quiet_s + STEP_S if heartbeat.n_beats == seen else 0.0), heartbeat.n_beats
        self._watchdog.close()
        if self._thread.is_alive():
            logger.error("the engine thread of cache %r does not end and is left: %s", self.name, heartbeat.doing)
            with self._lock:
                self._broken = f"the engine of cache {self.name!r} was stopped, and its thread does not end"
            self._abandon(self._broken)
            return False
        self._scheduler.pool.close()
        self._runtime.close()
        if self._draft_model is not None:
            self._draft_model.close()
        return True

    # -- the watchdog's thread -----------------------------------------------------------------------------------------

    def _pending(self) -> tuple[set[Ticket], set[Future[Any]]]:
        """The tickets and calls that wait for the thread; those that have ended are dropped."""
        with self._lock:
            self._open = {ticket for ticket in self._open if not ticket.finished}
            self._asked = {asked for asked in self._asked if not asked.done()}
            return self._open.copy(), self._asked.copy()

    def _stall(self, quiet_s: float) -> None:
        tickets, _ = self._pending()
        doing = self._scheduler.heartbeat.doing
        reason = f"the engine of cache {self.name!r} has made no progress for {quiet_s:.0f} s ({doing})"
        self._stalled = reason
        self._n_stalls += 1
        logger.error(
            "%s; %d requests that wait for it end with an error, and so do new ones until it recovers. %s. Stack: %s",
            reason, len(tickets), self._scheduler.describe(), call_stack(self._thread),
        )  # fmt: skip
        self._abandon(reason)
        self._runtime.interrupt(True)  # ends a decode that hangs; nothing waits for its result any more

    def _abandon(self, reason: str) -> None:
        tickets, asked = self._pending()
        for ticket in tickets:
            ticket.abandon(EngineDown(reason))
        for done in asked:
            with contextlib.suppress(InvalidStateError):
                done.set_exception(EngineDown(reason))

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
            self._read_mail(block=False, to_end=True)  # jobs that came meanwhile are cancelled like those that wait
            scheduler.queue.end_all()
            scheduler.heartbeat.begin("saving conversations to disk", None)
            self.is_saving = True
            scheduler.pool.save_all(scheduler.heartbeat.beat)
            reason = "the engine was stopped"
        except Exception:
            logger.exception("the engine thread of cache %r broke", self.name)
            reason = "the engine broke and was shut down; restart Shepherd (the log says why)"
            self._broken = reason
        self._refuse_all(reason)

    def _read_mail(self, *, block: bool, to_end: bool = False) -> None:
        """Handle all mail. `block`: nothing runs, so wait for mail and do idle work meanwhile. `to_end`: also when the
        engine stops."""
        while to_end or not self._stopping:
            if not block:
                if self._mailbox.empty():
                    return
                self._scheduler.queue.flush()  # the mail may take long
            try:
                mail = self._mailbox.get(timeout=IDLE_S if block and self._has_idle_work else None)
            except queue.Empty:
                self._has_idle_work = False
                while self._mailbox.empty() and not self._stopping and self._scheduler.idle():
                    self._has_idle_work = True
                self._has_idle_work = self._has_idle_work or self._scheduler.pool.waits_for_disk
                self._publish(now=True)
                continue
            block, self._has_idle_work = False, True
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

    def _publish(self, *, now: bool = False) -> None:
        """Renew the snapshot for displays, at most every `PUBLISH_S` seconds while jobs run."""
        queue = self._scheduler.queue
        pause_s = LOOK_S if self._scheduler.pool.display.is_on else PUBLISH_S
        if now or not queue.running or time.monotonic() - queue.published[1] > pause_s:
            queue.publish()

    def _refuse_all(self, reason: str) -> None:
        """Answer all mail with `EngineDown` until `close` is called, so that no later ticket waits."""
        self._scheduler.pool.display.end()
        while True:
            self._scheduler.queue.end_all(EngineDown(reason))
            with self._lock:
                if self._stopping and self._mailbox.empty():
                    self._broken = reason
                    return
            work, done = self._mailbox.get()
            if done is None:
                work()
            else:
                with contextlib.suppress(InvalidStateError):
                    done.set_exception(EngineDown(reason))


_proof: type[Engine] = InProcessEngine  # it satisfies the seam
