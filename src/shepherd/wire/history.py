"""A history that any provider accepts: what our messages hold, without what only another model understands.

    messages ─ for_provider ─▶ blocks and signatures of this protocol only; every call with its result right behind it

Providers refuse a call without a result, a result without a call, and a signature of another model. A history may hold
all three: turns were stopped, models were switched, clients cut at the front.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from shepherd.core import (
    Audio,
    BadCall,
    Document,
    InvalidRequest,
    Message,
    Opaque,
    Part,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
    Unsupported,
)
from shepherd.core.edits import COMPACTION, WHOLE, Place
from shepherd.core.messages import newest_input
from shepherd.media.sound import is_text
from shepherd.wire.client import Endpoint
from shepherd.wire.parts import joined, seen
from shepherd.wire.signature import Protocol

CLEARED = "[cleared to save context]"
NO_RESULT = "There is no result: the call was not carried out."


def plain(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The messages for a model in this process: documents, and the blocks of one protocol, become what it reads.
    Compactions of our own stay, for the back end that knows what they stand for."""
    return tuple(each for message in messages for each in _readable(message, COMPACTION, reads_documents=False))


def without(messages: Sequence[Message], cleared: AbstractSet[Place]) -> tuple[Message, ...]:
    """The messages without what is cleared, for a memory that can have no holes. The result of a call stays as a note,
    and so does a call without its arguments; a call leaves with its result."""
    gone = {at for at, part in cleared if part == WHOLE}
    left = {call.id for at in gone for call in messages[at].calls}
    left |= {part.call_id for at in gone for part in messages[at].parts if isinstance(part, ToolResult)}
    kept: list[Message] = []
    for at, message in enumerate(messages):
        if at in gone:
            continue
        parts: list[Part] = []
        for n, part in enumerate(message.parts):
            match part:
                case ToolCall(id=id) | ToolResult(call_id=id) if id in left:
                    continue
                case _ if (at, n) not in cleared:
                    parts.append(part)
                case ToolResult():
                    parts.append(replace(part, parts=(Text(CLEARED),)))
                case ToolCall():
                    parts.append(replace(part, arguments="{}", raw=None, signature=None))
                case _:
                    pass
        if parts or not message.parts:
            kept.append(replace(message, parts=tuple(parts)))
    return tuple(kept)


def for_provider(
    messages: Sequence[Message], protocol: Protocol, endpoint: Endpoint, sounds: AbstractSet[str] = frozenset()
) -> tuple[Message, ...]:
    """The messages for a provider; `sounds`: the media types of recordings that its protocol has a place for.

    Blocks of `protocol` stay, and so do signatures if the message's origin is the endpoint's or not known. Reasoning
    without a signature stays for the codec to decide. Calls that could not be read become calls with `{}`.

    Raises: as `heard_by`, for a recording in the user's newest message.
    """
    messages = heard_by(messages, endpoint, sounds)
    readable = (
        each for message in messages for each in _readable(message, protocol, reads_documents=endpoint.reads_documents)
    )
    return tuple(_paired(_with_own_ids([_signed(message, protocol, endpoint) for message in readable])))


def _readable(message: Message, protocol: str, *, reads_documents: bool) -> Iterator[Message]:
    """The message, cut in pieces where a foreign block brings the result of a call."""
    if not any(_is_foreign(part, protocol, reads_documents) for part in message.parts):
        yield message
        return
    between = "" if message.role == "assistant" else "\n"
    parts: list[Part] = []
    is_cut = False
    for part in message.parts:
        match part:
            case Document() if not reads_documents:
                parts.append(Text(part.note))
            case Opaque() if part.protocol != protocol:
                for inner in part.parts:
                    if isinstance(inner, ToolResult):
                        if parts:
                            yield replace(message, parts=tuple(joined(parts, between)))
                        yield Message("tool", (inner,))
                        parts, is_cut = [], True
                    else:
                        parts.append(inner)
            case _:
                parts.append(part)
    if parts or not is_cut:
        yield replace(message, parts=tuple(joined(parts, between)))


