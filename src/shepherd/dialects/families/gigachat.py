"""GigaChat: a message ends with `<|message_sep|>`, and a call is a message of another role, or a token of its own.

    I will look.<|message_sep|>

    function call<|role_sep|>
    {"name": "look", "arguments": {"at": "Oslo"}}        GigaChat 3
    I will look.<|function_call|>{"name": "look", "arguments": {"at": "Oslo"}}        GigaChat 3.1

One call at most stands in a message. Source: the templates of GigaChat3-10B-A1.8B and GigaChat3.1.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial

from shepherd.core import ToolSpec
from shepherd.dialects.families.generic import family
from shepherd.dialects.parse.bodies.header import Header, HeaderBody, before, prefixes
from shepherd.dialects.parse.bodies.json_body import JsonBody
from shepherd.dialects.parse.bodies.text_body import TextBody, dropped
from shepherd.dialects.parse.markup import Block
from shepherd.dialects.parse.spelling import OBJECT, Spelling, json_call
from shepherd.dialects.parse.tags import TagDialect

END, ROLE_END, CALL = "<|message_sep|>", "<|role_sep|>", "<|function_call|>"
ROLES = (
    *("assistant", "function call", "user", "system", "developer system", "function descriptions", "function result"),
    *("user memory", "added files"),
)
ROLE = re.compile(rf"\s{{0,64}}(?:({'|'.join(sorted(ROLES, key=len, reverse=True))})\s{{0,8}}{re.escape(ROLE_END)})")
ROLE_BEGUN = re.compile(rf"\s{{0,64}}(?:(?:{'|'.join(ROLES)})\s{{0,8}}(?:{prefixes(ROLE_END)})?|{prefixes(*ROLES)})?")


def after_message(opener: str, text: str, at: int, final: bool, tools: Sequence[ToolSpec]) -> Header | None:
    """A `ReadHeader` of the end of a message and the head of the next one, if any."""
    role = ROLE.match(text, at)
    if role is None:
        rest = text[at : at + 100]
        is_open = ROLE_BEGUN.fullmatch(rest) is not None
        return (Header(len(text)) if final else None) if is_open else Header(at)
    match role[1]:
        case "function call":
            return Header(role.end(), inside=JsonBody)
        case "assistant":
            return Header(role.end())
        case _:
            return Header(role.end(), inside=partial(TextBody, read=dropped))


def dialect(name: str, opener: str, mark: str, foreign: tuple[str, ...]) -> TagDialect:
    """The dialect of the models that open a call so; the forms of the others are read, too."""
    return family(
        name,
        (ROLE_END, END, mark),
        Block(CALL, (), partial(HeaderBody, read=before(JsonBody)), "anywhere", "anywhere"),
        Block(END, (), partial(HeaderBody, read=after_message), "anywhere", "anywhere"),
        Block(f"function call{ROLE_END}", (), JsonBody, "line", "line"),
        foreign=foreign,
        stops=tuple(f"{END}\n\n{role}{ROLE_END}" for role in ("user", "system", "function result")),
        spelled=(Block(opener, (END,), JsonBody, "anywhere", "anywhere", spelling=Spelling(json_call(*OBJECT))),),
        skips=(f"assistant{ROLE_END}",),
        declared=(),
    )


GIGACHAT = dialect("gigachat", f"{END}\n\nfunction call{ROLE_END}\n", ROLE_END, (CALL,))
GIGACHAT_31 = dialect("gigachat-3.1", CALL, CALL, ())
