"""The server half of OpenAI's Responses protocol, `POST /v1/responses`: a body to a request.

    body ─ codec ─▶ Request ═▶ events ─ stream ─▶ answer
             ├ items   the conversation so far
             ├ parts   the content of its messages
             └ tools   the tools, and their names

Clients often extend this protocol: unknown tools, items and parts are left out, each with a line in the log. A field
that would change the answer and cannot be obeyed is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from shepherd.core import InvalidRequest, Message, Native, OnFull, Opaque, ReasoningLevel, Request
from shepherd.core.edits import Edit
from shepherd.wire.base import MAX_TOOLS, Decoded, Fields, Json, Range, field_error, shown, wrong
from shepherd.wire.openai.format import ANY_OBJECT, Format
from shepherd.wire.openai.responses.items import TRIGGER, decode_items, foreign_compaction, kind_of
from shepherd.wire.openai.responses.parts import PROTOCOL
from shepherd.wire.openai.responses.stream import Encoder, ResponsesOptions, UnknownResponse, encode_error, encoder
from shepherd.wire.openai.responses.tools import OfferedTools, decode_tool_choice, decode_tools, provider_demand
from shepherd.wire.openai.settings import (
    EFFORTS,
    NAMES,
    RETURN_PROGRESS,
    TEMPLATE_ARGUMENTS,
    TIMINGS_PER_TOKEN,
    reasoning_level,
    request_settings,
)
from shepherd.wire.parts import only_provider
from shepherd.wire.sampling import GENERATION, LORA, MODEL, token_limit
from shepherd.wire.table import (
    ANYTHING,
    BOOLEAN,
    OBJECTS,
    STRING,
    STRINGS,
    Field,
    FieldKind,
    body_schema,
    inside,
    integer,
    one_of,
    read_fields,
)

__all__ = [
    "N_STORED", "Encoder", "UnknownResponse", "decode_hybrid", "decode_request", "encode_error", "encoder",
    "message_of",
]  # fmt: skip

COMPACT_NOW = (Edit("compact", trigger_tokens=0, pause=True),)
MAX_EDITS = 8
"""OpenAI has one kind."""
N_STORED = "shepherd.n_kept"
"""The field with the number of items of `input` that are from stored answers; the response store sets both."""


# ---- the fields of a body


def _decode_format(body: Fields, key: str) -> Format:
    text = body.find_object(key)
    form = text and text.find_object("format")
    if form is None:
        return Format()
    match form.get_string("type"):
        case "text":
            return Format()
        case "json_object":
            return Format(form.path, ANY_OBJECT)
        case "json_schema":
            inner = form.find_object("json_schema") or form  # as in chat completions, one level deeper
            schema = inner.get_object("schema")
            return Format(schema.path, schema.body, strict=inner.find_boolean("strict") is True)
        case kind:
            raise form.error("type", f'is {shown(kind)}; it must be "text", "json_object" or "json_schema"')


def _check_metadata(body: Fields, key: str) -> None:
    metadata = body.find_object(key)
    for name, value in metadata.body.items() if metadata else ():
        if not isinstance(value, str):
            raise wrong(f"{key}.{name[:40]}", "a string", value)


def _decode_edit(entry: Fields) -> Edit:
    if (kind := entry.get_string("type")) != "compaction":
        raise entry.error("type", f'is {shown(kind)}; the only type is "compaction"')
    return Edit("compact", entry.find_integer("compact_threshold", Range(1)))


_EFFORTS: dict[str, ReasoningLevel] = {**EFFORTS, "ultra": "max"}
_INPUT = {
    "description": "Text, or items: message, function_call, function_call_output, custom_tool_call, reasoning, ...",
    "anyOf": [{"type": "string"}, OBJECTS.schema],
}
_CUT = "Cut down to the room that is left."
_METADATA = {"type": "object", "additionalProperties": {"type": "string"}}
_REASONING = inside(
    Field("effort", one_of(*_EFFORTS)),
    Field("summary", STRING, "Send thoughts as summaries.", also=("generate_summary",)),
)

_CONVERSATION = (
    Field("input", FieldKind(Fields.find_any, _INPUT)),
    Field("instructions", STRING, "A system message before all others, for this answer only."),
    Field("previous_response_id", STRING, "Continue after a stored answer."),
    Field("tools", OBJECTS, "function, custom and namespace; run by the client, never by the server."),
    Field("tool_choice", ANYTHING, "auto, none, required, one tool by name, or allowed_tools."),
)
_REQUEST = (
    *GENERATION,
    *_CONVERSATION,
    Field("max_output_tokens", token_limit(), _CUT, also=("max_completion_tokens", "max_tokens")),
    Field("parallel_tool_calls", BOOLEAN),
    Field("reasoning", _REASONING),
    Field("text", FieldKind(_decode_format, {"type": "object"}), "format: text, json_object or json_schema."),
    Field("truncation", one_of("auto", "disabled"), "auto: the oldest items may be dropped."),
    Field("top_logprobs", integer(0, 20)),
    TEMPLATE_ARGUMENTS,
    *NAMES,
    Field("background", BOOLEAN, "Only false: the server answers while the client waits."),
)
_ANSWER = (
    Field("store", BOOLEAN, "Store the answer, so that a later request can continue after it.", default=True),
    Field("include", STRINGS, default=()),
    RETURN_PROGRESS,
    TIMINGS_PER_TOKEN,
)
_EDITS = (
    Field(
        "context_management",
        FieldKind(lambda body, key: tuple(map(_decode_edit, body.objects(key, MAX_EDITS))), OBJECTS.schema),
        "[{type: compaction, compact_threshold: tokens}]: old turns leave a longer prompt; an item stands for them.",
        default=(),
    ),
)
"""A provider that compacts by itself gets it as it came."""
_REPEATED_ONLY = (Field("metadata", FieldKind(_check_metadata, _METADATA)), Field("max_tool_calls", integer()))
_TABLE = (*_REQUEST, *_ANSWER)
WORDS = frozenset(name for field in _TABLE if field is not LORA for name in (field.name, *field.also)) | {
    "conversation",
    "prompt",
    "stream_options",
}
"""Fields of a body that a `Request` has words for, or that are about our own store: no provider gets them. Adapters are
those of the provider's own model."""
COUNT_BODY = body_schema(MODEL, *_CONVERSATION, example={"model": "default", "input": "Hello!"})
"""Of the bodies that are counted, and of those that are compacted."""
BODY = body_schema(
    *_REQUEST,
    *_ANSWER,
    *_EDITS,
    *_REPEATED_ONLY,
    required=["input"],
    example={"model": "default", "input": "Hello!", "max_output_tokens": 100},
)


