"""The engine thread on the fake runtime: order, caching, cancellation, and manners when things break."""

import asyncio
import contextlib
import logging
import threading
import time
from array import array
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from tests.cases import amount
from tests.fake_engine import BYTES, PLAIN, RECURRENT, FakeRuntime, FakeVocabulary, Faults
from tests.in_time import PATIENCE_S, until

from shepherd.core import EngineDown, EngineError, Evicted, RateLimited, Sampling
from shepherd.engine.base import Admitted, Done, Job, Memory, Owner, Prefill, Runtime, Span, Step, Ticket, Vocabulary
from shepherd.engine.engine import InProcessEngine
from shepherd.engine.grammar.mask import Constrainer
from shepherd.engine.kv.pool import Tiers
from shepherd.engine.scheduler import EngineOptions

END = BYTES + 1
_proof: tuple[type[Runtime], type[Vocabulary]] = (FakeRuntime, FakeVocabulary)  # the fakes satisfy the seams


def counting(tokens: Sequence[int]) -> int:
    """A model whose next token is the number of tokens so far; it ends at every multiple of 40."""
    return END if len(tokens) % 40 == 0 else len(tokens) % BYTES


def job(text: str = "prompt", max_tokens: int = 1000, sampling: Sampling | None = None) -> Job:
    return Job(array("i", list(text.encode())), max_tokens, sampling or Sampling())


async def steps(ticket: Ticket) -> list[Step]:
    return [step async for batch in ticket.batches() for step in batch]


def held(runtime: FakeRuntime) -> list[int]:
    """The tokens of the one sequence that holds any."""
    (one,) = [seq for seq in range(runtime.n_seq) if runtime.places[seq]] or [0]
    return runtime.tokens(one)


def tokens(of: Sequence[Step]) -> list[int]:
    return [step for step in of if isinstance(step, int)]


Make = Callable[..., tuple[InProcessEngine, FakeRuntime]]


@pytest.fixture
async def make() -> AsyncIterator[Make]:
    engines: list[InProcessEngine] = []

    def make_one(
        faults: Faults | None = None, n_ctx: int = 4096, options: EngineOptions | None = None, **more: Any
    ) -> tuple[InProcessEngine, FakeRuntime]:
        runtime = FakeRuntime(counting, frozenset({END}), n_ctx=n_ctx, faults=faults or Faults(), **more)
        engine = InProcessEngine(runtime, options=options or EngineOptions())
        engines.append(engine)
        return engine, runtime

    yield make_one
    for engine in engines:
        await asyncio.to_thread(engine.close)


