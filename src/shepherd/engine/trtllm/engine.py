"""TensorRT-LLM as an engine: jobs go to the library, its steps come back; satisfies `Engine`.

    event loop ── submit, cancel, held ──▶ mailbox ──▶ dispatcher ── start, abort ──▶ library
         ▲                                              ▲      ▲                         │ one thread each
         └──────── tickets ◀── steps ── pump ───────────┘      └── poller ◀── events ────┤
                                          ▲──────────────────────── steps ───────────────┘

The dispatcher alone decides, and alone asks the library for anything but steps and events: those are read by a pump for
each running job and by the poller, because a read may block for ever. The watchdog ends what waits for a library that
has died or stands still; a thread that is stuck in it is left behind. At most `sequences` jobs run, the others queue.

A prompt that does not fit loses whole turns before it is sent (`conversations.py`). An answer that fills the context
loses further ones: the library gets what is left with what it has written, and continues.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import queue
import threading
import time
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from functools import partial
from typing import Any, NamedTuple, TypeVar

from shepherd.core import ContextFull, EngineDown, EngineError, Evicted, ShepherdError
from shepherd.core.dataclasses import dataclass, field, replace
from shepherd.engine.base import Admitted, CachedPrefix, Done, Engine, Job, Notifier, Owner, Prefill, Span, Ticket
from shepherd.engine.decision_log import log_eviction
from shepherd.engine.gate import Gate, evict_turns
from shepherd.engine.kv.ledger import NoRoom, evicted
from shepherd.engine.kv.plan import Range, size
from shepherd.engine.stats import CacheStats, SequenceStats, State
from shepherd.engine.trtllm.arguments import Arguments, arguments
from shepherd.engine.trtllm.conversations import Conversations, Sendable, cached_prefix, sendable, without
from shepherd.engine.trtllm.events import BlockIndex, EventPoller, PressureLog
from shepherd.engine.trtllm.library import Generation, Library, LibraryOptions, LibraryStep, Session
from shepherd.engine.watchdog import STALL_S, Heartbeat, Watchdog
from shepherd.engine.window import Feed
from shepherd.engine.worker.messages import RemoteModel

logger = logging.getLogger(__name__)

T = TypeVar("T")

PREFILL_RATE = 10_000
"""Tokens a second by which the watchdog judges a prompt."""
PUBLISH_S = 0.25
"""Seconds between two snapshots for displays."""


@dataclass(frozen=True, slots=True)
class TensorRTOptions:
    """One model of TensorRT-LLM as a cache."""

    library: LibraryOptions
    name: str = "main"
    queue: int = 64
    """Jobs that may wait; further ones are refused."""
    low_water: float = 0.5
    """Share of the context that is left filled after an eviction. All of it but the beginning is computed again then,
    so that the fewer evictions the better: the tokens computed for one that leaves are as (share) to (1 - share)."""
    end_tokens: frozenset[int] = frozenset()
    """The tokens that end an answer, by the checkpoint's files."""
    stall_s: float = STALL_S
    """Seconds without a step while jobs run, until the library counts as stalled."""


def open_engine(options: TensorRTOptions, session: Session | None = None) -> TensorRTEngine:
    """Load a model; minutes. `session`: as that of `Library`. Raises: `EngineError`."""
    return TensorRTEngine(Library(options.library, session), options)


def serve_model(options: TensorRTOptions, session: Session | None = None) -> RemoteModel:
    """As `open_engine`, for a child."""
    return RemoteModel((open_engine(options, session),))


@dataclass(slots=True, eq=False)
class _Task:
    """One job. The dispatcher's, but for what `_pump` counts."""

    ticket: Ticket
    arguments: Arguments
    tokens: array[int]
    """The prompt, and what has been generated."""
    gone: tuple[Range, ...] = ()
    generation: Generation | None = None
    is_aborted: bool = False
    n_cached: int = 0
    n_new: int = 0
    n_generated: int = 0
    end_token: int | None = None
    started_s: float = 0.0
    first_s: float = 0.0
    notifier: Notifier = field(default_factory=Notifier)

    @property
    def job(self) -> Job:
        return self.ticket.job

    @property
    def n_left(self) -> int:
        return self.job.max_tokens - self.n_generated

    def post(self, *steps: Any) -> None:
        for step in steps:
            self.ticket.post(step)
        self.wake()

    def wake(self) -> None:
        self.notifier.add(self.ticket)
        self.notifier.flush()

    def abort(self) -> None:
        """Ask the library for the end; the pump reads on to it."""
        if self.generation is not None and not self.is_aborted:
            self.is_aborted = True
            self.generation.abort()


