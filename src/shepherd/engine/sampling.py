"""The chain of samplers that draws a token: a pure plan, which a runtime builds.

The order is llama.cpp's default chain (common/sampling.cpp): bias, penalties, DRY, then the cuts from coarse to fine,
then temperature, then the draw. Greedy decoding (temperature 0) needs no cuts.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from shepherd.core import Sampling
from shepherd.core.dataclasses import dataclass

DEFAULTS = Sampling(
    temperature=0.8,
    top_k=40,
    top_p=0.95,
    min_p=0.05,
    typical_p=1.0,
    top_n_sigma=-1.0,
    repetition_penalty=1.0,
    frequency_penalty=0.0,
    presence_penalty=0.0,
    repeat_last_n=64,
    dry_multiplier=0.0,
    dry_base=1.75,
    dry_allowed_length=2,
    dry_penalty_last_n=-1,
    dry_sequence_breakers=("\n", ":", '"', "*"),
    xtc_probability=0.0,
    xtc_threshold=0.1,
    mirostat=0,
    mirostat_tau=5.0,
    mirostat_eta=0.1,
    logit_bias=(),
    ignore_eos=False,
)
"""llama.cpp's own defaults, so that a model answers as it does there. There is no default seed: it is drawn."""

SETTLED = 64
"""Requests' samplings that are remembered with the defaults filled in: clients send the same ones again and again."""

COLDEST = 1e-6
"""Lower temperatures count as 0: only the likeliest token has a chance, and dividing by less overflows float32."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One sampler of the chain: its name as in `llama_sampler_init_<name>`, and its arguments."""

    name: str
    arguments: tuple[object, ...] = ()


@lru_cache(SETTLED)
def settled(sampling: Sampling) -> Sampling:
    """The sampling with `DEFAULTS` for what it leaves open: no value is None but the seed."""
    return sampling.over(DEFAULTS)


def plan(sampling: Sampling, *, seed: int, n_ctx: int) -> tuple[Stage, ...]:
    """The chain for `sampling`; values that are None come from `DEFAULTS`.

    No sampler looks back further than `n_ctx` tokens: the library allocates memory for all of them, and takes -1 for
    none. `logit_bias` stages carry token/bias pairs, `dry` stages the breaker strings: the runtime makes C arrays of
    both. The runtime also adds `ignore_eos`, since it knows the vocabulary's end tokens.
    """
    s: Any = settled(sampling)
    temperature = s.temperature if s.temperature >= COLDEST else 0.0
    repeat_last_n, dry_last_n = (n if 0 <= n < n_ctx else n_ctx for n in (s.repeat_last_n, s.dry_penalty_last_n))
    greedy = not temperature and not s.mirostat
    stages: list[tuple[bool, Stage]] = [
        (bool(s.logit_bias), Stage("logit_bias", (s.logit_bias,))),
        (
            uses_history(s) and s.repeat_last_n != 0,
            Stage("penalties", (repeat_last_n, s.repetition_penalty, s.frequency_penalty, s.presence_penalty)),
        ),
        (
            s.dry_multiplier > 0,
            Stage("dry", (s.dry_multiplier, s.dry_base, s.dry_allowed_length, dry_last_n, s.dry_sequence_breakers)),
        ),
        (greedy, Stage("greedy")),
    ]
    if s.mirostat:
        name = "mirostat" if s.mirostat == 1 else "mirostat_v2"
        stages += [
            (True, Stage("temp", (temperature,))),
            (True, Stage(name, (seed, s.mirostat_tau, s.mirostat_eta))),
        ]
    elif not greedy:
        stages += [
            (s.top_n_sigma > 0, Stage("top_n_sigma", (s.top_n_sigma,))),
            (s.top_k > 0, Stage("top_k", (s.top_k,))),
            (s.typical_p < 1, Stage("typical", (s.typical_p, 1))),
            (s.top_p < 1, Stage("top_p", (s.top_p, 1))),
            (s.min_p > 0, Stage("min_p", (s.min_p, 1))),
            (s.xtc_probability > 0, Stage("xtc", (s.xtc_probability, s.xtc_threshold, 1, seed))),
            (True, Stage("temp", (temperature,))),
            (True, Stage("dist", (seed,))),
        ]
    return tuple(stage for used, stage in stages if used)


def uses_history(sampling: Sampling) -> bool:
    return (
        sampling.repetition_penalty not in (None, 1.0)
        or sampling.frequency_penalty not in (None, 0.0)
        or sampling.presence_penalty not in (None, 0.0)
    )


def history_length(sampling: Sampling, available: int) -> int:
    """How many of the `available` last tokens the samplers must see before the first draw."""
    s: Any = settled(sampling)
    wants = [s.repeat_last_n] * uses_history(s) + [s.dry_penalty_last_n] * (s.dry_multiplier > 0)
    return available if min(wants, default=0) < 0 else min(available, max(wants, default=0))
