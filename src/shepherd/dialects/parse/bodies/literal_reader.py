"""Reads calls in a notation of literals from the front of a text to its end: what such readers share.

Not here: the notations (`python_body`, `gemma_body`), where a block of them ends (`literal_body`).
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod

from shepherd.dialects.parse.call import Calls, Fault, Found, Unreadable


class LiteralReader(ABC):
    """Reads one text; once."""

    BLANKS: re.Pattern[str]
    """What may stand between two tokens."""
    BETWEEN: re.Pattern[str]
    """What may stand between two calls."""
    HOW: str
    """How to write a call, for the model."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._name = ""  # of the call that is being read

    def calls(self, whole: bool) -> Calls:
        """All calls up to the first that cannot be read; that one is a `Fault`. Never empty, never raises.

        `whole` is false when the output ended inside of the text.
        """
        cut = f"the output ended inside of the call; {self.HOW}"
        found: list[Found | Fault] = []
        try:
            while self._ahead(self.BETWEEN):
                found.append(self._call(whole))
                self._name = ""
        except (ValueError, RecursionError) as error:
            found.append(Fault(f"the call cannot be read ({error}); {self.HOW}" if whole else cut, self._name))
        return tuple(found) or (Fault(f"the call is empty; {self.HOW}" if whole else cut),)

    # Each of these reads what its name says from here on and passes it. Raises: `Unreadable`, `RecursionError`.

    @abstractmethod
    def _call(self, whole: bool) -> Found:
        """One call; sets `_name` as soon as it is known."""

    def _ahead(self, blanks: re.Pattern[str] | None = None) -> str:
        """The next character behind blanks; empty at the end."""
        match = (blanks or self.BLANKS).match(self._text, self._at)
        self._at = match.end() if match else self._at
        return self._text[self._at : self._at + 1]

    def _take(self, token: str) -> str:
        """The token, if it comes next."""
        if self._ahead() != token:
            return ""
        self._at += 1
        return token

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        self._ahead()
        match = pattern.match(self._text, self._at)
        self._at = match.end() if match else self._at
        return match

    def _comma(self, closer: str) -> str:
        """The comma behind an item; empty when the closer comes instead."""
        comma = self._take(",")
        if not comma and self._ahead() != closer:
            raise self._unreadable("a comma is missing")
        return comma

    def _unreadable(self, reason: str) -> Unreadable:
        return Unreadable(f"{reason} at character {self._at}")
