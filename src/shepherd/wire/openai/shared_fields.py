"""What the client halves of chat and of Responses share: from a request to a body, and from an answer to its facts."""

from __future__ import annotations

import base64
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any

from shepherd.core import Image, ReasoningLevel, Request, TokenScore, ToolSpec, Usage
from shepherd.wire.base import Json, compact_json
from shepherd.wire.client import Effort, Endpoint, Failure, native_of
from shepherd.wire.openai.format import ANY_OBJECT
from shepherd.wire.signature import Protocol
from shepherd.wire.values import count_in, objects_in, text_in, whole_number

UNKNOWN_TOKEN = -1
"""The id of a token whose number the provider does not send."""


# ---- to a body


def assembled(own: Json, request: Request, endpoint: Endpoint, protocol: Protocol, words: Collection[str]) -> Json:
    """The body: what the configuration adds, what the client of the same protocol sent besides `words`, and `own`.

    Nothing in it is null, and nothing is a field that the model refuses.
    """
    native = native_of(request, protocol)
    copied = {key: value for key, value in native.items() if key not in words and not key.startswith("shepherd")}
    body = {**endpoint.options, **copied, **{key: value for key, value in own.items() if value is not None}}
    return {key: value for key, value in body.items() if value is not None and key not in endpoint.refuses}


_LADDER: tuple[Effort, ...] = ("none", "minimal", "low", "medium", "high", "xhigh", "max")


def effort_for(level: ReasoningLevel | None, efforts: Sequence[Effort]) -> Effort | None:
    """The model's word for a level, the nearest that it has; None = send nothing."""
    thinking = [effort for effort in efforts if effort != "none"]
    if level is None or not thinking or (level == "on" and len(thinking) == len(efforts)):
        return None
    if level == "off":
        return efforts[0]
    if level == "max":
        return thinking[-1]
    wanted = _LADDER.index("medium" if level == "on" else level)  # a model that may not think may do so by default
    return min(thinking, key=lambda effort: abs(_LADDER.index(effort) - wanted))


def json_form(schema: Mapping[str, Any]) -> Json:
    """A schema as the form of an answer, in the words of Responses."""
    if schema == ANY_OBJECT:
        return {"type": "json_object"}
    return {"type": "json_schema", "name": "answer", "schema": schema, "strict": is_strict(schema)}


def parameters_of(tool: ToolSpec) -> Json:
    """The schema of a tool's arguments; OpenAI refuses one without a type or properties."""
    return {"type": "object", "properties": {}, **tool.parameters}


_STRICT = frozenset(
    {
        "type", "properties", "required", "additionalProperties", "items", "enum", "const", "anyOf", "$ref", "$defs",
        "definitions", "title", "description", "pattern", "format", "minimum", "maximum", "exclusiveMinimum",
        "exclusiveMaximum", "multipleOf", "minItems", "maxItems",
    }
)  # fmt: skip


def is_strict(schema: Mapping[str, Any]) -> bool:
    """Whether OpenAI's strict mode takes it: every property required, no others, and only keywords that it knows."""
    return schema.get("type") == "object" and _is_strict(schema)


def _is_strict(schema: Any, depth: int = 0) -> bool:
    if not isinstance(schema, Mapping) or depth > 60 or not schema.keys() <= _STRICT:
        return False
    properties = schema.get("properties")
    if schema.get("type") == "object" or properties is not None:
        named = properties if isinstance(properties, Mapping) else {}
        if schema.get("additionalProperties") is not False or set(named) != set(schema.get("required") or ()):
            return False
    inner: list[Any] = [schema["items"]] if "items" in schema else []
    inner += schema.get("anyOf") or ()
    for key in ("properties", "$defs", "definitions"):
        if isinstance(found := schema.get(key), Mapping):
            inner += found.values()
    return all(_is_strict(each, depth + 1) for each in inner)


def short_id(id: str, most: int) -> str:
    """The id of a call, at most so long: one that is longer, as another provider may have made it, becomes a hash."""
    return id if len(id) <= most else hashed(id, most)


