"""Hashes that name the beginning of a conversation, a tool, and a set of calls.

    system │ user │ assistant │ user          one hash for each message: of that message and all before it
    ──────▶ h0
    ─────────────▶ h1
    ─────────────────────────▶ h2

Two requests with the same hash at message n have equal messages up to there. White space around an answer does not
count, for clients strip it, and reasoning only where the hash is exact, for clients may drop it. Pure.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence

from shepherd.core import Image, Message, Reasoning, Text, ToolCall, ToolResult, ToolSpec
from shepherd.dialects.render.replay import meaning


def prefix_hashes(messages: Sequence[Message], apart: str = "", *, exact: bool = False) -> list[bytes]:
    """For each message, a hash of it and all before it.

    `apart` keeps equal conversations of different owners apart; `exact`: the ids of calls and the thoughts count, too.
    """
    hashed = hashlib.blake2b(apart.encode("utf-8", "replace"), digest_size=16)
    made: list[bytes] = []
    for message in messages:
        for word in (message.role, *_visible(message, exact), "."):
            data = word.encode("utf-8", "replace")
            hashed.update(b"%d:" % len(data))
            hashed.update(data)
        made.append(hashed.digest())
    return made


def tool_hash(tool: ToolSpec) -> bytes:
    """A hash of a tool; the order of the keys in its schema does not count."""
    return text_hash(
        json.dumps((tool.name, tool.description, tool.strict, tool.parameters), sort_keys=True, default=dict)
    )


def calls_hash(calls: Sequence[ToolCall]) -> bytes:
    """A hash of calls with their ids."""
    return text_hash(repr([(call.id, *meaning(call)) for call in calls]))


def text_hash(text: str) -> bytes:
    """16 bytes."""
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=16).digest()


def _visible(message: Message, exact: bool) -> Iterator[str]:
    if exact and (thought := message.reasoning.strip()):
        yield repr(("thought", thought))
    yield message.text.strip() if message.role == "assistant" else message.text
    for part in message.parts:
        match part:
            case ToolCall():
                yield repr(("call", part.id if exact else "", *meaning(part)))
            case ToolResult():
                yield repr(("result", part.call_id if exact else "", len(part.parts)))
                yield from map(_shown, part.parts)
            case Image():
                yield _shown(part)
            case Text() | Reasoning():
                pass
            case _:
                yield repr(("bad", part.raw))


def _shown(part: Text | Image) -> str:
    return part.text if isinstance(part, Text) else repr((part.media_type, part.url, len(part.data or b"")))
