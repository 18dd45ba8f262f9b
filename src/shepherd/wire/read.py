"""How a prompt was read and its answer is drawn, in llama-server's words.

`/completion` and `/props` report it, and a chat as `__verbose`.
"""

from __future__ import annotations

import math
from dataclasses import asdict

from shepherd.core import ReadPrompt, Sampling
from shepherd.wire.base import Json

RANDOM_SEED = 2**32 - 1
"""llama-server's number for a new seed in each request."""


def encode_sampling(sampling: Sampling) -> Json:
    """Every value that is set; the samplers that are not here are off."""
    values = {name: value for name, value in asdict(sampling).items() if value is not None and name != "logit_bias"}
    for ours, theirs in (("repetition_penalty", "repeat_penalty"), ("typical_p", "typ_p")):
        if ours in values:
            values[theirs] = values.pop(ours)
    return {"seed": RANDOM_SEED, "adaptive_target": -1.0, "adaptive_decay": 0.9} | values


def encode_read(read: ReadPrompt) -> Json:
    biases = [{"token": id, "bias": None if math.isinf(bias) else bias} for id, bias in read.logit_bias]
    return {"prompt": read.text, "generation_settings": encode_sampling(read.sampling) | {"logit_bias": biases}}
