"""One message of another program's file, in the form of the APIs or of Claude.

A message may hold text, tool calls and tool results at once; each becomes an entry of its own, in order.
"""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Mapping, Sequence
from typing import Any

from shepherd.core import Role
from shepherd.core.dataclasses import dataclass, field
from shepherd.memory.records import Call, Entry
from shepherd.memory.transfer.items import ImportProblem
from shepherd.memory.transfer.values import as_ms, find_first, find_object, find_objects, find_text

ROLES: Mapping[str, Role] = {
    **dict.fromkeys(("user", "human"), "user"),
    **dict.fromkeys(("assistant", "ai", "bot", "gpt", "model", "chatgpt", "claude"), "assistant"),
    **dict.fromkeys(("system", "developer"), "system"),
    **dict.fromkeys(("tool", "function"), "tool"),
}
TIMES = ("time", "timestamp", "created_at", "create_time", "created", "date")
_TEXTS = {"text", "input_text", "output_text"}
_UNSUPPORTED = re.compile(r"(?:```\s*)?This block is not supported on your current device yet\.?(?:\s*```)?")
"""Stands in Claude's `text` in place of a tool call."""
_ATTACHED = re.compile(r"image|audio|video|file|document")


def read_messages(messages: Sequence[Any], where: str) -> Generator[ImportProblem, None, list[Entry]]:
    """Yields the problems of a list of messages, and returns the entries of all others."""
    entries: list[Entry] = []
    for number, message in enumerate(messages, 1):
        for each in read_message(message, f"{where}, message {number}"):
            if isinstance(each, ImportProblem):
                yield each
            else:
                entries.append(each)
    return entries


def read_message(message: Any, where: str) -> list[Entry | ImportProblem]:
    if not isinstance(message, dict):
        return [ImportProblem(where, "it is not a JSON object")]
    word = find_text(message, "role", "sender", "from")
    role = ROLES.get(word.lower())
    if role is None:
        return [ImportProblem(where, f"its role is {word!r:.40}; known are {', '.join(ROLES)}")]
    problems: list[Entry | ImportProblem] = []
    time = find_first(message, *TIMES)
    created_ms = as_ms(time)
    if time is not None and created_ms is None:
        problems.append(ImportProblem(where, f"its time {time!r:.40} cannot be read; the time of the import is used"))
    content = message.get("content", message.get("value", message.get("body"))) or message.get("text")
    reader = _MessageReader(role, created_ms, find_text(message, "name"), find_text(message, "tool_call_id"))
    for block in content if isinstance(content, list) else [content]:
        reader.add_block(block)
    for call in find_objects(message, "tool_calls"):
        function = find_object(call, "function") or call
        reader.add_call(find_text(call, "id"), find_text(function, "name"), function.get("arguments"))
    for each in [*find_objects(message, "files"), *find_objects(message, "attachments")]:
        reader.add_file(find_text(each, "file_name", "name"), find_text(each, "extracted_content"))
    entries = reader.close()
    if not entries and content and not reader.has_reasoning:
        problems.append(ImportProblem(where, "its content has no text"))
    return [*problems, *entries]


@dataclass(slots=True)
class _MessageReader:
    """Collects the blocks of one message. A tool result between two texts splits them into two entries."""

    role: Role
    created_ms: int | None
    tool: str
    call_id: str
    has_reasoning: bool = False
    texts: list[str] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    files: list[Entry] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)

    def add_block(self, block: Any) -> None:
        kind = find_text(block, "type") if isinstance(block, dict) else ""
        if kind in {"tool_use", "function_call"}:
            arguments = block.get("input", block.get("arguments"))
            self.add_call(find_text(block, "id", "call_id"), find_text(block, "name"), arguments)
        elif kind in {"tool_result", "function_call_output"}:
            self._flush()
            text = _content_text(block.get("content", block.get("output")))
            id = find_text(block, "tool_use_id", "call_id")
            name = find_text(block, "name") or next((c.name for e in self.entries for c in e.calls if c.id == id), "")
            if text:
                self.entries.append(Entry("tool", text, tool=name, call_id=id, created_ms=self.created_ms))
        elif kind in {"thinking", "redacted_thinking", "reasoning", "token_budget", "flag"}:
            self.has_reasoning = True
        elif text := _UNSUPPORTED.sub("", part_text(block)).strip("\n"):
            self.texts.append(text)

    def add_call(self, id: str, name: str, arguments: Any) -> None:
        text = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
        self.calls.append(Call(id, name or "?", json_arguments(text)))

    def add_file(self, name: str, text: str) -> None:
        if text.strip():
            self.files.append(Entry("tool", f"{name}\n{text}".strip(), tool="attachment", created_ms=self.created_ms))
        elif name:
            self.texts.append(f"[file: {name}]")

    def close(self) -> list[Entry]:
        self._flush()
        return [*self.entries, *self.files]

    def _flush(self) -> None:
        text = "\n".join(self.texts)
        if text.strip() or self.calls:
            tool, call_id = (self.tool, self.call_id) if self.role == "tool" else ("", "")
            self.entries.append(
                Entry(self.role, text, tuple(self.calls), tool=tool, call_id=call_id, created_ms=self.created_ms)
            )
        self.texts, self.calls = [], []


def part_text(part: Any) -> str:
    """The text of one part of a message; for a part without text a note of its kind."""
    if isinstance(part, str):
        return part
    if not isinstance(part, dict):
        return ""
    if text := find_text(part, "text", "value"):
        return text
    kind = find_text(part, "content_type", "type")
    attached = _ATTACHED.search(kind)
    return f"[{attached.group() if attached else kind}]" if kind and kind not in _TEXTS else ""


def _content_text(content: Any) -> str:
    parts = content if isinstance(content, list) else [content]
    return "\n".join(text for part in parts if (text := part_text(part))).strip()


def json_arguments(text: str) -> str:
    """The arguments of a call as the text of a JSON object; other text becomes the value of `input`."""
    try:
        if isinstance(json.loads(text), dict):
            return text
    except (ValueError, RecursionError):
        pass
    return json.dumps({"input": text}, ensure_ascii=False)
