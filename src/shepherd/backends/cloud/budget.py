"""What the answers of providers cost, per day, and the limits of that.

    answer ─ usage ─▶ Meter.note ──▶ a line of spending/2026-11-23.jsonl ◀── other processes
    request ─▶ Meter.check ─ reads what is new in that file ─▶ BudgetExceeded until midnight

A line is appended in one write, so that processes share a file without a lock. A day ends at midnight, local time.
Answers that are running when the budget is spent end as they would. Not here: prices (the configuration has them).
"""

from __future__ import annotations

import json
import logging
import math
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from shepherd.core import BudgetExceeded, Usage
from shepherd.core.status import ProviderSpending, Spent, money_text

logger = logging.getLogger(__name__)

KEPT_DAYS = 62
"""Days whose files stay."""
_ENDING = ".jsonl"


@dataclass(frozen=True, slots=True)
class Prices:
    """Money for a million tokens, in the user's currency."""

    input: float = 0.0
    cached: float = 0.0
    """Of prompt tokens that the provider read from its cache."""
    output: float = 0.0

    def spent(self, usage: Usage) -> Spent:
        """Tokens written to a cache count as input."""
        fresh = usage.input + usage.cache_write
        money = fresh * self.input + usage.cache_read * self.cached + usage.output * self.output
        return Spent(fresh, usage.cache_read, usage.output, money / 1e6)


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits of one day; None = none."""

    tokens: int | None = None
    money: float | None = None
    prices: Prices = Prices()


class Spending:
    """What all providers of this user have cost; one for each program. Any thread."""

    def __init__(self, folder: Path, now: Callable[[], datetime] = lambda: datetime.now().astimezone()) -> None:
        """`folder` is made at the first answer; where it cannot be written, only this program's answers count."""
        self._folder = folder
        self._now = now
        self._day = ""
        self._today: dict[str, Spent] = {}
        self._own: dict[str, Spent] = {}
        """Of today, what is in no file, because writing failed."""
        self._read = 0
        """Bytes of today's file that are in `_today`."""
        self._totals: dict[str, Spent] = {}
        self._has_failed = False
        self._lock = threading.Lock()
        """The memory's vectors are made on a thread of their own."""

    def add(self, provider: str, spent: Spent) -> None:
        with self._lock:
            self._add(provider, spent)

    def _add(self, provider: str, spent: Spent) -> None:
        self._begin_day()
        self._totals[provider] = self._totals.get(provider, Spent()) + spent
        row = [provider, spent.input, spent.cached, spent.output, spent.money]
        try:
            self._append(json.dumps(row, ensure_ascii=False).encode() + b"\n")
        except OSError as error:
            self._own[provider] = self._own.get(provider, Spent()) + spent
            if not self._has_failed:
                logger.warning("spending cannot be kept in %s (%s)", self._folder, error.strerror)
            self._has_failed = True

    def today(self, provider: str) -> Spent:
        """Since midnight, of all programs of this user."""
        with self._lock:
            self._begin_day()
            self._read_new()
            return self._today.get(provider, Spent()) + self._own.get(provider, Spent())

    def total(self, provider: str) -> Spent:
        """Since the start of this program."""
        return self._totals.get(provider, Spent())

    def seconds_left(self) -> float:
        now = self._now()
        midnight = (now + timedelta(days=1)).replace(hour=0, minute=0, second=0, microsecond=0)
        return max(1.0, (midnight - now).total_seconds())

    def _file(self) -> Path:
        return self._folder / f"{self._day}{_ENDING}"

    def _begin_day(self) -> None:
        if (day := self._now().date().isoformat()) != self._day:
            self._day, self._today, self._own, self._read = day, {}, {}, 0

    def _append(self, line: bytes) -> None:
        file = self._file()
        if not file.exists():
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._drop_old()
        descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            if os.write(descriptor, line) < len(line):
                raise OSError(0, "the disk is full")
        finally:
            os.close(descriptor)

    def _drop_old(self) -> None:
        oldest = (self._now().date() - timedelta(days=KEPT_DAYS)).isoformat()
        for file in self._folder.glob(f"????-??-??{_ENDING}"):
            if file.stem < oldest:
                file.unlink(missing_ok=True)

    def _read_new(self) -> None:
        try:
            with self._file().open("rb") as file:
                if os.fstat(file.fileno()).st_size < self._read:  # it was deleted, and begun again
                    self._today, self._read = {}, 0
                file.seek(self._read)
                lines = file.read().rpartition(b"\n")[0]
        except OSError:  # nothing was spent yet
            return
        self._read += len(lines) + bool(lines)
        for provider, spent in _rows(lines):
            self._today[provider] = self._today.get(provider, Spent()) + spent


def _rows(lines: bytes) -> Iterator[tuple[str, Spent]]:
    """What can be read of a file; a damaged line counts nothing."""
    for line in lines.splitlines():
        try:
            provider, *counts, money = json.loads(line)
            row = [int(count) for count in counts]
            if len(row) == 3 and min(row) >= 0 and 0 <= money < math.inf:
                yield str(provider), Spent(row[0], row[1], row[2], float(money))
        except (ValueError, TypeError, RecursionError):
            continue


@dataclass(frozen=True, slots=True)
class Meter:
    """Counts the answers of one provider, and refuses requests when its budget is spent."""

    spending: Spending
    provider: str
    budget: Budget = Budget()

    def check(self) -> None:
        """Raises: `BudgetExceeded`."""
        budget = self.budget
        if budget.tokens is None and budget.money is None:
            return
        spent = self.spending.today(self.provider)
        if budget.tokens is not None and spent.tokens >= budget.tokens:
            self._refuse(f"{spent.tokens:,} of {budget.tokens:,} tokens", "budget_tokens")
        if budget.money is not None and spent.money >= budget.money:
            self._refuse(f"{money_text(spent.money)} of {money_text(budget.money)}", "budget_money")

    def _refuse(self, what: str, key: str) -> None:
        raise BudgetExceeded(
            f"today's budget of the provider {self.provider!r} is spent ({what}); wait until midnight, raise "
            f"providers.{self.provider}.{key}, or name another provider",
            backend=self.provider,
            retry_after_s=self.spending.seconds_left(),
        )

    def note(self, usage: Usage) -> None:
        self.spending.add(self.provider, self.budget.prices.spent(usage))

    def state(self) -> ProviderSpending:
        spending, name = self.spending, self.provider
        return ProviderSpending(spending.today(name), spending.total(name), self.budget.tokens, self.budget.money)