# ---- the request


def decode_request(body: Json) -> Decoded[ResponsesOptions]:
    fields = Fields(body)
    given, request, items, box = _decode(fields)
    given |= read_fields(fields, (*_ANSWER, *_REPEATED_ONLY))
    n_kept = fields.find_integer(N_STORED, Range(0, len(items))) or 0
    summary = given["reasoning"]["summary"] or None
    options = ResponsesOptions(
        echo=_echo(fields, summary),
        box=box,
        thinks_in_summaries=summary not in (None, "none"),
        seals="reasoning.encrypted_content" in given["include"],
        own_items=tuple(item.body for item in items[n_kept:] if kind_of(item) != TRIGGER),
        store=given["store"],
        return_progress=given["return_progress"],
        timings_per_token=given["timings_per_token"],
    )
    if request.logprobs is None and "message.output_text.logprobs" in given["include"]:
        request = replace(request, logprobs=0)
    return Decoded((request,), given["stream"], options)


def decode_hybrid(body: Json) -> tuple[Request, bool]:
    """The request of a Responses body that Cursor sends to chat completions, and whether to stream.

    The answer goes out as chat: there a custom tool is called as a function with the argument `input`.
    Raises: `InvalidRequest`.
    """
    given, request, _, _ = _decode(Fields(body))
    return request, given["stream"]


def _decode(fields: Fields) -> tuple[Json, Request, list[Fields], OfferedTools]:
    given = read_fields(fields, (*_REQUEST, *_EDITS))
    _refuse_what_is_missing(fields, given)
    items = list(_items(fields))
    box = decode_tools(_offers(fields, items))
    tools, choice = decode_tool_choice(fields, box)
    given["user"] = given["user"] or fields.find_string("safety_identifier")
    messages = decode_items(items, box)
    if given["instructions"]:
        messages = (Message.system(given["instructions"]), *messages)
    if all(message.role == "system" for message in messages):
        # Codex probes whether the server answers: without input, for one token.
        messages = (*messages, Message("user"))
    request = Request(
        native=Native(
            PROTOCOL, fields.body, provider_demand(fields) or foreign_compaction(items) or _demand_of(items, messages)
        ),
        messages=messages,
        tools=tools,
        tool_choice=choice,
        reasoning=reasoning_level(given, given["reasoning"]["effort"], efforts=_EFFORTS),
        parallel_calls=given["parallel_tool_calls"],
        logprobs=given["top_logprobs"] or None,
        on_full=_ON_FULL[given["truncation"]],
        edits=COMPACT_NOW if _is_triggered(items) else given["context_management"],
        **request_settings(given, given["text"], given["max_output_tokens"]),
    )
    return given, request, items, box


