"""TensorRT-LLM's engine over a fake of the library: order, figures, what leaves a conversation, and bad ends."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import logging
import threading
from array import array
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests import cases
from tests.fakes import model_directory
from tests.in_time import becomes_true, until
from tests.unit.engine.trtllm.trt import END, FAKE, Bench, admitted, steps, tokens

from shepherd.core import (
    ContextFull,
    EngineDown,
    EngineError,
    Evicted,
    InvalidRequest,
    RateLimited,
    Sampling,
    Unsupported,
)
from shepherd.engine.base import Admitted, Done, Owner, Prefill, Scored
from shepherd.engine.trtllm.arguments import ignored
from shepherd.engine.trtllm.library import Library, LibraryOptions

Make = Callable[..., Bench]

LIVES = range(4, 40) if cases.SEED is not None else ()
CUP = [["cup", "Place a cup of water on the table."]]


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[Make]:
    benches: list[Bench] = []

    def made(*args: object, **more: object) -> Bench:
        bench = Bench(tmp_path / str(len(benches)), *args, **more)  # type: ignore[arg-type]
        benches.append(bench)
        return bench

    yield made
    for bench in benches:
        await asyncio.to_thread(bench.engine.close, 1.0)


async def test_a_job_yields_its_steps_in_order_and_its_text_keeps_its_spaces(make: Make) -> None:
    bench = make(say=CUP)
    job = bench.job("Where do I put the cup?")
    got = await bench.steps(job)
    n = len(job.tokens)
    assert got[0] == Admitted(0, n)
    assert got[1] == Prefill(n, n)
    assert bench.text(got) == "Place a cup of water on the table."
    assert got[-1] == Done("end", END)
    assert tokens(got) == list(got[2:-1])


async def test_the_end_is_found_whether_or_not_the_library_shows_its_token(make: Make) -> None:
    bench = make(say=CUP, keep_end=False)
    got = await bench.steps(bench.job("a cup"))
    assert bench.text(got) == "Place a cup of water on the table."
    assert got[-1] == Done("end")


async def test_a_prompt_that_continues_another_one_is_cached_and_counted_exactly(make: Make) -> None:
    bench = make(say=CUP)
    first = bench.prompt(("system", "Be short. " * 20), ("user", "the cup?"))
    got = await bench.steps(replace(bench.job(), tokens=first))
    answer = tokens(got)
    await until(lambda: bench.engine._index.n_tokens > 0)
    longer = first + array("i", [*answer, END]) + bench.encode("\n<|im_start|>user\nAnd then?<|im_end|>\n")
    held = await bench.engine.held(longer, (), Owner(), holes=True)
    again = await bench.steps(replace(bench.job(), tokens=longer, max_tokens=3))
    n_cached = len(first) + len(answer)  # the newest token of an answer is drawn, never computed
    assert admitted(again) == Admitted(n_cached, len(longer) - n_cached)
    assert held.n == n_cached
    assert [step for step in again if isinstance(step, Admitted)] == [admitted(again)], "the index knew it beforehand"


async def test_figures_that_the_index_does_not_know_are_corrected_before_the_first_token(make: Make) -> None:
    bench = make(say=CUP, n_events=0)
    job = bench.job("the cup, " + "please " * 30)
    await bench.steps(job)
    got = await bench.steps(job)
    assert got[0] == Admitted(0, len(job.tokens)), "without events nothing is known"
    assert got[1] == Admitted(len(job.tokens) - 1, 1)
    assert isinstance(got[2], Prefill)


async def test_owners_share_no_cached_tokens_and_learn_nothing_of_each_other(make: Make) -> None:
    bench = make(say=CUP)
    job = bench.job("the cup " + "again " * 40)
    await bench.steps(replace(job, owner=Owner("ann")))
    await until(lambda: bench.engine._index.n_tokens > 0)
    assert (await bench.engine.held(job.tokens, (), Owner("bob"), holes=True)).n == 0
    assert admitted(await bench.steps(replace(job, owner=Owner("bob")))).n_cached == 0
    assert admitted(await bench.steps(replace(job, owner=Owner("ann")))).n_cached == len(job.tokens) - 1


async def test_a_cleared_cache_is_never_found_again(make: Make) -> None:
    bench = make(say=CUP)
    job = bench.job("the cup " + "again " * 40)
    await bench.steps(job)
    await bench.engine.clear()
    assert (await bench.engine.held(job.tokens, (), Owner(), holes=True)).n == 0
    assert admitted(await bench.steps(job)).n_cached == 0
    assert admitted(await bench.steps(job)).n_cached == len(job.tokens) - 1


async def test_eight_jobs_run_side_by_side_and_the_others_wait(make: Make) -> None:
    bench = make(sequences=8, step_s=0.002)
    jobs = [bench.job(f"job number {n}", 60) for n in range(20)]
    got = await asyncio.gather(*(bench.steps(job) for job in jobs))
    assert [bench.text(each) for each in got] == [f"You said: job number {n}" for n in range(20)]
    assert bench.worker.most_running == 8
    assert set(bench.worker.loops_seen) == {False}, "no event loop in the thread that submits"
    stats = bench.engine.stats()
    assert (stats.jobs, stats.live, stats.waiting) == (20, 0, 0)
    assert stats.generated_tokens == sum(len(tokens(each)) for each in got)


async def test_background_jobs_start_when_no_other_waits(make: Make) -> None:
    bench = make(sequences=1, step_s=0.005)
    ended: list[str] = []

    async def run(name: str, **more: object) -> None:
        await bench.steps(bench.job(name, 10, **more))
        ended.append(name)

    async with asyncio.TaskGroup() as group:
        for name in ("first", "title", "second"):
            group.create_task(run(name, background=name == "title"))
            await asyncio.sleep(0)
    assert ended == ["first", "second", "title"]


# -- cancelling ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("phase", ["queued", "prefill", "generating", "over"])
async def test_a_job_is_cancelled_in_each_phase(make: Make, phase: str) -> None:
    bench = make(say=[*CUP, ["", "word " * 50]], sequences=1, step_s=0.01)
    first = bench.engine.submit(bench.job("one", 200))
    ticket = bench.engine.submit(bench.job("two", 200)) if phase == "queued" else first
    if phase == "prefill":
        await until(lambda: bool(ticket._steps))
    if phase == "generating":
        await until(lambda: len(ticket._steps) > 5)
    if phase == "over":
        await steps(ticket)
        bench.engine.cancel(ticket)
    else:
        bench.engine.cancel(ticket)
        bench.engine.cancel(ticket)
        got = await steps(ticket)
        assert got[-1] == Done("cancelled")
        assert len(tokens(got)) < 100
        bench.engine.cancel(first)
    again = await bench.steps(bench.job("cup"))
    assert bench.text(again) == CUP[0][1], "the engine works on"
    await until(lambda: not bench.worker._running)


async def test_closing_ends_every_job_and_later_ones_are_refused(make: Make) -> None:
    bench = make(say=[["", "word " * 90]], sequences=2, step_s=0.02)
    tickets = [bench.engine.submit(bench.job(f"{n}", 300)) for n in range(4)]
    await until(lambda: len(tickets[0]._steps) > 3)
    assert await asyncio.to_thread(bench.engine.close, 10.0)
    assert [(await steps(ticket))[-1] for ticket in tickets] == [Done("cancelled")] * 4
    with pytest.raises(RuntimeError, match="LLM is shutting down"):
        bench.llm.generate_async([1, 2])


# -- a worker that dies or stands still --------------------------------------------------------------------------------


@pytest.mark.parametrize("at", ["running", "idle"])
async def test_a_dead_worker_ends_every_job_with_an_error_that_says_so(make: Make, tmp_path: Path, at: str) -> None:
    gate = tmp_path / "gate"
    gate.touch()  # no job ends before the worker does
    bench = make(say=[["", "word " * 90]], sequences=2, gate=str(gate))
    tickets = [bench.engine.submit(bench.job(f"{n}", 300)) for n in range(4)] if at == "running" else []
    await until(lambda: len(bench.engine._running) == min(2, len(tickets)))
    bench.worker.die()
    for ticket in tickets:
        with pytest.raises(EngineDown, match="of cache 'main' broke: its worker has ended"):
            await steps(ticket)
    assert bench.engine.down is not None
    with pytest.raises(EngineDown, match="its worker has ended; load the model again"):
        bench.engine.submit(bench.job())
    with pytest.raises(EngineDown):
        await bench.engine.held(bench.job().tokens, (), Owner(), holes=True)
    if tickets:  # the dispatcher is busy until the library is closed, and is waited for
        shuts, shutdown = threading.Event(), bench.llm.shutdown
        bench.llm.shutdown = lambda: shuts.set() or shutdown()  # type: ignore[func-returns-value]  # always None
        bench.engine._tell(shuts.wait)
    assert await asyncio.to_thread(bench.engine.close, 5.0)


async def test_a_worker_that_stands_still_is_found_and_its_jobs_end(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    bench = make(say=[["", "word " * 90]], hang_at=8, stall_s=0.4)
    await bench.steps(bench.job("the first one may take ten times as long", 3))
    ticket = bench.engine.submit(bench.job("x", 300))
    with pytest.raises(EngineDown, match=r"has made no progress for [04] s \(a prompt of \d+ tokens\)"):
        await steps(ticket)
    assert bench.engine.stats().stalls == 1
    with pytest.raises(EngineDown):
        bench.engine.submit(bench.job())
    assert "requests that wait for it end with an error" in caplog.text
    assert not await asyncio.to_thread(bench.engine.close, 1.0), "a thread is left in the library"


async def test_an_error_of_one_request_ends_that_one_alone(make: Make) -> None:
    bench = make(say=CUP)
    with pytest.raises(EngineError, match="TensorRT-LLM failed at the request: LLGuidance matcher error"):
        await bench.steps(bench.job(grammar="start: nothing"))
    assert bench.text(await bench.steps(bench.job("cup"))).startswith("Place a cup")


async def test_a_load_that_fails_says_why(make: Make) -> None:
    with pytest.raises(EngineError, match=r"TensorRT-LLM cannot load .*: CUDA out of memory"):
        make(fail_load="CUDA out of memory\nand a long trace")


# -- conversations longer than the context -----------------------------------------------------------------------------


async def test_an_endless_conversation_keeps_its_prefix_and_its_newest_turns(make: Make) -> None:
    bench = make(n_ctx=512)
    engine = bench.engine
    talk: list[tuple[str, str]] = [("system", "You are brief and friendly.")]
    rows: list[tuple[int, int, int]] = []
    gone: set[int] = set()
    for n in range(60):
        talk.append(("user", f"Turn {n}: the cup is on the table, is it not?"))
        prompt, spans = bench.talk(talk)
        job = replace(bench.job(), tokens=prompt, spans=spans, on_full="evict", reserve=60, max_tokens=60)
        got = await bench.steps(job)
        evicted = [step for step in got if isinstance(step, Evicted)]
        for step in evicted:
            assert not gone & set(step.gone), "no turn leaves twice"
            assert sorted(step.gone) == list(step.gone)
            gone |= set(step.gone)
        last = admitted(got)
        assert last.n_cached + last.n_new + 60 <= 512
        assert bench.text(got) == f"You said: Turn {n}: the cup is on the table, is it not?"
        rows.append((last.n_cached, last.n_new, sum(step.tokens for step in evicted)))
        talk.append(("assistant", bench.text(got)))
    assert 0 not in gone, "the system prompt stays"
    assert gone == set(range(1, max(gone) + 1)), "the oldest turns leave, whole"
    n_evictions = sum(row[2] > 0 for row in rows)
    assert 8 <= n_evictions <= 20, "much leaves at once, so that the beginning stays the same for some turns"
    quiet = [row for row in rows[1:] if not row[2]]
    assert all(n_new < 60 for _, n_new, _ in quiet), "without an eviction only the new turn is computed"
    stats = engine.stats()
    assert (stats.jobs, stats.live) == (60, 0)
    assert stats.evictions == n_evictions
    assert stats.evicted_tokens == sum(row[2] for row in rows)
    share = sum(row[0] for row in rows) / sum(row[0] + row[1] for row in rows)
    assert share > 0.7, rows
    (idle,) = engine.stats().sequences
    assert idle.evicted == sum(row[2] for row in rows)


async def test_an_answer_that_fills_the_context_continues_with_fewer_turns(make: Make) -> None:
    said = " ".join(f"number {n}" for n in range(60))
    bench = make(n_ctx=384, say=[["long", said]])
    talk = [("system", "S."), *[("user" if n % 2 == 0 else "assistant", f"Small talk {n}. " * 2) for n in range(8)]]
    talk.append(("user", "A long answer, please."))
    prompt, spans = bench.talk(talk)
    job = replace(bench.job(), tokens=prompt, spans=spans, on_full="evict", reserve=16, max_tokens=1000)
    got = await bench.steps(job)
    n_kept = len(prompt) - sum(span.stop - span.start for span in spans if not span.keep)
    assert said.startswith(bench.text(got)[:200])
    assert got[-1] == Done("length"), "the answer and what never leaves fill the context in the end"
    assert len(tokens(got)) == 384 - n_kept, "to the last token"
    kinds = [type(step) for step in got]
    assert kinds.count(Admitted) == 1
    assert Evicted not in kinds[:50], "they leave when the answer needs their room"
    assert kinds.count(Evicted) >= 1


async def test_turns_are_evicted_on_request_and_stay_away(make: Make) -> None:
    bench = make(n_ctx=512, events="rpc")
    talk = [
        ("system", "S."),
        *[("user" if n % 2 == 0 else "assistant", f"Talk {n}. " * 3) for n in range(6)],
        ("user", "Q"),
    ]
    prompt, spans = bench.talk(talk)
    job = replace(bench.job(), tokens=prompt, spans=spans, on_full="evict", max_tokens=5, reserve=5)
    await bench.steps(job)
    left = await bench.engine.evict(job, 2)
    assert left.gone == (1, 2, 3, 4)
    got = await bench.steps(job)
    assert admitted(got).n_cached + admitted(got).n_new == len(prompt) - left.tokens
    await until(lambda: bench.engine._index.n_tokens == bench.worker.tokens_held())
    held = await bench.engine.held(prompt, spans, Owner(), holes=True)
    assert held.n == len(prompt) - left.tokens - 1
    assert held.ranges[0] == (0, spans[1].start)
    assert held.ranges[1][0] == spans[5].start
    whole = await bench.engine.held(prompt, spans, Owner(), holes=False)
    assert spans[1].start <= whole.n < spans[1].stop, (
        "the turns have left this conversation, though their blocks are still there"
    )
    assert await bench.engine.beginning_with(prompt[:10], Owner()) != []
    assert await bench.engine.beginning_with(prompt[:10], Owner("ann")) == []


async def test_what_does_not_fit_is_refused_before_anything_starts(make: Make) -> None:
    bench = make(n_ctx=128)
    long = bench.job("word " * 40, 40)
    with pytest.raises(InvalidRequest, match=r"tokens do not fit into 128") as plain:
        bench.engine.submit(replace(long, max_tokens=100))
    assert plain.value.status == 400
    with pytest.raises(ContextFull) as full:
        bench.engine.submit(replace(bench.job("word " * 200, 40), on_full="evict", reserve=40))
    assert full.value.limit == 128
    assert bench.worker.loops_seen == [], "the library saw nothing"
    fits = replace(long, max_tokens=128 - len(long.tokens))
    assert (await bench.steps(fits))[-1] == Done("end", END)


@pytest.mark.parametrize("kind", ["checkpoint", "engine"])
async def test_an_answer_may_fill_the_context_to_its_last_token(make: Make, kind: str) -> None:
    bench = make(kind, n_ctx=96, say=[["", "word " * 200]])
    job = bench.job("x")
    got = await bench.steps(replace(job, max_tokens=96 - len(job.tokens)))
    assert got[-1] == Done("length")
    assert len(tokens(got)) == 96 - len(job.tokens)


# -- several GPUs ------------------------------------------------------------------------------------------------------


class ReadyRanks:
    """The library's session over ranks that have all come up: what it is asked for, and how many there are."""

    def __init__(self, n_workers: int) -> None:
        self.n_workers = n_workers

    def submit(self, task: object, n_ranks: int) -> list[Future[int]]:
        done: list[Future[int]] = [Future() for _ in range(self.n_workers)]
        for each in done:
            each.set_result(n_ranks)
        return done

    def shutdown(self) -> None:
        pass


