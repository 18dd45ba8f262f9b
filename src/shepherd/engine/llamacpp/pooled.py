"""Texts computed side by side, each as a sequence of its own, and one row of numbers for each: a vector, or a score.

    tokens of many texts ─▶ groups of similar length ─▶ a decode for each group ─▶ a row for each text

No state is kept from one group to the next. Not here: how a text becomes tokens, and what its numbers mean
(`embedding.py`, `reranking.py`).

Facts about llama.h that shape this file:
- A model without a memory is computed by `llama_encode`, any other by `llama_decode`; the wrong call is refused.
- Bidirectional attention needs a whole batch in one piece of `n_ubatch`: context, batch and piece then have one size,
  which grows with the texts. A causal decoder is given a text piece by piece, since the library keeps a row of logits
  as long as the vocabulary for every token of a batch.
- The library pools a sequence over its last piece only; the pieces of a text are joined here.
- A batch that is no multiple of the number of sequences aborts the process when the context is created.
- A position beyond the trained ones aborts the process if positions are a table: texts are cut before.
- If the file does not name a pooling, llama.cpp does not pool, and a text has no vector.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from shepherd.core import EngineError
from shepherd.engine.base import Chunk
from shepherd.engine.llamacpp.batch import Batch
from shepherd.engine.llamacpp.library import C, devices, reason_from, start_library
from shepherd.engine.llamacpp.runtime import default_threads
from shepherd.engine.llamacpp.watched import WatchedThread
from shepherd.engine.llamacpp.weights import Weights
from shepherd.engine.stats import CacheStats
from shepherd.engine.watchdog import STALL_S
from shepherd.process.child import Cancelled

Pooling = Literal["mean", "cls", "last", "none", "rank"]
Rows = npt.NDArray[np.float32]

N_TOKENS = 512
"""Tokens read of a text by default, and the size of the first context."""
_MOST_BACK, _MOST_AROUND = 32768, 8192
"""Most tokens read of a text by causal and by bidirectional models; the memory of the latter grows with the square."""
_N_TOGETHER = 256
"""Tokens of short texts computed together on a CPU: above 128 a text gets no faster, and a question waits for all."""
_N_SEQ = 64
_LEAST = 8
_AUTO = -1
"""`LLAMA_FLASH_ATTN_TYPE_AUTO`."""
_POOLING: dict[Pooling, int] = {"none": 0, "mean": 1, "cls": 2, "last": 3, "rank": 4}
"""llama.cpp's numbers of the pooling types."""


def always() -> bool:
    return True


def pooling_of(weights: Weights) -> Pooling | None:
    number = weights.parameter("pooling_type")
    return next((name for name, known in _POOLING.items() if known and number == str(known)), None)


