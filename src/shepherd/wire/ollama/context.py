"""The `context` of `/api/generate`: the conversation so far, as numbers that the client sends with its next prompt.

    [MARK, size, 24 bits, 24 bits, ...] ─▶ [["system", "..."], ["user", "..."], ["assistant", "..."]] in JSON

Ollama's are the tokens of its model. Ours are the texts themselves: the server keeps nothing, and the next request is
the conversation that `/api/chat` would be sent, with any model. Images are not part of it, as in Ollama.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from shepherd.core import Message
from shepherd.wire.base import field_error

MARK = 0x53_48_50
"""`SHP`."""
WIDTH = 3
"""Bytes in a number: below 2**24, so that it is exact in every language of clients."""
MAKE = {"system": Message.system, "user": Message.user, "assistant": Message.assistant}


def context_of(messages: Iterable[Message], answer: str) -> list[int]:
    said = [[message.role, message.text] for message in messages if message.role in MAKE]
    raw = json.dumps([*said, ["assistant", answer]], ensure_ascii=False).encode("utf-8", "replace")
    groups = (raw[at : at + WIDTH].ljust(WIDTH, b" ") for at in range(0, len(raw), WIDTH))
    return [MARK, len(raw), *(int.from_bytes(group) for group in groups)]


def read_context(numbers: Sequence[Any], path: str) -> tuple[Message, ...]:
    """The messages of a `context_of`; none for an empty one. Raises: `InvalidRequest`."""
    if not numbers:
        return ()
    try:
        mark, size, *groups = numbers
        raw = b"".join(_number(group).to_bytes(WIDTH) for group in groups)
        if _number(mark) != MARK or len(groups) != -(-_number(size) // WIDTH):
            raise ValueError
        return tuple(MAKE[role](text) for role, text in _texts(raw[:size]))
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        why = "is not as an answer of this server had it"
        what = "send the one of the last answer unchanged, leave it out to begin a conversation, or use /api/chat"
        raise field_error(path, f"{why}; {what}") from error


def _number(value: Any) -> int:
    if type(value) is not int:
        raise TypeError
    return value


def _texts(raw: bytes) -> Iterable[tuple[str, str]]:
    for role, text in json.loads(raw):
        if not isinstance(text, str):
            raise TypeError
        yield role, text