@pytest.mark.parametrize(("n_gpus", "n_stages", "tensor"), [(4, 2, 2), (2, 2, 1), (2, 1, 2)])
def test_the_gpus_of_a_checkpoint_are_divided_into_stages(
    tmp_path: Path, n_gpus: int, n_stages: int, tensor: int
) -> None:
    folder = model_directory.make(tmp_path / "hf", n_ctx=512)
    options = LibraryOptions(str(folder), False, 512, n_gpus=n_gpus, n_stages=n_stages, module=FAKE)
    library = Library(options, lambda make: ReadyRanks(n_gpus))  # the fake refuses any other number of ranks
    assert library._llm.args["pipeline_parallel_size"] == n_stages
    assert library._llm.mpi_session.n_workers == tensor * n_stages
    library.close()


# -- sampling, grammars, stops, scores ---------------------------------------------------------------------------------


async def test_a_seed_repeats_an_answer_and_none_does_not(make: Make) -> None:
    bench = make("engine", say=[["", "a b c d e f g h"]], logits=1.0)
    hot = bench.job("x", 12, sampling=Sampling(temperature=2.0, top_k=0, top_p=1.0, min_p=0.0, seed=7))
    first, again = [bench.text(await bench.steps(hot)) for _ in range(2)]
    assert first == again
    free = replace(hot, sampling=replace(hot.sampling, seed=None))
    assert len({bench.text(await bench.steps(free)) for _ in range(4)}) > 1
    cold = replace(hot, sampling=Sampling(temperature=0))
    assert len({bench.text(await bench.steps(cold)) for _ in range(3)}) == 1


