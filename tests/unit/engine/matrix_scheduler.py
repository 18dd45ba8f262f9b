"""The story of the engine's own work on one model, for `matrix_life.py`: many jobs over one real cache.

Every job's greedy answer is compared with a cold run: a fresh context of one sequence that decodes the whole prompt and
goes on alone. Where the two choose differently, the cold run says how far its two best tokens were apart; a choice that
was not close is a fault of ours. Jobs that evict cannot be compared where holes are possible (what stays has seen what
left); where they are not, what stays has been computed anew, and the cold run reads just that.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from random import Random
from typing import Any, cast

from tests.fake_engine import SilentLoop, scheduler_on

from shepherd.core import Evicted, Sampling
from shepherd.engine.base import Admitted, Chunk, Done, Job, Span, Ticket
from shepherd.engine.kv.pool import Tiers
from shepherd.engine.llamacpp.runtime import ContextOptions, LlamaRuntime
from shepherd.engine.llamacpp.weights import Weights

GREEDY = Sampling(temperature=0, ignore_eos=True)
N_CTX, N_ANSWER = 512, 6


class Bench:
    """A cache that works, and cold ones to compare with."""

    def __init__(self, weights: Weights, options: ContextOptions) -> None:
        self.weights = weights
        self.random = Random(7)
        self.cold_options = ContextOptions(
            n_ctx=2048, n_batch=64, n_ubatch=64, n_threads=1, flash_attention=options.flash_attention,
            cache_type_k=options.cache_type_k, cache_type_v=options.cache_type_v, swa_full=options.swa_full,
        )  # fmt: skip
        self.runtime = LlamaRuntime(weights, options)
        self.scheduler = scheduler_on(self.runtime, sequences=3, tiers=Tiers(ram_bytes=2**26))
        self.worst = 0.0
        """Of all choices that differ, the widest gap between the two best logits, in standard deviations."""
        self.cached: dict[str, int] = {}

    def say(self, n: int) -> list[int]:
        return [self.random.randrange(self.weights.n_vocab) for _ in range(n)]

    def submit(self, tokens: Sequence[int], **more: Any) -> Ticket:
        ticket = Ticket(Job(array("i", tokens), N_ANSWER, GREEDY, **more), cast(Any, SilentLoop()))
        self.scheduler.queue.add(ticket)
        return ticket

    def run(self) -> None:
        for _ in range(2000):
            self.scheduler.admit()
            if not self.scheduler.running:
                break
            self.scheduler.step()
            ledger = self.scheduler.pool.ledger
            ledger.check_self()
            for resident in ledger:
                ledger.check(resident, self.runtime.held(resident.id))
        assert not self.scheduler.waiting

    def ask(self, name: str, *prompts: Sequence[int]) -> list[list[int]]:
        """The answers to prompts that come at the same time, each compared with a cold run's."""
        tickets = [self.submit(prompt) for prompt in prompts]
        self.run()
        answers = []
        for prompt, ticket in zip(prompts, tickets, strict=True):
            steps = list(ticket._steps)
            assert isinstance(steps[0], Admitted)
            assert steps[-1] == Done("length")
            self.cached[name] = steps[0].n_cached
            answers.append([step for step in steps if isinstance(step, int)])
            self.compare(prompt, answers[-1])
        return answers

    def compare(self, prompt: Sequence[int], answer: Sequence[int]) -> None:
        cold = LlamaRuntime(self.weights, self.cold_options)
        position = 0
        for at in range(0, len(prompt), 64):
            part = array("i", prompt[at : at + 64])
            assert cold.decode([Chunk(0, part, position, logits=True)]) == "ok"
            position += len(part)
        for token in answer:
            logits = cold.logits(0)
            best, second = sorted(logits, reverse=True)[:2]
            if logits[token] != best:
                mean = sum(logits) / len(logits)
                deviation = (sum((x - mean) ** 2 for x in logits) / len(logits)) ** 0.5
                self.worst = max(self.worst, (best - second) / deviation)
                break
            assert cold.decode([Chunk(0, array("i", [token]), position, logits=True)]) == "ok"
            position += 1
        cold.close()


def tell(weights: Weights, options: ContextOptions) -> tuple[float, dict[str, object]]:
    """The widest gap of a wrong choice, and what was cached at each step."""
    bench = Bench(weights, options)
    system, first = bench.say(60), bench.say(40)
    (answer,) = bench.ask("cold", [*system, *first])
    turn = [*system, *first, *answer, *bench.say(30)]
    bench.ask("the next turn", turn)
    bench.ask("an edit", [*system, *first[:20], *bench.say(25)])
    bench.ask("the same again", turn)
    others = [bench.say(50) for _ in range(2)]
    bench.ask("three at once", [*turn, *bench.say(20)], [*system, *others[0]], others[1])
    for resident in bench.scheduler.pool.ledger.idle():
        bench.scheduler.pool.drop(resident)
    bench.ask("back from memory", [*turn, *bench.say(10)])
    evict(bench)
    if options.swa_full or weights.is_recurrent:
        assert bench.scheduler.queue.stats().restored > 0
    bench.runtime.close()
    return bench.worst, dict(bench.cached)


def evict(bench: Bench) -> None:
    """A conversation that is longer than the context, turn after turn, the whole history resent each time."""
    history = bench.say(40)
    spans = [Span(0, 40, 0, 0, keep=True)]
    evicted = 0
    for turn in range(14):
        said = bench.say(50)
        start = len(history)
        history += said
        current = Span(start, len(history), len(spans), len(spans), keep=True)
        job = (*(Span(s.start, s.stop, s.message, s.turn, s.start == 0) for s in spans), current)
        ticket = bench.submit(history, spans=job, on_full="evict", reserve=N_ANSWER)
        bench.run()
        steps = list(ticket._steps)
        assert steps[-1] == Done("length"), (turn, ticket._error)
        evicted += sum(step.tokens for step in steps if isinstance(step, Evicted))
        answer = [step for step in steps if isinstance(step, int)]
        if not bench.runtime.memory.hole:
            (resident,) = [
                r
                for r in bench.scheduler.pool.ledger
                if len(r) >= len(history) and r.tokens[:60] == array("i", history[:60])
            ]
            kept = [at for run in resident.runs for at in range(run.start, run.stop) if at < len(history)]
            bench.compare([history[at] for at in kept], answer)
        history += answer
        spans.append(Span(start, len(history), len(spans), len(spans)))
    assert evicted > 200
    bench.cached["evicted"] = evicted
