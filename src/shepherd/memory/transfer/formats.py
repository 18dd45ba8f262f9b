"""What the objects of other programs' files say: conversations of ChatGPT and Claude, messages of the APIs, our lines.

An object says itself what it is (`SHAPES`), so one file may hold several kinds. Nothing of a conversation is made up,
and nothing is dropped but what its user does not see either: a model's thoughts, and branches that were abandoned.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any

from shepherd.core import Role
from shepherd.memory.records import Call, Entry

PIECE = 256
"""Messages of a plain file that are handed on together."""


@dataclass(frozen=True, slots=True)
class Talk:
    """A conversation of a file, or the next piece of one."""

    source: str
    """`chatgpt`, `claude` or `jsonl`."""
    name: str
    """What the file calls it; where it has no name, one made of how it begins."""
    entries: tuple[Entry, ...]
    goes_on: bool = False
    """It follows the piece of the same name before it."""
    title: str = ""
    created_ms: int | None = None
    model: str = ""
    n_left_out: int = 0
    """Messages of the file on branches that its user has abandoned."""


@dataclass(frozen=True, slots=True)
class Record:
    """A line of our own export."""

    where: str
    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that could not be read."""

    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


class UnreadableError(Exception):
    """Says what is wrong with one object."""


@dataclass(frozen=True, slots=True)
class Line:
    """A message that stands alone."""

    name: str | None
    entries: tuple[Entry, ...]
    title: str
    model: str


Meant = Iterator[Talk | Record | Problem | Line]


def meant(fields: Any, where: str) -> Meant:
    if isinstance(fields, list) and _is_message(fields):
        fields = {"messages": fields}
    if not isinstance(fields, dict):
        raise UnreadableError("it is no JSON object")
    for is_it, reader in SHAPES:
        if is_it(fields):
            yield from reader(fields, where)
            return
    keys = ", ".join(list(map(str, fields))[:6]) or "none"
    raise UnreadableError(f"it is no message and no conversation; a message has 'role' and 'content' (keys: {keys})")


def _record(fields: Mapping[str, Any], where: str) -> Meant:
    yield Record(where, fields)


def _list(fields: Mapping[str, Any], where: str) -> Meant:
    """A list of conversations one level down."""
    for number, each in enumerate(fields["conversations"], 1):
        try:
            yield from meant(each, f"{where}, conversation {number}")
        except UnreadableError as error:
            yield Problem(f"{where}, conversation {number}", str(error))


def _line(fields: Mapping[str, Any], where: str) -> Meant:
    entries = _entries(fields, where)
    yield from (each for each in entries if isinstance(each, Problem))
    said = tuple(each for each in entries if isinstance(each, Entry))
    yield Line(_name(fields, _NAMES), said, _str(fields, "title"), _str(fields, "model"))


def _all_entries(messages: Sequence[Any], where: str) -> Generator[Problem, None, list[Entry]]:
    """What a list of messages holds; what is wrong with one of them is told, and the others are taken."""
    entries: list[Entry] = []
    for number, message in enumerate(messages, 1):
        for each in _entries(message, f"{where}, message {number}"):
            if isinstance(each, Problem):
                yield each
            else:
                entries.append(each)
    return entries


def _messages(fields: Mapping[str, Any], where: str) -> Meant:
    """One conversation as a list of messages, in the way of the APIs."""
    messages = fields.get("messages", fields.get("conversations"))
    assert isinstance(messages, list)
    entries = yield from _all_entries(messages, where)
    if entries:
        yield Talk(
            "jsonl",
            _name(fields, _OWN_NAMES) or _beginning(entries),
            tuple(entries),
            title=_str(fields, "title", "name"),
            created_ms=as_ms(_first(fields, *_TIMES)),
            model=_str(fields, "model"),
        )


def _chatgpt(fields: Mapping[str, Any], where: str) -> Meant:
    """A conversation of ChatGPT: a tree of messages, of which the path to `current_node` is what its user sees."""
    nodes = {key: node for key, node in fields["mapping"].items() if isinstance(node, dict)}
    path = _path(nodes, fields.get("current_node"))
    entries: list[Entry] = []
    model, call = _str(fields, "default_model_slug"), ""
    for key in path:
        message = nodes[key].get("message")
        if not isinstance(message, dict):
            continue
        entry = _chatgpt_entry(message, call)
        model = model or _str(_table(message, "metadata"), "model_slug")
        if entry is not None:
            call = entry.calls[0].id if entry.calls else call
            entries.append(entry)
    left_out = [node for key, node in nodes.items() if key not in set(path) and isinstance(node.get("message"), dict)]
    if entries:
        yield Talk(
            "chatgpt",
            _str(fields, "conversation_id", "id") or _beginning(entries),
            tuple(entries),
            title=_str(fields, "title"),
            created_ms=as_ms(fields.get("create_time")),
            model=model,
            n_left_out=sum(_chatgpt_entry(node["message"], "") is not None for node in left_out),
        )


