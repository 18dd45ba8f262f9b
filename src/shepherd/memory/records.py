"""What the memory holds and gives back, as plain data.

    conversation ─▶ messages in the order of arrival, each in a turn: a user's message and all up to the next one
    fact         ─▶ a key, a value, and the values that it had before

Times are Unix times in milliseconds. Ids are those of the file: never given twice, meaningless elsewhere.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from shepherd.core import Role

if TYPE_CHECKING:
    import numpy as np

FactKind = Literal["fact", "preference", "instruction"]
FactStatus = Literal["candidate", "current", "past", "cleared"]


class Trust(IntEnum):
    """Who is answerable for a text."""

    USER = 0
    MODEL = 1
    """Also system prompts: the program's own words."""
    UNTRUSTED = 2
    """From a tool, a file, the web: never offered to a model unasked, and never made a fact."""


class State(IntEnum):
    """Where a message is besides in the archive."""

    LIVE = 0
    """In a context, as far as is known."""
    EVICTED = 1
    """It has left its context: only the archive has it."""
    PRUNED = 2
    """Its text was given up or shortened to make room."""


class Call(NamedTuple):
    """A tool call of an assistant's message."""

    id: str
    name: str
    arguments: str
    """JSON object text."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One message on its way into the archive."""

    role: Role
    body: str
    """What is read: the visible text, or a tool's output. May be empty for a message that only calls."""
    calls: tuple[Call, ...] = ()
    tool: str = ""
    """Of a result: the name of the tool."""
    call_id: str = ""
    """Of a result: the call it answers."""
    recalled: bool = False
    """A result that came out of this memory: kept as a place in the conversation, its text is not kept again (M9)."""
    created_ms: int | None = None
    """None = now."""
    trust: Trust | None = None
    """None = as the role says (`trusted`)."""

    @property
    def trusted(self) -> Trust:
        by_role = {"user": Trust.USER, "tool": Trust.UNTRUSTED}
        return by_role.get(self.role, Trust.MODEL) if self.trust is None else self.trust

    @property
    def text(self) -> str:
        """What is stored as the body."""
        return "" if self.recalled else clean(self.body)

    @property
    def meta(self) -> str | None:
        """Everything but text, as compact JSON; None when there is nothing."""
        said: dict[str, Any] = {}
        if self.calls:
            said["calls"] = [call._asdict() for call in self.calls]
        if self.tool:
            said["tool"] = self.tool
        if self.call_id:
            said["call_id"] = self.call_id
        if self.recalled:
            said["recalled"] = True
        return clean(json.dumps(said, ensure_ascii=False, separators=(",", ":"))) if said else None

    @property
    def sha(self) -> bytes:
        """16 bytes that name what is said, whoever says it when; blanks at either end aside, which clients trim."""
        calls = [(call.id, call.name, call.arguments) for call in self.calls]
        return digest(repr((self.role, self.body.strip(), calls, self.call_id)).encode("utf-8", "replace"))


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """One message of the archive."""

    id: int
    conversation: int
    seq: int
    """Place in the conversation, from 0, in the order of arrival."""
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
    """One conversation of the archive."""

    id: int
    uuid: str
    title: str
    created_ms: int
    model: str
    source: str
    """Where it came from: "" = said here; else the kind of file it was imported from."""
    parent: int | None = None
    """The conversation it branched off, at message `parent_seq`: an edit, another answer, a compacted history."""
    parent_seq: int | None = None
    n_messages: int = 0


@dataclass(frozen=True, slots=True)
class RankedMessage:
    """One message that a search has found."""

    id: int
    score: float
    """Relevance, 0.0 to 1.0; 0.95 = says once all that was asked for. Never rises down a list."""
    coverage: float
    """How much of the question's content words it has itself, each weighed by its rarity, 0.0 to 1.0."""
    n_terms: int
    """How many of them."""


@dataclass(frozen=True, slots=True)
class Hit:
    """One exchange that a search has found."""

    score: float
    """Relevance, 0.0 to 1.0, best first."""
    user_message: str
    assistant_response: str
    """The last answer of the turn; empty when there is none (or none left)."""
    timestamp: datetime
    """When the message that was found was said, in UTC."""
    message_id: int
    role: Role
    """Of the message that was found."""
    conversation: str
    """Its uuid."""
    title: str
    snippet: str
    """Up to some 200 characters of the message that was found, around what was asked for."""
    untrusted: bool = False


@dataclass(frozen=True, slots=True)
class Fact:
    """One value of a key, now or once; or one standing instruction."""

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
    """What a memory holds, and what room it takes."""

    conversations: int
    messages: int
    """Pruned ones, too."""
    evicted: int
    pruned: int
    facts: int
    """Current ones of all kinds."""
    vectors: int
    size_bytes: int
    """What counts against the limit: the pages in use, and the log."""
    file_bytes: int
    """Of the file itself, free pages included."""
    log_bytes: int
    """Of the write-ahead log beside it."""
    limit_bytes: int
    oldest_ms: int | None = None
    """When the oldest and the newest message were said; None when there is none."""
    newest_ms: int | None = None


class Embedder(Protocol):
    """Texts to vectors; safe from one thread at a time."""

    name: str
    """Changes whenever vectors of two embedders cannot be compared."""
    dim: int

    def embed(self, texts: list[str]) -> np.ndarray[Any, np.dtype[np.float32]]:
        """Shape (len(texts), dim), rows of length 1. Raises: `EngineError`."""
        ...


def digest(data: bytes) -> bytes:
    """16 bytes that stand for these."""
    return hashlib.blake2b(data, digest_size=16).digest()


def chained(shas: Iterable[bytes], seed: str = "") -> list[bytes]:
    """For each message a digest of it and of everything before it."""
    link = digest(seed.encode("utf-8", "replace"))
    return [link := digest(link + sha) for sha in shas]


def clean(text: str) -> str:
    """Text that SQLite can hold and count: no NUL, no half of a surrogate pair."""
    if text.isascii() and "\0" not in text:
        return text
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")


def to_datetime(ms: int) -> datetime:
    """A stored time."""
    return datetime.fromtimestamp(ms / 1000, UTC)
