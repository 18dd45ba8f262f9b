"""A block whose inside shows by its beginning in which notation it is: models mix what they have learnt (C12).

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
from shepherd.dialects.parse.bodies.json_body import JsonBody
from shepherd.dialects.parse.bodies.json_text import after_blanks
from shepherd.dialects.parse.bodies.machine import HandingOver
from shepherd.dialects.parse.bodies.pairs import PairsBody
from shepherd.dialects.parse.bodies.python_body import PythonBody
from shepherd.dialects.parse.bodies.tagged import TaggedBody
from shepherd.dialects.parse.markup import Block, MakeBody

Detect = Callable[[str, int, bool], MakeBody | None]
"""`detect(text, at, final)`: the body for what stands in the text from a place on; `None` while it needs more text,
never if that is final."""

MAX_BLANKS = 256
TAGS = ("<function", "<invoke", "<parameter")
NAME = re.compile(r"[\w.:/-]{1,128}")


class AutoBody(HandingOver):
    """A body that is chosen when the inside has begun."""

    def __init__(self, block: Block, openers: Sequence[str], tools: Sequence[ToolSpec], *, detect: Detect) -> None:
        super().__init__(block, openers, tools)
        self._detect = detect
        self._step = self._begin

    def _begin(self, text: str, at: int, final: bool) -> int:
        if detected := self._detect(text, at, final):
            self._hand_over(detected)
        return at


def detect_notation(text: str, at: int, final: bool) -> MakeBody | None:
    """A `Detect` for the notations of the table above; JSON unless another one shows."""
    start = after_blanks(text, at)
    rest = text[start : start + 200]
    if not rest:
        return JsonBody if final or start - at > MAX_BLANKS else None
    if rest[0] == "<":
        begun = any(tag.startswith(rest) for tag in TAGS)
        return None if begun and not final else TaggedBody if rest.startswith(TAGS) else JsonBody
    name = NAME.match(rest)
    if name is None:
        return JsonBody
    behind = rest[name.end() :].lstrip()
    if not final and name.end() < 128 and (not behind or "<arg_key>".startswith(behind)):
        return None
    return PairsBody if behind.startswith("<arg_key>") else PythonBody if behind.startswith("(") else JsonBody


AnyBody: MakeBody = partial(AutoBody, detect=detect_notation)
