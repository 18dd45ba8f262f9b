"""Finds the end of a JSON value that streams in: its last bracket or quote, with any text in its strings.

Only the depth and the open quote are kept, so the cost is linear for any cutting (S5, S18), and braces, backticks or
closers inside of strings belong to the strings (S3). Not here: how the value is read (`call`).
"""

from __future__ import annotations

import re
from functools import cache

from shepherd.dialects.parse.markup import Markers

BLANKS = re.compile(r"\s*")
FENCE = re.compile(r"```[a-zA-Z]*(?=[\s{\[])")
FENCE_BEGUN = re.compile(r"`{1,3}|```[a-zA-Z]*")
INSIDE = {quote: re.compile(rf"(?:[^{quote}\\]++|\\.)*+", re.DOTALL) for quote in "\"'"}


class JsonText:
    """One object, array or string from its first character on. Python's quotes count, too."""

    def __init__(self, markers: Markers, stops: tuple[str, ...]) -> None:
        """`stops`, some of the markers, end a value that lacks its end when they stand outside of its strings."""
        self.ended = False
        self.cut = False
        """A stop stands where more of it should."""
        self._markers = markers
        self._stops = stops
        self._outside, self._firsts = outside_of(stops)
        self._depth = 0
        self._quote = ""
        self._read: list[str] = []

    @property
    def text(self) -> str:
        return "".join(self._read)

    def feed(self, text: str, at: int, final: bool) -> int:
        """How far into `text` it has been read from `at` on; short of the end when it has ended or was cut, or when a
        marker may have begun."""
        begun = at
        while True:
            if self._quote:
                inside = INSIDE[self._quote].match(text, at)
                at = inside.end() if inside else at
                if at == len(text):
                    break
                if text[at] == "\\":  # the character that it escapes is yet to come
                    at = len(text) if final else at
                    break
                self._quote = ""
                at += 1
            else:
                found = self._outside.search(text, at)
                if found is None:
                    at = len(text)
                    break
                char, at = found[0], found.end()
                if char in self._firsts:
                    start = at - 1
                    self.cut = self._markers.standing(text, start) in self._stops
                    if self.cut or (not final and self._markers.is_begun(text, start)):
                        at = start
                        break
                if char in "{[":
                    self._depth += 1
                elif char in "}]":
                    self._depth -= 1
                elif char in INSIDE:
                    self._quote = char
                    continue
                else:
                    continue
            if self._depth <= 0:
                self.ended = True
                break
        self._read.append(text[begun:at])
        return at


@cache
def outside_of(stops: tuple[str, ...]) -> tuple[re.Pattern[str], str]:
    """What to look for outside of strings, and the characters that the stops begin with."""
    firsts = "".join(sorted({stop[0] for stop in stops}))
    return re.compile(rf"[\"'{{}}\[\]{re.escape(firsts)}]"), firsts


def after_blanks(text: str, at: int) -> int:
    blanks = BLANKS.match(text, at)
    return blanks.end() if blanks else at
