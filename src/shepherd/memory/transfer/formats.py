"""Which kind of conversation or message a JSON object is, and the reader for it.

The shape of an object decides its kind (`SHAPES`), so one file may hold several kinds. Not here: ChatGPT's and Claude's
conversations (`chat_apps.py`), and single messages (`messages.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from shepherd.memory.records import Entry
from shepherd.memory.transfer.chat_apps import read_chatgpt, read_claude
from shepherd.memory.transfer.items import (
    PART,
    ExportLine,
    ImportedConversation,
    ImportProblem,
    Items,
    UnreadableError,
    digest_name,
)
from shepherd.memory.transfer.messages import TIMES, read_message, read_messages
from shepherd.memory.transfer.values import as_ms, find_first, find_name, find_text

_NAMES = ("conversation", "conversation_id", "session", "session_id", "thread", "thread_id", "chat_id")
_OWN_NAMES = (*_NAMES, "id", "uuid")
"""Of a conversation itself. In a message, `id` and `uuid` are those of the message."""


def read_object(fields: Any, where: str) -> Items:
    """What an object holds. Raises: `UnreadableError` when its shape is not known."""
    if isinstance(fields, list) and _has_message(fields):
        fields = {"messages": fields}
    if not isinstance(fields, dict):
        raise UnreadableError("it is not a JSON object")
    for has_shape, reader in SHAPES:
        if has_shape(fields):
            yield from reader(fields, where)
            return
    keys = ", ".join(list(map(str, fields))[:6]) or "none"
    raise UnreadableError(
        f"it is neither a message nor a conversation; a message has 'role' and 'content' (keys: {keys})"
    )


def _read_export_line(fields: dict[str, Any], where: str) -> Items:
    yield ExportLine(where, fields)


def _read_list(fields: dict[str, Any], where: str) -> Items:
    for number, each in enumerate(fields["conversations"], 1):
        try:
            yield from read_object(each, f"{where}, conversation {number}")
        except UnreadableError as error:
            yield ImportProblem(f"{where}, conversation {number}", str(error))


def _read_loose_message(fields: dict[str, Any], where: str) -> Items:
    found = read_message(fields, where)
    yield from (each for each in found if isinstance(each, ImportProblem))
    entries = tuple(each for each in found if isinstance(each, Entry))
    name, title, model = find_name(fields, _NAMES) or "", find_text(fields, "title"), find_text(fields, "model")
    yield ImportedConversation("jsonl", name, entries, title=title, model=model, is_loose=True)


def _read_conversation(fields: dict[str, Any], where: str) -> Items:
    """One conversation as a list of messages in the form of the APIs."""
    messages = fields.get("messages", fields.get("conversations"))
    assert isinstance(messages, list)
    entries = yield from read_messages(messages, where)
    if entries:
        yield ImportedConversation(
            "jsonl",
            find_name(fields, _OWN_NAMES) or digest_name(entries),
            tuple(entries),
            title=find_text(fields, "title", "name"),
            created_ms=as_ms(find_first(fields, *TIMES)),
            model=find_text(fields, "model"),
        )


def _has_message(objects: list[Any]) -> bool:
    return any(isinstance(each, dict) and ({"role", "sender", "from"} & each.keys()) for each in objects)


SHAPES: tuple[tuple[Callable[[dict[str, Any]], bool], Callable[[dict[str, Any], str], Items]], ...] = (
    (lambda o: o.get("type") == "message" and "seq" in o and "body" in o, _read_export_line),
    (lambda o: o.get("type") == "conversation" and "uuid" in o, _read_export_line),
    (lambda o: o.get("type") == "fact" and "key" in o, _read_export_line),
    (lambda o: isinstance(o.get("mapping"), dict), read_chatgpt),
    (lambda o: isinstance(o.get("chat_messages"), list), read_claude),
    (lambda o: isinstance(o.get("messages"), list), _read_conversation),
    (lambda o: isinstance(o.get("conversations"), list) and _has_message(o["conversations"][:1]), _read_conversation),
    (lambda o: isinstance(o.get("conversations"), list), _read_list),
    (lambda o: _has_message([o]), _read_loose_message),
)
"""A test for each kind, and its reader; the first that fits."""


class LooseMessages:
    """Gathers loose messages into conversations. Yields a part as soon as it is full, and the rest at the end."""

    def __init__(self) -> None:
        self._held: dict[str, ImportedConversation] = {}

    def add(self, part: ImportedConversation) -> Iterator[ImportedConversation]:
        held = self._held.get(part.name)
        self._held[part.name] = held = replace(held, entries=held.entries + part.entries) if held else part
        if len(held.entries) >= PART:
            yield self._part(part.name)

    def close(self) -> Iterator[ImportedConversation]:
        for key in [key for key, held in self._held.items() if held.entries]:
            yield self._part(key)

    def _part(self, key: str) -> ImportedConversation:
        held = self._held[key]
        part = replace(held, name=held.name or digest_name(held.entries), is_loose=False)
        self._held[key] = replace(part, entries=(), is_continued=True)
        return part
