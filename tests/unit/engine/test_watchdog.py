"""A thread that gets no progress while work waits is noticed, described and outlived; one that is slow is not."""

from __future__ import annotations

import asyncio
import logging
import threading
from array import array
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.fake_engine import BYTES, FakeRuntime, Faults
from tests.in_time import until

from shepherd.core import EngineDown
from shepherd.engine.base import Chunk, Decoded, Done, Job, Span, Step, Ticket
from shepherd.engine.engine import InProcessEngine
from shepherd.engine.kv.pool import Tiers
from shepherd.engine.scheduler import EngineOptions
from shepherd.engine.watchdog import CLOSE_S, FIRST_DECODE, SLACK, Heartbeat, Watchdog, call_stack

END = BYTES + 1
STALL_S = 0.2
PATIENCE_S = 60.0
"""For what happens in any case, however busy the machine is."""


def counting(tokens: Sequence[int]) -> int:
    return END if len(tokens) % 40 == 0 else len(tokens) % BYTES


@dataclass
class Deaf(FakeRuntime):
    """Its decodes, and whatever else is asked of it, wait for `free`, and nothing can interrupt them."""

    free: threading.Event = field(default_factory=threading.Event)
    entered: threading.Event = field(default_factory=threading.Event)

    def decode(self, batch: Sequence[Chunk]) -> Decoded:
        self.entered.set()
        self.free.wait()
        return super().decode(batch)


@dataclass
class Spinning(FakeRuntime):
    """Never has room for a batch: operations end, and nothing gets done."""

    free: threading.Event = field(default_factory=threading.Event)
    entered: threading.Event = field(default_factory=threading.Event)

    def decode(self, batch: Sequence[Chunk]) -> Decoded:
        self.entered.set()
        while not self.free.is_set():
            self.save(0)
        return super().decode(batch)


def engine_on(runtime: FakeRuntime) -> InProcessEngine:
    return InProcessEngine(runtime, options=EngineOptions(stall_s=STALL_S / FIRST_DECODE))


def job(n: int = 20, text: int = 7) -> Job:
    return Job(array("i", [text] * n), 3, spans=(Span(0, n, 0, 0, keep=True, label="user"),))


async def answer(ticket: Ticket) -> list[Any]:
    return [step async for batch in ticket.batches() for step in batch]


@pytest.mark.parametrize("kind", [Deaf, Spinning])
async def test_all_that_wait_get_an_error_and_new_ones_too_until_it_recovers(
    kind: type[Deaf | Spinning], caplog: pytest.LogCaptureFixture
) -> None:
    runtime = kind(counting, frozenset({END}))
    engine = engine_on(runtime)
    tickets = [engine.submit(job(20))]
    try:
        with caplog.at_level(logging.WARNING):
            assert await asyncio.to_thread(runtime.entered.wait, PATIENCE_S)
            asked = asyncio.create_task(engine.clear())
            await asyncio.sleep(0)  # it has been asked
            for ticket in tickets:
                with pytest.raises(
                    EngineDown, match=r"cache 'main' has made no progress for \d+ s \(decoding \d+ tokens"
                ):
                    await asyncio.wait_for(answer(ticket), PATIENCE_S)
            with pytest.raises(EngineDown, match="no progress"):
                await asyncio.wait_for(asked, PATIENCE_S)
            with pytest.raises(EngineDown, match="no progress"):
                engine.submit(job())
            with pytest.raises(EngineDown, match="no progress"):
                await engine.clear()
            assert (engine.stats().stalls, engine.stats().quiet_s > 0) == (1, True)
            runtime.free.set()
            await until(lambda: engine.down is None)
        records = [record.getMessage() for record in caplog.records]
        assert len(records) == 2, "once when it stalls, once when it recovers"
        assert "1 requests that wait for it end with an error" in records[0]
        assert "running: prefill of 20 tokens, 20 to compute, 3 to generate; waiting: none" in records[0]
        assert " step > " in records[0], "where the thread is"
        assert "has recovered after" in records[1]
    finally:
        runtime.free.set()
        await asyncio.to_thread(engine.close)


async def test_no_text_of_a_request_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    runtime = Deaf(counting, frozenset({END}))
    engine = engine_on(runtime)
    caplog.set_level(logging.DEBUG)
    try:
        ticket = engine.submit(Job(array("i", list(b"a secret word")), 3))
        with pytest.raises(EngineDown):
            await asyncio.wait_for(answer(ticket), PATIENCE_S)
        assert "no progress" in caplog.text
        assert "secret" not in caplog.text
        assert str(list(b"secret"))[1:-1] not in caplog.text
    finally:
        runtime.free.set()
        await asyncio.to_thread(engine.close)


async def test_an_interrupt_ends_a_decode_that_can_be_ended() -> None:
    runtime = FakeRuntime(counting, frozenset({END}), faults=Faults(gate=threading.Semaphore(0)))
    engine = engine_on(runtime)
    with pytest.raises(EngineDown):
        await asyncio.wait_for(answer(engine.submit(job())), PATIENCE_S)
    await until(lambda: engine.down is None)
    runtime.faults.gate = None
    async with asyncio.timeout(PATIENCE_S):
        while True:  # a machine that is busy enough may stall once more
            try:
                assert isinstance((await answer(engine.submit(job())))[-1], Done)
                break
            except EngineDown:
                await asyncio.sleep(0)
    assert await asyncio.to_thread(engine.close)


