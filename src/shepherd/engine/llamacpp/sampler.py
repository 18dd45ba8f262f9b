"""Draws tokens: builds the plan of `sampling.py` as llama.cpp's sampler chain.

Under a grammar a token is drawn first and then checked. Only if it is not allowed, all allowed tokens are found and one
of them is drawn. The chain gets only these: llama.cpp's own way, to keep the others with a logit of minus infinity,
makes `typical` keep arbitrary tokens (it multiplies their probability, 0, by its logarithm).
"""

from __future__ import annotations

import ctypes
import functools
import math
import random
from collections.abc import Callable, Collection, Sequence
from typing import Any

from shepherd.core import EngineError, Sampling
from shepherd.engine import sampling as chain
from shepherd.engine.base import Mask, Scored
from shepherd.engine.llamacpp.library import FAST, C
from shepherd.engine.llamacpp.weights import Weights

LARGE_VOCABULARY = 32_768
"""Vocabulary size above which a draw takes so long that other threads should run meanwhile."""


class LlamaSampler:
    """llama.cpp's sampler chain for one job; satisfies `TokenSampler`."""

    def __init__(
        self,
        weights: Weights,
        context: Any,
        outputs: Sequence[int],
        sampling: Sampling,
        history: Sequence[int],
        *,
        mask: Mask | None = None,
    ) -> None:
        """`outputs` is the runtime's list: per chunk of the last decode, the index of the token with logits, or -1."""
        self._context = context
        self._outputs = outputs
        self._kept: list[Any] = []
        seed = random.getrandbits(32) if sampling.seed is None else sampling.seed & 0xFFFFFFFF
        self._chain = C.llama_sampler_chain_init(C.llama_sampler_chain_default_params())
        self._masked: MaskedDraw | None = None
        self._whole: Candidates | None = None
        """Of draws with scores."""
        try:
            if sampling.ignore_eos and mask is None:
                never = [(token, -math.inf) for token in sorted(weights.end_tokens)]
                self._add(weights, chain.Stage("logit_bias", (never,)))
            for stage in chain.plan(sampling, seed=seed, n_ctx=C.llama_n_ctx(context)):
                self._add(weights, stage)
            self._address = ctypes.cast(self._chain, ctypes.c_void_p).value
            large = weights.n_vocab > LARGE_VOCABULARY
            self._draw = C.llama_sampler_sample if large else FAST.sample
            self._which = self._chain if large else self._address
            apply = functools.partial(C.llama_sampler_apply if large else FAST.apply, self._which)
            self._candidates = functools.partial(Candidates, apply, weights.n_vocab)
            if mask is not None:
                unwanted = weights.end_tokens if sampling.ignore_eos else frozenset[int]()
                self._masked = MaskedDraw(mask, self._candidates(), unwanted)
        except BaseException:
            self.close()
            raise
        for token in history[len(history) - chain.history_length(sampling, len(history)) :]:
            if token >= 0:  # no image repeats a word
                FAST.accept(self._address, token)

    def sample(self, chunk: int, behind: int = 0) -> int:
        """Raises: `EngineError` if the grammar allows no token."""
        token: int
        output = self._output(chunk) - behind
        if self._masked is not None:
            token = self._masked.draw(FAST.logits(self._context, output))
            FAST.accept(self._address, token)
            return token
        token = self._draw(self._which, self._context, output)
        return token

    def sample_scored(self, chunk: int, n_top: int, behind: int = 0) -> Scored:
        """Raises: `EngineError` if the grammar allows no token."""
        address = FAST.logits(self._context, self._output(chunk) - behind)
        if self._masked is not None:
            candidates, token = self._masked.candidates, self._masked.draw(address)
        else:
            candidates = self._whole = self._whole or self._candidates()
            token = candidates.choose(candidates.ids, candidates.row(address))
        FAST.accept(self._address, token)
        return candidates.score(token, n_top)

    def n_possible(self, draft: Sequence[int]) -> int:
        return len(draft) if self._masked is None else self._masked.mask.n_allowed(draft)

    def _output(self, chunk: int) -> int:
        output = self._outputs[chunk]
        if output < 0:  # the library would abort the process
            raise EngineError(f"chunk {chunk} of the last decode has no logits")
        return output

    def close(self) -> None:
        if self._chain:
            C.llama_sampler_free(self._chain)  # frees its members too
            self._chain = None

    def _add(self, weights: Weights, stage: chain.Stage) -> None:
        arguments: Any = stage.arguments
        match stage.name:
            case "logit_bias":
                arguments = (weights.n_vocab, len(arguments[0]), self._array(C.llama_logit_bias, arguments[0]))
            case "dry":
                breakers = [text.encode("utf-8", "replace") for text in arguments[-1]]
                strings = self._array(ctypes.c_char_p, breakers)
                arguments = (weights.vocab, *arguments[:-1], strings, len(breakers))
            case "penalties":
                arguments = (weights.n_vocab, *arguments)
            case "mirostat":
                arguments = (weights.n_vocab, *arguments, 100)
        member = getattr(C, f"llama_sampler_init_{stage.name}")(*arguments)
        if not member:
            raise EngineError(f"llama.cpp refused the sampler {stage.name!r} with these values")
        C.llama_sampler_chain_add(self._chain, member)

    def _array(self, kind: Any, values: Sequence[object]) -> Any:
        """A C array that stays in memory as long as this sampler."""
        made = (kind * len(values))(*values)
        self._kept.append(made)
        return made


