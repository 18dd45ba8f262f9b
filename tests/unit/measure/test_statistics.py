"""What samples say together: intervals that hold the true value as often as they say, and changes that were planted."""

from __future__ import annotations

import itertools
import math
import random
import statistics
from collections import Counter

import pytest

from shepherd.measure.metrics import BY_NAME, METRICS, Measured
from shepherd.measure.statistics import _ways, change, paired, spread

SLOW, FAST = BY_NAME["first_cold"], BY_NAME["prompt"]


def times(seed: int, n: int, median: float = 100.0, noise: float = 0.1) -> list[float]:
    """With a tail to the right, as times have it."""
    dice = random.Random(seed)
    return [median * dice.lognormvariate(0, noise) for _ in range(n)]


def test_the_interval_of_a_median_holds_it_in_95_of_100_runs() -> None:
    for n in (6, 15, 40):
        held = sum(low <= 100 <= high for low, _, high, _ in (spread(times(seed, n)) for seed in range(1000)))
        assert held >= 935, n
    assert spread([3.0, 1.0, 2.0]) == (1.0, 2.0, 3.0, 3), "all samples where they are few"


def test_the_interval_is_no_wider_than_it_has_to_be() -> None:
    low, median, high, n = spread([float(each) for each in range(1, 21)])
    assert (low, median, high, n) == (6.0, 10.5, 15.0, 20), "the table of order statistics for n = 20"


@pytest.mark.parametrize(("n", "m"), [(1, 1), (2, 3), (4, 4), (3, 5)])
def test_the_distribution_behind_a_change_is_the_counted_one(n: int, m: int) -> None:
    counted = Counter(
        sum(position - rank for rank, position in enumerate(places))
        for places in itertools.combinations(range(n + m), n)
    )
    assert _ways(n, m) == [counted[each] for each in range(n * m + 1)]


def test_noise_alone_is_a_change_in_at_most_five_of_a_hundred_comparisons() -> None:
    found = [change(SLOW, times(2 * seed, 10), times(2 * seed + 1, 10)) for seed in range(600)]
    outside = sum(not each.low <= 1 <= each.high for each in found if each is not None)
    assert outside <= 42
    assert sum(each.verdict != "same" for each in found if each is not None) <= outside


@pytest.mark.parametrize("factor", [1.3, 0.75])
def test_a_planted_change_is_found_and_judged_by_what_is_better(factor: float) -> None:
    slower = "worse" if factor > 1 else "better"
    faster = "better" if factor > 1 else "worse"
    for seed in range(20):
        old, new = times(seed, 10, noise=0.05), times(seed + 100, 10, 100 * factor, noise=0.05)
        for metric, verdict in ((SLOW, slower), (FAST, faster)):
            found = change(metric, old, new)
            assert found is not None
            assert found.verdict == verdict
            assert found.low < found.middle < found.high
            assert found.middle == pytest.approx(factor, rel=0.1)


def test_a_small_change_is_none_however_sure_it_is() -> None:
    found = change(SLOW, times(1, 50, noise=0.001), times(2, 50, 103.0, noise=0.001))
    assert found is not None
    assert found.low > 1
    assert found.verdict == "same"


def test_few_samples_prove_nothing() -> None:
    found = change(SLOW, [1.0, 1.1, 0.9], [9.0, 9.1, 9.2])
    assert found is not None
    assert found.verdict == "same"
    more = change(SLOW, [1.0, 1.1, 0.9, 1.0], [9.0, 9.1, 9.2, 9.3])
    assert more is not None
    assert more.verdict == "worse"


def test_a_metric_that_may_be_zero_changes_by_a_difference() -> None:
    metric = BY_NAME["computed_again"]
    found = change(metric, [0.0] * 6, [200.0, 201.0, 210.0, 190.0, 200.0, 220.0])
    assert found is not None
    assert (found.is_ratio, found.verdict) == (False, "worse")
    assert found.middle == pytest.approx(200, abs=10)
    same = change(metric, [0.0, 0.0, 3.0, 0.0], [0.0, 3.0, 0.0, 0.0])
    assert same is not None
    assert same.verdict == "same"
    assert change(SLOW, [0.0, 1.0], [1.0, 2.0]) is None, "there is no ratio to zero"
    assert change(SLOW, [], [1.0]) is None


def test_pairs_see_a_difference_below_the_noise_of_a_drifting_machine() -> None:
    drift = [100 * (1 + 0.8 * math.sin(n)) for n in range(12)]
    slower = [1.04 * each * random.Random(n).lognormvariate(0, 0.005) for n, each in enumerate(drift)]
    alone, pairs = change(SLOW, drift, slower), paired(SLOW, drift, slower)
    assert alone is not None
    assert pairs is not None
    assert (alone.verdict, pairs.verdict) == ("same", "worse")
    assert pairs.middle == pytest.approx(1.04, rel=0.01)
    assert paired(SLOW, drift[:5], slower[:5]).verdict == "same"  # type: ignore[union-attr]
    assert paired(SLOW, drift, slower[:-1]) == change(SLOW, drift, slower[:-1]), "not in pairs"


def test_every_metric_has_a_title_for_its_workload() -> None:
    found = Measured(workload={"depth": 512, "n_messages": 4000})
    assert found.title(SLOW) == "first token, new prompt of 512 tokens"
    assert len({metric.name for metric in METRICS}) == len(METRICS)
    for metric in METRICS:
        assert "{" not in found.title(metric)
    found.add(prompt=1.0, search=2.0)
    found.add(prompt=3.0)
    assert statistics.mean(found.samples["prompt"]) == 2.0


def test_a_machine_that_is_slow_for_seconds_at_a_time_seldom_shows_a_change() -> None:
    """Samples of the same seconds go up and down together; taken one by one they would show one in two of five runs."""
    rnd = random.Random(1)

    def run() -> list[float]:
        made: list[float] = []
        while len(made) < 120:
            phase = rnd.lognormvariate(7, 0.15)
            made += [phase * rnd.lognormvariate(0, 0.03) for _ in range(rnd.randint(1, 20))]
        return made[:120]

    changes = [change(BY_NAME["generation"], run(), run()) for _ in range(100)]
    assert sum(each is not None and each.verdict != "same" for each in changes) <= 20
