"""Which figures there are, what their samples say together, and whether two sets of samples differ. Pure.

    samples ─ spread ─▶ median, interval        samples, samples ─ change ─▶ ratio or difference, interval, verdict

All of it without assuming how times are distributed: they have tails. The interval of a median is made of samples
(order statistics); that of a change is Hodges and Lehmann's, over all pairs of an old and a new sample.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Literal, NamedTuple

CONFIDENCE = 0.95
MARGIN, PAIRED_MARGIN = 0.05, 0.01
"""A change by less is none: two runs of the same program differ by that much; samples taken in turn by less."""
BLOCKS = 12
"""Of a figure in a comparison: samples of the same second say the same, so a block of neighbours counts once, by its
median."""

Verdict = Literal["better", "worse", "same"]


@dataclass(frozen=True, slots=True)
class Figure:
    """One row of the table."""

    name: str
    title: str
    """With the names of the workload in braces, such as `{depth}`."""
    unit: str
    more_is_better: bool = False
    may_be_zero: bool = False
    """A change is a difference in its unit, not a ratio."""
    step: float = 0.0
    """Of those: a smaller difference is none."""
    workload: tuple[str, ...] = ()
    """The names of the settings on which it depends."""


FIGURES = (
    Figure("prompt", "prompt, {depth} tokens", "tokens/s", True, workload=("depth",)),
    Figure("generation", "generation, empty context", "tokens/s", True, workload=("n_generate",)),
    Figure("generation_deep", "generation behind {depth} tokens", "tokens/s", True, workload=("depth", "n_generate")),
    Figure("first_cold", "first token, new prompt of {depth} tokens", "ms", workload=("depth",)),
    Figure("first_warm", "first token, the same with one more turn", "ms", workload=("depth",)),
    Figure("server_first", "server: first token later than in process", "ms", may_be_zero=True, step=0.5),
    Figure("server_answer", "server: answer of 16 tokens later", "ms", may_be_zero=True, step=1.0),
    Figure("eviction", "eviction: a turn leaves", "ms", workload=("n_ctx",)),
    Figure("computed_again", "eviction: tokens computed again", "tokens", may_be_zero=True, step=1.0),
    Figure("archive", "archive: messages stored durably", "messages/s", True),
    Figure("search", "search in {n_messages} messages", "ms", workload=("n_messages",)),
)
BY_NAME: Mapping[str, Figure] = {figure.name: figure for figure in FIGURES}
THROUGH_HTTP = ("prompt", "generation", "generation_deep", "first_cold", "first_warm")
"""Those that any server has."""


@dataclass(slots=True)
class Measured:
    """What is known so far of one side."""

    workload: dict[str, Any] = field(default_factory=dict)
    samples: dict[str, list[float]] = field(default_factory=dict)
    """By the name of the figure."""
    missing: dict[str, str] = field(default_factory=dict)
    """By the name of a figure, why it has no samples."""

    def add(self, **values: float) -> None:
        for name, value in values.items():
            self.samples.setdefault(name, []).append(value)

    def title(self, figure: Figure) -> str:
        return figure.title.format_map({name: self.workload.get(name, "?") for name in figure.workload})


class Spread(NamedTuple):
    """The median, and an interval that holds the true one with 95 % confidence, or all samples where they are few."""

    low: float
    median: float
    high: float
    n: int


def spread(samples: Sequence[float]) -> Spread:
    """Of at least one sample."""
    ordered, n = sorted(samples), len(samples)
    # The true median is below the k-th of n samples as often as a coin shows heads fewer than k times.
    below = accumulate(math.comb(n, k) / 2**n for k in range(n))
    k = sum(part <= (1 - CONFIDENCE) / 2 for part in below)
    k = max(k, 1)
    return Spread(ordered[k - 1], statistics.median(ordered), ordered[n - k], n)


class Change(NamedTuple):
    """From old to new: a ratio, or a difference where a figure may be zero; with 95 % confidence."""

    low: float
    middle: float
    high: float
    is_ratio: bool
    verdict: Verdict
    """`same`: not beyond the noise."""


def change(figure: Figure, old: Sequence[float], new: Sequence[float]) -> Change | None:
    """What has changed; None where either has no samples, or one at which there is no ratio."""
    is_ratio = not figure.may_be_zero
    if not old or not new or (is_ratio and min(*old, *new) <= 0):
        return None
    some, others = _blocks(old), _blocks(new)
    if is_ratio:
        some, others = [math.log(each) for each in some], [math.log(each) for each in others]
    pairs = sorted(after - before for before in some for after in others)
    k = _rank(len(some), len(others))
    found = (pairs[k], statistics.median(pairs), pairs[-1 - k])
    step = math.log1p(MARGIN) if is_ratio else figure.step
    verdict: Verdict = "same"
    if (found[0] > 0 or found[2] < 0) and abs(found[1]) >= step and _is_enough(len(some), len(others)):
        verdict = "better" if (found[1] > 0) == figure.more_is_better else "worse"
    low, middle, high = map(math.exp, found) if is_ratio else found
    return Change(low, middle, high, is_ratio, verdict)


def paired(figure: Figure, old: Sequence[float], new: Sequence[float]) -> Change | None:
    """As `change`, where each new sample was measured right beside the old one at its place: a machine that is slower
    for a minute is slower for both. For figures that are never zero."""
    if len(old) != len(new) or not old or min(*old, *new) <= 0:
        return change(figure, old, new)
    low, middle, high, n = spread([after / before for before, after in zip(old, new, strict=True)])
    verdict: Verdict = "same"
    if (low > 1 or high < 1) and abs(math.log(middle)) >= math.log1p(PAIRED_MARGIN) and 2 / 2**n <= 1 - CONFIDENCE:
        verdict = "better" if (middle > 1) == figure.more_is_better else "worse"
    return Change(low, middle, high, True, verdict)


def _blocks(samples: Sequence[float]) -> list[float]:
    n, k = len(samples), min(BLOCKS, len(samples))
    return [statistics.median(samples[at * n // k : (at + 1) * n // k]) for at in range(k)]


def _is_enough(n: int, m: int) -> bool:
    """Whether so few samples can show anything: all of one above all of the other is rare enough by chance."""
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
