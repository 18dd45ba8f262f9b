"""Images as tokens, and the positions of the library in a model with M-RoPE."""

from __future__ import annotations

import asyncio
import math
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fake_engine import FakeRuntime, scheduler_on
from tests.in_time import until

from shepherd.core import EngineError
from shepherd.engine import media
from shepherd.engine.base import Done, Job, Media, Ticket
from shepherd.engine.engine import InProcessEngine
from shepherd.engine.kv.pool import WORTH_SAVING, Tiers
from shepherd.engine.llamacpp.positions import Positions
from shepherd.engine.media import tokens_of
from shepherd.engine.scheduler import EngineOptions


def image(number: int, n_tokens: int) -> Media:
    return Media(b"image %d" % number, n_tokens, b"")


def test_equal_images_have_equal_tokens_and_others_have_others() -> None:
    tokens = [media.tokens_of(image(number, n)) for number, n in ((1, 5), (1, 5), (2, 5))]
    assert tokens[0] == tokens[1]
    assert not set(tokens[0]) & set(tokens[2])
    assert max(tokens[0]) < 0


@given(st.lists(st.one_of(st.integers(0, 300), st.integers(1, 6).map(lambda n: image(n, n))), max_size=12))
def test_a_prompt_is_cut_before_and_behind_an_image_only(parts: list[int | Media]) -> None:
    tokens, cuts = array("i"), {0}
    for part in parts:
        tokens.extend(media.tokens_of(part) if isinstance(part, Media) else [part])
        cuts.add(len(tokens))
    for length in range(len(tokens) + 1):
        assert media.whole(tokens, length) == max(cut for cut in cuts if cut <= length)


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[int, int]]:
    """Tokens and positions of each part of a sequence; a text has as many of both."""
    text = st.integers(1, 4).map(lambda n: (n, n))
    squeezed = st.integers(1, 9).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n)))
    return [draw(text) if at % 2 else draw(squeezed) for at in range(draw(st.integers(0, 7)))]


@given(histories(), st.data())
def test_positions_are_those_of_counting(parts: list[tuple[int, int]], data: st.DataObject) -> None:
    positions = Positions(3)
    first_of: dict[int, int] = {}
    """By position of the engine at which a part begins or a text goes on, that of the library."""
    engine = library = 0
    for at, (n_tokens, n_positions) in enumerate(parts):
        if at % 2:
            first_of |= {engine + n: library + n for n in range(n_tokens)}
        else:
            positions.add(0, engine, n_tokens, n_positions)
            first_of[engine] = library
            inner = [positions.in_library(0, engine + n) for n in range(1, n_tokens)]
            assert inner == [None] * (n_tokens - 1)
            for n in range(n_positions):
                assert positions.in_engine(0, library + n, last=False) == engine
                assert positions.in_engine(0, library + n, last=True) == engine + n_tokens - 1
        engine, library = engine + n_tokens, library + n_positions
    first_of[engine] = library
    assert {at: positions.in_library(0, at) for at in first_of} == first_of
    assert positions.in_library(0, -1) == -1
    cut = data.draw(st.sampled_from(sorted(first_of)))
    positions.copy(0, 1, cut)
    assert positions.agree(0, 1, cut)
    assert positions.in_library(1, cut) == first_of[cut]
    state = b"state" + positions.saved(1)
    assert positions.load(2, state) == len(b"state")
    assert positions.saved(2) == positions.saved(1)
    positions.cut(0, cut)
    assert positions.saved(0) == positions.saved(1)


def test_a_state_without_positions_is_not_taken_for_one() -> None:
    positions = Positions(1)
    assert positions.load(0, b"") == -1
    assert positions.load(0, array("i", [9]).tobytes()) == -1
    assert positions.load(0, array("i", [-2]).tobytes()) == -1


class Slow(FakeRuntime):
    """Encodes an image when it is told to."""

    def prepare(self, media: Sequence[Media], on_ready: Callable[[], None]) -> bool:
        self.on_ready = on_ready
        return {each.key for each in media} <= self.encoded


