"""Means, perplexities and slopes over whole conversations, with 95 % intervals from a bootstrap. Medians and ratios are
those of `shepherd.measure.statistics` elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.float64]
N_RESAMPLES = 4000


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value, and the middle 95 % of what other samples of conversations would have given."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{_plain(self.value)} ({_plain(self.low)} to {_plain(self.high)})"

    @property
    def has_zero(self) -> bool:
        return self.low <= 0 <= self.high

    def stays_within(self, limit: float) -> bool:
        """Whether the whole interval lies in [-limit, limit]."""
        return -limit <= self.low and self.high <= limit


def _plain(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def mean(values: Numbers, weights: Numbers | None = None) -> Estimate:
    """The mean of one value per conversation; with weights, of sums over them (tokens)."""
    if weights is None:
        return _bootstrap(len(values), lambda index: values[index].mean(axis=-1))
    return _bootstrap(len(values), lambda index: values[index].sum(axis=-1) / weights[index].sum(axis=-1))


def median(values: Numbers) -> Estimate:
    """The median of one value per pair; for scripts that must not import the `shepherd` beside them (`--tree`)."""
    return _bootstrap(len(values), lambda index: np.median(values[index], axis=-1))


def perplexity(nll: Numbers, base: Numbers, n_tokens: Numbers) -> Estimate:
    """By how many per cent the perplexity is higher than that of `base`: sums of one conversation each."""
    difference = mean(nll - base, n_tokens)
    return Estimate(*(100 * float(np.expm1(part)) for part in (difference.value, difference.low, difference.high)))


def slope(values: Numbers, at: Numbers) -> Estimate:
    """Of the straight line through `values`, [conversations, points], over `at`, [points]."""
    centred = at - at.mean()

    def fit(index: npt.NDArray[np.int64]) -> Numbers:
        middle = values[index].mean(axis=-2)
        fitted: Numbers = (middle * centred).sum(axis=-1) / (centred**2).sum()
        return fitted

    return _bootstrap(len(values), fit)


def _bootstrap(n: int, statistic: Callable[[npt.NDArray[np.int64]], Numbers]) -> Estimate:
    """`statistic` takes indexes, [..., n], and gives a value for each row."""
    index = np.random.default_rng(0).integers(0, n, (N_RESAMPLES, n))
    low, high = np.quantile(statistic(index), (0.025, 0.975))
    return Estimate(float(statistic(np.arange(n)[None])[0]), float(low), float(high))
