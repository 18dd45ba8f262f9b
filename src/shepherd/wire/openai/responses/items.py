"""The items of a Responses body as messages, in their order.

    reasoning · message(assistant) · function_call · function_call     one message: one answer of the model
    function_call_output                                               a message for each
    message(user, system, developer)                                   a message for each

An answer of the model comes back in pieces; they become one message, so that a prompt continues where the last one
ended. Items that only a provider of the protocol understands are kept as they are (`Opaque`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from shepherd.core import InvalidRequest, Message, Opaque, Part, Reasoning, Role, Text, ToolCall, ToolResult
from shepherd.core.edits import COMPACTION, SEAL
from shepherd.wire.base import Fields, compact_json, field_error, shown
from shepherd.wire.openai.responses.parts import PROTOCOL, decode_content, decode_part, decode_thought, phase_of
from shepherd.wire.openai.responses.tools import OfferedTools, full_name
from shepherd.wire.parts import joined, seen
from shepherd.wire.tools import free_arguments

TRIGGER = "compaction_trigger"
COMPACTIONS = ("compaction", "compaction_summary")
"""The second is Codex's older name."""


def decode_items(items: Iterable[Fields], box: OfferedTools) -> tuple[Message, ...]:
    conversation = _Conversation(box)
    for item in items:
        kind = kind_of(item)
        _ITEMS.get(kind, _keep)(conversation, item)
    return conversation.end()


def kind_of(item: Fields) -> str:
    """The type of an item, given or implied. Raises: `InvalidRequest` for an object that is no item."""
    if (kind := item.find_string("type")) is not None:
        return kind
    if item.has("role"):
        return "message"
    if item.has("id"):
        return "item_reference"
    raise item.error("type", "is missing")


class _Conversation:
    def __init__(self, box: OfferedTools) -> None:
        self.box = box
        self._messages: list[Message] = []
        self._parts: list[Part] = []
        """Of the answer that is incomplete."""
        self._has_spoken = False
        """The last item of that answer was a message: a further one is another answer."""
        self._kept: list[Part] = []
        """Items that no message has yet: they become the first parts of the next one."""
        self._names: dict[str, str] = {}

    def add(self, role: Role, parts: Iterable[Part]) -> None:
        self._end_answer()
        kept, self._kept = self._kept, []
        self._messages.append(Message(role, (*kept, *joined(parts, "\n"))))

    def answer(self, *parts: Part, is_message: bool = False) -> None:
        if is_message and self._has_spoken:
            self._end_answer()
        kept, self._kept = self._kept, []
        self._parts += (*kept, *parts)
        self._names.update((part.id, part.name) for part in parts if isinstance(part, ToolCall))
        self._has_spoken = is_message

    def keep(self, block: Opaque) -> None:
        """Add an item beside the others. Alone it is no message: most models could not read it."""
        if self._parts:
            self.answer(block)
        else:
            self._kept.append(block)

    def result(self, call_id: str, parts: Iterable[Part], *, is_error: bool = False) -> None:
        self.add("tool", [ToolResult(call_id, seen(parts), self._names.get(call_id, ""), is_error)])

    def result_block(self, item: Fields, result: ToolResult) -> None:
        """Add an answer that only the provider can read whole."""
        self.add("tool", [Opaque(PROTOCOL, compact_json(item.body), (result,))])

    def end(self) -> tuple[Message, ...]:
        if self._kept:
            self.answer()
        self._end_answer()
        return tuple(self._messages)

    def _end_answer(self) -> None:
        if self._parts or self._has_spoken:
            self._messages.append(Message("assistant", tuple(self._parts)))
        self._parts, self._has_spoken = [], False


# ---- messages


def _add_message(conversation: _Conversation, item: Fields) -> None:
    match item.get_string("role"):
        case "user":
            _add_user(conversation, item)
        case "system" | "developer":
            conversation.add("system", decode_content(item))
        case "assistant":
            if thought := item.find_string("reasoning_content"):
                conversation.answer(Reasoning(thought))
            if phase := item.find_string("phase"):
                conversation.answer(phase_of(phase))
            conversation.answer(*_answer_parts(item), is_message=True)
        case "tool":
            conversation.result(_call_id(item, "tool_call_id"), decode_content(item))
        case role:
            raise item.error("role", f"is {shown(role)}; the roles are user, assistant, system, developer")


def _add_user(conversation: _Conversation, item: Fields) -> None:
    """A user's message. Cursor puts results of calls into some, as Anthropic's protocol does."""
    if not isinstance(item.find_any("content"), list):
        conversation.add("user", decode_content(item))
        return
    parts: list[Part] = []
    has_results = False
    for part in item.objects("content"):
        if part.find_string("type") == "tool_result":
            failed = part.find_boolean("is_error") is True
            conversation.result(_call_id(part, "tool_use_id"), decode_content(part), is_error=failed)
            has_results = True
        else:
            parts += decode_part(part)
    if parts or not has_results:
        conversation.add("user", parts)


def _answer_parts(item: Fields) -> list[Part]:
    """The parts of a message of the model. Calls in it are Cursor's, in the shape of either other protocol."""
    parts: list[Part] = []
    if isinstance(item.find_any("content"), list):
        for part in item.objects("content"):
            if part.find_string("type") == "tool_use":
                arguments = _text_of(part.find_json("input"))
                parts.append(ToolCall(_call_id(part, "id"), part.get_string("name"), arguments))
            else:
                parts += decode_part(part)
    else:
        parts += decode_content(item)
    if not parts and (refusal := item.find_string("refusal")):
        parts.append(Text(refusal))
    for call in item.objects("tool_calls"):
        function = call.get_object("function")
        arguments = _text_of(function.find_json("arguments"))
        parts.append(ToolCall(_call_id(call, "id"), function.get_string("name"), arguments))
    return parts


