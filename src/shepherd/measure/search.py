"""Which candidates are measured next, and when there is nothing more to learn. Pure: from state to state.

    start ─▶ State ─▶ next_comparison ─▶ (challenger, best) ─▶ measured elsewhere ─▶ record ─▶ State ─▶ … ─▶ None

Each stage is successive halving: all its candidates are compared once with the best one so far, the better half twice,
and so on. A comparison is a run of the candidate between two of the best one, of which the next comparison uses the
second again, and counts as the ratio of the scores: a machine that is slower for a minute is slower for both, and one
that becomes slower counts half. The last one left becomes the best if the interval of its ratio is clearly above 1.
What has no clear interval after `MOST_PAIRS` changes nothing: no setting without proof.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

from shepherd.core.dataclasses import dataclass, field, replace
from shepherd.measure.statistics import Interval, Noise, pooled, squares

T = TypeVar("T", bound=Hashable)
Stage = Callable[[T], Sequence[T]]

LEAST_PAIRS, MOST_PAIRS = 3, 7
"""Comparisons of the last candidate of a stage."""
MARGIN = 0.01
"""Ratios nearer to 1 than this are no difference."""
HOPELESS = -0.4
"""A candidate whose first comparison gives less than this (the logarithm of the ratio) is not compared again."""
LEAD = 0.1
"""A candidate that is ahead by more than this (the logarithm of the ratio) is worth the last comparison."""


@dataclass(frozen=True, slots=True)
class State(Generic[T]):
    """Where a search stands; plain values, so that it can be stored and continued."""

    best: T
    stage: int = -1
    alive: tuple[T, ...] = ()
    """Candidates of this stage that are still compared."""
    ratios: Mapping[T, tuple[float, ...]] = field(default_factory=dict)
    """Per candidate of this stage, the logarithms of its ratios to the best."""
    noise: Noise = ()
    """Of earlier stages: sums of squared deviations, and their degrees of freedom."""
    failed: Mapping[T, str] = field(default_factory=dict)
    """Candidates that could not be measured, and why; never tried again."""
    adopted: tuple[tuple[T, Interval], ...] = ()
    """Each new best, with its ratio to the one before."""
    n_pairs: int = 0


class Pair(NamedTuple, Generic[T]):
    """Two candidates to be measured one right after the other."""

    challenger: T
    best: T


def start(best: T, stages: Sequence[Stage[T]]) -> State[T]:
    return _settled(State(best), stages)


def next_comparison(state: State[T], *, left_s: float, pair_s: float) -> Pair[T] | None:
    """What to measure next; None when the search has ended, or when a pair would take more than what is left.

    left_s: seconds of the budget. pair_s: seconds that a pair takes.
    """
    if not state.alive or pair_s > left_s:
        return None
    challenger = min(state.alive, key=lambda each: (len(state.ratios.get(each, ())), state.alive.index(each)))
    return Pair(challenger, state.best)


def record(
    state: State[T], challenger: T, ratio: float | None, stages: Sequence[Stage[T]], *, problem: str = ""
) -> State[T]:
    """The state after a pair. ratio: the challenger's score by the best one's; None when it could not be measured."""
    if ratio is None or not ratio > 0:
        alive = tuple(each for each in state.alive if each != challenger)
        state = replace(state, alive=alive, failed={**state.failed, challenger: problem}, n_pairs=state.n_pairs + 1)
    else:
        ratios = {**state.ratios, challenger: (*state.ratios.get(challenger, ()), math.log(ratio))}
        state = replace(state, ratios=ratios, n_pairs=state.n_pairs + 1)
    return _settled(state, stages)


def likeliest(state: State[T]) -> T:
    """What is likely the best, where a search ends early: the candidate that leads a stage under way, clearly ahead of
    the best so far; else the best so far. It is not proved yet."""
    means = {each: sum(logs) / len(logs) for each in state.alive if (logs := state.ratios.get(each))}
    leader = max(means, key=lambda each: means[each], default=state.best)
    return leader if means.get(leader, 0.0) > LEAD else state.best


def interval(state: State[T], candidate: T) -> Interval:
    """The ratio of a candidate's score to the best one's, with 95 % confidence; that of the best one itself is 1."""
    return pooled(state.ratios.get(candidate, ()), noise_of(state))


def noise_of(state: State[T]) -> Noise:
    """How much comparisons of one candidate have differed so far: sums of squares, and their degrees of freedom."""
    return (*state.noise, *((squares(logs), len(logs) - 1) for logs in state.ratios.values() if len(logs) > 1))


def _settled(state: State[T], stages: Sequence[Stage[T]]) -> State[T]:
    """Candidates that have lost leave; a stage without candidates is followed by the next one that has some."""
    while True:
        state = _halved(state)
        if state.alive:
            return state
        if state.stage + 1 >= len(stages):
            return state
        noise = noise_of(state)
        stage = state.stage + 1
        alive = tuple(each for each in stages[stage](state.best) if each != state.best and each not in state.failed)
        state = replace(state, stage=stage, alive=alive, ratios={}, noise=noise)


def _halved(state: State[T]) -> State[T]:
    counts = {each: len(state.ratios.get(each, ())) for each in state.alive}
    if not counts or min(counts.values()) == 0:
        return state
    means = {each: sum(state.ratios[each]) / counts[each] for each in state.alive}
    alive = [each for each in state.alive if not (counts[each] == 1 and means[each] < HOPELESS)]
    if len({counts[each] for each in alive}) > 1:  # a round is under way
        return replace(state, alive=tuple(alive))
    if len(alive) > 1:
        alive = sorted(alive, key=lambda each: -means[each])[: -(-len(alive) // 2)]
    if len(alive) > 1:
        return replace(state, alive=tuple(alive))
    if not alive:
        return replace(state, alive=())
    last, found = alive[0], interval(state, alive[0])
    if counts[last] >= LEAST_PAIRS or found.high < 1:
        if found.low > 1 + MARGIN:
            return replace(state, best=last, alive=(), adopted=(*state.adopted, (last, found)))
        if found.high < 1 + MARGIN or counts[last] >= MOST_PAIRS:
            return replace(state, alive=())
    return replace(state, alive=(last,))
