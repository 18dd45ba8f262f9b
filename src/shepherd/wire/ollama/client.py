"""The client half of Ollama's `POST /api/chat`: a request to a body, the lines of an answer to events.

    {"message": {...}, "done": false}*  {"done": true, "done_reason": ..., counts}

Ollama cuts a prompt that is longer than `num_ctx` without a word, so `num_ctx` is always sent where the window is
known, and the back end checks the prompt against it. Calls come whole, mostly without an id. Source: Ollama's API
reference, and recordings of several versions.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from typing import Any, Final

from shepherd.core import (
    Audio,
    Event,
    Finished,
    Image,
    Message,
    ReasoningDelta,
    Request,
    Text,
    TextDelta,
    ToolResult,
    ToolSpec,
    Unsupported,
    Usage,
)
from shepherd.wire.base import Json, compact_json, parse_object
from shepherd.wire.client import Decoder, Endpoint, Failure, check_messages, native_of
from shepherd.wire.ending import word_of
from shepherd.wire.extensions import kept
from shepherd.wire.history import for_provider
from shepherd.wire.openai.shared_fields import scores_of
from shepherd.wire.values import BrokenAnswer, count_in, object_of, text_in, texts_in

PROTOCOL: Final = "ollama"

_SAMPLING = (
    "temperature", "top_k", "top_p", "min_p", "typical_p", "repetition_penalty", "frequency_penalty",
    "presence_penalty", "repeat_last_n", "mirostat", "mirostat_tau", "mirostat_eta", "seed",
)  # fmt: skip
"""Fields of `Sampling` that are options of Ollama."""
_SOUNDS = frozenset({"audio/wav"})


def encode_request(request: Request, endpoint: Endpoint) -> Json:
    """The body. Raises: `Unsupported` for a bare prompt, a grammar, and an image that is only an address.

    Ollama has no field that demands a call: the answer gets the form of one (`format`), and the decoder makes
    the call of it.
    """
    check_messages(request, "Ollama follows no grammar; send a JSON schema")
    body: Json = {"model": endpoint.model, "messages": _messages(request, endpoint), "stream": True}
    if request.tools and request.tool_choice != "none":
        body["tools"] = [
            {
                "type": "function",
                "function": {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)},
            }
            for tool in request.tools
        ]
    if demanded := _demanded(request):
        forms = [_form_of(tool) for tool in demanded]
        body["format"] = forms[0] if len(forms) == 1 else {"anyOf": forms}
    elif request.schema is not None:
        body["format"] = dict(request.schema)
    if (think := _think(request, endpoint)) is not None:
        body["think"] = think
    if request.logprobs is not None:
        body |= {"logprobs": True, "top_logprobs": request.logprobs}
    if (keep_alive := request.extra.get("keep_alive")) is not None:
        body["keep_alive"] = keep_alive
    if options := _options(request, endpoint):
        body["options"] = options
    native = native_of(request, PROTOCOL)
    body |= {key: value for key, value in native.items() if key not in _KNOWN}
    configured = dict(endpoint.options)
    if isinstance(inner := configured.pop("options", None), dict):
        body["options"] = {**body.get("options", {}), **inner}
    return {key: value for key, value in {**body, **configured}.items() if key not in endpoint.refuses}


_KNOWN = frozenset((
    "model", "messages", "tools", "stream", "format", "think", "keep_alive", "options", "logprobs", "top_logprobs",
    "tool_choice",
))  # fmt: skip
"""Fields that `Request` has a word for."""


def _messages(request: Request, endpoint: Endpoint) -> list[Json]:
    return [
        made
        for message in for_provider(request.messages, PROTOCOL, endpoint, _SOUNDS)
        for made in _encode_message(message)
        if made.keys() - {"role"}
    ]


def _encode_message(message: Message) -> Iterator[Json]:
    results = [part for part in message.parts if isinstance(part, ToolResult)]
    for result in results:
        text = "".join(part.text for part in result.parts if isinstance(part, Text))
        made: Json = {"role": "tool", "content": text, "tool_name": result.name, "tool_call_id": result.call_id}
        if images := [_image(part) for part in result.parts if isinstance(part, Image | Audio)]:
            made["images"] = images
        yield made
    if results:
        return
    made = {"role": message.role}
    if message.text:
        made["content"] = message.text
    if message.role == "assistant" and message.reasoning:
        made["thinking"] = message.reasoning
    if images := [_image(part) for part in message.parts if isinstance(part, Image | Audio)]:
        made["images"] = images
    if message.calls:
        made.setdefault("content", "")
        made["tool_calls"] = [
            {"id": call.id, "function": {"index": at, "name": call.name, "arguments": object_of(call.arguments)}}
            for at, call in enumerate(message.calls)
        ]
    yield made


def _demanded(request: Request) -> list[ToolSpec]:
    """The tools of which one must be called; none where the model decides."""
    match request.tool_choice:
        case "required":
            return list(request.tools)
        case ("named", name):
            return [tool for tool in request.tools if tool.name == name]
        case _:
            return []


def _form_of(tool: ToolSpec) -> Json:
    """The schema of a call. One that refers to parts of itself by their place would refer to nothing inside another."""
    schema = dict(tool.parameters)
    arguments = {"type": "object"} if "$ref" in json.dumps(schema, default=str) else {"type": "object", **schema}
    properties = {"name": {"type": "string", "enum": [tool.name]}, "arguments": arguments}
    return {"type": "object", "properties": properties, "required": ["name", "arguments"]}


def _image(image: Image | Audio) -> str:
    """Recordings have no field of their own: the server knows a WAV file by its first bytes."""
    if image.data is None:
        raise Unsupported("Ollama reads no image by its address; send its content in base64", field="messages")
    return base64.b64encode(image.data).decode("ascii")


def _think(request: Request, endpoint: Endpoint) -> bool | str | None:
    level = request.reasoning
    if level is None or not endpoint.thinks_by:
        return None
    if endpoint.thinks_by == "effort":  # it cannot be without thoughts
        return {"off": "low", "on": "medium", "max": "high"}.get(level, level)
    return level != "off"


def _options(request: Request, endpoint: Endpoint) -> Json:
    made = {name: getattr(request.sampling, name) for name in _SAMPLING}
    made["repeat_penalty"] = made.pop("repetition_penalty")
    made["num_ctx"] = endpoint.n_ctx
    made["num_predict"] = request.max_tokens
    made["stop"] = list(request.stop) or None
    return {key: value for key, value in made.items() if value is not None}


# ---- the answer

DURATIONS = ("total_duration", "load_duration", "prompt_eval_duration", "eval_duration")
"""Nanoseconds."""


class OllamaDecoder(Decoder):
    def __init__(self, request: Request, endpoint: Endpoint, new_id: Callable[[], str] | None = None) -> None:
        super().__init__(request, endpoint, new_id)
        self._finished: Finished | None = None
        self._demanded = frozenset(tool.name for tool in _demanded(request))
        self._has_answer = False
        self._texts: list[str] = []
        """Of an answer that has the form of a call."""

    def _end_of_body(self) -> Iterator[Event]:
        if self._finished is None:
            raise BrokenAnswer("the answer ended before its last line")
        yield self._finished

    def _take(self, line: Json) -> Iterator[Event]:
        if line.get("error"):
            raise Failure(line)
        message = line.get("message")
        if not isinstance(message, dict) and line.get("done") is not True:
            raise BrokenAnswer("a line has no message")
        if self._finished is not None:
            raise BrokenAnswer("a line came behind the last one")
        yield from self._start(text_in(line, "model"))
        if isinstance(message, dict):
            yield from self._take_message(message, line.get("logprobs"))
        if line.get("done") is True:
            yield from self._written("".join(self._texts))
            reason = self._ending(word_of(line.get("done_reason")), has_answer=self._has_answer)
            usage = Usage(input=count_in(line, "prompt_eval_count"), output=count_in(line, "eval_count"))
            own = kept(PROTOCOL, {key: line[key] for key in DURATIONS if count_in(line, key)})
            if reason in ("end", "stop", "tool_calls"):
                reason = "tool_calls" if self._made else "end"
            self._finished = Finished(reason, usage, own=own)

    def _take_message(self, message: Json, logprobs: Any) -> Iterator[Event]:
        if thinking := next((found for name in _THOUGHTS if (found := texts_in(message.get(name)))), ""):
            yield ReasoningDelta(thinking)
        if content := texts_in(message.get("content")):
            self._has_answer = True
            if self._demanded:
                self._texts.append(content)
            else:
                yield TextDelta(content, scores_of(logprobs))
        given = message.get("tool_calls")
        calls = [_call_in(call) for call in given] if isinstance(given, list) else []
        for call in calls if not self._are_made(calls) else ():
            yield from self._whole_call(*call)

    def _written(self, text: str) -> Iterator[Event]:
        """The call that the answer has the form of; its text, where it is none."""
        call = parse_object(text)
        if call is not None and text_in(call, "name") in self._demanded and "arguments" in call and not self._made:
            yield from self._whole_call(*_call_in({"function": call}))
        elif text:
            yield TextDelta(text)


def _call_in(call: Any) -> tuple[str, str, str]:
    """The id, the name and the arguments of a call. Raises: `BrokenAnswer`."""
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        raise BrokenAnswer("a call has no function")
    given = function.get("arguments")
    text = given if isinstance(given, str) else compact_json({} if given is None else given)
    return text_in(call, "id"), text_in(function, "name"), text


_THOUGHTS = ("thinking", "reasoning", "reasoning_content")


decoder = OllamaDecoder
