"""A child process that dies, freezes or misbehaves is an error of its requests; nothing waits and nothing is left."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from array import array
from collections.abc import Iterator
from contextlib import aclosing, suppress
from pathlib import Path

import psutil
import pytest
from tests.cases import amount
from tests.in_time import PATIENCE_S, becomes_true, until
from tests.places import ROOT
from tests.process.engine.factories import FACTORIES
from tests.process.engine.test_contract import expected, job, steps, tokens
from tests.unit.engine.kinds import CHILDREN, COMMAND, Setup, child, environment

import shepherd.core.errors
from shepherd.core import ConfigError, ContextFull, EngineDown, EngineError, RateLimited, ShepherdError
from shepherd.engine.base import Admitted, Done
from shepherd.engine.window import Fact, Fresh, Picture, Seq
from shepherd.engine.worker.messages import ADDRESS, KEY
from shepherd.engine.worker.model_process import ChildEngine, ModelProcess, Program, Timeouts
from shepherd.process.child import Cancelled

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="sessions and sockets in folders are of POSIX")
TIMES = range(amount(1, 10))
"""Races are run more than once in a thorough run."""
QUICK = Timeouts(connect_s=60.0, frozen_s=2.0, term_s=1.0)


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No process, no thread and no file of a socket; what a test that fails leaves fails no other one."""
    folder, before = tmp_path / "t", set(threading.enumerate())
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield
    while CHILDREN:
        CHILDREN.pop().close()
    assert becomes_true(lambda: not marked(folder)), marked(folder)
    assert list(folder.iterdir()) == []
    assert not [each.name for each in {*threading.enumerate()} - before if each.name.startswith("worker-")]


