"""The median of samples, and whether two sets of samples differ: all statistics of measuring. Pure.

    samples ─ spread ─▶ median, interval        samples, samples ─ change ─▶ ratio or difference, interval, verdict
    pairs of equal workloads ─ pooled ─▶ mean ratio, interval; the noise of all candidates together

`spread` and `change` assume nothing about how times are distributed: they have tails. The interval of a median is made
of samples (order statistics); that of a change is Hodges and Lehmann's, over all pairs of an old and a new sample.
`pooled` is for the three to seven pairs that a search can afford: Student's t, with the noise that others have shown.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from itertools import accumulate
from typing import Literal, NamedTuple

from shepherd.measure.metrics import Metric

CONFIDENCE = 0.95
MARGIN, PAIRED_MARGIN = 0.05, 0.01
"""A change by less is none: two runs of the same program differ by that much; samples taken in turn by less."""
BLOCKS = 12
"""Of a metric in a comparison: samples of the same second are alike, so a block of neighbours counts once, by its
median."""
USUAL_NOISE = 0.08
"""The deviation of the logarithm of one ratio, until enough of them have shown it."""
_T = (12.7, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13, 2.12, 2.11, 2.10)
"""Student's t for 95 %, by degrees of freedom from 1 on; 2 beyond."""

Verdict = Literal["better", "worse", "same"]
Noise = tuple[tuple[float, int], ...]
"""Of each candidate, the sum of squared deviations, and its degrees of freedom."""


class Spread(NamedTuple):
    """The median, and the interval of the true one with 95 % confidence: of fewer than six samples, all of them."""

    low: float
    median: float
    high: float
    n: int


def spread(samples: Sequence[float]) -> Spread:
    """`samples`: at least one."""
    ordered, n = sorted(samples), len(samples)
    # The true median is below the k-th of n samples as often as a coin shows heads fewer than k times.
    below = accumulate(math.comb(n, k) / 2**n for k in range(n))
    k = sum(part <= (1 - CONFIDENCE) / 2 for part in below)
    k = max(k, 1)
    return Spread(ordered[k - 1], statistics.median(ordered), ordered[n - k], n)


class Change(NamedTuple):
    """From old to new: a ratio, or a difference where a metric may be zero; with 95 % confidence."""

    low: float
    middle: float
    high: float
    is_ratio: bool
    verdict: Verdict
    """`same`: not beyond the noise."""


def change(metric: Metric, old: Sequence[float], new: Sequence[float]) -> Change | None:
    """What has changed; None where either has no samples, or one at which there is no ratio."""
    is_ratio = not metric.may_be_zero
    if not old or not new or (is_ratio and min(*old, *new) <= 0):
        return None
    some, others = _blocks(old), _blocks(new)
    if is_ratio:
        some, others = [math.log(each) for each in some], [math.log(each) for each in others]
    pairs = sorted(after - before for before in some for after in others)
    k = _rank(len(some), len(others))
    found = (pairs[k], statistics.median(pairs), pairs[-1 - k])
    step = math.log1p(MARGIN) if is_ratio else metric.step
    verdict: Verdict = "same"
    if (found[0] > 0 or found[2] < 0) and abs(found[1]) >= step and _is_enough(len(some), len(others)):
        verdict = "better" if (found[1] > 0) == metric.more_is_better else "worse"
    low, middle, high = map(math.exp, found) if is_ratio else found
    return Change(low, middle, high, is_ratio, verdict)


def paired(metric: Metric, old: Sequence[float], new: Sequence[float]) -> Change | None:
    """As `change`, where each new sample was measured right beside the old one at its place: a machine that is slower
    for a minute is slower for both. For metrics that are never zero."""
    if len(old) != len(new) or not old or min(*old, *new) <= 0:
        return change(metric, old, new)
    low, middle, high, n = spread([after / before for before, after in zip(old, new, strict=True)])
    verdict: Verdict = "same"
    if (low > 1 or high < 1) and abs(math.log(middle)) >= math.log1p(PAIRED_MARGIN) and 2 / 2**n <= 1 - CONFIDENCE:
        verdict = "better" if (middle > 1) == metric.more_is_better else "worse"
    return Change(low, middle, high, True, verdict)


class Interval(NamedTuple):
    """A ratio, with 95 % confidence."""

    low: float
    middle: float
    high: float


def pooled(logs: Sequence[float], noise: Noise) -> Interval:
    """The mean of ratios, given as logarithms. `noise`: of all candidates together, since they share the machine."""
    if not logs:
        return Interval(0.0, 1.0, math.inf)
    total = sum(square for square, _ in noise) + 2 * USUAL_NOISE**2
    freedom = sum(n for _, n in noise) + 2
    deviation = math.sqrt(total / freedom) * (_T[freedom - 1] if freedom <= len(_T) else 2.0)
    middle, half = sum(logs) / len(logs), deviation / math.sqrt(len(logs))
    return Interval(math.exp(middle - half), math.exp(middle), math.exp(middle + half))


def squares(logs: Sequence[float]) -> float:
    middle = sum(logs) / len(logs)
    return sum((each - middle) ** 2 for each in logs)


def _blocks(samples: Sequence[float]) -> list[float]:
    n, k = len(samples), min(BLOCKS, len(samples))
    return [statistics.median(samples[at * n // k : (at + 1) * n // k]) for at in range(k)]


def _is_enough(n: int, m: int) -> bool:
    """Whether so few samples can prove a change: by chance, all of one are seldom above all of the other."""
    return 2 / math.comb(n + m, n) <= 1 - CONFIDENCE


def _rank(n: int, m: int) -> int:
    """How many of the sorted differences lie outside of the interval on either side: the 2.5 % quantile of Mann and
    Whitney's statistic, exactly for few samples."""
    if n * m > 400:
        middle, deviation = n * m / 2, math.sqrt(n * m * (n + m + 1) / 12)
        return max(0, math.floor(middle - 1.96 * deviation))
    ways = _ways(n, m)
    total, seen = math.comb(n + m, n), 0
    for rank, count in enumerate(ways):
        seen += count
        if seen / total > (1 - CONFIDENCE) / 2:
            return rank
    raise AssertionError("the last count is the total")


def _ways(n: int, m: int) -> list[int]:
    """By the number of pairs in the wrong order, how many arrangements of n and m samples have it: the coefficients of
    Gauss's binomial."""
    ways = [1] + [0] * (n * m)
    for each in range(1, n + 1):
        for at in range(n * m, m + each - 1, -1):  # times 1 - q^(m + each)
            ways[at] -= ways[at - m - each]
        for at in range(each, n * m + 1):  # by 1 - q^each
            ways[at] += ways[at - each]
    return ways