def _is_triggered(items: Sequence[Fields]) -> bool:
    """Whether the client asks for a compaction now. Raises: `InvalidRequest` for a trigger that is not the last."""
    for at, item in enumerate(items, 1):
        if kind_of(item) == TRIGGER and at < len(items):
            why = f"is a {TRIGGER}, and {len(items) - at} items are behind it; send it as the last item"
            raise field_error(item.path, why)
    return bool(items) and kind_of(items[-1]) == TRIGGER


def _demand_of(items: list[Fields], messages: tuple[Message, ...]) -> InvalidRequest | None:
    """The error for a model that cannot read one of the parts."""
    if not any(isinstance(part, Opaque) for message in messages for part in message.parts):
        return None
    for item in items:
        for key in ("content", "output"):
            given = item.find_any(key)
            for at, part in enumerate(given if isinstance(given, list) else ()):
                if (
                    isinstance(part, dict)
                    and (error := only_provider(Fields(part, f"{item.at(key)}[{at}]"))) is not None
                ):
                    return error
    return None


def _refuse_what_is_missing(fields: Fields, given: Json) -> None:
    """Refuse what would change the answer and cannot be done."""
    if given["background"]:
        why = "is true, but answers are only made while the client waits; leave it out, or stream"
        raise field_error("background", why)
    for field, instead in _MISSING.items():
        if fields.find_any(field):
            raise field_error(field, f"is not available here; {instead}")
    if given["previous_response_id"] and fields.find_any(N_STORED) is None:
        raise UnknownResponse(
            "previous_response_id: this server stores no answers; send the whole conversation as input"
        )


_MISSING = {
    "conversation": "send previous_response_id, or the whole conversation as input",
    "prompt": "send its text as instructions and input",
}
_ON_FULL: dict[str | None, OnFull | None] = {None: None, "auto": "evict", "disabled": "error"}


def _items(fields: Fields) -> Iterator[Fields]:
    """The items of the input, of which a string is short for one."""
    given = fields.find_any("input")
    if isinstance(given, str):
        yield Fields(message_of(given), fields.at("input"))
    elif isinstance(given, list):
        yield from fields.objects("input")
    elif given is not None:
        raise wrong(fields.at("input"), "a string or an array of items", given)
    elif not fields.find_string("previous_response_id"):
        raise field_error("input", "is missing")


def message_of(text: str) -> Json:
    """The item that an input of plain text is short for."""
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def _offers(fields: Fields, items: list[Fields]) -> Iterator[Fields]:
    """All tools: those of the body, and those that some clients put between the messages."""
    yield from fields.objects("tools", MAX_TOOLS)
    for item in items:
        if kind_of(item) in ("additional_tools", "tool_search_output"):
            yield from item.objects("tools", MAX_TOOLS)


# ---- what the answer repeats

_REPEATED: Json = {
    "background": False,
    "frequency_penalty": 0,
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "presence_penalty": 0,
    "previous_response_id": None,
    "prompt_cache_key": None,
    "safety_identifier": None,
    "service_tier": "default",
    "store": True,
    "temperature": 0.8,
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": 0,
    "top_p": 0.95,
    "truncation": "disabled",
    "user": None,
}
"""Fields of the body that the answer repeats, with the values of absent ones; clients of Open Responses want numbers.
The sampler's are the engine's defaults: those of a configuration are not known here."""
_FUNCTION: Json = {"description": None, "parameters": None, "strict": False}


def _echo(fields: Fields, summary: str | None) -> Json:
    values: dict[str, Any] = {key: fields.find_any(key) for key in _REPEATED}
    echo = {key: default if values[key] is None else values[key] for key, default in _REPEATED.items()}
    echo["tools"] = [
        {**_FUNCTION, **{key: value for key, value in tool.items() if value is not None}}
        if tool.get("type") == "function"
        else tool
        for tool in echo["tools"]
    ]
    text = {key: value for key, value in (fields.find_any("text") or {}).items() if value is not None}
    effort = (fields.find_any("reasoning") or {}).get("effort")
    return {**echo, "reasoning": {"effort": effort, "summary": summary}, "text": {"format": {"type": "text"}, **text}}
