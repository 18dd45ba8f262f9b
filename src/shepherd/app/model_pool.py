"""Loads models when requests need them and unloads them when they do not, within a budget of memory.

    use(key) ──── lease ─▶ loaded? ──yes──▶ the model          leases keep it
                            └─no─▶ queue ─▶ thread: make room (the least recently used leave), open ─▶ the model
    last lease ends ─ keep_alive passes ─▶ thread: close

One thread opens and closes models, one after the other: two that load at once would each count the same memory as free.
`models/sizing.py` decides which model leaves. Not here: what loading a model does (`loading.py`).
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Hashable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from math import inf
from typing import Any, Generic, Protocol, TypeVar

from shepherd.core import EngineDown, EngineError, ShepherdError
from shepherd.core.dataclasses import dataclass, field
from shepherd.models.sizing import IdleModel, gib, to_unload
from shepherd.process.child import Cancelled

logger = logging.getLogger(__name__)


class SupportsClose(Protocol):
    def close(self) -> None:
        """Free it; may take long."""
        ...


T = TypeVar("T", bound=SupportsClose)


@dataclass(frozen=True, slots=True)
class Residency:
    """How much memory a model takes, and how long it stays."""

    n_bytes: int
    """Bytes while it is loaded."""
    keep_alive_s: float
    """How long it stays after its last use; `inf` = until the end."""
    stays: bool = False
    """It does not leave to make room for another model."""
    is_alone: bool = False
    """It takes what the GPUs have left: no other model of this kind is loaded beside it."""


@dataclass(frozen=True, slots=True)
class ModelState:
    is_loaded: bool
    n_leases: int
    expires_in_s: float | None
    """Until it is unloaded without further use; None = it is not loaded, or stays."""


@dataclass(slots=True, eq=False)
class _Member(Generic[T]):
    key: Hashable
    residency: Residency
    keep_alive_s: float
    """A request may change it from that of the residency, until the model is unloaded."""
    thing: T | None = None
    n_leases: int = 0
    used_s: float = 0.0
    waiting: list[Future[T]] = field(default_factory=list)
    """Of the requests that wait for it to open."""
    leaving: list[Future[None]] = field(default_factory=list)
    """Of the callers that wait for it to close."""
    n_loads: int = 0
    hearing: list[Callable[[Any], None]] = field(default_factory=list)
    """Hear how far it is while it opens."""

    def expires_in(self, now_s: float) -> float | None:
        if self.thing is None or self.keep_alive_s == inf:
            return None
        return self.keep_alive_s if self.n_leases else self.used_s + self.keep_alive_s - now_s


class ModelPool(Generic[T]):
    """Models by key. Any thread; `close` once."""

    def __init__(
        self, open: Callable[[Any], T], *, budget_bytes: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`open` loads a model; it is called on the pool's own thread, and may raise `ShepherdError`,
        or `Cancelled` once `is_wanted` is false."""
        self._open = open
        self._budget_bytes = budget_bytes
        self._clock = clock
        self._members: dict[Hashable, _Member[T]] = {}
        self._wanted: deque[_Member[T]] = deque()
        """To be opened, in the order of the requests."""
        self._watching: list[Future[None]] = []
        """Of the callers that wait until the thread has finished its current work."""
        self._turn = threading.Condition()
        """Guards all of these; notified when the thread has something to do."""
        self._closed = False
        self._thread = threading.Thread(target=self._live, name="shepherd-models", daemon=True)
        self._thread.start()

    def add(self, residencies: Mapping[Any, Residency]) -> None:
        """Add models, or replace their residencies; nothing is loaded."""
        with self._turn:
            for key, residency in residencies.items():
                known = self._members.setdefault(key, _Member(key, residency, residency.keep_alive_s))
                known.residency = residency

    @asynccontextmanager
    async def use(self, key: Hashable, keep_alive_s: float | None = None) -> AsyncIterator[T]:
        """The model, opened if it is not, which stays for the length of the block.

        `keep_alive_s`: how long it stays afterwards, from now on; None = as before.

        Raises: what opening it raises; `EngineDown` when there is not enough memory, or the pool is closed.
        """
        coming = self._lease(key, keep_alive_s)
        try:
            # The future is this caller's own: cancelling it does not cancel the load for other callers.
            yield await asyncio.wrap_future(coming) if isinstance(coming, Future) else coming
        finally:
            self.let_go(key)

    @contextmanager
    def hearing(self, key: Hashable, hear: Callable[[Any], None]) -> Iterator[None]:
        """Within the block `hear` gets what is reported of the model while it opens; on the pool's thread."""
        member = self._members[key]
        with self._turn:
            member.hearing.append(hear)
        try:
            yield
        finally:
            with self._turn:
                member.hearing.remove(hear)

    def report(self, key: Hashable, progress: Any) -> None:
        """How far a model is that is being opened. Any thread."""
        with self._turn:
            hearing = [*self._members[key].hearing]
        for hear in hearing:
            hear(progress)

    def is_wanted(self, key: Hashable) -> bool:
        """Whether anything still waits for this model to be opened."""
        with self._turn:
            return not self._closed and any(not future.cancelled() for future in self._members[key].waiting)

    def hold(self, key: Hashable) -> T:
        """The model, until `let_go`. Raises: `EngineDown` when it is not loaded."""
        with self._turn:
            member = self._members[key]
            if member.thing is None:
                raise EngineDown(f"model {str(key)!r} is not loaded")
            member.n_leases += 1
            return member.thing

    @asynccontextmanager
    async def borrow(self) -> AsyncIterator[list[T]]:
        """All open models, which stay open for the length of the block; models that were closing are closed."""
        with self._turn:
            members = [member for member in self._members.values() if member.thing is not None]
            things = [member.thing for member in members if member.thing is not None]
            for member in members:
                member.n_leases += 1
            done: Future[None] = Future()
            if self._closed:
                done.set_result(None)
            else:
                self._watching.append(done)
                self._turn.notify()
        try:
            await asyncio.wrap_future(done)
            yield things
        finally:
            for member in members:
                self.let_go(member.key)

    def loaded(self) -> dict[Hashable, T]:
        """The open models by key. Without a lease they may be closed at any time."""
        with self._turn:
            return {key: member.thing for key, member in self._members.items() if member.thing is not None}

    def states(self) -> dict[Hashable, ModelState]:
        with self._turn:
            now_s = self._clock()
            return {
                key: ModelState(member.thing is not None, member.n_leases, member.expires_in(now_s))
                for key, member in self._members.items()
            }

    def n_loads(self) -> dict[Hashable, int]:
        with self._turn:
            return {key: member.n_loads for key, member in self._members.items() if member.n_loads}

    async def unload(self, key: Hashable) -> bool:
        """Close a model as soon as nothing uses it; waits if nothing does now. False when it is not loaded."""
        with self._turn:
            member = self._members[key]
            if self._closed or (member.thing is None and not member.waiting):
                return False
            member.keep_alive_s = 0.0
            gone: Future[None] | None = None
            if not member.n_leases:
                gone = Future()
                member.leaving.append(gone)
            self._turn.notify()
        if gone is not None:
            await asyncio.wrap_future(gone)
        return True

    def close(self) -> None:
        """Close every model, used or not. May be called twice."""
        with self._turn:
            self._closed = True
            self._turn.notify()
        self._thread.join()

    # leases

    def _lease(self, key: Hashable, keep_alive_s: float | None) -> T | Future[T]:
        with self._turn:
            if self._closed:
                raise EngineDown("the server is stopping")
            member = self._members[key]
            member.n_leases += 1
            leaving, member.leaving = member.leaving, []
            _answer(leaving, lambda future: future.set_result(None))  # it leaves after this use, or later
            if keep_alive_s is not None:
                member.keep_alive_s = keep_alive_s
            if member.thing is not None:
                return member.thing
            coming: Future[T] = Future()
            member.waiting.append(coming)
            if len(member.waiting) == 1:
                self._wanted.append(member)
            self._turn.notify()
            return coming

    def let_go(self, key: Hashable) -> None:
        """Undo one `hold`; the model stays as long as its residency allows."""
        with self._turn:
            member = self._members[key]
            member.n_leases -= 1
            member.used_s = self._clock()
            if not member.n_leases and member.keep_alive_s < inf:
                self._turn.notify()

    # the thread

    def _live(self) -> None:
        while True:
            with self._turn:
                watching, self._watching = self._watching, []
                _answer(watching, lambda future: future.set_result(None))
                while not (self._closed or self._watching or self._wanted or (leaving := self._expired())):
                    self._turn.wait(self._quiet_s())
                if self._closed:
                    break
                if self._watching:
                    continue
                wanted = self._wanted.popleft() if self._wanted else None
                leaving = [] if wanted else leaving
            if wanted is not None:
                self._bring(wanted)
            for member in leaving:
                self._send_away(member, f"unused for {member.keep_alive_s:g} s")
        self._end()

    def _expired(self) -> list[_Member[T]]:
        now_s = self._clock()
        return [
            member
            for member in self._members.values()
            if not member.n_leases and (left_s := member.expires_in(now_s)) is not None and left_s <= 0
        ]

    def _quiet_s(self) -> float | None:
        """How long there is nothing to do; None = until a caller notifies the thread."""
        now_s = self._clock()
        idle = (member.expires_in(now_s) for member in self._members.values() if not member.n_leases)
        # A condition cannot wait for longer than some limit of the platform: a day is as good.
        return min((min(max(left_s, 0.001), 86_400.0) for left_s in idle if left_s is not None), default=None)

    def _bring(self, member: _Member[T]) -> None:
        try:
            while too_many := self._room_for(member):  # again: a request may have leased one of them meanwhile
                for leaving in too_many:
                    self._send_away(leaving, f"to make room for {str(member.key)!r}")
            thing = self._open(member.key)
        except Cancelled:
            with self._turn:
                member.waiting = [future for future in member.waiting if not future.cancelled()]
                if member.waiting:  # a request came at the same moment
                    self._wanted.appendleft(member)
                else:
                    member.keep_alive_s = member.residency.keep_alive_s
        except ShepherdError as error:  # the waiting requests report it
            self._refuse(member, error)
        except Exception as error:
            logger.exception("model %r is not loaded", str(member.key))
            self._refuse(
                member, EngineError(f"model {str(member.key)!r} could not be loaded; the log has the reason: {error}")
            )
        else:
            with self._turn:
                member.thing = thing
                member.n_loads += 1
                member.used_s = self._clock()
                waiting, member.waiting = member.waiting, []
            _answer(waiting, lambda future: future.set_result(thing))

    def _refuse(self, member: _Member[T], error: Exception) -> None:
        with self._turn:
            waiting, member.waiting = member.waiting, []
            member.keep_alive_s = member.residency.keep_alive_s
        _answer(waiting, lambda future: future.set_exception(error))

    def _room_for(self, member: _Member[T]) -> list[_Member[T]]:
        """The models that must leave for `member`, oldest first. Raises: `EngineDown` with the numbers."""
        with self._turn:
            loaded = [each for each in self._members.values() if each.thing is not None]
            room = self._budget_bytes - sum(each.residency.n_bytes for each in loaded)
            idle = [each for each in loaded if not (each.n_leases or each.residency.stays)]
            needed = member.residency.n_bytes
            by_name = {str(each.key): each for each in idle}
            held = (IdleModel(name, each.residency.n_bytes, each.used_s) for name, each in by_name.items())
            names = to_unload(needed, room, held)
            rivals = [each for each in loaded if each.residency.is_alone and member.residency.is_alone]
            if kept := ", ".join(repr(str(each.key)) for each in rivals if each not in idle):
                raise EngineDown(
                    f"model {str(member.key)!r} takes the GPUs for itself, and {kept} has them now (in use, or loaded "
                    'to stay); try again when others are done, or set load = "demand" for both'
                )
            if names is None:
                kept = ", ".join(
                    f"{str(each.key)!r} {gib(each.residency.n_bytes)}" for each in loaded if each not in idle
                )
                raise EngineDown(
                    f"model {str(member.key)!r} needs {gib(needed)} of memory, of {gib(self._budget_bytes)} that "
                    f"models may take, and there cannot be so much now (in use, or loaded to stay: {kept or 'nothing'})"
                    "; try again when others are done, choose a smaller n_ctx, or raise memory_budget"
                )
            return [*rivals, *(by_name[name] for name in names if by_name[name] not in rivals)]

    def _send_away(self, member: _Member[T], why: str) -> None:
        """Close a model, unless a request has leased it meanwhile. Without a reason it is closed in any case."""
        with self._turn:
            thing = member.thing
            if thing is None or (member.n_leases and why):
                return
            member.thing = None
            member.keep_alive_s = member.residency.keep_alive_s
            leaving, member.leaving = member.leaving, []
        if why:
            logger.info("unloading model %r: %s", str(member.key), why)
        try:
            thing.close()
        except Exception:
            logger.exception("model %r could not be closed in order", str(member.key))
        _answer(leaving, lambda future: future.set_result(None))

    def _end(self) -> None:
        with self._turn:
            members = list(self._members.values())
            self._wanted.clear()
            _answer(self._watching, lambda future: future.set_result(None))
        for member in members:
            self._refuse(member, EngineDown("the server is stopping"))
            self._send_away(member, "")


F = TypeVar("F")


def _answer(futures: list[Future[F]], settle: Callable[[Future[F]], None]) -> None:
    """Answer the futures that were not cancelled."""
    for future in futures:
        if future.set_running_or_notify_cancel():
            settle(future)