def _path(nodes: Mapping[str, Mapping[str, Any]], last: Any) -> list[str]:
    """The keys from the root to `last`; to the newest leaf when that is none of them."""
    if not isinstance(last, str) or last not in nodes:
        parents = {str(node.get("parent")) for node in nodes.values()}
        leaves = [key for key in nodes if key not in parents]
        last = max(leaves, key=lambda key: as_ms(_table(nodes[key], "message").get("create_time")) or 0, default=None)
    path: dict[str, None] = {}
    while isinstance(last, str) and last in nodes and last not in path:
        path[last] = None
        last = nodes[last].get("parent")
    return list(path)[::-1]


_THOUGHT = {"thoughts", "reasoning_recap"}
"""What a model wrote to itself is no part of a conversation; neither are Claude's `thinking` blocks."""
_SETTING = {"user_editable_context", "model_editable_context"}
_CITATION = re.compile("\ue200[^\ue201]*\ue201")
"""Marks that only their web page can show."""


def _chatgpt_entry(message: Mapping[str, Any], call_id: str) -> Entry | None:
    content, author, metadata = (_table(message, key) for key in ("content", "author", "metadata"))
    kind = _str(content, "content_type")
    role = ROLES.get(_str(author, "role").lower())
    text = _chatgpt_text(content)
    files = [_str(each, "name") for each in _list_of(metadata, "attachments")]
    text = "\n".join([text, *(f"[file: {name}]" for name in files if name)]).strip()
    created_ms = as_ms(message.get("create_time"))
    if role is None or kind in _THOUGHT or not text:
        return None
    if kind in _SETTING or (metadata.get("is_visually_hidden_from_conversation") and role != "tool"):
        return Entry("system", text, created_ms=created_ms)
    if role == "tool":
        return Entry("tool", text, tool=_str(author, "name"), call_id=call_id, created_ms=created_ms)
    recipient = _str(message, "recipient") or "all"
    if role == "assistant" and recipient != "all":
        call = Call(_str(message, "id"), recipient, _arguments(text))
        return Entry("assistant", "", calls=(call,), created_ms=created_ms)
    return Entry(role, text, created_ms=created_ms)


def _chatgpt_text(content: Mapping[str, Any]) -> str:
    parts = content.get("parts")
    said = [_part(part) for part in parts] if isinstance(parts, list) else []
    keys = ("title", "url", "text", "result", "summary", "user_profile", "user_instructions", "model_set_context")
    said += [content[key] for key in keys if isinstance(content.get(key), str)]
    return _CITATION.sub("", "\n".join(text for text in said if text)).strip()


def _claude(fields: Mapping[str, Any], where: str) -> Meant:
    """A conversation of Claude: messages in order; where they name their parents, those of abandoned branches go."""
    messages = [each for each in fields["chat_messages"] if isinstance(each, dict)]
    nodes = {_str(each, "uuid"): each for each in messages}
    parents = [each.get("parent_message_uuid") for each in messages]
    chosen = messages
    if len(nodes) == len(messages) and len(set(parents)) < len(parents) and all(isinstance(p, str) for p in parents):
        tree = {
            key: {"parent": node["parent_message_uuid"], "message": {"create_time": node.get("created_at")}}
            for key, node in nodes.items()
        }
        chosen = [nodes[key] for key in _path(tree, fields.get("current_leaf_message_uuid"))]
    entries = yield from _all_entries(chosen, where)
    if entries:
        yield Talk(
            "claude",
            _str(fields, "uuid") or _beginning(entries),
            tuple(entries),
            title=_str(fields, "name", "title"),
            created_ms=as_ms(fields.get("created_at")),
            model=_str(fields, "model"),
            n_left_out=len(messages) - len(chosen),
        )


