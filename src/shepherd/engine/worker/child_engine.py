"""An engine in a child process; this process holds its tickets and the figures that the child pushes.

    event loop ── submit, cancel, held ... ──▶ outbox ──▶ sender ─▶ socket ─▶ child
         ▲                                                                     │
         └──────────── tickets, calls ◀──────── reader ◀───── steps, results ──┘

A child that dies, or whose connection breaks, ends every open ticket and call with `EngineDown`, which says how it
died. A child that sends nothing for `frozen_s` does the same until it sends again; a stall of the engine itself is
found in the child, by the engine's own watchdog.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import queue
import socket
import threading
import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass
from typing import Any

from shepherd.core import EngineDown, EngineError, Evicted, ShepherdError
from shepherd.engine.base import CachedPrefix, Done, Engine, Job, Owner, Span, Ticket
from shepherd.engine.notifier import Notifier
from shepherd.engine.stats import CacheStats
from shepherd.engine.worker.messages import (
    BEAT_S,
    Answer,
    Build,
    Call,
    Cancel,
    Close,
    Closed,
    Failed,
    Logged,
    Ready,
    Request,
    Returned,
    State,
    Steps,
    Submit,
)
from shepherd.engine.worker.process import as_socket, start
from shepherd.process.child import POLL_S, Cancelled

logger = logging.getLogger(__name__)

STEP_S = 0.25
"""Seconds between two checks whether the child lives."""
LAST_S = 5.0
"""Seconds from the end of a connection to the end of its process: `mpirun` takes one or two."""
CLOSE_S = 3 * BEAT_S
"""Silence of a child that closes, until it is ended by force."""
LEVELS = ("", "shepherd", "shepherd.content")
"""Loggers whose levels hold in the child too."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long a child may take, in seconds."""

    connect_s: float = 300.0
    """From its start to its connection: the import of a large library from a slow disk."""
    build_s: float = 3600.0
    """From there until its engine works: hundreds of gigabytes of weights."""
    frozen_s: float = 30.0
    """Without a message. A child sends one each second; a library may hold the interpreter for longer."""
    term_s: float = 5.0
    """From SIGTERM to SIGKILL."""


