import math
from typing import Any

import pytest

from shepherd.core import InvalidRequest, Request, Sampling
from shepherd.core.limit import SAMPLING


def test_what_is_said_wins_over_the_defaults_and_zero_is_said() -> None:
    said = Sampling(temperature=0.0, seed=7).over(Sampling(temperature=0.8, top_k=40))
    assert (said.temperature, said.top_k, said.seed) == (0.0, 40, 7)


def test_nothing_said_changes_nothing() -> None:
    defaults = Sampling(temperature=0.8, top_k=3)
    assert Sampling().over(defaults) == defaults


@pytest.mark.parametrize("name", SAMPLING)
def test_a_number_beyond_its_limits_is_no_sampling(name: str) -> None:
    low, high = SAMPLING[name]
    make: Any = Sampling
    for value in (low, high):
        assert getattr(make(**{name: value}), name) == value
    for value in (low - 1, high + 1, math.inf, -math.inf, math.nan, 1e308, -(2**31), 2**63):
        with pytest.raises(InvalidRequest, match=f"^{name} must be a number from {low} to {high}, not ") as caught:
            make(**{name: value})
        assert caught.value.field == name


@pytest.mark.parametrize(
    ("made", "fields", "message"),
    [
        (Sampling, {"logit_bias": ((1, math.nan),)}, "logit_bias.1 must be a number of at most 100, not nan"),
        (Sampling, {"logit_bias": ((1, 101.0),)}, "logit_bias.1 must be a number of at most 100, not 101.0"),
        (Sampling, {"logit_bias": ((1, 0.0),) * 1025},
         "logit_bias has 1025 tokens; at most 1024 are allowed: send fewer"),
        (Sampling, {"dry_sequence_breakers": ("a" * 41,)},
         "dry_sequence_breakers[0] has 41 bytes; at most 40 are allowed: send fewer"),
        (Request, {"stop": ("a" * 4097,)}, "stop has 4097 characters; at most 4096 are allowed: send fewer"),
        (Request, {"stop": ("a",) * 257}, "stop has 257 strings; at most 256 are allowed: send fewer"),
        (Request, {"stop": ("a", "")}, "stop[1] is an empty string; leave it out for no stop string"),
        (Request, {"max_tokens": -1}, "max_tokens must be a whole number from 0 to 9223372036854775807, not -1"),
        (Request, {"logprobs": -1}, "logprobs must be a whole number from 0 to 2147483647, not -1"),
    ],
)  # fmt: skip
def test_a_value_beyond_its_limits_is_refused_with_its_name_and_the_limit(
    made: Any, fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        made(**({"model": ""} if made is Request else {}), **fields)
    assert caught.value.message == message


def test_never_and_the_largest_values_are_allowed() -> None:
    Sampling(logit_bias=((1, -math.inf), (2, 100.0)), dry_sequence_breakers=("é" * 20,) * 32, seed=2**64)
    Request("", stop=("a" * 16,) * 256, max_tokens=2**63 - 1, logprobs=2**31 - 1)
