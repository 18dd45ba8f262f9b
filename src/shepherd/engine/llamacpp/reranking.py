"""Scores pairs of a query and a document with a reranker: a GGUF with rank pooling, an encoder or a decoder.

    (query, document) ─ layout of the file ─▶ tokens ─ pooled.py ─▶ a row for each pair, whose first number is the score

A file with a template named `rerank` is a decoder that was asked a question about a pair (Qwen3-Reranker); any other is
given the two texts, with the tokens between them that its vocabulary asks for. Both are as llama-server writes them, so
that scores are the same; but here no text of a pair becomes a control token, and `{document}` in a query stays what it
is.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from shepherd.core import EngineError, InvalidRequest
from shepherd.core.pairs import Pairs, Scores, Side
from shepherd.engine.llamacpp.embedding import CHARS_PER_TOKEN
from shepherd.engine.llamacpp.library import C
from shepherd.engine.llamacpp.pooled import PooledModel, always
from shepherd.engine.llamacpp.weights import Weights
from shepherd.engine.watchdog import STALL_S
from shepherd.models import gguf
from shepherd.process.child import Cancelled

_TEMPLATE = b"rerank"
_PLACES = re.compile(r"\{(query|document)\}")
_PROBABLE = ("qwen3", "qwen3vl")
"""Architectures for which llama.cpp ends with a softmax: their scores are probabilities already."""


class _Text(NamedTuple):
    """A part of a layout that has places for the query or the document."""

    text: str
    strips_start: bool = False
    strips_end: bool = False
    """Whether the control token beside it takes the white space there."""


class RerankModel(PooledModel):
    def __init__(
        self, weights: Weights, *, n_tokens: int | None = None, n_threads: int | None = None, stall_s: float = STALL_S
    ) -> None:
        """The caller keeps owning `weights`, which must outlive this object. n_tokens, stall_s: as for `PooledModel`.

        Raises: `EngineError` for a model that cannot score pairs.
        """
        file = weights.path.name
        if not _has_classifier(weights.path):
            raise EngineError(f"{file} has no classifier (cls.output), and cannot score pairs; choose a reranker")
        self.layout = tuple(_layout(weights))  # it may be refused: before anything is allocated
        super().__init__(weights, "rank", n_tokens=n_tokens, n_threads=n_threads, stall_s=stall_s)
        self.name = file
        self._is_probable = weights.metadata("general.architecture") in _PROBABLE

    def score(self, pairs: Pairs, is_wanted: Callable[[], bool] = always) -> Scores:
        """The score of each pair, and how much was read of it. is_wanted: asked from time to time.

        Raises: `InvalidRequest` that names the document; `EngineError`; `Cancelled`.
        """
        reader = _Reader(self, pairs)
        tokens: list[array[int]] = []
        for index, (query, document) in enumerate(pairs.texts):
            if not is_wanted():
                raise Cancelled
            tokens.append(reader.read(query, document, pairs.place.format(index)) or array("i", [0]))
        values = self.rows(tokens, is_wanted)[:, 0]
        if not np.isfinite(values).all():
            raise EngineError(f"{self.name} computes no number for some pair; try another file of it")
        return Scores(tuple(values.tolist()), tuple(map(len, tokens)), self._is_probable)

    def relevance(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        """The scores of the beginnings of some texts. Raises: `EngineError`."""
        return self.score(Pairs.beginnings(query, texts)).values


class _Reader:
    """Makes tokens of pairs, of one call; what depends on the query only is made once for each query."""

    def __init__(self, model: RerankModel, pairs: Pairs) -> None:
        self._layout, self._tokenize = model.layout, model.weights.tokenize
        self._pairs, self._file, self._limit = pairs, model.name, model.n_tokens
        self._wanted = min(self._limit, pairs.n_tokens or self._limit) if pairs.truncate else self._limit
        self._known: dict[_Text, array[int]] = {}
        self._query = ""

    def read(self, query: str, document: str, place: str) -> array[int]:
        """The tokens of a pair, at most as many as are wanted. Raises: `InvalidRequest`."""
        side = self._pairs.side
        if self._pairs.n_document is not None:
            document = self._part(document, self._pairs.n_document, "right")
        if self._pairs.truncate:  # no more than can be read is tokenised
            query, document = (_ended(text, self._wanted * CHARS_PER_TOKEN, side) for text in (query, document))
        tokens = self._tokens(query, document)
        if len(tokens) <= self._wanted:
            return tokens
        if not self._pairs.truncate:
            raise InvalidRequest(
                f"{place} has {len(tokens)} tokens together with its query, which is too large: {self._file} reads at "
                f"most {self._limit}; shorten it, cut it into several, or send truncate true to have a part read",
                field=place,
            )
        n_own, n_query, n_document = len(self._tokens("", "")), *(len(self._tokenize(t)) for t in (query, document))
        # Merged with the text around them, shortened texts may have a few tokens more than alone.
        for room in range(self._wanted - n_own, -1, -1):
            n_query = min(n_query, max(room - n_document, (room + 1) // 2))  # the longer text is shortened first
            tokens = self._tokens(self._part(query, n_query, side), self._part(document, room - n_query, side))
            if len(tokens) <= self._wanted:
                return tokens
        raise InvalidRequest(
            f"{self._wanted} tokens are too few for a pair: {self._file} has {n_own} of its own in each; allow more",
            field="truncate_prompt_tokens",
        )

    def _tokens(self, query: str, document: str) -> array[int]:
        if query != self._query:
            self._known.clear()
            self._query = query
        tokens = array("i")
        for part in self._layout:
            if isinstance(part, int):
                tokens.append(part)
            elif "{document}" in part.text:
                tokens.extend(self._filled(part, query, document))
            else:
                known = self._known.get(part)
                if known is None:
                    known = self._known[part] = self._filled(part, query, document)
                tokens.extend(known)
        return tokens

    def _filled(self, part: _Text, query: str, document: str) -> array[int]:
        texts = {"query": query, "document": document}
        text = _PLACES.sub(lambda found: texts[found[1]], part.text)
        text = text.lstrip() if part.strips_start else text
        return array("i", self._tokenize(text.rstrip() if part.strips_end else text))

    def _part(self, text: str, n_tokens: int, side: Side) -> str:
        """The text, or as much of it as has `n_tokens` tokens; the end `side` goes."""
        text = _ended(text, n_tokens * CHARS_PER_TOKEN, side)
        if len(self._tokenize(text)) <= n_tokens:
            return text
        low, high = 0, len(text)  # characters that fit, and that do not
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if len(self._tokenize(_ended(text, middle, side))) <= n_tokens else (low, middle)
        return _ended(text, low, side)


def _ended(text: str, n_chars: int, side: Side) -> str:
    """The text without what is beyond `n_chars` characters at its end `side`."""
    return text[:n_chars] if side == "right" else text[max(0, len(text) - n_chars) :]


def _has_classifier(path: Path) -> bool:
    """Whether the model ends in as many numbers as llama.cpp reads of a pair; without, it reads beyond them."""
    tensors = gguf.read_header(path).tensors
    first = tensors.get("cls.weight")
    return "cls.output.weight" in tensors or (first is not None and first.dims[1:] in {(), (1,)})


def _layout(weights: Weights) -> Iterator[int | _Text]:
    """The tokens of a pair, with places for its two texts. Raises: `EngineError`."""
    vocab = weights.vocab
    raw: bytes | None = C.llama_model_chat_template(weights.handle, _TEMPLATE)
    if raw is not None:
        yield from _parts(raw.decode("utf-8", "replace"), weights)
        return
    end, separator = int(C.llama_vocab_eos(vocab)), int(C.llama_vocab_sep(vocab))
    if end < 0:
        end = separator
    if end < 0:
        raise EngineError(
            f"{weights.path.name} has no token to put between a query and a document, and no rerank template; choose a "
            "reranker"
        )
    ends = [end] if C.llama_vocab_get_add_eos(vocab) else []
    yield from [weights.bos] if weights.bos is not None else []
    yield _Text("{query}")
    yield from ends
    yield from [separator] if C.llama_vocab_get_add_sep(vocab) else []
    yield _Text("{document}")
    yield from ends


def _parts(template: str, weights: Weights) -> Iterator[int | _Text]:
    """A template, cut at its control tokens."""
    found = {each.text: each for each in weights.specials if each.control and each.text}
    markers = re.compile("|".join(map(re.escape, sorted(found, key=len, reverse=True))) or r"(?!)")
    strips, start = False, 0
    for match in markers.finditer(template):
        special = found[match[0]]
        if match.start() > start:
            yield _Text(template[start : match.start()], strips, special.strip_left)
        yield special.id
        strips, start = special.strip_right, match.end()
    if start < len(template):
        yield _Text(template[start:], strips)
