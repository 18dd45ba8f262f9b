"""Sampling parameters of OpenAI-like bodies: one table from field names to `core.Sampling`.

The names are OpenAI's where it has one, and those of llama.cpp, vLLM and the seeds otherwise. Of two names for one
value the first in the table wins. Used by every protocol of the OpenAI family.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from shepherd.core import InvalidRequest, Request, Sampling, limit
from shepherd.wire.base import Fields, Json, Range, check_number, wrong


@dataclass(frozen=True, slots=True)
class _Option:
    field: str
    """Of `Sampling`."""
    names: tuple[str, ...] = ()
    """In the body; none = the field's."""
    kind: Literal["number", "integer", "boolean", "strings"] = "number"
    allowed: Range | None = None
    """None = as everywhere (`limit.SAMPLING`)."""
    about: str = ""
    """For `/docs`."""


_OPTIONS = (
    _Option("temperature", about="0 = always the likeliest token."),
    _Option("top_k", kind="integer", allowed=Range(-1, limit.INT32_MAX), about="0 = off."),
    _Option("top_p"),
    _Option("min_p"),
    _Option("typical_p", ("typical_p", "typ_p")),
    _Option("top_n_sigma"),
    _Option("repetition_penalty", ("repetition_penalty", "repeat_penalty"), about="1 = off."),
    _Option("frequency_penalty", allowed=Range(-2, 2)),
    _Option("presence_penalty", allowed=Range(-2, 2)),
    _Option("repeat_last_n", kind="integer"),
    _Option("dry_multiplier"),
    _Option("dry_base"),
    _Option("dry_allowed_length", kind="integer"),
    _Option("dry_penalty_last_n", kind="integer"),
    _Option("dry_sequence_breakers", kind="strings"),
    _Option("xtc_probability"),
    _Option("xtc_threshold"),
    _Option("mirostat", kind="integer"),
    _Option("mirostat_tau"),
    _Option("mirostat_eta"),
    _Option("seed", kind="integer", allowed=Range(-(2**63), 2**64 - 1), about="Of several choices, that of the first."),
    _Option("ignore_eos", kind="boolean"),
)


def decode_sampling(body: Fields) -> Sampling:
    """The sampling parameters in `body`. Raises: `InvalidRequest`."""
    said: dict[str, Any] = {}
    for option in _OPTIONS:
        for name in option.names or (option.field,):
            value = _read(body, name, option)
            if value is not None:
                said.setdefault(option.field, value)
    if said.get("top_k") == -1:
        said["top_k"] = 0  # vLLM's value for "off"
    return Sampling(**said, logit_bias=_decode_logit_bias(body))


def _read(body: Fields, name: str, option: _Option) -> Any:
    match option.kind:
        case "number":
            return body.find_number(name, _allowed(option))
        case "integer":
            return body.find_integer(name, _allowed(option))
        case "boolean":
            return body.find_boolean(name)
        case "strings":
            strings = body.find_strings(name)
            limit.check_breakers(strings or (), body.at(name))
            return strings


def _allowed(option: _Option) -> Range:
    return option.allowed or Range(*limit.SAMPLING[option.field])


def describe_sampling() -> Json:
    """By name, the JSON Schema of every field that `decode_sampling` reads."""
    schemas: Json = {name: _describe(option) for option in _OPTIONS for name in option.names or (option.field,)}
    return schemas | {"logit_bias": {"type": "object", "description": "-100 to 100 by token id."}}


def _describe(option: _Option) -> Json:
    schema: Json = {"description": option.about} if option.about else {}
    if option.kind == "strings":
        return schema | {"type": "array", "items": {"type": "string"}}
    if option.kind == "boolean":
        return schema | {"type": "boolean"}
    allowed = _allowed(option)
    limits = {"minimum": allowed.low, "maximum": allowed.high, "exclusiveMinimum": allowed.above}
    return schema | {"type": option.kind} | {name: value for name, value in limits.items() if value is not None}


def _decode_logit_bias(body: Fields) -> tuple[tuple[int, float], ...] | None:
    biases = body.find_object("logit_bias")
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


def decode_stop(body: Fields, key: str = "stop") -> tuple[str, ...]:
    """The stop strings: none, one, or an array. Raises: `InvalidRequest`."""
    value = body.find_any(key)
    if isinstance(value, str):
        stops: tuple[str, ...] = (value,)
    elif value is None or isinstance(value, list):
        stops = body.find_strings(key) or ()
    else:
        raise wrong(body.at(key), "a string or an array of strings", value)
    limit.check_stops(stops, body.at(key))
    return stops


def decode_max_tokens(body: Fields, *keys: str, least: int = 1) -> int | None:
    """The limit of generated tokens: the first of `keys` that is set; -1 is llama.cpp's value for no limit."""
    found = []
    for key in keys:
        value = body.find_integer(key)
        if value is not None and value != -1 and not least <= value <= limit.INT64_MAX:
            raise wrong(body.at(key), f"an integer of at least {least}, below 2^63 (or -1 for no limit)", value)
        found.append(value)
    said = next((value for value in found if value is not None), None)
    return None if said == -1 else said


def repeat_request(request: Request, n: int) -> tuple[Request, ...]:
    """`n` requests for as many choices. Each gets a seed of its own, counted up from the first: equal seeds give equal
    answers."""
    seed = request.sampling.seed
    if seed is None:
        return (request,) * n
    return tuple(replace(request, sampling=replace(request.sampling, seed=seed + at)) for at in range(n))
