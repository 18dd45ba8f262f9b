"""A child that dies is started again; what it kept in host memory comes back, and no prompt kills it for ever."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from array import array
from dataclasses import replace
from pathlib import Path

import pytest
from tests.cases import amount
from tests.in_time import PATIENCE_S, becomes_true, until
from tests.process.engine.factories import DEADLY, FACTORIES, MUTE_S, STOP
from tests.process.engine.test_contract import expected, job, steps, tokens
from tests.process.engine.test_worker import nothing_is_left
from tests.unit.engine.kinds import COMMAND, Setup, child, environment

from shepherd.core import EngineDown, EngineError, InvalidRequest, Sampling
from shepherd.engine.base import Admitted, Job, Media
from shepherd.engine.kv.pool import Tiers
from shepherd.engine.llamacpp.model import CacheOptions, DraftOptions, ModelOptions
from shepherd.engine.llamacpp.remote import RemoteLlama
from shepherd.engine.llamacpp.runtime import ContextOptions
from shepherd.engine.media import tokens_of
from shepherd.engine.scheduler import EngineOptions
from shepherd.engine.worker.model_process import MOST_DEATHS, ChildEngine, ModelProcess, Program, Timeouts
from shepherd.models import catalog
from shepherd.process.child import Cancelled

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="sessions and sockets in folders are of POSIX"),
    pytest.mark.usefixtures(nothing_is_left.__name__),
]
QUICK = Timeouts(connect_s=60.0, frozen_s=2.0, hung_s=1.0, mute_s=MUTE_S, term_s=1.0, pause_s=0.01)
STEADY = replace(QUICK, mute_s=PATIENCE_S)
"""For a start on a machine that is busy."""
IMAGE = Media(b"image", 4, b"pixels")


def deadly_job(n: int) -> Job:
    return Job(array("i", [DEADLY, 1, 2 + n]), 5)


async def ask(engine: ChildEngine, text: str = "abc") -> None:
    assert tokens(await steps(engine.submit(job(text, 5)))) == expected(text, 5)


async def test_a_child_that_dies_without_work_is_started_again_as_often_as_it_dies_and_its_totals_outlive_it() -> None:
    engine = child(Setup(), timeouts=QUICK)
    await ask(engine)
    before = engine.stats()
    for n in range(MOST_DEATHS + 1):
        os.kill(first := engine.process.pid, signal.SIGKILL)
        await until(lambda: engine.process.n_restarts == n + 1 and engine.down is None)  # noqa: B023
        assert engine.process.pid != first
    await ask(engine)
    assert engine.stats().jobs == before.jobs + 1 == 2
    assert engine.stats().generated_tokens == 10
    engine.close()


async def test_a_prompt_that_has_ended_the_child_twice_is_refused_and_others_are_not() -> None:
    engine = child(Setup(), factory=f"{FACTORIES}:deadly", timeouts=QUICK)
    for _ in range(2):
        with pytest.raises(EngineDown, match="was killed by SIGABRT"):
            await steps(engine.submit(deadly_job(0)))
        await ask(engine)
    with pytest.raises(InvalidRequest, match="this prompt has ended the process of the engine of cache 'main' 2 times"):
        engine.submit(deadly_job(0))
    await ask(engine)
    engine.close()


async def test_a_prompt_that_makes_the_child_stand_still_twice_is_refused(tmp_path: Path) -> None:
    """A child that stays silent is killed, and so is one whose engine stalls for long; the next one answers. The prompt
    has ended by then: the requests of a child that hangs are not kept until it is killed. Both ways count."""
    (gate := tmp_path / "gate").touch()
    engine = child(Setup(gate=str(gate), stall_s=0.5), factory=f"{FACTORIES}:uninterrupted", timeouts=STEADY)
    for n, falls_silent in enumerate((True, False)):
        reasons = ["has sent nothing for 2 s"] if falls_silent else ["has made no progress", "has sent nothing"]
        ticket = engine.submit(job("abc", 5))
        await anext(ticket.batches())
        first = engine.process.pid
        if falls_silent:
            os.kill(first, signal.SIGSTOP)
        with pytest.raises(EngineDown, match="|".join(reasons)):
            await steps(ticket)
        await until(lambda: engine.process.n_restarts == n + 1 and engine.down is None)  # noqa: B023
        assert engine.process.pid != first
    gate.unlink()
    with pytest.raises(InvalidRequest, match="this prompt has ended the process of the engine of cache 'main' 2 times"):
        engine.submit(job("abc", 5))
    await ask(engine, "abcd")
    engine.close()


async def test_a_prompt_that_ran_while_the_child_only_fell_silent_for_a_while_is_not_blamed() -> None:
    engine = child(Setup(), timeouts=replace(STEADY, hung_s=PATIENCE_S))
    for n in range(2):  # a prompt that is blamed twice is refused
        os.kill(engine.process.pid, signal.SIGSTOP)
        with pytest.raises(EngineDown, match="has sent nothing"):
            await steps(engine.submit(job("abc", 5)))
        os.kill(engine.process.pid, signal.SIGCONT)
        await until(lambda: engine.down is None)
        os.kill(engine.process.pid, signal.SIGKILL)
        await until(lambda: engine.process.n_restarts == n + 1 and engine.down is None)  # noqa: B023
    await ask(engine)
    engine.close()


async def test_an_image_that_ends_the_child_before_its_job_starts_is_blamed_and_what_runs_beside_it_half(
    tmp_path: Path,
) -> None:
    (gate := tmp_path / "gate").touch()
    engine = child(Setup(gate=str(gate)), factory=f"{FACTORIES}:blinding", timeouts=STEADY)
    picture = Job(array("i", [1, *tokens_of(IMAGE), 2]), 5, media={1: IMAGE})
    for _ in range(2):
        long = engine.submit(job("a" * 9, 30))
        await anext(long.batches())
        beside = engine.submit(picture)
        for ticket in (long, beside):
            with pytest.raises(EngineDown, match="was killed by SIGABRT"):
                await steps(ticket)
        await until(lambda: engine.down is None)
    with pytest.raises(EngineDown, match="was killed by SIGABRT"):
        await steps(engine.submit(picture))
    await until(lambda: engine.down is None)
    with pytest.raises(InvalidRequest, match="this prompt has ended the process"):
        engine.submit(picture)
    gate.unlink()
    await steps(engine.submit(job("a" * 9, 30)))
    engine.close()


def test_a_text_for_vectors_that_has_ended_the_child_twice_is_refused_and_others_are_not() -> None:
    program = Program(COMMAND, f"{FACTORIES}:encoding", environment=environment(), timeouts=STEADY)
    process = ModelProcess(program, title="model 'vec'")
    try:
        for _ in range(2):
            with pytest.raises(EngineDown, match="was killed by SIGABRT"):
                process.call("encode", "deadly")
            assert becomes_true(lambda: process.down is None)
            assert process.call("encode", "sheep") == "SHEEP"
        with pytest.raises(
            InvalidRequest, match="this input has ended the process of the engine of model 'vec' 2 times"
        ):
            process.call("encode", "deadly")
        assert process.call("encode", "sheep") == "SHEEP"
    finally:
        process.close()


def test_a_text_for_vectors_in_which_the_library_hangs_ends_its_child_and_is_blamed_though_its_client_left() -> None:
    program = Program(COMMAND, f"{FACTORIES}:stuck", environment=environment(), timeouts=STEADY)
    process = ModelProcess(program, title="model 'vec'")
    try:
        for n in range(3):
            if n < 2:
                with pytest.raises(Cancelled):
                    process.call("encode", "deadly", is_wanted=lambda: False)
                with contextlib.suppress(EngineDown):  # it waits behind, or for the next child
                    process.call("encode", "sheep")
            else:
                with pytest.raises(EngineDown, match=r"the engine of vec\.gguf has made no progress"):
                    process.call("encode", "deadly")
            assert becomes_true(lambda: process.n_restarts == n + 1 and process.down is None)  # noqa: B023
            assert process.stats(None).stalls == n + 1
        assert process.call("encode", "sheep") == "SHEEP"
        with pytest.raises(InvalidRequest, match="this input has ended the process of the engine of model 'vec'"):
            process.call("encode", "deadly")
    finally:
        process.close()


async def test_a_child_that_dies_soon_again_without_work_is_started_after_a_pause_and_an_answer_ends_that() -> None:
    engine = child(Setup(), timeouts=replace(STEADY, pause_s=1000.0))
    os.kill(engine.process.pid, signal.SIGKILL)
    await until(lambda: engine.process.n_restarts == 1)
    await ask(engine)
    os.kill(engine.process.pid, signal.SIGKILL)
    await until(lambda: engine.process.n_restarts == 2)
    os.kill(engine.process.pid, signal.SIGKILL)
    await until(lambda: engine.down is not None)
    with pytest.raises(EngineDown, match="was killed by SIGKILL"):
        engine.submit(job())
    assert engine.process.n_restarts == 2
    engine.close()


async def test_a_prompt_that_was_answered_between_two_deaths_is_not_refused(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    engine = child(Setup(gate=str(gate)), timeouts=QUICK)
    for _ in range(2):
        gate.touch()
        running = engine.submit(job("innocent"))
        assert isinstance((await anext(running.batches()))[0], Admitted)
        os.kill(engine.process.pid, signal.SIGSEGV)
        with pytest.raises(EngineDown):
            await steps(running)
        gate.unlink()
        await ask(engine, "innocent")
    engine.close()


async def test_a_model_that_dies_at_each_start_is_marked_down_and_says_why(tmp_path: Path) -> None:
    engine = child(str(tmp_path / "n"), MOST_DEATHS, factory=f"{FACTORIES}:short_lived", timeouts=QUICK)
    await ask(engine)
    os.kill(engine.process.pid, signal.SIGKILL)
    await until(lambda: "no further one is started" in (engine.down or ""))
    assert "was killed by SIGKILL" in (engine.down or "")
    with pytest.raises(EngineDown, match="5 processes one after the other have died"):
        engine.submit(job())
    with pytest.raises(EngineDown, match="5 processes one after the other have died"):
        await engine.clear()
    assert engine.close()


async def test_what_comes_while_the_next_child_starts_waits_for_it(tmp_path: Path) -> None:
    engine = child(str(tmp_path / "n"), 0, factory=f"{FACTORIES}:short_lived", timeouts=QUICK)
    (held := tmp_path / "n.held").touch()
    os.kill(engine.process.pid, signal.SIGKILL)
    await until(lambda: engine.down is not None)
    tickets = [engine.submit(job(text, 5)) for text in ("abc", "abcd")]
    asked = asyncio.create_task(engine.held(job().tokens, (), job().owner, holes=False))
    await asyncio.sleep(0)
    held.unlink()
    async with asyncio.timeout(PATIENCE_S):
        assert [tokens(await steps(ticket)) for ticket in tickets] == [expected("abc", 5), expected("abcd", 5)]
        await asked
    engine.close()


async def test_a_start_that_fails_ends_what_waits_for_it_and_the_next_one_works(tmp_path: Path) -> None:
    engine = child(str(tmp_path / "n"), 1, factory=f"{FACTORIES}:short_lived", timeouts=QUICK)
    (held := tmp_path / "n.held").touch()
    os.kill(engine.process.pid, signal.SIGKILL)
    await until(lambda: engine.down is not None)
    ticket = engine.submit(job("abc", 5))
    held.unlink()
    with pytest.raises(EngineDown, match="was killed by SIGKILL"):
        await steps(ticket)
    await until(lambda: engine.down is None)
    await ask(engine)
    engine.close()


async def test_a_child_that_stands_still_while_it_loads_is_ended_and_a_slow_one_is_not(tmp_path: Path) -> None:
    engine = child(str(tmp_path / "n"), factory=f"{FACTORIES}:slow_to_load", timeouts=QUICK)
    await ask(engine)
    os.kill(engine.process.pid, signal.SIGKILL)
    await until(lambda: "has sent nothing for 2 s while it loaded the model" in (engine.down or ""))
    await until(lambda: engine.down is None)
    await ask(engine)
    assert (tmp_path / "n").read_text() == "3"
    engine.close()


GARBAGE = {
    "nothing": b"",
    "no pickle": b"garbage",
    "no list": b"\x80\x05N.",
    "a function": b"\x80\x05cos\nsystem\n\x8c\x04true\x85R.",
    "a class that does not cross": b"\x80\x05cshepherd.process.child\nChild\n.",
}
ENDLESS = {
    "a length of which too little comes": b"0123: text of a library on the wrong handle\n",
    "half a message": b"\0\0\1\0half" + STOP,
    "half a length": b"\0" + STOP,
}


async def test_garbage_of_a_child_is_its_end_and_runs_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    taken = amount(("no pickle", "a function"), tuple(GARBAGE))  # all is in `tests/unit/engine/test_channel.py`
    texts = tuple(GARBAGE[what] for what in taken)
    engine = child(str(tmp_path / "n"), texts, factory=f"{FACTORIES}:garbage", timeouts=QUICK)
    for n, what in enumerate(taken):
        await ask(engine)
        first = engine.process.pid
        caplog.clear()
        with pytest.raises(EngineDown, match="sent what is no message of ours"):
            await steps(engine.submit(deadly_job(n)))
        await until(lambda: engine.process.pid != first and engine.down is None)  # noqa: B023
        assert "cannot be read" in caplog.text, what
    await ask(engine)
    engine.close()


async def test_a_message_without_an_end_is_a_silent_child(tmp_path: Path) -> None:
    """What waits for the rest must not wait for ever."""
    texts = tuple(ENDLESS.values())[: amount(2, 3)]
    engine = child(str(tmp_path / "n"), texts, factory=f"{FACTORIES}:babbling", timeouts=STEADY)
    for n in range(len(texts)):
        await ask(engine)
        first = engine.process.pid
        async with asyncio.timeout(PATIENCE_S):
            with pytest.raises(EngineDown, match="has sent nothing for 2 s"):
                await steps(engine.submit(deadly_job(n)))
        await until(lambda: engine.process.pid != first and engine.down is None)  # noqa: B023
    await ask(engine)
    engine.close()


async def test_garbage_while_the_next_child_is_made_is_a_start_that_fails(tmp_path: Path) -> None:
    engine = child(str(tmp_path / "n"), factory=f"{FACTORIES}:garbled", timeouts=STEADY)
    await ask(engine)
    os.kill(engine.process.pid, signal.SIGKILL)
    await until(lambda: "sent what is no message of ours" in (engine.down or ""))
    await until(lambda: engine.down is None)
    await ask(engine)
    engine.close()


def lamb(**engine: object) -> ModelOptions:
    context = ContextOptions(n_ctx=1024, n_seq=8, n_outputs=2, n_threads=1)
    options = EngineOptions(sequences=2, **engine)  # type: ignore[arg-type]
    return ModelOptions(catalog.embedded(), "chat", (CacheOptions("main", context, options, 4),), n_threads=1)


async def test_a_child_has_the_draft_model_too(tmp_path: Path) -> None:
    """An error of its loading comes from there."""
    options, small = lamb(speculate=True), ContextOptions(512, n_seq=4, n_threads=1)
    drafts = {
        path: replace(options, caches=(replace(options.caches[0], draft=DraftOptions(path, small)),))
        for path in (tmp_path / "nowhere.gguf", catalog.embedded())
    }
    (tmp_path / "nowhere.gguf").write_bytes(b"GGUF")
    with pytest.raises(EngineError, match=r"nowhere\.gguf cannot be loaded"):
        RemoteLlama(drafts[tmp_path / "nowhere.gguf"], title="cache 'main'")
    model = RemoteLlama(drafts[catalog.embedded()], title="cache 'main'")
    (engine,) = model.engines
    try:
        wanted = Job(array("i", range(10, 40)), 20, Sampling(temperature=0))
        plain = await steps(engine.submit(replace(wanted, speculate=0)))
        drafted = await steps(engine.submit(wanted))
        assert plain[1:] == drafted[1:]
    finally:
        engine.close()
        model.free()


async def test_conversations_come_back_from_host_memory_without_a_prefill() -> None:
    model = RemoteLlama(lamb(tiers=Tiers(ram_bytes=1 << 28)), title="cache 'main'")
    (engine,) = model.engines
    try:
        prompts = [array("i", range(start, start + 300)) for start in (10, 400)]
        for prompt in prompts:
            await steps(engine.submit(Job(prompt, 3)))
        await until(lambda: len(model.process._regions) >= 2)
        os.kill(model.process.pid, signal.SIGKILL)
        await until(lambda: model.process.n_restarts == 1)
        for prompt in prompts:
            held = await engine.held(prompt, (), Job(prompt, 1).owner, holes=False)
            assert (held.n, held.tier) == (299, "memory")
            first = (await steps(engine.submit(Job(prompt, 3))))[0]
            assert isinstance(first, Admitted)
            assert first.n_new == 1
        await engine.clear()
        await until(lambda: not model.process._regions)
    finally:
        engine.close()
        model.free()
