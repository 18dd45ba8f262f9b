"""What the models of this machine compute is put down day by day, once, by every program."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from tests.in_time import until

from shepherd.app.usage import DayOfUse, LocalUse, days_of
from shepherd.backends.cloud.budget import Spending
from shepherd.core.status import Spent
from shepherd.engine.stats import CacheStats


class Clock:
    def __init__(self) -> None:
        self.now = datetime(2026, 11, 27, 23, 0, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


def test_only_what_is_new_is_put_down_and_on_the_day_on_which_it_is(tmp_path: Path) -> None:
    clock, counts = Clock(), {"main": ("lamb", CacheStats(64))}
    use = LocalUse(Spending(tmp_path / "usage", clock), lambda: counts)
    use.save()
    assert not (tmp_path / "usage").exists(), "nothing was computed yet"
    counts["main"] = ("lamb", CacheStats(64, jobs=3, prefilled_tokens=20, cached_tokens=7, generated_tokens=9))
    use.save()
    use.save()
    clock.now += timedelta(hours=2)
    counts["main"] = ("lamb", CacheStats(64, jobs=4, prefilled_tokens=21, cached_tokens=17, generated_tokens=10))
    counts["vectors"] = ("bge", CacheStats(64, jobs=1, prefilled_tokens=5))
    use.save()
    LocalUse(Spending(tmp_path / "usage", clock), lambda: {"main": ("lamb", CacheStats(64, jobs=1))}).save()
    providers = Spending(tmp_path / "spending", clock)
    providers.add("lamb", Spent(1, 2, 3, 0.5))
    assert list(days_of(use.kept, providers, 2)) == [
        DayOfUse("2026-11-27", "lamb", False, 3, 20, 7, 9, 0.0),
        DayOfUse("2026-11-28", "bge", False, 1, 5, 0, 0, 0.0),
        DayOfUse("2026-11-28", "lamb", False, 2, 1, 10, 1, 0.0),
        DayOfUse("2026-11-28", "lamb", True, 1, 1, 2, 3, 0.5),
    ]


async def test_it_is_put_down_again_and_again_until_the_end(tmp_path: Path) -> None:
    kept, waits, minute = Spending(tmp_path), list[float](), asyncio.Event()

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        await minute.wait()
        minute.clear()

    def has_kept(n: int) -> bool:
        used = kept.days(1)[-1][1]
        return bool(used) and used["lamb"].requests == n

    use = LocalUse(kept, lambda: {"main": ("lamb", CacheStats(64, jobs=len(waits)))}, sleep=sleep)
    use.start()
    for n in (1, 2):
        minute.set()
        await until(partial(has_kept, n))
    await use.aclose()
    assert set(waits) == {60.0}
