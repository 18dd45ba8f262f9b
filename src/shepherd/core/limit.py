"""Limits of one request, for every protocol, the configuration and the Python API.

A number that is refused would do harm in the native library, or has no meaning. A count that is larger than what there
is (more tokens than the context or the vocabulary has) is no error: it means all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from shepherd.core.errors import InvalidRequest

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

SAMPLING: Mapping[str, tuple[float, float]] = MappingProxyType(
    {
        **dict.fromkeys(("temperature", "dry_multiplier", "dry_base", "mirostat_tau", "mirostat_eta"), (0, 100)),
        **dict.fromkeys(("top_p", "min_p", "typical_p", "xtc_probability", "xtc_threshold"), (0, 1)),
        **dict.fromkeys(("frequency_penalty", "presence_penalty", "top_n_sigma"), (-100, 100)),
        "repetition_penalty": (0.01, 100),
        **dict.fromkeys(("top_k", "dry_allowed_length"), (0, INT32_MAX)),
        **dict.fromkeys(("repeat_last_n", "dry_penalty_last_n"), (-1, INT32_MAX)),
        "mirostat": (0, 2),
    }
)
"""Lowest and highest value. The library computes in float32: an overflow becomes infinite, the difference of two
infinities is NaN, and to sort NaN is undefined. Clients send 0 to 5."""

MAX_BIASES = 1024
"""Tokens in `logit_bias`: under a grammar the library compares each with every candidate. Clients send a few."""
MAX_BREAKERS, MAX_BREAKER_BYTES = 32, 40
"""Of `dry_sequence_breakers`: the library looks through the whole vocabulary for each, and cuts off what is longer.
Clients send 4, or the names of some speakers besides."""

MAX_BIAS_BYTES = 256
"""Of a text in `logit_bias`. Clients send words."""

MAX_DRAFT = 1024
"""Tokens of a draft: llama-server's limit of its own options. Longer ones do not pay on any machine."""
MAX_PREDICTED, MAX_PREDICTED_CHARS = 256, 1_000_000
"""Texts that a client expects in an answer, and their characters together: a large file, which an edit repeats."""

MAX_STOPS = 256
"""Stop strings of a request. OpenAI takes 4; agents send up to about 20."""
MAX_STOP_CHARS = 4096
"""Of all stop strings together: each character costs about 400 bytes, once for each choice of an answer. Clients send
words and lines, about 100 characters together."""


def check_sampling_number(name: str, value: float) -> None:
    """Raises: `InvalidRequest`."""
    low, high = SAMPLING[name]
    if not low <= value <= high:  # nan is in no range
        raise InvalidRequest(f"{name} must be a number from {low} to {high}, not {value!r}", field=name)


def check_count(name: str, value: int, high: int) -> None:
    """Raises: `InvalidRequest`."""
    if not 0 <= value <= high:
        raise InvalidRequest(f"{name} must be a whole number from 0 to {high}, not {value!r}", field=name)


def check_size(field: str, things: str, n: int, most: int) -> None:
    """Raises: `InvalidRequest`."""
    if n > most:
        raise InvalidRequest(f"{field} has {n} {things}; at most {most} are allowed: send fewer", field=field)


def check_biases(biases: Sequence[tuple[int | str, float]], field: str = "logit_bias") -> None:
    """Raises: `InvalidRequest`."""
    check_size(field, "tokens", len(biases), MAX_BIASES)
    for token, bias in biases:
        if isinstance(token, str):
            if not token:
                raise InvalidRequest(f"{field} has an empty text; name a token by its id or its text", field=field)
            check_size(field, "bytes in one text", len(token.encode("utf-8", "replace")), MAX_BIAS_BYTES)
        if not bias <= 100:  # minus infinity is allowed: never this token
            raise InvalidRequest(f"{field}.{token} must be a number of at most 100, not {bias!r}", field=field)


def check_breakers(breakers: Sequence[str], field: str = "dry_sequence_breakers") -> None:
    """Raises: `InvalidRequest`."""
    check_size(field, "strings", len(breakers), MAX_BREAKERS)
    for at, breaker in enumerate(breakers):
        check_size(f"{field}[{at}]", "bytes", len(breaker.encode("utf-8", "replace")), MAX_BREAKER_BYTES)


def check_predicted(texts: Sequence[str], field: str = "predicted") -> None:
    """Raises: `InvalidRequest`."""
    check_size(field, "texts", len(texts), MAX_PREDICTED)
    check_size(field, "characters", sum(map(len, texts)), MAX_PREDICTED_CHARS)


def check_stops(stops: Sequence[str], field: str = "stop") -> None:
    """Raises: `InvalidRequest`."""
    check_size(field, "strings", len(stops), MAX_STOPS)
    check_size(field, "characters", sum(map(len, stops)), MAX_STOP_CHARS)
    if "" in stops:
        path = field if len(stops) == 1 else f"{field}[{stops.index('')}]"
        raise InvalidRequest(f"{path} is an empty string; leave it out for no stop string", field=path)
