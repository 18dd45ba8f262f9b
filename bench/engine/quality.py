"""What holes cost in quality: the same conversations in caches that are too small, lived on in several ways.

    uv run python -m bench.engine.quality [--conversations N] [--model chatml.gguf] [--quick]

Made-up conversations in the embedded model's own language (`talk.py`) go on for more than two hundred turns in 768
cells. Every turn finds 256 of them free: the oldest turns have left before it. After 1, 10, 50, 100 and 200 of them
have left, every arm reads the next turns (128 to 256 tokens) from the same history, compared token by token:

    re-prefill      the resident tokens in a fresh cache: what the others are held against
    gap             holes, Shepherd's way; rebased by a shift at 0.9 of the trained positions
    shift           holes closed at once, as context shifts do
    full            nothing ever leaves; as far as the trained positions reach
    gap, no sinks   the system prompt and with it the first tokens leave, too
    nothing kept    no history at all
    keys not turned the fault that is planted: positions moved as by a shift, keys as they were

Rule: the perplexity of `gap` stays within 1 % of re-prefill's at every point, without a trend, and the last arms fail:
they show what the test would have noticed. `traces.py` measures what evicted and rewritten text leaves behind.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from bench.engine import state, traces
from bench.engine.lives import N_CTX, RESERVE, Cache, Life, Logits, departures, log_softmax, surprise
from bench.engine.talk import Talk, Turn, Writer
from bench.rig import machine, paired, plot
from bench.rig.machine import EMBEDDED
from bench.rig.paired import Estimate, Numbers
from bench.rig.verdict import WIDTH
from rich.console import Console
from rich.table import Table

from shepherd.core import Sampling
from shepherd.engine.base import Chunk, Forget, Remove
from shepherd.engine.llamacpp.weights import Weights

MARKS = (1, 10, 50, 100, 200)
"""Turns that have left when it is measured."""
N_PROBE = 128
"""Tokens that are compared, at least; at most `RESERVE`."""
LONGEST = 16_384
"""Tokens for which the arm `full` has cells; two hundred turns need fewer."""
N_SAMPLED = 128
N_GRAM = 4
LIMIT = 1.0
"""Per cent of perplexity."""
HOLES = (0, 250, 1000, 2000, 4096)
"""Bounds of the sizes of holes that are shown apart."""

BASE = "re-prefill"
MUST_FAIL = ("gap, no sinks", "nothing kept", "keys not turned")
"""The arms that show what the test would notice."""
ARMS = ("full", "gap", "shift", "gap, no sinks", "nothing kept", "keys not turned")


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured."""

    conversations: int
    sampled: int
    """Conversations that are also continued freely."""
    marks: tuple[int, ...]
    canaries: int
    edits: int


FULL = Size(20, 4, MARKS, 32, 24)
QUICK = Size(2, 1, (1, 10), 4, 4)


@dataclass(frozen=True, slots=True)
class Score:
    """One arm at one point of one conversation: sums over the tokens that were compared."""

    conversation: int
    mark: int
    arm: str
    n: int
    nll: float
    n_answers: int
    nll_answers: float
    """Of the tokens of its own answers."""
    kl: float
    """From re-prefill's distribution to this one's."""
    agreed: int
    """Tokens for which both think the same one most likely."""
    repeated: float | None
    """Share of the 4-grams in 128 sampled tokens that had been there before."""
    hole: int
    """Positions that were empty in the arm `gap`."""
    n_rebases: int
    """Of that arm, by then."""


Keep = Callable[[Score], bool]


@dataclass(frozen=True, slots=True)
class Point:
    """Where all arms are compared."""

    mark: int
    history: array[int]
    """All tokens so far, those that have left included."""
    resident: array[int]
    probe: array[int]
    is_answer: npt.NDArray[np.bool_]
    n_asked: int
    """Tokens of the probe up to where the model speaks first."""