UNHEEDED = [
    Sampling(seed=7), Sampling(min_p=0.1), Sampling(repetition_penalty=1.1, repeat_last_n=-1),
    Sampling(frequency_penalty=0.5, repeat_last_n=-1), Sampling(presence_penalty=0.5, repeat_last_n=-1),
    Sampling(temperature=0, presence_penalty=0.5, repeat_last_n=-1),
]  # fmt: skip


@pytest.mark.parametrize("sampling", UNHEEDED)
async def test_what_a_version_takes_and_ignores_is_refused_for_checkpoints(make: Make, sampling: Sampling) -> None:
    bench = make()  # of 1.2.1
    with pytest.raises(
        Unsupported, match=r"TensorRT-LLM 1\.2\.1 ignores .* or install version 1\.3\.0rc2\d"
    ) as refused:
        bench.engine.submit(bench.job(sampling=sampling))
    assert getattr(sampling, str(refused.value.field)) is not None
    engine = make("engine")
    assert (await engine.steps(engine.job(sampling=sampling)))[-1] == Done("end", END)


async def test_what_has_no_effect_and_our_own_defaults_are_no_reason_to_refuse(make: Make) -> None:
    bench = make()
    for sampling in (
        Sampling(), Sampling(temperature=0, seed=7, min_p=0.1), Sampling(min_p=0.0), Sampling(repetition_penalty=1.0),
        Sampling(presence_penalty=0.0, frequency_penalty=0.0),
    ):  # fmt: skip
        assert (await bench.steps(bench.job(sampling=sampling)))[-1] == Done("end", END)


