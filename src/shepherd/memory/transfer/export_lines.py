"""The lines of our own export, each field checked. A wrong field is an `InvalidRequest` that names it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar, get_args

from shepherd.core import InvalidRequest, Role
from shepherd.core.dataclasses import dataclass
from shepherd.memory.records import Call, Entry, FactKind, FactStatus, State, Trust, chained, clean
from shepherd.memory.transfer.values import as_ms
from shepherd.wire.base import Fields, Range, wrong

DIGEST_BYTES = 16
T = TypeVar("T")
_COUNT = Range(0, 2**62 - 1)
_ROLES: Mapping[str, Role] = {role: role for role in get_args(Role)}
_TRUSTS = {trust.name.lower(): trust for trust in Trust}
_STATES = {state.name.lower(): state for state in State}
KINDS: Mapping[str, FactKind] = {kind: kind for kind in get_args(FactKind)}
STATUSES: Mapping[str, FactStatus] = {status: status for status in get_args(FactStatus)}


@dataclass(frozen=True, slots=True)
class ConversationLine:
    uuid: str
    session: str | None
    title: str
    created_ms: int
    model: str
    source: str
    parent: str
    """The uuid of the conversation that it branched off; "" = none."""
    parent_seq: int

    @classmethod
    def of(cls, line: Fields) -> ConversationLine:
        uuid, session = read_text(line, "uuid"), read_text(line, "session") if line.has("session") else None
        title, created_ms = read_text(line, "title", ""), read_time(line, "time")
        model, source, parent = (read_text(line, key, "") for key in ("model", "source", "parent"))
        return cls(uuid, session, title, created_ms, model, source, parent, read_count(line, "parent_seq", 0))


@dataclass(frozen=True, slots=True)
class MessageLine:
    uuid: str
    """Of its conversation."""
    seq: int
    turn: int
    entry: Entry
    sha: bytes
    """Of the original message: a pruned one has less text now."""
    chain: bytes
    state: State
    pinned: bool

    def follows(self, other: MessageLine) -> bool:
        """Whether both can be stored together."""
        return self.uuid == other.uuid and self.seq > other.seq and self.chain != other.chain

    @classmethod
    def of(cls, line: Fields) -> MessageLine:
        meta = line.find_object("meta") or Fields({}, "meta")
        try:
            calls = tuple(Call(*(str(call[key]) for key in Call._fields)) for call in meta.body.get("calls", []))
        except (TypeError, KeyError):
            text = "meta.calls must be an array of objects with an id, a name and arguments"
            raise InvalidRequest(text, field="meta.calls") from None
        entry = Entry(
            read_word(line, "role", _ROLES, ""),
            read_text(line, "body"),
            calls,
            tool=read_text(meta, "tool", ""),
            call_id=read_text(meta, "call_id", ""),
            recalled=meta.body.get("recalled") is True,
            created_ms=read_time(line, "time"),
            trust=read_word(line, "trust", _TRUSTS, "untrusted"),
        )
        uuid, seq = read_text(line, "uuid"), read_count(line, "seq")
        sha = _digest(line, "sha", entry.sha)
        chain = _digest(line, "chain", chained([sha], f"{uuid}:{seq}")[0])
        state = read_word(line, "state", _STATES, "evicted")
        return cls(uuid, seq, read_count(line, "turn", 0), entry, sha, chain, state, line.body.get("pinned") is True)


def read_text(line: Fields, key: str, default: str | None = None, *, most: int | None = None) -> str:
    if (value := default if (given := line.find_string(key)) is None else given) is None:
        raise wrong(line.at(key), "a string", None)
    if most is not None and len(value) > most:
        raise InvalidRequest(f"{key} has {len(value)} characters; at most {most} are kept", field=key)
    return clean(value)


def read_count(line: Fields, key: str, default: int | None = None) -> int:
    if (value := default if (given := line.find_integer(key, _COUNT)) is None else given) is None:
        raise wrong(line.at(key), f"an integer{_COUNT}", None)
    return value


def read_word(line: Fields, key: str, words: Mapping[str, T], default: str) -> T:
    word = read_text(line, key, default)
    if word not in words:
        raise wrong(line.at(key), f"one of {', '.join(words)}", line.find_any(key))
    return words[word]


def read_time(line: Fields, key: str) -> int:
    value = as_ms(line.find_any(key))
    if value is None:
        raise wrong(line.at(key), "a time such as 2026-03-02T10:00:00.000Z", line.find_any(key))
    return value


def _digest(line: Fields, key: str, default: bytes) -> bytes:
    if (text := line.find_string(key)) is None:
        return default
    try:
        value = bytes.fromhex(clean(text))
    except ValueError:
        value = b""
    if len(value) != DIGEST_BYTES:
        raise wrong(line.at(key), f"{2 * DIGEST_BYTES} hexadecimal digits", text)
    return value
