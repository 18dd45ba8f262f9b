"""The inside of a call block that is JSON: it ends where its object ends.

lead ──{──> value ──}──> after ──closer──> ended        after ──{──> value: several objects in one block
 └─other──> garbage ─────closer or end───> ended        after ──text──> ended, the closer is missing
"""

from __future__ import annotations

import re

from shepherd.dialects.parse.bodies.json_text import FENCE, FENCE_BEGUN, JsonText, after_blanks
from shepherd.dialects.parse.bodies.machine import Machine
from shepherd.dialects.parse.call import HERMES_KEYS, Keys, Read, read_calls
from shepherd.dialects.parse.markup import Opening

JUNK = re.compile(r"[\s}\],;`]*")


class JsonBody(Machine):
    """JSON objects, or arrays of them, between an opener and its closers."""

    def __init__(self, opening: Opening, *, keys: Keys = HERMES_KEYS, read: Read | None = None) -> None:
        """`read` makes calls of a value where `call.read_calls` with `keys` does not."""
        super().__init__(opening)
        self._step = self._lead
        self._markers = self._stops()
        self._read = read or (lambda text, tools, whole: read_calls(text, keys=keys, tools=tools, whole=whole))
        self._begin()

    def _begin(self) -> None:
        self._value = JsonText(self._markers, self._block.closers)
        self._garbage: list[str] = []  # what stands where the value should

    def _settle(self, *, cut: bool) -> None:
        self._finish(whole=self._step == self._after or self.closed)

    def _finish(self, *, whole: bool) -> None:
        text = self._value.text + "".join(self._garbage)
        self._report(self._read(text, self._tools, whole))

    def _lead(self, text: str, at: int, final: bool) -> int:
        after = after_blanks(text, at)
        if after == len(text):
            self.ended = final
            return after
        if text[after] in "{[":
            self._step = self._in_value
        elif fence := FENCE.match(text, after):
            return fence.end()
        elif not final and (self._markers.is_begun(text, after) or FENCE_BEGUN.fullmatch(text, after)):
            return at  # a marker may become a longer one
        elif marker := self._markers.standing(text, after):
            if marker == self._block.opener:
                return after + len(marker)  # written twice
            return self._close(marker, after)
        else:
            self._step = self._in_garbage
        return after

    def _in_value(self, text: str, at: int, final: bool) -> int:
        value = self._value
        stop = value.feed(text, at, final)
        if value.ended or value.cut:
            self._step = self._after
        elif final and stop == len(text):
            self.ended = True
        return stop

    def _after(self, text: str, at: int, final: bool) -> int:
        junk = JUNK.match(text, at)
        if junk and junk[0]:
            return junk.end()
        marker = self._markers.standing(text, at)
        if at == len(text):
            self.ended = final
        elif text[at] == "{":
            self._finish(whole=True)
            self._begin()
            self._step = self._in_value
        elif marker or final or not self._markers.is_begun(text, at):
            return self._close(marker, at)
        return at

    def _in_garbage(self, text: str, at: int, final: bool) -> int:
        stop = self._garbage_end(self._markers, self._after, text, at, final)
        self._garbage.append(text[at:stop])
        return stop
