"""Ways to live on in a cache that is too small: one conversation's tokens, and what each way makes of them.

All ways see the same tokens, and the same turns leave at the same moments. Holes and shifts are planned by the engine's
own ledger and carried out by its runtime; positions are rebased where the engine would do it, by the same shift.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from shepherd.engine.base import Chunk, Forget, Op, Remove
from shepherd.engine.kv.ledger import Ledger
from shepherd.engine.kv.pool import REBASE_AT
from shepherd.engine.llamacpp.runtime import ContextOptions, LlamaRuntime
from shepherd.engine.llamacpp.weights import Weights

Way = Literal["gap", "shift", "gap, no sinks"]
Logits = npt.NDArray[np.float32]

N_CTX = 768
RESERVE = 256
"""Cells that are kept free when a turn begins: every turn fits, and so does what is measured."""


@dataclass(frozen=True, slots=True)
class Leaving:
    """What leaves before a turn: tokens `[start, stop)` of the conversation, and how many turns have left by then."""

    ranges: tuple[tuple[int, int], ...]
    n_left: int


def departures(n_system: int, sizes: Sequence[int]) -> list[Leaving]:
    """For each turn of these sizes what leaves before it: the oldest turns, one by one, until it has its room."""
    starts = [n_system]
    for size in sizes:
        starts.append(starts[-1] + size)
    leaving: list[Leaving] = []
    first = 0
    for at in range(len(sizes)):
        was = first
        while n_system + starts[at] - starts[first] + RESERVE > N_CTX:
            first += 1
        leaving.append(Leaving(tuple((starts[n], starts[n + 1]) for n in range(was, first)), first))
    return leaving


def log_softmax(logits: Logits) -> Logits:
    """Log-probabilities, [rows, n_vocab]."""
    centred = logits - logits.max(axis=-1, keepdims=True)
    result: Logits = centred - np.log(np.exp(centred).sum(axis=-1, keepdims=True))
    return result


def surprise(logits: Logits, tokens: array[int]) -> npt.NDArray[np.float64]:
    """Minus the log-probability of each of `tokens` but the first, from the logits behind the one before it."""
    rows = log_softmax(logits[: len(tokens) - 1])
    result: npt.NDArray[np.float64] = -rows[np.arange(len(rows)), np.asarray(tokens[1:])].astype(np.float64)
    return result


class Cache:
    """A runtime with one conversation in sequence 0, and the logits behind every token when they are wanted."""

    def __init__(self, weights: Weights, n_ctx: int = N_CTX, *, n_seq: int = 1, flash_attention: bool = False) -> None:
        n_batch = 512
        options = ContextOptions(
            n_ctx=n_ctx, n_seq=n_seq, n_batch=n_batch, n_outputs=n_batch, n_threads=1, flash_attention=flash_attention
        )
        self.runtime = LlamaRuntime(weights, options)
        self._n_vocab = weights.n_vocab

    def read(self, tokens: array[int], position: int, seq: int = 0) -> None:
        """Compute tokens, behind the last position."""
        for at in range(0, len(tokens), self.runtime.n_batch):
            part = tokens[at : at + self.runtime.n_batch]
            self.decode([Chunk(seq, part, position + at, False)])

    def score(self, tokens: array[int], position: int) -> Logits:
        """The logits behind each of these tokens, [tokens, n_vocab]; the tokens are taken out again."""
        self.decode([Chunk(0, tokens[n : n + 1], position + n, True) for n in range(len(tokens))])
        logits = np.stack([np.asarray(self.runtime.logits(n), dtype=np.float32) for n in range(len(tokens))])
        self.apply([Remove(0, position)])
        return logits

    def score_all(self, chunks: Sequence[Chunk]) -> Logits:
        """The logits behind each chunk, [chunks, n_vocab]; nothing is taken out."""
        self.decode(chunks)
        return np.stack([np.asarray(self.runtime.logits(n), dtype=np.float32) for n in range(len(chunks))])

    def apply(self, ops: Sequence[Op]) -> None:
        for op in ops:
            if not self.runtime.apply(op):
                raise RuntimeError(f"the runtime refused {op}")

    def decode(self, chunks: Sequence[Chunk]) -> None:
        """Raises: `RuntimeError` when there is no room, which is a mistake of the bench."""
        if (decoded := self.runtime.decode(chunks)) != "ok":
            raise RuntimeError(f"a decode of {len(chunks)} chunks: {decoded}")


class Life:
    """A conversation without an end, continued in one way."""

    def __init__(self, cache: Cache, way: Way, system: array[int]) -> None:
        """`cache` forgets what it held."""
        self.cache = cache
        self.n_rebases = 0
        self._way = way
        self._n_system = len(system)
        runtime = cache.runtime
        runtime.apply(Forget(0))
        self._ledger = Ledger(runtime.n_ctx, runtime.n_seq, runtime.memory)
        self._resident = self._ledger.new()
        self.read(system)

    @property
    def end(self) -> int:
        """The position of the next token."""
        return self._resident.end

    @property
    def hole(self) -> int:
        """Positions that are taken by nothing."""
        return self.end - self._resident.n_resident

    def read(self, tokens: array[int]) -> None:
        self.cache.read(tokens, self.end)
        self._ledger.extend(self._resident, tokens)

    def leave(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Take these tokens of the conversation out, in this life's way."""
        if not ranges:
            return
        if self._way == "gap, no sinks":
            ranges = [(0, self._n_system), *ranges]
        for range_ in ranges:
            self.cache.apply(self._ledger.evict(self._resident, [range_]))
        if self._way == "shift":
            self._close_gaps()

    def rest(self) -> None:
        """What the engine does between two turns: rebase when the positions run out."""
        runtime = self.cache.runtime
        if self.end > REBASE_AT * runtime.memory.n_positions and self.hole:
            self._close_gaps()
            self.n_rebases += 1
        self._ledger.check(self._resident, runtime.held(0))

    def _close_gaps(self) -> None:
        assert self.cache.runtime.memory.shift
        self.cache.apply(self._ledger.close_gaps(self._resident))
