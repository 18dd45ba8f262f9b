"""What the program has counted since its start, for `/metrics` and `/v1/caches`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shepherd.core.status import ProviderSpending
    from shepherd.engine.stats import CacheStats


@dataclass(frozen=True, slots=True)
class Totals:
    """By name of a cache, model or provider; of the memories of all users."""

    caches: Mapping[str, CacheStats] = field(default_factory=dict)
    """Of models that make vectors or scores, too; with what closed ones have counted."""
    n_loads: Mapping[str, int] = field(default_factory=dict)
    """How often each model was loaded."""
    spending: Mapping[str, ProviderSpending] = field(default_factory=dict)
    n_archived: int = 0
    """Messages."""
    n_archive_failures: int = 0
    """How often messages could not be archived."""
    n_rerank_failures: int = 0
    """How often a search of the memory had to do without its reranker."""
