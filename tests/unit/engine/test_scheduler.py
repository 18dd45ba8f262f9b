"""Many jobs on one small pool, in any order: everybody gets what he would have got alone, and no cell is miscounted."""

from __future__ import annotations

import math
import pickle
import re
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, cast

import pytest
from tests.fake_engine import (
    PLAIN,
    RECURRENT,
    SLOW,
    FakeRuntime,
    SilentLoop,
    SteadyCost,
    SteadySpeed,
    Ticking,
    check_lines,
    drafts_by,
    scheduler_on,
)

from shepherd.core import ContextFull, Evicted, RateLimited, Sampling
from shepherd.engine.base import Admitted, Done, Job, Memory, PromptScores, Scored, Span, Special, Ticket
from shepherd.engine.draft_model import DraftModel
from shepherd.engine.grammar.mask import Constrainer
from shepherd.engine.kv.ledger import Resident
from shepherd.engine.kv.plan import kept_tokens
from shepherd.engine.kv.pool import Tiers
from shepherd.engine.scheduler import EngineOptions, Scheduler
from shepherd.engine.speculation import Speculator

N_CTX = 100
END = 99


def model(tokens: Sequence[int]) -> int:
    """A function of everything that is seen: one wrong token in the cache changes what comes next."""
    drawn = (sum(token * (at + 1) for at, token in enumerate(tokens[-9:])) + 7 * sum(tokens) + len(tokens)) % 61
    if drawn % 13 == 0:
        return END
    if tokens[0] >= 6 or drawn % 5 == 0:
        return drawn
    # It often repeats what it has seen: what stands behind the last place of these two tokens.
    at = next((at for at in range(len(tokens) - 1, 1, -1) if [*tokens[at - 2 : at]] == [*tokens[-2:]]), None)
    return drawn if at is None else tokens[at]


class Numbers:
    """A vocabulary for this model: every token is a byte, but for the end."""

    n_vocab = END + 1
    bos: int | None = None
    fim: tuple[int, int, int] | None = None
    end_tokens = frozenset({END})
    specials: tuple[Special, ...] = (Special(END, "<end>", control=True),)

    def tokenize(self, text: str) -> list[int]:
        return list(text.encode())

    def piece(self, token: int) -> bytes:
        return bytes([token]) if token != END else b"<end>"


THREE_PAIRS = r"start: /(([\x01-\x1d][\x1e-\x3c]){3})+/"
LONG_WINDED = ((15, 13, 3), (58, 8, 3), (48, 14, 3))
"""Prompts whose answers under this grammar are longer than 40 tokens."""
CONSTRAINER = Constrainer(Numbers(), frozenset({END}))


def constrained(token: int, n: int) -> int:
    """What the fake sampler makes of a token that comes after `n` others under `THREE_PAIRS`."""
    may_end = n > 0 and n % 6 == 0
    lowest, highest = (1, 0x1D) if n % 2 == 0 else (0x1E, 0x3C)
    if lowest <= token <= highest or (token == END and may_end):
        return token
    return END if may_end else lowest


def alone(job: Job) -> tuple[list[int], str]:
    """What a job gets when nothing else is there."""
    tokens, answer = list(job.tokens), list[int]()
    while True:
        token = model(tokens)
        if job.grammar is not None:
            token = constrained(token, len(answer))
        if token == END:
            return answer, "end"
        answer.append(token)
        tokens.append(token)
        if len(answer) == job.max_tokens:
            return answer, "length"


@dataclass
class Sent:
    ticket: Ticket
    job: Job

    @property
    def steps(self) -> list[Any]:
        return list(self.ticket._steps)

    @property
    def answer(self) -> list[int]:
        tokens = (step.token if isinstance(step, Scored) else step for step in self.steps)
        return [token for token in tokens if isinstance(token, int)]

    def check_scores(self) -> None:
        """As likely as the model had it with all that stands before: the logits are not those of another place."""
        whole = [*self.job.tokens, *self.answer]
        likely = [token == model(whole[:at]) for at, token in enumerate(whole)]
        read = [step for step in self.steps if isinstance(step, PromptScores)]
        said = [step for step in self.steps if isinstance(step, Scored)]
        n = len(self.job.tokens)
        assert [(score.token, score.logprob > -0.2) for score in said] == list(zip(whole, likely, strict=True))[n:]
        assert [type(step) for step in self.steps if isinstance(step, int)] == []
        assert all(score.top[0][0] == model(whole[:at]) for at, score in enumerate(said, n))
        assert len(read) <= self.job.score_prompt
        assert len(read) == self.job.score_prompt or not said
        for prompt in read:
            assert math.isnan(prompt.scores[0].logprob)
            scores = [(score.token, score.logprob > -0.2) for score in prompt.scores]
            assert scores[1:] == list(zip(whole, likely, strict=True))[1:n]
            assert not any(isinstance(step, Scored) for step in self.steps[: self.steps.index(prompt)])