def _is_foreign(part: Part, protocol: str, reads_documents: bool) -> bool:
    return (isinstance(part, Opaque) and part.protocol != protocol) or (
        isinstance(part, Document) and not reads_documents
    )


def _signed(message: Message, protocol: Protocol, endpoint: Endpoint) -> Message:
    if message.role != "assistant":
        return message
    is_own = message.origin in (None, endpoint.origin)

    def keep(part: Part) -> Part | None:
        match part:
            case Reasoning(signature=str(signature)) | ToolCall(signature=str(signature)):
                takes_geminis = isinstance(part, ToolCall) and "extra_content" in endpoint.quirks
                protocols = (protocol, "gemini") if takes_geminis else (protocol,)
                if is_own and any(signature.startswith(f"{each}:") for each in protocols):
                    return part
                if isinstance(part, Reasoning) and not part.text:
                    return None
                return replace(part, signature=None)
            case BadCall():
                return ToolCall(part.id, part.name, "{}") if part.name else Text(part.raw)
            case _:
                return part

    return replace(message, parts=tuple(filter(None, map(keep, message.parts))))


def _with_own_ids(messages: Sequence[Message]) -> Sequence[Message]:
    """The messages, each call with an id of its own: some servers count from 0 in every answer, others refuse an id
    that comes twice. The first call keeps it, so that a longer conversation begins like a shorter one."""
    n_calls = Counter(call.id for message in messages for call in message.calls)
    if all(n == 1 for n in n_calls.values()):
        return messages
    used: Counter[str] = Counter()
    waiting: dict[str, list[str]] = {}

    def renamed(part: Part) -> Part:
        if isinstance(part, ToolResult) and (left := waiting.get(part.call_id)):
            return replace(part, call_id=left.pop(0))
        if not isinstance(part, ToolCall):
            return part
        id = part.id
        while n := used[id]:
            used[id] += 1
            id = f"{part.id}_{n + 1}"
        used[id] += 1
        waiting.setdefault(part.id, []).append(id)
        return replace(part, id=id)

    made = []
    for message in messages:
        if message.role == "assistant":
            waiting.clear()
        made.append(replace(message, parts=tuple(map(renamed, message.parts))))
    return made


def _paired(messages: Sequence[Message]) -> Iterator[Message]:
    """Every call has one result, all of them in one message right behind it; other results become the user's text."""
    calls: tuple[ToolCall, ...] = ()
    found: dict[str, ToolResult | Opaque] = {}
    others: list[Part] = []
    for message in (*messages, None):
        if message is not None and message.role == "tool":
            for part in message.parts:
                result = part.result if isinstance(part, Opaque) else part
                if isinstance(result, ToolResult) and result.call_id not in found and result.call_id in _ids(calls):
                    found[result.call_id] = part if isinstance(part, Opaque) else result
                else:
                    others += part.parts if isinstance(part, ToolResult) else (part,)
            continue
        if calls:
            yield Message("tool", tuple(_result_of(call, found.get(call.id)) for call in calls))
        if others:
            yield Message("user", tuple(others))
        if message is not None:
            yield message
            calls, found, others = (message.calls if message.role == "assistant" else ()), {}, []


def _ids(calls: Sequence[ToolCall]) -> frozenset[str]:
    return frozenset(call.id for call in calls)


def _result_of(call: ToolCall, result: ToolResult | Opaque | None) -> ToolResult | Opaque:
    if result is None:
        return ToolResult(call.id, (Text(NO_RESULT),), call.name, is_error=True)
    if isinstance(result, Opaque):
        return result
    return result if result.name else replace(result, name=call.name)


# -- recordings -------------------------------------------------------------------------------------------------------


def heard_by(messages: Sequence[Message], endpoint: Endpoint, takes: AbstractSet[str]) -> Sequence[Message]:
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
