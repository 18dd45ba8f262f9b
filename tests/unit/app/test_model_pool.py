"""Models that come and go: who leaves for whom, what is waited for, what a failure does; with models that are only
names, on a clock that a test moves."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.in_time import until

from shepherd.app.model_pool import ModelPool, Residency
from shepherd.core import EngineDown, EngineError
from shepherd.models.sizing import IdleModel, to_unload
from shepherd.process.child import Cancelled


@dataclass(eq=False)
class Model:
    name: str
    log: list[str]
    closing: threading.Event

    def close(self) -> None:
        assert self.closing.wait(30)
        self.log.append(f"-{self.name}")


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@dataclass
class Yard:
    pool: ModelPool[Model]
    log: list[str]
    """`+name` when opened, `-name` when closed."""
    clock: Clock
    failing: dict[str, Exception]
    gate: threading.Event
    """Opening waits for it."""
    closing: threading.Event
    """So does closing."""

    def turn_clock(self, by_s: float) -> None:
        self.clock.now_s += by_s
        with self.pool._turn:
            self.pool._turn.notify()


@contextmanager
def yard(budget: int, terms: dict[str, Residency]) -> Iterator[Yard]:
    log: list[str] = []
    clock, gate, closing = Clock(), threading.Event(), threading.Event()
    failing: dict[str, Exception] = {}
    gate.set()
    closing.set()

    def open_model(name: str) -> Model:
        assert gate.wait(30)
        if name in failing:
            raise failing[name]
        log.append(f"+{name}")
        return Model(name, log, closing)

    pool = ModelPool(open_model, budget_bytes=budget, clock=clock)
    for name, each in terms.items():
        pool.add({name: each})
    try:
        yield Yard(pool, log, clock, failing, gate, closing)
    finally:
        gate.set()
        closing.set()
        pool.close()


async def use(made: Yard, *names: str, keep_alive_s: float | None = None) -> None:
    for name in names:
        async with made.pool.use(name, keep_alive_s) as model:
            assert model.name == name
        made.clock.now_s += 1


def small(*names: str, n_bytes: int = 4) -> dict[str, Residency]:
    return {name: Residency(n_bytes, 300.0) for name in names}


async def test_a_model_is_opened_at_its_first_use_and_once() -> None:
    with yard(10, small("a", "b")) as made:
        assert made.log == []
        await use(made, "a", "b", "a")
        assert made.log == ["+a", "+b"]
        assert made.pool.n_loads() == {"a": 1, "b": 1}


async def test_the_longest_unused_one_leaves_for_a_new_one() -> None:
    with yard(10, small("a", "b", "c")) as made:
        await use(made, "a", "b", "a", "c")
        assert made.log == ["+a", "+b", "-b", "+c"]
        await use(made, "b")
        assert made.log[4:] == ["-a", "+b"]


async def test_all_who_ask_for_a_model_wait_for_one_loading_of_it() -> None:
    with yard(10, small("a")) as made:
        made.gate.clear()
        asking = [asyncio.create_task(use(made, "a")) for _ in range(20)]
        await asyncio.sleep(0)
        made.gate.set()
        await asyncio.gather(*asking)
        assert made.log == ["+a"]


async def test_a_model_is_wanted_as_long_as_one_request_waits_for_it() -> None:
    with yard(10, small("a")) as made:
        made.gate.clear()
        asking = [asyncio.create_task(use(made, "a")) for _ in range(2)]
        await until(lambda: made.pool.is_wanted("a"))
        asking[0].cancel()
        await asyncio.wait(asking[:1])
        assert made.pool.is_wanted("a")
        asking[1].cancel()
        await asyncio.wait(asking[1:])
        assert not made.pool.is_wanted("a")
        made.gate.set()


async def test_loading_that_is_given_up_starts_again_for_a_request_that_has_come_meanwhile() -> None:
    with yard(10, small("a")) as made:
        made.gate.clear()
        made.failing["a"] = Cancelled()
        first = asyncio.create_task(use(made, "a"))
        await until(lambda: made.pool.is_wanted("a"))
        first.cancel()
        await asyncio.wait([first])
        second = asyncio.create_task(use(made, "a"))
        await until(lambda: made.pool.is_wanted("a"))
        del made.failing["a"]
        made.gate.set()
        await second
        assert made.log == ["+a"]


async def test_loading_that_is_given_up_leaves_nothing_behind() -> None:
    with yard(10, small("a", "b")) as made:
        made.gate.clear()
        made.failing["a"] = Cancelled()
        first = asyncio.create_task(use(made, "a"))
        await until(lambda: made.pool.is_wanted("a"))
        first.cancel()
        await asyncio.wait([first])
        made.gate.set()
        await use(made, "b")
        del made.failing["a"]
        await use(made, "a")
        assert made.log == ["+b", "+a"]


async def test_who_goes_away_while_it_loads_takes_it_from_nobody() -> None:
    with yard(10, small("a")) as made:
        made.gate.clear()
        leaving, staying = (asyncio.create_task(use(made, "a")) for _ in range(2))
        await asyncio.sleep(0)
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        made.gate.set()
        await staying
        assert made.log == ["+a"]
        assert made.pool.states()["a"].n_leases == 0


async def test_a_model_in_use_is_never_unloaded_and_the_refusal_says_what_is_where() -> None:
    with yard(10, small("a", "b", "c")) as made:
        async with made.pool.use("a"), made.pool.use("b"):
            with pytest.raises(EngineDown, match=r"model 'c' needs .*'a' .*'b' .*raise memory_budget"):
                await use(made, "c")
        await use(made, "c")
        assert made.log == ["+a", "+b", "-a", "+c"]


async def test_one_that_is_asked_for_while_another_leaves_does_not_leave() -> None:
    with yard(10, {**small("a", "b"), "large": Residency(8, 300.0)}) as made:
        await use(made, "a", "b")
        made.closing.clear()
        asking = asyncio.create_task(use(made, "large"))  # both would have to leave, a first
        await until(lambda: not made.pool.states()["a"].is_loaded)
        async with made.pool.use("b"):
            made.closing.set()
            with pytest.raises(EngineDown, match="'large' needs"):
                await asking
            assert made.log == ["+a", "+b", "-a"]


async def test_one_that_stays_does_not_leave_for_others() -> None:
    with yard(10, {"main": Residency(8, inf, stays=True), **small("a")}) as made:
        await use(made, "main")
        with pytest.raises(EngineDown, match="'a' needs"):
            await use(made, "a")
        assert made.log == ["+main"]


async def test_two_that_take_the_gpus_are_never_there_together() -> None:
    alone = {name: Residency(0, 300.0, is_alone=True) for name in ("x", "y")}
    with yard(10, {**alone, "z": Residency(0, inf, stays=True, is_alone=True), **small("a")}) as made:
        await use(made, "a", "x", "y")
        assert made.log == ["+a", "+x", "-x", "+y"]
        async with made.pool.use("y"):
            with pytest.raises(EngineDown, match="'x' takes the GPUs for itself, and 'y' has them now"):
                await use(made, "x")
        await use(made, "z")
        with pytest.raises(EngineDown, match="'z' has them now"):
            await use(made, "x")
        assert made.log == ["+a", "+x", "-x", "+y", "-y", "+z"]


async def test_what_is_larger_than_the_budget_does_not_empty_it() -> None:
    with yard(10, {**small("a", "b"), "huge": Residency(11, 300.0)}) as made:
        await use(made, "a", "b")
        with pytest.raises(EngineDown):
            await use(made, "huge")
        assert made.log == ["+a", "+b"]


@pytest.mark.parametrize("error", [EngineError("the file is damaged"), RuntimeError("a bug")])
async def test_a_failure_is_told_to_all_who_wait_and_the_next_request_tries_again(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    with yard(10, small("a")) as made:
        made.failing["a"] = error
        told = await asyncio.gather(use(made, "a"), use(made, "a"), return_exceptions=True)
        assert [type(each) for each in told] == [EngineError, EngineError]
        assert str(error) in str(told[0])
        assert ("Traceback" in caplog.text) == isinstance(error, RuntimeError)
        assert made.pool.states()["a"].n_leases == 0
        del made.failing["a"]
        await use(made, "a")
        assert made.log == ["+a"]


async def test_a_model_goes_when_it_was_not_used_for_its_time() -> None:
    with yard(10, small("a")) as made:
        await use(made, "a")  # a second passes
        assert made.pool.states()["a"].expires_in_s == 299
        made.turn_clock(298)
        await use(made, "a")
        made.turn_clock(298.9)
        assert made.pool.states()["a"].is_loaded
        made.turn_clock(0.1)
        await until(lambda: made.log == ["+a", "-a"])
        assert made.pool.states()["a"].expires_in_s is None
        await use(made, "a")
        assert made.log == ["+a", "-a", "+a"]


async def test_no_time_passes_for_a_model_in_use() -> None:
    with yard(10, small("a")) as made:
        async with made.pool.use("a"):
            made.turn_clock(10_000)
            await use(made, "a")
        assert made.pool.states()["a"].is_loaded
        assert made.log == ["+a"]


async def test_a_request_says_how_long_its_model_stays_until_it_is_unloaded() -> None:
    with yard(10, small("a")) as made:
        await use(made, "a", keep_alive_s=inf)
        await use(made, "a")
        made.turn_clock(1e9)
        assert made.pool.states()["a"].expires_in_s is None
        await use(made, "a", keep_alive_s=0.0)
        await until(lambda: made.log == ["+a", "-a"])
        await use(made, "a")
        assert made.pool.states()["a"].expires_in_s == 299


async def test_unloading_waits_for_whoever_uses_the_model() -> None:
    with yard(10, {"a": Residency(4, inf, stays=True)}) as made:
        assert not await made.pool.unload("a")
        async with made.pool.use("a"):
            assert await made.pool.unload("a")
            assert made.log == ["+a"]
        await until(lambda: made.log == ["+a", "-a"])
        await use(made, "a")
        assert await made.pool.unload("a")
        assert made.log == ["+a", "-a", "+a", "-a"]
        assert not await made.pool.unload("a")


async def test_who_unloads_a_model_does_not_wait_for_one_who_wants_it_for_longer() -> None:
    with yard(10, small("a", "b")) as made:
        await use(made, "a")
        made.gate.clear()
        loading = asyncio.create_task(use(made, "b"))  # the thread is busy
        await asyncio.sleep(0)
        unloading = asyncio.create_task(made.pool.unload("a"))
        await asyncio.sleep(0)
        await use(made, "a", keep_alive_s=inf)
        assert await asyncio.wait_for(unloading, 30)
        made.gate.set()
        await loading
        assert made.log == ["+a", "+b"]


async def test_one_that_is_held_stays_until_the_end() -> None:
    with yard(10, small("a")) as made:
        with pytest.raises(EngineDown, match="not loaded"):
            made.pool.hold("a")
        await use(made, "a")
        assert made.pool.hold("a").name == "a"
        made.turn_clock(10_000)
        await use(made, "a")
        assert made.log == ["+a"]
    assert made.log == ["+a", "-a"]


async def test_who_borrows_all_that_is_loaded_keeps_it_and_waits_for_what_was_closing() -> None:
    with yard(10, small("a", "b")) as made:
        await use(made, "a", "b")
        made.closing.clear()
        unloading = asyncio.create_task(made.pool.unload("a"))
        await until(lambda: not made.pool.states()["a"].is_loaded)

        async def borrow() -> list[str]:
            async with made.pool.borrow() as models:
                assert made.log[-1] == "-a"
                made.turn_clock(10_000)
                await made.pool.unload("b")
                assert made.log[-1] == "-a"
                return [model.name for model in models]

        borrowing = asyncio.create_task(borrow())
        for _ in range(20):  # as often as it could go on, if nothing held it
            await asyncio.sleep(0)
        assert not borrowing.done()
        made.closing.set()
        assert await borrowing == ["b"]
        assert await unloading
        await until(lambda: made.log == ["+a", "+b", "-a", "-b"])


async def test_closing_refuses_those_who_wait_and_those_who_come() -> None:
    with yard(10, small("a", "b")) as made:
        await use(made, "a")
        made.gate.clear()
        waiting = [asyncio.create_task(use(made, "b")) for _ in range(2)]
        await asyncio.sleep(0)
        closing = asyncio.create_task(asyncio.to_thread(made.pool.close))
        await until(lambda: made.pool._closed)
        made.gate.set()
        await asyncio.gather(closing, *waiting, return_exceptions=True)
        assert sorted(made.log) in (["+a", "-a"], ["+a", "+b", "-a", "-b"])
        with pytest.raises(EngineDown, match="stopping"):
            await use(made, "a")
        made.pool.close()


async def test_many_who_want_more_than_there_is_room_for_never_have_more_than_that_at_once() -> None:
    names = ["a", "b", "c", "d"]
    with yard(9, small(*names)) as made:

        async def client(number: int) -> int:
            refused = 0
            for at in range(20):
                name = names[(number * 7 + at * 3) % len(names)]
                try:
                    async with made.pool.use(name) as model:
                        held = [each for each, how in made.pool.states().items() if how.is_loaded]
                        assert len(held) <= 2
                        assert f"-{name}" != made.log[-1]
                        assert model.name == name
                        await asyncio.sleep(0)
                except EngineDown:
                    refused += 1
            return refused

        async with asyncio.timeout(60):
            await asyncio.gather(*(client(number) for number in range(6)))
        depth = 0
        for entry in made.log:
            depth += 1 if entry[0] == "+" else -1
            assert 0 <= depth <= 2


async def test_a_use_that_ends_in_an_error_ends_the_use() -> None:
    with yard(10, small("a")) as made:

        async def fail() -> None:
            async with made.pool.use("a"):
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await fail()
        assert made.pool.states()["a"].n_leases == 0


holdings = st.lists(
    st.builds(IdleModel, st.uuids().map(str), st.integers(0, 50), st.floats(0, 100)),
    max_size=8,
    unique_by=lambda h: h.name,
)


@given(holdings, st.integers(0, 200), st.integers(-20, 100))
@settings(deadline=None)
def test_as_few_leave_as_it_takes_and_the_longest_unused_first(idle: list[IdleModel], needed: int, room: int) -> None:
    names = to_unload(needed, room, idle)
    ages = {holding.name: holding.used_s for holding in idle}
    sizes = {holding.name: holding.n_bytes for holding in idle}
    if names is None:
        assert needed > room + sum(sizes.values())
        return
    freed = [sizes[name] for name in names]
    assert needed <= room + sum(freed)
    assert not names or needed > room + sum(freed[:-1])
    stayed = [ages[name] for name in ages if name not in names]
    assert all(ages[name] <= min(stayed, default=inf) for name in names)
    assert [ages[name] for name in names] == sorted(ages[name] for name in names)
