"""A model in a child process, which is started again when it dies; this process holds its tickets and its figures.

    any thread ── submit, cancel, call ──▶ outbox ──▶ sender ─▶ socket ─▶ child
         ▲                                                                 │
         └──────── tickets, calls ◀────── reader ◀───── steps, results ────┘
                                            └─ the child has gone ─▶ restarter ─▶ the next child

A child that dies, or whose connection breaks, ends every open ticket and call with `EngineDown`, which says how it
died, and another one is started. A child that sends nothing for `frozen_s` ends them too, until it sends again; after
`hung_s` more it is killed, and so is one whose engine has stalled for as long. What comes while the next child starts
waits for it. A prompt, or a text for vectors or scores, that was computed alone when two children died is refused.
Saved conversations in host memory are in an arena, which the next child gets.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import logging
import os
import queue
import threading
import time
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from concurrent.futures import TimeoutError as StillRuns
from typing import Any, NamedTuple

from shepherd.core import EngineDown, EngineError, Evicted, InvalidRequest, ShepherdError
from shepherd.core.dataclasses import dataclass, replace
from shepherd.engine.base import CachedPrefix, Done, Engine, Job, Notifier, Owner, Span, Ticket
from shepherd.engine.kv.tiers import arena
from shepherd.engine.stats import CacheStats
from shepherd.engine.window import MOST_UNREAD, Fact, Feed, Fresh
from shepherd.engine.worker.blame import DEADLY, Blame, Suspect, name_of_call, name_of_prompt
from shepherd.engine.worker.channel import Channel
from shepherd.engine.worker.messages import (
    BEAT_S,
    Answer,
    Build,
    Call,
    Cancel,
    Close,
    End,
    Ended,
    EngineFacts,
    Failed,
    Kept,
    Logged,
    Progress,
    Ready,
    Request,
    Returned,
    Seen,
    State,
    Steps,
    Submit,
    Watch,
)
from shepherd.engine.worker.process import start
from shepherd.process.child import POLL_S, Cancelled, Child

logger = logging.getLogger(__name__)

STEP_S = 0.25
"""Seconds between two checks whether the child lives."""
LAST_S = 5.0
"""Seconds from the end of a connection to the end of its process: `mpirun` takes one or two."""
CLOSE_S = 3 * BEAT_S
"""Silence of a child that closes, until it is ended by force."""
FREE_S = 30.0
"""For a child to free its memory, and for launchers to see its end, until it is ended by force."""
LEVELS = ("", "shepherd", "shepherd.content")
"""Loggers whose levels hold in the child too."""
MOST_DEATHS = 5
"""Children that die one after the other, none of which has answered, until no further one is started."""
LONG_S = 60.0
"""A child that has worked for so long does not count as one that dies at its start."""
NO_MESSAGE = "sent what is no message of ours, and is ended"
"""Behind the name of a child, in a sentence."""

Outbox = queue.SimpleQueue[Request | None]


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long a child may take, in seconds."""

    connect_s: float = 300.0
    """From its start to its connection: the import of a large library from a slow disk."""
    build_s: float = 3600.0
    """From there until its model works: hundreds of gigabytes of weights."""
    frozen_s: float = 30.0
    """Without a message. A child sends one each second; a library may hold the interpreter for longer."""
    hung_s: float = 60.0
    """From there, or from the stall of an engine, until the child is killed."""
    mute_s: float = 3600.0
    """Without a message while the model is loaded, until the child is killed: a library may keep the interpreter."""
    term_s: float = 5.0
    """From SIGTERM to SIGKILL."""
    pause_s: float = 1.0
    """Before the second start behind a death; twice as long before each further one, up to a thousand times. The first
    start is at once."""