def _add_thought(conversation: _Conversation, item: Fields) -> None:
    if (thought := decode_thought(item)) is not None:
        conversation.answer(thought)


# ---- calls and their results


def _add_call(conversation: _Conversation, item: Fields) -> None:
    name = conversation.box.name_of(item.get_string("name"), item.find_string("namespace"))
    is_free = item.find_string("type") == "custom_tool_call"
    arguments = free_arguments(item.find_string("input") or "") if is_free else _text_of(item.find_json("arguments"))
    conversation.answer(ToolCall(_call_id(item), name, arguments))


def _output_of(item: Fields) -> list[Part]:
    output = item.find_any("output")
    has_parts = isinstance(output, list) and all(isinstance(part, dict) and "type" in part for part in output)
    if has_parts or isinstance(output, str | None):
        return [*decode_content(item, "output")]
    return [Text(_dumped(output))]  # of a shell, an object: the model reads JSON


def _add_result(conversation: _Conversation, item: Fields) -> None:
    call_id, output = _call_id(item), _output_of(item)
    if any(isinstance(part, Opaque) for part in output):
        conversation.result_block(item, ToolResult(call_id, seen(output)))
    else:
        conversation.result(call_id, output)


def _call_of(name: str, key: str) -> Callable[[_Conversation, Fields], None]:
    """Reads the call of a tool that OpenAI knows by its type; its arguments are in the field `key`."""

    def add(conversation: _Conversation, item: Fields) -> None:
        call = ToolCall(_call_id(item), name, _text_of(item.find_json(key)))
        conversation.answer(Opaque(PROTOCOL, compact_json(item.body), (call,)))

    return add


def _result_of(name: str) -> Callable[[_Conversation, Fields], None]:
    """Reads the result of such a call."""

    def add(conversation: _Conversation, item: Fields) -> None:
        conversation.result_block(item, ToolResult(_call_id(item), seen(_output_of(item)), name))

    return add


def _add_remote_call(conversation: _Conversation, item: Fields) -> None:
    """A call that the provider has run: other models read it with its result."""
    call_id = _call_id(item)
    name = full_name(item.get_string("name"), item.find_string("server_label"))
    call = ToolCall(call_id, name, _text_of(item.find_json("arguments")))
    failure, output = item.find_any("error"), item.find_any("output")
    result = output if failure is None else failure
    readable = () if result is None else (ToolResult(call_id, (Text(_text_of(result)),), name, failure is not None),)
    conversation.answer(Opaque(PROTOCOL, compact_json(item.body), (call, *readable)))


def _keep(conversation: _Conversation, item: Fields) -> None:
    """An item that only the provider understands."""
    conversation.keep(Opaque(PROTOCOL, compact_json(item.body)))


def _add_compaction(conversation: _Conversation, item: Fields) -> None:
    """Earlier messages, which we hold, or a provider does."""
    protocol = COMPACTION if _is_own_compaction(item) else PROTOCOL
    conversation.keep(Opaque(protocol, compact_json(item.body)))


def _is_own_compaction(item: Fields) -> bool:
    return item.get_string("encrypted_content").startswith(SEAL)


def foreign_compaction(items: Iterable[Fields]) -> InvalidRequest | None:
    """The error for a model that cannot read the compaction of another provider; None without one."""
    foreign = (item for item in items if kind_of(item) in COMPACTIONS and not _is_own_compaction(item))
    if (found := next(foreign, None)) is None:
        return None
    return field_error(
        found.path, "is the compaction of another provider, which alone can read it; send the messages themselves"
    )


def _call_id(item: Fields, key: str = "call_id") -> str:
    found = item.find_string(key) or item.find_string("call_id") or item.find_string("id")
    return found or item.get_string(key, "a call and its result name each other by it")


def _text_of(value: Any) -> str:
    """A text as it is, JSON or not: one bad call must not end a conversation; other values as JSON."""
    if value is None:
        return "{}"
    return value if isinstance(value, str) else _dumped(value)


def _dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _refuse_reference(conversation: _Conversation, item: Fields) -> None:
    id = item.get_string("id")
    raise field_error(item.path, f"refers to item {shown(id)}, which is not stored; send the item itself")


_ITEMS: Mapping[str, Callable[[_Conversation, Fields], None]] = {
    "message": _add_message,
    "reasoning": _add_thought,
    "function_call": _add_call,
    "function_call_output": _add_result,
    "custom_tool_call": _add_call,
    "custom_tool_call_output": _add_result,
    "local_shell_call": _call_of("local_shell", "action"),
    "local_shell_call_output": _result_of("local_shell"),
    "shell_call": _call_of("shell", "action"),
    "shell_call_output": _result_of("shell"),
    "apply_patch_call": _call_of("apply_patch", "operation"),
    "apply_patch_call_output": _result_of("apply_patch"),
    "mcp_call": _add_remote_call,
    **dict.fromkeys(COMPACTIONS, _add_compaction),
    TRIGGER: lambda conversation, item: None,  # `codec` reads it
    "item_reference": _refuse_reference,
    "additional_tools": lambda conversation, item: None,  # `codec` collects its tools, and those of tool_search_output
}