def hashed(id: str, n: int) -> str:
    """So many letters and digits for an id, the same for the same."""
    return blake2b(id.encode("utf-8", "replace"), digest_size=32).hexdigest()[:n]


def cache_key(request: Request, protocol: Protocol) -> str | None:
    """Names the conversation for the provider's cache. One that was not sent for this may be a user's: it is hashed."""
    session = request.session
    if not session:
        return None
    is_meant = session == native_of(request, protocol).get("prompt_cache_key")
    return short_id(session, 64) if is_meant else hashed(session, 64)


def url_of(image: Image) -> str:
    """An address, or the image itself as one."""
    return image.url or data_url(image.media_type or "image/png", image.data)


def data_url(media_type: str, content: bytes | None) -> str:
    return f"data:{media_type};base64,{base64.b64encode(content or b'').decode('ascii')}"


UNSEEN = "[an image; this model cannot see it]"


# ---- from an answer


def error_in(data: bytes) -> Failure:
    """The error in a record that is nothing else: JSON, or a text."""
    try:
        return failure_of(json.loads(data))
    except (ValueError, RecursionError):
        return Failure(data.decode("utf-8", "replace"))


def failure_of(record: Any) -> Failure:
    """The error in a record, with the status that it names."""
    inner = record.get("error") if isinstance(record, dict) else None
    for place in (inner, record):
        for key in ("status_code", "status", "code"):
            status = whole_number(place.get(key)) if isinstance(place, dict) else None
            if status is not None and 400 <= status <= 599:
                return Failure(record, status=status)
    return Failure(record)


def usage_of(given: Any) -> Usage:
    """Token counts, under the names of chat or of Responses.

    xAI's chat counts thoughts besides the completion: then only all three together are the total.
    """
    if not isinstance(given, dict):
        return Usage()
    read, written = given.get("prompt_tokens_details"), given.get("completion_tokens_details")
    read = read if read is not None else given.get("input_tokens_details")
    written = written if written is not None else given.get("output_tokens_details")
    prompt = count_in(given, "prompt_tokens") or count_in(given, "input_tokens")
    output = count_in(given, "completion_tokens") or count_in(given, "output_tokens")
    thoughts, total = count_in(written, "reasoning_tokens"), count_in(given, "total_tokens")
    if thoughts and total == prompt + output + thoughts:
        output += thoughts
    cached = count_in(read, "cached_tokens") or next(filter(None, (count_in(given, name) for name in _CACHED)), 0)
    cached = min(cached, prompt)
    stored = count_in(read, "cache_write_tokens") or count_in(given, "cache_creation_input_tokens")
    stored = min(stored, prompt - cached)
    accepted = min(count_in(written, "accepted_prediction_tokens"), output)
    drafted = accepted + count_in(written, "rejected_prediction_tokens")
    return Usage(
        prompt - cached - stored, cached, stored, output, min(thoughts, output), drafted=drafted, accepted=accepted
    )


_CACHED = ("prompt_cache_hit_tokens", "num_cached_tokens", "cached_tokens", "cache_read_input_tokens")
"""Cached tokens of the prompt, where servers count them beside the details (DeepSeek, vLLM, Moonshot, LiteLLM)."""


def scores_of(given: Any) -> tuple[TokenScore, ...]:
    """Tokens, and how likely they were."""
    return tuple(
        TokenScore(UNKNOWN_TOKEN, _piece(each), _number(each), tuple(_others(each))) for each in objects_in(given)
    )


def _others(score: Json) -> Iterable[tuple[int, bytes, float]]:
    for each in objects_in(score.get("top_logprobs")):
        yield UNKNOWN_TOKEN, _piece(each), _number(each)


def _piece(token: Json) -> bytes:
    try:
        return bytes(token["bytes"])
    except (KeyError, TypeError, ValueError):
        return text_in(token, "token").encode("utf-8", "replace")


def _number(token: Json) -> float:
    value = token.get("logprob")
    return float(value) if isinstance(value, int | float) else float("nan")


def arguments_in(value: Any) -> str:
    """The arguments of a call as text; a few servers send the object itself."""
    if isinstance(value, str):
        return value
    return "" if value is None else compact_json(value)
