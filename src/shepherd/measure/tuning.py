"""The whole of an optimisation: a first run, the search, and a last comparison of before and after.

    start ─▶ a run, which shows how long runs are ─▶ pairs of the search ─▶ pairs of start and best ─▶ Progress

`measure` is given: the same loop runs over a real model, and in tests over a made machine.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

from shepherd.core import EngineError
from shepherd.core.dataclasses import dataclass, replace
from shepherd.measure import search
from shepherd.measure.search import State
from shepherd.measure.space import AXES, Candidate, Facts, Goal, stages
from shepherd.measure.statistics import Interval
from shepherd.measure.trial import Run, Workload

SEARCHED = 0.8
"""The part of the budget that the search may use; the rest is for the last comparison."""
FINAL_PAIRS = 5
LARGE = 1.5
"""A gain that is certainly larger than this needs fewer comparisons than `search.LEAST_PAIRS`."""
SLOWEST, PATIENCE_S = 4, 3.0
"""A run may take so many times as long as usual, and so many seconds; what takes longer counts as failed."""
MOST_DEPTH, LEAST_DEPTH = 4096, 128
"""Tokens of the filled context."""
CROWDED_DEPTH = 512
"""The most where many conversations are measured, each in a context of its own."""
CUT = "the budget ended before it was measured"
"""The problem of a run that had less time than others have."""
RUNS = 24
"""The first run decides how deep the others go: so that about so many fit into the budget."""


class Measure(Protocol):
    """Measures a candidate; the real one is `measure.measure` in a child process."""

    def __call__(self, candidate: Candidate, workload: Workload, *, timeout_s: float) -> Run: ...


@dataclass(frozen=True, slots=True)
class Progress:
    """All runs so far and what they show; plain values, so that it can be stored and continued."""

    start: Candidate
    workload: Workload
    state: State[Candidate] | None = None
    """None until the first run has succeeded."""
    runs: tuple[tuple[Candidate, Run], ...] = ()
    final: tuple[float, ...] = ()
    """Logarithms of the ratios of the last comparison, of the finalist to the start."""
    finalist: Candidate | None = None
    """What the last comparison compares with the start; None = the best of the search."""

    @property
    def best(self) -> Candidate:
        """The best settings that are proved."""
        if self.state is None:
            return self.start
        found, last, n_pairs = self.state.best, self._last, len(self.final)
        if self.finalist in {None, found}:
            return self.start if last is not None and n_pairs > 1 and last.low <= 1 else found
        assert self.finalist is not None
        least = 1 + search.MARGIN if n_pairs >= search.LEAST_PAIRS else LARGE
        return self.finalist if last is not None and last.low > least else found

    @property
    def gain(self) -> Interval | None:
        """How much better the best is than the start, as a ratio with 95 % confidence; None where they were not
        compared. Without a comparison at the end that of the search counts, if it was with the start."""
        if self.state is None:
            return None
        if self.best == (self.finalist or self.state.best) and self._last is not None:
            return self._last
        first = self.state.adopted[:1]
        return first[0][1] if first and first[0][0] == self.best else None

    @property
    def _last(self) -> Interval | None:
        if self.final and self.state is not None:
            compared = State("start", ratios={"best": self.final}, noise=search.noise_of(self.state))
            return search.interval(compared, "best")
        return None

    @property
    def spent_s(self) -> float:
        """Seconds of all runs, those of earlier sessions included."""
        return sum(run.took_s for _, run in self.runs)

    def of(self, candidate: Candidate) -> list[Run]:
        """All runs of a candidate that measured something."""
        return [run for each, run in self.runs if each == candidate and not run.problem]

    @property
    def failures(self) -> dict[Candidate, str]:
        """Combinations that do not work here, and why."""
        return {candidate: run.problem for candidate, run in self.runs if run.problem}


def stage_name(progress: Progress) -> str:
    if progress.state is None:
        return "first run"
    return AXES[progress.state.stage][0] if progress.state.alive and not progress.final else "before and after"


def tune(
    start: Candidate,
    facts: Facts,
    goal: Goal,
    measure: Measure,
    *,
    budget_s: float,
    known: Progress | None = None,
    on_step: Callable[[Progress], None] = lambda _: None,
) -> Progress:
    """Search within a budget; blocks for as long. `on_step` gets every state, so that nothing is lost by an interrupt.

    known: what an earlier run found, from where this one continues.

    Raises: `EngineError` if the model cannot be measured with its own settings.
    """
    progress = known or Progress(start, Workload(LEAST_DEPTH, parallel=goal == "throughput"))
    before_s = progress.spent_s

    def left_s(share: float = 1.0) -> float:
        return share * budget_s - (progress.spent_s - before_s)

    def run(candidate: Candidate) -> Run:
        nonlocal progress
        most_s = SLOWEST * _usual_s(progress) + PATIENCE_S if progress.state is not None else math.inf
        rest_s = max(0.1, left_s())
        done = measure(candidate, progress.workload, timeout_s=min(most_s, rest_s))
        is_cut = done.took_s >= rest_s and bool(done.problem)
        done = replace(done, problem=CUT) if is_cut and progress.state is not None else done
        progress = replace(progress, runs=(*progress.runs, (candidate, done)))
        on_step(progress)
        return done

    if progress.state is None:
        first = run(start)
        if first.score(goal) is None:
            raise EngineError(f"the model cannot be measured with its settings: {first.problem or 'no speed'}")
        progress = replace(progress, workload=_deeper(progress.workload, first, facts, budget_s))
    # Steps larger than the text that is measured make no difference.
    most = max(progress.workload.depth, start.n_batch or 0, start.n_ubatch or 0)
    found = stages(replace(facts, n_ctx=min(facts.n_ctx, most)))
    if progress.state is None:
        progress = replace(progress, state=search.start(start, found))
    run_s, duel = _usual_s(progress), _Duel(run, goal)
    state = progress.state
    assert state is not None
    while (pair := search.next_comparison(state, left_s=left_s(SEARCHED), pair_s=2 * run_s)) is not None:
        ratio, problem = duel.ratio(pair)
        if problem == CUT:  # no result of the challenger
            break
        state = search.record(state, pair.challenger, ratio, found, problem=problem)
        progress = replace(progress, state=state, finalist=None, final=())
        on_step(progress)
        run_s = _usual_s(progress)
    finalist = search.likeliest(state) if state.best == start else state.best
    if finalist != progress.finalist:
        progress = replace(progress, finalist=finalist, final=())
    while finalist != start and len(progress.final) < FINAL_PAIRS and left_s() >= 2 * run_s:
        ratio, _ = duel.ratio(search.Pair(finalist, start))
        if ratio is None:
            break
        progress = replace(progress, final=(*progress.final, math.log(ratio)))
        on_step(progress)
    return progress


class _Duel:
    """Measures pairs. A best one that was measured right before counts as well: the challenger is between the two."""

    def __init__(self, run: Callable[[Candidate], Run], goal: Goal) -> None:
        self._run, self._goal = run, goal
        self._last: tuple[Candidate, float] | None = None

    def ratio(self, pair: search.Pair[Candidate]) -> tuple[float | None, str]:
        """The ratio of the challenger's score to the best one's; or None, and the problem."""
        last, self._last = self._last, None
        run = self._run(pair.challenger)
        challenger = run.score(self._goal)
        if challenger is None:
            return None, run.problem or "it has no speed"
        again = self._run(pair.best)
        best = again.score(self._goal)
        if best is None:
            return None, CUT if again.problem == CUT else "the settings that it was compared with failed"
        self._last = pair.best, best
        around = math.sqrt(best * last[1]) if last is not None and last[0] == pair.best else best
        return challenger / around, ""


def _deeper(workload: Workload, first: Run, facts: Facts, budget_s: float) -> Workload:
    """As deep as the budget allows: settings change the speed behind a filled context most."""
    spare_s = budget_s / RUNS - first.took_s
    depth, most = workload.depth, CROWDED_DEPTH if workload.parallel else MOST_DEPTH
    while depth * 2 <= min(most, facts.n_ctx // 2) and depth * 2 / first.prompt < spare_s:
        depth *= 2
    return replace(workload, depth=depth, n_generate=32 if first.deep * spare_s > 100 else workload.n_generate)


def _usual_s(progress: Progress) -> float:
    took = sorted(run.took_s for _, run in progress.runs[-9:])
    return took[len(took) // 2] * 1.1
