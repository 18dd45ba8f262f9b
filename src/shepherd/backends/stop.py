"""Stop strings: finds them in a stream of text, across any cutting, and holds back only what might become one."""

from __future__ import annotations

import re
from collections.abc import Sequence


class StopFilter:
    """Passes text through until one of the stop strings appears.

    Holds back at most the longest stop string less one character. The earliest match wins; of two at the same place,
    the longer one. After a match it passes nothing.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._pattern = re.compile(
            "|".join(re.escape(stop) for stop in sorted(stops, key=len, reverse=True)) or r"(?!)"
        )
        self._prefixes = frozenset(stop[:n] for stop in stops for n in range(1, len(stop)))
        self._longest = max((len(stop) for stop in stops), default=1) - 1
        self._held = ""
        self.found: str | None = None
        """The stop string that ended the text, once there is one."""

    def feed(self, text: str) -> str:
        """What of the text so far is safe to show, and has not been returned before."""
        if self.found is not None:
            return ""
        text = self._held + text
        match = self._pattern.search(text)
        hold = self._undecided(text)
        # A longer stop string may still be growing over a place before or at the match.
        if match is not None and (hold == 0 or len(text) - hold > match.start()):
            self.found = match.group()
            self._held = ""
            return text[: match.start()]
        self._held = text[len(text) - hold :]
        return text[: len(text) - hold]

    def close(self) -> str:
        """What was held back, when the text ends without a stop string."""
        held, self._held = self._held, ""
        if self.found is None and (match := self._pattern.search(held)):
            self.found = match.group()
            return held[: match.start()]
        return held

    def _undecided(self, text: str) -> int:
        """The length of the longest end of `text` that begins some stop string without completing it."""
        for n in range(min(self._longest, len(text)), 0, -1):
            if text[len(text) - n :] in self._prefixes:
                return n
        return 0
