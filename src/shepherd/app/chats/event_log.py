"""The numbered events of one chat: kept for readers that come later or come back, and delivered to those that wait.

    put ─▶ [ event | run of text | event | ... ] ─ since(number) ─▶ what a reader has not had yet

A number is the place behind an event. A piece of text counts as many numbers as it has characters, so that a run of
pieces is kept as one text and is cut at any number. A slow reader gets longer runs, and holds nothing up.
"""

from __future__ import annotations

import asyncio
import contextlib
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from typing import Any

from shepherd.core.dataclasses import dataclass

RUN_CHARS = 4_096
"""A run is closed at this length: joining it to read it stays cheap."""
MOST_KEPT_CHARS = 16 * 2**20
"""Of one log, as far as they are counted: more than three answers of 5 MB. The oldest events leave first."""
_OTHER_CHARS = 200
"""What an event counts besides its texts."""


@dataclass(frozen=True, slots=True)
class LoggedEvent:
    number: int
    """The place behind it: a reader that has had it goes on from there."""
    type: str
    data: Mapping[str, Any]


@dataclass(slots=True)
class _Kept:
    type: str
    data: Mapping[str, Any]
    """Without the text of a run."""
    start: int
    end: int
    pieces: list[str] | None = None
    """Of a run."""
    n_chars: int = _OTHER_CHARS

    def since(self, number: int) -> LoggedEvent:
        if self.pieces is None:
            return LoggedEvent(self.end, self.type, self.data)
        if len(self.pieces) > 1:
            self.pieces[:] = ["".join(self.pieces)]
        return LoggedEvent(self.end, self.type, {**self.data, "text": self.pieces[0][max(0, number - self.start) :]})


class EventLog:
    """One event loop. Events are kept until `begin`."""

    def __init__(self, number: int = 0) -> None:
        """`number`: in front of the first event; above all numbers of an earlier log of the same chat, so that a reader
        of that one gets all of this."""
        self.number = number
        """Behind the newest event."""
        self.n_readers = 0
        self._is_read = asyncio.Event()
        self._is_unread = asyncio.Event()
        self._is_unread.set()
        self._kept: list[_Kept] = []
        self._n_chars = 0
        self._first = number
        """No event before this number is kept."""
        self._changed = asyncio.Event()

    def begin(self) -> None:
        """Drop what is kept: what comes next does not depend on it."""
        self._kept.clear()
        self._n_chars = 0
        self._first = self.number

    def put(self, type: str, data: Mapping[str, Any], *, replaces: bool = False) -> None:
        """Add an event. `replaces`: it makes the newest one obsolete, if that is of the same type."""
        last = self._kept[-1] if self._kept else None
        if replaces and last is not None and last.type == type:
            self._drop(self._kept.pop())
        self.number += 1
        self._add(_Kept(type, data, self.number - 1, self.number, n_chars=_OTHER_CHARS + _n_chars(data)))

    def put_text(self, type: str, text: str, **data: Any) -> None:
        """Add a piece of text, which the next one of the same type and data continues. An empty one is nothing."""
        if not text:
            return
        start, self.number = self.number, self.number + len(text)
        last = self._kept[-1] if self._kept else None
        if (
            last is not None
            and last.pieces is not None
            and (last.type, last.data) == (type, data)
            and last.end - last.start < RUN_CHARS
        ):
            last.pieces.append(text)
            last.end = self.number
            last.n_chars += len(text)
            self._n_chars += len(text)
            self._wake()
        else:
            self._add(_Kept(type, data, start, self.number, [text], _OTHER_CHARS + len(text)))

    def since(self, number: int) -> list[LoggedEvent]:
        """The kept events behind a number; all of them for a number that is older, or was never given."""
        if not self.has(number):
            number = self._first
        at = bisect_right(self._kept, number, key=lambda kept: kept.end)
        return [kept.since(number) for kept in self._kept[at:]]

    def has(self, number: int) -> bool:
        """Whether everything behind this number is kept."""
        return self._first <= number <= self.number

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        self.n_readers += 1
        self._is_unread.clear()
        self._is_read.set()
        try:
            yield
        finally:
            self.n_readers -= 1
            if not self.n_readers:
                self._is_read.clear()
                self._is_unread.set()

    async def unread_for(self, absent_s: float) -> None:
        """Until no client has read the events for so long."""
        with contextlib.suppress(TimeoutError):
            while True:
                await self._is_unread.wait()
                async with asyncio.timeout(absent_s):
                    await self._is_read.wait()

    async def wait(self, number: int, silence_s: float) -> None:
        """Until there is an event behind this number, or for so long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(silence_s):
                while self.number <= number:
                    await self._changed.wait()

    def _add(self, kept: _Kept) -> None:
        self._kept.append(kept)
        self._n_chars += kept.n_chars
        while self._n_chars > MOST_KEPT_CHARS and len(self._kept) > 1:
            self._first = self._kept[0].end
            self._drop(self._kept.pop(0))
        self._wake()

    def _drop(self, kept: _Kept) -> None:
        self._n_chars -= kept.n_chars

    def _wake(self) -> None:
        waiting, self._changed = self._changed, asyncio.Event()
        waiting.set()


def _n_chars(value: Any) -> int:
    """The characters of all texts in a value of JSON."""
    match value:
        case str():
            return len(value)
        case dict():
            return sum(map(_n_chars, value.values()))
        case list() | tuple():
            return sum(map(_n_chars, value))
        case _:
            return 8