async def test_a_job_yields_its_tokens_and_its_end(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    engine, runtime = make()
    with caplog.at_level(logging.DEBUG, "shepherd.engine"):
        got = await steps(engine.submit(job("0123456789")))
    assert got == [Admitted(0, 10), *range(10, 40), Done("end", END)]
    assert held(runtime)[-1] == END, "the closing tag is in the cache too (K1)"
    assert "Added closing tag to KV cache: " in caplog.text


async def test_the_cache_mirrors_every_token_after_every_turn(make: Make) -> None:
    engine, runtime = make()
    history = "0123456789"
    for _ in range(5):
        await steps(engine.submit(job(history)))
        assert (engine.used, engine.stats().live) == (len(runtime.cells), 0)
        prefix = bytes(t for t in max((runtime.tokens(seq) for seq in range(8)), key=len) if t < BYTES)
        assert prefix.startswith(history.encode())
        history += "x"


async def test_only_new_tokens_are_computed(make: Make) -> None:
    engine, runtime = make()
    prompt = list(b"0123456789")
    await steps(engine.submit(Job(array("i", prompt), 1000)))
    history = [*held(runtime), *b"and more"]
    runtime.decoded.clear()
    got = await steps(engine.submit(Job(array("i", history), 3)))
    assert got[0] == Admitted(len(history) - 8, 8)
    assert runtime.decoded[0][1:] == (len(history) - 8, 8)


async def test_the_same_prompt_again_computes_its_last_token_only(make: Make) -> None:
    engine, _ = make()
    first = await steps(engine.submit(job(max_tokens=5)))
    again = await steps(engine.submit(job(max_tokens=5)))
    assert again[0] == Admitted(len("prompt") - 1, 1)
    assert tokens(again) == tokens(first), "never sampled from stale logits (K5)"


async def test_a_changed_history_keeps_what_is_before_the_change(make: Make) -> None:
    engine, _ = make()
    await steps(engine.submit(job("hello world", 3)))
    got = await steps(engine.submit(job("hello there", 3)))
    assert got[0] == Admitted(6, 5)
    again = await steps(engine.submit(job("hello world", 3)))
    assert again[0] == Admitted(10, 1), "and the other branch is still there: it was forked, not cut"


async def test_a_memory_that_cannot_go_back_starts_afresh(make: Make) -> None:
    engine, runtime = make(memory=RECURRENT)
    await steps(engine.submit(job("hello world", 3)))
    got = await steps(engine.submit(job("hello there", 3)))
    assert got[0] == Admitted(0, 11)
    assert list(b"hello there") in [runtime.tokens(seq)[:11] for seq in range(runtime.n_seq)]


async def test_a_runtime_that_refuses_to_cut_is_not_believed(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    engine, _ = make(Faults(can_remove=False))
    await steps(engine.submit(job("hello", 9)))
    got = await steps(engine.submit(job("hello", 3)))
    assert got[0] == Admitted(0, 5)
    assert tokens(got) == [5, 6, 7]
    assert "refused" in caplog.text


async def test_a_long_prefill_reports_its_progress(make: Make) -> None:
    engine, _ = make()
    got = await steps(engine.submit(job("x" * 40, 1)))
    assert [s for s in got if isinstance(s, Prefill)] == [Prefill(16, 40), Prefill(32, 40), Prefill(40, 40)]


async def test_a_context_can_be_filled_to_the_last_token(make: Make) -> None:
    engine, runtime = make(n_ctx=16)
    got = await steps(engine.submit(job("0123456789", 6)))
    assert got[-1] == Done("length")
    assert len(tokens(got)) == 6
    assert len(runtime.cells) <= 16


async def test_jobs_run_side_by_side_and_keep_apart(make: Make) -> None:
    gate = threading.Semaphore(0)
    engine, runtime = make(Faults(gate=gate), n_batch=64)
    texts = ["a" * 3, "b" * 7, "c" * 11]
    tickets = [engine.submit(job(text, 4)) for text in texts]
    gate.release(100)
    got = await asyncio.gather(*(steps(ticket) for ticket in tickets))
    assert [tokens(g) for g in got] == [[n, n + 1, n + 2, n + 3] for n in (3, 7, 11)]
    assert max(len(batch) for batch in runtime.batches) == 3, "three answers in one decode"


async def test_one_at_a_time_is_in_order(make: Make) -> None:
    engine, runtime = make(options=EngineOptions(sequences=1))
    await asyncio.gather(*(steps(engine.submit(job(text, 4))) for text in ("a" * 3, "b" * 7, "c" * 11)))
    assert [n for _, position, n in runtime.decoded if position == 0] == [3, 7, 11]
    assert all(len(batch) == 1 for batch in runtime.batches)


async def test_a_long_prompt_does_not_stall_a_running_answer(make: Make) -> None:
    gate = threading.Semaphore(3)
    engine, runtime = make(Faults(gate=gate), n_batch=64)
    short = engine.submit(job("a" * 3, 30))
    await until(lambda: len(runtime.batches) == 3)
    long = engine.submit(job("b" * 600, 1))
    gate.release(1000)
    await asyncio.gather(steps(short), steps(long))
    mixed = [batch for batch in runtime.batches if len(batch) == 2]
    assert len(mixed) >= 5
    assert all(sorted(len(chunk.tokens) for chunk in batch)[0] == 1 for batch in mixed), "a token in every decode"


async def test_a_short_prompt_overtakes_a_long_one(make: Make) -> None:
    gate = threading.Semaphore(2)
    engine, runtime = make(Faults(gate=gate), n_batch=16)
    long = engine.submit(job("b" * 800, 1))
    await until(lambda: len(runtime.batches) == 2)
    short = engine.submit(job("a" * 8, 1))
    gate.release(1000)
    await asyncio.gather(steps(long), steps(short))
    at = next(index for index, batch in enumerate(runtime.batches) if any(ord("a") in chunk.tokens for chunk in batch))
    assert at <= 4, "of the 100 decodes that the long one takes"


async def test_a_prompt_that_is_being_computed_is_not_computed_twice(make: Make) -> None:
    engine, runtime = make(n_batch=64)
    system = "s" * 300
    got = await asyncio.gather(*(steps(engine.submit(job(system + text, 3))) for text in ("one", "two", "three")))
    assert [g[0] for g in got] == [Admitted(0, 303), Admitted(300, 3), Admitted(300, 5)]
    assert sum(n for _, _, n in runtime.decoded if n > 1) <= 303 + 3 + 5


async def test_a_job_says_when_it_has_left_the_queue(make: Make) -> None:
    gate = threading.Semaphore(1)
    engine, runtime = make(Faults(gate=gate), options=EngineOptions(sequences=1))
    first, second = engine.submit(job("a" * 8, 3)), engine.submit(job("b" * 8, 1))
    await until(lambda: bool(runtime.batches))
    waited_until = time.perf_counter_ns()
    gate.release(1000)
    begun = [admitted for admitted, *_ in await asyncio.gather(steps(first), steps(second))]
    assert isinstance(begun[0], Admitted)
    assert isinstance(begun[1], Admitted)
    assert 0 < begun[0].at_ns < waited_until < begun[1].at_ns < time.perf_counter_ns()


@pytest.mark.parametrize("queue", [1, 2, 3])
async def test_side_tasks_may_take_half_of_a_queue_and_one_place_of_any(make: Make, queue: int) -> None:
    gate = threading.Semaphore(0)
    engine, _ = make(Faults(gate=gate), options=EngineOptions(sequences=1, queue=queue))
    first = engine.submit(job("first", 1))
    await until(lambda: engine._scheduler.sole is first)
    side = engine.submit(replace(job("side", 1), background=True))
    with pytest.raises(RateLimited):
        engine.submit(replace(job("another", 1), background=True))
    gate.release(100)
    for ticket in (first, side):
        assert (await steps(ticket))[-1] == Done("length")


async def test_a_job_that_fills_the_pool_harms_no_other(make: Make) -> None:
    gate = threading.Semaphore(0)
    options = EngineOptions(sequences=4, tiers=Tiers(1 << 20))
    engine, _ = make(Faults(gate=gate), n_ctx=100, n_batch=64, options=options)
    texts = ["a" * 3, "b" * 13, "c" * 5]
    tickets = [engine.submit(job(text, 100 - len(text))) for text in texts]  # all of them before the first decodes
    gate.release(10_000)
    got = await asyncio.gather(*map(steps, tickets))
    for text, each in zip(texts, got, strict=True):
        assert tokens(each) == list(range(len(text), 40)), "the same as alone"
        assert each[-1] == Done("end", END)
    stats = engine.stats()
    assert (stats.jobs, stats.live) == (3, 0)
    assert stats.preemptions > 0


@pytest.mark.parametrize("memory", [PLAIN, RECURRENT], ids=["plain", "recurrent"])
@pytest.mark.parametrize("is_cached", [True, False])
async def test_turns_are_evicted_on_request_and_no_token_is_drawn(make: Make, memory: Memory, is_cached: bool) -> None:
    engine, _ = make(memory=memory)
    spans = tuple(Span(10 * at, 10 * at + 10, at, at, keep=at in (0, 3)) for at in range(4))
    conversation = replace(job("0123456789" * 4, 5), spans=spans, on_full="evict")
    if is_cached:
        await steps(engine.submit(conversation))
    n_drawn = engine.stats().generated_tokens
    assert await engine.evict(conversation, 1) == Evicted(1, 10, (1,))
    assert await engine.evict(conversation, 9) == Evicted(1, 10, (2,))
    assert engine.stats().generated_tokens == n_drawn
    if memory is PLAIN:
        assert await engine.evict(conversation, 9) == Evicted(0, 0)
        found = await engine.held(conversation.tokens, spans, Owner(), holes=True)
        assert found.ranges == ((0, 10), (30, 39)), "the last token is always computed again"


async def test_decodes_and_their_time_are_counted_for_prompts_and_answers(make: Make) -> None:
    engine, _ = make(n_batch=32)
    await steps(engine.submit(job("a" * 34, 5)))
    # Two decodes for the prompt, whose end gives the first token; one for each other token.
    stats = engine.stats()
    assert (stats.decodes, stats.decoded_chunks) == (6, 6)
    assert stats.prefill_s > 0
    assert stats.generate_s > 0


async def test_each_job_has_its_own_sampling(make: Make) -> None:
    engine, runtime = make()
    await steps(engine.submit(job(sampling=Sampling(temperature=0.1))))
    await steps(engine.submit(job(sampling=Sampling(top_k=3))))
    assert runtime.samplings == [Sampling(temperature=0.1), Sampling(top_k=3)]


async def test_cancelling_stops_a_running_decode_and_keeps_the_prefix(make: Make) -> None:
    gate = threading.Semaphore(4)
    engine, runtime = make(Faults(gate=gate))
    ticket = engine.submit(job("0123456789"))
    await until(lambda: len(runtime.decoded) == 4)
    engine.cancel(ticket)
    assert (await steps(ticket))[-1] == Done("cancelled")
    gate.release(100)
    got = await steps(engine.submit(job("0123456789", 2)))
    assert got[0] == Admitted(9, 1), "the prompt stays cached"
    assert tokens(got) == [10, 11]


async def test_cancelling_stops_inside_a_prefill(make: Make) -> None:
    gate = threading.Semaphore(2)
    engine, runtime = make(Faults(gate=gate))
    ticket = engine.submit(job("x" * 1000))
    await until(lambda: len(runtime.decoded) == 2)
    engine.cancel(ticket)
    got = await steps(ticket)
    assert got[-1] == Done("cancelled")
    assert len(runtime.cells) == 32, "what was computed is kept"


async def test_a_failure_that_passes_harms_no_job(make: Make) -> None:
    gate = threading.Semaphore(0)
    engine, _ = make(Faults(decode_error_at=12, gate=gate), n_batch=64)
    jobs = [engine.submit(job(text, 6)) for text in ("0123456789", "abcdefghij")]
    gate.release(1000)  # both are there: what one of them fails with must not fail the other
    got = await asyncio.gather(*map(steps, jobs))
    assert [tokens(each) for each in got] == [list(range(10, 16))] * 2


async def test_a_cache_without_room_is_an_error_of_the_job(make: Make) -> None:
    engine, _ = make(Faults(full_at=12))
    with pytest.raises(EngineError, match="no room"):
        await steps(engine.submit(job("0123456789")))


async def test_what_comes_behind_the_end_is_refused(make: Make) -> None:
    engine, runtime = make()
    await asyncio.to_thread(engine.close)
    assert runtime.closed
    with pytest.raises(EngineDown, match="the engine was stopped"):
        engine.submit(job())
    with pytest.raises(EngineDown, match="the engine was stopped"):
        await engine.clear()
    assert engine.down == "the engine was stopped"


async def test_what_comes_while_the_engine_stops_ends(make: Make) -> None:
    """No ticket and no call falls between the last look into the mailbox and the end of the thread."""
    for _ in range(amount(10, 200)):
        engine, _ = make()
        closing = asyncio.create_task(asyncio.to_thread(engine.close))
        tickets, asked = [], []
        with contextlib.suppress(EngineDown):
            while True:
                with contextlib.suppress(RateLimited):
                    tickets.append(engine.submit(job(max_tokens=1)))
                asked.append(asyncio.ensure_future(engine.clear()))
                await asyncio.sleep(0)
                if len(asked) % 16 == 0:  # on a busy machine more would come than the thread can answer
                    await asyncio.wait(asked)
        assert await closing
        for ticket in tickets:
            with contextlib.suppress(EngineDown):
                await steps(ticket)
        ended = await asyncio.gather(*asked, return_exceptions=True)
        assert all(each is None or isinstance(each, EngineDown) for each in ended)
        with pytest.raises(EngineDown):
            engine.submit(job())


class LateToDecode(FakeRuntime):
    """Begins a decode just when the engine is being closed."""

    begins = threading.Event()
    interrupted = threading.Event()

    def interrupt(self, on: bool) -> None:
        if not on:
            self.begins.set()
            self.interrupted.wait(PATIENCE_S)
        super().interrupt(on)
        if on:
            self.interrupted.set()


async def test_closing_interrupts_a_decode_that_begins_meanwhile() -> None:
    runtime = LateToDecode(counting, frozenset({END}), faults=Faults(gate=threading.Semaphore(0)))
    engine = InProcessEngine(runtime)
    ticket = engine.submit(job())
    assert await asyncio.to_thread(runtime.begins.wait, PATIENCE_S)
    assert await asyncio.to_thread(engine.close)
    assert (await steps(ticket))[-1] == Done("cancelled")


async def test_a_ledger_that_disagrees_with_the_cache_drops_it(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    engine, runtime = make(Faults(lies_about_length=1))
    await steps(engine.submit(job(max_tokens=2)))
    assert "the ledger has positions" in caplog.text
    assert not runtime.cells


async def test_the_log_says_why_a_prefix_was_missed(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    engine, _ = make()
    with caplog.at_level(logging.DEBUG, "shepherd.engine"):
        await steps(engine.submit(job("hello world", 2)))
        await steps(engine.submit(job("hello there", 2)))
    assert "miss: token 6 of 11 differs" in caplog.text
    assert "<119>" not in caplog.text, "what was said is nobody's business"
    with caplog.at_level(logging.DEBUG, "shepherd.engine"), caplog.at_level(logging.DEBUG, "shepherd.content"):
        await steps(engine.submit(job("hello wagon", 2)))
    assert "<119>" in caplog.text, "unless somebody asks for it"
    assert "Added closing tag" not in caplog.text, "neither job ended by itself"


async def test_conversations_that_can_share_nothing_do_not_cost_each_other_their_past(make: Make) -> None:
    engine, _ = make(memory=RECURRENT, n_batch=64, options=EngineOptions(tiers=Tiers(1 << 20)))
    system = "s" * 50
    spans = (Span(0, 50, 0, 0, keep=True), Span(50, 90, 1, 1, keep=True))

    async def turn(text: str) -> Admitted:
        got = await steps(engine.submit(Job(array("i", list((text + "HH").encode())), 3, Sampling(), spans)))
        assert isinstance(got[0], Admitted)
        return got[0]

    one, two = system + "1" * 40, system + "2" * 40
    assert (await turn(one)).n_new == 92
    assert (await turn(two)).n_new == 42, "the system prompt is taken from its checkpoint"
    assert (await turn(one + "more")).n_new == 6, "and the first conversation is back from memory"


async def test_an_answer_keeps_to_the_grammar_of_its_job() -> None:
    vocabulary = FakeVocabulary()
    constrainer = Constrainer(vocabulary, frozenset({END}))
    engine = InProcessEngine(FakeRuntime(lambda _: ord("5")), constrainer=constrainer)
    lark = 'start: "[" /[0-9]/ ("," /[0-9]/)? "]"'
    try:
        constrainer.check(lark)
        whole, rest, free = await asyncio.gather(
            steps(engine.submit(Job(array("i", list(b"prompt")), 20, grammar=lark))),
            steps(engine.submit(Job(array("i", list(b"other")), 20, grammar=lark, written="[1,"))),
            steps(engine.submit(job("third", max_tokens=3))),
        )
    finally:
        await asyncio.to_thread(engine.close)
    assert (bytes(tokens(whole)), whole[-1]) == (b"[5,5]", Done("end", END))
    assert (bytes(tokens(rest)), rest[-1]) == (b"5]", Done("end", END))
    assert bytes(tokens(free)) == b"555"