class PooledModel:
    """Weights with a context that pools. Safe from several threads, which take turns group by group.

    What its rows mean, its subclasses know.
    """

    def __init__(
        self, weights: Weights, pooling: Pooling, *, n_tokens: int | None = N_TOKENS, n_threads: int | None = None,
        stall_s: float = STALL_S,
    ) -> None:  # fmt: skip
        """The caller keeps owning `weights`, which must outlive this object.

        n_tokens: most tokens read of a text, less if the model was trained on less; None = as many as it was trained
        on, up to a limit. Memory for long texts is allocated when one comes. stall_s: as that of `EngineOptions`.

        Raises: `EngineError` for a model without texts, or one that is an encoder with a decoder.
        """
        file = weights.path.name
        weights.tokenize("")  # refuses a model without texts
        if C.llama_model_has_encoder(weights.handle) and C.llama_model_has_decoder(weights.handle):
            raise EngineError(f"{file} is an encoder with a decoder; choose a model that makes vectors of texts")
        self.weights = weights
        self.pooling: Pooling = pooling
        self._owns_weights = False
        self.n_threads = n_threads or default_threads(weights.n_params)
        n_first = N_TOKENS if n_tokens is None else min(max(n_tokens, _LEAST), N_TOKENS)
        self._context = _PoolingContext(self, n_first, n_first)
        self._looks_back = self._context.has_memory and weights.parameter("attention.causal") != "false"
        """Whether the model is causal, so that a text can be computed piece by piece."""
        if n_tokens is None:
            n_tokens = _MOST_BACK if self._looks_back else _MOST_AROUND
        self.n_tokens = min(max(n_tokens, _LEAST), int(C.llama_model_n_ctx_train(weights.handle)))
        """Most tokens read of a text, special tokens included."""
        self.width = self._context.width
        """Numbers in a row."""
        self._thread = WatchedThread(file, stall_s)

    @classmethod
    def load(cls, path: Path, **options: Any) -> Self:
        """A model that owns its weights, which `close` frees. `options`: those of its class. Raises: `EngineError`."""
        weights = Weights.load(path)
        try:
            made = cls(weights, **options)
        except BaseException:
            weights.close()
            raise
        made._owns_weights = True
        return made

    @property
    def down(self) -> str | None:
        """As `Engine.down`."""
        return self._thread.down

    def close(self) -> bool:
        """Free the context, and the weights if they are its own; False: the thread is stuck and may use them. Twice is
        allowed."""
        if has_ended := self._thread.close():
            self._context.close()
            if self._owns_weights:
                self.weights.close()
        return has_ended

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def stats(self) -> CacheStats:
        """As `WatchedThread.stats`; a group, or piece of a text, is a decode."""
        return self._thread.stats()

    def rows(self, texts: Sequence[array[int]], is_wanted: Callable[[], bool] = always) -> Rows:
        """[len(texts), width], as the library computes them. `is_wanted`: asked between two groups.

        Raises: `EngineError`; `EngineDown`; `Cancelled`.
        """
        made = np.empty((len(texts), self.width), np.float32)
        for indices in self._context.packed([len(one) for one in texts]):
            if not is_wanted():
                raise Cancelled
            made[indices] = self._thread.call(partial(self._rows, [texts[index] for index in indices]))
        return made

    def states(self, texts: Sequence[array[int]], is_wanted: Callable[[], bool] = always) -> Rows:
        """[n_tokens, width], of a model that does not pool: a row of each token, text after text. Raises: as `rows`."""
        made = np.empty((sum(map(len, texts)), self.width), np.float32)
        at = 0
        for one in texts:
            if not is_wanted():
                raise Cancelled
            made[at : at + len(one)] = self._thread.call(partial(self._rows, [one]))
            at += len(one)
        return made

    def _rows(self, group: Sequence[array[int]]) -> Rows:
        """As `_PoolingContext.rows`, of a context that may be larger than the one that packed the group."""
        return self._context_for(max(map(len, group))).rows(group, self._thread)

    def _context_for(self, n_tokens: int) -> _PoolingContext:
        """A context for texts of `n_tokens` tokens; replaces a smaller one. On the thread."""
        if n_tokens > self._context.n_tokens:
            wider = min(self.n_tokens, 1 << (n_tokens - 1).bit_length())
            self._thread.heartbeat.begin(f"allocating memory for texts of {wider} tokens", None)
            made = _PoolingContext(self, wider, N_TOKENS if self._looks_back else wider)
            self._context.close()
            self._context = made
        return self._context


