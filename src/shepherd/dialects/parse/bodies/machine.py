"""What all bodies share: the steps, the text read so far, the calls found, and handing a block over to another body.

    feed ─▶ step ─▶ reads some text, perhaps sets the next step ─▶ ... ─▶ no step can go on, or `ended` ─▶ settle
              └───▶ hand_over: another body reads the rest of the block

A step takes in what it can of a text from a place on, and returns how far it came. Not here: the steps (one file a
notation).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shepherd.core import ToolSpec
from shepherd.dialects.parse.call import Calls
from shepherd.dialects.parse.markup import Block, Body, MakeBody, Markers, Thought, markers_of

Step = Callable[[str, int, bool], int]
"""`step(text, at, final)`, as `Body.feed`, for one part of a block."""
MAX_BLANKS = 64
"""So many blanks are held back at most."""


class Machine:
    """A `Body` that goes from step to step. A subclass sets `_step` to its first step."""

    _step: Step

    def __init__(self, block: Block, openers: Sequence[str], tools: Sequence[ToolSpec]) -> None:
        self.ended = False
        self.closed = False
        self.declined = ""
        self.then: Thought | None = None
        self._block = block
        self._openers = openers
        self._tools = tools
        self._markers = markers_of(*openers, *block.closers)
        self._written = [block.opener]  # what was read since the last report
        self._ready: list[tuple[str, Calls]] = []
        self._inner: Body | None = None  # reads the rest of the block
        self._inner_opener = ""

    def feed(self, text: str, at: int, final: bool) -> int:
        if self._inner is None:
            at = self._run(text, at, final)
            if self.ended:
                self._settle(cut=final and at == len(text) and not self.closed)
        if self._inner is not None:
            at = self._inner.feed(text, at, final)
            self.ended, self.closed = self._inner.ended, self._inner.closed
            self.declined, self.then = self._inner.declined, self._inner.then
        return at

    def take_calls(self) -> list[tuple[str, Calls]]:
        ready, self._ready = self._ready, []
        for written, calls in self._inner.take_calls() if self._inner else ():
            before = "".join(self._written)
            ready.append((before + written.removeprefix(self._inner_opener) if before else written, calls))
            self._written = []
        return ready

    def _run(self, text: str, at: int, final: bool) -> int:
        """Goes from step to step until none can go on; returns how far they came."""
        while not self.ended and self._inner is None:
            step = self._step
            stop = step(text, at, final)
            self._written.append(text[at:stop])
            if stop == at and step == self._step and not self.ended:
                break
            at = stop
        return at

    def _settle(self, *, cut: bool) -> None:
        """The block has ended: a subclass makes calls or text of what was read. `cut`: the output ended in it."""

    def _hand_over(self, make: MakeBody, block: Block | None = None) -> None:
        """Lets another body read the rest, behind what the current step returns."""
        block = block or self._block
        self._inner, self._inner_opener = make(block, self._openers, self._tools), block.opener

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
        """The end of what is no value: at a marker, where `behind` goes on, or with the output."""
        stop, marker = markers.find_settled(text, at, final)
        if marker:
            self._step = behind
        elif final:
            self.ended = True
        return stop


def kept_blanks(start: int, stop: int) -> int:
    """Where the blanks begin that a call leaves to what follows it, such as indentation."""
    return max(start, stop - MAX_BLANKS)


_body: type[Body] = Machine
