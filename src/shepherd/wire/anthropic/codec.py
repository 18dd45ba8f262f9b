"""The server half of Anthropic's protocol, `POST /v1/messages`: a body to a request, events to content blocks.

Unknown fields, betas, block types and kinds of thinking are never an error, because the protocol grows. A wrong type in
a known field is a 400 that names the field.
"""

from __future__ import annotations

import logging
import re

from shepherd.core import Native, ReasoningLevel, Request
from shepherd.core.limit import INT64_MAX
from shepherd.wire.anthropic.answer import Display, Encoder, MessageOptions
from shepherd.wire.anthropic.blocks import decode_conversation
from shepherd.wire.anthropic.edits import EDITS_SCHEMA, DecodedEdits, decode_edits
from shepherd.wire.anthropic.shapes import UnknownThread, encode_error
from shepherd.wire.anthropic.tools import decode_tool_choice, decode_tools, provider_demand
from shepherd.wire.base import Decoded, Fields, Json, Range, parse_object, wrong
from shepherd.wire.sampling import COMPUTING, MODEL, SAMPLING, STOPS, STREAM, computing_of, sampling_of
from shepherd.wire.table import (
    BOOLEAN,
    OBJECT,
    OBJECTS,
    STRING,
    Field,
    FieldKind,
    body_schema,
    integer,
    one_of,
    read_fields,
)

__all__ = ["Encoder", "MessageOptions", "decode_request", "encode_error", "encoder"]

logger = logging.getLogger(__name__)


_BLOCKS = {
    "description": "Text, or an array of blocks: text, image, document, tool_use, tool_result, thinking, ...",
    "anyOf": [{"type": "string"}, OBJECTS.schema, {"type": "null"}],
}
_MESSAGE = body_schema(
    Field("role", one_of("user", "assistant", "system")),
    Field("content", FieldKind(Fields.find_any, _BLOCKS)),
    required=["role"],
)
_CHOICE = body_schema(
    Field("type", one_of("auto", "any", "tool", "none")),
    Field("name", STRING),
    Field("disable_parallel_tool_use", BOOLEAN),
    required=["type"],
)
_THINKING = body_schema(
    Field("type", STRING, "enabled, adaptive, between_tools, disabled"),
    Field("budget_tokens", integer(0)),
    Field("display", STRING, "summarized or omitted"),
    required=["type"],
)
_OUTPUT = body_schema(
    Field("effort", STRING, "low, medium, high, xhigh, max"),
    Field("format", OBJECT, '{"type": "json_schema", "schema": {...}}'),
)
_CONVERSATION = (
    MODEL,
    Field("messages", FieldKind(decode_conversation, {"type": "array", "minItems": 1, "items": _MESSAGE})),
    Field("system", FieldKind(Fields.find_any, _BLOCKS)),
    Field(
        "tools",
        FieldKind(decode_tools, OBJECTS.schema),
        "Run by the client; those that only Anthropic can run are left out.",
    ),
    Field("tool_choice", FieldKind(Fields.find_object, _CHOICE)),
    Field("thinking", FieldKind(Fields.find_object, _THINKING), "Absent: no thoughts are sent."),
    Field("output_config", FieldKind(Fields.find_object, _OUTPUT)),
    Field(
        "context_management",
        FieldKind(decode_edits, EDITS_SCHEMA),
        "What leaves the context: results of old calls, old thoughts, or whole turns; the vendor's own edits.",
        default=DecodedEdits(),
    ),
)
FIELDS = (
    *_CONVERSATION,
    # Anthropic demands it; a body without it is answered all the same.
    Field("max_tokens", integer(0, INT64_MAX), "0 = only compute the prompt. Cut down to the room that is left."),
    STREAM,
    Field("stop_sequences", STOPS),
    *SAMPLING,
    *COMPUTING,
    Field("metadata", OBJECT, "user_id may name a session; it does not choose a memory."),
)
_EXAMPLE = {"model": "default", "messages": [{"role": "user", "content": "Hello!"}]}
COUNT_BODY = body_schema(*_CONVERSATION, required=["messages"], example=_EXAMPLE)
BODY = body_schema(*FIELDS, required=["messages"], example={**_EXAMPLE, "max_tokens": 100})


