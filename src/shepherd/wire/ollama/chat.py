"""The server half of Ollama's `POST /api/chat`: a conversation to a request. The answer is `answer`'s.

Ollama's clients drop the ids of tool calls and name the tool that a result is of. Calls without an id are numbered in
the order of the conversation, and a result belongs to the oldest call of its tool that has none yet: the same history
always becomes the same messages.
"""

from __future__ import annotations

import json
import time
from collections import OrderedDict, defaultdict
from collections.abc import Iterator

from shepherd.core import InvalidRequest, Message, Part, Reasoning, Request, Text, ToolCall, ToolResult
from shepherd.wire.base import Decoded, Fields, Json, shown, wrong
from shepherd.wire.ollama.answer import AnswerOptions, Clock, encoder
from shepherd.wire.ollama.fields import decode_common, decode_images, encode_error, side_task_of, streams
from shepherd.wire.openai.messages import decode_tools

__all__ = ["decode_request", "encode_error", "encoder"]


def decode_request(body: Json, *, clock: Clock = time.perf_counter_ns) -> Decoded[AnswerOptions]:
    """What the client asks. Raises: `InvalidRequest`, and nothing else, whatever JSON object comes.

    A body without messages asks for the model to be loaded, or unloaded: a request with nothing in it.
    """
    began = clock()
    fields = Fields(body)
    common = decode_common(fields)
    messages = tuple(_decode_messages(fields))
    if not messages:
        request = Request(model=common["model"], extra=common["extra"])
        options = AnswerOptions(chat=True, began=began, errand=side_task_of(common["extra"]))
    else:
        request = Request(messages=messages, tools=decode_tools(fields), **common)
        options = AnswerOptions(chat=True, began=began)
    return Decoded((request,), streams(fields), options)


def _decode_messages(body: Fields) -> Iterator[Message]:
    calls = _Calls()
    for message in body.objects("messages"):
        role = message.get_string("role").lower()
        text = message.find_string("content")
        said = (Text(text),) if text else ()
        match role:
            case "system":
                yield Message("system", said)
            case "user":
                yield Message("user", (*decode_images(message), *said))
            case "assistant":
                thoughts = message.find_string("thinking")
                parts: list[Part] = [Reasoning(thoughts)] if thoughts else []
                yield Message("assistant", (*parts, *said, *map(calls.made, message.objects("tool_calls"))))
            case "tool":
                id, name = calls.answered(message)
                yield Message("tool", (ToolResult(id, (*decode_images(message), *said), name),))
            case _:
                path = message.at("role")
                roles = "the roles are system, user, assistant and tool"
                raise InvalidRequest(f"{path} is {shown(role)}; {roles}", field=path)


class _Calls:
    """The calls of one conversation, in order, and which of them have been answered."""

    def __init__(self) -> None:
        self._n = 0
        self._names: dict[str, str] = {}
        """Of all calls, by id."""
        self._open: defaultdict[str, OrderedDict[str, None]] = defaultdict(OrderedDict)
        """The ids of those without a result, the oldest first: by the name of the tool, and of all under no name."""

    def made(self, call: Fields) -> ToolCall:
        function = call.get_object("function")
        id = call.find_string("id") or self._new_id()
        made = ToolCall(id, function.get_string("name"), _decode_arguments(function))
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


def _decode_arguments(function: Fields) -> str:
    """As text. What is no object a model once wrote: it stays, or the conversation would be stuck behind it."""
    match function.find_json("arguments"):
        case None:
            return "{}"
        case str() as text:
            return text
        case dict() as arguments:
            return json.dumps(arguments, ensure_ascii=False)
        case other:
            raise wrong(function.at("arguments"), "an object", other)