class ChildEngine:
    """An engine in a child; satisfies `Engine`."""

    def __init__(
        self,
        command: Sequence[str],
        factory: str,
        *arguments: object,
        name: str = "main",
        environment: Mapping[str, str] | None = None,
        timeouts: Timeouts = Timeouts(),
        is_wanted: Callable[[], bool] = lambda: True,
        folders: Mapping[str, str] = {},
        tidy: Callable[[str], str] = str.strip,
    ) -> None:
        """Start a child, and wait until its engine works: this takes as long as loading the model.

        command: a program that calls `host.serve`, such as `python -m shepherd.engine.worker`. factory:
        `package.module:function`, called there with `arguments`, frozen values, to make the engine. environment: all of
        the child's; None = this process's. folders: variables that name a place for temporary files, and the usual
        place; each names a folder of the child's own in that place (or where the environment says), which is removed
        when the child and all that it has started have ended. tidy: makes the child's last words fit for a sentence.

        Raises: what the factory raises, if it is a `ShepherdError`; `EngineError` if the child does not come to work;
        `Cancelled` as soon as `is_wanted` returns False.
        """
        self.name = name
        self._timeouts = timeouts
        self._down: str | None = None
        """Why it never works again."""
        self._frozen: str | None = None
        self._state = State(CacheStats(0), None)
        self._state_s = time.monotonic()
        self._job_s = 0.0
        """What a job takes, on average."""
        self._quiet_s = 0.0
        """Since the last message, in the reader's own steps: a sleeping machine does not count."""
        self._is_closing = self._is_closed = False
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        """Guards the next three, and `_down` and `_frozen` together with them: nothing is added that nothing ends."""
        self._tickets: dict[int, Ticket] = {}
        self._calls: dict[int, Future[Any]] = {}
        self._waiting: dict[int, float | None] = {}
        """Job -> when it started; None = it waits."""
        self._notifier = Notifier()
        self._outbox: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        self._child, self._connection = start(
            command,
            os.environ if environment is None else environment,
            connect_s=timeouts.connect_s,
            is_wanted=is_wanted,
            folders=folders,
            tidy=tidy,
        )
        try:
            levels = {each: logging.getLogger(each).getEffectiveLevel() for each in LEVELS}
            self._connection.send([Build(factory, arguments, levels)])
            ready = self._await_ready(is_wanted)
        except BaseException:
            self._connection.close()
            self._child.end(timeouts.term_s)
            raise
        self.gate = ready.gate
        self.name, self.n_ctx, self.n_low = ready.gate.name, ready.gate.n_ctx, ready.n_low
        self._sender = threading.Thread(target=self._send, name=f"worker-sender-{self.name}", daemon=True)
        self._reader = threading.Thread(target=self._read, name=f"worker-reader-{self.name}", daemon=True)
        self._sender.start()
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._child.pid

    # -- any thread ----------------------------------------------------------------------------------------------------

    def submit(self, job: Job) -> Ticket:
        with self._lock:
            if (down := self.down) is not None:
                raise EngineDown(down)
            n_waiting = sum(started is None for started in self._waiting.values())
            self.gate.check(job, n_waiting=n_waiting, job_s=self._job_s)
            number = next(self._numbers)
            self._tickets[number] = ticket = Ticket(job, asyncio.get_running_loop())
            self._waiting[number] = None
            self._outbox.put(Submit(number, job))
        return ticket

    def cancel(self, ticket: Ticket) -> None:
        if ticket.cancelled or ticket.finished:
            return
        ticket.cancelled = True
        with self._lock:
            number = next((number for number, each in self._tickets.items() if each is ticket), None)
        if number is not None:
            self._outbox.put(Cancel(number))

    def stats(self) -> CacheStats:
        return self._state.stats.aged(time.monotonic() - self._state_s)

    @property
    def down(self) -> str | None:
        return self._down or self._frozen or self._state.down

    @property
    def used(self) -> int:
        return self._state.stats.used

    async def clear(self) -> None:
        await self._call("clear")

    async def evict(self, job: Job, n_turns: int) -> Evicted:
        evicted: Evicted = await self._call("evict", job, n_turns)
        return evicted

    async def held(self, tokens: array[int], spans: Sequence[Span], owner: Owner, *, holes: bool) -> CachedPrefix:
        found: CachedPrefix = await self._call("held", tokens, spans, owner, holes=holes)
        return found

    async def beginning_with(
        self, tokens: array[int], owner: Owner, spans: Sequence[Span] = (), n_other: int = 0
    ) -> list[array[int]]:
        found: list[array[int]] = await self._call("beginning_with", tokens, owner, spans, n_other)
        return found

    async def _call(self, method: str, *arguments: object, **keywords: object) -> Any:
        done: Future[Any] = Future()
        with self._lock:
            if (down := self.down) is not None:
                raise EngineDown(down)
            number = next(self._numbers)
            self._calls[number] = done
            self._outbox.put(Call(number, method, arguments, keywords))
        try:
            return await asyncio.wrap_future(done)
        finally:
            if self._calls.pop(number, None) is not None:  # nothing waits for it any more
                self._outbox.put(Cancel(number))

    def close(self, timeout_s: float = 30.0) -> bool:
        """As `Engine.close`; then the child and all that it has started have ended, by force if need be.

        False only if the system does not end a killed process.
        """
        with self._lock:
            is_first, self._is_closing = not self._is_closing, True
        if not is_first:
            return self._child.end(0.0)
        self._quiet_s = 0.0
        self._outbox.put(Close(timeout_s))
        gives_up = time.monotonic() + timeout_s
        while self._reader.is_alive() and time.monotonic() < gives_up:
            self._reader.join(STEP_S)
            if self._quiet_s >= CLOSE_S and not self._is_closed:
                break
        if not self._child.wait():
            logger.error("the engine process of cache %r does not end; it is ended by force", self.name)
        has_ended = self._child.end(self._timeouts.term_s)
        self._hang_up()
        self._outbox.put(None)
        self._reader.join()
        self._sender.join()
        self._connection.close()
        return has_ended

    # -- the sender's thread -------------------------------------------------------------------------------------------

    def _send(self) -> None:
        """Send what is in the outbox, all of it together; a child that is frozen may block it."""
        try:
            while (request := self._outbox.get()) is not None:
                requests = [request]
                with contextlib.suppress(queue.Empty):
                    while (request := self._outbox.get_nowait()) is not None:
                        requests.append(request)
                self._connection.send(requests)
                if request is None:
                    return
        except OSError:
            self._hang_up()  # the reader says why
        except Exception:  # a request that cannot be sent: a bug
            logger.exception("a request to the engine process of cache %r cannot be sent", self.name)
            self._hang_up()

    # -- the reader's thread -------------------------------------------------------------------------------------------

    def _read(self) -> None:
        try:
            while True:
                if self._connection.poll(STEP_S):
                    answers: list[Answer] = self._connection.recv()
                    self._quiet_s = 0.0
                    if self._frozen is not None:
                        self._thaw()
                    self._take(answers)
                elif self._child.wait():
                    break
                else:
                    self._quiet_s += STEP_S
                    if self._quiet_s >= self._timeouts.frozen_s and self._frozen is None and not self._is_closed:
                        self._freeze()
        except (EOFError, OSError):
            pass
        except Exception:  # an answer that cannot be read: a bug
            logger.exception("an answer of the engine process of cache %r cannot be read", self.name)
        self._lose()

    def _take(self, answers: list[Answer]) -> None:
        for answer in answers:
            match answer:
                case Steps(number, steps):
                    self._post(number, steps)
                case State():
                    self._state, self._state_s = answer, time.monotonic()
                case Failed(number, error):
                    self._fail(number, error)
                case Returned(number, value):
                    if (done := self._calls.pop(number, None)) is not None:
                        with contextlib.suppress(InvalidStateError):  # cancelled
                            done.set_result(value)
                case Closed():
                    self._is_closed = True
                case Logged() | Ready():
                    _log(answer)
        self._notifier.flush()

    def _post(self, number: int, steps: list[Any]) -> None:
        ticket = self._tickets.get(number)
        if ticket is None:
            return
        for step in steps:
            ticket.post(step)
        if self._waiting.get(number) is None:
            self._waiting[number] = time.monotonic()
        if type(steps[-1]) is Done:
            self._job_s = 0.8 * self._job_s + 0.2 * (time.monotonic() - (self._waiting[number] or 0.0))
            self._forget(number)
        elif ticket.cancelled and ticket.loop.is_closed():  # nothing will read it
            self._outbox.put(Cancel(number))
        self._notifier.add(ticket)

    def _fail(self, number: int, error: ShepherdError) -> None:
        if (ticket := self._tickets.get(number)) is not None:
            ticket.fail(error)
            self._forget(number)
            self._notifier.add(ticket)
        elif (done := self._calls.pop(number, None)) is not None:
            with contextlib.suppress(InvalidStateError):
                done.set_exception(error)

    def _forget(self, number: int) -> None:
        with self._lock:
            del self._tickets[number], self._waiting[number]

    def _freeze(self) -> None:
        reason = f"the process of the engine of cache {self.name!r} has sent nothing for {self._quiet_s:.0f} s"
        logger.error("%s; the requests that wait for it end with an error, and so do new ones until it sends", reason)
        with self._lock:
            self._frozen = reason
            for number in self._tickets:
                self._outbox.put(Cancel(number))
        self._end_all(EngineDown(reason))

    def _thaw(self) -> None:
        logger.warning("the process of the engine of cache %r sends again", self.name)
        self._frozen = None

    def _lose(self) -> None:
        """The child has gone: say why, and end all that waits for it."""
        self._child.wait(LAST_S)
        if self._is_closing:
            reason = "the engine was stopped"
        else:
            reason = f"the process of the engine of cache {self.name!r} {self._child.ending()}"
            logger.error("%s", reason)
        with self._lock:
            self._down = reason
        self._end_all(EngineDown(reason))
        self._hang_up()
        if not self._is_closing:
            self._outbox.put(None)
            self._child.end(0.0)

    def _end_all(self, error: EngineDown) -> None:
        for number in [*self._tickets, *self._calls]:
            self._fail(number, error)
        self._notifier.flush()

    def _hang_up(self) -> None:
        """Let a blocked sender and the reader return."""
        with contextlib.suppress(OSError), as_socket(self._connection) as shared:
            shared.shutdown(socket.SHUT_RDWR)

    # -- the beginning -------------------------------------------------------------------------------------------------

    def _await_ready(self, is_wanted: Callable[[], bool]) -> Ready:
        gives_up = time.monotonic() + self._timeouts.build_s
        try:
            while True:
                if not is_wanted():
                    raise Cancelled
                if self._connection.poll(POLL_S):
                    for answer in self._connection.recv():
                        match answer:
                            case Ready():
                                ready = answer
                            case State():
                                self._state, self._state_s = answer, time.monotonic()
                                return ready
                            case Failed(_, error):
                                raise error
                            case Logged():
                                _log(answer)
                elif self._child.wait():
                    break
                elif time.monotonic() > gives_up:
                    raise EngineError(f"the engine process was not ready after {self._timeouts.build_s:g} s")
        except (EOFError, OSError):
            self._child.wait(LAST_S)
        raise EngineError(f"the process of the engine of cache {self.name!r} {self._child.ending()}")


def _log(record: Logged | Ready) -> None:
    if isinstance(record, Logged):
        logging.getLogger(record.logger).log(record.level, "%s", record.text)


_proof: type[Engine] = ChildEngine  # it satisfies the seam