def test_each_version_is_compared_with_the_one_that_brought_a_parameter() -> None:
    penalties = {"repetition_penalty", "frequency_penalty", "presence_penalty"}
    everything = {*penalties, "min_p", "seed"}
    for version in ("1.2.1", "1.2.0rc6.post3", "1.3.0rc9", "1.3.0rc23", "0.20.0", "", "unknown"):
        assert ignored(version) == everything, version
    assert ignored("1.3.0rc24") == ignored("1.3.0rc24.post1") == {"min_p", "seed"}
    for version in ("1.3.0rc25", "1.3.0rc26", "1.3.0", "1.3", "1.4.0rc4", "2.0.0"):
        assert ignored(version) == set(), version


@pytest.mark.parametrize(
    ("sampling", "named"),
    [
        (Sampling(typical_p=0.5), "typical_p"),
        (Sampling(top_n_sigma=1.0), "top_n_sigma"),
        (Sampling(dry_multiplier=0.8), "dry_multiplier"),
        (Sampling(xtc_probability=0.5), "xtc_probability"),
        (Sampling(mirostat=2), "mirostat"),
        (Sampling(logit_bias=((5, 1.0),)), "logit_bias"),
        (Sampling(presence_penalty=1.0, repeat_last_n=64), "repeat_last_n"),
    ],
)
async def test_what_the_library_cannot_do_is_refused_by_name(make: Make, sampling: Sampling, named: str) -> None:
    bench = make()
    with pytest.raises(Unsupported) as refused:
        bench.engine.submit(bench.job(sampling=sampling))
    assert refused.value.field == named
    assert named in refused.value.message


