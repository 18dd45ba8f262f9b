"""Fields that most protocols share: the model, the sampling parameters, and the limits of an answer.

Sampling parameters have OpenAI's names where it has one, and those of llama.cpp, vLLM and Ollama otherwise.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from shepherd.core import InvalidRequest, Request, Sampling, limit
from shepherd.core.request import LoraScale
from shepherd.wire.base import Fields, Json, Range, check_number, wrong
from shepherd.wire.speculation import PREDICTION, SPECULATION, speculation_of
from shepherd.wire.table import BOOLEAN, STRING, STRINGS, Field, FieldKind, integer, number

MODEL = Field(
    "model", STRING, "Any name: the routes choose the model; a generated answer repeats the name.", default=""
)
STREAM = Field("stream", BOOLEAN, default=False)


def _limited(name: str, about: str = "", *also: str, kind: Any = number) -> Field:
    return Field(name, kind(*limit.SAMPLING[name]), about, also=also)


def _decode_breakers(body: Fields, key: str) -> tuple[str, ...] | None:
    strings = body.find_strings(key)
    limit.check_breakers(strings or (), body.at(key))
    return strings


def _decode_logit_bias(body: Fields, key: str) -> tuple[tuple[int | str, float], ...] | None:
    """Tokens or texts, each with a number: an object, or llama-server's `[[id, bias], ...]`, where false bans."""
    path, pairs = body.at(key), body.find_any(key)
    if not isinstance(pairs, list):
        if (biases := body.find_object(key)) is None:
            return None
        pairs = [[_token_of(token), bias] for token, bias in biases.body.items()]
        paths = [f"{path}.{token[:40]}" for token in biases.body]
    else:
        paths = [f"{path}[{at}]" for at in range(len(pairs))]
    limit.check_size(path, "tokens", len(pairs), limit.MAX_BIASES)
    found: list[tuple[int | str, float]] = []
    for where, pair in zip(paths, pairs, strict=True):
        match pair:
            case [int() | str() as token, bias] if isinstance(token, str) or _is_id(token):
                bias = -100 if bias is False else bias
                found.append((token, check_number(bias, where, Range(-100, 100))))
            case _:
                raise wrong(where, "a token id or a text, and a number, such as [50256, -100]", pair)
    limit.check_biases(found, path)
    return tuple(found)


def _token_of(key: str) -> int | str:
    """JSON has no other keys than strings."""
    return int(key) if key.isascii() and key.isdecimal() and len(key) <= 10 else key


def _is_id(token: int) -> bool:
    return not isinstance(token, bool) and 0 <= token <= limit.INT32_MAX


_BIASES: Json = {"anyOf": [{"type": "object"}, {"type": "array", "items": {"type": "array"}}]}

SAMPLING = (
    _limited("temperature", "0 = always the likeliest token."),
    Field("top_k", integer(-1, limit.INT32_MAX), "0 = off."),
    *map(_limited, ("top_p", "min_p", "top_n_sigma", "xtc_probability", "xtc_threshold")),
    _limited("typical_p", "", "typ_p"),
    _limited("repetition_penalty", "1 = off.", "repeat_penalty"),
    Field("frequency_penalty", number(-2, 2)),
    Field("presence_penalty", number(-2, 2)),
    _limited("repeat_last_n", kind=integer),
    *map(_limited, ("dry_multiplier", "dry_base")),
    _limited("dry_allowed_length", kind=integer),
    _limited("dry_penalty_last_n", kind=integer),
    Field("dry_sequence_breakers", FieldKind(_decode_breakers, STRINGS.schema)),
    _limited("mirostat", kind=integer),
    *map(_limited, ("mirostat_tau", "mirostat_eta")),
    Field("seed", integer(-(2**63), 2**64 - 1), "Of several choices, that of the first."),
    Field("ignore_eos", BOOLEAN),
    Field("logit_bias", FieldKind(_decode_logit_bias, _BIASES), "-100 to 100 by token id or text, or pairs of both."),
)


