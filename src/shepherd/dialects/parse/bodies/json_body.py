"""The inside of a call block that is JSON: it ends where its object ends, whatever the strings in it look like.

    lead ──{──> value ──}──> after ──closer──> ended        after ──{──> value: several objects in one block
     └─other──> garbage ─────closer or end───> ended        after ──text──> ended, the closer was forgotten

Only the depth and the open quote are kept while characters pass, so the cost is linear for any cutting (S5, S18), and
braces, backticks or closers inside of strings are the strings' own (S3). Not here: what the object says (`call`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from shepherd.core import ToolSpec
from shepherd.dialects.parse.bodies.machine import Machine
from shepherd.dialects.parse.call import HERMES_KEYS, Fault, Found, Keys, read_calls
from shepherd.dialects.parse.markup import Block, MakeBody, markers_of

Read = Callable[[str, bool], tuple[Found | Fault, ...]]
BLANKS = re.compile(r"\s*")
FENCE = re.compile(r"```[a-zA-Z]*(?=[\s{\[])")
FENCE_BEGUN = re.compile(r"`{1,3}|```[a-zA-Z]*")
JUNK = re.compile(r"[\s}\],;`]*")
IN_STRING = {'"': re.compile(r'[\\"]'), "'": re.compile(r"[\\']")}


class JsonBody(Machine):
    """JSON objects, or arrays of them, between an opener and its closers."""

    def __init__(
        self,
        block: Block,
        openers: Sequence[str],
        tools: Sequence[ToolSpec],
        *,
        keys: Keys = HERMES_KEYS,
        read: Read | None = None,
    ) -> None:
        """`read` makes calls of a value, given whether it is whole, where it is not `call.read_calls` with `keys`."""
        steps = {"lead": self._lead, "value": self._value, "after": self._after, "garbage": self._garbage}
        super().__init__(block.opener, "lead", steps)
        self._block = block
        self._read = read or (lambda text, whole: read_calls(text, keys=keys, tools=tools, whole=whole))
        self._markers = markers_of(*openers, *block.closers)
        firsts = "".join({re.escape(closer[0]) for closer in block.closers})
        self._outside = re.compile(rf"[\"'{{}}\[\]{firsts}]")
        self._depth = 0
        self._quote = ""
        self._spelled: list[str] = []  # the value's text so far

    def _settle(self, *, cut: bool) -> None:
        self._finish(whole=self._state == "after" or self.closed)

    def _finish(self, *, whole: bool) -> None:
        calls = self._read("".join(self._spelled), whole)
        self._ready.append(("".join(self._written), calls))
        self._written, self._spelled = [], []

    # Each step takes in what it can from `at` on and says how far it came.

    def _lead(self, text: str, at: int, final: bool) -> int:
        after = after_blanks(text, at)
        if after == len(text):
            self.ended = final
            return after
        if text[after] in "{[":
            self._state = "value"
        elif fence := FENCE.match(text, after):
            return fence.end()
        elif not final and (self._markers.is_begun(text, after) or FENCE_BEGUN.fullmatch(text, after)):
            return at  # a marker may become a longer one
        elif marker := self._markers.standing(text, after):
            if marker == self._block.opener:
                return after + len(marker)  # written twice
            self._end(marker)
            return after + len(marker) if self.closed else after
        else:
            self._state = "garbage"
        return after

    def _value(self, text: str, at: int, final: bool) -> int:
        stop = self._value_end(text, at, final)
        self._spelled.append(text[at:stop])
        if final and stop == len(text) and self._state == "value":
            self.ended = True
        return stop

    def _value_end(self, text: str, at: int, final: bool) -> int:
        while True:
            found = (IN_STRING[self._quote] if self._quote else self._outside).search(text, at)
            if found is None:
                return len(text)
            start, at = found.span()
            match found[0]:
                case "\\":
                    if at == len(text) and not final:
                        return start
                    at += 1
                case "{" | "[":
                    self._depth += 1
                case "}" | "]":
                    self._depth -= 1
                    if self._depth == 0:
                        self._state = "after"
                        return at
                case '"' | "'" as quote:
                    self._quote = "" if self._quote else quote
                case _:
                    if self._markers.standing(text, start) in self._block.closers:
                        self._state = "after"
                        return start
                    if not final and self._markers.is_begun(text, start):
                        return start

    def _after(self, text: str, at: int, final: bool) -> int:
        junk = JUNK.match(text, at)
        if junk and junk[0]:
            return junk.end()
        marker = self._markers.standing(text, at)
        if at == len(text):
            self.ended = final
        elif text[at] == "{":
            self._finish(whole=True)
            self._state, self._depth, self._quote = "value", 0, ""
        elif marker or final or not self._markers.is_begun(text, at):
            self._end(marker)
            return at + len(marker) if self.closed else at
        return at

    def _garbage(self, text: str, at: int, final: bool) -> int:
        stop = self._pass_garbage(self._markers, text, at, final)
        self._spelled.append(text[at:stop])
        return stop

    def _end(self, marker: str) -> None:
        self.ended = True
        self.closed = marker in self._block.closers


def after_blanks(text: str, at: int) -> int:
    """The next position from `at` on that is not blank."""
    blanks = BLANKS.match(text, at)
    return blanks.end() if blanks else at


_body: MakeBody = JsonBody
