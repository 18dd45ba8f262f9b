"""How the next token is drawn, as OpenAI-like bodies say it: one table from field names to `core.Sampling`.

The names are OpenAI's where it has one, and those of llama.cpp, vLLM and the seeds otherwise. Of two names for one
value the first in the table wins. Used by every protocol of the OpenAI family.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from shepherd.core import InvalidRequest, Request, Sampling
from shepherd.wire.base import ANY, INT32_MAX, Fields, Range, check_number, wrong

_UNIT = Range(0, 1)
_COUNT = Range(0, INT32_MAX)
_COUNT_OR_ALL = Range(-1, INT32_MAX)


@dataclass(frozen=True, slots=True)
class _Option:
    field: str
    """Of `Sampling`."""
    names: tuple[str, ...]
    """In the body."""
    kind: Literal["number", "integer", "boolean", "strings"] = "number"
    allowed: Range = ANY


_OPTIONS = (
    _Option("temperature", ("temperature",), allowed=Range(low=0)),
    _Option("top_k", ("top_k",), "integer", _COUNT_OR_ALL),
    _Option("top_p", ("top_p",), allowed=_UNIT),
    _Option("min_p", ("min_p",), allowed=_UNIT),
    _Option("typical_p", ("typical_p", "typ_p"), allowed=_UNIT),
    _Option("top_n_sigma", ("top_n_sigma",)),
    _Option("repetition_penalty", ("repetition_penalty", "repeat_penalty"), allowed=Range(above=0)),
    _Option("frequency_penalty", ("frequency_penalty",), allowed=Range(-2, 2)),
    _Option("presence_penalty", ("presence_penalty",), allowed=Range(-2, 2)),
    _Option("repeat_last_n", ("repeat_last_n",), "integer", _COUNT_OR_ALL),
    _Option("dry_multiplier", ("dry_multiplier",), allowed=Range(low=0)),
    _Option("dry_base", ("dry_base",), allowed=Range(low=0)),
    _Option("dry_allowed_length", ("dry_allowed_length",), "integer", _COUNT),
    _Option("dry_penalty_last_n", ("dry_penalty_last_n",), "integer", _COUNT_OR_ALL),
    _Option("dry_sequence_breakers", ("dry_sequence_breakers",), "strings"),
    _Option("xtc_probability", ("xtc_probability",), allowed=_UNIT),
    _Option("xtc_threshold", ("xtc_threshold",), allowed=_UNIT),
    _Option("mirostat", ("mirostat",), "integer", Range(0, 2)),
    _Option("mirostat_tau", ("mirostat_tau",), allowed=Range(low=0)),
    _Option("mirostat_eta", ("mirostat_eta",), allowed=Range(low=0)),
    _Option("seed", ("seed",), "integer", Range(-(2**63), 2**64 - 1)),
    _Option("ignore_eos", ("ignore_eos",), "boolean"),
)


def decode_sampling(body: Fields) -> Sampling:
    """What `body` says of sampling. Raises: `InvalidRequest`."""
    said: dict[str, Any] = {}
    for option in _OPTIONS:
        for name in option.names:
            value = _read(body, name, option)
            if value is not None:
                said.setdefault(option.field, value)
    if said.get("top_k") == -1:
        said["top_k"] = 0  # vLLM's word for "off"
    return Sampling(**said, logit_bias=_decode_logit_bias(body))


def _read(body: Fields, name: str, option: _Option) -> Any:
    match option.kind:
        case "number":
            return body.find_number(name, option.allowed)
        case "integer":
            return body.find_integer(name, option.allowed)
        case "boolean":
            return body.find_boolean(name)
        case "strings":
            return body.find_strings(name)


def _decode_logit_bias(body: Fields) -> tuple[tuple[int, float], ...] | None:
    biases = body.find_object("logit_bias")
    if biases is None:
        return None
    pairs = []
    for token, bias in biases.body.items():
        if not (token.isascii() and token.isdecimal() and int(token[:11]) <= INT32_MAX and len(token) <= 10):
            raise InvalidRequest(
                f'the keys of {biases.path} must be token ids such as "50256", not {token[:40]!r}', field=biases.path
            )
        pairs.append((int(token), check_number(bias, f"{biases.path}.{token}", Range(-100, 100))))
    return tuple(pairs)


def decode_stop(body: Fields, key: str = "stop", *, limit: int = 16) -> tuple[str, ...]:
    """The stop strings: none, one, or an array. Raises: `InvalidRequest`.

    OpenAI allows 4; agents send more. Each one is looked for in every piece of the output, hence a limit at all.
    """
    value = body.find_any(key)
    if isinstance(value, str):
        if not value:
            raise InvalidRequest(
                f"{body.at(key)} is an empty string; leave it out for no stop string", field=body.at(key)
            )
        return (value,)
    if value is not None and not isinstance(value, list):
        raise wrong(body.at(key), "a string or an array of strings", value)
    stops = body.find_strings(key) or ()
    if len(stops) > limit:
        raise InvalidRequest(
            f"{body.at(key)} has {len(stops)} strings; at most {limit} are allowed", field=body.at(key)
        )
    for index, stop in enumerate(stops):
        if not stop:
            raise InvalidRequest(f"{body.at(key)}[{index}] is an empty string", field=f"{body.at(key)}[{index}]")
    return stops


def decode_max_tokens(body: Fields, *keys: str, least: int = 1) -> int | None:
    """The limit of generated tokens: the first of `keys` that is said; -1 is llama.cpp's word for none."""
    found = []
    for key in keys:
        value = body.find_integer(key)
        if value is not None and value < least and value != -1:
            raise wrong(body.at(key), f"an integer of at least {least} (or -1 for no limit)", value)
        found.append(value)
    said = next((value for value in found if value is not None), None)
    return None if said == -1 else said


def repeated(request: Request, n: int) -> tuple[Request, ...]:
    """`n` requests for as many choices. Of one seed they get one each, or all of them would say the same."""
    seed = request.sampling.seed
    if seed is None:
        return (request,) * n
    return tuple(replace(request, sampling=replace(request.sampling, seed=seed + at)) for at in range(n))
