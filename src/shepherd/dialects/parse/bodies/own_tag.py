"""A call that is a tag of the tool's own name, for declared tools only: any other such tag is HTML (S8).

    <roll sides="6"/>      <roll sides="6"></roll>      <roll>{"sides": 6}</roll>      <roll><sides>6</sides></roll>

The tag is read character by character. It becomes text at the first character that none of these forms has.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from html import unescape

from shepherd.dialects.parse.bodies.json_text import JsonText, after_blanks
from shepherd.dialects.parse.bodies.machine import Machine
from shepherd.dialects.parse.call import Fault, Found, read_arguments
from shepherd.dialects.parse.markup import Opening, markers_of
from shepherd.dialects.parse.values import find_tool, object_text

Pairs = list[tuple[str, str]]
HOW = 'write <name param="value"/>'
CHILD = re.compile(r"<([\w.-]{0,64})(>?)")


def attributes() -> Generator[None, str, tuple[Pairs, bool] | None]:
    """The attributes of a tag, and whether it closes itself; takes the characters behind its name one by one.
    `None`: this is no tag."""
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


class OwnTagBody(Machine):
    def __init__(self, opening: Opening) -> None:
        super().__init__(opening)
        self._name = opening.block.opener[1:]
        self._tool = find_tool(opening.tools, self._name)
        self._closer = f"</{self._name}>"
        self._closers = markers_of(self._closer)
        self._pairs: Pairs = []
        self._tag = attributes()
        next(self._tag)
        self._step = self._attributes
        self._below = False  # a line has ended behind the tag
        self._inside: list[str] = []
        self._json = JsonText(self._closers, (self._closer,))
        self._call: Found | Fault | None = None

    def _settle(self, *, cut: bool) -> None:
        if self._call:
            self._ready.append(("".join(self._written).rstrip(), (self._call,)))
        else:
            self.declined = "".join(self._written)

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
                        self._end(self._found())
                return place + 1
        if final:
            begun = "".join((*self._written[1:], text[at:])).strip()
            self._end(Fault(f"the output ended inside of the call; {HOW}", self._name) if begun else None)
        return len(text)

    def _lead(self, text: str, at: int, final: bool) -> int:
        stop = after_blanks(text, at)
        self._below = self._below or "\n" in text[at:stop]
        call = self._found() if self._pairs else None
        if stop == len(text):
            if final:
                self._end(call)
            return stop
        if text.startswith(self._closer, stop):
            self._end(self._found())
            return stop + len(self._closer)
        child = CHILD.match(text, stop)
        if not final and (self._closer.startswith(text[stop:]) or (child and child.end() == len(text))):
            return stop
        if text[stop] == "{":
            self._step = self._object
        elif child and child[2] and self._tool and child[1] in self._tool.parameters.get("properties", {}):
            self._step = self._children
        else:
            self._end(call if self._below else None)
        return stop

    def _object(self, text: str, at: int, final: bool) -> int:
        stop = self._json.feed(text, at, final)
        whole = self._json.ended or self._json.cut
        if whole or (final and stop == len(text)):
            self._step = self._behind
            self._call = read_arguments(self._name, self._json.text, whole=whole)[0]
        return stop

    def _behind(self, text: str, at: int, final: bool) -> int:
        stop = after_blanks(text, at)
        if text.startswith(self._closer, stop):
            stop += len(self._closer)
        elif not final and self._closer.startswith(text[stop:]):
            return stop
        self.ended = True
        return stop

    def _children(self, text: str, at: int, final: bool) -> int:
        stop, marker = self._closers.find_settled(text, at, final)
        self._inside.append(text[at:stop])
        if marker or final:
            assert self._tool is not None
            names = "|".join(map(re.escape, self._tool.parameters.get("properties", {})))
            child = re.compile(rf"\s*<({names})>\n?(.*?)\n?</\1>\s*(?=<(?:{names})>|$)", re.DOTALL)
            inside, read, pairs = "".join(self._inside), 0, []
            while match := child.match(inside, read):
                pairs.append((match[1], match[2]))
                read = match.end()
            is_call = pairs and read == len(inside)
            self._end(self._found(*pairs) if is_call else Fault(f"the call cannot be read; {HOW}", self._name))
        return stop + len(marker)

    def _found(self, *more: tuple[str, str]) -> Found:
        return Found(self._name, object_text(self._tool, [*self._pairs, *more]))

    def _end(self, call: Found | Fault | None) -> None:
        self.ended, self._call = True, call