def marked(folder: Path) -> list[str]:
    """Processes of this test: those with its socket in their environment."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get(ADDRESS, "").startswith(str(folder)):
                found.append(f"{process.pid} {process.status()} {process.cmdline()}")
    return found


def kill(engine: ChildEngine, number: int) -> None:
    os.kill(engine.process.pid, number)


# -- its end -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("time_", TIMES)
async def test_a_child_that_dies_ends_all_that_waits_and_says_how(time_: int, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    engine = child(Setup(gate=str(gate), sequences=1))
    try:
        for number in (signal.SIGKILL, signal.SIGSEGV, *amount((), (signal.SIGTERM,))):
            gate.touch()
            name = number.name  # a prompt that has ended two children would be refused
            running, waiting = engine.submit(job(f"a{name}")), engine.submit(job(f"b{name}"))
            batches = running.batches()
            assert isinstance((await anext(batches))[0], Admitted)
            asked = asyncio.create_task(engine.evict(job("c", on_full="evict"), 1))
            await asyncio.sleep(0)
            kill(engine, number)
            reason = f"the process of the engine of cache 'main' was killed by {name}"
            async with asyncio.timeout(PATIENCE_S):
                with pytest.raises(EngineDown, match=reason):
                    [step async for batch in batches for step in batch]
                with pytest.raises(EngineDown, match=reason):
                    await steps(waiting)
                with pytest.raises(EngineDown, match=reason):
                    await asked
            engine.cancel(waiting)
            gate.unlink()
            assert tokens(await steps(engine.submit(job("abc", 5)))) == expected("abc", 5), "the next child answers"
    finally:
        assert engine.close()
    assert engine.close(), "a second time does nothing"


async def test_a_feed_goes_on_with_the_next_child() -> None:
    engine = child(Setup())
    try:
        feed = engine.watch()
        async with asyncio.timeout(PATIENCE_S), aclosing(feed.batches()) as batches:
            known: dict[Seq, Fact] = {}
            for text in ("abc", "defg"):
                await steps(engine.submit(job(text, 5)))
                while not any(isinstance(each, Picture) and each.n_prompt == len(text) for each in known.values()):
                    for fact in await anext(batches):
                        if isinstance(fact, Fresh):
                            known.clear()
                        elif isinstance(fact, Picture):
                            known[fact.seq] = fact
                if text == "abc":
                    kill(engine, signal.SIGKILL)
                    while known:
                        known = {} if Fresh() in await anext(batches) else known
            assert len(known) == 1, "nothing is left of the first child's"
        engine.unwatch(feed)
    finally:
        assert engine.close()


async def test_a_child_may_die_at_any_moment_of_many_jobs() -> None:
    """Of one child after the other, a step later each time."""
    engine = child(Setup())

    async def dies(after: int) -> None:
        prompts = [f"{after} {chr(97 + n) * (n + 3)}" for n in range(20)]  # one that has ended two would be refused
        tickets = [engine.submit(job(prompt, 30)) for prompt in prompts]
        seen = 0

        async def read(n: int) -> None:
            nonlocal seen
            got = []
            try:
                async for batch in tickets[n].batches():
                    got += batch
                    seen += 1
                    if seen == 3 * after + 1:
                        kill(engine, signal.SIGKILL)
            except EngineDown:
                assert got == [] or not isinstance(got[-1], Done)
            else:
                assert tokens(got) == expected(prompts[n], 30)

        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(*map(read, range(20)))
        async with asyncio.timeout(PATIENCE_S):
            while True:
                with suppress(EngineDown):  # on a busy machine the steps come in fewer batches than that, or later
                    assert tokens(await steps(engine.submit(job("abc", 5)))) == expected("abc", 5)
                    break

    try:
        for after in range(amount(2, 40)):
            await dies(after)
    finally:
        engine.close()


async def test_its_last_words_are_in_the_error() -> None:
    with pytest.raises(EngineError) as raised:
        child("exit", factory=f"{FACTORIES}:failing")
    assert raised.value.message == (
        "the process of the engine of cache 'main' ended with exit status 3; its last words: the licence has expired"
    )


async def test_what_a_factory_raises_is_what_the_start_raises() -> None:
    with pytest.raises(ConfigError) as raised:
        child("config", factory=f"{FACTORIES}:failing")
    assert (raised.value.key, raised.value.file) == ("models.a.n_ctx", "a.toml")
    with pytest.raises(EngineError, match=r"^the engine failed: ZeroDivisionError: a planted bug$"):
        child("bug", factory=f"{FACTORIES}:failing")
    with pytest.raises(EngineError, match="was killed by SIGSEGV"):
        child("signal", factory=f"{FACTORIES}:failing")
    with pytest.raises(EngineError, match="ModuleNotFoundError: No module named 'nowhere'"):
        child(factory="nowhere.at:all")


async def test_a_start_that_takes_too_long_or_is_not_wanted_any_more_is_ended() -> None:
    with pytest.raises(EngineError, match=r"^the process of the engine of cache 'main' was not ready after 0\.5 s"):
        child("hang", factory=f"{FACTORIES}:failing", timeouts=Timeouts(connect_s=60, build_s=0.5))
    begun = time.monotonic()
    with pytest.raises(Cancelled):
        child(
            "hang", factory=f"{FACTORIES}:failing",
            is_wanted=lambda: time.monotonic() < begun + 1.0,
        )  # fmt: skip


def test_it_gives_signs_of_life_while_it_imports_a_large_library(tmp_path: Path) -> None:
    names = "[each.name for each in threading.enumerate()]"
    (tmp_path / "large.py").write_text(
        f"import os, threading\nprint('worker-beat' in {names}, flush=True)\nos._exit(3)"
    )
    paths = os.pathsep.join([str(tmp_path), environment()["PYTHONPATH"]])
    with pytest.raises(EngineError, match=r"ended with exit status 3; its last words: True$"):
        ModelProcess(Program(COMMAND, "large:make", environment=environment() | {"PYTHONPATH": paths}), title="large")


def started(program: str, connect_s: float = 60.0) -> ChildEngine:
    command = [sys.executable, "-c", program]
    return child(Setup(), command=command, timeouts=Timeouts(connect_s=connect_s))


LITTER = "import os, pathlib; pathlib.Path(os.environ['LITTER'], 'x').write_text('x'); "


@pytest.mark.parametrize("end", ["os.kill(os.getpid(), 9)", "raise SystemExit(0)"])
async def test_its_temporary_files_go_with_it_however_it_ends(end: str, tmp_path: Path) -> None:
    usual, own = tmp_path / "usual", tmp_path / "own"
    usual.mkdir()
    own.mkdir()
    for variables, place in (({}, usual), ({"LITTER": str(own)}, own)):
        is_there = f"os.environ['LITTER'].startswith({str(place / 'shepherd-')!r})"
        told = f"print({is_there}, 'NOWHERE' in os.environ, flush=True); "
        with pytest.raises(
            EngineError, match=r"^the process of the engine of cache 'main' .*; its last words: True False$"
        ):
            child(
                command=[sys.executable, "-c", LITTER + told + end],
                folders={"LITTER": str(usual), "NOWHERE": "/nowhere"}, environment=environment() | variables,
            )  # fmt: skip
    with pytest.raises(EngineError, match=r"^the process of the engine of cache 'main' cannot be started"):
        child(command=["/nowhere/python"], folders={"LITTER": str(usual)})
    assert [*usual.iterdir(), *own.iterdir()] == []


WRONG_KEY = f"""
import os
from multiprocessing.connection import Client
try:
    Client(os.environ[{ADDRESS!r}], "AF_UNIX", authkey=b"wrong")
