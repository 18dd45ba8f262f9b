"""Where a JSON value ends that streams in: at its last bracket or quote, whatever the strings in it look like.

Only the depth and the open quote are kept, so the cost is linear for any cutting (S5, S18), and braces, backticks or
closers inside of strings belong to the strings (S3). Not here: what the value means (`call`).
"""

from __future__ import annotations

import re
from collections.abc import Collection

from shepherd.dialects.parse.markup import Markers

BLANKS = re.compile(r"\s*")
FENCE = re.compile(r"```[a-zA-Z]*(?=[\s{\[])")
"""The opening of a code fence around a value."""
FENCE_BEGUN = re.compile(r"`{1,3}|```[a-zA-Z]*")
IN_STRING = {'"': re.compile(r'[\\"]'), "'": re.compile(r"[\\']")}


class JsonText:
    """One object, array or string from its first character on. Python's quotes count, too."""

    def __init__(self, markers: Markers, stops: Collection[str]) -> None:
        """`stops`, some of the markers, end a value that lacks its end when they stand outside of its strings."""
        self.ended = False
        """It is complete."""
        self.cut = False
        """A stop stands where more of it should."""
        self._markers = markers
        self._stops = stops
        self._firsts = "".join(sorted({stop[0] for stop in stops}))
        self._outside = re.compile(rf"[\"'{{}}\[\]{re.escape(self._firsts)}]")
        self._depth = 0
        self._quote = ""
        self._read: list[str] = []

    @property
    def text(self) -> str:
        """What has been read of it."""
        return "".join(self._read)

    def feed(self, text: str, at: int, final: bool) -> int:
        """How far into `text` it has been read from `at` on; short of the end when it has ended or was cut, or when a
        marker may have begun."""
        stop = self._end(text, at, final)
        self._read.append(text[at:stop])
        return stop

    def _end(self, text: str, at: int, final: bool) -> int:
        while True:
            found = (IN_STRING[self._quote] if self._quote else self._outside).search(text, at)
            if found is None:
                return len(text)
            start, at = found.span()
            char = found[0]
            if char == "\\":
                if at == len(text) and not final:
                    return start
                at += 1
                continue
            if not self._quote and char in self._firsts:
                if self._markers.standing(text, start) in self._stops:
                    self.cut = True
                    return start
                if not final and self._markers.is_begun(text, start):
                    return start
            match char:
                case "{" | "[":
                    self._depth += 1
                case "}" | "]":
                    self._depth -= 1
                case '"' | "'":
                    self._quote = "" if self._quote else char
                case _:
                    continue
            if self._depth <= 0 and not self._quote:
                self.ended = True
                return at


def after_blanks(text: str, at: int) -> int:
    """The next position from `at` on that is not blank."""
    blanks = BLANKS.match(text, at)
    return blanks.end() if blanks else at
