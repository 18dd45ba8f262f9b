"""What a back end remembers of its conversations, so that a history which comes back is the same prompt again (K7, K8).

Requests carry whole histories and no memory. What they leave out, or what a template would spell anew, is remembered
here: how the model wrote each answer, and which day it was when a conversation began. Both are found by what was said,
never by who asks; and both are bounded, the longest unused forgotten first. Forgetting costs a prefill, nothing else.

Not here: what is done with an answer that is remembered (`dialects.replay`).
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Sequence
from datetime import datetime

from shepherd.core import Image, Message, Reasoning, Request, Text, ToolCall, ToolResult
from shepherd.dialects.replay import Said, meaning, spelled


class Answers:
    """The answers of late, each as the model wrote it. Safe from several threads."""

    def __init__(self, limit_chars: int = 8_000_000) -> None:
        self._limit = limit_chars
        self._held = 0
        self._entries: OrderedDict[bytes, Said] = OrderedDict()
        self._lock = threading.Lock()

    def remember(self, request: Request, answer: Said) -> None:
        """Remember the answer to the request."""
        calls = answer.message.calls
        written = spelled(answer.pieces)
        # An id that the model wrote is one that anybody may know: such a call is its conversation's alone.
        is_own = bool(calls) and not any(call.id in written for call in calls)
        key = by_calls(calls) if is_own else stages((*request.messages, answer.message))[-1]
        with self._lock:
            if (known := self._entries.pop(key, None)) is not None:
                self._held -= known.size
            self._entries[key] = answer
            self._held += answer.size
            while self._held > self._limit:
                _, forgotten = self._entries.popitem(last=False)
                self._held -= forgotten.size

    def clear(self) -> None:
        """Forget them all."""
        with self._lock:
            self._entries.clear()
            self._held = 0

    def find(self, messages: Sequence[Message]) -> dict[int, Said]:
        """The remembered answers among the messages, by their index."""
        found: dict[int, Said] = {}
        with self._lock:
            told = zip(messages, stages(messages), strict=True) if self._entries else ()
            for index, (message, stage) in enumerate(told):
                if message.role != "assistant":
                    continue
                keys = (by_calls(message.calls), stage) if message.calls else (stage,)
                for key in keys:
                    if (answer := self._entries.get(key)) is not None:
                        self._entries.move_to_end(key)
                        found[index] = answer
                        break
        return found


class Days:
    """The day on which each conversation of late began. Safe from several threads.

    A conversation is known by how it began: a request whose first messages were all of an earlier request goes on with
    that one and keeps its day. A request that goes on with none begins today, even if another one began with the same
    words; from its second message on it is told apart.
    """

    def __init__(self, limit: int = 10_000) -> None:
        self._limit = limit
        self._entries: OrderedDict[bytes, datetime] = OrderedDict()
        self._lock = threading.Lock()

    def day_of(self, request: Request, today: datetime) -> datetime:
        """When the conversation of this request began."""
        seen = stages(request.messages, request.session or "")
        with self._lock:
            begun = next((self._entries[stage] for stage in reversed(seen[:-1]) if stage in self._entries), None)
            if seen:
                day = self._entries[seen[-1]] = begun or today
                self._entries.move_to_end(seen[-1])
                while len(self._entries) > self._limit:
                    self._entries.popitem(last=False)
                return day
        return today


def stages(messages: Sequence[Message], session: str = "") -> list[bytes]:
    """For each message a hash of what was said up to it; thoughts aside, which clients keep or drop as they like."""
    hashed = hashlib.blake2b(session.encode("utf-8", "replace"), digest_size=16)
    made: list[bytes] = []
    for message in messages:
        hashed.update(repr((message.role, *said_in(message))).encode("utf-8", "replace"))
        made.append(hashed.digest())
    return made


def said_in(message: Message) -> list[object]:
    """What a message says: its text, and what it calls or answers."""
    told: list[object] = [message.text.strip()]
    for part in message.parts:
        match part:
            case ToolCall():
                told.append((part.id, *meaning(part)))
            case ToolResult():
                told.append((part.call_id, *(inner.text for inner in part.parts if isinstance(inner, Text))))
            case Text() | Reasoning() | Image():
                pass
            case _:
                told.append(part.raw)
    return told


def by_calls(calls: Sequence[ToolCall]) -> bytes:
    """A hash of calls with their ids."""
    said = [(call.id, *meaning(call)) for call in calls]
    return hashlib.blake2b(repr(said).encode("utf-8", "replace"), digest_size=16).digest()
