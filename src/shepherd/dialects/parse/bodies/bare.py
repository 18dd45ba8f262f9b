"""Bare JSON that is a call, and the code fences in which it never is one (S4).

    {"name": "roll", "parameters": {"sides": 6}}      [{"name": "roll", "arguments": {"sides": 6}}]
    [roll(sides=6)]

It counts if it names a declared tool, holds nothing but the members of a call, and has its lines to itself. A tool's
definition does not count, nor does a part of a larger value. What cannot be a call is text at once:

    head ──name of a tool──> value ──its end──> after ──end, line or another──> ended, a call
     └─any other key or name─> declined           └─text, or a list continues──> declined
"""

from __future__ import annotations

import re
from collections.abc import Collection, Generator
from functools import partial

from shepherd.core.dataclasses import dataclass
from shepherd.dialects.parse.bodies.header import HeaderBody, declined
from shepherd.dialects.parse.bodies.json_text import JsonText, after_blanks
from shepherd.dialects.parse.bodies.machine import Machine
from shepherd.dialects.parse.bodies.python_body import read_python_calls
from shepherd.dialects.parse.call import (
    UNREADABLE,
    Calls,
    Found,
    Keys,
    candidates,
    json_string,
    objects,
    read_calls,
    sliced,
)
from shepherd.dialects.parse.markup import MAX_BLANKS, Body, MakeBody, Opening, markers_of

KEYS = Keys(name=("name", "function", "tool_name"), arguments=("parameters", "arguments"), id=("id", "tool_call_id"))
CALL_KEYS = frozenset({*KEYS.name, *KEYS.arguments, *KEYS.id, "type"})
NAMED = re.compile(r"""\[?\s*\{\s*["'](?:name|type|function|tool_name)["']""")

Recogniser = Generator[None, str, bool]
"""Takes characters one by one; returns as early as possible whether a call has begun."""


def blanks() -> Generator[None, str, str]:
    """The next character that is not blank."""
    for _ in range(MAX_BLANKS):
        char = yield
        if not char.isspace():
            return char
    return ""


def word(choices: Collection[str], quote: str) -> Generator[None, str, str]:
    """Which of the choices stands up to the quote; empty when none does."""
    written = ""
    while True:
        char = yield
        if char == quote:
            return written if written in choices else ""
        written += char
        if not any(choice.startswith(written) for choice in choices):
            return ""


def head(names: Collection[str]) -> Recogniser:
    bracket = yield from blanks()
    if bracket == "[":
        bracket = yield from blanks()
    while bracket == "{":
        quote = yield from blanks()
        if quote not in {'"', "'"}:
            return False
        key = yield from word(CALL_KEYS, quote)
        if not key or (yield from blanks()) != ":":
            return False
        if key in KEYS.arguments:
            return True
        char = yield from blanks()
        if key == "function" and char == "{":
            continue
        if char != quote:
            return False
        if key in KEYS.name:
            return bool((yield from word(names, quote)))
        if key != "type" or not (yield from word(("function",), quote)) or (yield from blanks()) != ",":
            return False
    return False


@dataclass(slots=True)
class Fences:
    """Which code fence is open, in one answer."""

    open: str = ""


class FenceBody(Machine):
    """The mark of a code fence: text, and remembered."""

    def __init__(self, opening: Opening, *, fences: Fences) -> None:
        super().__init__(opening)
        self._fences = fences
        self._step = self._mark

    def _mark(self, text: str, at: int, final: bool) -> int:
        char = self._block.opener[0]
        end = at
        while text[end : end + 1] == char:
            end += 1
        if end == len(text) and not final:
            return end
        self.ended = True
        self.declined = mark = "".join(self._written) + text[at:end]
        opened = self._fences.open
        if not opened:
            self._fences.open = mark
        elif mark.startswith(opened) and not text[end : end + 1].isalnum():  # a language begins a new one
            self._fences.open = ""
        return end


def unfenced(body: MakeBody, fences: Fences) -> MakeBody:
    """The same body, except that everything is text while a fence is open."""

    def make(opening: Opening) -> Body:
        return (partial(HeaderBody, read=declined) if fences.open else body)(opening)

    return make


