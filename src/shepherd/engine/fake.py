"""A fake runtime and a fake vocabulary: real implementations of the seams with a made-up model behind them.

The cache holds real tokens under the real rules (positions without gaps, a bounded number of cells, rollback that can
be refused); only the model is a function from the tokens so far to the next one. Tests drive the engine, the back end
and the server with it and know every answer beforehand.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from shepherd.core import EngineError, Sampling
from shepherd.engine.base import Decoded, Special

BYTES = 256
"""Tokens 0..255 are the bytes themselves; specials follow."""


class FakeVocabulary:
    """One token per byte, and whatever control tokens are wanted; satisfies `Vocabulary`."""

    def __init__(
        self, control: Sequence[str] = ("<|im_start|>", "<|im_end|>"), user_defined: Sequence[str] = ()
    ) -> None:
        texts = [(text, True) for text in control] + [(text, False) for text in user_defined]
        self.specials = tuple(Special(BYTES + i, text, is_control) for i, (text, is_control) in enumerate(texts))
        self.ids: Mapping[str, int] = {special.text: special.id for special in self.specials}
        self.n_vocab = BYTES + len(self.specials)
        self.bos: int | None = None
        self._user_defined = {special.text: special.id for special in self.specials if not special.control}

    def tokenize(self, text: str) -> list[int]:
        # As llama.cpp does: user-defined tokens match in any text, control tokens never.
        for marker, token in self._user_defined.items():
            before, found, after = text.partition(marker)
            if found:
                return [*self.tokenize(before), token, *self.tokenize(after)]
        return list(text.encode("utf-8", "replace"))

    def piece(self, token: int) -> bytes:
        if 0 <= token < BYTES:
            return bytes([token])
        for special in self.specials:
            if special.id == token:
                return special.text.encode()
        raise EngineError(f"token {token} is outside the vocabulary")


def say(vocabulary: FakeVocabulary, *answers: str, end: str = "<|im_end|>") -> Callable[[Sequence[int]], int]:
    """A model that gives `answers` in turn, one per assistant turn, each followed by the end token.

    The turn is counted by the end tokens that stand behind an assistant header, so a resent history gets the same
    answers again; beyond the last answer it repeats that one.
    """
    end_id = vocabulary.ids[end]
    start_id = vocabulary.ids["<|im_start|>"]
    header = vocabulary.tokenize("assistant\n")

    def next_token(tokens: Sequence[int]) -> int:
        tokens = list(tokens)
        starts = [i for i, t in enumerate(tokens) if t == start_id and tokens[i + 1 : i + 1 + len(header)] == header]
        body = tokens[starts[-1] + 1 + len(header) :] if starts else []
        answer = vocabulary.tokenize(answers[min(max(len(starts), 1), len(answers)) - 1])
        return answer[len(body)] if len(body) < len(answer) else end_id

    return next_token


@dataclass
class Faults:
    """What is to go wrong, for tests of the engine's manners."""

    decode_error_at: int | None = None
    """Position whose decode fails, once."""
    crash_at: int | None = None
    """Position whose decode raises something that is not an `EngineError`: a bug."""
    full_at: int | None = None
    can_truncate: bool = True
    lies_about_length: int = 0
    """Added to the true length."""
    gate: threading.Semaphore | None = None
    """Every decode takes one; without any left it waits, until it is interrupted."""


@dataclass
class FakeRuntime:
    """A KV cache with a function for a model; satisfies `Runtime`."""

    next_token: Callable[[Sequence[int]], int]
    end_tokens: frozenset[int] = frozenset({BYTES + 1})
    n_ctx: int = 4096
    n_chunk: int = 16
    faults: Faults = field(default_factory=Faults)

    def __post_init__(self) -> None:
        self.tokens: list[int] = []
        self.decoded: list[tuple[int, int]] = []
        """Every decode as (start, n): what work was really done."""
        self.samplings: list[Sampling] = []
        """The sampling of every job, in order."""
        self.closed = False
        self._interrupted = threading.Event()

    def decode(self, tokens: Sequence[int], start: int) -> Decoded:
        assert not self.closed
        if start != len(self.tokens):
            raise EngineError(f"the batch starts at {start}, the cache ends at {len(self.tokens)}")
        stop = start + len(tokens)
        if self.faults.crash_at is not None and start <= self.faults.crash_at < stop:
            raise RuntimeError("a planted bug")
        if self.faults.decode_error_at is not None and start <= self.faults.decode_error_at < stop:
            self.faults.decode_error_at = None
            raise EngineError("a planted failure")
        if stop > self.n_ctx or (self.faults.full_at is not None and stop > self.faults.full_at):
            return "full"
        if self.faults.gate is not None:
            while not self.faults.gate.acquire(timeout=0.01):
                if self._interrupted.is_set():
                    return "aborted"
        if self._interrupted.is_set():
            return "aborted"
        self.decoded.append((start, len(tokens)))
        self.tokens.extend(tokens)
        return "ok"

    def sampler(self, sampling: Sampling, history: Sequence[int]) -> FakeSampler:
        self.samplings.append(sampling)
        return FakeSampler(self)

    def truncate(self, length: int) -> bool:
        if not self.faults.can_truncate:
            return False
        del self.tokens[length:]
        return True

    def clear(self) -> None:
        self.tokens.clear()

    def length(self) -> int:
        return len(self.tokens) + self.faults.lies_about_length

    def is_end(self, token: int) -> bool:
        return token in self.end_tokens

    def interrupt(self, on: bool) -> None:
        if on:
            self._interrupted.set()
        else:
            self._interrupted.clear()

    def close(self) -> None:
        self.closed = True


class FakeSampler:
    """Asks the made-up model; satisfies `TokenSampler`."""

    def __init__(self, runtime: FakeRuntime) -> None:
        self._runtime = runtime

    def sample(self) -> int:
        return self._runtime.next_token(self._runtime.tokens)

    def close(self) -> None:
        pass