async def test_a_grammar_is_enforced_by_the_library(make: Make) -> None:
    bench = make(say=[["", "I will not answer in JSON."]])
    lark = 'start: "{\\"cups\\": " /[1-9][0-9]/ "}"'
    got = await bench.steps(bench.job(grammar=lark))
    answer = bench.text(got)
    assert json.loads(answer)["cups"] < 100
    assert answer.startswith('{"cups": ')
    assert got[-1] == Done("end", END)


SCHEMA = {"type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"], "additionalProperties": False}


async def test_an_engine_takes_a_plain_schema_and_refuses_other_grammars(make: Make) -> None:
    bench = make("engine", say=[["", "no JSON"]])
    got = await bench.steps(bench.job(grammar="start: /x/", schema=json.dumps(SCHEMA), max_tokens=200))
    assert json.loads(bench.text(got)) in ({"n": 1}, {"n": 2})
    with pytest.raises(Unsupported, match="can hold an answer to a JSON schema only"):
        bench.engine.submit(bench.job(grammar="start: /x/"))
    lenient = await bench.steps(bench.job(grammar="start: /x/", is_lenient=True))
    assert bench.text(lenient) == "no JSON", "a grammar that only helps is left out"


async def test_a_grammar_whose_beginning_the_prompt_has_is_refused(make: Make) -> None:
    bench = make()
    with pytest.raises(Unsupported, match="the prompt has begun it already"):
        bench.engine.submit(bench.job(grammar="start: /x*/", written="x"))


