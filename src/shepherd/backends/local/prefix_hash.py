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

from shepherd.core import Audio, BadCall, Image, Message, Reasoning, Text, ToolCall, ToolResult, ToolSpec
from shepherd.dialects.render.replay import meaning

SIZE = 16
"""Bytes of a hash."""


def prefix_hashes(messages: Sequence[Message], apart: str = "", *, exact: bool = False) -> list[bytes]:
    """For each message, a hash of it and all before it. `apart` keeps equal conversations of different owners apart;
    `exact`: the ids of calls and the thoughts count, too."""
    hashed = hashlib.blake2b(apart.encode("utf-8", "replace"), digest_size=SIZE)
    made: list[bytes] = []
    part = slice(SIZE, 2 * SIZE) if exact else slice(SIZE)
    for message in messages:
        hashed.update(_digests(message)[part])
        made.append(hashed.digest())
    return made


def _digests(message: Message) -> bytes:
    """Two hashes of one message: of what is visible, and an exact one. Computed once for each message object."""
    if not message.digests:
        hashed = hashlib.blake2b(digest_size=SIZE)
        for word in (message.role, *_visible(message)):
            data = word.encode("utf-8", "replace")
            hashed.update(b"%d:" % len(data))
            hashed.update(data)
        plain = hashed.digest()
        ids = (
            [part.id for part in message.calls],
            [part.call_id for part in message.parts if isinstance(part, ToolResult)],
        )
        exact = text_hash(repr((plain, message.reasoning.strip(), ids)))
        object.__setattr__(message, "digests", plain + exact)  # no part of its value, so it may change
    return message.digests


def tool_hash(tool: ToolSpec) -> bytes:
    """A hash of a tool; the order of the keys in its schema does not count."""
    return text_hash(
        json.dumps((tool.name, tool.description, tool.strict, tool.parameters), sort_keys=True, default=dict)
    )


def calls_hash(calls: Sequence[ToolCall]) -> bytes:
    """A hash of calls with their ids."""
    return text_hash(repr([(call.id, *meaning(call)) for call in calls]))


def text_hash(text: str) -> bytes:
    """`SIZE` bytes."""
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=SIZE).digest()


def _visible(message: Message) -> Iterator[str]:
    yield message.text.strip() if message.role == "assistant" else message.text
    for part in message.parts:
        match part:
            case ToolCall():
                yield repr(("call", *meaning(part)))
            case ToolResult():
                yield repr(("result", len(part.parts)))
                yield from map(_format_part, part.parts)
            case Image() | Audio():
                yield _format_part(part)
            case Text() | Reasoning():
                pass
            case BadCall():
                yield repr(("bad", part.raw))
            case _:
                pass  # `wire.history.plain` has replaced it


def _format_part(part: Text | Image | Audio) -> str:
    if isinstance(part, Text):
        return part.text
    digest = hashlib.blake2b(part.data or b"", digest_size=SIZE).digest()
    return repr((part.media_type, part.url if isinstance(part, Image) else "", digest, part.left_out))
