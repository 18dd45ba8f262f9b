"""How much the models of this machine and the providers were used, since the start of the program and day by day.

    engines ─ counts since the start ─ LocalUse.save ─▶ usage/2026-11-28.jsonl ─┐
    providers ─ Meter.note ───────────────────────────▶ spending/2026-11-28.jsonl ─┴▶ days ─▶ `GET /v1/usage`
    answers to a key with a user ─ UseByUser.note ─▶ usage/users/<digest>/*: what such a key sees

What the engines have counted is written once a minute, where it has changed, and at the end: a program that is killed
loses its last minute. Not here: the files and their limits (`backends/cloud/budget.py`).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from hashlib import blake2b
from pathlib import Path

from shepherd.backends.cloud.budget import KEPT_DAYS, Prices, Spending
from shepherd.core import Usage
from shepherd.core.dataclasses import dataclass, field
from shepherd.core.request import parts_of_owner
from shepherd.core.status import ProviderSpending, Spent
from shepherd.engine.stats import CacheStats

__all__ = ["KEPT_DAYS", "DayOfUse", "LocalUse", "Totals", "UseByUser", "days_of"]

SAVE_S = 60.0
_COUNTS = ("jobs", "prefilled_tokens", "cached_tokens", "generated_tokens")


@dataclass(frozen=True, slots=True)
class Totals:
    """What the program has counted since its start, by name; of the memories, those of all users."""

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


@dataclass(frozen=True, slots=True)
class DayOfUse:
    day: str
    """As 2026-11-28, of this machine's clock."""
    name: str
    """Of a model here, or of a provider."""
    is_provider: bool
    requests: int
    """Answers, those of side tasks too."""
    input: int
    """Prompt tokens that were computed; of a provider, those that were not in its cache."""
    cached: int
    output: int
    money: float
    """By the prices of the configuration."""


class LocalUse:
    """What the models of this program compute, put down for all programs of this user."""

    def __init__(
        self,
        kept: Spending,
        counts: Callable[[], Mapping[str, tuple[str, CacheStats]]],
        *,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        """`counts`: by cache, its model, and its figures since the start; any thread."""
        self.kept = kept
        self._counts, self._sleep = counts, sleep
        self._saved: dict[str, tuple[int, ...]] = {}
        self._saving = threading.Lock()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._save_often())

    async def aclose(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait((task,))

    async def _save_often(self) -> None:
        while True:
            await self._sleep(SAVE_S)
            await asyncio.to_thread(self.save)

    def save(self) -> None:
        """Put down what is new. Writes a file: not on the event loop."""
        with self._saving:
            for cache, (model, stats) in self._counts().items():
                now = tuple(int(getattr(stats, name)) for name in _COUNTS)
                before = self._saved.get(cache, (0,) * len(now))
                new = [max(0, n - old) for n, old in zip(now, before, strict=True)]
                if any(new):
                    requests, computed, cached, output = new
                    self.kept.add(model, Spent(computed, cached, output), requests)
                self._saved[cache] = now


class UseByUser:
    """What was answered to each user of an API key: whole answers, and none that was stopped."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._kept: dict[str, tuple[Spending, Spending]] = {}

    def note(self, owner: str, name: str, usage: Usage, prices: Prices | None = None) -> None:
        """Count an answer to an `owner` (`Request.owner`); nothing for one without a user. `prices`: of a provider;
        None = a model here."""
        if user := parts_of_owner(owner)[0]:
            self.of(user)[prices is not None].add(name, (prices or Prices()).spent(usage))

    def of(self, user: str) -> tuple[Spending, Spending]:
        """Of models here, and of providers."""
        if user not in self._kept:
            folder = self._folder / blake2b(user.encode("utf-8", "replace"), digest_size=16).hexdigest()
            self._kept[user] = Spending(folder / "models"), Spending(folder / "providers")
        return self._kept[user]


def days_of(models: Spending, providers: Spending, n_days: int) -> Iterator[DayOfUse]:
    """The oldest day first; a day on which something was not used has no row for it."""
    for is_provider, kept in ((False, models), (True, providers)):
        for day, used in kept.days(n_days):
            for name, each in sorted(used.items()):
                spent = each.spent
                tokens = (spent.input, spent.cached, spent.output)
                yield DayOfUse(day, name, is_provider, each.requests, *tokens, spent.money)