@pytest.mark.parametrize("stop", ["the t", " table", "<|im_end|>"])
async def test_the_tokens_of_a_stop_string_reach_the_filter_above(make: Make, stop: str) -> None:
    bench = make(say=CUP)
    got = await bench.steps(bench.job("the cup", stops=(stop,)))
    assert isinstance(got[-1], Done)
    assert got[-1].reason == "end"
    text = bench.text(got)
    assert "Place a cup of water on the table.".startswith(text)
    assert stop in text or stop == "<|im_end|>"


async def test_ignoring_the_end_goes_on_to_the_limit(make: Make) -> None:
    bench = make(say=CUP)
    got = await bench.steps(bench.job("the cup", 60, sampling=Sampling(temperature=0, ignore_eos=True)))
    assert got[-1] == Done("length")
    assert len(tokens(got)) == 60


async def test_scores_come_with_the_tokens(make: Make) -> None:
    bench = make(say=CUP)
    got = await bench.steps(bench.job("the cup", scores=3, sampling=Sampling(temperature=0)))
    scored = [step for step in got if isinstance(step, Scored)]
    assert bench.decode([each.token for each in scored]) == CUP[0][1]
    assert all(
        len(each.top) == 3 and each.top[0][0] == each.token and each.top[0][1] == each.logprob for each in scored
    )
    for more in (bench.job(scores=1, scores_drawn=True), bench.job(scores=1, score_prompt=True)):
        with pytest.raises(Unsupported, match="log probabilities"):
            bench.engine.submit(more)
    with pytest.raises(Unsupported, match="a prebuilt TensorRT engine gives no log probabilities"):
        make("engine").engine.submit(bench.job(scores=1))


# -- pressure ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["the end first", "the events first"])
async def test_the_cells_of_a_job_are_counted_once_whether_its_end_or_the_events_of_its_blocks_come_first(
    make: Make, monkeypatch: pytest.MonkeyPatch, order: str
) -> None:
    bench = make(say=CUP, events="rpc")
    output = importlib.import_module(f"{FAKE}.executor").RequestOutput
    read = output._handle

    def read_late(of: Any, response: Any) -> None:
        if response.finish:
            assert becomes_true(lambda: bench.engine._index.n_tokens == bench.worker.tokens_held())
        read(of, response)

    if order == "the events first":
        monkeypatch.setattr(output, "_handle", read_late)
    for n in range(6):  # conversations that begin alike share whole blocks only
        await bench.steps(bench.job("the cup, " + f"again {n} " * 9 * n, 3 if n % 2 else 40))
        used = bench.engine.stats().used
        await until(lambda: bench.engine._index.n_tokens == bench.worker.tokens_held())
        assert used == bench.worker.tokens_held() == bench.engine.stats().used


