"""A block whose inside shows by its beginning in which notation it is: models mix what they have learnt (C12).

    <tool_call> {"name": ..., "arguments": ...}        JSON, as most families write
                <function=NAME><parameter=K>V          tags
                NAME<arg_key>K</arg_key>...            pairs
                NAME(k="v")                            Python

Not here: how each of them is read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial

from shepherd.core import ToolSpec
from shepherd.dialects.parse.bodies.header import Header, HeaderBody
from shepherd.dialects.parse.bodies.json_body import JsonBody
from shepherd.dialects.parse.bodies.json_text import after_blanks
from shepherd.dialects.parse.bodies.pairs import PairsBody
from shepherd.dialects.parse.bodies.python_body import PythonBody
from shepherd.dialects.parse.bodies.tagged import TaggedBody
from shepherd.dialects.parse.markup import MakeBody

MAX_BLANKS = 256
TAGS = ("<function", "<invoke", "<parameter")
NAME = re.compile(r"[\w.:/-]{1,128}")


def notation(opener: str, text: str, at: int, final: bool, tools: Sequence[ToolSpec]) -> Header | None:
    """A `ReadHeader` without a header, for the notations of the table above; JSON unless another one shows."""
    start = after_blanks(text, at)
    rest = text[start : start + 200]
    if not rest:
        return Header(at, JsonBody) if final or start - at > MAX_BLANKS else None
    if rest[0] == "<":
        begun = any(tag.startswith(rest) for tag in TAGS)
        return None if begun and not final else Header(at, TaggedBody if rest.startswith(TAGS) else JsonBody)
    name = NAME.match(rest)
    if name is None:
        return Header(at, JsonBody)
    behind = rest[name.end() :].lstrip()
    if not final and name.end() < 128 and (not behind or "<arg_key>".startswith(behind)):
        return None
    is_pairs, is_python = behind.startswith("<arg_key>"), behind.startswith("(")
    return Header(at, PairsBody if is_pairs else PythonBody if is_python else JsonBody)


AnyBody: MakeBody = partial(HeaderBody, read=notation)
