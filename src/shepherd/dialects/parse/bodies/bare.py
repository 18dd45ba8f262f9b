"""Bare JSON that is a call, and the code fences in which it never is one (S4).

    {"name": "roll", "parameters": {"sides": 6}}      [{"name": "roll", "arguments": {"sides": 6}}]
    [roll(sides=6)]

It counts if it names a declared tool, says nothing but what a call says, and has its lines to itself; what reads like a
tool's definition, or stands in a larger value, does not. Whatever cannot be a call any more is text at once:

    head ──name of a tool──> value ──its end──> after ──end, line or another──> ended, a call
     └─any other key or name─> declined           └─text, or a list goes on──> declined

Not here: where such a value may begin (`families.generic`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Generator, Sequence
from dataclasses import dataclass
from functools import partial

from shepherd.core import ToolSpec
from shepherd.dialects.parse.bodies.json_body import after_blanks
from shepherd.dialects.parse.bodies.json_text import JsonText
from shepherd.dialects.parse.bodies.python_body import read_python_calls
from shepherd.dialects.parse.call import Fault, Found, Keys, candidates, json_string, objects, read_calls, sliced
from shepherd.dialects.parse.markup import Block, Body, MakeBody, Thought, markers_of

KEYS = Keys(name=("name", "function", "tool_name"), arguments=("parameters", "arguments"), id=("id", "tool_call_id"))
CALL_KEYS = frozenset({*KEYS.name, *KEYS.arguments, *KEYS.id, "type"})
MAX_BLANKS = 64
NAMED = re.compile(r"""\[?\s*\{\s*["'](?:name|type|function|tool_name)["']""")

Head = Generator[None, str, bool]
"""Takes characters one by one; returns, as early as can be, whether a call has begun."""


def blanks() -> Generator[None, str, str]:
    """The next character that is not blank."""
    for _ in range(MAX_BLANKS):
        char = yield
        if not char.isspace():
            return char
    return ""


def word(choices: Collection[str], quote: str) -> Generator[None, str, str]:
    """Which of the choices stands up to the quote; empty when none does."""
    said = ""
    while True:
        char = yield
        if char == quote:
            return said if said in choices else ""
        said += char
        if not any(choice.startswith(said) for choice in choices):
            return ""


def head(names: Collection[str]) -> Head:
    """The beginning of a call of one of these tools."""
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


class FenceBody:
    """A code fence: text, and remembered."""

    def __init__(self, block: Block, openers: Sequence[str], tools: Sequence[ToolSpec], *, fences: Fences) -> None:
        self.ended = False
        self.closed = False
        self.declined = ""
        self.then: Thought | None = None
        self._fences = fences
        self._mark = block.opener

    def feed(self, text: str, at: int, final: bool) -> int:
        start, char = at, self._mark[0]
        while text[at : at + 1] == char:
            at += 1
        self._mark += text[start:at]
        if at == len(text) and not final:
            return at
        self.ended = True
        self.declined = self._mark
        opened = self._fences.open
        if not opened:
            self._fences.open = self._mark
        elif self._mark.startswith(opened) and not text[at : at + 1].isalnum():  # a language begins a new one
            self._fences.open = ""
        return at

    def take_calls(self) -> list[tuple[str, tuple[Found | Fault, ...]]]:
        return []


class TextBody:
    """An opener that is text after all."""

    def __init__(self, block: Block) -> None:
        self.ended = False
        self.closed = False
        self.declined = block.opener
        self.then: Thought | None = None

    def feed(self, text: str, at: int, final: bool) -> int:
        self.ended = True
        return at

    def take_calls(self) -> list[tuple[str, tuple[Found | Fault, ...]]]:
        return []


def unfenced(body: MakeBody, fences: Fences) -> MakeBody:
    """The same body, except that everything is text while a fence is open."""

    def make(block: Block, openers: Sequence[str], tools: Sequence[ToolSpec]) -> Body:
        return TextBody(block) if fences.open else body(block, openers, tools)

    return make


class BareBody:
    """One value, or text."""

    def __init__(
        self, block: Block, openers: Sequence[str], tools: Sequence[ToolSpec], *, python: bool = False
    ) -> None:
        """`python`: a list of calls in Python's form, whose opener has named the first."""
        self.ended = False
        self.closed = False
        self.declined = ""
        self.then: Thought | None = None
        self._tools = {tool.name: tool for tool in tools}
        self._step = self._head
        self._written: list[str] = []
        self._value = JsonText(markers_of(), "")
        self._near = True  # nothing stands behind the value
        self._comma = False
        self._below = False  # the value's last line has ended
        self._calls: tuple[Found | Fault, ...] = ()
        self._ready: list[tuple[str, tuple[Found | Fault, ...]]] = []
        self._python = python
        self._judge: Head = head(self._tools)
        next(self._judge)
        if python:
            self._step = self._argue
        self._step(block.opener, 0, False)

    def feed(self, text: str, at: int, final: bool) -> int:
        while not self.ended:
            step = self._step
            stop = step(text, at, final)
            if stop == at and step == self._step:
                break
            at = stop
        return at

    def take_calls(self) -> list[tuple[str, tuple[Found | Fault, ...]]]:
        ready, self._ready = self._ready, []
        return ready

    # Each step takes in what it can from `at` on and says how far it came.

    def _head(self, text: str, at: int, final: bool) -> int:
        for place in range(at, len(text)):
            try:
                self._judge.send(text[place])
            except StopIteration as judged:
                if not judged.value:
                    self._take(text, at, place)  # what decided may be markup
                    self._decline()
                    return place
                self._take(text, at, place + 1)
                self._value.feed("".join(self._written), 0, False)
                self._step = self._argue
                return place + 1
        self._take(text, at, len(text))
        if final:
            self._break_off()
        return len(text)

    def _argue(self, text: str, at: int, final: bool) -> int:
        stop = self._take(text, at, self._value.feed(text, at, final))
        if self._value.ended:
            self._calls = self._read()
            self._step = self._after
            if not self._calls:
                self._decline()
        elif final:
            self._break_off()
        return stop

    def _after(self, text: str, at: int, final: bool) -> int:
        stop = self._take(text, at, after_blanks(text, at))
        self._near = self._near and stop == at
        self._below = self._below or "\n" in text[at:stop]
        if stop == len(text):
            if final:
                self._accept()
            return stop
        match text[stop]:
            case "}" if self._near:
                self._near = False
                return self._take(text, stop, stop + 1)
            case "," if not self._comma:
                self._comma = True
                return self._take(text, stop, stop + 1)
            case ";":
                stop = self._take(text, stop, stop + 1)
                self._accept()
            case "{" | "[":
                self._accept()
            case "]" | "}" | ",":
                self._decline()
            case "<":
                self._accept()
            case _ if self._below and not self._comma:
                self._accept()
            case _:
                self._decline()
        return stop

    def _take(self, text: str, at: int, stop: int) -> int:
        self._written.append(text[at:stop])
        return stop

    def _accept(self) -> None:
        self.ended = True
        self._ready.append(("".join(self._written).rstrip(), self._calls))

    def _decline(self) -> None:
        self.ended = True
        self.declined = "".join(self._written)

    def _break_off(self) -> None:
        """The output has ended inside of the value."""
        written = "".join(self._written)
        if self._python or NAMED.match(written):
            self._calls = (read_python_calls if self._python else read_calls)(written, whole=False)
            self._accept()
        else:
            self._decline()

    def _read(self) -> tuple[Found | Fault, ...]:
        """The calls that the value spells; none when it spells something else."""
        text = self._value.text
        if self._python:
            found = read_python_calls(text)
            return found if all(isinstance(call, Found) and call.name in self._tools for call in found) else ()
        for candidate in candidates(text, True):
            try:
                items = [unwrapped(item) for item in objects(candidate())]
            except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
                continue
            return read_calls(text, keys=KEYS) if all(map(self._is_call, items)) else ()
        return read_calls(text, keys=KEYS) if NAMED.match(text) else ()

    def _is_call(self, members: dict[str, str]) -> bool:
        name = next((json_string(members[key]) for key in KEYS.name if key in members), "")
        arguments = next((members[key] for key in KEYS.arguments if key in members), "")
        if members.keys() - CALL_KEYS or name not in self._tools or arguments[:1] not in {"{", '"'}:
            return False
        # The model may be telling what the tool is.
        defines = arguments[0] == "{" and sliced(arguments).keys() >= {"type", "properties"}
        return not defines or "properties" in self._tools[name].parameters.get("properties", {})


def unwrapped(text: str) -> dict[str, str]:
    """The members of a call object, or of the one in it. Raises: `ValueError`."""
    members = sliced(text)
    inner = members.get("function", "")
    if inner.startswith("{") and not members.keys() - CALL_KEYS:
        return sliced(inner)
    return members


_bare: MakeBody = BareBody
_fence: MakeBody = partial(FenceBody, fences=Fences())
