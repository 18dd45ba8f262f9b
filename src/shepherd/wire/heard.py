"""Which recordings of a history a provider's model hears; a note stands in the place of every other.

    messages ─ for_model ─▶ the same, with recordings that the protocol has a place for and the model hears

A recording that a user has just sent is refused instead, in one sentence: its sender can change the request at once.
Not here: a model of this machine (`app/media.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from shepherd.core import Audio, InvalidRequest, Message, Part, Text, ToolResult, Unsupported
from shepherd.core.messages import newest_input
from shepherd.media.sound import is_text
from shepherd.wire.client import Endpoint
from shepherd.wire.parts import joined, seen


def for_model(messages: Sequence[Message], endpoint: Endpoint, takes: AbstractSet[str]) -> Sequence[Message]:
    """The messages with a note in place of each recording that the model does not hear, of all where it cannot hear.

    `takes`: the media types that its protocol has a place for. Raises: `Unsupported` for one of these in the user's
    newest message, `InvalidRequest` for a text in its place.
    """
    if not any(map(recordings_of, messages)):
        return messages
    at = newest_input(messages)
    for part in () if at is None else recordings_of(messages[at]):
        name, field = part.path or "the recording", part.path or "messages"
        if is_text(part.data):
            raise InvalidRequest(f"{name} is a text; send a recording in its place", field=field)
        if why := _why_not(part, endpoint, takes):
            raise Unsupported(f"{name} is a recording, and {why}; leave it out, or name another model", field=field)

    def kept(part: Part) -> Part:
        match part:
            case Audio():
                why = "it is a text" if is_text(part.data) else _why_not(part, endpoint, takes)
                return Text(note(part, why)) if why else part
            case ToolResult():
                return replace(part, parts=seen(map(kept, part.parts)))
            case _:
                return part

    return [
        replace(message, parts=tuple(joined(map(kept, message.parts), "\n"))) if recordings_of(message) else message
        for message in messages
    ]


def _why_not(part: Audio, endpoint: Endpoint, takes: AbstractSet[str]) -> str:
    """The end of a sentence; empty where the model hears it."""
    if not takes:
        return f"the protocol of {endpoint.origin} has no place for one"
    if not endpoint.hears:
        return f"{endpoint.origin} cannot hear"
    if part.media_type not in takes:
        return f"{endpoint.origin} hears {', '.join(sorted(takes))}, not {part.media_type[:80]}"
    return part.left_out


def note(part: Audio, why: str) -> str:
    """What stands in the place of a recording."""
    size = len(part.data)
    extent = f"{size / 1000:.0f} kB" if size >= 1000 else f"{size} bytes"
    return f"[audio: {part.media_type[:80] or 'of unknown type'}, {extent}; {why}]"


def recordings_of(message: Message) -> list[Audio]:
    """The recordings of a message, those in results of calls included."""
    nested = (part.parts if isinstance(part, ToolResult) else (part,) for part in message.parts)
    return [part for inner in nested for part in inner if isinstance(part, Audio)]
