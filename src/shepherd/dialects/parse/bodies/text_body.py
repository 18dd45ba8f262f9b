"""A block whose inside is text up to the next marker, such as a program."""

from __future__ import annotations

from collections.abc import Sequence

from shepherd.core import ToolSpec
from shepherd.dialects.parse.bodies.machine import Machine
from shepherd.dialects.parse.call import Calls, Read
from shepherd.dialects.parse.markup import Opening


class TextBody(Machine):
    def __init__(self, opening: Opening, *, read: Read) -> None:
        super().__init__(opening)
        self._markers = self._stops()
        self._read = read
        self._text: list[str] = []
        self._whole = False
        self._step = self._to_marker

    def _settle(self, *, cut: bool) -> None:
        self._report(self._read("".join(self._text), self._tools, self._whole))

    def _to_marker(self, text: str, at: int, final: bool) -> int:
        stop, marker = self._markers.find_settled(text, at, final)
        self._text.append(text[at:stop])
        if marker or final:
            self._whole = bool(marker) or not self._block.closers
            return self._close(marker, stop)
        return stop


def dropped(text: str, tools: Sequence[ToolSpec], whole: bool) -> Calls:
    """No call: a message that the model writes in the name of another role is dropped (TPL-16)."""
    return ()