class _Mail(NamedTuple):
    work: Callable[[], object]
    done: Future[Any] | None = None
    """Gets the result, if a caller waits for it."""


class TensorRTEngine:
    """One loaded model; satisfies `Engine`."""

    def __init__(self, library: Library, options: TensorRTOptions) -> None:
        self.name = options.name
        self.n_ctx = options.library.n_ctx
        self.n_low = int(self.n_ctx * options.low_water)
        library_options = options.library
        self.gate = Gate(
            self.name, self.n_ctx, library_options.sequences, options.queue, has_grammars=library_options.has_grammars
        )
        self._options = options
        self._library = library
        self._mailbox: queue.SimpleQueue[_Mail] = queue.SimpleQueue()
        self._waiting: deque[_Task] = deque()
        self._running: list[_Task] = []
        self._conversations = Conversations()
        self._index = BlockIndex(options.library.block_size)
        self._pressure = PressureLog(self.name)
        self._n_clears = 0
        self._job_s = 0.0
        """What a job takes, on average."""
        self._totals = CacheStats(self.n_ctx)
        self._stats = self._totals
        self._published_s = time.monotonic()
        self._n_stalls = 0
        self._broken: str | None = None
        self._stalled: str | None = None
        self._stopping = False
        self._lock = threading.Lock()
        """Guards the next two."""
        self._open: set[Ticket] = set()
        self._asked: set[Future[Any]] = set()
        self._heartbeat = Heartbeat()
        self._dispatcher = threading.Thread(target=self._run, name=f"trtllm-{self.name}", daemon=True)
        self._dispatcher.start()
        self._poller = (
            EventPoller(library.fetch_events, lambda events: self._tell(partial(self._feed, events)), name=self.name)
            if options.library.n_events
            else None
        )
        self._watchdog = Watchdog(
            self._heartbeat,
            name=self.name,
            stall_s=options.stall_s,
            has_work=self._has_work,
            on_stall=self._stall,
            on_recovery=self._recover,
        )

    # -- any thread ----------------------------------------------------------------------------------------------------

    def submit(self, job: Job) -> Ticket:
        """As `Engine.submit`. Raises also: `Unsupported` that names what the library cannot do."""
        if self.down is not None:
            raise EngineDown(self.down)
        self.gate.check(job, n_waiting=len(self._waiting) + self._mailbox.qsize(), job_s=self._job_s)
        library = self._options.library
        found = arguments(
            job, is_engine=library.is_engine, end_tokens=self._options.end_tokens, version=self._library.version
        )
        ticket = Ticket(job, asyncio.get_running_loop())
        with self._lock:
            self._open.add(ticket)
        self._tell(partial(self._waiting.append, _Task(ticket, found, job.tokens[:])))
        if self._broken is not None:  # since the check above: no ticket waits for a thread that has ended
            self._refuse(self._broken)
        self._watchdog.wake()
        return ticket

    def cancel(self, ticket: Ticket) -> None:
        if ticket.cancelled or ticket.finished:
            return
        ticket.cancelled = True
        self._tell(partial(self._withdraw, ticket))

    def stats(self) -> CacheStats:
        stats = self._stats.aged(time.monotonic() - self._published_s)
        return replace(stats, stalls=self._n_stalls, quiet_s=self._watchdog.quiet_s)

    @property
    def down(self) -> str | None:
        if self._broken is None and not self._stopping and self._library.is_down:
            return f"TensorRT-LLM of cache {self.name!r} broke: its worker has ended; load the model again"
        return self._broken or self._stalled

    @property
    def used(self) -> int:
        return self._stats.used

    async def clear(self) -> None:
        """As `Engine.clear`. The library keeps the blocks until their room is needed, but no request finds them."""
        await self._call(self._clear)

    async def evict(self, job: Job, n_turns: int) -> Evicted:
        """As `Engine.evict`, but nothing is computed: the next request of the conversation does that."""
        return await evict_turns(self, job, n_turns)

    async def held(self, tokens: array[int], spans: Sequence[Span], owner: Owner, *, holes: bool) -> CachedPrefix:
        """As `Engine.held`, by the events of the cache; nothing without them."""
        return await self._call(partial(self._held, tokens, spans, owner, holes))

    async def beginning_with(
        self, tokens: array[int], owner: Owner, spans: Sequence[Span] = (), n_other: int = 0
    ) -> list[array[int]]:
        """As `Engine.beginning_with`; equal beginnings only, since nothing of another process is here."""
        return await self._call(partial(self._conversations.beginning_with, tokens, owner.name))

    async def tokens(self, seq: int, owner: str, start: int, stop: int) -> array[int]:
        return array("i")

    @property
    def is_watched(self) -> bool:
        return False

    def watch(self) -> Feed:
        """A feed without sequences: the library keeps to itself which tokens are in its blocks."""
        if self.down is not None:
            raise EngineDown(self.down)
        return Feed(asyncio.get_running_loop())

    def unwatch(self, feed: Feed) -> None:
        feed.end()

    def close(self, timeout_s: float = 30.0) -> bool:
        """As `Engine.close`. False if the library does not end in time."""
        give_up_s = time.monotonic() + timeout_s
        self._stopping = True
        self._tell(lambda: None)
        if self._broken is None:
            self._dispatcher.join(max(0.1, timeout_s / 2))
        self._watchdog.close()
        if self._poller is not None:
            self._poller.close()
        closing = threading.Thread(target=self._library.close, name=f"trtllm-close-{self.name}", daemon=True)
        closing.start()
        closing.join(max(0.1, give_up_s - time.monotonic()))
        self._dispatcher.join(max(0.1, give_up_s - time.monotonic()))  # after a break nothing has waited for it yet
        if closing.is_alive() or self._dispatcher.is_alive():
            logger.error("TensorRT-LLM of cache %r does not end and is left", self.name)
            self._refuse("the engine was stopped")
            return False
        return True

    def _tell(self, work: Callable[[], object]) -> None:
        self._mailbox.put(_Mail(work))

    async def _call(self, work: Callable[[], T]) -> T:
        if self.down is not None:
            raise EngineDown(self.down)
        done: Future[T] = Future()
        with self._lock:
            self._asked.add(done)
        self._mailbox.put(_Mail(work, done))
        if self._broken is not None:
            self._refuse(self._broken)
        self._watchdog.wake()
        return await asyncio.wrap_future(done)

    # -- the watchdog's thread -----------------------------------------------------------------------------------------

    def _has_work(self) -> bool:
        """Whether anything waits for the library; ends it all if the library's worker has ended."""
        with self._lock:
            self._open = {ticket for ticket in self._open if not ticket.finished}
            self._asked = {asked for asked in self._asked if not asked.done()}
            has_work = bool(self._open or self._asked)
        if has_work and self._broken is None and not self._stopping and self._library.is_down:
            self._broken = self.down
            logger.error("%s; %d requests end with an error", self._broken, len(self._open))
            self._refuse(self._broken or "")
            return False
        return has_work

    def _stall(self, quiet_s: float) -> None:
        doing = self._heartbeat.doing
        reason = f"TensorRT-LLM of cache {self.name!r} has made no progress for {quiet_s:.0f} s ({doing})"
        self._stalled = reason
        self._n_stalls += 1
        logger.error("%s; %d requests that wait for it end with an error", reason, len(self._open))
        self._refuse(reason)

    def _recover(self, quiet_s: float) -> None:
        logger.warning("TensorRT-LLM of cache %r has recovered after %.0f s without a step", self.name, quiet_s)
        self._stalled = None

    def _refuse(self, reason: str) -> None:
        with self._lock:
            tickets, asked = self._open.copy(), self._asked.copy()
        for ticket in tickets:
            if not ticket.finished:
                ticket.abandon(EngineDown(reason))
                self._tell(partial(self._withdraw, ticket))
        for done in asked:
            with contextlib.suppress(InvalidStateError):
                done.set_exception(EngineDown(reason))

    # -- a pump's thread -----------------------------------------------------------------------------------------------

    def _pump(self, task: _Task, generation: Generation) -> None:
        """Hand on the steps of one request, and report its end."""
        outcome: str | ShepherdError = "cancelled"
        try:
            is_first = True
            for step in generation:
                self._heartbeat.beat()
                if task.ticket.cancelled and not task.is_aborted:  # nothing reads it any more: its event loop is closed
                    self._tell(task.abort)
                if is_first:
                    is_first = False
                    self._correct(task, step)
                outcome = self._take(task, step)
        except ShepherdError as error:
            outcome = error
        except Exception as error:
            logger.exception("reading a request of cache %r failed", self.name)
            outcome = EngineError(f"reading the answer failed: {type(error).__name__}")
        self._tell(partial(self._ended, task, outcome))

    def _correct(self, task: _Task, step: LibraryStep) -> None:
        """The first step: the library knows by now what it found in its cache."""
        n_prompt = task.n_cached + task.n_new
        has_begun = bool(task.first_s)
        task.first_s = task.first_s or time.perf_counter()
        if has_begun:
            return  # the rest of an answer that was sent again
        n_cached = min(step.n_cached, n_prompt)
        if n_cached != task.n_cached:
            task.n_cached, task.n_new = n_cached, n_prompt - n_cached
            task.ticket.post(Admitted(task.n_cached, task.n_new, time.perf_counter_ns()))
        task.ticket.post(Prefill(task.n_new, task.n_new))

    def _take(self, task: _Task, step: LibraryStep) -> str:
        """Post the new tokens; how the request has ended, empty if it has not."""
        tokens, ends = step.tokens, self._options.end_tokens
        endless = task.job.sampling.ignore_eos and task.job.grammar is None
        if step.end == "stop" and tokens and tokens[-1] in ends and not endless:
            task.end_token, tokens = tokens[-1], tokens[:-1]
        tokens = tokens[: max(0, task.n_left)]
        task.tokens.extend(tokens)
        task.n_generated += len(tokens)
        if tokens:
            task.post(*(step.scores[: len(tokens)] or tokens))
        return step.end

    # -- the dispatcher ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        reason = "the engine was stopped"
        try:
            while not self._stopping or (self._running and self._broken is None):
                self._read(self._mailbox.get())
                if self._stopping:
                    self._end_all()
                elif self._broken is None:
                    self._start_waiting()
                self._publish()
        except Exception:
            logger.exception("the dispatcher of cache %r broke", self.name)
            reason = self._broken = "the engine broke and was shut down; restart Shepherd (the log says why)"
        while not (self._stopping and self._mailbox.empty()):  # no later call waits for a thread that has ended
            mail = self._mailbox.get()
            if mail.done is not None:
                with contextlib.suppress(InvalidStateError):
                    mail.done.set_exception(EngineDown(reason))
            elif self._broken is None:
                mail.work()
        self._end_all()
        self._broken = self._broken or reason
        self._refuse(reason)

    def _read(self, mail: _Mail) -> None:
        if mail.done is None:
            mail.work()
        elif not mail.done.done():
            result = mail.work()
            with contextlib.suppress(InvalidStateError):
                mail.done.set_result(result)
            self._heartbeat.beat()

    def _end_all(self) -> None:
        while self._waiting:
            self._end(self._waiting.popleft(), Done("cancelled"))
        for task in self._running:
            task.abort()

    def _withdraw(self, ticket: Ticket) -> None:
        for task in self._waiting:
            if task.ticket is ticket:
                self._waiting.remove(task)
                self._end(task, Done("cancelled"))
                return
        for task in self._running:
            if task.ticket is ticket:
                task.abort()
                return

    def _start_waiting(self) -> None:
        """Start jobs in order of arrival while there are places; background jobs when no other one waits. One that is
        drawn alone waits until nothing runs, and then nothing is started beside it."""
        while self._waiting and len(self._running) < self._options.library.sequences:
            task = next((task for task in self._waiting if not task.job.background), self._waiting[0])
            if any(task.arguments.alone or running.arguments.alone for running in self._running):
                break
            self._waiting.remove(task)
            self._heartbeat.beat()
            if task.ticket.cancelled:
                self._end(task, Done("cancelled"))
                continue
            try:
                self._start(task)
            except EngineDown as error:
                self._end(task, EngineDown(self.down or error.message))
            except ShepherdError as error:
                self._end(task, error)

    def _start(self, task: _Task) -> None:
        """Plan a prompt and send it. Raises: `ContextFull`, `EngineError`."""
        job = task.job
        task.started_s = time.perf_counter()
        gone = self._conversations.gone_of(job.tokens, job.spans, job.owner.name)
        reserve = max(1, min(job.reserve, job.max_tokens or 1))
        planned = self._plan(task, gone, reserve, job.n_turns_to_evict)
        if isinstance(planned, NoRoom):
            needed = self.n_ctx + planned.needed - planned.evictable
            raise ContextFull(needed=needed, limit=self.n_ctx, reserve=reserve, cache=self.name)
        task.n_cached = self._find(planned.tokens, job.owner)
        task.n_new = len(planned.tokens) - task.n_cached
        self._totals.jobs += 1
        self._totals.background_jobs += job.background
        task.ticket.post(Admitted(task.n_cached, task.n_new, time.perf_counter_ns()))
        self._report(task, planned)
        if job.max_tokens < 1:
            row = replace(self._row(task, 0), state="idle")
            self._conversations.keep(task.tokens, planned.gone, row)
            self._end(task, Done("length"))
            return
        self._send(task, planned)

    def _plan(self, task: _Task, gone: Sequence[Range], reserve: int, n_turns: int = 0) -> Sendable | NoRoom:
        return sendable(
            task.job, task.tokens, gone, n_ctx=self.n_ctx, n_low=self.n_low, reserve=reserve, n_turns=n_turns
        )

    def _report(self, task: _Task, planned: Sendable) -> None:
        task.gone = planned.gone
        if planned.evictions:
            left = evicted(planned.evictions)
            self._totals.count_eviction(left)
            log_eviction(planned.evictions, len(planned.tokens))
            task.ticket.post(left)
        task.post()

    def _send(self, task: _Task, planned: Sendable) -> None:
        n = len(planned.tokens)
        # The first prompt may also wait for what the library compiles at first use.
        self._heartbeat.begin(f"a prompt of {n} tokens", n / PREFILL_RATE if self._job_s else None)
        found = replace(task.arguments, salt=self._salt(task.job.owner))
        task.generation = self._library.start(planned.tokens, found, min(task.n_left, self.n_ctx - n))
        self._running.append(task)
        if self._poller is not None:
            self._poller.wake()
        pump = threading.Thread(
            target=self._pump, args=(task, task.generation), name=f"trtllm-pump-{self.name}", daemon=True
        )
        pump.start()

    def _ended(self, task: _Task, outcome: str | ShepherdError) -> None:
        """A request has ended: so has its job, or it continues with fewer turns."""
        self._running.remove(task)
        self._heartbeat.beat()
        if self._poller is not None:
            self._poller.wake()
        if outcome == "length" and self._continue(task):
            return
        now_s = time.perf_counter()
        totals = self._totals
        totals.cached_tokens += task.n_cached
        totals.prefilled_tokens += task.n_new
        totals.generated_tokens += task.n_generated
        first_s = task.first_s or now_s
        totals.prefill_s += first_s - task.started_s
        totals.generate_s += now_s - first_s
        self._job_s = 0.8 * self._job_s + 0.2 * (now_s - task.started_s)
        if task.first_s:
            n_drawn = int(task.end_token is None)  # the newest token is drawn, and computed only with the next one
            row = replace(self._row(task, 0), state="idle")
            self._conversations.keep(task.tokens, task.gone, row, n_fresh=len(task.tokens) - size(task.gone) - n_drawn)
            self._forget_fresh()  # its events may have come before its end
        if isinstance(outcome, ShepherdError):
            down = self.down  # its worker may have ended, and the watchdog has not seen it yet
            self._end(task, EngineDown(down) if down is not None else outcome)
        elif outcome == "stop":
            self._end(task, Done("end", task.end_token))
        else:
            self._end(task, Done("length" if outcome == "length" else "cancelled"))

    def _end(self, task: _Task, last: Done | ShepherdError) -> None:
        """Post the last step of a task, behind its figures."""
        self._publish(now=True)
        task.ticket.end(last)
        task.wake()

    def _continue(self, task: _Task) -> bool:
        """Send an answer that has filled the context again, with fewer turns before it; False if it ends here.

        An answer with a grammar ends: the library would begin the grammar again.
        """
        job = task.job
        if task.n_left < 1 or job.on_full != "evict" or task.arguments.guide or task.ticket.cancelled or self._stopping:
            return False
        planned = self._plan(task, task.gone, max(1, min(job.reserve, task.n_left)))
        if isinstance(planned, NoRoom) or not planned.evictions:
            return False
        self._report(task, planned)
        try:
            self._send(task, planned)
        except ShepherdError as error:
            self._running.append(task)
            self._ended(task, error)
        return True

    # -- the dispatcher: what is known of the cache --------------------------------------------------------------------

    def _feed(self, events: Sequence[Any]) -> None:
        removed = self._index.feed(events)
        self._forget_fresh(every=bool(removed.blocks))
        self._totals.removed_blocks += removed.blocks
        self._totals.removed_tokens += removed.tokens
        self._publish(now=True)
        self._pressure.note(removed)

    def _forget_fresh(self, *, every: bool = False) -> None:
        """What the events tell of is counted by them alone; `every`: no cells are sure to be there without them."""
        for known in self._conversations:
            if known.n_fresh and (every or self._index.held(known.sent) >= known.n_fresh - 1):
                known.n_fresh = 0

    def _salt(self, owner: Owner) -> str | None:
        """Owners share no blocks; nor do requests before and after `clear`."""
        return f"{self._n_clears}:{owner.name}" if owner.name or self._n_clears else None

    def _find(self, sent: array[int], owner: Owner) -> int:
        """How many leading tokens of what is sent the library has, for this owner."""
        if not self._options.library.n_events:
            return 0
        known = min(self._index.held(sent), self._conversations.shared(sent, owner.name))
        return max(known, self._conversations.fresh(sent, owner.name))

    def _held(self, tokens: array[int], spans: Sequence[Span], owner: Owner, holes: bool) -> CachedPrefix:
        gone = self._conversations.gone_of(tokens, spans, owner.name) if holes else ()
        return cached_prefix(len(tokens), gone, self._find(without(tokens, gone), owner))

    def _clear(self) -> None:
        logger.info("cache %r is cleared: %d conversations are forgotten", self.name, len(self._conversations))
        self._conversations.clear()
        self._n_clears += 1

    # -- displays ------------------------------------------------------------------------------------------------------

    def _publish(self, *, now: bool = False) -> None:
        now_s = time.monotonic()
        if self._running and not now and now_s - self._published_s < PUBLISH_S:
            return
        self._published_s = now_s
        n_cells = self._index.n_blocks * self._index.block_size or self.n_ctx
        running = tuple(self._row(task, -at) for at, task in enumerate(self._running, 1))
        idle = tuple(replace(known.row, seq=known.id, idle_s=now_s - known.ended_s) for known in self._conversations)
        late = sum(known.n_fresh - self._index.held_whole(known.sent) for known in self._conversations if known.n_fresh)
        self._stats = replace(
            self._totals, n_ctx=n_cells, used=self._index.n_tokens + late, live=len(self._running),
            waiting=len(self._waiting), sequences=(*running, *idle),
        )  # fmt: skip

    def _row(self, task: _Task, seq: int) -> SequenceStats:
        state: State = "generate" if task.first_s else "prefill"
        spent_s = time.perf_counter() - task.first_s if task.first_s else 0.0
        rate = (task.n_generated - 1) / spent_s if task.n_generated > 1 and spent_s > 0 else 0.0
        n_gone, job = size(task.gone), task.job
        return SequenceStats(
            seq, state, job.session, len(task.tokens) - n_gone, n_gone, task.n_cached, task.n_new, task.n_generated,
            rate, 0.0, job.owner.name, job.background,
        )  # fmt: skip


_proof: type[Engine] = TensorRTEngine  # it satisfies the seam
