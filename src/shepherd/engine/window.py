"""What an engine shows of its cache while a feed is open: pictures of its sequences, and what happens to them.

    engine thread: Display ── Fresh, Picture, Grown, Gone ── the sequences ──────────▶ Feed ──▶ event loop
                              Turn, Left, Miss, Moved ────── what happens to them ──▶

Without a feed nothing is made. A picture is made together with the figures of the same moment (`TaskQueue.publish`), so
the two agree. A feed that is not read gets a fresh whole picture in place of a growing queue.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Literal, NamedTuple

from shepherd.core.dataclasses import dataclass, replace

LOOK_S = 0.1
"""Seconds between two pictures while jobs run."""
MOST_UNREAD = 2_000
"""Facts that a feed holds before it begins again with a fresh picture."""

Kind = Literal[
    "system", "tools", "user", "assistant", "thought", "call", "result", "image", "recalled", "notice", "markup"
]
"""What tokens are."""
Tier = Literal["cells", "memory", "disk"]
Seq = int | str
"""The number of a sequence in the cells, or the key of a saved one."""


@dataclass(frozen=True, slots=True)
class Fresh:
    """All that is known of this cache is void: pictures of everything follow."""


class Part(NamedTuple):
    """What some tokens of a prompt are. Parts are in order; tokens outside all of them are markup."""

    start: int
    stop: int
    kind: Kind
    message: int
    """Index of the message, from 0."""
    keep: bool
    """It never leaves."""


@dataclass(frozen=True, slots=True)
class Picture:
    seq: Seq
    session: str | None
    owner: str
    tier: Tier
    n_tokens: int
    """Evicted ones included."""
    n_prompt: int
    """Where its last generation began."""
    runs: tuple[tuple[int, int], ...]
    """The tokens that are held, half open, ascending."""
    parts: tuple[Part, ...]
    """Of the prompt, some of which may still be computed; what stands behind `n_prompt` is the answer."""

    @property
    def n_held(self) -> int:
        return sum(stop - start for start, stop in self.runs)

    def grown(self, n_tokens: int) -> Picture:
        """The same after its last run has grown to the end of so many tokens."""
        start = self.runs[-1][0] if self.runs else self.n_tokens
        return replace(self, n_tokens=n_tokens, runs=(*self.runs[:-1], (start, n_tokens)))


@dataclass(frozen=True, slots=True)
class Grown:
    """Tokens were added at the end of a sequence, and nothing else has changed."""

    seq: Seq
    n_tokens: int


@dataclass(frozen=True, slots=True)
class Gone:
    """A sequence is no more, in any tier."""

    seq: Seq


@dataclass(frozen=True, slots=True)
class Turn:
    """A job is over."""

    session: str | None
    owner: str
    at_s: float
    """As in all that happens: the time of day, in seconds since 1970."""
    seq: Seq | None
    cached: int
    new: int
    first_token_s: float | None
    """From its arrival to its first token; None if it made none."""
    generated: int
    tokens_per_s: float
    evicted: int
    """Tokens that have left for it."""
    drafted: int = 0
    accepted: int = 0
    """Both as those of `Done`."""


@dataclass(frozen=True, slots=True)
class Left:
    """Messages, or parts of them, have left the cells for good."""

    session: str | None
    owner: str
    at_s: float
    messages: tuple[int, ...]
    tokens: int
    ms: float
    reason: str


@dataclass(frozen=True, slots=True)
class Miss:
    """A prompt differs from the sequence that has most of it."""

    session: str | None
    owner: str
    at_s: float
    token: int
    """The first one that differs."""
    of: int
    """Tokens of the prompt."""
    was: str
    """The text around it in the sequence."""
    now: str
    """The same in the prompt."""
    message: int | None
    """That the token belongs to."""


@dataclass(frozen=True, slots=True)
class Moved:
    """A sequence has changed its tier."""

    session: str | None
    owner: str
    at_s: float
    source: Tier
    target: Tier | Literal["away"]
    tokens: int
    ms: float
    why: str


Notice = Turn | Left | Miss | Moved
Fact = Fresh | Picture | Grown | Gone | Notice


class Feed:
    """What one reader has not read yet. Made and read on one event loop; one other thread posts."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._facts: deque[Fact] = deque()
        self._has_ended = False
        self._waiter: asyncio.Future[None] | None = None
        self.is_new = True
        """It has no picture yet. The posting thread's."""

    @property
    def n_unread(self) -> int:
        return len(self._facts)

    def post(self, facts: Sequence[Fact]) -> None:
        """Add facts; those that begin with `Fresh` replace what is unread. The posting thread's."""
        if facts and isinstance(facts[0], Fresh):
            self._facts.clear()
        self._facts.extend(facts)
        self._call()

    def end(self) -> None:
        """No further facts come. Any thread."""
        self._has_ended = True
        self._call()

    def _call(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nothing reads this feed any more
            self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def batches(self) -> AsyncGenerator[list[Fact], None]:
        """The facts in order, in each batch all that are there; ends when the engine does, or the feed is closed."""
        while True:
            has_ended = self._has_ended  # read first: it is set behind the last facts
            batch: list[Fact] = []
            with contextlib.suppress(IndexError):  # the posting thread may clear it meanwhile
                while True:
                    batch.append(self._facts.popleft())
            if batch:
                yield batch
            elif has_ended:
                return
            else:
                self._waiter = self._loop.create_future()
                if not self._facts and not self._has_ended:
                    await self._waiter
                self._waiter = None


Drawn = tuple[object, object, Picture]
"""A picture, and what it was made of: a sequence and its spans."""


class Display:
    """The open feeds of one cache, and what they were last shown. Engine thread only."""

    def __init__(self) -> None:
        self._feeds: list[Feed] = []
        self._shown: dict[Seq, Picture] = {}
        self._notices: list[Notice] = []
        self._has_ended = False
        self.drawn: dict[Seq, Drawn] = {}
        """The last pictures: what has not changed is not made again."""
        self.is_on = False
        """Whether a feed is open: without one, nothing is to be made for it."""

    def add(self, feed: Feed) -> None:
        if self._has_ended:
            feed.end()
            return
        self._feeds.append(feed)
        self.is_on = True

    def remove(self, feed: Feed) -> None:
        if feed in self._feeds:
            self._feeds.remove(feed)
            feed.end()
        if not self._feeds:
            self.is_on = False
            self._shown, self._notices, self.drawn = {}, [], {}

    def note(self, notice: Notice) -> None:
        """Keep what has happened for the next picture."""
        if self.is_on:
            self._notices.append(notice)

    def show(self, pictures: Mapping[Seq, Picture]) -> None:
        """Post what has happened, and what has changed since the last time."""
        facts: list[Fact] = [*self._notices]
        facts += [Gone(seq) for seq in self._shown if seq not in pictures]
        for seq, picture in pictures.items():
            shown = self._shown.get(seq)
            if picture is not shown and picture != shown:
                # Only an answer grows: more of a prompt is more of its parts.
                grows = shown is not None and shown.n_prompt < shown.n_tokens < picture.n_tokens
                is_growth = grows and shown is not None and shown.grown(picture.n_tokens) == picture
                facts.append(Grown(seq, picture.n_tokens) if is_growth else picture)
        self._shown, self._notices = dict(pictures), []
        for feed in self._feeds:
            if feed.is_new or feed.n_unread > MOST_UNREAD:
                feed.is_new = False
                feed.post([Fresh(), *pictures.values()])
            elif facts:
                feed.post(facts)

    def end(self) -> None:
        """End all feeds: the engine is over."""
        self._has_ended = True
        for feed in list(self._feeds):
            self.remove(feed)
