"""Which of the choices of an answer is the one that was asked for.

    {"index": 0, ...} {"index": 1, ...}   the first by its number
    {"index": 1, ...} {"index": 1, ...}   the only one: some servers begin to count elsewhere

One answer is asked for, so that a number is mostly 0. Choices with another number wait until it is clear that there is
no 0: for a few records, or until one has ended.
"""

from __future__ import annotations

from shepherd.wire.base import Json
from shepherd.wire.values import index_in

MOST_WAITING = 8
"""Records that wait for a choice 0. Servers that write several choices send them in turn."""


class Choices:
    def __init__(self, ending: str) -> None:
        """`ending`: the field of a choice that says why it ended."""
        self._ending = ending
        self._index: int | None = None
        """Of the choice that is the answer; None = not known yet."""
        self._waiting: list[Json] = []

    def take(self, choices: list[Json]) -> list[Json]:
        """The choices that are read now: those of the answer, which a server may split (Copilot: text and calls), and
        those that have waited."""
        if self._index is None and any(not index_in(each, "index") for each in choices):
            self._index = 0
            self._waiting.clear()
        if self._index is not None:
            return [each for each in choices if (index_in(each, "index") or 0) == self._index]
        self._waiting += choices
        is_clear = len(self._waiting) >= MOST_WAITING or any(each.get(self._ending) for each in choices)
        return self.rest() if is_clear else []

    def rest(self) -> list[Json]:
        """The choices that still wait, of the lowest number: no other will come."""
        if self._index is None and self._waiting:
            self._index = min(index_in(each, "index") or 0 for each in self._waiting)
        found = [each for each in self._waiting if index_in(each, "index") == self._index]
        self._waiting.clear()
        return found
