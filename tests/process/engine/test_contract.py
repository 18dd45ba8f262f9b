"""What every engine does, whatever computes behind it: one set of tests over all kinds of engines (`kinds.py`)."""

from __future__ import annotations

import asyncio
import contextlib
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.in_time import PATIENCE_S, until
from tests.unit.engine.kinds import CRASH, END, KINDS, POISON, Crowd, Kind, Setup, child, next_token, on_lamb

from shepherd.core import (
    ContextFull,
    EngineDown,
    EngineError,
    Evicted,
    InvalidRequest,
    RateLimited,
    Sampling,
    ShepherdError,
)
from shepherd.engine.base import (
    UNOWNED,
    Admitted,
    Done,
    Engine,
    Job,
    Owner,
    Prefill,
    PromptScores,
    Scored,
    Span,
    Step,
    Ticket,
)
from shepherd.engine.stats import CacheStats
from shepherd.engine.window import Fact, Fresh, Left, Picture, Turn

Make = Callable[..., Engine]


@pytest.fixture(params=KINDS, ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest) -> Kind:
    found: Kind = request.param
    if found.lacks and request.node.originalname == found.lacks:
        pytest.skip(f"an engine of the kind {found.name!r} has none")
    return found


COMPANY: list[tuple[dict[str, Any], int]] = [
    ({}, 15),
    ({"has_grammars": True}, 3),
    ({"sequences": 1}, 3),
    ({"sequences": 1, "queue": 2}, 1),
    ({"sequences": 2}, 1),
    ({"sequences": 8}, 1),
    ({"n_ctx": 64}, 1),
    ({"n_ctx": 100}, 1),
]
"""How many tests ask for which setup: their engines are in one child. More than these have a child of their own."""


@pytest.fixture(scope="module")
def gate_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("contract") / "gate"


@pytest.fixture(scope="module")
def crowd(gate_file: Path) -> Iterator[Callable[[], Crowd]]:
    """The child whose engines the tests share; it starts when the first test asks."""
    setups = [Setup(gate=str(gate_file), **setup) for setup, n in COMPANY for _ in range(n)]
    started: list[Crowd] = []

    def get() -> Crowd:
        if not started:
            started.append(Crowd(setups))
        return started[0]

    yield get
    for each in started:
        each.close()


@pytest.fixture
def make(kind: Kind, gate: Gate, crowd: Callable[[], Crowd]) -> Iterator[Make]:
    made: list[Engine] = []

    def make_one(**setup: Any) -> Engine:
        wanted = Setup(gate=str(gate.file), **setup)
        made.append(engine := (crowd().find(wanted) if kind.make is child else None) or kind.make(wanted))
        return engine

    yield make_one
    gate.open()
    for engine in made:
        engine.close()


