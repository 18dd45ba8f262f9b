"""The server half of OpenAI's Responses protocol, `POST /v1/responses`: a body to a request.

    body ─ responses ─▶ Request ═▶ events ─ responses_stream ─▶ answer
              ├ responses_items   what was said before
              ├ responses_parts   what that consists of
              └ responses_tools   what can be called

What clients add to this protocol, they add often: tools, items and parts that nobody here knows are left out, each with
a line in the log. What would change the answer and cannot be done is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from shepherd.core import ContextFull, InvalidRequest, Message, OnFull, ReasoningLevel, Request
from shepherd.wire.base import MAX_TOOLS, Decoded, Fields, Json, Range, shown, wrong
from shepherd.wire.openai import shapes as openai_shapes
from shepherd.wire.openai.format import ANY_OBJECT, Format
from shepherd.wire.openai.responses.items import decode_items, kind_of
from shepherd.wire.openai.responses.stream import Encoder, ResponsesOptions
from shepherd.wire.openai.responses.tools import OfferedTools, decode_tool_choice, decode_tools
from shepherd.wire.openai.shapes import EFFORTS
from shepherd.wire.sampling import decode_max_tokens, decode_sampling, decode_stop

__all__ = [
    "N_STORED",
    "Encoder",
    "ResponsesOptions",
    "UnknownResponse",
    "decode_hybrid",
    "decode_request",
    "encode_error",
    "encoder",
    "message_of",
]

N_STORED = "shepherd.n_kept"
"""The field that says how many of the items of `input` are from earlier answers: whoever keeps them puts both there."""


class UnknownResponse(InvalidRequest):
    """A body refers to an answer that is not stored."""

    code = "previous_response_not_found"

    def __init__(self, message: str) -> None:
        super().__init__(message, field="previous_response_id")


def decode_request(body: Json) -> Decoded[ResponsesOptions]:
    """What the client asks. Raises: `InvalidRequest`, and nothing else, whatever JSON object comes."""
    fields = Fields(body)
    _refuse_what_is_missing(fields)
    request, items, box = _decode(fields)
    n_kept = fields.find_integer(N_STORED, Range(0, len(items))) or 0
    reasoning = fields.find_object("reasoning")
    included = fields.find_strings("include") or ()
    summary = reasoning and (reasoning.find_string("summary") or reasoning.find_string("generate_summary"))
    options = ResponsesOptions(
        echo=_echo(fields, reasoning, summary or None),
        box=box,
        thinks_in_summaries=summary not in (None, "none"),
        seals="reasoning.encrypted_content" in included,
        own_items=tuple(item.body for item in items[n_kept:]),
        store=fields.find_boolean("store") is not False,
    )
    if request.logprobs is None and "message.output_text.logprobs" in included:
        request = replace(request, logprobs=0)
    return Decoded((request,), fields.find_boolean("stream") is True, options)


def decode_hybrid(body: Json) -> tuple[Request, bool]:
    """The request of a Responses body that was sent to chat completions, and whether to stream: as Cursor does.

    The answer goes out as chat: a free text is called as a function there, with the argument `input`.
    Raises: `InvalidRequest`.
    """
    fields = Fields(body)
    _refuse_what_is_missing(fields)
    return _decode(fields)[0], fields.find_boolean("stream") is True


def encode_error(error: Exception) -> tuple[int, Json]:
    """HTTP status and body. Of an exception that nobody foresaw, nothing is told."""
    status, body = openai_shapes.encode_error(error)
    if isinstance(error, ContextFull):
        body["error"]["param"] = "input"
    elif isinstance(error, UnknownResponse):
        body["error"]["code"] = error.code
    return status, body


def encoder(options: ResponsesOptions, *, id: str, created: int, model: str) -> Encoder:
    """A new encoder for one answer."""
    return Encoder(options, encode_error, id=id, created=created, model=model)


# ---- the body


def _refuse_what_is_missing(fields: Fields) -> None:
    """Refuse what would change the answer and cannot be done: ignoring it would be a silent lie."""
    if fields.find_boolean("background"):
        message = "background is true, but answers are only made while the client waits; leave it out, or stream"
        raise InvalidRequest(message, field="background")
    for field, instead in _MISSING.items():
        if fields.find_any(field):
            raise InvalidRequest(f"{field} is not available here; {instead}", field=field)
    if fields.find_string("previous_response_id") and fields.find_any(N_STORED) is None:
        raise UnknownResponse(
            "previous_response_id: this server stores no answers; send the whole conversation as input"
        )


_MISSING = {
    "conversation": "send previous_response_id, or the whole conversation as input",
    "prompt": "send its text as instructions and input",
}


def _decode(fields: Fields) -> tuple[Request, list[Fields], OfferedTools]:
    items = list(_items(fields))
    box = decode_tools(_offers(fields, items))
    tools, choice = decode_tool_choice(fields, box)
    form = _decode_format(fields)
    template_arguments = fields.find_object("chat_template_kwargs")
    extra: Json = {} if template_arguments is None else {"chat_template_kwargs": template_arguments.body}
    if form.path:
        extra["constrained_by"] = form.path
    user = fields.find_string("user") or fields.find_string("safety_identifier") or None
    instructions = fields.find_string("instructions")
    messages = decode_items(items, box)
    if instructions:
        messages = (Message.system(instructions), *messages)
    if all(message.role == "system" for message in messages):
        # A probe of Codex says nothing and wants one token: whether anybody is there.
        messages = (*messages, Message("user"))
    request = Request(
        model=fields.find_string("model") or "",
        messages=messages,
        tools=tools,
        tool_choice=choice,
        sampling=decode_sampling(fields),
        max_tokens=decode_max_tokens(fields, "max_output_tokens", "max_completion_tokens", "max_tokens"),
        stop=decode_stop(fields),
        reasoning=_decode_reasoning(fields, template_arguments),
        schema=form.schema,
        grammar=form.grammar,
        parallel_calls=fields.find_boolean("parallel_tool_calls"),
        logprobs=fields.find_integer("top_logprobs", Range(0, 20)) or None,
        on_full=_decode_truncation(fields),
        session=fields.find_string("prompt_cache_key") or user,
        user=user,
        extra=extra,
    )
    return request, items, box


def _items(fields: Fields) -> Iterator[Fields]:
    """The items of the input, of which a string is short for one."""
    said = fields.find_any("input")
    if isinstance(said, str):
        yield Fields(message_of(said), fields.at("input"))
    elif isinstance(said, list):
        yield from fields.objects("input")
    elif said is not None:
        raise wrong(fields.at("input"), "a string or an array of items", said)
    elif not fields.find_string("previous_response_id"):
        raise InvalidRequest("input is missing", field="input")


def message_of(text: str) -> Json:
    """The item that an input of plain text is short for."""
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def _offers(fields: Fields, items: list[Fields]) -> Iterator[Fields]:
    """All tools: those of the body, and those that some clients put between the messages."""
    yield from fields.objects("tools", MAX_TOOLS)
    for item in items:
        if kind_of(item) in ("additional_tools", "tool_search_output"):
            yield from item.objects("tools", MAX_TOOLS)


_EFFORTS: dict[str, ReasoningLevel] = {**EFFORTS, "ultra": "high"}


def _decode_reasoning(fields: Fields, template_arguments: Fields | None) -> ReasoningLevel | None:
    reasoning = fields.find_object("reasoning")
    effort = None if reasoning is None else reasoning.find_string("effort")
    if effort is not None and effort not in _EFFORTS:
        raise wrong("reasoning.effort", f"one of {', '.join(_EFFORTS)}", effort)
    # Qwen's switch, as vLLM and llama-server take it; the most explicit word wins.
    if template_arguments is not None and template_arguments.find_boolean("enable_thinking") is False:
        return "off"
    return None if effort is None else _EFFORTS[effort]


def _decode_truncation(fields: Fields) -> OnFull | None:
    """`auto` allows what is old to be dropped; nothing said leaves it to the route."""
    truncation = fields.find_string("truncation")
    if truncation not in (None, "auto", "disabled"):
        raise wrong("truncation", '"auto" or "disabled"', truncation)
    return None if truncation is None else "evict" if truncation == "auto" else "error"


def _decode_format(fields: Fields) -> Format:
    text = fields.find_object("text")
    said = None if text is None else text.find_object("format")
    if said is None:
        return Format()
    match said.get_string("type"):
        case "text":
            return Format()
        case "json_object":
            return Format(said.path, ANY_OBJECT)
        case "json_schema":
            inner = said.find_object("json_schema") or said  # as in chat completions, one level deeper
            schema = inner.get_object("schema")
            inner.find_boolean("strict")  # strict or not, we keep to it
            return Format(schema.path, schema.body)
        case kind:
            path = said.at("type")
            message = f'{path} is {shown(kind)}; it must be "text", "json_object" or "json_schema"'
            raise InvalidRequest(message, field=path)


# ---- what the answer repeats

_REPEATED: Json = {
    "background": False,
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "prompt_cache_key": None,
    "safety_identifier": None,
    "service_tier": "default",
    "store": True,
    "temperature": None,
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": 0,
    "top_p": None,
    "truncation": "disabled",
    "user": None,
}
"""Fields of the body that stand in the answer as they came, with what stands there if they did not."""


def _echo(fields: Fields, reasoning: Fields | None, summary: str | None) -> Json:
    """Raises: `InvalidRequest` for what is only there to be repeated, too."""
    _check_metadata(fields)
    fields.find_integer("max_tool_calls")
    said: dict[str, Any] = {key: fields.find_any(key) for key in _REPEATED}
    echo = {key: default if said[key] is None else said[key] for key, default in _REPEATED.items()}
    text = fields.find_object("text")
    echo["reasoning"] = {"effort": reasoning and reasoning.find_any("effort"), "summary": summary}
    echo["text"] = {"format": {"type": "text"}, **({} if text is None else _said(text.body))}
    return echo


def _said(body: Json) -> Json:
    return {key: value for key, value in body.items() if value is not None}


def _check_metadata(fields: Fields) -> None:
    metadata = fields.find_object("metadata")
    for key, value in () if metadata is None else metadata.body.items():
        if not isinstance(value, str):
            raise wrong(f"metadata.{key[:40]}", "a string", value)
