"""Embeds texts with any GGUF: an embedding model (BERT and the like), or a decoder whose states are averaged.

The texts are computed side by side (`pooled.py`). Not here: the purpose of a vector (some models need a prefix for it),
and where vectors are stored.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import Literal, get_args

import numpy as np

from shepherd.core import EngineError, InvalidRequest
from shepherd.core.dataclasses import dataclass
from shepherd.engine.llamacpp.library import C
from shepherd.engine.llamacpp.pooled import N_TOKENS, PooledModel, Rows, always, pooling_of
from shepherd.engine.llamacpp.weights import Weights
from shepherd.engine.watchdog import STALL_S

Pooling = Literal["mean", "cls", "last", "none"]
Vectors = Rows

Input = str | Sequence[str | int]
"""A text, or tokens between which there may be texts."""

CHARS_PER_TOKEN = 64
"""More than any real text has; a text that is cut is not tokenised beyond the token limit times this."""
_MOST_NUMBERS = 2**24
"""Of the vectors of single tokens that are made at a time: 64 MiB, several times that as text."""


@dataclass(frozen=True, slots=True)
class Embedded:
    vectors: Vectors
    """[n_inputs, dim], rows of length 1. Without pooling: a row for each token, input after input, of any length."""
    n_tokens: tuple[int, ...]
    """Tokens read of each input."""
    cut: tuple[int, ...]
    """Indexes of inputs that were too long; their vectors are those of their beginnings."""


class EmbeddingModel(PooledModel):
    pooling: Pooling

    def __init__(
        self,
        weights: Weights,
        *,
        pooling: Pooling | None = None,
        n_tokens: int | None = N_TOKENS,
        n_threads: int | None = None,
        stall_s: float = STALL_S,
    ) -> None:
        """The caller keeps owning `weights`, which must outlive this object.

        pooling: None = that of the file, or else the mean. n_tokens, stall_s: as for `PooledModel`.

        Raises: `EngineError` for a model that cannot embed.
        """
        file, file_pooling = weights.path.name, pooling_of(weights)
        if file_pooling == "rank":
            raise EngineError(f"{file} scores pairs of texts and makes no vectors; choose an embedding model")
        pooling = pooling or file_pooling or "mean"
        if pooling not in get_args(Pooling):
            raise EngineError(f"pooling {pooling!r} is unknown; choose one of {', '.join(get_args(Pooling))}")
        super().__init__(weights, pooling, n_tokens=n_tokens, n_threads=n_threads, stall_s=stall_s)
        self.dim = self.width
        self.name = f"{weights.digest}-{pooling}"
        """An id of weights and pooling: vectors of equal ids are comparable."""
        self._eos = int(C.llama_vocab_eos(weights.vocab))
        self._closing = {int(C.llama_vocab_sep(weights.vocab)), self._eos}
        """Tokens that end a text, also a cut one: `last` pools this token only, and encoders were trained with it."""
        is_silent = weights.metadata("tokenizer.ggml.add_eos_token") is None
        self._adds_end = file_pooling == pooling == "last" and is_silent and self._eos >= 0
        """Whether the model was trained with an end token that its file does not request."""

    def embed(self, texts: Sequence[str]) -> Vectors:
        """[len(texts), dim], rows of length 1. Raises: `EngineError`."""
        return self.encode(texts).vectors

    def encode(
        self,
        inputs: Sequence[Input],
        *,
        truncate: bool = True,
        dimensions: int | None = None,
        is_wanted: Callable[[], bool] = always,
    ) -> Embedded:
        """The vectors of the inputs, and how much was read of each.

        truncate: read only the beginning of an input that is too long; False = refuse it. dimensions: keep so many
        leading dimensions of each vector, normalised again (for models trained for it); None = all. is_wanted: asked
        between two groups of texts.

        Raises: `InvalidRequest` that names the input; `EngineError`; `Cancelled`.
        """
        if dimensions is not None and not 1 <= dimensions <= self.dim:
            message = f"dimensions is {dimensions}; {self.weights.path.name} makes vectors of {self.dim}: ask for 1 to"
            raise InvalidRequest(f"{message} {self.dim}", field="dimensions")
        read = [self._read(given, f"input[{index}]", truncate) for index, given in enumerate(inputs)]
        tokens = [each for each, _ in read]
        make = self._states if self.pooling == "none" else self._vectors
        return Embedded(
            vectors=make(tokens, dimensions, is_wanted),
            n_tokens=tuple(map(len, tokens)),
            cut=tuple(index for index, (_, is_cut) in enumerate(read) if is_cut),
        )

    def _states(self, tokens: Sequence[array[int]], dimensions: int | None, is_wanted: Callable[[], bool]) -> Vectors:
        n_tokens, most = sum(map(len, tokens)), _MOST_NUMBERS // self.dim
        if n_tokens > most:
            message = (
                f"input has {n_tokens} tokens, each with a vector of {self.dim} numbers; at most {most} are taken at"
            )
            raise InvalidRequest(f"{message} a time: send several requests", field="input")
        return self.states(tokens, is_wanted)[:, :dimensions]

    def _vectors(self, tokens: Sequence[array[int]], dimensions: int | None, is_wanted: Callable[[], bool]) -> Vectors:
        vectors = self._of_length_one(self.rows(tokens, is_wanted))
        if dimensions is not None and dimensions < self.dim:
            vectors = self._of_length_one(vectors[:, :dimensions])
        return vectors

    def _of_length_one(self, vectors: Vectors) -> Vectors:
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        if not (np.isfinite(lengths) & (lengths > 0)).all():
            raise EngineError(f"{self.weights.path.name} computes no numbers for some text; try another file of it")
        made: Vectors = vectors / lengths
        return made

    def _read(self, given: Input, path: str, truncate: bool) -> tuple[array[int], bool]:
        """The tokens read of one input, at least one and at most `n_tokens`; and whether it was cut."""
        limit = self.n_tokens
        is_long = isinstance(given, str) and len(given) > limit * CHARS_PER_TOKEN and truncate
        if isinstance(given, str):
            tokens = self._tokens(given[: limit * CHARS_PER_TOKEN] if is_long else given)
        else:
            tokens = self._joined_tokens(given, path)
        if not tokens:  # an empty text, and a model without special tokens around it
            return array("i", [max(0, self._eos)]), False
        if (n := len(tokens)) <= limit:
            return tokens, is_long
        if not truncate:
            raise InvalidRequest(
                f"{path} has {n} tokens, which is too large: {self.weights.path.name} reads at most {limit}; "
                "shorten it, cut it into several inputs, or send truncate true to have its beginning read",
                field=path,
            )
        closing = tokens[-1:] if tokens[-1] in self._closing else tokens[:0]
        return tokens[: limit - len(closing)] + closing, True

    def _joined_tokens(self, given: Sequence[str | int], path: str) -> array[int]:
        """Tokens as they are, and the tokens of the texts between them; special ones only around a text that begins."""
        n_vocab = self.weights.n_vocab
        tokens = array("i")
        for index, token in enumerate(given):
            if isinstance(token, str):
                tokens.extend(self.weights.tokenize(token) if index else self._tokens(token))
                continue
            if not 0 <= token < n_vocab:
                message = f"{path}[{index}] is {token}, which is no token of {self.weights.path.name}"
                raise InvalidRequest(f"{message}: they go from 0 to {n_vocab - 1}", field=path)
            tokens.append(token)
        return tokens

    def _tokens(self, text: str) -> array[int]:
        """The tokens of a text with the model's special tokens around it; none is recognised inside the text."""
        tokens = array("i", self.weights.tokenize(text, add_special=True))
        if self._adds_end and (not tokens or tokens[-1] != self._eos):
            tokens.append(self._eos)
        return tokens
