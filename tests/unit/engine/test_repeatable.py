"""Repeatable answers: the same request gives the same tokens and scores, whatever else a cache has computed."""

from __future__ import annotations

import asyncio
import logging
import random
from array import array
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from tests.fake_engine import BYTES, PLAIN, RECURRENT, FakeRuntime, Faults, SilentLoop, scheduler_on
from tests.in_time import PATIENCE_S
from tests.unit.engine import tiny_gguf

from shepherd.core import Sampling
from shepherd.engine.base import Admitted, Job, Memory, Owner, Scored, Span, Step, Ticket
from shepherd.engine.engine import InProcessEngine
from shepherd.engine.kv.capabilities import repeatable
from shepherd.engine.kv.pool import Tiers
from shepherd.engine.llamacpp.runtime import PIECE, ContextOptions, LlamaRuntime
from shepherd.engine.llamacpp.weights import Weights
from shepherd.engine.scheduler import EngineOptions
from shepherd.engine.window import Feed, Miss

N_CTX, N_ANSWER = 512, 6
GREEDY = Sampling(temperature=0, ignore_eos=True)
DRAWN = Sampling(temperature=1.5, seed=7, ignore_eos=True)


def words(n: int, seed: int) -> array[int]:
    """Tokens that every model of these tests has."""
    return array("i", random.Random(seed).choices(range(1, tiny_gguf.N_VOCAB), k=n))


class Cache:
    """A cache of a real model, and what a request gets from it."""

    def __init__(self, weights: Weights, *, is_repeatable: bool = True, flash_attention: bool = False) -> None:
        n_seq = 1 if is_repeatable else 8
        options = ContextOptions(
            N_CTX, n_seq=n_seq, n_threads=1, flash_attention=flash_attention, repeatable=is_repeatable
        )
        self.runtime = LlamaRuntime(weights, options)
        how = EngineOptions(sequences=1 if is_repeatable else 4, tiers=Tiers(ram_bytes=1 << 24))
        self.engine = InProcessEngine(self.runtime, show=weights.piece, options=how)

    async def ask(
        self, tokens: array[int], owner: str = "", *, sampling: Sampling = GREEDY, spans: tuple[Span, ...] = ()
    ) -> list[Scored]:
        ticket = self.engine.submit(
            Job(
                tokens, N_ANSWER, sampling, spans=spans, on_full="evict" if spans else "error", scores=1,
                owner=Owner(owner),
            )
        )  # fmt: skip
        return [step async for steps in ticket.batches() for step in steps if isinstance(step, Scored)]


MODELS = (
    "embedded", pytest.param("embedded, flash", marks=pytest.mark.search), "plain", "plain, flash", "gemma3", "hybrid",
)  # fmt: skip


@pytest.fixture(params=MODELS)
async def cache(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Cache]:
    """The embedded model (F16), and random F32 weights: attention alone, sliding windows, a recurrent state as well;
    some with flash attention."""
    kind, _, flash = request.param.partition(", ")
    if kind == "embedded":
        weights = request.getfixturevalue("weights")
    else:
        tiny_gguf.write(tiny_gguf.RECIPES[kind], tmp_path / "model.gguf")
        weights = Weights.load(tmp_path / "model.gguf")
    made = Cache(weights, flash_attention=bool(flash))
    yield made
    await asyncio.to_thread(made.engine.close)
    if kind != "embedded":
        weights.close()


def answered(prompt: array[int], answer: Sequence[Scored], n: int, seed: int) -> array[int]:
    """The prompt of the next turn."""
    return prompt + array("i", [scored.token for scored in answer]) + words(n, seed)


@pytest.mark.model
async def test_the_same_request_gets_the_same_answer_whatever_else_runs(cache: Cache) -> None:
    prompt, ask = words(PIECE + 37, 1), cache.ask
    first = await ask(prompt)
    drawn = await ask(prompt, sampling=DRAWN)
    following = answered(prompt, first, 30, 2)
    next_turn = await ask(following)
    assert await ask(prompt) == first, "after its own next turn"
    assert await ask(prompt, "another") == first, "for another owner"
    await ask(prompt[: PIECE + 9] + words(20, 3))
    assert await ask(prompt) == first, "after a branch"
    for n_beside in (1, 3):
        others = (ask(words(30 + 31 * at, 10 + at), f"other {at}") for at in range(n_beside))
        assert (await asyncio.gather(ask(prompt, "beside"), *others))[0] == first, f"beside {n_beside}"
    for seed in range(2):
        await ask(words(N_CTX - 90, 20 + seed), f"large {seed}")
    assert await ask(following, "beside") == next_turn, "a turn that was never asked of these cells"
    assert await ask(prompt, sampling=DRAWN) == drawn
    await cache.engine.clear()
    assert await ask(following) == next_turn, "from nothing"


