"""Answers as the provider made them, for clients whose protocol cannot carry all of it.

    answer: Reasoning(signature) Text ToolCall(id, signature) ─ keep ─▶ (owner, origin, ids | question and text)
    history of a client: Text ToolCall ─ restored ─▶ the same message, with thoughts, signatures and blocks

Chat completions have no place for a signature, Ollama's protocol not even for the id of a call; Responses have one for
the seal of a thought, and none for that of a call. A provider may refuse the history without them, or read it from the
start. What one owner left never reaches another one.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Sequence
from dataclasses import replace
from hashlib import blake2b

from shepherd.core import (
    CallEnded,
    Event,
    Message,
    Opaque,
    OpaqueBlock,
    Reasoning,
    ReasoningDelta,
    Request,
    Text,
    TextDelta,
    ToolCall,
    fold,
)
from shepherd.core.lru import LruCache

BYTES_OF_OWNER = 2**20
N_OWNERS = 256


class KeptAnswers:
    """One for all providers; any thread."""

    def __init__(self, n_bytes: int = BYTES_OF_OWNER, n_owners: int = N_OWNERS) -> None:
        """`n_bytes`: of each of the `n_owners` that came last."""
        self._n_bytes = n_bytes
        self._owners: LruCache[LruCache[Message]] = LruCache(n_owners)

    def clear(self) -> None:
        self._owners.clear()

    def keep(self, request: Request, message: Message) -> None:
        """The answer to a request. One without anything that a protocol may lose is not kept."""
        if not _seals(message):
            return
        if (held := self._owners.find(request.owner)) is None:
            self._owners.keep(request.owner, held := LruCache(self._n_bytes))
        size = _size(message)
        for key in _keys(message, next((each.own_text for each in reversed(request.messages) if each.is_input), "")):
            held.keep((message.origin, key), message, size)

    def restored(self, request: Request, origin: str) -> Request:
        """The request, whose answers from `origin` are whole again."""
        if (held := self._owners.find(request.owner)) is None:
            return request
        messages, question = list[Message](), ""
        for message in request.messages:
            question = message.own_text if message.is_input else question
            messages.append(self._whole(held, message, origin, question))
        is_same = all(map(operator.is_, messages, request.messages))
        return request if is_same else replace(request, messages=tuple(messages))

    def _whole(self, held: LruCache[Message], message: Message, origin: str, question: str) -> Message:
        if message.role != "assistant" or message.origin not in (None, origin):
            return message
        seals = _seals(message)
        for key in _keys(message, question):
            known = held.find((origin, key))
            # A client that sends other seals, or all of them, decides about them.
            if known is not None and _said(known) == _said(message) and seals < _seals(known):
                return _with_ids(known, [call.id for call in message.calls])
        return message


def kept_message(events: Sequence[Event]) -> Message | None:
    """The message of an answer's events, if anything in it may get lost; cheap where nothing may."""
    if not any(
        isinstance(event, OpaqueBlock)
        or (isinstance(event, ReasoningDelta) and (event.signature is not None or event.redacted))
        or (isinstance(event, CallEnded) and isinstance(event.call, ToolCall) and event.call.signature is not None)
        for event in events
    ):
        return None
    return fold(_merged(events)).message


def _merged(events: Sequence[Event]) -> list[Event]:
    """Neighbouring deltas as one, so that a long answer is folded in linear time."""
    made: list[Event] = []
    texts: list[str] = []
    kind: type[TextDelta] | type[ReasoningDelta] | None = None

    def flush() -> None:
        if kind is not None and texts:
            made.append(kind("".join(texts)))
            texts.clear()

    for event in events:
        is_text = isinstance(event, TextDelta)
        if is_text or (isinstance(event, ReasoningDelta) and event.signature is None and not event.redacted):
            assert isinstance(event, TextDelta | ReasoningDelta)
            if kind is not type(event):
                flush()
                kind = type(event)
            texts.append(event.text)
        else:
            flush()
            kind = None
            made.append(event)
    flush()
    return made


def _seals(message: Message) -> frozenset[str]:
    """What only the provider understands, and a client's protocol may lose."""
    return frozenset(
        part.body if isinstance(part, Opaque) else part.signature or ""
        for part in message.parts
        if isinstance(part, Opaque)
        or (isinstance(part, Reasoning) and (part.signature is not None or part.redacted))
        or (isinstance(part, ToolCall) and part.signature is not None)
    )


def _keys(message: Message, question: str) -> list[bytes]:
    """By the ids of its calls, and by the question and its text: the ids of a client may be its own. The same words
    behind another question are another answer."""
    keys = [("said", question, *_said(message))]
    if ids := [call.id for call in message.calls]:
        keys.insert(0, ("ids", *ids))
    return [blake2b(json.dumps(key).encode(), digest_size=16).digest() for key in keys]


def _said(message: Message) -> list[str]:
    return [message.text.strip(), *(each for call in message.calls for each in (call.name, _meaning(call.arguments)))]


def _meaning(arguments: str) -> str:
    """Equal for equal arguments, however a client writes them."""
    try:
        return json.dumps(json.loads(arguments), sort_keys=True)
    except (ValueError, RecursionError):
        return arguments


def _with_ids(known: Message, ids: Sequence[str]) -> Message:
    """The message with the ids under which its calls have results."""
    if [call.id for call in known.calls] == list(ids):
        return known
    left = iter(ids)
    return replace(
        known, parts=tuple(replace(part, id=next(left)) if isinstance(part, ToolCall) else part for part in known.parts)
    )


def _size(message: Message) -> int:
    size = 200
    for part in message.parts:
        match part:
            case Text():
                size += len(part.text)
            case Reasoning():
                size += len(part.text) + len(part.signature or "")
            case ToolCall():
                size += len(part.arguments) + len(part.signature or "")
            case Opaque():
                size += len(part.body)
    return size