except Exception as error:
    print(type(error).__name__, flush=True)
"""
SERVE = "from shepherd.engine.worker.host import serve; import sys; sys.exit(serve())"


async def test_a_process_without_the_key_is_refused_and_the_right_one_still_comes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with pytest.raises(EngineError, match=r"exit status 0; its last words: AuthenticationError$"):
        started(WRONG_KEY)
    assert caplog.text.count("a process without the key has connected") == 1
    engine = started(WRONG_KEY + SERVE)
    assert tokens(await steps(engine.submit(job("abc", 5)))) == expected("abc", 5)
    engine.close()


async def test_the_key_is_in_no_environment_of_what_the_child_starts() -> None:
    program = (
        f"import os\nfrom shepherd.engine.worker import host\nassert {KEY!r} in os.environ\n"
        f"print(host.serve(), {KEY!r} in os.environ, {ADDRESS!r} in os.environ, flush=True)\nos._exit(9)"
    )
    engine = started(program)
    engine.close()
    assert engine.process.ending().endswith("ended with exit status 9; its last words: 0 False True")


async def test_noise_of_a_library_is_not_on_our_output_and_blocks_nothing(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    engine = child(factory=f"{FACTORIES}:noisy")
    assert tokens(await steps(engine.submit(job("abc", 5)))) == expected("abc", 5)
    assert capfd.readouterr() == ("", "")
    first = engine.process.pid
    kill(engine, signal.SIGKILL)
    await until(lambda: engine.process.pid != first and engine.down is None)
    said = next(each for each in caplog.messages if "SIGKILL" in each)
    assert said.endswith("noise on standard error\nthe last line")
    assert len(said) < 2200
    engine.close()


# -- a child that freezes ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("time_", TIMES)
async def test_a_frozen_child_is_found_and_continues_when_it_can(
    time_: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gate = tmp_path / "gate"
    engine = child(Setup(gate=str(gate), sequences=1), timeouts=QUICK)
    try:
        gate.touch()
        ticket = engine.submit(job("a" * 9))
        await anext(ticket.batches())
        kill(engine, signal.SIGSTOP)
        asked = asyncio.create_task(engine.held(array("i", [1]), (), job().owner, holes=False))
        reason = r"the process of the engine of cache 'main' has sent nothing for 2 s"
        async with asyncio.timeout(PATIENCE_S):
            with pytest.raises(EngineDown, match=reason):
                await steps(ticket)
            with pytest.raises(EngineDown, match=reason):
                await asked
        with pytest.raises(EngineDown, match=reason):
            engine.submit(job())
        kill(engine, signal.SIGCONT)
        await until(lambda: engine.down is None)
        batches = engine.submit(job("abc", 5)).batches()
        got = await asyncio.wait_for(anext(batches), PATIENCE_S)  # what was abandoned has left its place
        gate.unlink()
        assert tokens([*got, *[step async for batch in batches for step in batch]]) == expected("abc", 5)
        assert "sends again" in caplog.text
    finally:
        kill(engine, signal.SIGCONT)
        engine.close()


async def test_a_frozen_child_can_be_closed() -> None:
    engine = child(Setup(), timeouts=QUICK)
    ticket = engine.submit(job("a" * 9, 1))
    kill(engine, signal.SIGSTOP)
    assert await asyncio.to_thread(engine.close)
    with pytest.raises(EngineDown, match=r"sent nothing|was stopped"):
        await steps(ticket)


async def test_a_frozen_child_blocks_no_event_loop() -> None:
    engine = child(Setup(queue=1000), timeouts=QUICK)
    kill(engine, signal.SIGSTOP)
    begun = time.monotonic()
    large = array("i", [7]) * 4000
    tickets = [
        engine.submit(job(max_tokens=10).__class__(large, 10)) for _ in range(300)
    ]  # far more than a socket holds
    assert time.monotonic() - begun < 1.0
    for ticket in tickets:
        with pytest.raises(EngineDown, match="has sent nothing"):
            await steps(ticket)
    kill(engine, signal.SIGCONT)
    await until(lambda: engine.down is None)
    assert tokens(await steps(engine.submit(job("abc", 5)))) == expected("abc", 5)
    engine.close()


# -- closing -----------------------------------------------------------------------------------------------------------


async def test_what_the_child_has_started_ends_with_it() -> None:
    for number in (None, signal.SIGKILL):
        engine = child(Setup(), factory=f"{FACTORIES}:familiar")
        family = psutil.Process(engine.process.pid).children(recursive=True)
        assert len(family) == 2
        if number is not None:
            kill(engine, number)
            await until(lambda: engine.process.n_restarts == 1)  # noqa: B023
        assert await asyncio.to_thread(engine.close)
        assert not any(each.is_running() and each.status() != psutil.STATUS_ZOMBIE for each in family)


PARENT = """
import asyncio, sys, time
from array import array
from tests.unit.engine.kinds import Setup, child
from shepherd.engine.base import Job

