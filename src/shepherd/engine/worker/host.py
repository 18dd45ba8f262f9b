"""The child's half: connects back, makes the model, and serves its engines until its parent says so or has gone.

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
from collections.abc import Iterator
from multiprocessing.connection import Client
from typing import Any

from shepherd.core import EngineError, ShepherdError
from shepherd.engine.base import Done, Job, Ticket
from shepherd.engine.kv.tiers.arena import Arena
from shepherd.engine.window import Feed
from shepherd.engine.worker.channel import Channel
from shepherd.engine.worker.messages import (
    ADDRESS,
    BEAT_S,
    CALLS,
    KEY,
    Answer,
    Beat,
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
    RemoteModel,
    Request,
    Returned,
    Seen,
    State,
    Steps,
    Submit,
    Watch,
    Workplace,
)
from shepherd.process.child import Cancelled

logger = logging.getLogger(__name__)

PUSH_S = 0.25
"""Seconds between two states while jobs run."""
GONE_S = 0.5
"""Seconds that the event loop has to end when the parent has gone."""
SWITCH_INTERVAL_S = 0.0002
"""As in `app/loading.py`: threads of an engine must not keep steps from the event loop for 5 ms."""
GONE = 1
"""Exit status: the parent has gone, or the model could not be made or closed."""


def serve(*beside: object) -> int:
    """Serve one model; returns the exit status when the parent has ended it. Call it in the main thread.

    beside: further arguments of the factory, behind those that the parent sends; without them it gets a `Workplace`.
    `SystemExit`, which a signal handler may raise in it, closes the engines and passes. The process ends at once, with
    status 1, if the parent dies and this thread does not return within half a second.
    """
    connection = Client(os.environ[ADDRESS], "AF_UNIX", authkey=bytes.fromhex(os.environ.pop(KEY)))
    host = _Host(Channel(connection, is_trusted=True))
    try:
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        build, workplace = host.first()
        threading.Thread(target=host.read, name="worker-reader", daemon=True).start()
        logging.getLogger().addHandler(_LogHandler(host))
        for name, level in build.levels.items():
            logging.getLogger(name).setLevel(level)
        last = beside or (workplace,)
        with host.beating():  # the import of a large library takes long, too
            model: RemoteModel = pkgutil.resolve_name(build.factory)(*build.arguments, *last)
    except EOFError:
        return GONE
    except Exception as error:
        host.send([Failed(0, _shown(error))])
        return GONE
    try:
        return asyncio.run(host.serve(model))
    except SystemExit:  # by a signal: other processes of the model end with it
        for engine in model.engines:
            engine.close()
        raise


class _Host:
    """One connection, and from `serve` on one model."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._loop: asyncio.AbstractEventLoop | None = None
        self._answers: list[Answer] = []
        """Of this moment."""
        self._early: deque[Answer] = deque()
        """Of other threads; they come before every later answer."""
        self._tickets: dict[int, tuple[int, Ticket]] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._stopped: dict[int, threading.Event] = {}  # of the model's functions: nothing waits for one any more

    def first(self) -> tuple[Build, Workplace]:
        (build,) = self._channel.receive()
        assert isinstance(build, Build)
        arena = None
        if build.regions is not None:  # its handle comes next
            handle = self._channel.receive_handle()
            arena = Arena(handle, build.regions, lambda key, region: self.say(Kept(key, region)))
        return build, Workplace(lambda stage, fraction: self.say(Progress(stage, fraction)), arena)

    # -- any thread ----------------------------------------------------------------------------------------------------

    def send(self, answers: list[Answer]) -> None:
        with contextlib.suppress(OSError):  # the parent has gone: the reader sees it
            self._channel.send(answers)

    @contextlib.contextmanager
    def beating(self) -> Iterator[None]:
        """Send signs of life from a thread: the main one may be in the library for minutes."""
        ended = threading.Event()

        def beat() -> None:
            while not ended.wait(BEAT_S):
                self.send([Beat()])

        thread = threading.Thread(target=beat, name="worker-beat", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def say(self, answer: Answer) -> None:
        if self._loop is None:
            self.send([answer])
        else:
            self._early.append(answer)
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._flush)

    def read(self) -> None:
        """The reader's thread: hand requests to the event loop, until the parent has gone."""
        with contextlib.suppress(EOFError, OSError):
            while requests := self._channel.receive():
                assert self._loop is not None  # the parent waits for `Ready`
                self._loop.call_soon_threadsafe(self._take, requests)
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # it has ended already
                self._loop.call_soon_threadsafe(self._end, GONE)
            threading.Event().wait(GONE_S)
        os._exit(GONE)

    # -- the event loop ------------------------------------------------------------------------------------------------

    async def serve(self, model: RemoteModel) -> int:
        self._model = model
        self._engines = model.engines
        self._ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._woken = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._answer(Ready(tuple(EngineFacts(each.gate, each.n_low) for each in self._engines), model.facts))
        self._answer_states()
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
                case Submit(number, engine, job):
                    if self._model.prepare is not None and job.grammar is not None:
                        self._start(number, self._prepare(number, engine, job))
                    else:
                        self._submit(number, engine, job)
                case Cancel(number):
                    if number in self._tickets:
                        engine, ticket = self._tickets[number]
                        self._engines[engine].cancel(ticket)
                    elif number in self._stopped:
                        self._stopped[number].set()
                    elif number in self._tasks:
                        self._tasks[number].cancel()
                case Watch(number, engine):
                    self._watch(number, engine)
                case Call(engine=None):
                    self._stopped[request.number] = stopped = threading.Event()
                    self._start(request.number, self._call_model(request, stopped))
                case Call(engine=int(engine)):
                    self._start(request.number, self._call(request, engine))
                case Close(number, engine, timeout_s):
                    self._start(number, self._close(number, engine, timeout_s))
                case End():
                    self._answer(Ended())
                    self._end(0)
                case Build():
                    raise AssertionError("a child makes one model")

    def _start(self, number: int, work: Any) -> None:
        if not self._tasks:
            self._woken.set()
        self._tasks[number] = task = self._group.create_task(work)
        task.add_done_callback(lambda _: self._tasks.pop(number) if self._tasks.get(number) is task else None)

    async def _prepare(self, number: int, engine: int, job: Job) -> None:
        assert self._model.prepare is not None
        try:
            await asyncio.to_thread(self._model.prepare, job)
        except asyncio.CancelledError:
            self._answer(Steps(number, [Done("cancelled")]))
        except Exception as error:
            self._fail(number, engine, error)
        else:
            self._submit(number, engine, job)

    def _submit(self, number: int, engine: int, job: Job) -> None:
        try:
            ticket = self._engines[engine].submit(job)
        except Exception as error:
            self._fail(number, engine, error)
        else:
            self._tickets[number] = engine, ticket
            self._start(number, self._follow(number, engine, ticket))

    async def _follow(self, number: int, engine: int, ticket: Ticket) -> None:
        try:
            async with contextlib.aclosing(ticket.batches()) as batches:
                async for steps in batches:
                    if type(steps[-1]) is Done:
                        self._answer(self._state(engine))
                    self._answer(Steps(number, steps))
        except Exception as error:
            self._fail(number, engine, error)
        finally:
            del self._tickets[number]

    def _watch(self, number: int, engine: int) -> None:
        try:
            feed = self._engines[engine].watch()  # at once: what is submitted behind it is seen from its beginning
        except ShepherdError as error:
            self._fail(number, engine, error)
            return
        self._start(number, self._look(number, engine, feed))
        # No `finally` of `_look`: a task that is cancelled before its first step has none.
        self._tasks[number].add_done_callback(lambda _: self._engines[engine].unwatch(feed))

    async def _look(self, number: int, engine: int, feed: Feed) -> None:
        async with contextlib.aclosing(feed.batches()) as batches:
            async for facts in batches:
                self._answer(self._state(engine))
                self._answer(Seen(number, facts))
        self._answer(Returned(number, None))

    async def _call(self, call: Call, engine: int) -> None:
        assert call.method in CALLS
        try:
            value = await getattr(self._engines[engine], call.method)(*call.arguments, **call.keywords)
        except Exception as error:
            self._fail(call.number, engine, error)
        else:
            self._answer(self._state(engine))
            self._answer(Returned(call.number, value))

    async def _call_model(self, call: Call, stopped: threading.Event) -> None:
        work = self._model.calls[call.method]
        try:
            value = await asyncio.to_thread(
                work, *call.arguments, is_wanted=lambda: not stopped.is_set(), **call.keywords
            )
        except Cancelled:  # now it has ended
            self._answer(Returned(call.number, None))
        except Exception as error:
            self._answer_states()  # it may be down
            self._answer(Failed(call.number, _shown(error)))
        else:
            if not self._engines:
                self._answer_states()
            self._answer(Returned(call.number, value))
        finally:
            self._stopped.pop(call.number).set()

    async def _close(self, number: int, engine: int, timeout_s: float) -> None:
        is_closed = await asyncio.to_thread(self._engines[engine].close, timeout_s)
        self._answer(self._state(engine))
        self._answer(
            Returned(number, is_closed)
        )  # behind the last steps: the engine has posted them before it returned

    def _end(self, status: int) -> None:
        if not self._ended.done():
            self._ended.set_result(status)

    def _fail(self, number: int, engine: int, error: Exception) -> None:
        self._answer(self._state(engine))
        self._answer(Failed(number, _shown(error)))

    async def _beat(self) -> None:
        loop = asyncio.get_running_loop()
        next_s = loop.time() + self.pause_s
        while True:
            try:
                async with asyncio.timeout_at(next_s):
                    await self._woken.wait()
            except TimeoutError:
                self._answer_states()
                next_s = loop.time() + self.pause_s
            else:  # sooner, but not now: it would keep the interpreter from the engine that gets its first job
                self._woken.clear()
                next_s = min(next_s, loop.time() + self.pause_s)

    @property
    def pause_s(self) -> float:
        """Between two states: only jobs change a cache, and what else changes it answers a state itself."""
        return PUSH_S if self._tickets else BEAT_S

    def _answer_states(self) -> None:
        for engine in range(len(self._engines)) or (None,):
            self._answer(self._state(engine))

    def _state(self, engine: int | None) -> State:
        if engine is None:
            return State(None, self._model.stats(), self._model.down())
        served = self._engines[engine]
        return State(engine, served.stats(), served.down or self._model.down(), getattr(served, "is_saving", False))

    def _answer(self, answer: Answer) -> None:
        if not self._answers:
            asyncio.get_running_loop().call_soon(self._flush)
        self._take_early()
        self._answers.append(answer)

    def _take_early(self) -> None:
        while self._early:
            self._answers.append(self._early.popleft())

    def _flush(self) -> None:
        self._take_early()
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
    def __init__(self, host: _Host) -> None:
        super().__init__()
        self._host = host

    def emit(self, record: logging.LogRecord) -> None:
        self._host.say(Logged(record.name, record.levelno, self.format(record)))