class Bench:
    """The caches of all arms, and what was measured in them."""

    def __init__(self, weights: Weights) -> None:
        self.scores: list[Score] = []
        self._writer = Writer(weights)
        self._lived = {way: Cache(weights) for way in ("gap", "shift", "gap, no sinks")}
        self._fresh = Cache(weights)
        n_positions = self._fresh.runtime.memory.n_positions
        self._full = Cache(weights, min(n_positions or LONGEST, LONGEST))
        self._n_full = 0

    def converse(self, seed: int, marks: Sequence[int], *, sample: bool) -> None:
        """Live through one conversation and compare at every mark."""
        talk = Talk(self._writer, seed)
        turns, sizes = _turns(talk, marks[-1])
        leaving = departures(len(talk.system), sizes)
        history = talk.system[:]
        lives = {
            "gap": Life(self._lived["gap"], "gap", talk.system),
            "shift": Life(self._lived["shift"], "shift", talk.system),
            "gap, no sinks": Life(self._lived["gap, no sinks"], "gap, no sinks", talk.system),
        }
        self._full.apply([Forget(0)])
        self._n_full = 0
        left = list(marks)
        for at, (turn, leaves) in enumerate(zip(turns, leaving, strict=True)):
            for life in lives.values():
                life.leave(leaves.ranges)
            if leaves.n_left >= left[0]:
                start = len(talk.system) + sum(sizes[: leaves.n_left])
                point = _point(left[0], history, talk.system + history[start:], turns[at:])
                self._compare(seed, point, lives, sample=sample)
                while left and leaves.n_left >= left[0]:
                    left.pop(0)
                if not left:
                    return
            history += turn.tokens
            for life in lives.values():
                life.read(turn.tokens)
                life.rest()

    def _compare(self, seed: int, point: Point, lives: dict[str, Life], *, sample: bool) -> None:
        """Let every arm read the probe, and go back to where it was."""
        gap = lives["gap"]
        base: Logits | None = None

        def take(arm: str, cache: Cache, end: int) -> None:
            nonlocal base
            logits = cache.score(point.probe, end)
            nll, rows = surprise(logits, point.probe), log_softmax(logits[:-1])
            base = rows if base is None else base
            self.scores.append(
                Score(
                    conversation=seed,
                    mark=point.mark,
                    arm=arm,
                    n=len(nll),
                    nll=float(nll.sum()),
                    n_answers=int(point.is_answer.sum()),
                    nll_answers=float(nll[point.is_answer].sum()),
                    kl=float((np.exp(base) * (base - rows)).sum()),
                    agreed=int((rows.argmax(-1) == base.argmax(-1)).sum()),
                    repeated=_repeated(cache, point.probe[: point.n_asked], end, seed) if sample else None,
                    hole=gap.hole,
                    n_rebases=gap.n_rebases,
                )
            )

        fresh = self._fresh
        fresh.apply([Forget(0)])
        fresh.read(point.resident, 0)
        take(BASE, fresh, len(point.resident))
        for arm, life in lives.items():
            take(arm, life.cache, life.end)
        n = len(point.history)
        if n + RESERVE <= self._full.runtime.n_ctx:
            self._full.read(point.history[self._n_full :], self._n_full)
            self._n_full = n
            take("full", self._full, n)
        fresh.apply([Forget(0)])
        take("nothing kept", fresh, 0)
        saved = state.parse(gap.cache.runtime.save(0))
        saved.positions = np.argsort(np.argsort(saved.positions)).astype(np.int32)
        if gap.hole and fresh.runtime.load(0, state.join(saved)):
            take("keys not turned", fresh, len(saved.positions))

    def close(self) -> None:
        for cache in (*self._lived.values(), self._fresh, self._full):
            cache.runtime.close()


def _turns(talk: Talk, n_left: int) -> tuple[list[Turn], list[int]]:
    """Turns enough for `n_left` of them to leave and a probe to follow, and their sizes."""
    turns: list[Turn] = []
    sizes: list[int] = []
    while True:
        leaving = departures(len(talk.system), sizes)
        if leaving and leaving[-1].n_left >= n_left + 8 and sum(sizes[-8:]) > N_CTX:
            return turns, sizes
        turns += talk.turns(N_CTX)
        sizes = [len(turn.tokens) for turn in turns]


def _point(mark: int, history: array[int], resident: array[int], following: Sequence[Turn]) -> Point:
    n, size = 0, 0
    while size < N_PROBE:
        size += len(following[n].tokens)
        n += 1
    probe, is_answer = traces.probe_of(following[:n])
    probe, is_answer = probe[:RESERVE], is_answer[: RESERVE - 1]
    return Point(mark, history[:], resident, probe, is_answer, following[0].answers[0][0])


def _repeated(cache: Cache, asked: array[int], end: int, seed: int) -> float:
    """Let the model go on from a question, past its answer's end; the share of 4-grams that come again."""
    runtime = cache.runtime
    cache.read(asked[:-1], end)
    token, at = asked[-1], end + len(asked) - 1
    sampler = runtime.sampler(Sampling(temperature=0.8, seed=seed), ())
    sampled = []
    for n in range(N_SAMPLED):
        cache.decode([Chunk(0, array("i", [token]), at + n, True)])
        token = sampler.sample(0)
        sampled.append(token)
    sampler.close()
    cache.apply([Remove(0, end)])
    grams = [tuple(sampled[n : n + N_GRAM]) for n in range(N_SAMPLED - N_GRAM + 1)]
    return 1 - len(set(grams)) / len(grams)