async def main(file, phase):
    if phase == "builds":
        child(file, factory="tests.process.engine.factories:hanging")
    engine = child(Setup(gate=file + ".gate"))
    open(file + ".gate", "w").close()
    ticket = engine.submit(Job(array("i", [1, 2, 3]), 100))
    await anext(ticket.batches())
    with open(file, "w") as said:
        print(engine.process.pid, file=said)
    time.sleep(1000)

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize("phase", ["builds", "computes"])
@pytest.mark.parametrize("time_", TIMES)
def test_a_child_ends_within_a_second_when_its_parent_is_killed(time_: int, phase: str, tmp_path: Path) -> None:
    file = tmp_path / "pid"
    with subprocess.Popen([sys.executable, "-c", PARENT, str(file), phase], env=environment(), cwd=ROOT) as parent:
        assert becomes_true(lambda: file.exists() and file.read_text().endswith("\n"))
        pid = int(file.read_text())
        process = psutil.Process(pid)
        assert os.getsid(pid) == pid != os.getsid(0), "Ctrl-C of our terminal does not reach it"
        parent.kill()
        begun = time.monotonic()
        assert becomes_true(lambda: not process.is_running() or process.status() == psutil.STATUS_ZOMBIE)
        assert time.monotonic() - begun < 10.0, "at most a second, on a machine that does nothing else"


async def test_a_child_that_does_not_close_is_ended_by_force(caplog: pytest.LogCaptureFixture) -> None:
    engine = child(Setup(), factory=f"{FACTORIES}:deaf", timeouts=QUICK)
    assert await asyncio.to_thread(engine.close, 1.0)
    assert "does not end; it is ended by force" in caplog.text
    assert engine.process.ending() == "was killed by SIGKILL"


async def test_the_log_of_a_child_comes_out_in_ours_and_once_closed_its_engine_refuses_and_keeps_nothing_waiting(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO, "shepherd"):
        engine = child(Setup())
        await engine.clear()
        assert engine.close()
    assert ("shepherd.engine.scheduler", logging.INFO, "cache 'main' is cleared: 0 conversations are forgotten") in (
        caplog.record_tuples
    )
    with pytest.raises(EngineDown, match=r"^the engine was stopped$"):
        engine.submit(job())
    with pytest.raises(EngineDown, match=r"^the engine was stopped$"):
        await engine.held(job().tokens, (), job().owner, holes=False)


def test_a_job_whose_event_loop_has_ended_is_cancelled() -> None:
    engine = child(factory=f"{FACTORIES}:endless")

    async def abandon() -> None:
        await anext(engine.submit(job("abandoned", 90_000)).batches())

    async def ask() -> list[int]:
        return tokens(await steps(engine.submit(job("abc", 2))))

    asyncio.run(abandon())
    assert asyncio.run(ask()) == [7, 7], "else it would wait for hours"
    engine.close()


# -- errors ------------------------------------------------------------------------------------------------------------


def every_error() -> list[ShepherdError]:
    made: list[ShepherdError] = [
        ContextFull(needed=5, limit=4, cache="main"),
        RateLimited("busy", backend="local:main", retry_after_s=2.0),
        ConfigError("is wrong", key="a.b", file="c"),
    ]
    known = {type(error) for error in made}
    for kind in vars(shepherd.core.errors).values():
        if isinstance(kind, type) and issubclass(kind, ShepherdError) and kind not in known:
            error = kind.__new__(kind, "a message")
            error.__dict__.update(message="a message", field="a field", status=418)
            made.append(error)
    return made


@pytest.mark.parametrize("error", every_error(), ids=lambda error: type(error).__name__)
def test_every_error_crosses_as_it_is(error: ShepherdError) -> None:
    here, there = multiprocessing.Pipe()
    here.send(error)
    got = there.recv()
    assert (type(got), str(got), vars(got)) == (type(error), str(error), vars(error))
    here.close()
    there.close()
