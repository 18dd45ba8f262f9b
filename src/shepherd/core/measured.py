"""Tokens of a stream of events, counted while it comes: one answer, or the answers of a whole turn.

Started ─▶ usage of the prompt    deltas ─▶ one token each, until    Finished ─▶ the exact usage, added to `total`
"""

from __future__ import annotations

from dataclasses import replace

from shepherd.core.events import CallDelta, Finished, ReasoningDelta, Started, TextDelta, Usage


class Measured:
    """One stream. An answer that has not finished counts one token for each piece that came."""

    def __init__(self) -> None:
        self.usage = Usage()
        """Of the newest answer."""
        self.total = Usage()
        """Of all answers that have finished."""

    def feed(self, event: object) -> None:
        """Take the next event; events without tokens are passed over."""
        match event:
            case TextDelta() | CallDelta() | ReasoningDelta():
                usage, is_thought = self.usage, isinstance(event, ReasoningDelta)
                self.usage = replace(usage, output=usage.output + 1, reasoning=usage.reasoning + is_thought)
            case Started(usage=usage):
                self.usage = usage
            case Finished(usage=usage):
                self.usage, self.total = usage, self.total + usage
            case _:
                pass
