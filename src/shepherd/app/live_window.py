"""What all caches hold, as it changes, for those that look: one bus between the engines and any number of listeners.

    engines ── feeds ──▶ LiveWindow: the sequences now ── what has changed ──▶ Listener ──▶ a client
                              ▲ once a second: which caches there are, and their figures

The engines show something only while there is a listener. A listener holds no queue of pictures: it holds which
sequences have changed since its last look, and a bounded number of notices. One that looks too rarely begins again with
a fresh whole picture. Event loop only.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from typing import Literal, Protocol

from shepherd.backends.local.kinds import Written
from shepherd.core import EngineDown, Event, RateLimited, Request, Started
from shepherd.core.dataclasses import dataclass, replace
from shepherd.core.lru import LruCache
from shepherd.engine.base import Engine
from shepherd.engine.stats import CacheStats
from shepherd.engine.window import Fact, Feed, Fresh, Gone, Grown, Kind, Left, Miss, Moved, Notice, Picture, Seq, Turn

POOL_S = 1.0
"""Seconds between two looks at the figures."""
MOST_NOTICES = 500
"""Notices that wait for one listener."""
MOST_CHANGED = 2_000
"""Sequences that have changed since the last look of one listener."""
MOST_ARCHIVED = 1_000
"""Conversations of which it is known whether the memory keeps them."""
MOST_LISTENERS = 64
"""Each takes a connection and a share of the event loop."""


@dataclass(frozen=True, slots=True)
class Hello:
    """What a listener knew is void; what follows is the whole picture."""


@dataclass(frozen=True, slots=True)
class Whole:
    cache: str
    picture: Picture
    n_ctx: int
    """Of the cache."""
    answer: Kinds = ()
    """Up to which token, what the answer behind the prompt is, as far as is known."""


@dataclass(frozen=True, slots=True)
class Growth:
    """A sequence has grown at its end, by tokens of the same kind as its last ones."""

    cache: str
    picture: Picture
    kind: Kind


@dataclass(frozen=True, slots=True)
class Absence:
    cache: str
    seq: Seq


@dataclass(frozen=True, slots=True)
class CameBack:
    """The memory has put earlier messages in front of a question."""

    session: str | None
    owner: str
    at_s: float
    messages: int
    tokens: int
    words: tuple[str, ...]
    ids: tuple[int, ...]
    oldest_s: float
    newest_s: float


@dataclass(frozen=True, slots=True)
class Happened:
    """`cache` is empty for what concerns none."""

    cache: str
    notice: Notice | CameBack
    is_archived: bool = False
    """The memory keeps what the conversation says."""


@dataclass(frozen=True, slots=True)
class Pool:
    """The figures of the caches have changed."""


class Cache(Protocol):
    """What `LocalBackend` is here."""

    engine: Engine
    n_ctx: int
    written: Written


News = Hello | Whole | Growth | Absence | Happened | Pool
Sees = Callable[[str, str, str | None], bool]
"""Whether a listener gets what concerns a cache, an owner and a session."""
Kinds = tuple[tuple[int, Kind], ...]
_Change = Literal["whole", "grown", "gone"]


class Listener:
    """What one client has not been sent yet."""

    def __init__(self, window: LiveWindow, sees: Sees) -> None:
        self._window = window
        self._sees = sees
        self._changed: dict[tuple[str, Seq], _Change] = {}
        self._known: dict[tuple[str, Seq], Kinds] = {}
        """The sequences that it has a picture of, with the kinds of their answers."""
        self._notices: deque[Happened] = deque()
        self._is_behind = True
        self._has_pool = True
        self._has_ended = False
        self._waiter: asyncio.Future[None] | None = None

    def change(self, cache: str, seq: Seq, how: _Change) -> None:
        if not self._is_behind and (how != "grown" or (cache, seq) not in self._changed):
            self._changed[cache, seq] = how
            if len(self._changed) > MOST_CHANGED:  # saved sequences that are gone again have no number to reuse
                self._fall_behind()
        self._wake()

    def _fall_behind(self) -> None:
        self._is_behind = True
        self._changed.clear()
        self._notices.clear()

    def hear(self, happened: Happened) -> None:
        if self._sees(happened.cache, happened.notice.owner, happened.notice.session):
            if len(self._notices) == MOST_NOTICES:
                self._fall_behind()
            self._notices.append(happened)
            self._wake()

    def count_again(self) -> None:
        self._has_pool = True
        self._wake()

    def look_at_answers(self) -> None:
        """Show the answers again of which more is known now than was at their last token."""
        for (cache, seq), known in self._known.items():
            picture = self._window.find(cache, seq)
            if picture is not None and _turns(self._window.answer(cache, picture)) != _turns(known):
                self.change(cache, seq, "whole")

    def end(self) -> None:
        self._has_ended = True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    @property
    def _has_news(self) -> bool:
        return bool(self._changed or self._notices or self._is_behind or self._has_pool)

    async def take(self, silence_s: float) -> list[News] | None:
        """All news; empty after `silence_s` without any, None at the end."""
        if not self._has_news and not self._has_ended:
            self._waiter = asyncio.get_running_loop().create_future()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(silence_s):
                    await self._waiter
            self._waiter = None
        if self._has_ended:
            return None
        return [*self._news()]

    def _news(self) -> Iterator[News]:
        changed, self._changed = self._changed, {}
        if self._is_behind:
            self._is_behind = False
            self._known.clear()
            changed = dict.fromkeys(self._window.places(), "whole")
            yield Hello()
        notices, self._notices = self._notices, deque()
        yield from notices
        for (cache, seq), how in changed.items():
            picture = self._window.find(cache, seq)
            if picture is None or not self._sees(cache, picture.owner, picture.session):
                if (cache, seq) in self._known:
                    del self._known[cache, seq]
                    yield Absence(cache, seq)
                continue
            answer = self._window.answer(cache, picture)
            if how == "grown" and (cache, seq) in self._known and _turns(answer) == _turns(self._known[cache, seq]):
                yield Growth(cache, picture, answer[-1][1] if answer else "assistant")
            else:
                yield Whole(cache, picture, self._window.n_ctx(cache), answer)
            self._known[cache, seq] = answer
        if self._has_pool:
            self._has_pool = False
            yield Pool()


class LiveWindow:
    """The bus of one program."""

    def __init__(
        self, caches: Callable[[], Mapping[str, Cache]], stats: Callable[[], Mapping[str, CacheStats]]
    ) -> None:
        """`caches`: every one that is open; `stats`: its figures."""
        self._caches = caches
        self._stats = stats
        self._listeners: list[Listener] = []
        self._sequences: dict[str, dict[Seq, Picture]] = {}
        self._following: dict[str, tuple[Cache, asyncio.Task[None]]] = {}
        self._watching: asyncio.Task[None] | None = None
        self._counted: Mapping[str, CacheStats] = {}
        self._archived: LruCache[bool] = LruCache(MOST_ARCHIVED)
        """By owner and session."""

    @contextmanager
    def listen(self, sees: Sees = lambda cache, owner, session: True) -> Iterator[Listener]:
        """A listener, which gets the whole picture first. Raises: `RateLimited` when there are too many."""
        if len(self._listeners) == MOST_LISTENERS:
            raise RateLimited(
                f"{MOST_LISTENERS} clients look at the window already; close one of them", backend="server"
            )
        listener = Listener(self, sees)
        self._listeners.append(listener)
        if self._watching is None:
            self._follow_all()
            self._watching = asyncio.create_task(self._watch())
        try:
            yield listener
        finally:
            self._listeners.remove(listener)
            if not self._listeners:
                self._stop()

    def begin(self, request: Request) -> None:
        """A request has come: note whether the memory keeps its conversation."""
        if self._listeners:
            self._archived.keep((request.owner, request.session), bool(request.archive and request.user))

    def see(self, request: Request, event: Event) -> None:
        """Tell what the beginning of an answer reports; nothing without a listener."""
        if self._listeners and isinstance(event, Started) and (found := event.recalled) is not None:
            back = CameBack(
                request.session, request.owner, time.time(), found.messages, found.tokens, found.words, found.ids,
                found.oldest_s, found.newest_s,
            )  # fmt: skip
            self._note(back, event.cache)

    def _note(self, notice: Notice | CameBack, cache: str) -> None:
        happened = Happened(cache, notice, bool(self._archived.find((notice.owner, notice.session))))
        for listener in self._listeners:
            listener.hear(happened)

    async def tokens(self, cache: str, seq: int, owner: str, start: int, stop: int) -> Sequence[int]:
        """As `Engine.tokens`, of a cache that is open; also without a listener."""
        return await self._caches()[cache].engine.tokens(seq, owner, start, stop)

    def find(self, cache: str, seq: Seq) -> Picture | None:
        return self._sequences.get(cache, {}).get(seq)

    def n_ctx(self, cache: str) -> int:
        return self._following[cache][0].n_ctx

    def answer(self, cache: str, picture: Picture) -> Kinds:
        """Up to which token, what the answer behind its prompt is, as far as is known."""
        following = self._following.get(cache)
        return following[0].written.of(picture.seq, picture.n_prompt) if following else ()

    def places(self) -> list[tuple[str, Seq]]:
        return [(cache, seq) for cache, sequences in self._sequences.items() for seq in sequences]

    def close(self) -> None:
        for listener in self._listeners:
            listener.end()
        self._stop()

    def _stop(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            self._watching = None
        for _, task in self._following.values():
            task.cancel()
        self._following, self._sequences, self._counted = {}, {}, {}

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(POOL_S)
            self._follow_all()
            for listener in self._listeners:
                listener.look_at_answers()
            counted = {name: _still(each) for name, each in self._stats().items()}
            if counted != self._counted:
                self._counted = counted
                for listener in self._listeners:
                    listener.count_again()

    def _follow_all(self) -> None:
        """Follow the engines that are open now, and forget those that are not."""
        caches = self._caches()
        for name, (cache, task) in list(self._following.items()):
            if caches.get(name) is not cache or task.done():
                task.cancel()
                del self._following[name]
                self._forget(name)
        for name, cache in caches.items():
            if name not in self._following:
                with contextlib.suppress(EngineDown):  # it may work again at the next look
                    self._following[name] = cache, self._follow(name, cache.engine)

    def _follow(self, cache: str, engine: Engine) -> asyncio.Task[None]:
        """Raises: `EngineDown`."""
        feed = engine.watch()
        task = asyncio.create_task(self._read(cache, feed))
        # No `finally` of `_read`: a task that is cancelled before its first step has none.
        task.add_done_callback(lambda _: engine.unwatch(feed))
        return task

    async def _read(self, cache: str, feed: Feed) -> None:
        async with aclosing(feed.batches()) as batches:
            async for batch in batches:
                for fact in batch:
                    self._take(cache, fact)

    def _take(self, cache: str, fact: Fact) -> None:
        sequences = self._sequences.setdefault(cache, {})
        match fact:
            case Fresh():
                self._forget(cache)
            case Picture(seq=seq):
                sequences[seq] = fact
                self._tell(cache, seq, "whole")
            case Grown(seq, n_tokens):
                if (known := sequences.get(seq)) is not None:
                    sequences[seq] = known.grown(n_tokens)
                    self._tell(cache, seq, "grown")
            case Gone(seq):
                sequences.pop(seq, None)
                self._tell(cache, seq, "gone")
            case Turn() | Left() | Miss() | Moved():
                self._note(fact, cache)

    def _forget(self, cache: str) -> None:
        for seq in self._sequences.pop(cache, {}):
            self._tell(cache, seq, "gone")

    def _tell(self, cache: str, seq: Seq, how: _Change) -> None:
        for listener in self._listeners:
            listener.change(cache, seq, how)


def _turns(kinds: Kinds) -> tuple[object, ...]:
    """What does not change while tokens of the last kind are added."""
    return (*kinds[:-1], *(kind for _, kind in kinds[-1:]))


def _still(stats: CacheStats) -> CacheStats:
    """The figures without what changes by itself."""
    return replace(stats, quiet_s=0.0, sequences=tuple(replace(each, idle_s=0.0) for each in stats.sequences))
