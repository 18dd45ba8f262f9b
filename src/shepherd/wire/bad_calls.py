"""Bad calls of a model, as every protocol sees them.

CallEnded(BadCall) ─▶ held ─┬─ more of the answer ─▶ the call by its name, or a text if it has none
                            └─ Finished("length") ─▶ nothing: it was cut off
"""

from __future__ import annotations

from collections.abc import Iterator

from shepherd.core import BadCall, CallEnded, CallStarted, Event, Finished, ReasoningDelta, TextDelta


class HeldCalls:
    """Holds a bad call back until the answer continues: only the end tells whether it was cut off or wrong."""

    def __init__(self, *, until_start: bool = False) -> None:
        """`until_start`: no longer than until another call starts, in place of ends."""
        self.held: BadCall | None = None
        self._until = (TextDelta, ReasoningDelta, CallStarted if until_start else CallEnded, Finished)

    def feed(self, event: Event) -> Iterator[Event]:
        """The events that are ready, in order."""
        if isinstance(event, self._until):
            held, self.held = self.held, None
            if held is not None and not (isinstance(event, Finished) and event.reason == "length"):
                yield CallEnded(held) if held.name else TextDelta(f"[invalid tool call: {held.error}]")
        if isinstance(event, CallEnded) and isinstance(event.call, BadCall):
            self.held = event.call
        else:
            yield event
