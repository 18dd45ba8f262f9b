"""A call that is a tag of the tool's own name, for declared tools only: in any other place such a tag is HTML (S8).

    <roll sides="6"/>      <roll sides="6"></roll>      <roll>{"sides": 6}</roll>      <roll><sides>6</sides></roll>

The tag is read character by character, and is text as soon as it cannot be one of these any more.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from html import unescape

from shepherd.core import ToolSpec
from shepherd.dialects.parse.bodies.json_body import after_blanks
from shepherd.dialects.parse.bodies.json_text import JsonText
from shepherd.dialects.parse.call import Fault, Found, read_arguments
from shepherd.dialects.parse.markup import Block, MakeBody, Thought, markers_of
from shepherd.dialects.parse.values import find_tool, object_text

Pairs = list[tuple[str, str]]
HOW = 'write <name param="value"/>'
CHILD = re.compile(r"<([\w.-]{0,64})(>?)")


def attributes() -> Generator[None, str, tuple[Pairs, bool] | None]:
    """What a tag says behind its name, and whether it closes itself; takes characters one by one. `None`: no tag."""
    pairs: Pairs = []
    char = yield
    if not (char.isspace() or char in "/>"):
        return None
    while True:
        while char.isspace():
            char = yield
        if char == ">":
            return pairs, False
        if char == "/":
            return (pairs, True) if (yield) == ">" else None
        name = ""
        while char.isalnum() or char in "_-.":
            name += char
            char = yield
        while char.isspace():
            char = yield
        if not name or char != "=":
            return None
        char = yield
        while char.isspace():
            char = yield
        value: list[str] = []
        quote = char if char in "\"'" else ""
        if quote:
            while (char := (yield)) != quote:
                value.append(char)
            char = yield
        else:
            while not (char.isspace() or char in "/>"):
                value.append(char)
                char = yield
        pairs.append((name, unescape("".join(value))))


class SimpleBody:
    """One such call, behind `<name`."""

    def __init__(self, block: Block, openers: Sequence[str], tools: Sequence[ToolSpec]) -> None:
        self.ended = False
        self.closed = False
        self.declined = ""
        self.then: Thought | None = None
        self._name = block.opener[1:]
        self._tool = find_tool(tools, self._name)
        self._closer = f"</{self._name}>"
        self._closers = markers_of(self._closer)
        self._written = [block.opener]
        self._pairs: Pairs = []
        self._tag = attributes()
        next(self._tag)
        self._step = self._attributes
        self._below = False  # a line has ended behind the tag
        self._inside: list[str] = []
        self._json = JsonText(self._closers, "<")
        self._ready: list[tuple[str, tuple[Found | Fault, ...]]] = []

    def feed(self, text: str, at: int, final: bool) -> int:
        while not self.ended:
            step = self._step
            stop = step(text, at, final)
            self._written.append(text[at:stop])
            if stop == at and step == self._step:
                break
            at = stop
        if self.ended and not self._ready:
            self.declined = "".join(self._written)
        return at

    def take_calls(self) -> list[tuple[str, tuple[Found | Fault, ...]]]:
        ready, self._ready = self._ready, []
        if ready:
            return [("".join(self._written).rstrip(), ready[0][1])]
        return ready

    # Each step takes in what it can from `at` on and says how far it came.

    def _attributes(self, text: str, at: int, final: bool) -> int:
        for place in range(at, len(text)):
            try:
                self._tag.send(text[place])
            except StopIteration as read:
                if read.value is None:
                    self.ended = True
                else:
                    self._pairs, closes = read.value
                    self._step = self._lead
                    if closes:
                        self._report(self._found([]))
                return place + 1
        if final:
            begun = "".join((*self._written[1:], text[at:])).strip()
            self._report(Fault(f"the output ended inside of the call; {HOW}", self._name) if begun else None)
        return len(text)

    def _lead(self, text: str, at: int, final: bool) -> int:
        stop = after_blanks(text, at)
        self._below = self._below or "\n" in text[at:stop]
        call = self._found([]) if self._pairs else None
        if stop == len(text):
            if final:
                self._report(call)
            return stop
        if text.startswith(self._closer, stop):
            self._report(self._found([]))
            return stop + len(self._closer)
        child = CHILD.match(text, stop)
        if not final and (self._closer.startswith(text[stop:]) or (child and child.end() == len(text))):
            return stop
        if text[stop] == "{":
            self._step = self._object
        elif child and child[2] and self._tool and child[1] in self._tool.parameters.get("properties", {}):
            self._step = self._children
        else:
            self._report(call if self._below else None)
        return stop

    def _object(self, text: str, at: int, final: bool) -> int:
        stop = self._json.feed(text, at, final)
        if self._json.ended or self._json.cut or (final and stop == len(text)):
            self._step = self._behind
            self._call = read_arguments(self._name, self._json.text, whole=self._json.ended or self._json.cut)[0]
        return stop

    def _behind(self, text: str, at: int, final: bool) -> int:
        stop = after_blanks(text, at)
        if text.startswith(self._closer, stop):
            stop += len(self._closer)
        elif not final and self._closer.startswith(text[stop:]):
            return stop
        self._report(self._call)
        return stop

    def _children(self, text: str, at: int, final: bool) -> int:
        stop, marker = self._closers.find(text, at)
        if not marker and not final:
            stop -= self._closers.begun(text, at)
        self._inside.append(text[at:stop])
        if marker or final:
            pairs = self._read_children("".join(self._inside))
            fault = Fault(f"the call cannot be read; {HOW}", self._name)
            self._report(self._found(pairs) if pairs else fault)
        return stop + len(marker)

    def _read_children(self, inside: str) -> Pairs:
        """The parameters in it; none when there is anything else."""
        assert self._tool is not None
        names = "|".join(map(re.escape, self._tool.parameters.get("properties", {})))
        child = re.compile(rf"\s*<({names})>\n?(.*?)\n?</\1>\s*(?=<(?:{names})>|$)", re.DOTALL)
        pairs: Pairs = []
        at = 0
        while match := child.match(inside, at):
            pairs.append((match[1], match[2]))
            at = match.end()
        return pairs if at == len(inside) else []

    def _found(self, pairs: Pairs) -> Found:
        return Found(self._name, object_text(self._tool, [*self._pairs, *pairs]))

    def _report(self, call: Found | Fault | None) -> None:
        self.ended = True
        if call:
            self._ready.append(("", (call,)))


_body: MakeBody = SimpleBody