@dataclass(frozen=True, slots=True)
class Program:
    """What is started, the first time and again.

    command: a program that calls `host.serve`, such as `python -m shepherd.engine.worker`. factory:
    `package.module:function`, called there with `arguments`, frozen values, to make the model. environment: all of the
    child's; None = this process's. folders, tidy: as those of `process.child.Child`.
    """

    command: Sequence[str]
    factory: str
    arguments: tuple[object, ...] = ()
    environment: Mapping[str, str] | None = None
    timeouts: Timeouts = Timeouts()
    folders: Mapping[str, str] | None = None
    tidy: Callable[[str], str] = str.strip
    has_arena: bool = False
    """Saved conversations in host memory outlive a child, where the system can do that."""


@dataclass(slots=True, eq=False)
class _Job:
    """One that a child has, or will get."""

    ticket: Ticket
    engine: int
    started_s: float | None = None
    """When its first step came; None = it waits."""


class _Call(NamedTuple):
    """One that waits for its answer."""

    done: Future[Any]
    name: Callable[[], bytes] | None = None
    """Of what a function of the model computes; None: an engine only looks something up."""


class ModelProcess:
    """The child of one model, and those that follow it. Any thread."""

    def __init__(
        self,
        program: Program,
        *,
        title: str,
        is_wanted: Callable[[], bool] = lambda: True,
        report: Callable[[str, float], None] = lambda stage, fraction: None,
    ) -> None:
        """Start a child, and wait until its model works: this takes as long as loading it.

        title: such as `cache 'main'`, for messages. report: gets the progress of the first start.

        Raises: what the factory raises, if it is a `ShepherdError`; `EngineError` if the child does not come to work;
        `Cancelled` as soon as `is_wanted` returns False.
        """
        self.title = title
        self._program = program
        self._report = report
        self._lock = threading.Lock()
        """Guards what follows up to `frozen`: nothing is added that nothing ends."""
        self._outbox: Outbox = queue.SimpleQueue()
        """Of the child, or of the next one."""
        self._jobs: dict[int, _Job] = {}
        self._calls: dict[int, _Call] = {}
        self._feeds: dict[int, tuple[int, Feed]] = {}
        """By number, an engine and its feed; the next child goes on with each."""
        self._down: str | None = None
        """Why it computes nothing: the child has gone."""
        self._is_starting = False
        """The next child starts: what comes now waits for it."""
        self.frozen: str | None = None
        """Why it computes nothing: it is silent."""
        self._closing = threading.Event()
        self._numbers = itertools.count(1)
        self.notifier = Notifier()
        self._job_s: dict[int, float] = {}
        """Engine -> what a job takes, on average."""
        self._blame = Blame()
        self._n_deaths = self._n_quick = 0
        """One after the other, without an answer between them: of children that computed or were made, and of all."""
        self.n_restarts = 0
        self._restarter: threading.Thread | None = None
        self._arena = arena.create() if program.has_arena and arena.IS_POSSIBLE else None
        self._regions: dict[str, arena.Region] = {}
        self.closed: set[int] = set()
        """Engines that have been told to close."""
        try:
            self._link, ready = self._start(is_wanted)
        except BaseException:
            self._free_arena()
            raise
        self._report = lambda stage, fraction: None  # nobody watches later starts
        self.facts: object = ready.facts
        self._before = dict.fromkeys(self._link.states, CacheStats(0))
        """The totals of the children that have died, by engine."""
        self.engines: tuple[EngineFacts, ...] = ready.engines
        self._link.run()

    @property
    def pid(self) -> int:
        return self._link.child.pid

    @property
    def down(self) -> str | None:
        beside = self._link.states.get(None)
        return self._down or self.frozen or (beside and beside[0].down)

    def ending(self) -> str:
        """How the last child ended."""
        return self._link.child.ending()

    def state(self, engine: int) -> State:
        """The last state of an engine."""
        return self._link.states[engine][0]

    def stats(self, engine: int | None) -> CacheStats:
        """The figures of an engine, or of a model without one, with the totals of all children."""
        with self._lock:
            return replace(self._total(engine), restarts=self.n_restarts)

    def _total(self, engine: int | None) -> CacheStats:
        state, at_s = self._link.states[engine]
        return state.stats.aged(time.monotonic() - at_s).after(self._before[engine])

    # -- asking --------------------------------------------------------------------------------------------------------

    def submit(self, engine: int, job: Job) -> Ticket:
        """As `Engine.submit`."""
        with self._lock:
            self._check(engine)
            if self._blame.is_deadly(lambda: name_of_prompt(job)):
                raise InvalidRequest(
                    f"this prompt has ended the process of the engine of cache {self.engines[engine].gate.name!r} "
                    f"{DEADLY:g} times, and is not computed again; change it, or use another model"
                )
            n_waiting = sum(each.engine == engine and each.started_s is None for each in self._jobs.values())
            self.engines[engine].gate.check(job, n_waiting=n_waiting, job_s=self._job_s.get(engine, 0.0))
            number = next(self._numbers)
            ticket = Ticket(job, asyncio.get_running_loop())
            self._jobs[number] = _Job(ticket, engine)
            self._outbox.put(Submit(number, engine, job))
        return ticket

    def cancel(self, ticket: Ticket) -> None:
        if ticket.cancelled or ticket.finished:
            return
        ticket.cancelled = True
        with self._lock:
            number = next((number for number, each in self._jobs.items() if each.ticket is ticket), None)
        if number is not None:
            self._outbox.put(Cancel(number))

    def watch(self, engine: int) -> Feed:
        """As `Engine.watch`."""
        feed = Feed(asyncio.get_running_loop())
        with self._lock:
            self._check(engine)
            number = next(self._numbers)
            self._feeds[number] = engine, feed
            self._outbox.put(Watch(number, engine))
        return feed

    def is_watched(self, engine: int) -> bool:
        return any(each == engine for each, _ in list(self._feeds.values()))

    def unwatch(self, feed: Feed) -> None:
        feed.end()
        with self._lock:
            for number in [number for number, (_, each) in self._feeds.items() if each is feed]:
                del self._feeds[number]
                self._outbox.put(Cancel(number))

    async def ask(self, engine: int, method: str, *arguments: object, **keywords: object) -> Any:
        """Call a method of an engine. Raises: what it raises; `EngineDown`."""
        number, done = self._call(engine, method, arguments, keywords)
        try:
            return await asyncio.wrap_future(done)
        finally:
            self._give_up(number)

    def call(
        self, method: str, *arguments: object, is_wanted: Callable[[], bool] = lambda: True, **keywords: object
    ) -> Any:
        """Call a function of the model; blocks. Raises: what it raises; `EngineDown`; `Cancelled` as soon as
        `is_wanted` returns False; `InvalidRequest` for arguments that have ended two children."""
        name = functools.cache(lambda: name_of_call(method, arguments, keywords))
        if self._blame.is_deadly(name):
            raise InvalidRequest(
                f"this input has ended the process of the engine of {self.title} {DEADLY:g} times, and is not computed "
                "again; change it, or use another model"
            )
        number, done = self._call(None, method, arguments, keywords, name)
        try:
            while True:
                try:
                    value = done.result(POLL_S)
                except StillRuns:
                    if not is_wanted():
                        raise Cancelled from None
                else:
                    self._answers(name)
                    return value
        finally:
            if number in self._calls:  # it stays known until the child answers: it may be to blame for what happens
                self._outbox.put(Cancel(number))

    def _call(
        self,
        engine: int | None,
        method: str,
        arguments: tuple[object, ...],
        keywords: Mapping[str, object],
        name: Callable[[], bytes] | None = None,
    ) -> tuple[int, Future[Any]]:
        done: Future[Any] = Future()
        with self._lock:
            self._check(engine)
            number = next(self._numbers)
            self._calls[number] = _Call(done, name)
            self._outbox.put(Call(number, engine, method, arguments, keywords))
        return number, done

    def _give_up(self, number: int) -> None:
        if self._calls.pop(number, None) is not None:  # nothing waits for it any more
            self._outbox.put(Cancel(number))

    def _check(self, engine: int | None) -> None:
        """Raises: `EngineDown`. The caller holds the lock."""
        down = "the engine was stopped" if self._closing.is_set() or engine in self.closed else self.down
        if down is None and engine is not None:
            down = self._link.states[engine][0].down
        if down is not None and not (self._is_starting and down == self._down):
            raise EngineDown(down)

    # -- closing -------------------------------------------------------------------------------------------------------

    def close_engine(self, engine: int, timeout_s: float) -> bool:
        """As `Engine.close`; behind the last engine, as `close`."""
        with self._lock:
            is_first, done = engine not in self.closed, Future[Any]()
            self.closed.add(engine)
            number, link = next(self._numbers), self._link
            is_last = len(self.closed) == len(self.engines)
            if is_last:
                self._closing.set()  # no further child
            if is_first and self._down is None:
                self._calls[number] = _Call(done)
                self._outbox.put(Close(number, engine, timeout_s))
        link.quiet_s = 0.0
        left_s, is_closed = timeout_s, True
        while number in self._calls and link.reader.is_alive():
            try:
                is_closed = done.result(STEP_S)
                break
            except StillRuns:
                left_s -= 0 if link.states[engine][0].is_saving else STEP_S
                if left_s <= 0 or link.quiet_s >= CLOSE_S:
                    is_closed = False
                    break
            except EngineDown:
                break
        self._calls.pop(number, None)
        if is_last:
            return self.close(in_order=is_closed)
        return is_closed

    def close(self, *, in_order: bool = True) -> bool:
        """End the child and all that it has started, by force if need be. Twice is allowed.

        False only if the system does not end a killed process.
        """
        self._closing.set()
        if self._restarter is not None:
            self._restarter.join()
        link = self._link
        has_ended = link.close(in_order=in_order)
        with self._lock:
            self._down = self._down or "the engine was stopped"
            for _, feed in self._feeds.values():
                feed.end()
        self._free_arena()
        return has_ended

    def _free_arena(self) -> None:
        if self._arena is not None:
            os.close(self._arena)
            self._arena = None

    # -- starting ------------------------------------------------------------------------------------------------------

    def _start(self, is_wanted: Callable[[], bool]) -> tuple[_Link, Ready]:
        program = self._program
        child, connection = start(
            program.command,
            os.environ if program.environment is None else program.environment,
            title=self.title,
            connect_s=program.timeouts.connect_s,
            is_wanted=is_wanted,
            folders=program.folders or {},
            tidy=program.tidy,
        )
        link = _Link(self, child, Channel(connection), self._outbox, program.timeouts)
        try:
            levels = {each: logging.getLogger(each).getEffectiveLevel() for each in LEVELS}
            regions = dict(self._regions) if self._arena is not None else None
            with contextlib.suppress(OSError):  # it has gone already: what waits for it says how
                link.channel.send([Build(program.factory, program.arguments, levels, regions)])
                if self._arena is not None:
                    link.channel.send_handle(self._arena)
            return link, self._await_ready(link, is_wanted)
        except BaseException:
            link.channel.close()
            child.end(program.timeouts.term_s)
            raise

    def _await_ready(self, link: _Link, is_wanted: Callable[[], bool]) -> Ready:
        timeouts, quiet_s = self._program.timeouts, 0.0
        gives_up = time.monotonic() + timeouts.build_s
        ready: Ready | None = None
        try:
            while True:
                if not is_wanted():
                    raise Cancelled
                began_s = time.monotonic()
                if link.channel.poll(POLL_S):
                    for answer in itertools.chain.from_iterable(link.channel.arrived()):
                        quiet_s, began_s = 0.0, time.monotonic()
                        match answer:
                            case Ready():
                                ready = answer
                            case Progress(stage, fraction):
                                self._report(stage, fraction)
                            case Failed(_, error):
                                raise error
                            case _:
                                link.take_plain(answer)
                    if ready is not None and len(link.states) == max(1, len(ready.engines)):
                        return ready
                elif link.child.wait():
                    break
                if time.monotonic() > gives_up:
                    raise EngineError(
                        f"the process of the engine of {self.title} was not ready after {timeouts.build_s:g} s"
                    )
                quiet_s += min(POLL_S, time.monotonic() - began_s)
                if quiet_s >= timeouts.mute_s:
                    raise EngineError(
                        f"the process of the engine of {self.title} has sent nothing for {quiet_s:.0f} s while it "
                        "loaded the model, and is ended"
                    )
        except (EOFError, OSError):
            link.child.wait(LAST_S)
        except (ShepherdError, Cancelled):
            raise
        except Exception as error:  # what it has sent is no message, or not one that may come now
            logger.exception("an answer of the engine process of %s cannot be read", self.title)
            raise EngineError(f"the process of the engine of {self.title} {NO_MESSAGE}") from error
        raise EngineError(f"the process of the engine of {self.title} {link.child.ending()}")

    def lost(self, link: _Link) -> None:
        """The reader's last act: say why, end all that waits, and let the next child start."""
        if not link.fault:
            link.child.wait(LAST_S)
        if self._closing.is_set():
            reason = "the engine was stopped"
        else:
            reason = f"the process of the engine of {self.title} {link.fault or link.child.ending()}"
            logger.error("%s", reason)
        with self._lock:
            is_last = self._closing.is_set()
            was_computing = self._blame.note(self._suspects([*self._jobs, *self._calls]))
            if time.monotonic() - link.began_s > LONG_S:
                self._n_deaths = self._n_quick = 0
            if not was_computing:
                self._n_deaths = 0
            self._down, self.frozen = reason, None
            self._is_starting = not is_last and self._n_quick == 0
            numbers = self._emptied()
        self._end(numbers, EngineDown(reason))
        link.leave()
        if not is_last:
            link.child.end()
            self._restarter = threading.Thread(
                target=self._restart, args=(reason,), name="worker-restarter", daemon=True
            )
            self._restarter.start()

    def _restart(self, reason: str) -> None:
        """The restarter's thread: start children until one works."""
        while self._n_deaths < MOST_DEATHS:
            pause_s = self._program.timeouts.pause_s * 2.0 ** min(self._n_quick - 1, 10) if self._n_quick else 0.0
            self._n_deaths += 1
            self._n_quick += 1
            if self._closing.wait(pause_s):
                return
            self._is_starting = True
            logger.warning("the process of the engine of %s is started again", self.title)
            try:
                link, _ = self._start(lambda: not self._closing.is_set())
            except Cancelled:
                return
            except (ShepherdError, OSError) as error:
                reason = str(error)
                logger.error("the process of the engine of %s does not start again: %s", self.title, reason)  # noqa: TRY400
                self._regions.clear()  # they may be why
                self._refuse(reason)
                continue
            with self._lock:
                for engine in self._before:
                    self._before[engine] = CacheStats(0).after(self._total(engine))
                self._link, self._down, self._is_starting = link, None, False
                self.n_restarts += 1
            link.run()
            logger.warning("the process of the engine of %s works again", self.title)
            return
        self._refuse(
            f"{reason}; {MOST_DEATHS} processes one after the other have died before they answered, and no further one "
            "is started: look at the log, at 'shepherd doctor' and at the memory that is free, and start Shepherd again"
        )
        logger.error("%s", self._down)

    def _refuse(self, reason: str) -> None:
        with self._lock:
            self._down, self._is_starting = reason, False
            numbers = self._emptied()
        self._end(numbers, EngineDown(reason))

    def _emptied(self) -> list[int]:
        """All that waits for the child that has gone; nothing of it is for the next one. The caller holds the lock."""
        self._outbox = queue.SimpleQueue()
        for number, (engine, feed) in self._feeds.items():
            feed.post([Fresh()])
            self._outbox.put(Watch(number, engine))
        return [*self._jobs, *self._calls]

    # -- what the readers tell -----------------------------------------------------------------------------------------

    def post(self, number: int, steps: list[Any]) -> None:
        if (known := self._jobs.get(number)) is None:
            return
        ticket = known.ticket
        for step in steps:
            ticket.post(step)
        known.started_s = known.started_s or time.monotonic()
        if type(steps[-1]) is Done:
            self._answered(number, known, steps[-1])
        elif ticket.cancelled and ticket.loop.is_closed():  # nothing will read it
            self._outbox.put(Cancel(number))
        self.notifier.add(ticket)

    def _answered(self, number: int, known: _Job, last: Done) -> None:
        took_s = time.monotonic() - (known.started_s or 0.0)
        self._job_s[known.engine] = 0.8 * self._job_s.get(known.engine, 0.0) + 0.2 * took_s
        if last.reason != "cancelled":
            self._answers(lambda: name_of_prompt(known.ticket.job))
        self._forget(number)

    # -- what has ended a child ----------------------------------------------------------------------------------------

    def _answers(self, name: Callable[[], bytes]) -> None:
        """An answer has come: the child works, and this is not what ends it."""
        self._n_deaths = self._n_quick = 0
        self._blame.clear(name)

    def _suspects(self, numbers: Iterable[int]) -> list[Suspect]:
        """Of these jobs and calls."""
        found = []
        for number in numbers:
            if (job := self._jobs.get(number)) is not None:
                # The images of a job that waits may be encoded beside the jobs that run.
                is_computed = job.started_s is not None or bool(job.ticket.job.media)
                found.append(Suspect(name_of_prompt(job.ticket.job), is_computed))
            elif (call := self._calls.get(number)) is not None and call.name is not None:
                found.append(Suspect(call.name(), is_computed=True))
        return found

    def stalled(self, number: int) -> None:
        """An engine of the child has given up a job, since it stands still."""
        with self._lock:
            self._blame.stall(self._suspects([number]))

    def works(self) -> None:
        """No engine of the child stands still."""
        if self.frozen is None:
            self._blame.recover()

    def seen(self, number: int, facts: list[Fact]) -> None:
        if (known := self._feeds.get(number)) is None:
            return
        feed = known[1]
        if feed.n_unread > MOST_UNREAD:  # it is not read: the child shows all of it again
            with self._lock:
                if self._feeds.pop(number, None) is None:
                    return
                number, old = next(self._numbers), number
                self._feeds[number] = known
                self._outbox.put(Cancel(old))
                self._outbox.put(Watch(number, known[0]))
            return
        feed.post(facts)

    def returned(self, number: int, value: Any) -> None:
        if (call := self._calls.pop(number, None)) is not None:
            with contextlib.suppress(InvalidStateError):  # cancelled
                call.done.set_result(value)
        else:
            self._end_feed(number)

    def _end_feed(self, number: int) -> None:
        """The engine shows nothing more: it is over, or down."""
        with self._lock:
            known = self._feeds.pop(number, None)
        if known is not None:
            known[1].end()

    def fail(self, number: int, error: ShepherdError) -> None:
        if (known := self._jobs.get(number)) is not None:
            known.ticket.fail(error)
            self._forget(number)
            self.notifier.add(known.ticket)
        elif (call := self._calls.pop(number, None)) is not None:
            with contextlib.suppress(InvalidStateError):
                call.done.set_exception(error)
        else:
            self._end_feed(number)

    def _forget(self, number: int) -> None:
        with self._lock:
            del self._jobs[number]

    def keep(self, key: str, region: arena.Region | None) -> None:
        if region is None:
            self._regions.pop(key, None)
        else:
            self._regions[key] = region

    def freeze(self, quiet_s: float) -> None:
        reason = f"the process of the engine of {self.title} has sent nothing for {quiet_s:.0f} s"
        logger.error("%s; the requests that wait for it end with an error, and so do new ones until it sends", reason)
        with self._lock:
            self.frozen = reason
            for number in self._jobs:
                self._outbox.put(Cancel(number))
            numbers = [*self._jobs, *self._calls]
            self._blame.freeze(self._suspects(numbers))
        self._end(numbers, EngineDown(reason))

    def thaw(self) -> None:
        if self.frozen is not None:
            logger.warning("the process of the engine of %s sends again", self.title)
            self.frozen = None

    def _end(self, numbers: Sequence[int], error: EngineDown) -> None:
        for number in numbers:
            self.fail(number, error)
        self.notifier.flush()


