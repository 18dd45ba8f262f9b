"""Embeds texts with any GGUF: an embedding model (BERT and the like), or a decoder whose states are averaged.

Several texts are computed at once, each as a sequence of its own; no state is kept from one group to the next. Not
here: the purpose of a vector (some models need a prefix for it), and where vectors are stored.

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
import threading
import time
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from shepherd.core import EngineError, InvalidRequest
from shepherd.engine.base import Chunk
from shepherd.engine.llamacpp.batch import Batch
from shepherd.engine.llamacpp.library import C, devices, reason_from, start_library
from shepherd.engine.llamacpp.runtime import default_threads
from shepherd.engine.llamacpp.weights import Weights
from shepherd.engine.stats import CacheStats

Pooling = Literal["mean", "cls", "last", "none"]
Vectors = npt.NDArray[np.float32]

Input = str | Sequence[str | int]
"""A text, or tokens between which there may be texts."""

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
_CHARS_PER_TOKEN = 64
"""More than any real text has; a text that is cut is not tokenised beyond the token limit times this."""
_POOLING: dict[Pooling, int] = {"none": 0, "mean": 1, "cls": 2, "last": 3}
"""llama.cpp's numbers of the pooling types."""
_MOST_NUMBERS = 2**24
"""Of the vectors of single tokens that are made at a time: 64 MiB, several times that as text."""
_RANK = 4
"""The pooling type of a model that scores pairs of texts."""


@dataclass(frozen=True, slots=True)
class Embedded:
    """The vectors of some inputs."""

    vectors: Vectors
    """[n_inputs, dim], rows of length 1. Without pooling: a row for each token, input after input, of any length."""
    n_tokens: tuple[int, ...]
    """Tokens read of each input."""
    cut: tuple[int, ...]
    """Indexes of inputs that were too long; their vectors are those of their beginnings."""


