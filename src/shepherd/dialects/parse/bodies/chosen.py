"""A block whose inside shows by its beginning how it is to be read: models mix what they have learnt (C12).

    <tool_call> {"name": ..., "arguments": ...}        JSON, as most families write
                <function=NAME><parameter=K>V          tags
                NAME<arg_key>K</arg_key>...            pairs
                NAME(k="v")                            Python

Not here: how each of them is read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial

from shepherd.core import ToolSpec
from shepherd.dialects.parse.bodies.json_body import JsonBody, after_blanks
from shepherd.dialects.parse.bodies.pairs import PairsBody
from shepherd.dialects.parse.bodies.python_body import PythonBody
from shepherd.dialects.parse.bodies.tagged import TaggedBody
from shepherd.dialects.parse.call import Fault, Found
from shepherd.dialects.parse.markup import Block, Body, MakeBody, Thought

Choose = Callable[[str, int, bool], MakeBody | None]
"""The body for what stands in the text from a place on; `None` while more of it is needed, never if that is final."""

MAX_BLANKS = 256
TAGS = ("<function", "<invoke", "<parameter")
NAME = re.compile(r"[\w.:/-]{1,128}")


class ChosenBody:
    """A body that is chosen when the inside has begun."""

    def __init__(self, block: Block, openers: Sequence[str], tools: Sequence[ToolSpec], *, choose: Choose) -> None:
        self.ended = False
        self.closed = False
        self.declined = ""
        self.then: Thought | None = None
        self._choose = choose
        self._arguments = (block, openers, tools)
        self._body: Body | None = None

    def feed(self, text: str, at: int, final: bool) -> int:
        if self._body is None:
            chosen = self._choose(text, at, final)
            if chosen is None:
                return at
            self._body = chosen(*self._arguments)
        at = self._body.feed(text, at, final)
        self.ended, self.closed = self._body.ended, self._body.closed
        self.declined, self.then = self._body.declined, self._body.then
        return at

    def take_calls(self) -> list[tuple[str, tuple[Found | Fault, ...]]]:
        return self._body.take_calls() if self._body else []


def by_beginning(text: str, at: int, final: bool, json: MakeBody = JsonBody) -> MakeBody | None:
    """What reads any notation of the table above; JSON unless another one shows."""
    start = after_blanks(text, at)
    rest = text[start : start + 200]
    if not rest:
        return json if final or start - at > MAX_BLANKS else None
    if rest[0] == "<":
        begun = any(tag.startswith(rest) for tag in TAGS)
        return None if begun and not final else TaggedBody if rest.startswith(TAGS) else json
    name = NAME.match(rest)
    if name is None:
        return json
    behind = rest[name.end() :].lstrip()
    if not final and name.end() < 128 and (not behind or "<arg_key>".startswith(behind)):
        return None
    return PairsBody if behind.startswith("<arg_key>") else PythonBody if behind.startswith("(") else json


AnyBody: MakeBody = partial(ChosenBody, choose=by_beginning)
