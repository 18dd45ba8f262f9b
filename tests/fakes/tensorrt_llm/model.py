"""The "model" of the FAKE: a rule from the tokens so far to logits, and real sampling with real grammars.

It knows the answer that `fake.json` has for the newest user message, or makes one from it, and puts the next token of
that answer far above a noise that depends on the last tokens. What a grammar or a penalty forbids it cannot say: then
it goes on in the noise, and prefers what ends.
"""

from __future__ import annotations

import hashlib
import json
import math
import pkgutil
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from .settings import Settings, unheeded


class Model:
    """One vocabulary and its rule."""

    def __init__(self, tokenizer: Tokenizer, end_id: int, settings: Settings, *, is_engine: bool = False) -> None:
        self.tokenizer, self.end_id, self.settings = tokenizer, end_id, settings
        self.is_engine = is_engine
        self.unheeded = frozenset() if is_engine else unheeded()
        """Parameters that the sampler takes and ignores."""
        self.n_vocab = tokenizer.get_vocab_size(with_added_tokens=True)
        self.rule: Callable[[Sequence[int]], int] | None = None
        if settings.rule:
            self.rule = pkgutil.resolve_name(settings.rule)
        self._closers = [i for text in ('"', "}", "]", " }") if (i := tokenizer.token_to_id(text)) is not None]

    def script(self, prompt: Sequence[int]) -> list[int]:
        """What the model wants to say behind a prompt, the end token included."""
        settings = self.settings
        if self.rule is not None:
            return []
        text = self.tokenizer.decode(list(prompt), skip_special_tokens=False)
        before, found, written = text.rpartition(settings.answer)
        asked = (before if found else text).rpartition(settings.user)[2].partition(settings.close)[0].strip()
        says = next((say for when, say in settings.say if when in asked), None)
        if says is None:
            says = f"You said: {asked[:80]}" if asked else "I have nothing to say."
        if found and written.strip() and not written.rstrip().endswith("</think>"):
            says = says[len(written) :] if says.startswith(written) else f" {says}"
        return [*self.tokenizer.encode(says, add_special_tokens=False).ids, self.end_id]

    def logits(self, tokens: Sequence[int], wanted: int | None) -> np.ndarray[Any, np.dtype[np.float32]]:
        """[n_vocab]; `wanted`: the scripted token, None behind a deviation."""
        seed = int.from_bytes(hashlib.blake2b(repr(list(tokens[-6:])).encode(), digest_size=8).digest())
        made = np.random.default_rng(seed).random(self.n_vocab, dtype=np.float32)
        if wanted is not None:
            made[wanted] += self.settings.logits
        else:
            made[self._closers] += 2.0
            made[self.end_id] += self.settings.logits
        return made


