"""Whether a series of a long run grows: flat, bounded or growing, with the numbers behind the word.

    level │            ┌ the end: the last third
          │      ....:''''''':....:''     its slope (Theil-Sen) times its length = what it still gains
          │   .:'                         more than the allowance, and surely more than nothing: `grows`
          │ .:                            else: has it risen before by more than that? `bounded`
          │.:                             else `flat`
          └───────────┬───────┬─── time

A process fills caches and arenas at first, so only the last third decides. It is cut into blocks, whose medians take
the place of single samples: neighbouring samples are alike, and a slope over them would look surer than it is. The
interval of the slope is Sen's, from the ranks of the slopes between all pairs of blocks.

Not here: where samples come from (`watch.py`).
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import combinations, pairwise
from math import sqrt
from typing import Any, Literal

Word = Literal["flat", "bounded", "grows", "too short"]

BLOCKS = 16
"""Of the last third. Sen's interval at 95 % of so few leaves out the 29 smallest and largest of 120 slopes."""
LEAST = 4 * BLOCKS
"""Samples in the last third: with fewer, a block is no median of anything."""
NORMAL_95 = 1.959964


@dataclass(frozen=True, slots=True)
class Allowance:
    """What a series may gain in the last third of a run and still counts as standing."""

    share: float = 0.0
    """Of its level."""
    least: float = 0.0
    """In its own unit, however small its level."""

    def at(self, level: float) -> float:
        return max(self.least, self.share * abs(level))


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one series did."""

    word: Word
    first: float
    """Its median in the first twelfth of the run."""
    last: float
    """And in the last twelfth."""
    gain: float = 0.0
    """What it gains in the last third."""
    low: float = 0.0
    """The least that it gains there, at 95 %."""
    high: float = 0.0
    allowed: float = 0.0

    def as_json(self) -> dict[str, Any]:
        return {name: round(value, 3) if isinstance(value, float) else value for name, value in asdict(self).items()}


def judge(times_s: Sequence[float], levels: Sequence[float], allowance: Allowance) -> Verdict:
    """What the series does; samples in the order of their times."""
    if len(times_s) < 3 * LEAST:
        ends = (levels[0], levels[-1]) if levels else (0.0, 0.0)
        return Verdict("too short", *ends)
    twelfth = max(1, len(levels) // 12)
    first, last = statistics.median(levels[:twelfth]), statistics.median(levels[-twelfth:])
    start_s = times_s[0] + (times_s[-1] - times_s[0]) * 2 / 3
    at = next(index for index, time_s in enumerate(times_s) if time_s >= start_s)
    middle, low, high = slope(*_blocks(times_s[at:], levels[at:]))
    length_s = times_s[-1] - times_s[at]
    gain, allowed = middle * length_s, allowance.at(last)
    word: Word = "flat"
    if low > 0 and gain > allowed:
        word = "grows"
    elif last - first > allowed:
        word = "bounded"
    return Verdict(word, first, last, gain, low * length_s, high * length_s, allowed)


def slope(times_s: Sequence[float], levels: Sequence[float]) -> tuple[float, float, float]:
    """Theil-Sen's slope per second, and the bounds of its 95 % interval (Sen 1968)."""
    points = zip(times_s, levels, strict=True)
    slopes = sorted((b - a) / (t - s) for (s, a), (t, b) in combinations(points, 2) if t > s)
    n = len(times_s)
    width = NORMAL_95 * sqrt(n * (n - 1) * (2 * n + 5) / 18)
    below = max(0, round((len(slopes) - width) / 2))
    return statistics.median(slopes), slopes[below], slopes[-1 - below]


def _blocks(times_s: Sequence[float], levels: Sequence[float]) -> tuple[list[float], list[float]]:
    """The medians of `BLOCKS` pieces of equal length."""
    edges = [len(levels) * block // BLOCKS for block in range(BLOCKS + 1)]
    pieces = [slice(start, stop) for start, stop in pairwise(edges) if stop > start]
    return [statistics.median(times_s[piece]) for piece in pieces], [
        statistics.median(levels[piece]) for piece in pieces
    ]


def thinned(times_s: Sequence[float], levels: Sequence[float], limit: int = 400) -> tuple[list[float], list[float]]:
    """At most `limit` points that look alike: of each stretch its median."""
    if len(levels) <= limit:
        return list(times_s), list(levels)
    edges = [len(levels) * at // limit for at in range(limit + 1)]
    pieces = [slice(start, stop) for start, stop in pairwise(edges)]
    return [times_s[piece][0] for piece in pieces], [statistics.median(levels[piece]) for piece in pieces]
