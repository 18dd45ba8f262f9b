"""What the bodies that are machines of steps have in common: how they go from step to step, and what they tell.

    feed ─▶ step of the state ─▶ takes in text, perhaps another state ─▶ ... ─▶ no step can go on, or `ended` ─▶ settle

Not here: the steps (one file a notation).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

from shepherd.dialects.parse.call import Fault, Found
from shepherd.dialects.parse.markup import Markers, Thought

Step = Callable[[str, int, bool], int]
"""Takes in what it can of a text from a place on, and says how far it came; told whether no more will come."""


class Machine(ABC):
    """A body whose state names its next step. Satisfies `Body` with the steps of a subclass."""

    def __init__(self, written: str, state: str, steps: Mapping[str, Step]) -> None:
        """`written` is what has been read already: the opener."""
        self.ended = False
        self.closed = False
        self.declined = ""
        self.then: Thought | None = None
        self._state = state
        self._steps = steps
        self._written = [written]
        self._ready: list[tuple[str, tuple[Found | Fault, ...]]] = []

    def feed(self, text: str, at: int, final: bool) -> int:
        at = self._run(text, at, final)
        if self.ended:
            self._settle(cut=final and at == len(text) and not self.closed)
        return at

    def take_calls(self) -> list[tuple[str, tuple[Found | Fault, ...]]]:
        ready, self._ready = self._ready, []
        return ready

    def _run(self, text: str, at: int, final: bool) -> int:
        """Go from step to step until none can go on; how far they came."""
        while not self.ended:
            state = self._state
            stop = self._steps[state](text, at, final)
            self._written.append(text[at:stop])
            if stop == at and state == self._state and not self.ended:
                break
            at = stop
        return at

    def _pass_garbage(self, markers: Markers, text: str, at: int, final: bool) -> int:
        """Where what is no value ends: at a marker, behind which the state is `after`, or with the output."""
        stop, marker = markers.find(text, at)
        if marker:
            self._state = "after"
        elif final:
            self.ended = True
        else:
            stop -= markers.begun(text, at)
        return stop

    @abstractmethod
    def _settle(self, *, cut: bool) -> None:
        """The block has ended: make calls or text of what was read. `cut`: because the output has."""