class BareBody(Machine):
    def __init__(self, opening: Opening, *, python: bool = False) -> None:
        """`python`: a list of calls in Python's form; the opener has named the first."""
        super().__init__(opening)
        self._names = {tool.name: tool for tool in opening.tools}
        self._value = JsonText(markers_of(), ())
        self._near = True  # nothing stands behind the value
        self._comma = False
        self._below = False  # the value's last line has ended
        self._is_call = True
        self._cut = False  # the output ended inside of the value
        self._python = python
        self._head: Recogniser = head(self._names)
        next(self._head)
        self._step = self._in_value if python else self._in_head
        self._step(opening.block.opener, 0, False)

    def _settle(self, *, cut: bool) -> None:
        written = "".join(self._written)
        if self._cut:
            read = read_python_calls if self._python else read_calls
            self._calls = read(written, whole=False)
            self._is_call = self._python or NAMED.match(written) is not None
        if self._is_call:
            self._ready.append((written.rstrip(), self._calls))
        else:
            self.declined = written

    def _in_head(self, text: str, at: int, final: bool) -> int:
        for place in range(at, len(text)):
            try:
                self._head.send(text[place])
            except StopIteration as judged:
                if not judged.value:
                    self._end(is_call=False)
                    return place  # the character that decided may be markup
                self._value.feed("".join(self._written) + text[at : place + 1], 0, False)
                self._step = self._in_value
                return place + 1
        self.ended = self._cut = final
        return len(text)

    def _in_value(self, text: str, at: int, final: bool) -> int:
        stop = self._value.feed(text, at, final)
        if self._value.ended:
            self._calls = self._read()
            self._step = self._after
            if not self._calls:
                self._end(is_call=False)
        elif final:
            self.ended = self._cut = True
        return stop

    def _after(self, text: str, at: int, final: bool) -> int:
        stop = after_blanks(text, at)
        self._near = self._near and stop == at
        self._below = self._below or "\n" in text[at:stop]
        if stop == len(text):
            self.ended = final
            return stop
        match text[stop]:
            case "}" if self._near:
                self._near = False
                return stop + 1
            case "," if not self._comma:
                self._comma = True
                return stop + 1
            case ";":
                stop += 1
                self._end(is_call=True)
            case "{" | "[" | "<":
                self._end(is_call=True)
            case "]" | "}" | ",":
                self._end(is_call=False)
            case _:
                self._end(is_call=self._below and not self._comma)
        return stop

    def _end(self, *, is_call: bool) -> None:
        self.ended, self._is_call = True, is_call

    def _read(self) -> Calls:
        """The calls that the value spells; none when it spells something else."""
        text = self._value.text
        if self._python:
            found = read_python_calls(text)
            return found if all(isinstance(call, Found) and call.name in self._names for call in found) else ()
        for candidate in candidates(text, True):
            try:
                items = [unwrapped(item) for item in objects(candidate())]
            except UNREADABLE:
                continue
            return read_calls(text, keys=KEYS) if all(map(self._calls_declared, items)) else ()
        return read_calls(text, keys=KEYS) if NAMED.match(text) else ()

    def _calls_declared(self, members: dict[str, str]) -> bool:
        """Whether an object is a call of a declared tool and nothing else."""
        name = next((json_string(members[key]) for key in KEYS.name if key in members), "")
        arguments = next((members[key] for key in KEYS.arguments if key in members), "")
        if members.keys() - CALL_KEYS or name not in self._names or arguments[:1] not in {"{", '"'}:
            return False
        # The object may be the definition of the tool.
        defines = arguments[0] == "{" and sliced(arguments).keys() >= {"type", "properties"}
        return not defines or "properties" in self._names[name].parameters.get("properties", {})


def unwrapped(text: str) -> dict[str, str]:
    """The members of a call object, or of the one in it. Raises: `ValueError`."""
    members = sliced(text)
    inner = members.get("function", "")
    if inner.startswith("{") and not members.keys() - CALL_KEYS:
        return sliced(inner)
    return members
