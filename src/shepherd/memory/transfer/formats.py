"""Which kind of conversation or message a JSON object is, and the reader for it.

The shape of an object decides its kind (`SHAPES`), so one file may hold several kinds. The exports of ChatGPT and
Claude may hold a tree of messages: the branch that its user sees is imported, those of abandoned branches are counted.
A model's thoughts are left out, since the user does not see them either.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from shepherd.memory.records import Call, Entry
from shepherd.memory.transfer.items import (
    PART,
    ExportLine,
    ImportedConversation,
    ImportProblem,
    Items,
    UnreadableError,
    digest_name,
)
from shepherd.memory.transfer.messages import ROLES, TIMES, json_arguments, part_text, read_message, read_messages
from shepherd.memory.transfer.values import as_ms, find_first, find_name, find_object, find_objects, find_text

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


_REASONING = {"thoughts", "reasoning_recap"}
_SETTING = {"user_editable_context", "model_editable_context"}
_CITATION = re.compile("\ue200[^\ue201]*\ue201")
"""Marks that only ChatGPT's web page can show."""


def read_chatgpt(fields: Mapping[str, Any], where: str) -> Items:
    """A conversation of ChatGPT: `mapping` is a tree, and the user sees the path from its root to `current_node`."""
    nodes = {key: node for key, node in fields["mapping"].items() if isinstance(node, dict)}
    tree = {k: (n.get("parent"), as_ms(find_object(n, "message").get("create_time")) or 0) for k, n in nodes.items()}
    path = _path(tree, fields.get("current_node"))
    entries: list[Entry] = []
    model, call = find_text(fields, "default_model_slug"), ""
    for key in path:
        message = nodes[key].get("message")
        if not isinstance(message, dict):
            continue
        entry = _chatgpt_entry(message, call)
        model = model or find_text(find_object(message, "metadata"), "model_slug")
        if entry is not None:
            call = entry.calls[0].id if entry.calls else call
            entries.append(entry)
    left_out = [node for key, node in nodes.items() if key not in set(path) and isinstance(node.get("message"), dict)]
    if entries:
        yield ImportedConversation(
            "chatgpt",
            find_text(fields, "conversation_id", "id") or digest_name(entries),
            tuple(entries),
            title=find_text(fields, "title"),
            created_ms=as_ms(fields.get("create_time")),
            model=model,
            n_left_out=sum(_chatgpt_entry(node["message"], "") is not None for node in left_out),
        )


def read_claude(fields: Mapping[str, Any], where: str) -> Items:
    """Messages in order, which may name their parents and so form a tree."""
    messages = [each for each in fields["chat_messages"] if isinstance(each, dict)]
    nodes = {find_text(each, "uuid"): each for each in messages}
    parents = [each.get("parent_message_uuid") for each in messages]
    chosen = messages
    if len(nodes) == len(messages) and len(set(parents)) < len(parents) and all(isinstance(p, str) for p in parents):
        tree = {k: (node["parent_message_uuid"], as_ms(node.get("created_at")) or 0) for k, node in nodes.items()}
        chosen = [nodes[key] for key in _path(tree, fields.get("current_leaf_message_uuid"))]
    entries = yield from read_messages(chosen, where)
    if entries:
        yield ImportedConversation(
            "claude",
            find_text(fields, "uuid") or digest_name(entries),
            tuple(entries),
            title=find_text(fields, "name", "title"),
            created_ms=as_ms(fields.get("created_at")),
            model=find_text(fields, "model"),
            n_left_out=len(messages) - len(chosen),
        )


def _path(nodes: Mapping[str, tuple[Any, int]], last: Any) -> list[str]:
    """The keys from the root to `last`, or to the newest leaf if that is no key. `nodes`: parents and times."""
    if not isinstance(last, str) or last not in nodes:
        parents = {str(parent) for parent, _ in nodes.values()}
        last = max((key for key in nodes if key not in parents), key=lambda key: nodes[key][1], default=None)
    path: dict[str, None] = {}
    while isinstance(last, str) and last in nodes and last not in path:
        path[last] = None
        last = nodes[last][0]
    return list(path)[::-1]


def _chatgpt_entry(message: Mapping[str, Any], call_id: str) -> Entry | None:
    content, author, metadata = (find_object(message, key) for key in ("content", "author", "metadata"))
    kind = find_text(content, "content_type")
    role = ROLES.get(find_text(author, "role").lower())
    text = _chatgpt_text(content)
    files = [find_text(each, "name") for each in find_objects(metadata, "attachments")]
    text = "\n".join([text, *(f"[file: {name}]" for name in files if name)]).strip()
    created_ms = as_ms(message.get("create_time"))
    if role is None or kind in _REASONING or not text:
        return None
    if kind in _SETTING or (metadata.get("is_visually_hidden_from_conversation") and role != "tool"):
        return Entry("system", text, created_ms=created_ms)
    if role == "tool":
        return Entry("tool", text, tool=find_text(author, "name"), call_id=call_id, created_ms=created_ms)
    recipient = find_text(message, "recipient") or "all"
    if role == "assistant" and recipient != "all":
        call = Call(find_text(message, "id"), recipient, json_arguments(text))
        return Entry("assistant", "", calls=(call,), created_ms=created_ms)
    return Entry(role, text, created_ms=created_ms)


def _chatgpt_text(content: Mapping[str, Any]) -> str:
    parts = content.get("parts")
    texts = [part_text(part) for part in parts] if isinstance(parts, list) else []
    keys = ("title", "url", "text", "result", "summary", "user_profile", "user_instructions", "model_set_context")
    texts += [content[key] for key in keys if isinstance(content.get(key), str)]
    return _CITATION.sub("", "\n".join(text for text in texts if text)).strip()


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
