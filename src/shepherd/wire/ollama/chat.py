"""The server half of Ollama's `POST /api/chat`: a conversation to a request. `answer` writes the answer.

Ollama's clients drop the ids of tool calls; a result names only its tool. Calls without an id are numbered in the order
of the conversation, and a result belongs to the oldest open call of its tool: equal histories become equal messages.
"""

from __future__ import annotations

import time
from collections import OrderedDict, defaultdict
from collections.abc import Iterator

from shepherd.core import Message, Native, Part, Reasoning, Request, Text, ToolCall, ToolResult
from shepherd.wire.base import Decoded, Fields, Json, shown
from shepherd.wire.ollama.answer import AnswerOptions, encoder
from shepherd.wire.ollama.fields import COMMON, IMAGES, common_settings, decode_errand, decode_images, encode_error
from shepherd.wire.openai.messages import TOOLS, decode_tool_choice, decode_tools, provider_demand
from shepherd.wire.table import ANYTHING, OBJECTS, STRING, Field, FieldKind, body_schema, one_of, read_fields
from shepherd.wire.tools import decode_arguments

__all__ = ["decode_request", "encode_error", "encoder"]


def _messages(body: Fields, key: str) -> Iterator[Message]:
    calls = _Calls()
    for message in body.objects(key):
        role = message.get_string("role").lower()
        text = message.find_string("content")
        texts = (Text(text),) if text else ()
        match role:
            case "system":
                yield Message("system", texts)
            case "user":
                yield Message("user", (*decode_images(message), *texts))
            case "assistant":
                thoughts = message.find_string("thinking")
                parts: list[Part] = [Reasoning(thoughts)] if thoughts else []
                yield Message("assistant", (*parts, *texts, *map(calls.made, message.objects("tool_calls"))))
            case "tool":
                id, name = calls.answered(message)
                yield Message("tool", (ToolResult(id, (*decode_images(message), *texts), name),))
            case _:
                raise message.error("role", f"is {shown(role)}; the roles are system, user, assistant and tool")


class _Calls:
    def __init__(self) -> None:
        self._n = 0
        self._names: dict[str, str] = {}
        """Of all calls, by id."""
        self._open: defaultdict[str, OrderedDict[str, None]] = defaultdict(OrderedDict)
        """The ids of those without a result, the oldest first: by the name of the tool, and of all under no name."""

    def made(self, call: Fields) -> ToolCall:
        function = call.get_object("function")
        id = call.find_string("id") or self._new_id()
        made = ToolCall(id, function.get_string("name"), decode_arguments(function))
        self._names[id] = made.name
        for name in ("", made.name):
            self._open[name][id] = None
        return made

    def answered(self, message: Fields) -> tuple[str, str]:
        """The id and the name of the call that a message with role tool answers."""
        name = message.find_string("tool_name") or message.find_string("name") or ""
        id = message.find_string("tool_call_id")
        if not id:
            id = next(iter(self._open[name]), None) or self._new_id()
        for known in ("", self._names.get(id, "")):
            self._open[known].pop(id, None)
        return id, name or self._names.get(id, "")

    def _new_id(self) -> str:
        self._n += 1
        while f"call_{self._n}" in self._names:
            self._n += 1
        return f"call_{self._n}"


_MESSAGE = body_schema(
    Field("role", one_of("system", "user", "assistant", "tool")),
    Field("content", STRING),
    Field("thinking", STRING),
    IMAGES,
    Field("tool_calls", OBJECTS),
    Field("tool_name", STRING, "Of a tool result: the name of the tool."),
    required=["role"],
)
_MESSAGES = FieldKind(lambda body, key: tuple(_messages(body, key)), {"type": "array", "items": _MESSAGE})
FIELDS = (
    *COMMON,
    Field("messages", _MESSAGES, "Empty: the model is loaded; with keep_alive 0 it is unloaded."),
    Field("tool_choice", ANYTHING, "auto, none, required, or one function by name; Ollama itself has no such field."),
)
_EXAMPLE = {"model": "default", "messages": [{"role": "user", "content": "Hello!"}], "stream": False}
BODY = body_schema(*FIELDS, TOOLS, example=_EXAMPLE)


def decode_request(body: Json) -> Decoded[AnswerOptions]:
    """A body without messages asks to load the model, or to unload it: an empty request."""
    began = time.perf_counter_ns()
    fields = Fields(body)
    given = read_fields(fields, FIELDS)
    settings = common_settings(given)
    if given["messages"]:
        native = Native("ollama", body)
        if (error := provider_demand(fields, ())) is not None:
            raise error
        tools, choice = decode_tool_choice(fields, decode_tools(fields))
        request = Request(messages=given["messages"], tools=tools, tool_choice=choice, native=native, **settings)
        options = AnswerOptions(chat=True, began=began)
    else:
        request, errand = decode_errand(fields, settings["extra"])
        options = AnswerOptions(chat=True, began=began, errand=errand)
    return Decoded((request,), given["stream"], options)