class Sampler:
    """Draws the tokens of one request; has its random numbers, its penalties and its grammar."""

    def __init__(self, params: Any, model: Model, guide: Any, prompt: Sequence[int]) -> None:
        self.params, self.model, self.guide = params, model, guide
        # The real default seed is 0, not a random one.
        self.own = np.random.default_rng(0 if "seed" in model.unheeded else params.seed or 0)
        self.other = np.random.default_rng(0)
        self.random = self.own
        self.seen = list(prompt)

    def draw(self, wanted: int | None, *, is_first: bool = True) -> tuple[int, dict[int, tuple[float, int]] | None]:
        """The next token, and the log probabilities of the likeliest with their ranks, if they are wanted. `is_first`:
        of the requests that are drawn in this step; a checkpoint's sampler heeds the seed of no other."""
        params, model = self.params, self.model
        self.random = self.own if is_first or model.is_engine else self.other
        logits = model.logits(self.seen, wanted)
        scores = None
        raw = logits - _log_sum(logits)
        if params.ignore_eos:
            logits[model.end_id] = -math.inf
        for token in set(self.seen) if self._has_penalty() else ():
            n = self.seen.count(token)
            logits[token] -= self._heeded("presence_penalty", 0) + n * self._heeded("frequency_penalty", 0)
            repeat = self._heeded("repetition_penalty", 1.0)
            logits[token] = logits[token] / repeat if logits[token] > 0 else logits[token] * repeat
        if params.embedding_bias is not None:
            logits += np.asarray(params.embedding_bias, np.float32)
        if self.guide is not None:
            self.guide.mask(logits)
        token = self._choose(logits)
        if self.guide is not None:
            self.guide.accept(token)
        if params.logprobs is not None:
            order = np.argsort(-raw)
            scores = {int(i): (float(raw[i]), rank) for rank, i in enumerate(order[: params.logprobs], 1)}
            scores[token] = (float(raw[token]), int(np.count_nonzero(raw > raw[token])) + 1)
        self.seen.append(token)
        return token, scores

    def _has_penalty(self) -> bool:
        return (
            bool(self._heeded("presence_penalty", 0) or self._heeded("frequency_penalty", 0))
            or self._heeded("repetition_penalty", 1.0) != 1.0
        )

    def _heeded(self, name: str, without: float) -> float:
        """The value of a parameter; `without`: what stands for none, and for one that the version ignores."""
        value = getattr(self.params, name)
        return without if value is None or name in self.model.unheeded else float(value)

    def _choose(self, logits: np.ndarray[Any, np.dtype[np.float32]]) -> int:
        params = self.params
        is_greedy = params.temperature is None and params.top_k is None and params.top_p is None
        if is_greedy or params.temperature == 0 or params.top_k == 1 or params.top_p == 0:
            return int(np.argmax(logits))
        order = np.argsort(-logits)
        if params.top_k:
            order = order[: params.top_k]
        chances = np.exp((logits[order] - logits[order[0]]).astype(np.float64) / (params.temperature or 1.0))
        chances /= chances.sum()
        if params.top_p is not None and params.top_p < 1:
            n = int(np.searchsorted(np.cumsum(chances), params.top_p)) + 1
            order, chances = order[:n], chances[:n]
        if min_p := self._heeded("min_p", 0):
            keep = chances >= min_p * chances[0]
            order, chances = order[keep], chances[keep]
        return int(self.random.choice(order, p=chances / chances.sum()))


class Guide:
    """One answer's grammar, enforced by llguidance itself, as the real PyTorch back end does."""

    def __init__(self, tokenizer: Any, grammar: str, end_id: int) -> None:
        from llguidance import LLMatcher
        from llguidance.numpy import allocate_token_bitmask, fill_next_token_bitmask

        self.matcher = LLMatcher(tokenizer, grammar, log_level=0)
        if self.matcher.is_error():
            raise ValueError(f"LLGuidance matcher error: {self.matcher.get_error()}")
        self._words = allocate_token_bitmask(1, tokenizer.vocab_size)
        self._fill, self._end_id = fill_next_token_bitmask, end_id

    def mask(self, logits: np.ndarray[Any, np.dtype[np.float32]]) -> None:
        self._fill(self.matcher, self._words)
        allowed = np.unpackbits(self._words.view(np.uint8)[0], bitorder="little", count=len(logits)).astype(bool)
        if not allowed.any():
            allowed[self._end_id] = True
        logits[~allowed] = -math.inf

    def accept(self, token: int) -> None:
        if token != self._end_id:
            self.matcher.try_consume_tokens([token])


def guide_for(params: Any, backend: str | None, tokenizer: Tokenizer, end_id: int) -> Guide | None:
    """The grammar of a request. Raises: `ValueError`, as the real guided decoder does."""
    wanted = params.guided_decoding
    if wanted is None:
        return None
    from llguidance import LLMatcher, LLTokenizer

    if backend is None:
        raise ValueError("Guided decoding is not enabled: guided_decoding_backend is not set.")
    own = LLTokenizer(tokenizer.to_str(), eos_token=end_id)
    if wanted.json is not None or wanted.json_object:
        schema = wanted.json if wanted.json is not None else {"type": "object"}
        text = schema if isinstance(schema, str) else json.dumps(schema)
        return Guide(own, LLMatcher.grammar_from_json_schema(text), end_id)
    if wanted.regex is not None:
        return Guide(own, LLMatcher.grammar_from_regex(wanted.regex), end_id)
    if wanted.grammar is not None and backend == "llguidance":
        return Guide(own, LLMatcher.grammar_from_lark(wanted.grammar), end_id)
    raise ValueError(f"EBNF error: {backend} reads no Lark grammar (the fake has no xgrammar)")


def _log_sum(logits: np.ndarray[Any, np.dtype[np.float32]]) -> float:
    top = float(logits.max())
    return top + math.log(float(np.exp(logits - top).sum()))