class _PoolingContext:
    """A `llama_context` that computes rows for texts of up to `n_tokens`. For one thread."""

    def __init__(self, model: PooledModel, n_tokens: int, n_piece: int) -> None:
        """`n_piece`: tokens computed at once. Raises: `EngineError` if there is not enough memory."""
        self._weights, self._pooling = weights, pooling = model.weights, model.pooling
        count = C.llama_model_n_cls_out if pooling == "rank" else C.llama_model_n_embd_out
        self.width = int(count(weights.handle))
        # A recurrent state costs memory for every sequence, used or not.
        self._n_seq = 1 if weights.is_recurrent else min(_N_SEQ, n_piece)
        self.n_tokens = -(-n_tokens // self._n_seq) * self._n_seq
        self._n_piece = -(-n_piece // self._n_seq) * self._n_seq
        params = {
            "n_ctx": self.n_tokens,
            "n_batch": self._n_piece,
            "n_ubatch": self._n_piece,
            "n_seq_max": self._n_seq,
            "embeddings": True,
            "pooling_type": _POOLING[pooling],
            "n_threads": model.n_threads,
            "n_threads_batch": model.n_threads,
            # Unlike for one new token behind many, flash attention pays on a CPU here: without it a batch of 512 tokens
            # takes more than twice as long, and short texts are faster one by one than together.
            "flash_attn_type": _AUTO,
        }
        self._context = weights.context(f"for texts of {n_tokens} tokens", "try fewer tokens", params)
        self._memory = C.llama_get_memory(self._context)
        self.has_memory = bool(self._memory and C.llama_model_has_decoder(weights.handle))
        self._compute = C.llama_decode if self.has_memory else C.llama_encode
        self._batch = Batch(self._n_piece, self._n_seq)

    def close(self) -> None:
        C.llama_free(self._context)
        self._context = None

    def packed(self, lengths: Sequence[int]) -> Iterator[list[int]]:
        """The indexes of the texts in groups to be computed together, the longest first, so that lengths are similar.

        A text longer than a piece is a group of its own.
        """
        n_together = self._n_piece if devices() else min(self._n_piece, _N_TOGETHER)
        group: list[int] = []
        used = 0
        for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
            if group and (used + lengths[index] > n_together or len(group) == self._n_seq):
                yield group
                group, used = [], 0
            group.append(index)
            used += lengths[index]
        if group:
            yield group

    def rows(self, texts: Sequence[array[int]], thread: WatchedThread) -> Rows:
        """[len(texts), width], not normalised: of one long text, or of several that fit into one piece; without pooling
        [len(tokens), width], of one text. Raises: `EngineError`."""
        if self._memory:
            C.llama_memory_clear(self._memory, False)
        longest = max(map(len, texts))
        pieces = []
        for start in range(0, longest, self._n_piece):
            stop = start + self._n_piece
            chunks = [Chunk(seq, tokens[start:stop], start, logits=True) for seq, tokens in enumerate(texts)]
            pieces.append(self._computed(chunks, thread))
        return self._joined(pieces, longest)

    def _computed(self, chunks: Sequence[Chunk], thread: WatchedThread) -> Rows:
        """The library's row of each chunk, or without pooling of each token; asking for it waits for a GPU."""
        self._batch.fill(chunks)
        self._batch.struct.logits = None  # all tokens: pooling needs each of them
        n_tokens = sum(len(chunk.tokens) for chunk in chunks)
        find = C.llama_get_embeddings_ith if self._pooling == "none" else C.llama_get_embeddings_seq
        n = n_tokens if self._pooling == "none" else len(chunks)
        with thread.computing(f"computing {n_tokens} tokens of {len(chunks)} texts", n_tokens, len(chunks)):
            code: int = self._compute(self._context, self._batch.struct)
            if code != 0:
                reason, name = reason_from(start_library()), self._weights.path.name
                raise EngineError(f"{name} could not compute {len(chunks)} texts (code {code}){reason}")
            raw = b"".join(ctypes.string_at(find(self._context, at), 4 * self.width) for at in range(n))
        return np.frombuffer(raw, np.float32).reshape(-1, self.width)

    def _joined(self, pieces: Sequence[Rows], n_tokens: int) -> Rows:
        """The rows of whole texts from those of their pieces; all pieces but the last have equal length."""
        if self._pooling == "none":
            return np.concatenate(pieces)
        if self._pooling == "cls":
            return pieces[0]
        if self._pooling in {"last", "rank"} or len(pieces) == 1:  # a causal reranker reads its last token
            return pieces[-1]
        lengths = [self._n_piece] * (len(pieces) - 1)
        lengths.append(n_tokens - sum(lengths))
        mean: Rows = np.average(np.stack(pieces), axis=0, weights=lengths).astype(np.float32)
        return mean