async def test_an_abandoned_caller_gets_the_error_although_the_engine_recovers_before_it_wakes() -> None:
    ticket = Ticket(job(), asyncio.get_running_loop())
    ticket.abandon(EngineDown("no progress"))
    assert ticket.cancelled
    ticket.post(Done("cancelled"))  # of the engine thread, which finds it cancelled
    with pytest.raises(EngineDown, match="no progress"):
        await answer(ticket)


class LateSteps(deque[Step]):
    """The engine thread posts the last step just when the event loop has found none."""

    def __init__(self, ticket: Ticket) -> None:
        super().__init__()
        self.ticket: Ticket | None = ticket

    def __len__(self) -> int:
        n = super().__len__()
        if ticket := self.ticket:
            self.ticket = None
            ticket.post(Done("end"))
        return n


async def test_the_last_step_is_delivered_even_if_it_comes_while_the_reader_looks() -> None:
    ticket = Ticket(job(), asyncio.get_running_loop())
    ticket._steps = LateSteps(ticket)
    assert await answer(ticket) == [Done("end")]


async def test_a_thread_that_does_not_end_does_not_hold_up_the_end_of_the_program(
    caplog: pytest.LogCaptureFixture,
) -> None:
    runtime = Deaf(counting, frozenset({END}))
    engine = InProcessEngine(runtime)  # which has not stalled yet by its own measure
    ticket = engine.submit(job())
    assert await asyncio.to_thread(runtime.entered.wait, PATIENCE_S)
    engine._scheduler.heartbeat.begin("decoding", 0.0)  # not the first time, which is allowed to take long
    has_ended = await asyncio.wait_for(asyncio.to_thread(engine.close, 3600.0), PATIENCE_S)
    assert not has_ended
    assert not runtime.closed, "the thread may still use it"
    assert "does not end and is left" in caplog.text
    with pytest.raises(EngineDown, match="its thread does not end"):
        await asyncio.wait_for(answer(ticket), PATIENCE_S)
    with pytest.raises(EngineDown, match="its thread does not end"):
        engine.submit(job())
    runtime.free.set()


async def test_what_is_saved_at_the_end_has_time(tmp_path: Path) -> None:
    allowed: list[float] = []

    class Saving(FakeRuntime):
        def save(self, seq: int, *, partial: bool = False) -> bytes:
            allowed.append(engine._scheduler.heartbeat.allowed_s(CLOSE_S))
            return super().save(seq, partial=partial)

    tiers = Tiers(folder=tmp_path, disk_bytes=1 << 20)
    engine = InProcessEngine(Saving(counting, frozenset({END})), options=EngineOptions(tiers=tiers))
    await asyncio.wait_for(answer(engine.submit(job(50))), PATIENCE_S)
    assert await asyncio.to_thread(engine.close)
    assert min(allowed) == CLOSE_S * FIRST_DECODE
    assert list(tmp_path.glob("*.kv"))


async def test_an_engine_that_broke_says_that_it_is_down(caplog: pytest.LogCaptureFixture) -> None:
    runtime = FakeRuntime(counting, frozenset({END}), faults=Faults(crash_at=3))
    engine = InProcessEngine(runtime)
    with pytest.raises(EngineDown, match="broke"):
        await asyncio.wait_for(answer(engine.submit(job())), PATIENCE_S)
    assert engine.down is not None
    assert "broke" in engine.down
    assert "a planted bug" in caplog.text, "the log says why"
    await asyncio.to_thread(engine.close)


def test_what_a_decode_may_take_follows_what_its_tokens_took() -> None:
    heartbeat = Heartbeat()
    heartbeat.begin("decoding the first batch", None)
    assert heartbeat.allowed_s(60) == 60 * FIRST_DECODE
    heartbeat.begin("decoding 512 tokens", 10.0)
    assert heartbeat.allowed_s(60) == 10 * SLACK
    heartbeat.begin("decoding 1 token", 0.1)
    assert heartbeat.allowed_s(60) == 60


def test_where_a_thread_is_says_functions_and_no_values() -> None:
    free, inside = threading.Event(), threading.Event()

    def waits_here(secret: str) -> None:
        inside.set()
        free.wait()

    thread = threading.Thread(target=waits_here, args=("secret",))
    thread.start()
    assert inside.wait(PATIENCE_S)
    told = call_stack(thread)
    free.set()
    thread.join()
    assert "test_watchdog.py" in told
    assert " waits_here" in told
    assert "secret" not in told
    assert call_stack(thread) == "nowhere"


class Looks:
    """A watchdog whose looks are counted."""

    def __init__(self, n_most: int, *, beats: bool) -> None:
        self.n, self.n_most, self.beats = 0, n_most, beats
        self.done = threading.Event()
        self.events: list[str] = []
        self.heartbeat = Heartbeat()
        self.watchdog = Watchdog(
            self.heartbeat,
            name="test",
            stall_s=0.02,
            has_work=self.has_work,
            on_stall=lambda s: self.events.append("stall"),
            on_recovery=lambda s: self.events.append("recovery"),
        )

    def has_work(self) -> bool:
        self.n += 1
        if self.beats:
            self.heartbeat.beat()
        if self.n == self.n_most:
            self.done.set()
        return self.n < self.n_most


def test_slow_progress_is_progress() -> None:
    looks = Looks(20, beats=True)
    looks.watchdog.wake()
    assert looks.done.wait(PATIENCE_S)
    looks.watchdog.close()
    assert looks.events == []


def test_a_stall_is_reported_once() -> None:
    looks = Looks(20, beats=False)
    looks.watchdog.wake()
    assert looks.done.wait(PATIENCE_S)
    looks.watchdog.close()
    assert looks.events == ["stall"]