SYSTEMS = (tuple(range(1, 21)), tuple(range(2, 12)), ())


def mistaken(tokens: Sequence[int]) -> int:
    """The draft model: it guesses as the model does, but for some tokens."""
    token = model(tokens)
    return token if sum(tokens) % 7 else (token + 1) % END


class Day:
    """A day in the life of one cache: everything that clients and the thread do, at random."""

    def __init__(
        self,
        seed: int,
        memory: Memory,
        tiers: Tiers,
        *,
        kind: type[Scheduler] = Scheduler,
        runtime: type[FakeRuntime] = FakeRuntime,
        on_ready: Callable[[], None] = lambda: None,
        reuse_tail: bool = False,
    ) -> None:
        self.random = Random(seed)
        self.checkpoint_bytes = 600 if seed % 4 == 0 else 1_000_000
        self.memory = memory
        self.runtime = runtime(
            model,
            frozenset({END}),
            n_ctx=N_CTX,
            n_seq=6,
            n_batch=16,
            n_outputs=6 + seed % 5,
            n_vocab=Numbers.n_vocab,
            memory=memory,
            pays_for_idle=seed % 3 == 0,
        )
        self.draft_model: DraftModel | None = None
        if seed % 4 == 2:
            small = FakeRuntime(mistaken, frozenset({END}), n_ctx=150, n_seq=4, n_batch=256, n_outputs=4)
            self.small, clock = small, Ticking(0.001)
            self.draft_model = DraftModel(small, END + 1, speed=SteadySpeed(0.001, 0.0001), clock=clock)
        self.scheduler = kind(
            self.runtime,
            EngineOptions(
                sequences=3,
                tiers=tiers,
                n_positions=120,
                reuse_tail=reuse_tail,
                checkpoint_bytes=self.checkpoint_bytes,
                speculate=seed % 2 == 0,
            ),
            name="test",
            show=lambda token: b"%d " % token,
            is_urgent=self.is_urgent,
            on_ready=on_ready,
            constrainer=CONSTRAINER,
            draft_model=self.draft_model,
        )
        if seed % 5 < 2:  # answers that have just begun stand for prompts
            self.scheduler._decode = replace(self.scheduler._decode, speed=SLOW)
        # Decodes of many tokens are cheap here: drafts pay wherever they have a chance.
        speculator = Speculator(SteadyCost(0.01))
        drafts_by(self.scheduler, speculator=speculator)
        self.sent: list[Sent] = []

    def is_urgent(self) -> bool:
        return self.random.random() < 0.2

    def pass_by(self, n_actions: int) -> None:
        actions = {self.ask: 8, self.go_on: 20, self.cancel: 3, self.compute: 30, self.rest: 8, self.break_something: 1}
        for action in self.random.choices(list(actions), list(actions.values()), k=n_actions):
            action()
            self.everything_agrees()
        if self.random.random() < 0.2:
            self.scheduler.clear()
        self.finish()

    def submit(self, job: Job) -> None:
        if self.random.random() < 0.3:
            job = replace(job, grammar=THREE_PAIRS)
        if self.random.random() < 0.25:
            job = replace(job, background=True)
        if self.random.random() < 0.25:
            job = replace(job, scores=2, score_prompt=not job.spans)
        if self.random.random() < 0.3:
            job = replace(job, speculate=self.random.choice([0, 1, 4]), predicted=(job.tokens[::-1],))
        begins = (len(system) for system in SYSTEMS if job.tokens[: len(system)].tolist() == list(system))
        job = replace(job, n_system=next(begins, 0))
        ticket = Ticket(job, cast(Any, SilentLoop()))
        self.sent.append(Sent(ticket, job))
        self.scheduler.queue.add(ticket)

    def say(self, most: int) -> list[int]:
        return [self.random.randrange(6) for _ in range(self.random.randint(1, most))]

    # -- what clients do

    def ask(self) -> None:
        self.submit(Job(array("i", [*self.random.choice(SYSTEMS), *self.say(40)]), self.random.randint(1, 39)))

    def go_on(self) -> None:
        """The next turn, with the whole history, as clients send it; older turns leave when it grows too long."""
        finished = [sent for sent in self.sent if sent.ticket.finished]
        if not finished:
            return
        last = self.random.choice(finished[-3:])
        history, said, more = [*last.job.tokens, *last.answer, END], self.say(20), self.random.randint(1, 20)
        spans = [replace(span, keep=span.start == 0) for span in last.job.spans or (Span(0, 6, 0, 0),)]
        chance = self.random.random()
        if chance < 0.1:  # somebody edits what was said
            history[self.random.randrange(len(history))] = 3
        elif chance < 0.2:  # or goes back to an earlier turn
            spans = spans[: self.random.randint(1, len(spans))]
            history = history[: spans[-1].stop]
        elif chance < 0.3 and len(history) > 60:  # or drops something in the middle
            at = self.random.randint(4, 20)
            del history[at : at + self.random.randint(1, 20)]
            spans = [Span(0, 4, 0, 0, keep=True)]
        if len(history) + len(said) + more <= N_CTX and self.random.random() < 0.5:
            self.submit(Job(array("i", [*history, *said]), more))
            return
        for start, stop in ((spans[-1].stop, len(history)), (len(history), len(history) + len(said))):
            if start < stop:
                spans.append(Span(start, stop, spans[-1].message + 1, spans[-1].turn + 1, keep=start == len(history)))
        job = Job(array("i", [*history, *said]), more, Sampling(), tuple(spans), "evict", reserve=min(more, 10))
        if kept_tokens(job) + job.reserve <= N_CTX:
            self.submit(job)

    def cancel(self) -> None:
        sent = self.random.choice(self.sent) if self.sent else None
        if sent is not None and not sent.ticket.finished:
            sent.ticket.cancelled = True
            self.scheduler.withdraw(sent.ticket)

    # -- what the thread does

    def compute(self) -> None:
        for _ in range(self.random.randint(1, 30)):
            self.scheduler.admit()
            if not self.scheduler.running:
                return
            self.scheduler.step()
            self.everything_agrees()

    def rest(self) -> None:
        if not self.scheduler.running:
            self.scheduler.idle()

    def break_something(self) -> None:
        self.runtime.faults.can_load = self.random.random() < 0.7
        self.runtime.faults.can_remove = self.random.random() < 0.7

    # -- what must hold

    def everything_agrees(self) -> None:
        ledger = self.scheduler.pool.ledger
        ledger.check_self()
        if self.draft_model is not None:
            check_lines(self.draft_model, self.small)
        assert ledger.used == len(self.runtime.cells)
        for resident in ledger:
            held = [resident.tokens[at] for at in self.indexes(resident)]
            assert self.runtime.tokens(resident.id) == held
            assert [at for run in resident.runs for at in range(run.position, run.end)] == sorted(
                self.runtime.places[resident.id]
            )
            if resident.id in self.runtime.read and self.memory.rollback == "none" and held:
                assert self.runtime.read[resident.id] == held, "a state that remembers what has left"
            for at, state in resident.checkpoints:
                _, read, _ = pickle.loads(state)
                assert read == [token for index, token in zip(self.indexes(resident), held, strict=True) if index < at]
        assert self.scheduler.pool.checkpoints.size_bytes <= self.checkpoint_bytes
        owned = [task.resident for task in self.scheduler.running]
        assert len({id(resident) for resident in owned}) == len(owned), "one conversation, one sequence"
        for task in self.scheduler.running:
            assert task.resident is not None
            assert task.resident in ledger
            assert task.resident.live
            gaps = list(task.resident.gaps())
            kept = [(span.start, span.stop) for span in task.job.spans if span.keep]
            assert not any(a < stop and start < b for a, b in kept for start, stop in gaps), "a kept span has left"
            if task.job.on_full == "error":
                assert not gaps, "this client wants everything read"
        n_tails = len(self.scheduler.pool.parked)
        assert sum(resident.live for resident in ledger) == len(self.scheduler.running) + n_tails

    @staticmethod
    def indexes(resident: Resident) -> list[int]:
        return [at for run in resident.runs for at in range(run.start, run.stop)]

    def finish(self) -> None:
        for _ in range(20_000):
            self.scheduler.admit()
            if not self.scheduler.running:
                break
            self.scheduler.step()
        assert not self.scheduler.waiting
        assert not self.scheduler.running
        self.everything_agrees()
        for sent in self.sent:
            error = sent.ticket._error
            if error is not None:
                assert isinstance(error, (ContextFull, RateLimited) if sent.job.background else ContextFull)
                assert sent.job.background or sent.job.on_full == "evict"
                continue
            steps = sent.steps
            assert isinstance(steps[-1], Done), "every job ends"
            assert sum(isinstance(step, Done) for step in steps) == 1
            if steps[-1].reason == "cancelled":
                assert sent.ticket.cancelled
            assert steps[0] == Done("cancelled") or isinstance(steps[0], Admitted)
            expected, reason = alone(sent.job)
            if sent.job.on_full == "error":
                assert sent.answer == expected[: len(sent.answer)]
                if sent.job.scores is not None:
                    sent.check_scores()
                if sent.job.background and steps[-1] == Done("length"):
                    continue  # there was no more room beside the conversations
                if steps[-1].reason != "cancelled":
                    assert (sent.answer, steps[-1].reason) == (expected, reason)
            first = steps[0]
            if isinstance(first, Admitted) and not any(isinstance(step, Evicted) for step in steps):
                assert first.n_cached + first.n_new <= len(sent.job.tokens)