def decode_request(body: Json) -> Decoded[MessageOptions]:
    fields = Fields(body)
    thread = fields.find_object("thread")
    if thread is not None and thread.find_any("type") == "continue":
        raise UnknownThread  # the body holds only the new messages of a stored conversation
    given = read_fields(fields, FIELDS)
    choice, parallel = decode_tool_choice(fields, given["tools"])
    schema, is_strict = _decode_schema(fields)
    max_tokens, edits = given["max_tokens"], given["context_management"]
    request = Request(
        model=given["model"],
        messages=given["messages"],
        tools=given["tools"].tools,
        tool_choice=choice,
        sampling=sampling_of(given),
        max_tokens=1 if max_tokens == 0 else max_tokens,
        stop=given["stop_sequences"],
        **computing_of(given),
        reasoning=_decode_reasoning(fields, given["thinking"]),
        schema=None if schema is None else schema.body,
        strict_schema=is_strict,
        parallel_calls=parallel,
        session=_decode_session(fields),
        extra={} if schema is None else {"constrained_by": schema.path},
        edits=edits.edits,
        native=Native("anthropic", body, provider_demand(fields, given["tools"]) or edits.unknown),
    )
    options = MessageOptions(_decode_display(given["thinking"]), silent=max_tokens == 0, has_edits=bool(edits.edits))
    return Decoded((request,), given["stream"], options)


encoder = Encoder


# ---- thinking

_EFFORTS: dict[str, ReasoningLevel] = {"low": "low", "medium": "medium", "high": "high", "xhigh": "max", "max": "max"}
_BUDGETS: tuple[tuple[int, ReasoningLevel], ...] = ((4096, "low"), (16384, "medium"))
"""Tokens below which a budget means a level; clients ask for 1,024 at least and commonly for 32,000."""


def _thinks(thinking: Fields | None) -> bool:
    """Every kind but `disabled` asks for thoughts, unknown ones included."""
    return thinking is not None and thinking.get_string("type") != "disabled"


def _decode_reasoning(body: Fields, thinking: Fields | None) -> ReasoningLevel | None:
    config = body.find_object("output_config")
    effort = config.find_string("effort") if config is not None else None
    if effort is not None and effort not in _EFFORTS:
        logger.info("ignored an unknown effort")
    if thinking is None or not _thinks(thinking):
        # The client would not show thoughts, and expects `max_tokens` of answer.
        return "off"
    if effort in _EFFORTS:
        return _EFFORTS[effort]
    budget = thinking.find_integer("budget_tokens", Range(low=0))
    if budget is None:
        return None
    return next((level for limit, level in _BUDGETS if budget < limit), "high")


def _decode_display(thinking: Fields | None) -> Display:
    if thinking is None or not _thinks(thinking):
        return "hidden"
    return "signed" if thinking.find_string("display") == "omitted" else "shown"


# ---- the form of the answer, and the session


def _decode_schema(body: Fields) -> tuple[Fields | None, bool]:
    """The JSON Schema that the answer must satisfy, and whether all of it must be kept to; `output_format` is where an
    older beta had it."""
    config = body.find_object("output_config")
    form = (config and config.find_object("format")) or body.find_object("output_format")
    if form is None:
        return None, False
    if (kind := form.get_string("type")) != "json_schema":
        raise wrong(form.at("type"), '"json_schema"', kind)
    return form.get_object("schema"), form.find_boolean("strict") is True


_SESSION_IN_ID = re.compile(r"_session_([\w-]{8,})\Z")


def _decode_session(body: Fields) -> str | None:
    """The session in the user id of Claude Code: a JSON object, or an end of `_session_ID` in older versions.

    The rest of the id is an account, which chooses no memory.
    """
    metadata = body.find_object("metadata")
    user = metadata.find_string("user_id") if metadata is not None else None
    if not user:
        return None
    if found := _SESSION_IN_ID.search(user):
        return found[1]
    session = (parse_object(user) or {}).get("session_id")
    return session if isinstance(session, str) and session else None
