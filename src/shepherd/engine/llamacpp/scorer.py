"""Log-probabilities of tokens from the model's logits, before any sampler or grammar."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from shepherd.engine.base import Scored


def scorer(address: int, n_vocab: int, n_top: int) -> Callable[[int], Scored]:
    """A function that scores any token by the `n_vocab` logits at `address`, which are copied now."""
    logits: Any = (ctypes.c_float * n_vocab).from_address(address)
    row = np.frombuffer(logits, np.float32).astype(np.float64)
    row -= row.max()
    row -= math.log(np.exp(row).sum())
    n_top = min(n_top, n_vocab)
    likeliest = np.argpartition(row, n_vocab - n_top)[n_vocab - n_top :] if n_top else ()
    top = tuple(sorted(((int(token), float(row[token])) for token in likeliest), key=lambda pair: (-pair[1], pair[0])))
    return lambda token: Scored(token, float(row[token]), top)
