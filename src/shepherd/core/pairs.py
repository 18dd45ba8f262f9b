"""Pairs of a query and a document, and the scores that a reranker gives them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from shepherd.core.dataclasses import dataclass

Side = Literal["left", "right"]

MAX_PAIRS = 10_000
"""Of one request."""


@dataclass(frozen=True, slots=True)
class Pairs:
    """Queries with documents, and what to do with long ones."""

    texts: tuple[tuple[str, str], ...]
    """Each a query and a document."""
    truncate: bool = False
    """Shorten a pair that is too long, the longer of its texts first, instead of refusing it."""
    side: Side = "right"
    """The end of a text that is then left out."""
    n_tokens: int | None = None
    """Most tokens of a pair that is shortened, special ones included; None = as many as the model reads."""
    n_document: int | None = None
    """Most tokens read of a document; the rest is left out."""
    place: str = "documents[{}]"
    """How messages name a document; `{}` = its index."""

    @classmethod
    def beginnings(cls, query: str, texts: Sequence[str]) -> Pairs:
        """A query with as much of each text as the model reads."""
        return cls(tuple((query, text) for text in texts), truncate=True)


@dataclass(frozen=True, slots=True)
class Scores:
    """What a reranker says of some pairs, in their order."""

    values: tuple[float, ...]
    """As the model computes them: greater is more relevant. Without limits, unless `is_probable`."""
    n_tokens: tuple[int, ...]
    """Tokens read of each pair."""
    is_probable: bool = False
    """The values are from 0 to 1."""
    model: str = ""
    """The id of its card."""

    @property
    def probabilities(self) -> tuple[float, ...]:
        """The values, brought between 0 and 1 by the logistic function if they are not there already."""
        return self.values if self.is_probable else tuple(0.5 + 0.5 * math.tanh(value / 2) for value in self.values)