@pytest.mark.model
async def test_turns_that_leave_do_not_change_the_answer(cache: Cache) -> None:
    n = 140

    def prompt(n_turns: int) -> tuple[array[int], tuple[Span, ...]]:
        spans = [Span(at * n, at * n + n, at, at, keep=at in (0, n_turns - 1)) for at in range(n_turns)]
        return words(n * n_turns, 1), tuple(spans)

    answers = [await cache.ask(tokens, spans=spans) for tokens, spans in map(prompt, (3, 4, 5))]
    assert cache.engine.stats().evicted_tokens > 2 * n
    for n_turns, answer in zip((5, 4), answers[:0:-1], strict=True):
        tokens, spans = prompt(n_turns)
        assert len(tokens) > N_CTX
        got = await cache.ask(tokens, f"owner {n_turns}", spans=spans)
        assert got == answer, "there the turns leave before they are computed"


# -- what is computed, on a runtime that tells ------------------------------------------------------------------------

Make = Callable[..., tuple[InProcessEngine, FakeRuntime]]


@pytest.fixture
async def make() -> AsyncIterator[Make]:
    made: list[InProcessEngine] = []

    def make_one(
        piece: int = 16, faults: Faults | None = None, n_ctx: int = 4096
    ) -> tuple[InProcessEngine, FakeRuntime]:
        runtime = FakeRuntime(
            lambda tokens: len(tokens) % BYTES, frozenset(), n_ctx, n_seq=1, n_batch=64,
            memory=repeatable(PLAIN, piece), faults=faults or Faults(),
        )  # fmt: skip
        made.append(InProcessEngine(runtime, options=EngineOptions(sequences=1, tiers=Tiers(ram_bytes=1 << 20))))
        return made[-1], runtime

    yield make_one
    for engine in made:
        await asyncio.to_thread(engine.close)


async def steps(ticket: Ticket) -> list[Step]:
    return [step async for batch in ticket.batches() for step in batch]