# -- what came out -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Compared:
    """An arm against re-prefill."""

    conversations: int
    tokens: int
    ppl: Estimate
    """Per cent by which the perplexity is higher."""
    ppl_answers: Estimate
    """The same for the tokens of its own answers."""
    nll: Estimate
    """Nats per token more."""
    kl: float
    """Nats per token."""
    agreed: float
    """Per cent of the tokens."""
    repeated: Estimate | None
    """Per cent of 4-grams, more than after re-prefill."""


def compare(scores: Sequence[Score], arm: str, keep: Keep) -> Compared | None:
    """What the scores of an arm that are to be kept say; None without any."""
    base = {(score.conversation, score.mark): score for score in scores if score.arm == BASE}
    rows: dict[int, Numbers] = {}
    repeated: dict[int, list[float]] = {}
    for mine in scores:
        if mine.arm != arm or not keep(mine):
            continue
        other = base[mine.conversation, mine.mark]
        row = [mine.n, mine.nll, other.nll, mine.n_answers, mine.nll_answers, other.nll_answers, mine.kl, mine.agreed]
        rows[mine.conversation] = rows.get(mine.conversation, 0) + np.array(row, dtype=np.float64)
        if mine.repeated is not None and other.repeated is not None:
            repeated.setdefault(mine.conversation, []).append(100 * (mine.repeated - other.repeated))
    if not rows:
        return None
    n, nll, nll_base, n_answers, answers, answers_base, kl, agreed = np.array(list(rows.values())).T
    return Compared(
        conversations=len(rows),
        tokens=int(n.sum()),
        ppl=paired.perplexity(nll, nll_base, n),
        ppl_answers=paired.perplexity(answers, answers_base, n_answers),
        nll=paired.mean(nll - nll_base, n),
        kl=float(kl.sum() / n.sum()),
        agreed=float(100 * agreed.sum() / n.sum()),
        repeated=paired.mean(np.array([np.mean(values) for values in repeated.values()])) if repeated else None,
    )


def trend(scores: Sequence[Score], arm: str) -> dict[str, Estimate]:
    """The slope of the difference in nats, in per cent of perplexity: per hundred turns that left, and per tenfold."""
    base = {(score.conversation, score.mark): score.nll for score in scores if score.arm == BASE}
    points: dict[int, dict[int, float]] = {}
    for score in scores:
        if score.arm == arm:
            difference = 100 * (score.nll - base[score.conversation, score.mark]) / score.n
            points.setdefault(score.conversation, {})[score.mark] = difference
    marks = sorted({score.mark for score in scores})
    values = np.array([[by_mark[mark] for mark in marks] for by_mark in points.values() if len(by_mark) == len(marks)])
    at = np.array(marks, dtype=np.float64)
    return {"per 100": paired.slope(values, at / 100), "per tenfold": paired.slope(values, np.log10(at))}


def verdict(scores: Sequence[Score], marks: Sequence[int]) -> dict[str, Any]:
    """Whether the rule holds for `gap`, and which of the arms that should have failed did."""
    found = {mark: compare(scores, "gap", _at_mark(mark)) for mark in marks}
    slopes = trend(scores, "gap")
    holds = {mark: abs(here.ppl.value) <= LIMIT for mark, here in found.items() if here}
    failed = {
        arm: [mark for mark in marks if (here := compare(scores, arm, _at_mark(mark))) and abs(here.ppl.value) > LIMIT]
        for arm in MUST_FAIL
    }
    has_no_trend = all(slope.has_zero for slope in slopes.values())
    return {
        "holds_at": holds,
        "sure_at": {mark: here.ppl.stays_within(LIMIT) for mark, here in found.items() if here},
        "slope": slopes,
        "has_no_trend": has_no_trend,
        "gap_passes": all(holds.values()) and has_no_trend,
        "no_sinks_fails": len(failed["gap, no sinks"]) == len(marks),
        "planted_fault_fails": len(failed["keys not turned"]) == len(marks),
        "failed_at": failed,
    }


def _at_mark(mark: int) -> Keep:
    return lambda score: score.mark == mark


def _with_hole(low: int, high: int) -> Keep:
    return lambda score: low <= score.hole < high


