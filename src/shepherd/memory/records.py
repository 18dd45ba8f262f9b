"""The values that the memory stores and returns.

    conversation ─▶ messages in the order of arrival, each in a turn: a user's message and all up to the next one
    fact         ─▶ a key, a value, and its earlier values

Times are Unix times in milliseconds. An id belongs to one file and is never used again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from datetime import UTC, datetime
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from shepherd.core import Role
from shepherd.core.dataclasses import dataclass

if TYPE_CHECKING:
    import numpy as np

FactKind = Literal["fact", "preference", "instruction"]
FactStatus = Literal["candidate", "current", "past", "cleared"]


class Trust(IntEnum):
    """Whose text it is."""

    USER = 0
    MODEL = 1
    """Also system prompts."""
    UNTRUSTED = 2
    """From a tool, a file or the web: never recalled, and never a fact."""


class State(IntEnum):
    """Where a message is, beside the archive."""

    LIVE = 0
    """In a model's context, as far as the archive knows."""
    EVICTED = 1
    """Gone from its context; only the archive has it."""
    PRUNED = 2
    """Its text was deleted or shortened to make room."""


class Call(NamedTuple):
    id: str
    name: str
    arguments: str
    """The text of a JSON object."""


@dataclass(frozen=True, slots=True)
class Entry:
    role: Role
    body: str
    """The visible text, or a tool's output. It may be empty in a message with calls."""
    calls: tuple[Call, ...] = ()
    tool: str = ""
    """Of a result: the name of the tool."""
    call_id: str = ""
    """Of a result: the id of its call."""
    recalled: bool = False
    """A result that quotes this memory: its place in the conversation is stored, its text is not (M9)."""
    created_ms: int | None = None
    """None = now."""
    trust: Trust | None = None
    """None = by the role (see `trusted`)."""

    @property
    def trusted(self) -> Trust:
        by_role = {"user": Trust.USER, "tool": Trust.UNTRUSTED}
        return by_role.get(self.role, Trust.MODEL) if self.trust is None else self.trust

    @property
    def text(self) -> str:
        """The body as it is stored."""
        return "" if self.recalled else clean(self.body)

    @property
    def meta(self) -> str | None:
        """Calls, tool, call id and `recalled`, as compact JSON; None when there are none."""
        calls = [call._asdict() for call in self.calls]
        fields = {"calls": calls, "tool": self.tool, "call_id": self.call_id, "recalled": self.recalled}
        given = {name: value for name, value in fields.items() if value}
        return clean(json.dumps(given, ensure_ascii=False, separators=(",", ":"))) if given else None

    @property
    def sha(self) -> bytes:
        """16 bytes that identify role and content, without time or trust. Outer white space is ignored."""
        calls = [(call.id, call.name, call.arguments) for call in self.calls]
        return digest(repr((self.role, self.body.strip(), calls, self.call_id)).encode("utf-8", "replace"))


@dataclass(frozen=True, slots=True)
class StoredMessage:
    id: int
    conversation: int
    seq: int
    """Position in the conversation, from 0, in the order of arrival."""
    turn: int
    role: Role
    body: str
    created_ms: int
    trust: Trust
    state: State
    pinned: bool = False
    meta: str | None = None

    @property
    def calls(self) -> tuple[Call, ...]:
        return tuple(Call(**call) for call in json.loads(self.meta).get("calls", ())) if self.meta else ()

    @property
    def time(self) -> datetime:
        return to_datetime(self.created_ms)


@dataclass(frozen=True, slots=True)
class Conversation:
    id: int
    uuid: str
    title: str
    created_ms: int
    model: str
    source: str
    """"" = a conversation with Shepherd; else the kind of file it was imported from."""
    parent: int | None = None
    """The conversation it branched off after message `parent_seq`: an edit, another answer, a compacted history."""
    parent_seq: int | None = None
    n_messages: int = 0


@dataclass(frozen=True, slots=True)
class RankedMessage:
    id: int
    score: float
    """Relevance, 0.0 to 1.0; 0.95 = has every term once. It never rises down a list."""
    coverage: float
    """The share of the question's terms in the message itself, weighed by idf, 0.0 to 1.0."""
    n_terms: int


@dataclass(frozen=True, slots=True)
class Hit:
    """One exchange that a search has found."""

    score: float
    """Relevance, 0.0 to 1.0, best first."""
    user_message: str
    assistant_response: str
    """The last answer of the turn; empty when there is none, or its text was pruned."""
    timestamp: datetime
    """Time of the message that was found, in UTC."""
    message_id: int
    role: Role
    """Of the message that was found."""
    conversation: str
    """Its uuid."""
    title: str
    snippet: str
    """Up to some 200 characters of the message that was found, around the terms."""
    untrusted: bool = False


@dataclass(frozen=True, slots=True)
class Fact:
    """A present or past value of a key, or a standing instruction."""

    id: int
    key: str
    value: str
    kind: FactKind
    status: FactStatus
    created_ms: int
    ended_ms: int | None = None
    source: int | None = None
    """The message it was taken from."""

    @property
    def time(self) -> datetime:
        return to_datetime(self.created_ms)


@dataclass(frozen=True, slots=True)
class Stats:
    conversations: int
    messages: int
    """Pruned ones included."""
    evicted: int
    pruned: int
    facts: int
    """Current ones of all kinds."""
    vectors: int
    size_bytes: int
    """What counts against the limit: used pages, and the log."""
    file_bytes: int
    """Of the file itself, free pages included."""
    log_bytes: int
    limit_bytes: int
    oldest_ms: int | None = None
    """Time of the oldest and of the newest message; None when there is none."""
    newest_ms: int | None = None


class Embedder(Protocol):
    """Turns texts into vectors. One thread at a time."""

    name: str
    """Two embedders with the same name make comparable vectors."""
    dim: int

    def embed(self, texts: list[str]) -> np.ndarray[Any, np.dtype[np.float32]]:
        """Shape (len(texts), dim), rows of length 1. Raises: `EngineError`; `BackendError` of a provider."""
        ...


def digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()


def chained(shas: Iterable[bytes], seed: str = "") -> list[bytes]:
    """For each message a digest of it and of everything before it."""
    link = digest(seed.encode("utf-8", "replace"))
    return [link := digest(link + sha) for sha in shas]


def clean(text: str) -> str:
    """Text that SQLite can store: NUL and halves of surrogate pairs are replaced."""
    if text.isascii() and "\0" not in text:
        return text
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")


def to_datetime(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)
