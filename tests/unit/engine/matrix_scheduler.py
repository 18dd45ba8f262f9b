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

from tests.fake_engine import SilentLoop, SteadyCost, drafts_by, scheduler_on

from shepherd.core import Evicted, Sampling
from shepherd.engine.base import Admitted, Chunk, Done, Job, Span, Ticket
from shepherd.engine.kv.pool import Tiers
from shepherd.engine.llamacpp.runtime import ContextOptions, LlamaRuntime
from shepherd.engine.llamacpp.weights import Weights
from shepherd.engine.speculation import Speculator

GREEDY = Sampling(temperature=0, ignore_eos=True)
N_CTX, N_ANSWER, N_DRAFTED = 512, 6, 24


class Bench:
    """A cache that works, and cold ones to compare with."""

    def __init__(self, weights: Weights, options: ContextOptions, runtime: LlamaRuntime | None = None) -> None:
        self.weights = weights
        self.random = Random(7)
        self.cold_options = ContextOptions(
            n_ctx=2048, n_batch=64, n_ubatch=64, n_threads=1, flash_attention=options.flash_attention,
            cache_type_k=options.cache_type_k, cache_type_v=options.cache_type_v, swa_full=options.swa_full,
        )  # fmt: skip
        self.runtime = runtime or LlamaRuntime(weights, options)
        self.scheduler = scheduler_on(self.runtime, sequences=3, tiers=Tiers(ram_bytes=2**26))
        self.worst = 0.0
        """Of all choices that differ, the widest gap between the two best logits, in standard deviations."""
        self.cached: dict[str, int] = {}

    def say(self, n: int) -> list[int]:
        return [self.random.randrange(self.weights.n_vocab) for _ in range(n)]

    def submit(self, tokens: Sequence[int], **more: Any) -> Ticket:
        job = Job(array("i", tokens), more.pop("max_tokens", N_ANSWER), GREEDY, **more)
        ticket = Ticket(job, cast(Any, SilentLoop()))
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


def tell_drafts(
    weights: Weights, options: ContextOptions, n: int, runtime: LlamaRuntime | None = None
) -> tuple[float, dict[str, object]]:
    """`n` answers without drafts, and again with drafts: the widest gap between the two best logits where they differ,
    and counts. The drafts are the answers from before, most of them with a token changed, so that some of each is
    refused. Others are computed beside them, and conversations leave the small cache for the next ones."""
    bench = Bench(weights, options, runtime)
    drafts_by(bench.scheduler, speculator=Speculator(SteadyCost(0.0)))
    n_different = 0
    for _ in range(n):
        prompts = [bench.say(bench.random.randint(8, 40)) for _ in range(bench.random.randint(1, 3))]
        plain = [bench.submit(prompt, max_tokens=N_DRAFTED, speculate=0) for prompt in prompts]
        bench.run()
        answers = [[step for step in ticket._steps if isinstance(step, int)] for ticket in plain]
        drafted = []
        for prompt, answer in zip(prompts, answers, strict=True):
            expected = array("i", [*prompt[-3:], *answer])
            if bench.random.random() < 0.8:
                expected[bench.random.randrange(3, len(expected))] = bench.random.randrange(weights.n_vocab)
            drafted.append(bench.submit(prompt, max_tokens=N_DRAFTED, speculate=16, predicted=(expected,)))
        bench.run()
        for prompt, answer, ticket in zip(prompts, answers, drafted, strict=True):
            found = [step for step in ticket._steps if isinstance(step, int)]
            assert len(found) == len(answer) == N_DRAFTED
            if found != answer:
                n_different += 1
                bench.compare(prompt, found)
                bench.compare(prompt, answer)
    totals = bench.scheduler.queue.stats()
    bench.runtime.close()
    return bench.worst, {
        "answers": totals.jobs // 2, "different": n_different, "drafted": totals.drafted_tokens,
        "accepted": totals.accepted_tokens, "dropped": totals.dropped,
    }  # fmt: skip


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