class Gate:
    """While it is shut, no engine of the test computes."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def shut(self) -> None:
        self.file.touch()

    def open(self) -> None:
        self.file.unlink(missing_ok=True)


@pytest.fixture
def gate(gate_file: Path) -> Gate:
    return Gate(gate_file)


def job(text: str = "prompt", max_tokens: int = 1000, **more: Any) -> Job:
    """One token for each byte; `!` fails, and `?` breaks the engine."""
    special = {ord("!"): POISON, ord("?"): CRASH}
    return Job(array("i", [special.get(byte, byte) for byte in text.encode()]), max_tokens, **more)


async def steps(ticket: Ticket) -> list[Step]:
    async with asyncio.timeout(PATIENCE_S):
        return [step async for batch in ticket.batches() for step in batch]


def tokens(of: Sequence[Step]) -> list[int]:
    return [step for step in of if isinstance(step, int)]


def expected(prompt: str, max_tokens: int = 1000) -> list[int]:
    """What the model says."""
    said = list(prompt.encode())
    for n in range(max_tokens):
        token = next_token(said)
        if token == END:
            return said[len(said) - n :]
        said.append(token)
    return said[len(said) - max_tokens :]


TURNS = tuple(Span(10 * at, 10 * at + 10, at, at, keep=at in (0, 3)) for at in range(4))
CONVERSATION = job("0123456789" * 4, 5, spans=TURNS, on_full="evict")


async def test_steps_come_in_their_order_and_tokens_are_those_of_the_model(make: Make) -> None:
    got = await steps(make().submit(job("x" * 50)))
    begun, last = got[0], got[-1]
    assert isinstance(begun, Admitted)
    assert (begun.n_cached, begun.n_new) == (0, 50)
    assert last == Done("end", END)
    kinds = "".join({Admitted: "a", Prefill: "p", int: "t", Done: "d"}[type(step)] for step in got)
    assert kinds.rstrip("d").rstrip("t").rstrip("p") == "a", kinds
    assert tokens(got) == expected("x" * 50)


async def test_an_answer_ends_at_its_limit(make: Make) -> None:
    got = await steps(make().submit(job("0123456789", 7)))
    assert (tokens(got), got[-1]) == (expected("0123456789", 7), Done("length"))


async def test_a_prompt_that_comes_again_is_cached(make: Make) -> None:
    engine = make()
    first, second = [await steps(engine.submit(job("x" * 100, 3))) for _ in range(2)]
    assert tokens(first) == tokens(second)
    begun = second[0]
    assert isinstance(begun, Admitted)
    assert 0 < begun.n_cached < 100
    assert begun.n_cached + begun.n_new == 100


async def test_many_jobs_at_once_get_their_own_tokens(make: Make) -> None:
    engine = make(sequences=8)
    prompts = [chr(ord("a") + n % 26) * (n + 3) for n in range(48)]
    got = await asyncio.gather(*(steps(engine.submit(job(prompt, 30))) for prompt in prompts))
    for prompt, each in zip(prompts, got, strict=True):
        assert tokens(each) == expected(prompt, 30)
        assert type(each[0]) is Admitted
        assert type(each[-1]) is Done
    stats = engine.stats()
    assert (stats.jobs, stats.live, stats.waiting) == (48, 0, 0)


async def test_a_job_that_is_cancelled_at_once_ends(make: Make) -> None:
    engine = make()
    ticket = engine.submit(job())
    engine.cancel(ticket)
    engine.cancel(ticket)
    last = (await steps(ticket))[-1]
    assert isinstance(last, Done)
    assert last.reason in {"cancelled", "end", "length"}, "a quick engine may have answered before it heard of it"
    assert tokens(await steps(engine.submit(job("abc", 5)))) == expected("abc", 5)


async def test_a_job_that_waits_can_be_cancelled(make: Make, gate: Gate) -> None:
    engine = make(sequences=1)
    gate.shut()
    running, waiting = engine.submit(job("a" * 10, 5)), engine.submit(job("b" * 10, 30))
    engine.cancel(waiting)
    gate.open()  # an engine may answer between two decodes only
    assert (await steps(waiting))[-1] == Done("cancelled")
    assert tokens(await steps(running)) == expected("a" * 10, 5)


async def test_a_job_that_runs_can_be_cancelled_between_its_tokens(make: Make, gate: Gate) -> None:
    engine = make(sequences=1)
    ticket = engine.submit(job("a" * 41, 30))
    got: list[Step] = []
    async with contextlib.aclosing(ticket.batches()) as batches:
        async for batch in batches:
            gate.shut()
            got += batch
            engine.cancel(ticket)
    assert got[-1] in (Done("cancelled"), Done("length")), "it may have ended before"
    said = tokens(got)
    assert said == expected("a" * 41, 30)[: len(said)]
    gate.open()
    assert tokens(await steps(engine.submit(job("abc", 5)))) == expected("abc", 5)


async def test_cancelling_a_job_that_has_ended_does_nothing(make: Make) -> None:
    engine = make()
    ticket = engine.submit(job(max_tokens=2))
    await steps(ticket)
    engine.cancel(ticket)
    assert len(tokens(await steps(engine.submit(job(max_tokens=2))))) == 2


async def test_turns_leave_on_request_and_no_token_is_drawn(make: Make) -> None:
    engine = make()
    await steps(engine.submit(CONVERSATION))
    n_drawn = engine.stats().generated_tokens
    assert await engine.evict(CONVERSATION, 1) == Evicted(1, 10, (1,))
    assert await engine.evict(CONVERSATION, 9) == Evicted(1, 10, (2,))
    assert engine.stats().generated_tokens == n_drawn


async def test_turns_leave_when_the_context_is_full(make: Make) -> None:
    engine = make(n_ctx=64)
    spans = tuple(Span(10 * at, 10 * at + 10, at, at, keep=at in (0, 6)) for at in range(7))
    got = await steps(engine.submit(job("0123456789" * 7, 4, spans=spans, on_full="evict", reserve=4)))
    gone = [step for step in got if isinstance(step, Evicted)]
    assert sum(step.tokens for step in gone) >= 10
    assert gone[0].gone[0] == 1, "the oldest first"
    assert isinstance(got[-1], Done)


async def test_what_is_held_is_found_by_its_owner_alone(make: Make) -> None:
    engine = make()
    prompt, mine = job("x" * 100, 3, owner=Owner("me")), Owner("me")
    assert (await engine.held(prompt.tokens, (), mine, holes=False)).n == 0
    await steps(engine.submit(prompt))
    held = await engine.held(prompt.tokens, (), mine, holes=False)
    assert 0 < held.n == held.length <= 100
    assert held.tier == "cells"
    for tokens_, owner in ((prompt.tokens, Owner("you")), (prompt.tokens, UNOWNED), (array("i", [9] * 50), mine)):
        assert (await engine.held(tokens_, (), owner, holes=False)).n == 0


async def test_conversations_are_found_by_their_beginning(make: Make) -> None:
    engine = make()
    await steps(engine.submit(job("x" * 100, 3, owner=Owner("me"))))
    (found,) = await engine.beginning_with(array("i", list(b"x" * 80)), Owner("me"))
    assert list(found[:100]) == list(b"x" * 100)
    assert await engine.beginning_with(array("i", list(b"x" * 80)), Owner("you")) == []


EMPTY = "a job needs at least one prompt token and room for one new token"
REFUSED: dict[str, tuple[Job, type[ShepherdError], str]] = {
    "no prompt": (job(""), InvalidRequest, EMPTY),
    "no answer": (job(max_tokens=0), InvalidRequest, EMPTY),
    "a grammar": (job(grammar='start: "x"'), InvalidRequest, "cache 'main' cannot constrain answers to a grammar"),
    "too long": (job("x" * 90, 20), InvalidRequest, "90 + 20 tokens do not fit into 100"),
    "kept too long": (
        job("x" * 100, 20, on_full="evict", reserve=5, spans=(Span(0, 100, 0, 0, keep=True),)),
        ContextFull,
        "prompt is too long: 105 tokens > 100 maximum; the prompt has 100, and 5 are kept for the answer; this model's "
        "maximum context length is 100 tokens (the context window of cache 'main'); shorten the conversation or use a "
        "larger context size",
    ),
}


async def test_jobs_that_can_never_run_are_refused_in_the_same_words(make: Make) -> None:
    engine = make(n_ctx=100)
    for refused, error, sentence in REFUSED.values():
        with pytest.raises(error) as raised:
            engine.submit(refused)
        assert raised.value.message == sentence
    with pytest.raises(ContextFull) as full:
        await engine.evict(REFUSED["kept too long"][0], 1)
    assert (full.value.needed, full.value.limit, full.value.cache, full.value.status) == (101, 100, "main", 400)


async def test_a_full_queue_refuses_and_says_when_to_come_back(make: Make, gate: Gate) -> None:
    engine = make(sequences=1, queue=2)
    gate.shut()
    first = engine.submit(job("first", 1))
    await anext(batches := first.batches())  # it has left the queue
    others = [engine.submit(job("second", 1))]
    with pytest.raises(RateLimited):  # half of the queue is for those that wait for an answer
        engine.submit(job("a title", 1, background=True))
    others.append(engine.submit(job("third", 1)))
    with pytest.raises(RateLimited) as refused:
        engine.submit(job("fourth", 1))
    assert refused.value.message == "cache 'main' is busy: 2 requests are waiting already; try again later"
    assert refused.value.backend == "local:main"
    assert 1.0 <= (refused.value.retry_after_s or 0.0) <= 120.0
    gate.open()
    assert [step async for batch in batches for step in batch][-1] == Done("length")
    for ticket in others:
        assert (await steps(ticket))[-1] == Done("length")
    assert len(tokens(await steps(engine.submit(job("fourth", 1))))) == 1


async def test_a_job_that_fails_harms_no_other(make: Make) -> None:
    engine = make()
    bad, good = engine.submit(job("01234!6789")), engine.submit(job("0123456789", 4))
    with pytest.raises(EngineError, match="planted failure") as failed:
        await steps(bad)
    assert not isinstance(failed.value, EngineDown)
    assert tokens(await steps(good)) == expected("0123456789", 4)
    assert tokens(await steps(engine.submit(job("0123456789", 2)))) == expected("0123456789", 2), "the next one, too"


async def test_an_engine_that_breaks_ends_all_that_waits_and_refuses_the_rest(make: Make, kind: Kind) -> None:
    engine = make()
    feed = engine.watch()
    tickets = [engine.submit(job("01234?6789"))]
    with contextlib.suppress(EngineDown):  # the first one may have broken it by now
        tickets += [engine.submit(job("01234?6789")) for _ in range(2)]
    for ticket in tickets:
        with pytest.raises(EngineDown, match="broke"):
            await steps(ticket)
    assert engine.down is not None
    with pytest.raises(EngineDown, match="broke"):
        engine.submit(job())
    with pytest.raises(EngineDown, match="broke"):
        await engine.clear()
    with pytest.raises(EngineDown, match="broke"):
        engine.watch()
    if kind.name != "tensorrt":  # it shows nothing, to its end
        async with asyncio.timeout(PATIENCE_S):
            assert [batch async for batch in feed.batches()], "and the feed ends"
    engine.unwatch(feed)


async def test_a_stall_ends_all_that_waits_until_the_engine_recovers(make: Make, gate: Gate) -> None:
    engine = make(stall_s=0.05)
    await steps(engine.submit(job("a", 3)))  # the speed is known
    gate.shut()
    ticket = engine.submit(job("b" * 20, 3))
    with pytest.raises(EngineDown, match="has made no progress for"):
        await steps(ticket)
    gate.open()
    await until(lambda: engine.down is None)
    assert engine.stats().stalls == 1
    assert tokens(await steps(engine.submit(job("abc", 5)))) == expected("abc", 5)


async def test_clearing_forgets_what_idles_and_leaves_what_runs(make: Make, gate: Gate) -> None:
    engine = make()
    await steps(engine.submit(job("x" * 100, 3)))
    gate.shut()
    running = engine.submit(job("y" * 10, 20))
    clearing = asyncio.create_task(engine.clear())
    gate.open()
    await asyncio.wait_for(clearing, PATIENCE_S)
    assert tokens(await steps(running)) == expected("y" * 10, 20)
    begun, *_ = await steps(engine.submit(job("x" * 100, 3)))
    assert isinstance(begun, Admitted)
    assert (begun.n_cached, begun.n_new) == (0, 100)


async def test_scores_cross_too(make: Make) -> None:
    engine = make()
    got = await steps(engine.submit(job("abcd", 3, scores=2, score_prompt=True)))
    (prompt,) = [step for step in got if isinstance(step, PromptScores)]
    assert [each.token for each in prompt.scores] == list(b"abcd")
    scored = [step for step in got if isinstance(step, Scored)]
    assert [each.token for each in scored] == expected("abcd", 3)
    assert all(len(each.top) == 2 for each in scored)


async def test_drafts_change_no_token_and_are_counted(make: Make, kind: Kind) -> None:
    """They come from what the client expects; an engine that drafts nothing counts none."""
    engine, wanted = make(), expected("prompt")
    feed = engine.watch()
    text = array("i", [*b"prompt", *wanted[:20], 3, *wanted[21:]])
    found = await steps(engine.submit(job("prompt", speculate=5, predicted=(text,))))
    done, stats = found[-1], engine.stats()
    assert tokens(found) == wanted
    assert isinstance(done, Done)
    assert (done.drafted, done.accepted) == (stats.drafted_tokens, stats.accepted_tokens)
    assert [(each.drafted, each.accepted) for each in stats.sequences] in ([], [(done.drafted, done.accepted)])
    assert (done.drafted > done.accepted > 0) is (kind.name != "tensorrt")
    if kind.name != "tensorrt":
        async with asyncio.timeout(PATIENCE_S), contextlib.aclosing(feed.batches()) as batches:
            turn = await anext(each async for batch in batches for each in batch if isinstance(each, Turn))
        assert (turn.drafted, turn.accepted) == (done.drafted, done.accepted)
    engine.unwatch(feed)
    again = await steps(engine.submit(job("prompt", speculate=0, predicted=(text,))))
    assert tokens(again) == wanted
    assert engine.stats().drafted_tokens == done.drafted


async def test_an_answer_keeps_to_the_grammar_of_its_job(make: Make) -> None:
    engine = make(has_grammars=True)
    got = await steps(engine.submit(job("prompt", 20, grammar='start: "yes" | "no"')))
    assert bytes(tokens(got)) in (b"yes", b"no")
    assert got[-1] == Done("end", END)


async def test_closing_ends_everything_that_waits(make: Make, gate: Gate) -> None:
    engine = make(sequences=2)
    gate.shut()
    tickets = [engine.submit(job(str(n) * 9)) for n in range(5)]
    async with asyncio.timeout(PATIENCE_S):
        assert await asyncio.to_thread(engine.close)
    for ticket in tickets:
        assert (await steps(ticket))[-1] == Done("cancelled")


def test_an_engine_serves_one_event_loop_after_another(make: Make, gate: Gate) -> None:
    engine = make(sequences=1)
    abandoned: list[Ticket] = []

    async def ask() -> list[int]:
        return tokens(await steps(engine.submit(job("abc", 5))))

    async def abandon() -> None:
        gate.shut()
        abandoned.append(engine.submit(job("d" * 41, 1000)))

    assert asyncio.run(ask()) == expected("abc", 5)
    asyncio.run(abandon())  # its loop is closed with a job that runs
    gate.open()
    assert asyncio.run(ask()) == expected("abc", 5)
    assert asyncio.run(ask()) == expected("abc", 5)


async def test_the_figures_are_those_of_the_jobs(make: Make) -> None:
    engine = make()
    assert (engine.name, engine.n_ctx, engine.n_low, engine.down, engine.used) == ("main", 4096, 3072, None, 0)
    await steps(engine.submit(job("x" * 30, 4)))
    stats = engine.stats()
    assert (stats.jobs, stats.live, stats.n_ctx, stats.prefilled_tokens, stats.generated_tokens) == (1, 0, 4096, 30, 4)
    assert engine.used == stats.used > 0
    (sequence,) = stats.sequences
    idle_s = sequence.idle_s
    await until(lambda: engine.stats().sequences[0].idle_s > idle_s)
    assert replace(sequence, idle_s=0.0).state == "idle"


async def test_what_a_feed_shows_is_what_the_figures_say(make: Make, kind: Kind) -> None:
    engine = make()
    feed = engine.watch()
    await steps(engine.submit(CONVERSATION))
    await engine.evict(CONVERSATION, 1)
    facts: list[Fact] = []
    if kind.name != "tensorrt":  # its library does not say which tokens are where
        async with asyncio.timeout(PATIENCE_S), contextlib.aclosing(feed.batches()) as batches:
            async for batch in batches:
                facts += batch
                if sum(isinstance(each, Turn) for each in facts) == 2:
                    break
        assert isinstance(facts[0], Fresh)
        left = next(each for each in facts if isinstance(each, Left))
        turn = next(each for each in facts if isinstance(each, Turn))
        assert turn.seq is not None
        assert (left.messages, left.tokens, left.reason) == ((1,), 10, "asked")
        assert (turn.cached, turn.new, turn.generated) == (0, 40, 0)
        pictures = {each.seq: each for each in facts if isinstance(each, Picture)}
        assert {each.seq: each.tokens for each in engine.stats().sequences} == {
            seq: each.n_held for seq, each in pictures.items()
        }
        assert [part[:2] for part in pictures[turn.seq].parts] == [(span.start, span.stop) for span in TURNS]
    engine.unwatch(feed)
    async with asyncio.timeout(PATIENCE_S):
        assert [batch async for batch in feed.batches()] == []


ENDINGS: dict[str, Job] = {
    "its end token": job("x" * 30),
    "its limit": job("y" * 30, 4),
    "a cancel": job("z" * 33),
    "a failure": job("01234!6789"),
    "a grammar that cannot be read": job("w" * 9, 9, grammar="start: {"),
    "turns that leave": replace(CONVERSATION, max_tokens=0, n_turns_to_evict=1),
}


@pytest.mark.grid(0.2)
@pytest.mark.parametrize("ending", ENDINGS)
async def test_the_figures_of_a_job_are_published_before_its_end_can_be_read(make: Make, ending: str) -> None:
    engine = make(has_grammars=True)
    for _ in range(5):
        ticket = engine.submit(ENDINGS[ending])
        n_read = 0
        with contextlib.suppress(EngineError):
            async for batch in ticket.batches():
                n_read += len(batch)
                if ending == "a cancel" and n_read > 2:
                    engine.cancel(ticket)
        at_once = counts(engine.stats())
        await engine.held(array("i", [1, 2]), (), UNOWNED, holes=False)  # behind it, the thread has nothing left to do
        assert at_once == counts(engine.stats())
        assert at_once["live"] == at_once["waiting"] == 0


def counts(stats: CacheStats) -> dict[str, Any]:
    """The figures that no clock changes."""
    found = {name: value for name, value in asdict(stats).items() if not name.endswith("_s")}
    rows = [{name: value for name, value in row.items() if not name.endswith("_s")} for row in found["sequences"]]
    return {**found, "sequences": rows}


@pytest.mark.model
async def test_a_real_model_says_the_same_in_a_child() -> None:
    asked = [
        job("Once upon a time", 30, sampling=Sampling(temperature=0.0)),
        job("A sheep", 20, sampling=Sampling(temperature=0.9, seed=3)),
        job("Yes or no?", 20, sampling=Sampling(temperature=0.0), grammar='start: "yes" | "no"', scores=2),
        job("abcd" * 10, 5, sampling=Sampling(temperature=0.0), scores=1, score_prompt=True),
    ]
    got = []
    for make in (on_lamb, partial(child, factory="tests.unit.engine.kinds:on_lamb")):
        engine = make(Setup(n_ctx=512))
        answers = []
        for each in (*asked, asked[0]):  # the same again is cached
            said = await steps(engine.submit(each))
            answers.append([replace(step, at_ns=0) if isinstance(step, Admitted) else step for step in said])
        spans = tuple(Span(8 * at, 8 * at + 8, at, at, keep=at == 0) for at in range(5))
        gone = await engine.evict(replace(asked[3], spans=spans, on_full="evict", scores=None, score_prompt=False), 1)
        got.append(repr([answers, gone]))  # the first token of a prompt has the likelihood nan, which equals nothing
        assert await asyncio.to_thread(engine.close)
    assert got[0] == got[1]
