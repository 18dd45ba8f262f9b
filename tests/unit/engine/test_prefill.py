"""Whose tokens go into the next decode: nobody starves, the budget holds, and the pace follows the machine."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.engine.test_background import Bench

from shepherd.engine.prefill import (
    CHUNK,
    GAP_S,
    GAP_STEPS,
    LONGEST_GAP_S,
    SHARES,
    SHORT_GAP_S,
    SMALLEST,
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
