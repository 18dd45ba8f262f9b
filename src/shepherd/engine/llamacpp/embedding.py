"""Texts to vectors, with any GGUF: a model made for it (BERT and its kin), or a decoder whose states are averaged.

Several texts are computed at once, each as a sequence of its own, and nothing is kept from one batch to the next. Not
here: what a text is embedded for (some models want a prefix for that), and where vectors are kept.

Facts about llama.h that shape this file:
- A model without a memory is computed by `llama_encode`, any other one by `llama_decode`; the wrong one is refused.
- Attention to both sides needs a whole batch in one piece of `n_ubatch`; pooling by the mean or the first token needs a
  whole text in one, else what comes back is of the last piece alone. So context, batch and piece have one size.
- A batch that is no multiple of the number of sequences aborts the process when the context is made.
- A position beyond those that were trained aborts the process where positions are a table: texts are cut before.
- Where the file does not say how to pool, llama.cpp does not pool, and there is no vector of a text.
"""

from __future__ import annotations

import ctypes
import threading
from array import array
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from shepherd.core import EngineError
from shepherd.engine.base import Chunk
from shepherd.engine.llamacpp.batch import Batch
from shepherd.engine.llamacpp.library import C, because, devices, started
from shepherd.engine.llamacpp.runtime import default_threads
from shepherd.engine.llamacpp.weights import Weights

Pooling = Literal["mean", "cls", "last"]
Vectors = npt.NDArray[np.float32]

N_TOKENS = 512
"""What is read of a text, and room to compute it."""
_N_TOGETHER = 256
"""What short texts are computed together on a CPU: from 128 on they take no less time each, and whoever has just a
question waits for all of it."""
_N_SEQ = 64
_LEAST = 8
_AUTO = -1
"""`LLAMA_FLASH_ATTN_TYPE_AUTO`."""
_CHARS_PER_TOKEN = 64
"""More than any real text has: what lies behind the limit times this is not even looked at."""
_POOLING: dict[Pooling, int] = {"mean": 1, "cls": 2, "last": 3}
"""llama.cpp's numbers of the ways to pool."""
_RANK = 4
"""That of a model which scores pairs of texts."""


@dataclass(frozen=True, slots=True)
class Embedded:
    """What became of some texts."""

    vectors: Vectors
    """[n_texts, dim], rows of length 1."""
    n_tokens: tuple[int, ...]
    """Of each text, as many as were read."""
    cut: tuple[int, ...]
    """Indices of the texts that were longer than the model reads: their vectors are those of their beginnings."""


