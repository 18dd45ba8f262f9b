"""A job's sampling, grammar and stops as the arguments of the library's `SamplingParams`. Pure.

What the library has no parameter for is refused by name, never left out: an answer that was drawn in another way than
the request says is worse than an error. `arguments` never has `end_id`: with it the library would not read `stop`.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from shepherd.core import Sampling, Unsupported
from shepherd.engine.base import Job
from shepherd.engine.sampling import COLDEST, settled, uses_history

MAX_SEED = 2**63 - 1

OFF: tuple[tuple[str, Callable[[Any], bool]], ...] = (
    ("typical_p", lambda value: value >= 1),
    ("top_n_sigma", lambda value: value <= 0),
    ("dry_multiplier", lambda value: value <= 0),
    ("xtc_probability", lambda value: value <= 0),
    ("mirostat", lambda value: value == 0),
    ("logit_bias", lambda value: not value),
)
"""Fields of `Sampling` that the library does not have, and the values with which they have no effect. What only shapes
one of them (`dry_base` and the like) has no effect then either."""


@dataclass(frozen=True, slots=True)
class Arguments:
    """Of one request."""

    sampling: dict[str, Any]
    """Keywords of `SamplingParams`."""
    guide: dict[str, Any] | None = None
    """Keywords of `GuidedDecodingParams`."""
    salt: str | None = None
    """Requests with different salts share no block."""


def arguments(job: Job, *, is_engine: bool, end_tokens: Collection[int]) -> Arguments:
    """The arguments for a job, but for `max_tokens` and the salt.

    is_engine: whether the model is a prebuilt engine, which has fewer parameters than a checkpoint.
    Raises: `Unsupported` that names the field.
    """
    found = _sampling(job.sampling)
    if job.scores is not None:
        found["logprobs"] = _scores(job, is_engine)
    if job.stops:
        found["stop"] = list(job.stops)
    # The tokens of a stop string are kept, so that the stop filter above the engine sees all of it.
    found["include_stop_str_in_output"] = True
    if job.sampling.ignore_eos and job.grammar is None:
        found["ignore_eos"] = True
    elif end_tokens:
        found["stop_token_ids"] = sorted(end_tokens)
    return Arguments(found, _guide(job, is_engine))


def _sampling(sampling: Sampling) -> dict[str, Any]:
    for name, has_no_effect in OFF:
        value = getattr(sampling, name)
        if value is not None and not has_no_effect(value):
            raise Unsupported(f"TensorRT-LLM has no {name}; leave it out", field=name)
    s: Any = settled(sampling)
    found: dict[str, Any] = {}
    if s.temperature < COLDEST:
        found["top_k"] = 1  # greedy in both back ends; a temperature of 0 is not known to all
    else:
        found |= {"temperature": s.temperature, "top_k": max(0, s.top_k), "top_p": min(1.0, s.top_p)}
        if s.min_p > 0:
            found["min_p"] = s.min_p
        # The library's own default is always the same seed.
        found["seed"] = secrets.randbelow(MAX_SEED) if s.seed is None else s.seed & MAX_SEED
    if uses_history(sampling) and sampling.repeat_last_n != 0:
        if sampling.repeat_last_n not in (None, -1):
            raise Unsupported(
                f"TensorRT-LLM's penalties look back on the whole context, not on {sampling.repeat_last_n} tokens; use "
                "repeat_last_n = -1",
                field="repeat_last_n",
            )
        neutral = {"repetition_penalty": 1.0, "frequency_penalty": 0.0, "presence_penalty": 0.0}
        found |= {name: value for name, none in neutral.items() if (value := getattr(s, name)) != none}
    return found


def _scores(job: Job, is_engine: bool) -> int:
    if is_engine:
        raise Unsupported(
            "a prebuilt TensorRT engine gives no log probabilities; load the checkpoint", field="logprobs"
        )
    if job.score_prompt:
        raise Unsupported("TensorRT-LLM gives no log probabilities of the prompt here", field="logprobs")
    if job.scores_drawn:
        raise Unsupported("TensorRT-LLM gives log probabilities before sampling only", field="logprobs")
    assert job.scores is not None
    return max(1, job.scores)


def _guide(job: Job, is_engine: bool) -> dict[str, Any] | None:
    """A checkpoint runs on PyTorch, where llguidance reads our grammars; an engine has xgrammar: schemas."""
    if job.grammar is None:
        return None
    if not job.written:
        if not is_engine:
            return {"grammar": job.grammar}
        if job.schema is not None:
            return {"json": json.loads(job.schema)}
    if job.is_lenient:
        return None
    raise Unsupported(
        "TensorRT-LLM cannot hold this answer to its form: the prompt has begun it already"
        if job.written
        else "a prebuilt TensorRT engine can hold an answer to a JSON schema only; use the checkpoint for others",
        field="response_format",
    )
