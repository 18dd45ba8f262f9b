"""Tokens and times of a stream of events, folded while it comes: one answer, or the answers of a whole turn.

Started ─▶ usage of the prompt    deltas ─▶ one token each, until    Finished ─▶ the exact usage, added to `total`
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from shepherd.core.events import CallDelta, Finished, ReasoningDelta, Started, StopReason, TextDelta, Usage


class Measured:
    """One stream. An answer that has not finished counts one token for each piece that came."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.usage = Usage()
        """Of the newest answer."""
        self.total = Usage()
        """Of all answers that have finished."""
        self.reason: StopReason | None = None
        """Why the newest answer finished; None while it comes."""
        self.first_s: float | None = None
        """When the first piece of the newest answer came, by the clock."""
        self.last_s: float | None = None
        """When it finished."""

    def feed(self, event: object) -> None:
        """Take the next event; anything else is passed over."""
        match event:
            case TextDelta() | CallDelta():
                self._count(reasoning=0)
            case ReasoningDelta():
                self._count(reasoning=1)
            case Started(usage=usage):
                self.usage, self.reason, self.first_s, self.last_s = usage, None, None, None
            case Finished(reason=reason, usage=usage):
                self.usage, self.total, self.reason = usage, self.total + usage, reason
                self.last_s = self._clock()
            case _:
                pass

    @property
    def tokens_per_s(self) -> float:
        """The speed of the newest answer behind its first token, whose time is that of the prefill; 0.0 = unknown."""
        if self.first_s is None or self.usage.output < 2:
            return 0.0
        seconds = (self._clock() if self.last_s is None else self.last_s) - self.first_s
        return (self.usage.output - 1) / seconds if seconds > 0 else 0.0

    def _count(self, *, reasoning: int) -> None:
        if self.first_s is None:
            self.first_s = self._clock()
        usage = self.usage
        self.usage = replace(usage, output=usage.output + 1, reasoning=usage.reasoning + reasoning)