SHIFTLESS = replace(PLAIN, shift=False)
RAM = Tiers(ram_bytes=20_000)
APART = replace(RAM, least_base=8)
"""Saves even short system prompts once."""


@pytest.mark.grid(0.05, family="memory")
@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize(
    ("memory", "tiers"),
    [(PLAIN, RAM), (SHIFTLESS, Tiers()), (RECURRENT, RAM), (PLAIN, APART)],
    ids=["plain", "shiftless without tiers", "recurrent", "plain, systems saved once"],
)
def test_everybody_gets_what_he_would_have_got_alone(seed: int, memory: Memory, tiers: Tiers) -> None:
    Day(seed, memory, tiers, reuse_tail=seed % 2 == 1).pass_by(150)


def test_an_answer_keeps_its_grammar_through_everything_that_can_happen_to_it() -> None:
    """Put aside, computed anew after a failure, rebased: what comes next depends on every token that was drawn."""
    day = Day(1, SHIFTLESS, Tiers())
    jobs = [Job(array("i", tokens), 60, grammar=THREE_PAIRS) for tokens in LONG_WINDED]
    for job in jobs:
        day.sent.append(Sent(ticket := Ticket(job, cast(Any, SilentLoop())), job))
        day.scheduler.queue.add(ticket)
    while not day.scheduler.pool.totals.preemptions:
        day.scheduler.admit()
        day.scheduler.step()
    day.runtime.faults.decode_error_at = max(at for places in day.runtime.places.values() for at in places) + 1
    day.finish()
    assert all(len(sent.answer) > 40 for sent in day.sent)
    assert day.runtime.faults.decode_error_at is None, "the failure has happened"