def sampling_of(given: Json) -> Sampling:
    """The sampling parameters among the values of a table that holds `SAMPLING`."""
    values = {field.name: given[field.name] for field in SAMPLING}
    if values["top_k"] == -1:
        values["top_k"] = 0  # vLLM's value for "off"
    return Sampling(**values)


def computing_of(given: Json) -> Json:
    """Arguments of `Request`, from the values of a table that holds `COMPUTING`."""
    return {**speculation_of(given), "repeatable": given["repeatable"]}


def _decode_stop(body: Fields, key: str) -> tuple[str, ...]:
    value = body.find_any(key)
    if isinstance(value, str):
        stops: tuple[str, ...] = (value,)
    elif value is None or isinstance(value, list):
        stops = body.find_strings(key) or ()
    else:
        raise wrong(body.at(key), "a string or an array of strings", value)
    limit.check_stops(stops, body.at(key))
    return stops


STOPS = FieldKind(_decode_stop, {"anyOf": [STRING.schema, {**STRINGS.schema, "maxItems": limit.MAX_STOPS}]})
STOP = Field("stop", STOPS)


def decode_lora(body: Fields, key: str) -> tuple[LoraScale, ...]:
    """Adapters with their scales, as llama-server has them; `name` may stand for `id`. Raises: `InvalidRequest`."""
    return tuple(_adapter_of(row) for row in body.objects(key, MAX_ADAPTERS))


def _adapter_of(row: Fields) -> LoraScale:
    number, scale = row.find_integer("id", Range(0)), row.find_number("scale", Range(*SCALES))
    if scale is None:
        raise row.error("scale", "is missing; 0 leaves the adapter out")
    return row.get_string("name", "send it, or an id") if number is None else number, scale


def refuse_lora(body: Fields) -> None:
    """Raises: `InvalidRequest` for a body that chooses adapters where vectors or scores are asked for."""
    if body.body.get("lora"):
        raise InvalidRequest(
            "lora chooses adapters, and vectors and scores are computed without them; leave lora out", field="lora"
        )


MAX_ADAPTERS = 256
SCALES = -1000, 1000
_ADAPTER = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "name": {"type": "string"}, "scale": {"type": "number"}},
    "required": ["scale"],
}
LORA_SCHEMA: Json = {"type": "array", "items": _ADAPTER, "maxItems": MAX_ADAPTERS}
LORA = Field(
    "lora",
    FieldKind(decode_lora, LORA_SCHEMA, is_plain=True),
    "Adapters by id or name, and their scales; others are off (llama-server).",
    default=(),
)
REPEATABLE = Field(
    "repeatable", BOOLEAN, "True: from a cache of the model whose answers are repeatable; refused where there is none."
)
COMPUTING = (*SPECULATION, PREDICTION, REPEATABLE)
"""How an answer is computed, on every path."""
GENERATION = (MODEL, STREAM, *SAMPLING, STOP, LORA, *COMPUTING)


def token_limit(least: int = 1) -> FieldKind:
    """The most tokens to generate; -1 is llama.cpp's value for no limit (`limit_of`)."""
    schema = {"type": "integer", "anyOf": [{"const": -1}, {"minimum": least}]}
    return FieldKind(partial(_find_limit, least=least), schema)


def _find_limit(body: Fields, key: str, least: int) -> int | None:
    value = body.find_integer(key)
    if value is not None and value != -1 and not least <= value <= limit.INT64_MAX:
        raise wrong(body.at(key), f"an integer of at least {least}, below 2^63 (or -1 for no limit)", value)
    return value


def limit_of(value: int | None) -> int | None:
    return None if value == -1 else value


def repeat_request(request: Request, n: int) -> tuple[Request, ...]:
    """`n` requests for as many choices. Seeds are counted up from the first: equal seeds give equal answers."""
    seed = request.sampling.seed
    if seed is None:
        return (request,) * n
    return tuple(replace(request, sampling=replace(request.sampling, seed=seed + at)) for at in range(n))
