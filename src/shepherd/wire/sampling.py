"""Fields that most protocols share: the model, the sampling parameters, and the limits of an answer.

Sampling parameters have OpenAI's names where it has one, and those of llama.cpp, vLLM and Ollama otherwise.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from shepherd.core import InvalidRequest, Request, Sampling, limit
from shepherd.wire.base import Fields, Json, Range, check_number, wrong
from shepherd.wire.table import BOOLEAN, STRING, STRINGS, Field, Kind, integer, number

MODEL = Field(
    "model", STRING, "Any name: the routes choose the model; a generated answer repeats the name.", default=""
)
STREAM = Field("stream", BOOLEAN, default=False)


def _limited(name: str, about: str = "", *also: str, kind: Any = number) -> Field:
    """With the limits that hold everywhere."""
    return Field(name, kind(*limit.SAMPLING[name]), about, also=also)


def _decode_breakers(body: Fields, key: str) -> tuple[str, ...] | None:
    strings = body.find_strings(key)
    limit.check_breakers(strings or (), body.at(key))
    return strings


def _decode_logit_bias(body: Fields, key: str) -> tuple[tuple[int, float], ...] | None:
    if isinstance(pairs_given := body.find_any(key), list):
        return _decode_bias_pairs(pairs_given, body.at(key))
    biases = body.find_object(key)
    if biases is None:
        return None
    limit.check_size(biases.path, "tokens", len(biases.body), limit.MAX_BIASES)
    pairs = []
    for token, bias in biases.body.items():
        if not (token.isascii() and token.isdecimal() and int(token[:11]) <= limit.INT32_MAX and len(token) <= 10):
            raise InvalidRequest(
                f'the keys of {biases.path} must be token ids such as "50256", not {token[:40]!r}', field=biases.path
            )
        pairs.append((int(token), check_number(bias, f"{biases.path}.{token}", Range(-100, 100))))
    return tuple(pairs)


_BIASES: Json = {"anyOf": [{"type": "object"}, {"type": "array", "items": {"type": "array"}}]}


def _decode_bias_pairs(values: list[Any], path: str) -> tuple[tuple[int, float], ...]:
    """llama-server's form: `[[id, bias], ...]`, where false bans a token."""
    limit.check_size(path, "tokens", len(values), limit.MAX_BIASES)
    pairs = []
    for at, value in enumerate(values):
        match value:
            case [int() as token, bias] if not isinstance(token, bool) and 0 <= token <= limit.INT32_MAX:
                bias = -100 if bias is False else bias
                pairs.append((token, check_number(bias, f"{path}[{at}][1]", Range(-100, 100))))
            case _:
                raise wrong(f"{path}[{at}]", "a token id and a number, such as [50256, -100]", value)
    return tuple(pairs)


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
    Field("dry_sequence_breakers", Kind(_decode_breakers, STRINGS.schema)),
    _limited("mirostat", kind=integer),
    *map(_limited, ("mirostat_tau", "mirostat_eta")),
    Field("seed", integer(-(2**63), 2**64 - 1), "Of several choices, that of the first."),
    Field("ignore_eos", BOOLEAN),
    Field("logit_bias", Kind(_decode_logit_bias, _BIASES), "-100 to 100 by token id, or pairs of both."),
)


def sampling_of(given: Json) -> Sampling:
    """The sampling parameters among the values of a table that holds `SAMPLING`."""
    values = {field.name: given[field.name] for field in SAMPLING}
    if values["top_k"] == -1:
        values["top_k"] = 0  # vLLM's value for "off"
    return Sampling(**values)


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


STOPS = Kind(_decode_stop, {"anyOf": [STRING.schema, {**STRINGS.schema, "maxItems": limit.MAX_STOPS}]})
"""Stop strings: none, one, or an array."""
STOP = Field("stop", STOPS)
GENERATION = (MODEL, STREAM, *SAMPLING, STOP)
"""The fields that every body of the OpenAI family has."""


def token_limit(least: int = 1) -> Kind:
    """The most tokens to generate; -1 is llama.cpp's value for no limit (`limit_of`)."""
    schema = {"type": "integer", "anyOf": [{"const": -1}, {"minimum": least}]}
    return Kind(partial(_find_limit, least=least), schema)


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
