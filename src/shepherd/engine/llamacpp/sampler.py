"""Drawing tokens: the plan of `sampling.py` built as llama.cpp's sampler chain."""

from __future__ import annotations

import ctypes
import math
import random
from collections.abc import Sequence
from typing import Any

from shepherd.core import EngineError, Sampling
from shepherd.engine import sampling as chain
from shepherd.engine.llamacpp.library import QUICK, C
from shepherd.engine.llamacpp.weights import Weights

LARGE_VOCABULARY = 32_768
"""Tokens above which drawing one takes so long that other threads should run meanwhile."""


class LlamaSampler:
    """llama.cpp's sampler chain for one job; satisfies `TokenSampler`."""

    def __init__(
        self, weights: Weights, context: Any, outputs: Sequence[int], sampling: Sampling, history: Sequence[int]
    ) -> None:
        """`outputs` is the runtime's own list: per chunk of the last decode, which of its tokens has logits, or -1."""
        self._context = context
        self._outputs = outputs
        self._kept: list[Any] = []  # C arrays that the chain's constructors read
        seed = random.getrandbits(32) if sampling.seed is None else sampling.seed & 0xFFFFFFFF
        self._chain = C.llama_sampler_chain_init(C.llama_sampler_chain_default_params())
        try:
            if sampling.ignore_eos:
                self._add_bias(weights, [(token, -math.inf) for token in sorted(weights.end_tokens)])
            for stage in chain.plan(sampling, seed=seed):
                self._add(weights, stage)
        except BaseException:
            self.close()
            raise
        self._address = ctypes.cast(self._chain, ctypes.c_void_p).value
        large = weights.n_vocab > LARGE_VOCABULARY
        self._draw = C.llama_sampler_sample if large else QUICK.sample
        self._which = self._chain if large else self._address
        for token in history[len(history) - chain.history_length(sampling, len(history)) :]:
            QUICK.accept(self._address, token)

    def sample(self, chunk: int) -> int:
        output = self._outputs[chunk]
        if output < 0:  # the library would abort the process
            raise EngineError(f"chunk {chunk} of the last decode has no logits")
        token: int = self._draw(self._which, self._context, output)
        return token

    def close(self) -> None:
        if self._chain:
            C.llama_sampler_free(self._chain)  # frees its members too
            self._chain = None

    def _add(self, weights: Weights, stage: chain.Stage) -> None:
        match stage.name, stage.arguments:
            case "logit_bias", (bias,):
                self._add_bias(weights, bias)  # type: ignore[arg-type]  # the plan's own tuple of pairs
                return
            case "dry", (multiplier, base, allowed, last_n, breakers):
                encoded = [text.encode("utf-8", "replace") for text in breakers]  # type: ignore[attr-defined]  # as above
                strings = (ctypes.c_char_p * len(encoded))(*encoded)
                self._kept.append(strings)
                member = C.llama_sampler_init_dry(
                    weights.vocab, multiplier, base, allowed, last_n, strings, len(encoded)
                )
            case "penalties", arguments:
                member = C.llama_sampler_init_penalties(weights.n_vocab, *arguments)
            case "mirostat", arguments:
                member = C.llama_sampler_init_mirostat(weights.n_vocab, *arguments, 100)
            case name, arguments:
                member = getattr(C, f"llama_sampler_init_{name}")(*arguments)
        self._append(member, stage.name)

    def _add_bias(self, weights: Weights, bias: Sequence[tuple[int, float]]) -> None:
        pairs = (C.llama_logit_bias * len(bias))(*((token, value) for token, value in bias))
        self._kept.append(pairs)
        self._append(C.llama_sampler_init_logit_bias(weights.n_vocab, len(bias), pairs), "logit_bias")

    def _append(self, member: Any, name: str) -> None:
        if not member:
            raise EngineError(f"llama.cpp refused the sampler {name!r} with these values")
        C.llama_sampler_chain_add(self._chain, member)
