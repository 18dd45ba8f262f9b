"""Models that come when they are asked for and go when they are not, within a budget of memory.

    use(name) ─ lease ─▶ loaded? ──yes──▶ the model          leases keep it
                            └─no─▶ mail ─▶ thread: make room (the longest unused leave), open ─▶ the model
    last lease ends ─ keep_alive passes ─▶ thread: close

One thread opens and closes, one model after the other: two that load at once would each believe that the memory of the
other is free. Which model leaves is decided in `models/sizing.py`. Not here: what a model is (`loading.py`).
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from math import inf
from typing import Generic, Protocol, TypeVar

from shepherd.core import EngineDown, EngineError, ShepherdError
from shepherd.models.sizing import IdleModel, gib, to_unload

logger = logging.getLogger(__name__)


class Closable(Protocol):
    """Whatever is loaded."""

    def close(self) -> None:
        """Free it; takes as long as it takes."""
        ...


T = TypeVar("T", bound=Closable)


class Abandoned(Exception):
    """Opening was given up, since no request waited for it any more."""


@dataclass(frozen=True, slots=True)
class Terms:
    """On which a model comes and goes."""

    n_bytes: int
    """What it takes while it is loaded."""
    keep_alive_s: float
    """How long it stays after its last use; `inf` = for ever."""
    stays: bool = False
    """It does not leave to make room for another one."""


@dataclass(frozen=True, slots=True)
class Standing:
    """How it is with one model now."""

    is_loaded: bool
    n_bytes: int
    n_leases: int
    expires_in_s: float | None
    """Until it is unloaded if nobody asks for it; None = it is not loaded, or stays."""


@dataclass(slots=True, eq=False)
class _Member(Generic[T]):
    name: str
    terms: Terms
    keep_alive_s: float
    """As it is now: a request may say otherwise than the terms, for as long as the model stays loaded."""
    thing: T | None = None
    n_leases: int = 0
    used_s: float = 0.0
    waiting: list[Future[T]] = field(default_factory=list)
    """Of those who want it opened."""
    leaving: list[Future[None]] = field(default_factory=list)
    """Of those who want it closed."""
    n_loads: int = 0

    def expires_in(self, now_s: float) -> float | None:
        if self.thing is None or self.keep_alive_s == inf:
            return None
        return self.keep_alive_s if self.n_leases else self.used_s + self.keep_alive_s - now_s


class Fleet(Generic[T]):
    """Models by name. Any thread; `close` once."""

    def __init__(
        self, open: Callable[[str], T], *, budget_bytes: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`open` loads a model; it is called on the fleet's own thread, and may raise `ShepherdError`, and `Abandoned`
        once `is_wanted` is false."""
        self._open = open
        self._budget_bytes = budget_bytes
        self._clock = clock
        self._members: dict[str, _Member[T]] = {}
        self._wanted: deque[_Member[T]] = deque()
        """To be opened, in the order in which they were asked for."""
        self._watching: list[Future[None]] = []
        """Of those who want to know that the thread has done what it does now."""
        self._turn = threading.Condition()
        """Guards all that; told when there is something for the thread to do."""
        self._closed = False
        self._thread = threading.Thread(target=self._live, name="shepherd-models", daemon=True)
        self._thread.start()

    def add(self, name: str, terms: Terms) -> None:
        """Make a model known, or its terms anew. It is not loaded."""
        with self._turn:
            known = self._members.get(name)
            if known is None:
                self._members[name] = _Member(name, terms, terms.keep_alive_s)
            else:
                known.terms = terms

    @asynccontextmanager
    async def use(self, name: str, keep_alive_s: float | None = None) -> AsyncIterator[T]:
        """The model, opened if it is not, which stays for the length of the block.

        `keep_alive_s`: how long it stays afterwards, from now on; None = as before.

        Raises: what opening it raises; `EngineDown` when the memory does not suffice, or the fleet is closed.
        """
        coming = self._lease(name, keep_alive_s)
        try:
            # The future is this caller's own: who goes away while it loads takes it from nobody else.
            yield await asyncio.wrap_future(coming) if isinstance(coming, Future) else coming
        finally:
            self._release(name)

    def is_wanted(self, name: str) -> bool:
        """Whether anything still waits for this model to be opened."""
        with self._turn:
            return not self._closed and any(not future.cancelled() for future in self._members[name].waiting)

    def hold(self, name: str) -> T:
        """The model, for as long as the fleet is open. Raises: `EngineDown` when it is not loaded."""
        with self._turn:
            member = self._members[name]
            if member.thing is None:
                raise EngineDown(f"model {name!r} is not loaded")
            member.n_leases += 1
            return member.thing

    def let_go(self, name: str) -> None:
        """Take one `hold` back; the model stays as long as its terms say."""
        self._release(name)

    @asynccontextmanager
    async def borrow(self) -> AsyncIterator[list[T]]:
        """All models that are open, which stay for the length of the block; those that were closing are closed."""
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
                self._release(member.name)

    def loaded(self) -> dict[str, T]:
        """The models that are open, by name. Whoever holds no lease must expect them to be closed at any time."""
        with self._turn:
            return {name: member.thing for name, member in self._members.items() if member.thing is not None}

    def standing(self) -> dict[str, Standing]:
        """How it is with every model."""
        with self._turn:
            now_s = self._clock()
            return {
                name: Standing(
                    member.thing is not None, member.terms.n_bytes, member.n_leases, member.expires_in(now_s)
                )
                for name, member in self._members.items()
            }

    def n_loads(self) -> dict[str, int]:
        """How often models have been opened."""
        with self._turn:
            return {name: member.n_loads for name, member in self._members.items() if member.n_loads}

    async def unload(self, name: str) -> bool:
        """Close a model as soon as nobody uses it, and wait for that if nobody does; False when it is not loaded."""
        with self._turn:
            member = self._members[name]
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
        """Close every model, whoever uses it. Twice is allowed."""
        with self._turn:
            self._closed = True
            self._turn.notify()
        self._thread.join()

    # leases

    def _lease(self, name: str, keep_alive_s: float | None) -> T | Future[T]:
        with self._turn:
            if self._closed:
                raise EngineDown("the server is stopping")
            member = self._members[name]
            member.n_leases += 1
            leaving, member.leaving = member.leaving, []
            _answer(leaving, lambda future: future.set_result(None))  # it goes after this use, and maybe much later
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

    def _release(self, name: str) -> None:
        with self._turn:
            member = self._members[name]
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
        """How long there is nothing to do; None = until somebody says so."""
        now_s = self._clock()
        idle = (member.expires_in(now_s) for member in self._members.values() if not member.n_leases)
        # A condition cannot wait for longer than some limit of the platform: a day is as good.
        return min((min(max(left_s, 0.001), 86_400.0) for left_s in idle if left_s is not None), default=None)

    def _bring(self, member: _Member[T]) -> None:
        """Open a model for all who wait for it."""
        try:
            while too_many := self._room_for(member):  # again: somebody may have asked for one of them meanwhile
                for leaving in too_many:
                    self._send_away(leaving, f"to make room for {member.name!r}")
            thing = self._open(member.name)
        except Abandoned:
            with self._turn:
                member.waiting = [future for future in member.waiting if not future.cancelled()]
                if member.waiting:  # a request has come in the same moment
                    self._wanted.appendleft(member)
                else:
                    member.keep_alive_s = member.terms.keep_alive_s
        except ShepherdError as error:  # whoever asked says so
            self._refuse(member, error)
        except Exception as error:
            logger.exception("model %r is not loaded", member.name)
            self._refuse(member, EngineError(f"model {member.name!r} could not be loaded; the log says why: {error}"))
        else:
            with self._turn:
                member.thing = thing
                member.n_loads += 1
                member.used_s = self._clock()
                waiting, member.waiting = member.waiting, []
            _answer(waiting, lambda future: future.set_result(thing))

    def _refuse(self, member: _Member[T], error: Exception) -> None:
        """Tell all who wait; the next request tries again."""
        with self._turn:
            waiting, member.waiting = member.waiting, []
            member.keep_alive_s = member.terms.keep_alive_s
        _answer(waiting, lambda future: future.set_exception(error))

    def _room_for(self, member: _Member[T]) -> list[_Member[T]]:
        """The models that must leave for `member`, oldest first. Raises: `EngineDown` with the numbers."""
        with self._turn:
            loaded = [each for each in self._members.values() if each.thing is not None]
            room = self._budget_bytes - sum(each.terms.n_bytes for each in loaded)
            idle = [each for each in loaded if not (each.n_leases or each.terms.stays)]
            needed = member.terms.n_bytes
            names = to_unload(needed, room, (IdleModel(each.name, each.terms.n_bytes, each.used_s) for each in idle))
            if names is None:
                kept = ", ".join(f"{each.name!r} {gib(each.terms.n_bytes)}" for each in loaded if each not in idle)
                raise EngineDown(
                    f"model {member.name!r} needs {gib(needed)} of memory, of {gib(self._budget_bytes)} that models "
                    f"may take, and there cannot be so much now (in use, or loaded to stay: {kept or 'nothing'}); try "
                    "again when others are done, choose a smaller n_ctx, or raise memory_budget"
                )
            return [self._members[name] for name in names]

    def _send_away(self, member: _Member[T], why: str) -> None:
        """Close a model, unless somebody has asked for it meanwhile."""
        with self._turn:
            thing = member.thing
            if thing is None or member.n_leases:
                return
            member.thing = None
            member.keep_alive_s = member.terms.keep_alive_s
            leaving, member.leaving = member.leaving, []
        logger.info("unloading model %r: %s", member.name, why)
        _close(thing, member.name)
        _answer(leaving, lambda future: future.set_result(None))

    def _end(self) -> None:
        with self._turn:
            members = list(self._members.values())
            self._wanted.clear()
            _answer(self._watching, lambda future: future.set_result(None))
        for member in members:
            self._refuse(member, EngineDown("the server is stopping"))
            with self._turn:
                thing, member.thing = member.thing, None
                leaving, member.leaving = member.leaving, []
            if thing is not None:
                _close(thing, member.name)
            _answer(leaving, lambda future: future.set_result(None))


def _close(thing: Closable, name: str) -> None:
    try:
        thing.close()
    except Exception:
        logger.exception("model %r could not be closed in order", name)


F = TypeVar("F")


def _answer(futures: list[Future[F]], tell: Callable[[Future[F]], None]) -> None:
    """Tell those who are still waiting."""
    for future in futures:
        if future.set_running_or_notify_cancel():
            tell(future)
