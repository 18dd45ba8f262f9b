"""What the answers of providers cost, per day, and the limits of that; and how much the models here are used.

    answer ─ usage ─▶ Meter.note ──▶ a line of spending/2026-11-23.jsonl ◀── other processes
    request ─▶ Meter.check ─ reads what is new in that file ─▶ BudgetExceeded until midnight

A line is appended in one write, so that processes share a file without a lock:
[name, input, cached, output, money, answers], without the last for one answer. A day ends at midnight, local time.
Answers that are running when the budget is spent end as they would. Not here: prices (the configuration has them).
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path

from shepherd.core import BudgetExceeded, Usage
from shepherd.core.dataclasses import dataclass, field
from shepherd.core.status import ProviderSpending, Spent, money_text

logger = logging.getLogger(__name__)

KEPT_DAYS = 62
"""Days whose files stay."""
_ENDING = ".jsonl"
_READ_BYTES = 2**20
"""Of a file, at once."""


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


@dataclass(frozen=True, slots=True)
class Used:
    """How often something has answered, and what that took."""

    requests: int = 0
    spent: Spent = field(default_factory=Spent)

    def __add__(self, other: Used) -> Used:
        return Used(self.requests + other.requests, self.spent + other.spent)


@dataclass(slots=True)
class _Day:
    """What is in the file of a day, as far as it was read."""

    n_bytes: int = 0
    used: dict[str, Used] = field(default_factory=dict)


class Spending:
    """What all providers of this user have cost, or all models; one for each program. Any thread."""

    def __init__(self, folder: Path, now: Callable[[], datetime] = lambda: datetime.now().astimezone()) -> None:
        """`folder` is made at the first answer; where it cannot be written, only this program's answers count."""
        self._folder = folder
        self._now = now
        self._day = ""
        self._days: dict[str, _Day] = {}
        self._own: dict[str, Used] = {}
        """Of today, what is in no file, because writing failed."""
        self._totals: dict[str, Spent] = {}
        self._has_failed = False
        self._lock = threading.Lock()
        """The memory's vectors are made on a thread of their own."""

    def add(self, name: str, spent: Spent, requests: int = 1) -> None:
        """name: of a provider, or of a model."""
        row = [name, spent.input, spent.cached, spent.output, spent.money, *([requests] if requests != 1 else [])]
        with self._lock:
            self._begin_day()
            self._totals[name] = self._totals.get(name, Spent()) + spent
            try:
                self._append(json.dumps(row, ensure_ascii=False).encode() + b"\n")
            except OSError as error:
                self._own[name] = self._own.get(name, Used()) + Used(requests, spent)
                if not self._has_failed:
                    logger.warning("spending cannot be kept in %s (%s)", self._folder, error.strerror)
                self._has_failed = True

    def today(self, name: str) -> Spent:
        """Since midnight, of all programs of this user."""
        return self.days(1)[-1][1].get(name, Used()).spent

    def days(self, n_days: int) -> list[tuple[str, dict[str, Used]]]:
        """The last days, at most `KEPT_DAYS`, the oldest first, of all programs of this user; the last one is today.

        Reads what is new in their files."""
        with self._lock:
            self._begin_day()
            today = self._now().date()
            names = [(today - timedelta(days=ago)).isoformat() for ago in reversed(range(min(n_days, KEPT_DAYS)))]
            found = [(name, dict(self._read_new(name))) for name in names]
            for name, used in self._own.items():
                found[-1][1][name] = found[-1][1].get(name, Used()) + used
            return found

    def total(self, name: str) -> Spent:
        """Since the start of this program."""
        return self._totals.get(name, Spent())

    def seconds_left(self) -> float:
        now = self._now()
        midnight = (now + timedelta(days=1)).replace(hour=0, minute=0, second=0, microsecond=0)
        return max(1.0, (midnight - now).total_seconds())

    def _file(self, day: str) -> Path:
        return self._folder / f"{day}{_ENDING}"

    def _begin_day(self) -> None:
        if (day := self._now().date().isoformat()) != self._day:
            self._day, self._own = day, {}
            self._days = {name: each for name, each in self._days.items() if name >= self._oldest()}

    def _oldest(self) -> str:
        return (self._now().date() - timedelta(days=KEPT_DAYS)).isoformat()

    def _append(self, line: bytes) -> None:
        file = self._file(self._day)
        if not file.exists():
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for old in self._folder.glob(f"????-??-??{_ENDING}"):
                if old.stem < self._oldest():
                    old.unlink(missing_ok=True)
        descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            if os.write(descriptor, line) < len(line):
                raise OSError(0, "the disk is full")
        finally:
            os.close(descriptor)

    def _read_new(self, name: str) -> Mapping[str, Used]:
        """What a day has taken, with the new lines of its file."""
        day = self._days.setdefault(name, _Day())
        with contextlib.suppress(OSError), self._file(name).open("rb") as file:  # without one, nothing was spent yet
            if os.fstat(file.fileno()).st_size < day.n_bytes:  # it was deleted, and begun again
                day.n_bytes, day.used = 0, {}
            file.seek(day.n_bytes)
            while lines := file.read(_READ_BYTES).rpartition(b"\n")[0]:
                day.n_bytes += len(lines) + 1
                file.seek(day.n_bytes)
                for each, used in _rows(lines):
                    day.used[each] = day.used.get(each, Used()) + used
        return day.used


def _rows(lines: bytes) -> Iterator[tuple[str, Used]]:
    """What can be read of a file; a damaged line counts nothing."""
    for line in lines.splitlines():
        try:
            name, *counts, money = (row := json.loads(line))[:5]
            numbers = [int(count) for count in (*counts, *(row[5:] or (1,)))]
            if len(numbers) == 4 and min(numbers) >= 0 and 0 <= money < math.inf:
                spent = Spent(numbers[0], numbers[1], numbers[2], float(money))
                yield str(name), Used(numbers[3], spent)
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
