"""What all bodies share: the steps, the text read so far, the calls found, and handing a block over to another body.

    feed ─▶ step ─▶ reads some text, perhaps sets the next step ─▶ ... ─▶ no step makes progress, or `ended` ─▶ settle
              └───▶ hand_over: another body reads the rest of the block

A step takes in what it can of a text from a place on, and returns how far it came.
"""

from __future__ import annotations

from collections.abc import Callable

from shepherd.dialects.parse.call import Calls
from shepherd.dialects.parse.markup import MAX_BLANKS, Block, Body, MakeBody, Markers, Opening, Thought, markers_of

Step = Callable[[str, int, bool], int]
"""`step(text, at, final)`, as `Body.feed`, for one part of a block."""


class Machine:
    """A `Body` that goes from step to step. A subclass sets `_step` to its first step."""

    _step: Step

    def __init__(self, opening: Opening) -> None:
        self.ended = False
        self.closed = False
        self.declined = ""
        self.then: Thought | None = None
        self._block, self._openers, self._tools, written = opening
        self._written = [written or self._block.opener]  # what was read since the last report
        self._ready: list[tuple[str, Calls]] = []

    def feed(self, text: str, at: int, final: bool) -> int:
        while not self.ended:
            step = self._step
            stop = step(text, at, final)
            if stop > at:
                self._written.append(text[at:stop])
                at = stop
            elif step == self._step and not self.ended:
                return at
        self._settle(cut=final and at == len(text) and not self.closed)
        return at

    def take_calls(self) -> list[tuple[str, Calls]]:
        if not self._ready:
            return []
        ready, self._ready = self._ready, []
        return ready

    def _settle(self, *, cut: bool) -> None:
        """The block has ended: a subclass makes calls or text of what was read. `cut`: the output ended in it."""

    def _stops(self) -> Markers:
        """What may end the block: its closers, and what opens another one."""
        return markers_of(*self._openers, *self._block.closers)

    def _report(self, calls: Calls, keep: int = 0) -> None:
        """Reports calls with all that was written; the last `keep` characters belong to the next call."""
        written = "".join(self._written)
        split = len(written) - keep
        self._ready.append((written[:split], calls))
        self._written = [written[split:]]

    def _close(self, marker: str, at: int) -> int:
        """Ends the block at a marker that stands at `at`; returns the place behind it if it is a closer, else `at`."""
        self.ended = True
        self.closed = marker in self._block.closers
        return at + len(marker) if self.closed else at

    def _garbage_end(self, markers: Markers, behind: Step, text: str, at: int, final: bool) -> int:
        """The end of what is no value: at a marker, which `behind` reads, or with the output."""
        stop, marker = markers.find_settled(text, at, final)
        if marker:
            self._step = behind
        elif final:
            self.ended = True
        return stop


class HandingOver(Machine):
    """A machine whose steps may let another body read the rest of the block."""

    # A class of its own, for speed: the interpreter's inline caches serve one class at a time.

    def __init__(self, opening: Opening) -> None:
        super().__init__(opening)
        self._opening = opening
        self._inner: Body | None = None

    def feed(self, text: str, at: int, final: bool) -> int:
        inner = self._inner
        if inner is None:
            at = Machine.feed(self, text, at, final)
            inner = self._inner
            if inner is None:
                return at
        at = inner.feed(text, at, final)
        if inner.ended:
            self.ended, self.closed, self.declined, self.then = True, inner.closed, inner.declined, inner.then
        return at

    def take_calls(self) -> list[tuple[str, Calls]]:
        ready = Machine.take_calls(self)
        return [*ready, *self._inner.take_calls()] if self._inner else ready

    def _hand_over(self, make: MakeBody, block: Block | None = None) -> None:
        opening = self._opening
        self._inner = make(opening._replace(block=block or opening.block, written="".join(self._written)))
        self._step = lambda text, at, final: at


def kept_blanks(start: int, stop: int) -> int:
    """Where the blanks begin that a call leaves to what follows it, such as indentation."""
    return max(start, stop - MAX_BLANKS)


_body: type[Body] = Machine