@pytest.mark.parametrize("written", ["\x02", "\x02\x1f"])
def test_what_the_prompt_has_written_is_a_part_of_the_grammar(written: str) -> None:
    day = Day(1, PLAIN, Tiers())
    job = Job(array("i", [1, 2, 3]), 20, grammar=THREE_PAIRS, written=written)
    day.scheduler.queue.add(ticket := Ticket(job, cast(Any, SilentLoop())))
    while not ticket.finished:
        day.scheduler.admit()
        day.scheduler.step()
    answer = written.encode() + bytes(step for step in ticket._steps if isinstance(step, int))
    assert re.fullmatch(rb"([\x01-\x1d][\x1e-\x3c])*[\x01-\x1d]?", answer)
    assert len(answer) >= 6


def test_a_grammar_that_fails_takes_its_job_with_it_and_nothing_else() -> None:
    day = Day(1, PLAIN, Tiers())
    tickets = [
        Ticket(Job(array("i", [n, 2, 3]), 20, grammar=grammar), cast(Any, SilentLoop()))
        for n, grammar in enumerate((None, "start: x", THREE_PAIRS, 'start: "\\u0003"', None))
    ]
    impossible = Ticket(Job(array("i", [7, 2, 3]), 20, grammar='start: "~"'), cast(Any, SilentLoop()))
    for ticket in [*tickets, impossible]:
        day.scheduler.queue.add(ticket)
    for _ in range(1000):
        day.scheduler.admit()
        if not day.scheduler.running:
            break
        day.scheduler.step()
        day.everything_agrees()
    errors = [ticket._error and ticket._error.message for ticket in [*tickets, impossible]]
    assert errors == [
        None,
        'the grammar cannot be used: line 1, column 8: unknown name: "x"',
        None,
        None,
        None,
        "the grammar cannot go on: no text satisfies it",
    ]
    assert [ticket.finished for ticket in tickets] == [True] * 5
    assert day.scheduler.pool.totals.jobs == 6


def test_without_a_constrainer_a_job_with_a_grammar_fails() -> None:
    runtime = FakeRuntime(model, frozenset({END}), n_ctx=N_CTX)
    scheduler = scheduler_on(runtime)
    job = Job(array("i", [1, 2, 3]), 20, grammar=THREE_PAIRS)
    scheduler.queue.add(ticket := Ticket(job, cast(Any, SilentLoop())))
    scheduler.admit()
    scheduler.step()
    assert ticket._error is not None
    assert ticket._error.message == "cache 'test' cannot constrain answers to a grammar"
    assert not scheduler.running
