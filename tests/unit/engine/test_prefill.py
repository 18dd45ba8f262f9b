"""Whose tokens go into the next decode: nobody starves, the budget holds, and the pace follows the machine."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fake_engine import SteadySpeed
from tests.unit.engine.test_background import Bench

from shepherd.engine.base import Ticket
from shepherd.engine.prefill import (
    CHUNK,
    GAP_S,
    GAP_STEPS,
    LONGEST_GAP_S,
    SHARES,
    SHORT_GAP_S,
    SMALLEST,
    SOON_S,
    STANDING_S,
    STRIDE,
    SpeedEstimate,
    share_budget,
    to_stride,
)

DEMANDS = st.lists(st.integers(1, 5000), min_size=1, max_size=8).map(lambda todos: dict(enumerate(todos)))


@given(DEMANDS, st.integers(1, 1000))
def test_the_budget_is_used_and_not_exceeded(demands: dict[int, int], budget: int) -> None:
    given_ = share_budget(demands, budget)
    assert sum(given_.values()) == min(budget, sum(demands.values()))
    assert all(0 < n <= demands[key] for key, n in given_.items())


@given(DEMANDS, st.integers(2, 1000))
def test_the_oldest_gets_its_half_and_short_ones_go_first(demands: dict[int, int], budget: int) -> None:
    given_ = share_budget(demands, budget)
    assert given_[0] >= min(demands[0], budget // 2), "none starves"
    others = {key: n for key, n in demands.items() if key}
    served = [n for key, n in others.items() if given_.get(key) == n]
    waiting = [n for key, n in others.items() if key not in given_]
    assert not served or not waiting or max(served) <= min(waiting), "a short question does not wait for a long one"


def test_prompts_of_one_length_are_read_one_after_another() -> None:
    demands = {7: 80, 3: 80, 5: 80}
    read = []
    while demands:
        given_ = share_budget(demands, 60)
        read += [key for key, n in given_.items() if n == demands[key]]
        demands = {key: n - given_.get(key, 0) for key, n in demands.items() if n > given_.get(key, 0)}
    assert read == [7, 3, 5]
    assert share_budget({7: 80, 3: 80, 5: 80}, 60) == {7: 60}


def test_nothing_is_given_where_nothing_can_be() -> None:
    assert share_budget({}, 10) == {}
    assert share_budget({0: 5}, 0) == {}


@given(st.integers(1, 2 * CHUNK), st.integers(1, 5000), st.integers(0, 5000))
def test_a_prompt_that_goes_on_stops_at_a_stride_of_cells(budget: int, n_wanted: int, n_used: int) -> None:
    n = to_stride(budget, n_wanted, n_used)
    assert (n_used + n) % STRIDE == 0 or n == budget
    assert budget - n < STRIDE
    assert n == budget or STRIDE <= n < n_wanted, "what fits into one decode, and a small budget, stay as they are"
    assert n_wanted <= budget or budget < 2 * STRIDE or (n_used + n) % STRIDE == 0


def test_alone_a_prompt_is_read_in_large_chunks() -> None:
    assert SpeedEstimate().budget(n_prompts=1, n_todo=5000, n_running=0) == CHUNK


def test_beside_answers_it_is_read_carefully_until_the_machine_is_known() -> None:
    assert SMALLEST <= SpeedEstimate().budget(n_prompts=1, n_todo=5000, n_running=1) < CHUNK


@given(st.floats(1e-4, 0.5), st.floats(1e-5, 0.05), st.integers(1, 9), st.integers(1, 20_000))
def test_what_is_read_beside_answers_takes_no_longer_than_it_may(
    decode_s: float, token_s: float, n_prompts: int, n_todo: int
) -> None:
    pace = SpeedEstimate()
    for _ in range(30):
        pace.observe(decode_s, n_prompt=0, n_running=3)
        pace.observe(decode_s + 64 * token_s, n_prompt=64, n_running=3)
    budget = pace.budget(n_prompts=n_prompts, n_todo=n_todo, n_running=3)
    assert SMALLEST <= budget <= CHUNK
    if budget > SMALLEST:
        fair_s = GAP_STEPS * decode_s
        assert budget * token_s <= 1.3 * max(GAP_S, fair_s, min(LONGEST_GAP_S, fair_s * n_prompts / 3))
        assert budget * token_s <= 1.3 * max(SHORT_GAP_S, decode_s, n_todo * token_s / SHARES)


def test_many_prompts_do_not_wait_for_few_answers() -> None:
    pace = SpeedEstimate(decode_s=0.04, token_s=0.004)
    many, one = (pace.budget(n_prompts=n, n_todo=n * 1000, n_running=1) for n in (7, 1))
    assert many > 3 * one
    assert pace.budget(n_prompts=1, n_todo=1000, n_running=7) == one


def test_short_prompts_on_a_fast_model_hardly_show_in_an_answer() -> None:
    pace = SpeedEstimate(decode_s=0.001, token_s=0.0002)
    short, long = (pace.budget(n_prompts=1, n_todo=n, n_running=1) for n in (60, 6000))
    assert short == round(SHORT_GAP_S / pace.token_s)
    assert long == round(GAP_S / pace.token_s)


def test_one_slow_decode_does_not_throw_it() -> None:
    pace = SpeedEstimate()
    for _ in range(20):
        pace.observe(0.01, n_prompt=0, n_running=1)
    pace.observe(5.0, n_prompt=0, n_running=1)
    assert pace.decode_s < 0.05


def test_answers_stand_for_prompts_that_are_soon_read_each_and_together() -> None:
    pace = SpeedEstimate(decode_s=0.01, token_s=0.005)
    each, whole = round(SOON_S / pace.token_s), round(STANDING_S / pace.token_s)
    assert pace.is_soon(2 * each, n_prompts=2, standing_s=0.0)
    assert not pace.is_soon(2 * each + 2, n_prompts=2, standing_s=0.0)
    assert not pace.is_soon(each, n_prompts=2, standing_s=STANDING_S - SOON_S + 0.01)
    assert pace.is_soon(whole - 2, n_prompts=20, standing_s=0.0)
    assert not pace.is_soon(whole + 2, n_prompts=20, standing_s=0.0)
    assert not SpeedEstimate().is_soon(1, n_prompts=1, standing_s=0.0), "nothing is known of the machine"


@given(st.floats(1e-4, 0.5), st.floats(1e-5, 0.05), st.integers(1, 2 * CHUNK))
def test_a_prompt_for_which_answers_stand_is_read_in_pieces_that_cost_little(
    decode_s: float, token_s: float, n_shortest: int
) -> None:
    piece = SpeedEstimate(decode_s=decode_s, token_s=token_s).piece(n_shortest)
    assert 4 * SMALLEST <= piece <= CHUNK
    assert piece == CHUNK or ((piece + 1) * token_s >= SHARES * decode_s and piece >= n_shortest)


def crowd(token_s: float = 0.005, n_before: int = 1, *, background: bool = False) -> tuple[Bench, list[Ticket]]:
    """An answer of five tokens that has so many, and two prompts that have come since."""
    bench = Bench()
    bench.scheduler._decode = replace(bench.scheduler._decode, speed=SteadySpeed(decode_s=0.01, token_s=token_s))
    first = bench.submit(range(1, 9), 5)
    bench.step(n_before)
    assert n_written(first) == n_before
    return bench, [first, *(bench.submit(range(at, at + 20), 4, background=background) for at in (10, 40))]


def n_written(ticket: Ticket) -> int:
    return sum(isinstance(step, int) for step in ticket._steps)


def written_as_they_come(bench: Bench, tickets: list[Ticket], n_steps: int) -> list[list[int]]:
    """How many tokens each has after each step."""
    counts = []
    for _ in range(n_steps):
        bench.step()
        counts.append([n_written(ticket) for ticket in tickets])
    return counts


def test_an_answer_with_one_token_stands_until_the_prompts_that_came_with_it_are_read() -> None:
    bench, tickets = crowd()
    assert written_as_they_come(bench, tickets, 4) == [[1, 0, 0], [1, 1, 0], [2, 2, 1], [3, 3, 2]]
    bench.finish()
    assert [n_written(ticket) for ticket in tickets] == [5, 4, 4]


@pytest.mark.parametrize(
    "given",
    [{"n_before": 2}, {"token_s": 0.5}, {"background": True}, {"token_s": 1e-5}],
    ids=["it goes on already", "they take long", "side tasks", "one decode reads them"],
)
def test_else_an_answer_gets_a_token_with_every_decode(given: dict[str, Any]) -> None:
    bench, tickets = crowd(**given)
    n_before = given.get("n_before", 1)
    assert [counts[0] for counts in written_as_they_come(bench, tickets, 3)] == [n_before + n for n in (1, 2, 3)]


def test_an_answer_does_not_stand_for_long() -> None:
    bench, tickets = crowd()
    bench.scheduler.running[0].first_s -= STANDING_S
    assert [counts[0] for counts in written_as_they_come(bench, tickets, 2)] == [2, 3]


@dataclass(slots=True)
class Noting(SpeedEstimate):
    """An estimate that shows what it was told."""

    seen: list[tuple[int, int]] = field(default_factory=list)

    def observe(self, seconds: float, *, n_prompt: int, n_running: int) -> None:
        self.seen.append((n_prompt, n_running))


def test_it_is_told_what_each_decode_was_for() -> None:
    bench, noting = Bench(), Noting()
    bench.scheduler._decode = replace(bench.scheduler._decode, speed=noting)
    bench.submit(range(1, 13), 4)
    bench.step(2)
    bench.submit(range(20, 25), 2)
    bench.finish()
    assert noting.seen == [(12, 0), (0, 1), (5, 1), (0, 2)]