class MaskedDraw:
    """Draws one token of those that a mask allows, with a chain that has not accepted it yet."""

    def __init__(self, mask: Mask, candidates: Candidates, unwanted: Collection[int]) -> None:
        """`unwanted` tokens are drawn only if no other is allowed."""
        import numpy as np  # noqa: PLC0415 - only under a grammar

        self._np = np
        self.mask = mask
        self.candidates = candidates
        self._unwanted = sorted(unwanted)

    def draw(self, address: int) -> int:
        """Draw a token from the logits at `address`; logits of tokens that are not allowed may be overwritten.

        Raises: `EngineError` if no token is allowed.
        """
        np, mask, candidates = self._np, self.mask, self.candidates
        row = candidates.row(address)
        row[self._unwanted] = -math.inf
        token = candidates.choose(candidates.ids, row)
        if not mask.allows(token):
            mask.allow(memoryview(row))
            allowed = np.flatnonzero(row > -math.inf)
            if len(allowed):
                token = candidates.choose(allowed, row[allowed])
            else:
                token = next((end for end in self._unwanted if mask.allows(end)), -1)
                if token < 0:
                    raise EngineError("the grammar allows no token here that the model could choose")
        mask.accept(token)
        return token


class Candidates:
    """The tokens that a chain chooses from, in memory of ours, so that what is left of them can be read."""

    def __init__(self, apply: Callable[[Any], Any], n_vocab: int) -> None:
        """`apply` runs the chain."""
        import numpy as np  # noqa: PLC0415 - rarely needed, and imports slowly

        self._np = np
        self._apply = apply
        self.ids = np.arange(n_vocab, dtype=np.int32)
        """All tokens."""
        # The memory of `llama_token_data`, with names; the chain sorts in it.
        self._rows = np.zeros(n_vocab, [("id", np.int32), ("logit", np.float32), ("p", np.float32)])
        self._data = ctypes.cast(self._rows.ctypes.data, ctypes.POINTER(C.llama_token_data))
        self._n_left = 0

    def row(self, address: int) -> Any:
        """The logits at `address`, [n_vocab]; not a copy."""
        logits: Any = (ctypes.c_float * len(self.ids)).from_address(address)
        return self._np.frombuffer(logits, self._np.float32)

    def choose(self, ids: Any, logits: Any) -> int:
        """One of `ids`. Raises: `EngineError` if the chain chooses none."""
        n = len(ids)
        self._rows["id"][:n] = ids
        self._rows["logit"][:n] = logits
        self._rows["p"][:n] = 0
        array = C.llama_token_data_array(self._data, n, -1, False)
        self._apply(ctypes.byref(array))
        if not 0 <= array.selected < array.size:
            raise EngineError("llama.cpp's samplers chose nothing")
        self._n_left = int(array.size)
        return int(array.data[array.selected].id)

    def score(self, token: int, n_top: int) -> Scored:
        """The chosen token with its probability among those that the last choice left, and the likeliest of them."""
        left = self._rows[: self._n_left]
        found = {int(row["id"]): float(row["p"]) for row in left[left["p"] > 0]}
        found = found or {token: 1.0}  # a greedy chain writes no probabilities: nothing else could be chosen
        best = sorted(found.items(), key=lambda pair: (-pair[1], pair[0]))[:n_top]
        return Scored(token, math.log(found.get(token, 1.0)), tuple((id, math.log(p)) for id, p in best))