class Turns:
    """A lock whose holders come in the order in which they asked: Python's own goes to whoever is quickest, and that is
    the one who has just let it go."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._queue: deque[threading.Lock] = deque()
        self._is_held = False

    def __enter__(self) -> None:
        with self._mutex:
            if not self._is_held:
                self._is_held = True
                return
            gate = threading.Lock()
            gate.acquire()
            self._queue.append(gate)
        gate.acquire()

    def __exit__(self, *_about_the_error: object) -> None:
        with self._mutex:
            if self._queue:
                self._queue.popleft().release()
            else:
                self._is_held = False


class EmbeddingModel:
    """A model that makes vectors of texts. Safe from several threads, which take turns batch by batch."""

    def __init__(
        self,
        weights: Weights,
        *,
        pooling: Pooling | None = None,
        n_tokens: int = N_TOKENS,
        n_threads: int | None = None,
    ) -> None:
        """Over weights that stay the caller's and must outlive this.

        `pooling`: None = as the file says, else the mean. `n_tokens`: the most that is read of a text, and computed at
        once; less where the model was trained on less.

        Raises: `EngineError` for a model that cannot make vectors.
        """
        file = weights.path.name
        weights.tokenize("")  # refuses a model without texts
        if C.llama_model_has_encoder(weights.handle) and C.llama_model_has_decoder(weights.handle):
            raise EngineError(f"{file} is an encoder with a decoder; choose a model that makes vectors of texts")
        self.pooling: Pooling = pooling or _pooling_of(weights)
        if self.pooling not in _POOLING:
            raise EngineError(f"pooling {self.pooling!r} is unknown; choose one of {', '.join(get_args(Pooling))}")
        self.dim = int(C.llama_model_n_embd_out(weights.handle))
        self.name = f"{weights.digest}-{self.pooling}"
        """Of the weights and the pooling: everything that makes vectors comparable."""
        self._weights = weights
        self._owned: Weights | None = None
        self._lock = Turns()
        n_tokens = max(n_tokens, _LEAST)
        self.n_tokens = min(n_tokens, int(C.llama_model_n_ctx_train(weights.handle)))
        """The most that is read of a text, special tokens included."""
        log = started()
        log.errors.clear()
        # A recurrent state costs memory for every sequence, used or not.
        self._n_seq = 1 if weights.is_recurrent else min(_N_SEQ, n_tokens)
        self._n_batch = -(-n_tokens // self._n_seq) * self._n_seq
        self._context = C.llama_init_from_model(weights.handle, self._params(n_threads))
        if not self._context:
            raise EngineError(f"no context for vectors can be made for {file}{because(log)}; try fewer tokens")
        self._memory = C.llama_get_memory(self._context)
        is_decoder = self._memory and C.llama_model_has_decoder(weights.handle)
        self._compute = C.llama_decode if is_decoder else C.llama_encode
        self._n_together = self._n_batch if devices() else min(self._n_batch, _N_TOGETHER)
        self._batch = Batch(self._n_batch, self._n_seq)
        self._closing = {int(C.llama_vocab_sep(weights.vocab)), int(C.llama_vocab_eos(weights.vocab))}
        """Tokens that end a text, a cut one, too: `last` pools nothing else, and encoders were trained with it."""

    @classmethod
    def load(
        cls,
        path: Path,
        *,
        pooling: Pooling | None = None,
        n_tokens: int = N_TOKENS,
        n_threads: int | None = None,
        gpu_layers: int | None = None,
        use_extra_bufts: bool = True,
    ) -> EmbeddingModel:
        """A model with weights of its own, which `close` frees.

        Raises: `EngineError` when the file cannot be loaded or makes no vectors.
        """
        weights = Weights.load(path, gpu_layers=gpu_layers, use_extra_bufts=use_extra_bufts)
        try:
            made = cls(weights, pooling=pooling, n_tokens=n_tokens, n_threads=n_threads)
        except BaseException:
            weights.close()
            raise
        made._owned = weights
        return made

    def close(self) -> None:
        with self._lock:
            if self._context:
                C.llama_free(self._context)
                self._context = None
            if self._owned:
                self._owned.close()

    def __enter__(self) -> EmbeddingModel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def embed(self, texts: Sequence[str]) -> Vectors:
        """[len(texts), dim], rows of length 1. Raises: `EngineError`."""
        return self.encode(texts).vectors

    def encode(self, texts: Sequence[str]) -> Embedded:
        """The vectors of the texts, and what was read of each. Raises: `EngineError`."""
        read = [self._tokens(text) for text in texts]
        vectors = np.empty((len(texts), self.dim), np.float32)
        for indices in self._packed([len(tokens) for tokens, _ in read]):
            with self._lock:
                vectors[indices] = self._computed([read[index][0] for index in indices])
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        if not (np.isfinite(lengths) & (lengths > 0)).all():
            raise EngineError(f"{self._weights.path.name} computes no numbers for some text; try another file of it")
        return Embedded(
            vectors=vectors / lengths,
            n_tokens=tuple(len(tokens) for tokens, _ in read),
            cut=tuple(index for index, (_, is_cut) in enumerate(read) if is_cut),
        )

    def _tokens(self, text: str) -> tuple[array[int], bool]:
        """At least one token, at most `n_tokens`, and whether that is less than the text has."""
        limit = self.n_tokens
        raw = text[: limit * _CHARS_PER_TOKEN].encode("utf-8", "replace")
        room = len(raw) + 8
        buffer = (ctypes.c_int32 * room)()
        # Special tokens are put around the text, and none is read in it.
        n: int = C.llama_tokenize(self._weights.vocab, raw, len(raw), buffer, room, True, False)
        if n < 0:
            buffer = (ctypes.c_int32 * -n)()
            n = C.llama_tokenize(self._weights.vocab, raw, len(raw), buffer, -n, True, False)
        if n == 0:  # an empty text, and a model that puts nothing around it
            return array("i", [max(0, int(C.llama_vocab_eos(self._weights.vocab)))]), False
        tokens = array("i", buffer[:n])
        is_cut = n > limit or len(text) > limit * _CHARS_PER_TOKEN
        if n > limit:
            closing = tokens[-1:] if tokens[-1] in self._closing else tokens[:0]
            tokens = tokens[: limit - len(closing)] + closing
        return tokens, is_cut

    def _packed(self, lengths: Sequence[int]) -> Iterator[list[int]]:
        """The texts by index, in groups that fit into a batch; the longest first, so that like goes with like."""
        group: list[int] = []
        used = 0
        for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
            if group and (used + lengths[index] > self._n_together or len(group) == self._n_seq):
                yield group
                group, used = [], 0
            group.append(index)
            used += lengths[index]
        if group:
            yield group

    def _computed(self, texts: Sequence[array[int]]) -> Vectors:
        if not self._context:
            raise EngineError(f"{self._weights.path.name} has been closed")
        if self._memory:
            C.llama_memory_clear(self._memory, False)
        self._batch.fill([Chunk(seq, tokens, 0, logits=True) for seq, tokens in enumerate(texts)])
        self._batch.struct.logits = None  # all tokens: pooling needs each of them
        code: int = self._compute(self._context, self._batch.struct)
        if code != 0:
            raise EngineError(
                f"{self._weights.path.name} could not compute {len(texts)} texts (code {code}){because(started())}"
            )
        size = 4 * self.dim
        rows = (ctypes.string_at(C.llama_get_embeddings_seq(self._context, seq), size) for seq in range(len(texts)))
        return np.frombuffer(b"".join(rows), np.float32).reshape(len(texts), self.dim)

    def _params(self, n_threads: int | None) -> Any:
        params = C.llama_context_default_params()
        params.n_ctx = params.n_batch = params.n_ubatch = self._n_batch
        params.n_seq_max = self._n_seq
        params.kv_unified = True
        params.embeddings = True
        params.pooling_type = _POOLING[self.pooling]
        params.n_threads = params.n_threads_batch = n_threads or default_threads(self._weights.n_params)
        # Unlike with one new token behind many old ones, it pays on a CPU, too: without it a batch of 512 tokens takes
        # more than twice as long, and short texts are computed faster one by one than together.
        params.flash_attn_type = _AUTO
        params.no_perf = True
        return params


def _pooling_of(weights: Weights) -> Pooling:
    """As the file says, else the mean. Raises: `EngineError` for a reranker."""
    architecture = weights.metadata("general.architecture") or ""
    said = weights.metadata(f"{architecture}.pooling_type")
    if said == str(_RANK):
        raise EngineError(f"{weights.path.name} scores pairs of texts and makes no vectors; choose an embedding model")
    return next((name for name, number in _POOLING.items() if said == str(number)), "mean")