async def test_removed_blocks_are_counted_exactly_and_take_no_message(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "shepherd.engine.trtllm.events")
    bench = make(blocks=12, events="rpc")
    for n in range(8):
        got = await bench.steps(bench.job(f"Conversation {n}: " + "many words " * 20, 20))
        assert not [step for step in got if isinstance(step, Evicted)]
    await until(lambda: bench.engine._index.n_tokens == bench.worker.tokens_held())
    await until(lambda: "no message left its conversation" in caplog.text)  # logged behind the figures
    stats = bench.engine.stats()
    assert stats.evicted_messages == 0
    assert 0 < stats.removed_tokens <= 32 * stats.removed_blocks
    assert bench.engine._index.n_gaps == 0


async def test_blocks_that_move_to_the_host_stay_found(make: Make) -> None:
    bench = make(blocks=12, events="rpc", host_cache_bytes=64 * 32 * 1024)
    first = bench.job("Conversation 0: " + "many words " * 20, 20)
    await bench.steps(first)
    for n in range(1, 6):
        await bench.steps(bench.job(f"Conversation {n}: " + "other words " * 20, 20))
    await until(
        lambda: (
            bench.engine._index.n_tokens
            == sum(len(block.tokens) for block in bench.worker.cache.blocks.values() if not block.level)
        )
    )
    assert bench.engine.stats().removed_blocks == 0
    held = await bench.engine.held(first.tokens, (), Owner(), holes=True)
    assert held.n == len(first.tokens) - 1
    assert admitted(await bench.steps(first)).n_cached == held.n


# -- everything at once ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [1, 2, 3, *LIVES])
async def test_every_job_ends_whatever_happens(make: Make, seed: int) -> None:
    """Random jobs, cancellations, questions and evictions; in the end the worker dies, or the engine is closed."""
    random = Random(seed)
    bench = make(n_ctx=256, sequences=3, blocks=24, events=random.choice(["queue", "rpc"]), step_s=0.0005)
    engine = bench.engine
    talk = [
        ("system", "S."),
        *[("user" if n % 2 == 0 else "assistant", f"Talk {n}. ") for n in range(6)],
        ("user", "Q"),
    ]
    prompt, spans = bench.talk(talk)
    evicting = replace(bench.job(), tokens=prompt, spans=spans, on_full="evict", reserve=8, max_tokens=90)
    ended: list[str] = []
    half_way = asyncio.Event()

    async def one(n: int) -> None:
        job = (
            evicting
            if random.random() < 0.3
            else bench.job(f"job {n} " * random.randrange(1, 8), random.randrange(1, 60))
        )
        job = replace(job, owner=Owner(random.choice(["", "ann"])), background=random.random() < 0.2)
        try:
            ticket = engine.submit(job)
            if random.random() < 0.4:
                asyncio.get_running_loop().call_later(random.random() * 0.2, engine.cancel, ticket)
            got = await steps(ticket)
            ended.append(got[-1].reason if isinstance(got[-1], Done) else "?")
            assert sum(type(step) is Done for step in got) == 1
        except EngineDown:
            ended.append("down")
        except RateLimited:  # many come at once
            ended.append("busy")
        except EngineError as error:
            ended.append(error.message)

    async def other() -> None:
        with contextlib.suppress(EngineDown):
            match random.randrange(4):
                case 0:
                    await engine.clear()
                case 1:
                    await engine.held(prompt, spans, Owner(), holes=True)
                case 2:
                    await engine.evict(evicting, 1)
                case _:
                    await engine.beginning_with(prompt[:20], Owner("ann"))

    async def end() -> None:
        await half_way.wait()
        if seed % 2:
            bench.worker.die()
        else:
            await asyncio.to_thread(engine.close, 10.0)

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        group.create_task(end())
        for n in range(60):
            group.create_task(one(n) if n % 4 else other())
            for _ in range(random.randrange(10)):
                await asyncio.sleep(0)
            if n == 40:
                half_way.set()
    assert {*ended} <= {"end", "length", "cancelled", "down", "busy"}
    assert len(ended) == 45
    with pytest.raises(EngineDown):
        engine.submit(bench.job())
