"""What the rules of drafts gain and lose: real answers, written again by the real scheduler, whose time is counted.

    uv run python -m bench.engine.draft_rules --model SmolLM2-135M-Instruct.Q4_1.gguf [--answers 8] [--texts FILE]

    a model writes the answers, once ──▶ FILE ──▶ Replayed: a runtime that draws what stands there ──▶ time by a curve

The texts are those of `bench.engine.speculation`. Where it forces them by a grammar they are replayed twice: under the
grammar, which takes wrong tokens from a draft, and free, as from a model that copies well. A decode of n tokens takes
what the curve says, and what the rules see of it has noise. So a number here is of the rules alone, on any machine, as
busy as it may be. All answers of a curve are one server's: what it has learnt of the decodes' cost stays.
"""

from __future__ import annotations

import argparse
import contextlib
import json
from array import array
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, cast

from bench.engine.speculation import WORKS
from bench.rig.verdict import WIDTH
from rich.console import Console
from rich.table import Table
from tests.fake_engine import FakeRuntime, FakeSampler, SilentLoop, SteadySpeed, scheduler_on

from shepherd.core import Sampling
from shepherd.engine.base import Chunk, Decoded, Done, Job, Mask, Runtime, Ticket
from shepherd.engine.grammar.gbnf import gbnf_to_lark
from shepherd.engine.grammar.mask import Constrainer
from shepherd.engine.llamacpp.runtime import ContextOptions, LlamaRuntime
from shepherd.engine.llamacpp.weights import Weights
from shepherd.engine.scheduler import Scheduler
from shepherd.engine.speculation import Speculator

SINGLE_S = 0.01
"""A decode of one token."""
NOISE = 0.1
"""What the rules see of a decode's time is this much off, at most."""
SERVERS = 3
"""That write all answers, each with its own noise."""
N_CTX = 4096

Curve = Sequence[tuple[int, float]]
CURVES: Mapping[str, Curve] = {
    "Q4_1": ((1, 1.0), (2, 2.0), (8, 5.4), (16, 9.4), (32, 18.0)),
    "Q8_0": ((1, 1.0), (2, 3.4), (4, 4.9), (8, 5.9), (16, 8.6), (32, 17.0)),
    "flat": ((1, 1.0), (33, 2.6)),
}
"""Time of a decode by its tokens, in that of one: as measured on one thread of a CPU (`bench/README.md`), and flat as
on a GPU. A prompt's token takes a 32nd of a decode of 32."""


def took(curve: Curve, n: int) -> float:
    at = min(bisect_right(curve, (n, float("inf"))), len(curve) - 1)
    (low, low_s), (high, high_s) = curve[at - 1], curve[at]
    return low_s + (high_s - low_s) * (n - low) / (high - low)


class Answer(NamedTuple):
    kind: str
    prompt: array[int]
    tokens: array[int]
    grammar: str | None


# ---- what is written


def written(path: Path, n_answers: int) -> list[Answer]:
    """So many measurements of each kind, in turn."""
    with contextlib.closing(Weights.load(path)) as weights, contextlib.closing(_runtime(weights)) as runtime:
        scheduler, found = _scheduler(runtime, Constrainer(weights, weights.end_tokens)), list[Answer]()
        for n in range(n_answers):
            for kind, (make, n_predict) in WORKS.items():
                for step in make(n):
                    prompt = array("i", weights.tokenize(step.prompt))
                    grammar, sampling = None, Sampling(temperature=0)
                    if step.forced:
                        grammar = gbnf_to_lark(f"root ::= {json.dumps(step.forced)}")
                    elif (schema := step.body.get("json_schema")) is not None:
                        grammar = f"start: %json {json.dumps(schema)}"
                    else:
                        sampling = Sampling(
                            temperature=step.body["temperature"], seed=step.body["seed"], ignore_eos=True
                        )
                    job = Job(prompt, n_predict, sampling, grammar=grammar)
                    if step.forced:
                        tokens = array("i", weights.tokenize(step.forced))[:n_predict]
                    else:
                        tokens, _ = _answered(scheduler, job)
                    found.append(Answer(kind, prompt, tokens, grammar))
            print(f"{n + 1} of {n_answers}", flush=True)
    return found


def _runtime(weights: Weights) -> LlamaRuntime:
    return LlamaRuntime(weights, ContextOptions(N_CTX, 1, n_threads=1))


def _scheduler(runtime: Runtime, constrainer: Constrainer, **options: Any) -> Scheduler:
    made = scheduler_on(runtime, **options)
    made._decode = replace(made._decode, constrainer=constrainer)
    return made


def _answered(scheduler: Scheduler, job: Job) -> tuple[array[int], Done]:
    ticket = Ticket(job, cast(Any, SilentLoop()))
    scheduler.queue.add(ticket)
    scheduler.admit()
    while scheduler.running:
        scheduler.step()
    if ticket._error is not None:
        raise ticket._error
    (done,) = [step for step in ticket._steps if isinstance(step, Done)]
    return array("i", [step for step in ticket._steps if isinstance(step, int)]), done