class _Link:
    """One child and the connection to it, with the threads that send and read."""

    def __init__(self, owner: ModelProcess, child: Child, channel: Channel, outbox: Outbox, timeouts: Timeouts) -> None:
        self.child = child
        self.channel = channel
        self.began_s = time.monotonic()
        self.states: dict[int | None, tuple[State, float]] = {}
        """By engine, its last state and when it came."""
        self.quiet_s = 0.0
        """Since the last whole message, in the reader's own steps: a sleeping machine does not count."""
        self._owner = owner
        self._outbox = outbox
        self._timeouts = timeouts
        self._stalled_s = 0.0
        """Since when one of its engines has been down; 0 = all work."""
        self._is_ending = self._has_ended = False
        self.fault = ""
        """Why it is ended although it runs."""
        self._sender = threading.Thread(target=self._send, name=f"worker-sender-{child.pid}", daemon=True)
        self.reader = threading.Thread(target=self._read, name=f"worker-reader-{child.pid}", daemon=True)

    def run(self) -> None:
        self._sender.start()
        self.reader.start()

    def close(self, *, in_order: bool) -> bool:
        """End the child; whether it has gone. Twice is allowed."""
        if not self._is_ending and self.reader.is_alive() and in_order:
            self._is_ending = True
            self.quiet_s, gives_up = 0.0, time.monotonic() + FREE_S
            self._outbox.put(End())
            while self.reader.is_alive() and self.quiet_s < CLOSE_S and time.monotonic() < gives_up:
                self.reader.join(STEP_S)
        if not self.child.wait():
            logger.error("the engine process of %s does not end; it is ended by force", self._owner.title)
        has_gone = self.child.end(self._timeouts.term_s)
        self.channel.hang_up()
        self._outbox.put(None)
        for thread in (self.reader, self._sender):
            if thread.is_alive():
                thread.join()
        self.channel.close()
        return has_gone

    def leave(self) -> None:
        """The child has gone."""
        self.channel.hang_up()
        self._outbox.put(None)
        self._sender.join()
        self.channel.close()

    # -- the sender's thread -------------------------------------------------------------------------------------------

    def _send(self) -> None:
        """Send what is in the outbox, all of it together; a child that is frozen may block it."""
        try:
            while (request := self._outbox.get()) is not None:
                requests = [request]
                with contextlib.suppress(queue.Empty):
                    while (request := self._outbox.get_nowait()) is not None:
                        requests.append(request)
                self.channel.send(requests)
                if request is None:
                    return
        except OSError:
            self.channel.hang_up()  # the reader says why
        except Exception:  # a request that cannot be sent: a bug
            logger.exception("a request to the engine process of %s cannot be sent", self._owner.title)
            self.channel.hang_up()

    # -- the reader's thread -------------------------------------------------------------------------------------------

    def _read(self) -> None:
        try:
            while True:
                began_s = time.monotonic()
                if self.channel.poll(STEP_S):
                    for answers in self.channel.arrived():
                        self.quiet_s, began_s = 0.0, time.monotonic()
                        self._owner.thaw()
                        for answer in answers:
                            self._take(answer)
                    self._owner.notifier.flush()
                elif self.child.wait():
                    break
                self.quiet_s += min(STEP_S, time.monotonic() - began_s)
                self._watch()
                self._watch_engines()
        except (EOFError, OSError):
            pass
        except Exception:  # an answer that cannot be read
            logger.exception("an answer of the engine process of %s cannot be read", self._owner.title)
            self.fault = NO_MESSAGE
        self._owner.lost(self)

    def _take(self, answer: Answer) -> None:
        match answer:
            case Steps(number, steps):
                self._owner.post(number, steps)
            case Failed(number, error):
                if isinstance(error, EngineDown):
                    self._owner.stalled(number)
                self._owner.fail(number, error)
            case Seen(number, facts):
                self._owner.seen(number, facts)
            case Returned(number, value):
                self._owner.returned(number, value)
            case Ended():
                self._has_ended = True
            case _:
                self.take_plain(answer)

    def take_plain(self, answer: Answer) -> None:
        """What may come before the model works, too."""
        match answer:
            case State(engine):
                self.states[engine] = answer, time.monotonic()
            case Kept(key, region):
                self._owner.keep(key, region)
            case Logged(name, level, text):
                logging.getLogger(name).log(level, "%s", text)

    def _watch(self) -> None:
        """Note a silent child, and kill one that does not come back."""
        if self._has_ended:
            return
        if self.quiet_s >= self._timeouts.frozen_s and self._owner.frozen is None:
            self._owner.freeze(self.quiet_s)
        if self.quiet_s >= self._timeouts.frozen_s + self._timeouts.hung_s:
            self._kill("does not come back")

    def _watch_engines(self) -> None:
        """Kill a child whose engine has stalled, or is broken, for long: a new one computes again."""
        is_down = any(state.down is not None for state, _ in self.states.values())
        now_s = time.monotonic()
        self._stalled_s = (self._stalled_s or now_s) if is_down and not self._owner.closed else 0.0
        if self._stalled_s and now_s - self._stalled_s >= self._timeouts.hung_s:
            self._kill("has an engine that does not work again")
        if not is_down:
            self._owner.works()

    def _kill(self, why: str) -> None:
        logger.error("the process of the engine of %s %s, and is killed", self._owner.title, why)
        self.child.end()