async def test_a_job_waits_for_its_image_while_others_answer() -> None:
    ready: list[None] = []
    runtime = Slow(lambda tokens: 7)
    scheduler = scheduler_on(runtime, on_ready=lambda: ready.append(None))
    loop = asyncio.get_running_loop()
    picture = image(1, 5)
    seeing = Ticket(Job(array("i", [1, *tokens_of(picture), 2]), 3, media={1: picture}), loop)
    for ticket in (seeing, Ticket(Job(array("i", [3, 4]), 3), loop)):
        scheduler.queue.add(ticket)
    scheduler.admit()
    assert [task.job.tokens[0] for task in scheduler.running] == [3]
    while scheduler.running:
        scheduler.step()
        scheduler.admit()
    assert not seeing.finished
    assert scheduler.heartbeat.expected_s == math.inf, "an image may take long: the projector has its own watch"
    scheduler.idle()
    assert scheduler.heartbeat.expected_s == math.inf
    runtime.encoded.add(picture.key)
    runtime.on_ready()
    assert ready
    scheduler.admit()
    while scheduler.running:
        scheduler.step()
    assert isinstance([*seeing._steps][-1], Done)
    assert [chunk.media is not None for batch in runtime.batches[-5:] for chunk in batch].count(True) == 1
    scheduler.pool.close()


async def test_a_client_that_has_left_takes_no_place_while_its_image_is_encoded() -> None:
    class Encoding(Slow):
        def release(self, media: Sequence[Media]) -> bool:
            return not {each.key for each in media} <= self.encoded

    runtime = Encoding(lambda tokens: 7)
    scheduler = scheduler_on(runtime, sequences=1)
    loop, picture = asyncio.get_running_loop(), image(1, 5)
    seeing = Ticket(Job(array("i", [1, *tokens_of(picture), 2]), 3, media={1: picture}), loop)
    scheduler.queue.add(seeing)
    scheduler.admit()
    scheduler.queue.add(Ticket(Job(array("i", [3, 4]), 3, background=True), loop))
    seeing.cancelled = True
    scheduler.withdraw(seeing)
    while not scheduler.running:
        scheduler.admit()
    scheduler.admit()
    assert (scheduler.pool.totals.preemptions, seeing.finished) == (0, False)
    runtime.encoded.add(picture.key)
    scheduler.admit()
    scheduler.queue.flush()
    assert seeing.finished
    assert [task.job.background for task in scheduler.running] == [True]
    scheduler.queue.end_all()
    scheduler.pool.close()


async def test_an_image_that_cannot_be_encoded_fails_its_job_alone() -> None:
    class Failing(FakeRuntime):
        def prepare(self, media: Sequence[Media], on_ready: Callable[[], None]) -> bool:
            raise EngineError("a planted failure")

    scheduler = scheduler_on(Failing(lambda tokens: 7))
    picture = image(1, 5)
    ticket = Ticket(Job(array("i", [1, *tokens_of(picture), 2]), 3, media={1: picture}), asyncio.get_running_loop())
    scheduler.queue.add(ticket)
    scheduler.admit()
    assert not scheduler.running
    with pytest.raises(EngineError, match="a planted failure"):
        async for _ in ticket.batches():
            pass
    scheduler.pool.close()


async def test_what_waited_long_for_its_image_is_saved_when_its_engine_rests(tmp_path: Path) -> None:
    runtime, picture = Slow(lambda tokens: 7), image(1, 5)
    engine = InProcessEngine(runtime, options=EngineOptions(tiers=Tiers(folder=tmp_path, disk_bytes=1 << 20)))
    try:
        tokens = array("i", [1, *tokens_of(picture), *range(2, 2 + WORTH_SAVING)])
        seeing = engine.submit(Job(tokens, 3, media={1: picture}))
        await until(lambda: not engine._has_idle_work)  # it has looked for some while the job waits
        runtime.encoded.add(picture.key)
        runtime.on_ready()
        async for _ in seeing.batches():
            pass
        await until(lambda: engine.stats().saved == 1)
    finally:
        engine.close()