def summarise(scores: Sequence[Score], marks: Sequence[int]) -> dict[str, dict[str, Any]]:
    """Every arm by turns that left, before and after the first rebase, and by the size of the hole in the arm `gap`."""
    groups: dict[str, Keep] = {
        **{f"{mark} left": _at_mark(mark) for mark in marks},
        "before a rebase": lambda score: score.n_rebases == 0,
        "after a rebase": lambda score: score.n_rebases > 0,
        **{f"hole {low} to {high}": _with_hole(low, high) for low, high in itertools.pairwise(HOLES)},
    }
    return {
        name: {arm: asdict(found) for arm in ARMS if (found := compare(scores, arm, keep))}
        for name, keep in groups.items()
    }


def show(console: Console, result: dict[str, Any]) -> None:
    """Print the tables and the verdict."""
    table = Table("when", "arm", "n", "perplexity, % more (95 %)", "of answers, % more", "KL, nats", "top-1, %",
                  "4-grams repeated, %: more", title="against re-prefill of the resident tokens")  # fmt: skip
    for name, arms in result["holes"].items():
        for arm, found in arms.items():
            table.add_row(
                name, arm, str(found["conversations"]), _said(found["ppl"]), _said(found["ppl_answers"]),
                f"{found['kl']:.5f}", f"{found['agreed']:.1f}", _said(found["repeated"]),
            )  # fmt: skip
        table.add_section()
    console.print(table)
    table = Table("string", "mean rank of 100", "first, %", "among ten, %", "advantage, nats", "than after re-prefill",
                  title="a random string that only an evicted message had; chance: 50.5, 1, 10, 0, 0")  # fmt: skip
    for case, row in result["canary"].items():
        table.add_row(case, *(_said(row[name]) for name in ("rank", "first", "among_ten", "advantage", "leak")))
    console.print(table)
    table = Table("edit", "perplexity, % more", "of answers, % more", "KL, nats", "top-1, %", "old value: cold", "kept",
                  title="the tail behind an edit kept, against a cold run of the edited conversation")  # fmt: skip
    names = ("all", "answers", "kl", "agreed", "old value, cold", "old value, kept tail")
    for case, row in result["tails"].items():
        table.add_row(case, *(_said(row.get(name)) for name in names))
    console.print(table)
    found = result["verdict"]
    for name, slope in found["slope"].items():
        console.print(f"trend of gap, {name} turns that left: {_said(slope)} % of perplexity")
    console.print(f"gap within {LIMIT:g} % at: {found['holds_at']}; with all of the interval at: {found['sure_at']}")
    console.print(f"the rule for gap {'holds' if found['gap_passes'] else 'DOES NOT HOLD'}")
    for arm, marks in found["failed_at"].items():
        console.print(f"{arm}: more than {LIMIT:g} % off at {marks or 'no point'}")
    if not found["no_sinks_fails"]:
        console.print("the arm without sinks SHOULD HAVE FAILED at every point: this says nothing about keeping them")


def _said(estimate: dict[str, float] | None) -> str:
    return str(Estimate(**estimate)) if estimate else ""


def measure(path: Path, size: Size, console: Console) -> dict[str, Any]:
    """Everything, over one model; what goes into the result file."""
    weights = Weights.load(path)
    bench = Bench(weights)
    for seed in range(size.conversations):
        bench.converse(seed, size.marks, sample=seed < size.sampled)
        console.print(f"conversation {seed + 1} of {size.conversations}")
    bench.close()
    scores = bench.scores
    result = {
        "model": path.stem,
        "threads": 1,
        "n_ctx": N_CTX,
        "reserve": RESERVE,
        "size": size,
        "verdict": verdict(scores, size.marks),
        "holes": summarise(scores, size.marks),
        "canary": traces.canary(weights, range(1000, 1000 + size.canaries)),
        "tails": traces.tails(weights, range(2000, 2000 + size.edits)),
        "scores": [asdict(score) for score in scores],
    }
    weights.close()
    plain: dict[str, Any] = json.loads(json.dumps(result, default=asdict))
    return plain


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=EMBEDDED, help="another GGUF that speaks ChatML")
    parser.add_argument("--conversations", type=int, help=f"that are lived through (default: {FULL.conversations})")
    parser.add_argument("--quick", action="store_true", help="small sizes: shows that it works, no more")
    said = parser.parse_args()
    console = Console() if sys.stdout.isatty() else Console(width=WIDTH)
    size = QUICK if said.quick else FULL
    if said.conversations:
        size = replace(size, conversations=said.conversations)
    started = time.monotonic()
    result = {"bench": "quality", **measure(said.model, size, console)}
    show(console, result)
    name = f"quality-{result['model']}"
    path = machine.save(name, result, quick=said.quick)
    console.print(f"{time.monotonic() - started:.0f} s; written to {path} and {plot.draw(path)}")


if __name__ == "__main__":
    main()
