"""Side tasks (titles, summaries) live from what conversations leave over, in cells and in time."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from random import Random
from typing import Any, cast

import pytest
from tests.fake_engine import PLAIN, RECURRENT, FakeRuntime, SilentLoop, scheduler_on

from shepherd.core import RateLimited
from shepherd.engine.base import Admitted, Done, Job, Memory, Ticket
from shepherd.engine.kv.pool import Tiers

END = 0
N_CTX = 64
RAM = Tiers(ram_bytes=20_000)
MAIN = tuple(range(1, 41))
"""A conversation that takes most of the cache."""


class ListeningLoop:
    """A loop that notes which tickets were over when it was woken for them."""

    def __init__(self) -> None:
        self.finished: list[Ticket] = []

    def call_soon_threadsafe(self, _: object, tickets: set[Ticket]) -> None:
        self.finished += [ticket for ticket in tickets if ticket.finished]


class Bench:
    """A cache on which jobs of 10 tokens each are computed in one go or step by step."""

    def __init__(self, *, memory: Memory = PLAIN, tiers: Tiers = RAM, sequences: int = 3) -> None:
        self.runtime = FakeRuntime(
            lambda tokens: 7, frozenset({END}), n_ctx=N_CTX, n_seq=8, n_batch=16, n_vocab=64, memory=memory
        )
        self.scheduler = scheduler_on(self.runtime, sequences=sequences, tiers=tiers)

    def submit(
        self, tokens: Sequence[int], n: int = 2, *, background: bool = False, loop: object | None = None
    ) -> Ticket:
        ticket = Ticket(Job(array("i", tokens), n, background=background), cast(Any, loop or SilentLoop()))
        self.scheduler.queue.add(ticket)
        return ticket

    def step(self, times: int = 1) -> None:
        for _ in range(times):
            self.scheduler.admit()
            if self.scheduler.running:
                self.scheduler.step()

    def finish(self) -> None:
        for _ in range(1000):
            self.scheduler.admit()
            if not self.scheduler.running:
                break
            self.scheduler.step()
        assert not self.scheduler.waiting

    def ask(self, tokens: Sequence[int], n: int = 2, *, background: bool = False) -> Ticket:
        ticket = self.submit(tokens, n, background=background)
        self.finish()
        return ticket


def admitted(ticket: Ticket) -> Admitted:
    return next(step for step in ticket._steps if isinstance(step, Admitted))


def ended(ticket: Ticket) -> bool:
    return any(isinstance(step, Done) for step in ticket._steps)


@pytest.mark.parametrize("memory", [PLAIN, RECURRENT], ids=["plain", "recurrent"])
def test_a_conversation_finds_all_of_its_tokens_again_however_many_side_tasks_there_were(memory: Memory) -> None:
    bench = Bench(memory=memory)
    first = bench.ask(MAIN)
    history = [*MAIN, 7, 7]
    for at in range(12):
        side = bench.ask([50, 51, *range(at, at + 16)], 4, background=True)
        assert ended(side), side._error
    again = bench.ask([*history, 3, 4])
    assert (admitted(first).n_cached, admitted(again).n_new) == (0, 3)  # the last token drawn was never computed


def test_without_these_rules_it_would_not() -> None:
    """The test above sees something."""
    bench = Bench(tiers=Tiers())
    bench.ask(MAIN)
    for at in range(12):
        bench.ask([50, 51, *range(at, at + 16)], 4)
    assert admitted(bench.ask([*MAIN, 7, 7, 3, 4])).n_new > 3


def test_a_side_task_is_refused_where_it_would_cost_a_conversation_its_cells() -> None:
    bench = Bench(tiers=Tiers())
    bench.ask(MAIN)
    refused = bench.ask([50] * 30, 4, background=True)
    assert isinstance(refused._error, RateLimited)
    assert "31 tokens are needed, 23 are free" in refused._error.message
    assert "a cache of their own" in refused._error.message
    assert admitted(bench.ask([*MAIN, 7, 7, 3])).n_new == 2
    small = bench.ask([50] * 10, 4, background=True)
    assert ended(small)


@pytest.mark.parametrize("n_steps", [1, 4], ids=["silent", "speaking"])
def test_a_side_task_that_cannot_return_is_refused_unless_it_has_answered(n_steps: int) -> None:
    bench = Bench(tiers=Tiers(), sequences=1)
    side = bench.submit([50] * 30, 8, background=True)
    bench.step(n_steps)
    bench.ask(MAIN)
    said = [step for step in side._steps if isinstance(step, int)]
    if n_steps == 1:
        assert not said
        assert isinstance(side._error, RateLimited), "an empty answer would look like one"
    else:
        assert said
        assert [step.reason for step in side._steps if isinstance(step, Done)] == ["length"]


def test_a_conversation_is_parked_in_host_memory_for_a_side_task_and_comes_back() -> None:
    bench = Bench()
    bench.ask(MAIN)
    assert ended(bench.ask([50] * 30, 4, background=True))
    assert bench.scheduler.pool.totals.saved == 1
    assert admitted(bench.ask([*MAIN, 7, 7, 3])).n_new == 2
    assert bench.scheduler.pool.totals.restored == 1


def test_side_tasks_share_what_a_conversation_has_and_leave_it_as_it_is() -> None:
    bench = Bench()
    bench.ask(MAIN)
    title = bench.ask([*MAIN, 7, 9, 9], 3, background=True)
    assert admitted(title).n_cached == len(MAIN) + 1
    assert admitted(bench.ask([*MAIN, 7, 7, 3])).n_new == 2
    assert [resident.background for resident in bench.scheduler.pool.ledger.idle()] == [True, False]


def test_what_side_tasks_leave_behind_goes_first() -> None:
    bench = Bench(tiers=Tiers())
    bench.ask(range(1, 21))
    bench.ask(range(30, 50), background=True)  # used last, and yet
    bench.ask(range(50, 63), 20)
    assert [resident.tokens[0] for resident in bench.scheduler.pool.ledger] == [1, 50]


def test_a_side_task_leaves_a_place_for_a_conversation() -> None:
    bench = Bench(sequences=2)
    bench.submit(range(1, 9), 20, background=True)
    second = bench.submit(range(11, 19), 20, background=True)
    bench.step(3)
    assert len(bench.scheduler.running) == 1
    bench.submit(range(21, 29), 20)
    bench.step()
    assert len(bench.scheduler.running) == 2
    bench.finish()
    assert ended(second)


def test_a_side_task_makes_way_on_a_cache_with_one_place_and_continues_later() -> None:
    bench = Bench(sequences=1)
    side = bench.submit(range(1, 9), 20, background=True)
    bench.step(6)
    main = bench.submit(range(21, 29), 5)
    bench.step(8)
    assert ended(main)
    assert not ended(side)
    bench.finish()
    answer = [step for step in side._steps if isinstance(step, int)]
    assert (len(answer), sum(isinstance(step, Admitted) for step in side._steps)) == (20, 1)


def test_conversations_are_started_and_read_before_side_tasks() -> None:
    bench = Bench(sequences=3)
    side = bench.submit([*range(1, 30)], 2, background=True)
    main = bench.submit([*range(31, 50)], 2)
    bench.step(1)
    assert [task.job.background for task in bench.scheduler.running] == [False, True]
    assert [task.n_done for task in bench.scheduler.running] == [16, 0]
    bench.finish()
    assert ended(side)
    assert ended(main)


@pytest.mark.parametrize("seed", range(20))
def test_no_side_task_ever_costs_a_conversation_a_token(seed: int) -> None:
    """Conversations that fit together, and any side tasks between their turns: every turn finds all that was."""
    random = Random(seed)
    bench = Bench(sequences=random.randint(1, 3))
    histories = [[10 * which + at for at in range(1, 10)] for which in (1, 2)]
    turns = 0
    while all(len(history) < 24 for history in histories):
        for _ in range(random.randint(0, 3)):
            bench.ask(
                [random.randrange(40, 60) for _ in range(random.randint(1, 20))], random.randint(1, 5), background=True
            )
        history = random.choice(histories)
        ticket = bench.ask(history, 2)
        assert admitted(ticket).n_new <= (9 if 7 not in history else 2)
        history += [7, 7, random.randrange(30, 40)]
        turns += 1
    assert turns > 3


@pytest.mark.parametrize("is_cancelled", [False, True], ids=["refused", "cancelled"])
def test_a_job_that_is_over_before_it_starts_wakes_its_caller_although_nothing_runs(is_cancelled: bool) -> None:
    bench, loop = Bench(tiers=Tiers()), ListeningLoop()
    bench.ask(MAIN)
    ticket = bench.submit([50] * 30, 4, background=True, loop=loop)
    ticket.cancelled = is_cancelled
    bench.scheduler.admit()
    assert not bench.scheduler.running, "the engine thread now waits for mail"
    assert loop.finished == [ticket]