class FairLock:
    """A lock that threads get in the order in which they wait. Python's own lock goes to the quickest thread, often the
    one that has just released it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._n_came = self._n_left = 0

    def __enter__(self) -> None:
        with self._changed:
            number = self._n_came
            self._n_came += 1
            self._changed.wait_for(lambda: self._n_left == number)

    def __exit__(self, *_about_the_error: object) -> None:
        with self._changed:
            self._n_left += 1
            self._changed.notify_all()


class EmbeddingModel:
    """A model that embeds texts. Safe from several threads, which take turns batch by batch."""

    def __init__(
        self,
        weights: Weights,
        *,
        pooling: Pooling | None = None,
        n_tokens: int | None = N_TOKENS,
        n_threads: int | None = None,
    ) -> None:
        """The caller keeps owning `weights`, which must outlive this object.

        pooling: None = that of the file, or else the mean. n_tokens: most tokens read of a text, less if the model was
        trained on less; None = as many as it was trained on, up to a limit. Memory for long texts is allocated when
        one comes.

        Raises: `EngineError` for a model that cannot embed.
        """
        file = weights.path.name
        weights.tokenize("")  # refuses a model without texts
        if C.llama_model_has_encoder(weights.handle) and C.llama_model_has_decoder(weights.handle):
            raise EngineError(f"{file} is an encoder with a decoder; choose a model that makes vectors of texts")
        file_pooling = _pooling_of(weights)
        self.pooling: Pooling = pooling or file_pooling or "mean"
        if self.pooling not in _POOLING:
            raise EngineError(f"pooling {self.pooling!r} is unknown; choose one of {', '.join(get_args(Pooling))}")
        self.dim = int(C.llama_model_n_embd_out(weights.handle))
        self.name = f"{weights.digest}-{self.pooling}"
        """An id of weights and pooling: vectors of equal ids are comparable."""
        self._weights = weights
        self._owned: Weights | None = None
        self._lock = FairLock()
        self._stats = CacheStats(0)
        self._n_threads = n_threads or default_threads(weights.n_params)
        n_first = N_TOKENS if n_tokens is None else min(max(n_tokens, _LEAST), N_TOKENS)
        self._context: _EmbeddingContext | None = _EmbeddingContext(
            weights, self.pooling, n_first, n_first, self._n_threads
        )
        self._looks_back = self._context.has_memory and weights.parameter("attention.causal") != "false"
        """Whether the model is causal, so that a text can be computed piece by piece."""
        if n_tokens is None:
            n_tokens = _MOST_BACK if self._looks_back else _MOST_AROUND
        self.n_tokens = min(max(n_tokens, _LEAST), int(C.llama_model_n_ctx_train(weights.handle)))
        """Most tokens read of a text, special tokens included."""
        self._eos = int(C.llama_vocab_eos(weights.vocab))
        self._closing = {int(C.llama_vocab_sep(weights.vocab)), self._eos}
        """Tokens that end a text, also a cut one: `last` pools this token only, and encoders were trained with it."""
        is_silent = weights.metadata("tokenizer.ggml.add_eos_token") is None
        self._adds_end = file_pooling == self.pooling == "last" and is_silent and self._eos >= 0
        """Whether the model was trained with an end token that its file does not request."""

    @classmethod
    def load(
        cls,
        path: Path,
        *,
        pooling: Pooling | None = None,
        n_tokens: int | None = N_TOKENS,
        n_threads: int | None = None,
    ) -> EmbeddingModel:
        """A model that owns its weights, which `close` frees.

        Raises: `EngineError` if the file cannot be loaded, or the model cannot embed.
        """
        weights = Weights.load(path)
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
                self._context.close()
                self._context = None
            if self._owned:
                self._owned.close()

    def __enter__(self) -> EmbeddingModel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def stats(self) -> CacheStats:
        """Its totals, as those of a cache without cells; a group of texts is a decode. Any thread."""
        return replace(self._stats)

    def embed(self, texts: Sequence[str]) -> Vectors:
        """[len(texts), dim], rows of length 1. Raises: `EngineError`."""
        return self.encode(texts).vectors

    def encode(self, inputs: Sequence[Input], *, truncate: bool = True, dimensions: int | None = None) -> Embedded:
        """The vectors of the inputs, and how much was read of each.

        truncate: read only the beginning of an input that is too long; False = refuse it. dimensions: keep so many
        leading dimensions of each vector, normalised again (for models trained for it); None = all.

        Raises: `InvalidRequest` that names the input; `EngineError`.
        """
        if dimensions is not None and not 1 <= dimensions <= self.dim:
            message = f"dimensions is {dimensions}; {self._weights.path.name} makes vectors of {self.dim}: ask for 1 to"
            raise InvalidRequest(f"{message} {self.dim}", field="dimensions")
        read = [self._read(given, f"input[{index}]", truncate) for index, given in enumerate(inputs)]
        tokens = [each for each, _ in read]
        made = self._states(tokens, dimensions) if self.pooling == "none" else self._vectors(tokens, dimensions)
        return Embedded(
            vectors=made,
            n_tokens=tuple(map(len, tokens)),
            cut=tuple(index for index, (_, is_cut) in enumerate(read) if is_cut),
        )

    def _states(self, tokens: Sequence[array[int]], dimensions: int | None) -> Vectors:
        n_tokens, most = sum(map(len, tokens)), _MOST_NUMBERS // self.dim
        if n_tokens > most:
            message = (
                f"input has {n_tokens} tokens, each with a vector of {self.dim} numbers; at most {most} are taken at"
            )
            raise InvalidRequest(f"{message} a time: send several requests", field="input")
        made = np.empty((n_tokens, self.dim), np.float32)
        at = 0
        for one in tokens:
            with self._lock, self._counted([one]):
                made[at : at + len(one)] = self._context_for(len(one)).states(one)
            at += len(one)
        return made[:, :dimensions]

    def _vectors(self, tokens: Sequence[array[int]], dimensions: int | None) -> Vectors:
        vectors = np.empty((len(tokens), self.dim), np.float32)
        longest = max(map(len, tokens), default=0)
        with self._lock:
            context = self._context_for(longest)
        for indices in context.packed([len(one) for one in tokens]):
            group = [tokens[index] for index in indices]
            with self._lock, self._counted(group):  # the context may be a larger one by now, in which the groups fit
                vectors[indices] = self._context_for(longest).vectors(group)
        vectors = self._of_length_one(vectors)
        if dimensions is not None and dimensions < self.dim:
            vectors = self._of_length_one(vectors[:, :dimensions])
        return vectors

    @contextmanager
    def _counted(self, group: Sequence[array[int]]) -> Iterator[None]:
        began_s = time.perf_counter()
        yield
        self._stats.prefill_s += time.perf_counter() - began_s
        self._stats.prefilled_tokens += sum(map(len, group))
        self._stats.decodes += 1
        self._stats.decoded_chunks += len(group)

    def _of_length_one(self, vectors: Vectors) -> Vectors:
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        if not (np.isfinite(lengths) & (lengths > 0)).all():
            raise EngineError(f"{self._weights.path.name} computes no numbers for some text; try another file of it")
        made: Vectors = vectors / lengths
        return made

    def _context_for(self, n_tokens: int) -> _EmbeddingContext:
        """A context for texts of `n_tokens` tokens; replaces a smaller one. The caller holds the lock."""
        if self._context is None:
            raise EngineError(f"{self._weights.path.name} has been closed")
        if n_tokens > self._context.n_tokens:
            wider = min(self.n_tokens, 1 << (n_tokens - 1).bit_length())
            n_piece = N_TOKENS if self._looks_back else wider
            made = _EmbeddingContext(self._weights, self.pooling, wider, n_piece, self._n_threads)
            self._context.close()
            self._context = made
        return self._context

    def _read(self, given: Input, path: str, truncate: bool) -> tuple[array[int], bool]:
        """The tokens read of one input, at least one and at most `n_tokens`; and whether it was cut."""
        limit = self.n_tokens
        is_long = isinstance(given, str) and len(given) > limit * _CHARS_PER_TOKEN and truncate
        if isinstance(given, str):
            tokens = self._tokens(given[: limit * _CHARS_PER_TOKEN] if is_long else given)
        else:
            tokens = self._joined_tokens(given, path)
        if not tokens:  # an empty text, and a model without special tokens around it
            return array("i", [max(0, self._eos)]), False
        if (n := len(tokens)) <= limit:
            return tokens, is_long
        if not truncate:
            raise InvalidRequest(
                f"{path} has {n} tokens, which is too large: {self._weights.path.name} reads at most {limit}; "
                "shorten it, cut it into several inputs, or send truncate true to have its beginning read",
                field=path,
            )
        closing = tokens[-1:] if tokens[-1] in self._closing else tokens[:0]
        return tokens[: limit - len(closing)] + closing, True

    def _joined_tokens(self, given: Sequence[str | int], path: str) -> array[int]:
        """Tokens as they are, and the tokens of the texts between them; special ones only around a text that begins."""
        n_vocab = self._weights.n_vocab
        tokens = array("i")
        for index, token in enumerate(given):
            if isinstance(token, str):
                tokens.extend(self._weights.tokenize(token) if index else self._tokens(token))
                continue
            if not 0 <= token < n_vocab:
                message = f"{path}[{index}] is {token}, which is no token of {self._weights.path.name}"
                raise InvalidRequest(f"{message}: they go from 0 to {n_vocab - 1}", field=path)
            tokens.append(token)
        return tokens

    def _tokens(self, text: str) -> array[int]:
        """The tokens of a text with the model's special tokens around it; none is recognised inside the text."""
        tokens = array("i", self._weights.tokenize(text, add_special=True))
        if self._adds_end and (not tokens or tokens[-1] != self._eos):
            tokens.append(self._eos)
        return tokens


