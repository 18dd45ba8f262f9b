"""The child's half: connects back, makes the engine, and serves it until its parent says so or has gone.

    main thread   connect ─▶ Build: factory() ─▶ event loop: tickets ── steps of one moment ─▶ one message
    reader        requests ─▶ event loop                end of file: the parent has gone, and so does the child

Nothing of a library reaches the parent's standard output: `process.py` gives the child another one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import pkgutil
import sys
import threading
from collections import deque
from multiprocessing.connection import Client, Connection
from typing import Any

from shepherd.core import EngineError, ShepherdError
from shepherd.engine.base import Done, Ticket
from shepherd.engine.worker.messages import (
    ADDRESS,
    BEAT_S,
    CALLS,
    KEY,
    Answer,
    Build,
    Call,
    Cancel,
    Close,
    Closed,
    Failed,
    Logged,
    Ready,
    RemoteEngine,
    Request,
    Returned,
    State,
    Steps,
    Submit,
)

logger = logging.getLogger(__name__)

PUSH_S = 0.25
"""Seconds between two states while jobs run."""
GONE_S = 0.5
"""Seconds that the event loop has to end when the parent has gone."""
SWITCH_INTERVAL_S = 0.0002
"""As in `app/loading.py`: threads of an engine must not keep steps from the event loop for 5 ms."""
GONE = 1
"""Exit status: the parent has gone, or the engine could not be made or closed."""


def serve(*beside: object) -> int:
    """Serve one engine; returns the exit status when the parent has closed it. Call it in the main thread.

    beside: further arguments of the factory, behind those that the parent sends. `SystemExit`, which a signal handler
    may raise in it, closes the engine and passes. The process ends at once, with status 1, if the parent dies and this
    thread does not return within half a second.
    """
    connection = Client(os.environ[ADDRESS], "AF_UNIX", authkey=bytes.fromhex(os.environ.pop(KEY)))
    host = _Host(connection)
    try:
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        (build,) = connection.recv()
        assert isinstance(build, Build)
        threading.Thread(target=host.read, name="worker-reader", daemon=True).start()
        _log_to(host, build)
        engine = pkgutil.resolve_name(build.factory)(*build.arguments, *beside)
    except EOFError:
        return GONE
    except Exception as error:
        host.send([Failed(0, _shown(error))])
        return GONE
    try:
        return asyncio.run(host.serve(engine))
    except SystemExit:  # by a signal: other processes of the engine end with it
        engine.close()
        raise


class _Host:
    """One connection, and from `serve` on one engine."""

    def __init__(self, connection: Connection[list[Answer], list[Request]]) -> None:
        self._connection = connection
        self._sending = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._answers: list[Answer] = []
        """Of this moment."""
        self._logged: deque[Logged] = deque()
        """Records that come before every later answer."""
        self._tickets: dict[int, Ticket] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}

    # -- any thread ----------------------------------------------------------------------------------------------------

    def send(self, answers: list[Answer]) -> None:
        with self._sending, contextlib.suppress(OSError):  # the parent has gone: the reader sees it
            self._connection.send(answers)

    def log(self, record: Logged) -> None:
        if self._loop is None:
            self.send([record])
        else:
            self._logged.append(record)
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._flush)

    def read(self) -> None:
        """The reader's thread: hand requests to the event loop, until the parent has gone."""
        with contextlib.suppress(EOFError, OSError):
            while requests := self._connection.recv():
                assert self._loop is not None  # the parent waits for `Ready`
                self._loop.call_soon_threadsafe(self._take, requests)
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # it has ended already
                self._loop.call_soon_threadsafe(self._end, GONE)
            threading.Event().wait(GONE_S)
        os._exit(GONE)

    # -- the event loop ------------------------------------------------------------------------------------------------

    async def serve(self, engine: RemoteEngine) -> int:
        self._engine = engine
        self._ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._woken = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._answer(Ready(engine.gate, engine.n_low))
        self._answer(self._state())
        async with asyncio.TaskGroup() as self._group:
            beating = self._group.create_task(self._beat())
            status = await self._ended
            beating.cancel()
            for task in self._tasks.values():
                task.cancel()
        self._flush()
        return status

    def _take(self, requests: list[Request]) -> None:
        for request in requests:
            match request:
                case Submit(number, job):
                    try:
                        self._tickets[number] = ticket = self._engine.submit(job)
                    except Exception as error:
                        self._fail(number, error)
                    else:
                        self._start(number, self._follow(number, ticket))
                case Cancel(number):
                    if number in self._tickets:
                        self._engine.cancel(self._tickets[number])
                    elif number in self._tasks:
                        self._tasks[number].cancel()
                case Call():
                    self._start(request.number, self._call(request))
                case Close(timeout_s):
                    self._start(0, self._close(timeout_s))
                case Build():
                    raise AssertionError("a child makes one engine")

    def _start(self, number: int, work: Any) -> None:
        if not self._tasks:
            self._woken.set()
        self._tasks[number] = task = self._group.create_task(work)
        task.add_done_callback(lambda _: self._tasks.pop(number, None))

    async def _follow(self, number: int, ticket: Ticket) -> None:
        try:
            async with contextlib.aclosing(ticket.batches()) as batches:
                async for steps in batches:
                    if type(steps[-1]) is Done:
                        self._answer(self._state())
                    self._answer(Steps(number, steps))
        except Exception as error:
            self._fail(number, error)
        finally:
            del self._tickets[number]

    async def _call(self, call: Call) -> None:
        assert call.method in CALLS
        try:
            value = await getattr(self._engine, call.method)(*call.arguments, **call.keywords)
        except Exception as error:
            self._fail(call.number, error)
        else:
            self._answer(self._state())
            self._answer(Returned(call.number, value))

    async def _close(self, timeout_s: float) -> None:
        is_closed = await asyncio.to_thread(self._engine.close, timeout_s)
        self._answer(Closed())  # behind the last steps: the engine has posted them before it returned
        self._end(0 if is_closed else GONE)

    def _end(self, status: int) -> None:
        if not self._ended.done():
            self._ended.set_result(status)

    def _fail(self, number: int, error: Exception) -> None:
        self._answer(self._state())
        self._answer(Failed(number, _shown(error)))

    async def _beat(self) -> None:
        while True:
            is_busy = bool(self._tasks)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PUSH_S if is_busy else BEAT_S):
                    await self._woken.wait()
            self._woken.clear()
            self._answer(self._state())

    def _state(self) -> State:
        return State(self._engine.stats(), self._engine.down)

    def _answer(self, answer: Answer) -> None:
        if not self._answers:
            asyncio.get_running_loop().call_soon(self._flush)
        self._take_logged()
        self._answers.append(answer)

    def _take_logged(self) -> None:
        while self._logged:
            self._answers.append(self._logged.popleft())

    def _flush(self) -> None:
        self._take_logged()
        answers, self._answers = self._answers, []
        if answers:
            self.send(answers)


def _shown(error: Exception) -> ShepherdError:
    """What the parent raises."""
    if isinstance(error, ShepherdError):
        return error
    logger.error("the engine failed", exc_info=error)
    return EngineError(f"the engine failed: {type(error).__name__}: {error}")


class _LogHandler(logging.Handler):
    """Sends records to the parent, where they are logged."""

    def __init__(self, host: _Host) -> None:
        super().__init__()
        self._host = host

    def emit(self, record: logging.LogRecord) -> None:
        self._host.log(Logged(record.name, record.levelno, self.format(record)))


def _log_to(host: _Host, build: Build) -> None:
    logging.getLogger().addHandler(_LogHandler(host))
    for name, level in build.levels.items():
        logging.getLogger(name).setLevel(level)
