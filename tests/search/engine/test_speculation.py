"""Sampled tokens have the same distribution with and without drafts: a chi-square test, and a fault that it sees."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.unit.engine.test_speculation_model import (
    HOT,
    Drawing,
    drawing,  # noqa: F401 - fixtures
    exact,  # noqa: F401
)

pytestmark = pytest.mark.model

N = 1500
"""Answers of each kind."""
N_TOKENS = 3


def distance(one: Sequence[object], other: Sequence[object]) -> float:
    """How many standard deviations the chi-square statistic of two samples of one size lies above its mean."""
    first, second = Counter(one), Counter(other)
    bins = [(first[key], second[key]) for key in first | second if first[key] + second[key] >= 10]
    rare = [len(one) - sum(a for a, _ in bins), len(other) - sum(b for _, b in bins)]
    cells = [*bins, (rare[0], rare[1])] if sum(rare) else bins
    statistic = sum((a - b) ** 2 / (a + b) for a, b in cells)
    freedom = len(cells) - 1
    return float((statistic - freedom) / (2 * freedom) ** 0.5)


def test_drafts_leave_the_distribution_as_it_is(drawing: Drawing) -> None:
    warm = replace(HOT, temperature=1.0)
    plain = [tuple(drawing.draw(replace(warm, seed=seed), max_tokens=N_TOKENS)[0]) for seed in range(N)]
    expected = [text for text, _ in Counter(plain).most_common(40)]
    drafted, n_drafted, n_accepted, forced = [], 0, 0, []
    likeliest = {text[0]: text for text in reversed(expected)}
    for seed in range(N, 2 * N):
        tokens, done = drawing.draw(replace(warm, seed=seed), expected, max_tokens=N_TOKENS)
        drafted.append(tuple(tokens))
        n_drafted, n_accepted = n_drafted + done.drafted, n_accepted + done.accepted
        forced.append(likeliest.get(tokens[0], tuple(tokens)))
    print(f"{n_drafted} drafted, {n_accepted} accepted")
    assert N // 4 < n_accepted < 0.95 * n_drafted
    for n in range(1, N_TOKENS + 1):
        assert abs(distance([text[:n] for text in plain], [text[:n] for text in drafted])) < 4
    assert distance(plain, forced) > 10, "drafts that are accepted unseen"