async def test_a_prompt_is_computed_in_whole_pieces_and_only_these_are_used_again(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    engine, runtime = make()
    prompt = words(40, 1)
    answer = [step for step in await steps(engine.submit(Job(prompt, 20))) if isinstance(step, int)]
    assert runtime.decoded == [(0, 0, 16), (0, 16, 16), (0, 32, 8), *((0, at, 1) for at in range(40, 59))]
    runtime.decoded.clear()
    following = prompt + array("i", answer) + words(10, 2)
    caplog.set_level(logging.DEBUG, "shepherd.engine")
    assert (await steps(engine.submit(Job(following, 1))))[0] == Admitted(32, 38), "no token of the answer is used"
    assert "hit, 32 of 70 prompt tokens are cached" in caplog.text
    assert runtime.decoded == [(0, 32, 16), (0, 48, 16), (0, 64, 6)]


@pytest.mark.parametrize(("memory", "n_cached"), [(PLAIN, 32), (replace(PLAIN, rollback="window"), 0), (RECURRENT, 0)])
async def test_what_cannot_be_cut_back_anywhere_is_computed_whole(memory: Memory, n_cached: int) -> None:
    runtime = FakeRuntime(lambda tokens: 1, frozenset(), n_seq=1, n_batch=64, memory=repeatable(memory, 16))
    engine = InProcessEngine(runtime, options=EngineOptions(sequences=1))
    prompt = words(40, 1)
    await steps(engine.submit(Job(prompt, 1)))
    assert (await steps(engine.submit(Job(prompt, 1))))[0] == Admitted(n_cached, 40 - n_cached)
    await asyncio.to_thread(engine.close)


async def test_the_next_turn_takes_the_place_of_the_one_before(make: Make) -> None:
    engine, _ = make()
    prompt = words(40, 1)
    await steps(engine.submit(Job(prompt, 1)))
    await steps(engine.submit(Job(prompt + words(10, 2), 1)))
    assert engine.stats().saved == 0, "no copy is kept of what it rewrites"


async def test_an_answer_behind_a_branch_is_not_taken_for_a_prompt(make: Make) -> None:
    engine, _ = make()
    prompt = words(80, 1)
    await steps(engine.submit(Job(prompt, 1)))
    branch = prompt[:20] + words(5, 2)
    answer = [step for step in await steps(engine.submit(Job(branch, 30))) if isinstance(step, int)]
    following = branch + array("i", answer) + words(3, 3)
    assert (await steps(engine.submit(Job(following, 1))))[0] == Admitted(16, 42)


async def test_a_prompt_is_said_to_differ_where_it_does() -> None:
    runtime = FakeRuntime(lambda tokens: 1, frozenset(), n_seq=1, n_batch=64, memory=repeatable(PLAIN, 16))
    scheduler = scheduler_on(runtime, sequences=1)
    feed = Feed(asyncio.get_running_loop())
    scheduler.watch(feed)
    prompt = words(80, 1)
    for tokens in (prompt, prompt + words(9, 2), prompt, prompt[:41] + words(30, 3)):
        scheduler.queue.add(Ticket(Job(tokens, 1), cast(Any, SilentLoop())))
        while scheduler.waiting or scheduler.running:
            scheduler.admit()
            scheduler.step()
    feed.end()
    said = [fact async for facts in feed.batches() for fact in facts if isinstance(fact, Miss)]
    assert [(miss.token, miss.of) for miss in said] == [(41, 71)]


async def test_what_stays_of_a_prompt_whose_turns_leave_is_not_used_again(make: Make) -> None:
    engine, _ = make(n_ctx=64)
    spans = (Span(0, 16, 0, 0), Span(16, 48, 1, 1, keep=True))
    job = Job(words(48, 1), 30, spans=spans, on_full="evict")
    await steps(engine.submit(job))
    assert engine.stats().evicted_tokens == 12
    assert (await steps(engine.submit(replace(job, max_tokens=1))))[0] == Admitted(0, 48)


async def test_a_saved_conversation_comes_back_in_whole_pieces(make: Make) -> None:
    engine, _ = make()
    prompt = words(40, 1)
    await steps(engine.submit(Job(prompt, 1)))
    await steps(engine.submit(Job(words(60, 2), 1, owner=Owner("another"))))
    assert (await steps(engine.submit(Job(prompt, 1))))[0] == Admitted(32, 8)
    assert engine.stats().restored == 1


async def test_a_conversation_on_disk_comes_back_in_whole_pieces(tmp_path: Path) -> None:
    prompt, tiers = words(80, 1), Tiers(folder=tmp_path, disk_bytes=1 << 20)
    for cached in (0, 64):
        runtime = FakeRuntime(lambda tokens: 1, frozenset(), n_seq=1, n_batch=64, memory=repeatable(PLAIN, 16))
        engine = InProcessEngine(runtime, options=EngineOptions(sequences=1, tiers=tiers))
        assert engine.wait_for_disk(PATIENCE_S)
        assert (await steps(engine.submit(Job(prompt, 1))))[0] == Admitted(cached, 80 - cached)
        assert await asyncio.to_thread(engine.close)


async def test_a_piece_that_is_interrupted_is_computed_again_as_a_whole(make: Make) -> None:
    engine, runtime = make(faults=Faults(stops_at=20))
    await steps(engine.submit(Job(words(40, 1), 1)))
    assert runtime.decoded == [(0, 0, 16), (0, 16, 4), (0, 16, 16), (0, 32, 8)]


def test_a_background_answer_is_not_interrupted_by_a_conversation() -> None:
    """Its tokens would be computed again as a prompt, in other batches."""
    runtime = FakeRuntime(lambda tokens: 1, frozenset(), n_seq=1, n_batch=64, memory=repeatable(PLAIN, 16))
    scheduler = scheduler_on(runtime, sequences=1)
    side = Ticket(Job(words(20, 1), 10, background=True), cast(Any, SilentLoop()))
    scheduler.queue.add(side)
    scheduler.admit()
    for _ in range(5):
        scheduler.step()
    scheduler.queue.add(Ticket(Job(words(20, 2), 1), cast(Any, SilentLoop())))
    while scheduler.waiting or scheduler.running:
        scheduler.admit()
        scheduler.step()
    assert scheduler.pool.totals.preemptions == 0
    assert side.finished


def test_one_decode_has_one_sequence_and_a_piece_or_a_token() -> None:
    """Drafts, too, are not computed beside the token before them."""
    runtime = FakeRuntime(lambda tokens: 1, frozenset(), n_seq=1, n_batch=64, memory=repeatable(PLAIN, 16))
    scheduler = scheduler_on(runtime, sequences=1, speculate=True)
    for n in (1, 2, 3):
        scheduler.queue.add(Ticket(Job(array("i", [n, *[1] * 32]), 3, speculate=8), cast(Any, SilentLoop())))
    while scheduler.waiting or scheduler.running:
        scheduler.admit()
        scheduler.step()
    assert [[len(chunk.tokens) for chunk in batch] for batch in runtime.batches] == [[16], [16], [1], [1], [1]] * 3