class _EmbeddingContext:
    """A `llama_context` that computes vectors of texts of up to `n_tokens`. For one thread."""

    def __init__(self, weights: Weights, pooling: Pooling, n_tokens: int, n_piece: int, n_threads: int) -> None:
        """`n_piece`: tokens computed at once. Raises: `EngineError` if there is not enough memory."""
        self._weights = weights
        self._pooling = pooling
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
            "n_threads": n_threads,
            "n_threads_batch": n_threads,
            # Unlike for one new token behind many, flash attention pays on a CPU here: without it a batch of 512 tokens
            # takes more than twice as long, and short texts are faster one by one than together.
            "flash_attn_type": _AUTO,
        }
        self._context = weights.context(f"for vectors of texts of {n_tokens} tokens", "try fewer tokens", params)
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

    def vectors(self, texts: Sequence[array[int]]) -> Vectors:
        """[len(texts), dim], not normalised: of one long text, or of several that fit into one piece.

        Raises: `EngineError`.
        """
        if self._memory:
            C.llama_memory_clear(self._memory, False)
        longest = max(map(len, texts))
        pieces = []
        for start in range(0, longest, self._n_piece):
            chunks = [
                Chunk(seq, tokens[start : start + self._n_piece], start, logits=True)
                for seq, tokens in enumerate(texts)
            ]
            pieces.append(self._pooled(chunks))
        return self._joined(pieces, longest)

    def states(self, tokens: array[int]) -> Vectors:
        """[len(tokens), dim], of one text, for a context that does not pool. Raises: `EngineError`."""
        if self._memory:
            C.llama_memory_clear(self._memory, False)
        pieces = []
        for start in range(0, len(tokens), self._n_piece):
            piece = tokens[start : start + self._n_piece]
            self._run([Chunk(0, piece, start, logits=True)])
            pieces.append(self._rows(C.llama_get_embeddings_ith(self._context, at) for at in range(len(piece))))
        return np.concatenate(pieces)

    def _pooled(self, chunks: Sequence[Chunk]) -> Vectors:
        """[len(chunks), dim]: the library's vector of each chunk."""
        self._run(chunks)
        return self._rows(C.llama_get_embeddings_seq(self._context, seq) for seq in range(len(chunks)))

    def _run(self, chunks: Sequence[Chunk]) -> None:
        self._batch.fill(chunks)
        self._batch.struct.logits = None  # all tokens: pooling needs each of them
        code: int = self._compute(self._context, self._batch.struct)
        if code != 0:
            reason = reason_from(start_library())
            raise EngineError(f"{self._weights.path.name} could not compute {len(chunks)} texts (code {code}){reason}")

    def _rows(self, places: Iterable[Any]) -> Vectors:
        dim = int(C.llama_model_n_embd_out(self._weights.handle))
        return np.frombuffer(b"".join(ctypes.string_at(each, 4 * dim) for each in places), np.float32).reshape(-1, dim)

    def _joined(self, pieces: Sequence[Vectors], n_tokens: int) -> Vectors:
        """The vectors of whole texts from those of their pieces; all pieces but the last have equal length."""
        if self._pooling == "cls":
            return pieces[0]
        if self._pooling == "last" or len(pieces) == 1:
            return pieces[-1]
        lengths = [self._n_piece] * (len(pieces) - 1)
        lengths.append(n_tokens - sum(lengths))
        mean: Vectors = np.average(np.stack(pieces), axis=0, weights=lengths).astype(np.float32)
        return mean


def _pooling_of(weights: Weights) -> Pooling | None:
    """The pooling that the file names. Raises: `EngineError` for a reranker."""
    number = weights.parameter("pooling_type")
    if number == str(_RANK):
        raise EngineError(f"{weights.path.name} scores pairs of texts and makes no vectors; choose an embedding model")
    return next((name for name, known in _POOLING.items() if known and number == str(known)), None)