SHAPES: tuple[tuple[Callable[[dict[str, Any]], bool], Callable[[Mapping[str, Any], str], Meant]], ...] = (
    (lambda o: o.get("type") == "message" and "seq" in o and "body" in o, _record),
    (lambda o: o.get("type") == "conversation" and "uuid" in o, _record),
    (lambda o: o.get("type") == "fact" and "key" in o, _record),
    (lambda o: isinstance(o.get("mapping"), dict), _chatgpt),
    (lambda o: isinstance(o.get("chat_messages"), list), _claude),
    (lambda o: isinstance(o.get("messages"), list), _messages),
    (lambda o: isinstance(o.get("conversations"), list) and _is_message(o["conversations"][:1]), _messages),
    (lambda o: isinstance(o.get("conversations"), list), _list),
    (lambda o: _is_message([o]), _line),
)
"""How each kind is recognised, and who reads it; the first that fits."""


def _is_message(objects: list[Any]) -> bool:
    return any(isinstance(each, dict) and ({"role", "sender", "from"} & each.keys()) for each in objects)


# -- messages ---------------------------------------------------------------------------------------------------------

ROLES: Mapping[str, Role] = {
    **dict.fromkeys(("user", "human"), "user"),
    **dict.fromkeys(("assistant", "ai", "bot", "gpt", "model", "chatgpt", "claude"), "assistant"),
    **dict.fromkeys(("system", "developer"), "system"),
    **dict.fromkeys(("tool", "function"), "tool"),
}
_NAMES = ("conversation", "conversation_id", "session", "session_id", "thread", "thread_id", "chat_id")
_OWN_NAMES = (*_NAMES, "id", "uuid")
"""Of a conversation itself; in a message, the last two are those of the message."""
_TIMES = ("time", "timestamp", "created_at", "create_time", "created", "date")
_TEXTS = {"text", "input_text", "output_text"}
_UNSUPPORTED = re.compile(r"(?:```\s*)?This block is not supported on your current device yet\.?(?:\s*```)?")
"""What Claude's `text` says in place of a tool call."""


def _entries(message: Any, where: str) -> list[Entry | Problem]:
    """A message in the way of the APIs or of Claude, with its calls and results each in their place."""
    if not isinstance(message, dict):
        return [Problem(where, "it is no JSON object")]
    word = _str(message, "role", "sender", "from")
    role = ROLES.get(word.lower())
    if role is None:
        return [Problem(where, f"its role is {word!r:.40}; known are {', '.join(ROLES)}")]
    said: list[Entry | Problem] = []
    time = _first(message, *_TIMES)
    created_ms = as_ms(time)
    if time is not None and created_ms is None:
        said.append(Problem(where, f"its time {time!r:.40} cannot be read and is taken as that of the import"))
    told = message.get("content", message.get("value", message.get("body"))) or message.get("text")
    turn = _Turn(role, created_ms, _str(message, "name"), _str(message, "tool_call_id"))
    for block in told if isinstance(told, list) else [told]:
        turn.add(block)
    for call in _list_of(message, "tool_calls"):
        function = _table(call, "function") or call
        turn.call(_str(call, "id"), _str(function, "name"), function.get("arguments"))
    for each in [*_list_of(message, "files"), *_list_of(message, "attachments")]:
        turn.attach(_str(each, "file_name", "name"), _str(each, "extracted_content"))
    entries = turn.close()
    if not entries and told and not turn.thought:
        said.append(Problem(where, "its content has no text"))
    return [*said, *entries]


@dataclass(slots=True)
class _Turn:
    """What one message says: a result between two texts parts them into two messages."""

    role: Role
    created_ms: int | None
    tool: str
    call_id: str
    thought: bool = False
    texts: list[str] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    after: list[Entry] = field(default_factory=list)
    made: list[Entry] = field(default_factory=list)

    def add(self, block: Any) -> None:
        kind = _str(block, "type") if isinstance(block, dict) else ""
        if kind in {"tool_use", "function_call"}:
            self.call(_str(block, "id", "call_id"), _str(block, "name"), block.get("input", block.get("arguments")))
        elif kind in {"tool_result", "function_call_output"}:
            self.flush()
            text = _content_text(block.get("content", block.get("output")))
            id = _str(block, "tool_use_id", "call_id")
            name = _str(block, "name") or next((c.name for e in self.made for c in e.calls if c.id == id), "")
            if text:
                self.made.append(Entry("tool", text, tool=name, call_id=id, created_ms=self.created_ms))
        elif kind in {"thinking", "redacted_thinking", "reasoning", "token_budget", "flag"}:
            self.thought = True
        elif text := _UNSUPPORTED.sub("", _part(block)).strip("\n"):
            self.texts.append(text)

    def call(self, id: str, name: str, arguments: Any) -> None:
        text = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
        self.calls.append(Call(id, name or "?", _arguments(text)))

    def attach(self, name: str, text: str) -> None:
        if text.strip():
            self.after.append(Entry("tool", f"{name}\n{text}".strip(), tool="attachment", created_ms=self.created_ms))
        elif name:
            self.texts.append(f"[file: {name}]")

    def flush(self) -> None:
        text = "\n".join(self.texts)
        if text.strip() or self.calls:
            tool, call_id = (self.tool, self.call_id) if self.role == "tool" else ("", "")
            calls = tuple(self.calls)
            self.made.append(
                Entry(self.role, text, calls=calls, tool=tool, call_id=call_id, created_ms=self.created_ms)
            )
        self.texts, self.calls = [], []

    def close(self) -> list[Entry]:
        self.flush()
        return [*self.made, *self.after]


