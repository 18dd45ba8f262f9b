"""A job's sampling, grammar and stops as the arguments of the library's `SamplingParams`. Pure.

What the library has no parameter for is refused by name, never left out: an answer that was drawn in another way than
the request says is worse than an error. So is what a version of the library accepts and ignores (`SINCE`): a value that
a request names is refused there, and one of our own defaults is left out. `arguments` never has `end_id`: with it the
library would not read `stop`.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Collection
from typing import Any

from shepherd.core import Sampling, Unsupported
from shepherd.core.dataclasses import dataclass
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


SINCE: dict[str, str] = {
    "repetition_penalty": "1.3.0rc24",
    "frequency_penalty": "1.3.0rc24",
    "presence_penalty": "1.3.0rc24",
    "min_p": "1.3.0rc25",
    "seed": "1.3.0rc25",
}
"""The versions from which on the sampler for checkpoints (TorchSampler) heeds a parameter; earlier ones take it without
a word. Pull requests 16485, 16590 and 17172 of NVIDIA/TensorRT-LLM brought them; where the page of a version does not
say so, it is the first one that was begun after the merge. Prebuilt engines have another sampler, which heeds all.

A seed holds only for a request that is drawn alone: FlashInfer takes the seed of the first row for all rows of a step.
`TensorRTEngine` runs such a request by itself."""
PENALTIES = {"repetition_penalty": 1.0, "frequency_penalty": 0.0, "presence_penalty": 0.0}
"""With the values that have no effect."""


def ignored(version: str) -> frozenset[str]:
    """The parameters that a version of the library accepts and ignores; all that are in doubt if it is not known."""
    return frozenset(name for name, since in SINCE.items() if _order(version) < _order(since))


def _order(version: str) -> tuple[float, ...]:
    """Versions in their order: `1.3.0rc9` before `1.3.0rc24` before `1.3.0`."""
    found = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?(?:(a|b|rc)(\d+))?", version)
    if found is None:
        return ()
    *numbers, stage, candidate = found.groups()
    return (*(float(number or 0) for number in numbers), {"a": 0.0, "b": 1.0, "rc": 2.0, None: 3.0}[stage],
            float(candidate or 0))  # fmt: skip


@dataclass(frozen=True, slots=True)
class Arguments:
    sampling: dict[str, Any]
    """Keywords of `SamplingParams`."""
    guide: dict[str, Any] | None = None
    """Keywords of `GuidedDecodingParams`."""
    salt: str | None = None
    """Requests with different salts share no block."""
    alone: bool = False
    """No other request may be drawn in the same steps: its seed would not hold."""


def arguments(job: Job, *, is_engine: bool, end_tokens: Collection[int], version: str) -> Arguments:
    """The arguments for a job, but for `max_tokens` and the salt.

    is_engine: whether the model is a prebuilt engine, which has fewer parameters than a checkpoint. version: of the
    library; empty = not known.
    Raises: `Unsupported` that names the field.
    """
    found = _sampling(job.sampling, frozenset() if is_engine else ignored(version), version)
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
    alone = not is_engine and job.sampling.seed is not None and "seed" in found
    return Arguments(found, _guide(job, is_engine), alone=alone)


def _sampling(sampling: Sampling, unheeded: frozenset[str], version: str) -> dict[str, Any]:
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
        found |= {name: value for name, none in PENALTIES.items() if (value := getattr(s, name)) != none}
    for name in sorted(unheeded & found.keys()):
        if getattr(sampling, name) is not None:
            raise Unsupported(
                f"TensorRT-LLM {version or 'of this version'} ignores {name} for checkpoints; leave it out, or install "
                f"version {SINCE[name]} or later",
                field=name,
            )
        del found[name]  # a default of ours
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
