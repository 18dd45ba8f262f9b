"""Where a JSON value ends that streams in: at its last bracket or quote, whatever the strings in it look like.

Only the depth and the open quote are kept, so the cost is linear for any cutting. Not here: what it says (`call`).
"""

from __future__ import annotations

import re

from shepherd.dialects.parse.markup import Markers

IN_STRING = {'"': re.compile(r'[\\"]'), "'": re.compile(r"[\\']")}


class JsonText:
    """One object, array or string from its first character on. Python's quotes count, too."""

    def __init__(self, stops: Markers, firsts: str) -> None:
        """`stops` end a value that lacks its end, when they stand outside of its strings; `firsts` are the characters
        they begin with."""
        self.ended = False
        """It is complete."""
        self.cut = False
        """A stop stands where more of it should."""
        self._stops = stops
        self._outside = re.compile(rf"[\"'{{}}\[\]{re.escape(firsts)}]")
        self._depth = 0
        self._quote = ""
        self._read: list[str] = []

    @property
    def text(self) -> str:
        """What has been read of it."""
        return "".join(self._read)

    def feed(self, text: str, at: int, final: bool) -> int:
        """How far into `text` it has been read from `at` on; short of the end when it has ended, was cut, or when a
        stop may have begun."""
        stop = self._end(text, at, final)
        self._read.append(text[at:stop])
        return stop

    def _end(self, text: str, at: int, final: bool) -> int:
        while True:
            found = (IN_STRING[self._quote] if self._quote else self._outside).search(text, at)
            if found is None:
                return len(text)
            start, at = found.span()
            if found[0] == "\\":
                if at == len(text) and not final:
                    return start
                at += 1
                continue
            if not self._quote and self._stops.standing(text, start):
                self.cut = True
                return start
            if not self._quote and not final and self._stops.begun(text, start) == len(text) - start:
                return start
            match found[0]:
                case "{" | "[":
                    self._depth += 1
                case "}" | "]":
                    self._depth -= 1
                case '"' | "'" as quote:
                    self._quote = "" if self._quote else quote
                case _:
                    continue
            if self._depth <= 0 and not self._quote:
                self.ended = True
                return at