_NOTED = re.compile(r"image|audio|video|file|document")


def _part(part: Any) -> str:
    """The text of one part of a message; of anything else a note that it was there."""
    if isinstance(part, str):
        return part
    if not isinstance(part, dict):
        return ""
    if text := _str(part, "text", "value"):
        return text
    kind = _str(part, "content_type", "type")
    noted = _NOTED.search(kind)
    return f"[{noted.group() if noted else kind}]" if kind and kind not in _TEXTS else ""


def _content_text(content: Any) -> str:
    parts = content if isinstance(content, list) else [content]
    return "\n".join(text for part in parts if (text := _part(part))).strip()


def _arguments(text: str) -> str:
    """The arguments of a call as the text of a JSON object, which they must be here."""
    try:
        if isinstance(json.loads(text), dict):
            return text
    except (ValueError, RecursionError):
        pass
    return json.dumps({"input": text}, ensure_ascii=False)


class Plain:
    """Messages that stand alone, gathered into conversations."""

    def __init__(self) -> None:
        self._held: dict[str | None, list[Entry]] = {}
        self._told: dict[str | None, Line] = {}
        self._names: dict[str | None, str] = {}
        """Of what has been handed on already."""

    def feed(self, line: Line) -> Iterator[Talk]:
        held = self._held.setdefault(line.name, [])
        self._told.setdefault(line.name, line)
        held.extend(line.entries)
        if len(held) >= PIECE:
            yield self._piece(line.name)

    def close(self) -> Iterator[Talk]:
        for name in [name for name, held in self._held.items() if held]:
            yield self._piece(name)

    def _piece(self, name: str | None) -> Talk:
        entries = tuple(self._held.pop(name))
        known, first = self._names.get(name), self._told[name]
        self._names[name] = known or (_beginning(entries) if name is None else name)
        return Talk("jsonl", self._names[name], entries, known is not None, first.title, None, first.model)


def _beginning(entries: list[Entry] | tuple[Entry, ...]) -> str:
    """A name for a conversation without one: the same for the same file, also when that has grown."""
    digest = blake2b(digest_size=16)
    for entry in entries[:PIECE]:
        digest.update(entry.sha)
        if entry.role == "assistant":
            break
    return digest.hexdigest()


# -- fields -----------------------------------------------------------------------------------------------------------


def _first(fields: Mapping[str, Any], *keys: str) -> Any:
    return next((fields[key] for key in keys if fields.get(key) is not None), None)


def _str(fields: Mapping[str, Any], *keys: str) -> str:
    """The first of `keys` that holds text."""
    return next((value for key in keys if isinstance(value := fields.get(key), str) and value), "")


def _name(fields: Mapping[str, Any], keys: tuple[str, ...]) -> str | None:
    """The first of `keys` that holds a word or a number."""
    given = (fields.get(key) for key in keys)
    return next((str(value) for value in given if isinstance(value, str | int) and str(value).strip()), None)


def _table(fields: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = fields.get(key)
    return value if isinstance(value, dict) else {}


def _list_of(fields: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    value = fields.get(key)
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


_LATEST_MS = 253_402_300_799_000
"""The last second of the year 9999."""


def as_ms(value: Any) -> int | None:
    """A time as exports spell it: seconds or milliseconds since 1970, or ISO 8601; None if it is none of them."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            try:
                moment = datetime.fromisoformat(value.strip())
                value = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
            except (ValueError, OverflowError):
                return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _LATEST_MS:
        return None
    return round(value if value > 100_000_000_000 else value * 1000)