class ChildEngine:
    """An engine in a child; satisfies `Engine`. It stays the same when the child is started again."""

    def __init__(self, process: ModelProcess, index: int = 0) -> None:
        self.process = process
        self._index = index
        self.gate, self.n_low = process.engines[index]
        self.name, self.n_ctx = self.gate.name, self.gate.n_ctx

    def submit(self, job: Job) -> Ticket:
        return self.process.submit(self._index, job)

    def cancel(self, ticket: Ticket) -> None:
        self.process.cancel(ticket)

    def stats(self) -> CacheStats:
        return self.process.stats(self._index)

    @property
    def down(self) -> str | None:
        return self.process.down or self.process.state(self._index).down

    @property
    def used(self) -> int:
        return self.process.state(self._index).stats.used

    async def clear(self) -> None:
        await self.process.ask(self._index, "clear")

    async def evict(self, job: Job, n_turns: int) -> Evicted:
        evicted: Evicted = await self.process.ask(self._index, "evict", job, n_turns)
        return evicted

    async def held(self, tokens: array[int], spans: Sequence[Span], owner: Owner, *, holes: bool) -> CachedPrefix:
        found: CachedPrefix = await self.process.ask(self._index, "held", tokens, spans, owner, holes=holes)
        return found

    async def beginning_with(
        self, tokens: array[int], owner: Owner, spans: Sequence[Span] = (), n_other: int = 0
    ) -> list[array[int]]:
        found: list[array[int]] = await self.process.ask(self._index, "beginning_with", tokens, owner, spans, n_other)
        return found

    async def tokens(self, seq: int, owner: str, start: int, stop: int) -> array[int]:
        found: array[int] = await self.process.ask(self._index, "tokens", seq, owner, start, stop)
        return found

    @property
    def is_watched(self) -> bool:
        return self.process.is_watched(self._index)

    def watch(self) -> Feed:
        return self.process.watch(self._index)

    def unwatch(self, feed: Feed) -> None:
        self.process.unwatch(feed)

    def close(self, timeout_s: float = 30.0) -> bool:
        """As `Engine.close`. Behind the last engine the child and all that it has started end, by force if need be;
        False only if the system does not end a killed process."""
        return self.process.close_engine(self._index, timeout_s)


_proof: type[Engine] = ChildEngine  # it satisfies the seam