# ---- how it is written again


@dataclass
class Replayed(FakeRuntime):
    """Draws what stands in the answer, and counts the time that its decodes would take."""

    curve: Curve = ()
    n_prompt: int = 0
    answer: Sequence[int] = ()
    took_s: float = 0.0

    def decode(self, batch: Sequence[Chunk]) -> Decoded:
        if batch[0].position + len(batch[0].tokens) > self.n_prompt:
            self.took_s += SINGLE_S * took(self.curve, sum(len(chunk.tokens) for chunk in batch))
        return super().decode(batch)

    def sampler(self, sampling: Sampling, history: Sequence[int], mask: Mask | None = None) -> FakeSampler:
        return Following(self, mask)


class Following(FakeSampler):
    """Its grammar allows all that stands in the answer; it is asked for drafts alone."""

    def sample(self, chunk: int, behind: int = 0) -> int:
        token = self._runtime.next_token(self._runtime.seen(chunk, behind))
        if self._mask is not None:
            self._mask.accept(token)
        return token


@dataclass
class CurveSpeculator(Speculator):
    """Learns from a curve in place of a clock."""

    curve: Curve = ()
    random: Random = field(default_factory=Random)

    def observe(self, n_tokens: int, n_drafted: int, seconds: float, token_s: float) -> float:
        seconds = SINGLE_S * took(self.curve, n_tokens) * self.random.uniform(1 - NOISE, 1 + NOISE)
        return super().observe(n_tokens, n_drafted, seconds, token_s)


@dataclass
class Counts:
    n: int = 0
    took_s: float = 0.0
    drafted: int = 0
    accepted: int = 0
    rates: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        return self.n * SINGLE_S / self.took_s


def replayed(
    answers: Sequence[Answer], curve: Curve, constrainer: Constrainer, ends: frozenset[int]
) -> Mapping[str, Counts]:
    """By kind: the tokens written, and the time that it took."""
    found: defaultdict[str, Counts] = defaultdict(Counts)
    for seed in range(SERVERS):
        _replay(answers, CurveSpeculator(curve=curve, random=Random(seed)), constrainer, ends, found)
    return found


def _replay(
    answers: Sequence[Answer],
    speculator: CurveSpeculator,
    constrainer: Constrainer,
    ends: frozenset[int],
    found: Mapping[str, Counts],
) -> None:
    curve = speculator.curve
    runtime = Replayed(
        lambda tokens: runtime.answer[len(tokens) - runtime.n_prompt], ends, N_CTX, 1, N_CTX, 32, curve=curve
    )
    speed = SteadySpeed(SINGLE_S, SINGLE_S * took(curve, 32) / 32)
    scheduler = _scheduler(runtime, constrainer, speculate=True, drafting={"speculator": speculator})
    scheduler._decode = replace(scheduler._decode, speed=speed)
    for answer in answers:
        for is_free in (False, True) if answer.kind in FORCED else (False,):
            runtime.n_prompt, runtime.answer, runtime.took_s = len(answer.prompt), answer.tokens, 0.0
            runtime.batches.clear()
            grammar = None if is_free else answer.grammar
            job = Job(answer.prompt, len(answer.tokens), Sampling(ignore_eos=True), grammar=grammar)
            tokens, done = _answered(scheduler, job)
            assert tokens == answer.tokens
            counts = found[answer.kind + ", free" * is_free]
            counts.n += len(tokens) - 1  # the first one comes with the prompt
            counts.took_s += runtime.took_s
            counts.drafted += done.drafted
            counts.accepted += done.accepted
            if runtime.took_s:
                counts.rates.append((len(tokens) - 1) * SINGLE_S / runtime.took_s)


FORCED = ("edit", "tools", "session")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--answers", type=int, default=8, help="measurements of each kind of text")
    parser.add_argument("--texts", type=Path, help="what was written; made if it is not there")
    options = parser.parse_args()
    if options.texts is not None and options.texts.exists():
        rows = json.loads(options.texts.read_text())
        answers = [
            Answer(kind, array("i", prompt), array("i", tokens), grammar) for kind, prompt, tokens, grammar in rows
        ]
    else:
        answers = written(options.model, options.answers)
        if options.texts is not None:
            rows = [[each.kind, each.prompt.tolist(), each.tokens.tolist(), each.grammar] for each in answers]
            options.texts.write_text(json.dumps(rows))
    console = Console(width=WIDTH)
    table = Table("text", *CURVES, title=options.model.stem)
    with contextlib.closing(Weights.load(options.model)) as weights:
        constrainer = Constrainer(weights, weights.end_tokens)
        found = {name: replayed(answers, curve, constrainer, weights.end_tokens) for name, curve in CURVES.items()}
    for kind in found["flat"]:
        each = [found[name][kind] for name in CURVES]
        table.add_row(kind, *(f"{c.rate:.3f} (worst {min(c.rates):.2f}), {c.accepted} of {c.drafted}" for c in each))
    console.print(table)


if __name__ == "__main__":
    main()
