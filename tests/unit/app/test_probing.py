"""When a model is measured in the background, and that what was measured is used: from the next start on, unless the
user has set it."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import aclosing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests import command_line
from tests.in_time import becomes_true, until
from tests.places import SOURCE
from tests.proven import proven

from shepherd import config as configuration
from shepherd.app import probing
from shepherd.app.app import App
from shepherd.app.probing import Prober, described, known, setup_of, why_not
from shepherd.backends.local.backend import LocalBackend
from shepherd.config import ModelConfig
from shepherd.core import Event, Message, Request, fold
from shepherd.engine.engine import InProcessEngine
from shepherd.engine.llamacpp import probe
from shepherd.engine.llamacpp.probe import Finding, Verdict
from shepherd.measure.subject import subject_of
from shepherd.models import gguf
from shepherd.models.sizing import Cells, fit
from shepherd.process.child import Unwanted
from shepherd.process.files import try_lock

pytestmark = pytest.mark.model

FOUND = Finding("flash_attn", False, True, "on is 1.40 times as fast as off (at least 1.30, 20 pairs)")
FASTER = Verdict("2026-11-23", 4096, 1.5, (FOUND, Finding("n_threads", 1, 2, "2 is 1.50 times as fast as 1")))
CELLS = Cells(1024)
WANTED = ModelConfig("m", probe=True)


class Measuring:
    """A measurement that lasts until it is told to end, or is not wanted any more."""

    def __init__(self, *verdicts: Verdict | None, lasts: bool = False) -> None:
        self.verdicts = list(verdicts)
        self.begun = threading.Semaphore(0)
        self.n_unwanted = 0
        self.may_end = threading.Event()
        if not lasts:
            self.may_end.set()

    def __call__(self, setup: probe.Setup, *, is_wanted: Callable[[], bool], **options: Any) -> Verdict | None:
        self.begun.release()
        while not self.may_end.wait(0.005):
            if not is_wanted():
                self.n_unwanted += 1
                raise Unwanted
        return self.verdicts.pop(0) if self.verdicts else FASTER


class Jobs:
    """How many jobs there have been, or None while there is one; counts how often it was asked."""

    def __init__(self, n_jobs: int | None) -> None:
        self.n_jobs = n_jobs
        self.n_looks = 0

    def __call__(self) -> int | None:
        self.n_looks += 1
        return self.n_jobs

    def was_looked_at(self) -> bool:
        """Whether it is asked three times more."""
        n_looks = self.n_looks
        return becomes_true(lambda: self.n_looks >= n_looks + 3)


@contextmanager
def prober(
    folder: Path, measuring: Measuring, n_jobs: Callable[[], int | None] = lambda: 0, *, quiet_s: float = 0.0
) -> Iterator[Prober]:
    made = Prober(folder, use_extra_bufts=True, n_jobs=n_jobs, quiet_s=quiet_s, measure=measuring)
    try:
        yield made
    finally:
        measuring.may_end.set()
        made.close()


@pytest.fixture(autouse=True)
def undecided(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment says nothing about probes, as a benchmark that another test has imported does."""
    monkeypatch.delenv("SHEPHERD_PROBE", raising=False)


@pytest.fixture
def header(lamb: Path) -> gguf.Header:
    return gguf.read_header(lamb)


def is_over(made: Prober) -> bool:
    return made._thread is None


# -- when -------------------------------------------------------------------------------------------------------------


def test_a_model_is_measured_once_and_the_verdict_is_kept(header: gguf.Header, tmp_path: Path) -> None:
    measuring = Measuring()
    with prober(tmp_path, measuring) as made:
        made.add(header, WANTED, CELLS)
        assert becomes_true(lambda: is_over(made))
        assert known(tmp_path, header, WANTED, CELLS) == FASTER
        made.add(header, WANTED, CELLS)
        assert becomes_true(lambda: is_over(made)), "it is known"
    assert measuring.begun.acquire(blocking=False)
    assert not measuring.begun.acquire(blocking=False)
    with prober(tmp_path, measuring, quiet_s=3600.0) as made:
        made.add(header, WANTED, CELLS)
        assert becomes_true(lambda: is_over(made)), "no quiet is waited for where a verdict is known"


def test_a_request_ends_a_probe_at_once_and_it_is_tried_again(header: gguf.Header, tmp_path: Path) -> None:
    jobs = Jobs(3)
    measuring = Measuring(lasts=True)
    with prober(tmp_path, measuring, jobs) as made:
        made.add(header, WANTED, CELLS)
        assert measuring.begun.acquire(timeout=60)
        jobs.n_jobs = None  # a job is computed
        assert becomes_true(lambda: measuring.n_unwanted == 1)
        assert jobs.was_looked_at()
        assert not measuring.begun.acquire(blocking=False), "not while it is computed"
        measuring.may_end.set()
        jobs.n_jobs = 4
        assert becomes_true(lambda: is_over(made))
        assert known(tmp_path, header, WANTED, CELLS) == FASTER


def test_a_job_that_came_and_went_between_two_looks_ends_a_probe_too(header: gguf.Header, tmp_path: Path) -> None:
    jobs = Jobs(3)
    measuring = Measuring(lasts=True)
    with prober(tmp_path, measuring, jobs) as made:
        made.add(header, WANTED, CELLS)
        assert measuring.begun.acquire(timeout=60)
        jobs.n_jobs = 4
        assert becomes_true(lambda: measuring.n_unwanted == 1)


def test_a_busy_machine_is_tried_again(header: gguf.Header, tmp_path: Path) -> None:
    with prober(tmp_path, Measuring(None, FASTER)) as made:
        made.add(header, WANTED, CELLS)
        assert becomes_true(lambda: is_over(made))
    assert known(tmp_path, header, WANTED, CELLS) == FASTER


def test_it_gives_up_on_a_machine_that_is_always_busy(header: gguf.Header, tmp_path: Path) -> None:
    measuring = Measuring(*[None] * 99)
    with prober(tmp_path, measuring) as made:
        made.add(header, WANTED, CELLS)
        assert becomes_true(lambda: is_over(made))
    assert known(tmp_path, header, WANTED, CELLS) is None
    assert len(measuring.verdicts) == 99 - probing.MOST_TRIES


def test_closing_ends_a_probe_and_nothing_is_kept(header: gguf.Header, tmp_path: Path) -> None:
    measuring = Measuring(lasts=True)
    made = Prober(tmp_path, use_extra_bufts=True, n_jobs=lambda: 0, quiet_s=0.0, measure=measuring)
    made.add(header, WANTED, CELLS)
    assert measuring.begun.acquire(timeout=60)
    made.close()
    assert measuring.n_unwanted == 1
    assert known(tmp_path, header, WANTED, CELLS) is None
    made.add(header, WANTED, CELLS)
    assert is_over(made), "it is closed"


def test_only_one_shepherd_measures_at_a_time(header: gguf.Header, tmp_path: Path) -> None:
    first, second, jobs = Measuring(lasts=True), Measuring(), Jobs(0)
    with prober(tmp_path, first) as one, prober(tmp_path, second, jobs, quiet_s=0.1) as other:
        one.add(header, WANTED, CELLS)
        assert first.begun.acquire(timeout=60)
        other.add(header, WANTED, CELLS)
        with open(probe.folder_of(tmp_path) / "lock", "rb") as file:
            assert not try_lock(file.fileno())
        assert jobs.was_looked_at()
        assert not second.begun.acquire(blocking=False)
        assert not is_over(other), "it waits for its turn"
        first.may_end.set()
        assert becomes_true(lambda: is_over(one) and is_over(other))
        assert not second.begun.acquire(blocking=False), "it has found the verdict of the other one"
    assert known(tmp_path, header, WANTED, CELLS) == FASTER


@pytest.mark.skipif(os.name != "posix", reason="a file in the place of a folder")
def test_a_folder_that_cannot_be_written_is_no_problem(
    header: gguf.Header, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "probes").write_text("no folder")
    measuring = Measuring()
    with caplog.at_level("DEBUG", "shepherd.app.probing"), prober(tmp_path, measuring) as made:
        made.add(header, WANTED, CELLS)
        assert becomes_true(lambda: is_over(made))
    assert not measuring.begun.acquire(blocking=False)
    assert [record.levelname for record in caplog.records] == ["DEBUG"]
    assert "lamb.gguf is not measured" in caplog.text


def test_what_goes_wrong_within_a_probe_ends_in_the_log(
    header: gguf.Header, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object, **__: object) -> Verdict:
        raise RuntimeError("planted")

    made = Prober(tmp_path, use_extra_bufts=True, n_jobs=lambda: 0, quiet_s=0.0, measure=broken)
    made.add(header, WANTED, CELLS)
    assert becomes_true(lambda: is_over(made))
    made.close()
    assert "lamb.gguf could not be measured" in caplog.text


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (ModelConfig("m", probe=False), "switched off (probe = false)"),
        (
            ModelConfig("m"),
            "not measured: so small a model is fast enough with one thread (fewer than 50,000,000 param",
        ),
        (
            ModelConfig("m", probe=True, n_threads=1, flash_attn=False),
            "not measured: the configuration sets flash_attn",
        ),
        (ModelConfig("m", probe=True, n_threads=1), ""),
    ],
)
def test_what_is_not_measured_says_why_and_uses_no_verdict(
    model: ModelConfig, why: str, header: gguf.Header, tmp_path: Path
) -> None:
    setup = setup_of(header, model, CELLS)
    assert why_not(setup, model.probe).startswith(why)
    assert bool(why) == bool(why_not(setup, model.probe))
    probe.keep(tmp_path, setup, FASTER)
    assert (known(tmp_path, header, model, CELLS) is None) == bool(why)
    probe.file_of(tmp_path, setup).unlink()
    with prober(tmp_path, Measuring(lasts=True)) as made:
        made.add(header, model, CELLS)
        assert is_over(made) == bool(why)


def test_large_models_are_measured_behind_fewer_tokens(header: gguf.Header) -> None:
    assert probing.depth_of(header, Cells(100_000)) == probe.DEPTH
    assert probing.depth_of(header, Cells(2048)) == 2048 - probe.MARGIN
    assert probing.depth_of(header, Cells(256)) == 64
    wide = {f"llama.attention.{side}_length": 8192 for side in ("key", "value")}
    large = replace(header, metadata={**header.metadata, **wide})
    depth = probing.depth_of(large, Cells(100_000))
    assert 64 < depth < probe.DEPTH
    assert fit(large, [Cells(depth)]).cells <= probing.MOST_CELLS_BYTES < fit(large, [Cells(2 * depth)]).cells


def test_a_probe_that_needs_more_memory_than_is_free_is_not_begun(
    header: gguf.Header, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    wide = {f"llama.attention.{side}_length": 1 << 30 for side in ("key", "value")}
    measuring = Measuring()
    with caplog.at_level("DEBUG", "shepherd.app.probing"), prober(tmp_path, measuring) as made:
        made.add(replace(header, metadata={**header.metadata, **wide}), WANTED, CELLS)
        assert becomes_true(lambda: is_over(made))
    assert not measuring.begun.acquire(blocking=False)
    assert "MiB are free" in caplog.text


def test_a_verdict_in_words() -> None:
    assert described(FASTER) == (
        "flash_attn = true (on is 1.40 times as fast as off (at least 1.30, 20 pairs)); "
        "n_threads = 2 (2 is 1.50 times as fast as 1)"
    )
    kept = Verdict("2026-11-23", findings=(Finding("n_threads", 2, 2, "why"),), problem="it did crash")
    assert described(kept) == "n_threads = 2 as by default (why); it did crash"
    assert described(Verdict("2026-11-23")) == "there is nothing to choose from"


# -- the whole program ------------------------------------------------------------------------------------------------


def made_app(folder: Path, **flags: Any) -> App:
    file = folder / "shepherd.toml"
    file.write_text('[models.lamb]\npath = "embedded"\n')
    config = configuration.load(flags={"probe": True, **flags}, env={}, cwd=folder, user_dir=folder, file=file)
    return App(config, cache_folder=proven(folder / "cache"), env={"RAG_DB_PATH": str(folder / "memory.db")})


def keep(app: App, verdict: Verdict) -> None:
    """Plant a verdict where the next start of the same configuration looks for one."""
    (model,) = app.config.models
    header = gguf.read_header(SOURCE / "models" / "lamb.gguf")
    probe.keep(app._cache_folder, setup_of(header, model, Cells(256)), verdict)


def in_use(app: App) -> tuple[int | None, int | None, bool | None]:
    """The threads that were given, those that were measured, and flash attention of the engine."""
    from shepherd.engine.llamacpp.runtime import LlamaRuntime, flash_attention

    (backend,) = app.dispatcher.backends().values()
    assert isinstance(backend, LocalBackend)
    assert isinstance(backend.engine, InProcessEngine)
    runtime = backend.engine._runtime
    assert isinstance(runtime, LlamaRuntime)
    options = runtime._options
    return options.n_threads, options.most_threads, flash_attention(options)


@pytest.mark.model
@pytest.mark.parametrize(
    ("flags", "start"),
    [
        ({}, (2, True)),
        ({"flash_attn": False}, (2, False)),
        ({"threads": 1}, (1, True)),
        ({"probe": False}, (1, False)),
    ],
)
def test_optimize_starts_from_what_is_in_use(flags: dict[str, Any], start: tuple[int, bool], tmp_path: Path) -> None:
    app = made_app(tmp_path, **flags)
    keep(app, FASTER)
    begun = subject_of(app.config, None, cache_folder=app._cache_folder).start
    assert (begun.n_threads, begun.flash_attn) == start
    plain = subject_of(app.config, None).start
    assert (plain.n_threads, plain.flash_attn) == (1, False), "without the folder no verdict is looked for"


@pytest.mark.parametrize(
    ("flags", "used"),
    [
        ({}, (None, 2, True)),
        ({"flash_attn": False}, (None, 2, False)),
        ({"threads": 1}, (1, 2, True)),
        ({"probe": False}, (None, None, False)),
    ],
)
async def test_a_verdict_counts_from_the_next_start_on_unless_the_user_has_set_it(
    flags: dict[str, Any], used: tuple[int | None, int | None, bool], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    app = made_app(tmp_path, **flags)
    keep(app, FASTER)
    with caplog.at_level("INFO", "shepherd.app.loading"):
        await app.load()
    try:
        assert in_use(app) == used
        said_so = "model 'lamb': flash_attn = true, n_threads = 2, as measured on 2026-11-23" in caplog.text
        assert said_so == ("probe" not in flags)
        events: list[Event] = []
        async with aclosing(app.conversations.stream(Request("lamb", (Message.user("Hello!"),)))) as stream:
            async for event in stream:
                events.append(event)
        assert fold(events).message.text == "Hello! How can I help you?"
    finally:
        await app.aclose()


async def test_states_on_disk_know_with_which_attention_they_were_made(tmp_path: Path) -> None:
    """So a state of before the verdict is computed again, and never read as if it were one of after it."""
    fingerprints = []
    for verdict in (None, Verdict("2026-11-23", 64, 1.0, (FOUND,))):
        app = made_app(tmp_path)
        if verdict is not None:
            keep(app, verdict)
        await app.load()
        (backend,) = app.dispatcher.backends().values()
        fingerprints.append(backend.engine._runtime.fingerprint)  # type: ignore[attr-defined]
        await app.aclose()
    assert fingerprints[0] != fingerprints[1]


async def test_a_request_during_a_real_child_ends_it_and_the_answer_is_right(tmp_path: Path) -> None:
    app, ends, begun = made_app(tmp_path), [], asyncio.Event()
    loop = asyncio.get_running_loop()

    def measure(setup: probe.Setup, *, is_wanted: Callable[[], bool], **options: Any) -> Verdict | None:
        """The real one, over a child that never ends by itself."""
        loop.call_soon_threadsafe(begun.set)
        command = ("python3", "-c", "import threading; threading.Event().wait()")
        try:
            return probe.measure(setup, is_wanted=is_wanted, command=command, **options)
        except Unwanted:
            ends.append("unwanted")
            raise

    assert app._n_jobs() is None, "nothing is loaded"
    await app.load()
    prober = Prober(tmp_path, use_extra_bufts=True, n_jobs=app._n_jobs, quiet_s=0.0, measure=measure)
    try:
        (entry,) = app.dispatcher.catalogue.registry.entries.values()
        assert isinstance(entry.header, gguf.Header)
        assert app._n_jobs() == 0
        waiting = app.dispatcher.pool._members[entry.key].waiting
        waiting.append(Future())  # as if it were opened again
        assert app._n_jobs() is None
        waiting.clear()
        prober.add(entry.header, entry.model, entry.plans[0].cells)
        await begun.wait()
        events: list[Event] = []
        async with aclosing(app.conversations.stream(Request("lamb", (Message.user("Hello!"),)))) as stream:
            async for event in stream:
                if not events:
                    assert app._n_jobs() is None
                events.append(event)
        assert fold(events).message.text == "Hello! How can I help you?"
        await until(lambda: ends == ["unwanted"])
    finally:
        await asyncio.to_thread(prober.close)
        await app.aclose()


@pytest.mark.costly
async def test_the_first_start_measures_for_real_and_the_next_one_knows(tmp_path: Path) -> None:
    app = made_app(tmp_path)
    await app.load()
    measure = partial(probe.measure, is_background=False)
    prober = Prober(app._cache_folder, use_extra_bufts=True, n_jobs=app._n_jobs, quiet_s=0.0, measure=measure)
    try:
        (entry,) = app.dispatcher.catalogue.registry.entries.values()
        assert isinstance(entry.header, gguf.Header)
        before = in_use(app)
        prober.add(entry.header, entry.model, entry.plans[0].cells)
        await until(lambda: is_over(prober))
        assert in_use(app) == before, "an engine that runs keeps its settings"
        verdict = known(app._cache_folder, entry.header, entry.model, entry.plans[0].cells)
        assert verdict is not None
        assert verdict.problem == ""
    finally:
        await asyncio.to_thread(prober.close)
        await app.aclose()
    again = made_app(tmp_path)
    await again.load()
    (entry,) = again.dispatcher.catalogue.registry.entries.values()
    assert entry.measured == verdict
    assert in_use(again)[2] is bool(verdict.flash_attention)
    await again.aclose()


# -- what doctor says -------------------------------------------------------------------------------------------------


def doctor(folder: Path, *flags: str) -> str:
    """The line on the defaults of the embedded model, and its hint."""
    env = {**os.environ, "XDG_CACHE_HOME": str(folder), "XDG_CONFIG_HOME": str(folder / "config")}
    done = command_line.run(*flags, "doctor", "--json", cwd=folder, env=env)
    found = next(each for each in json.loads(done.stdout) if each["name"] == "defaults of lamb")
    return f"{found['state']}: {found['detail']} {found['hint']}".strip()


def test_doctor_shows_what_was_measured_what_is_used_and_why(tmp_path: Path, header: gguf.Header) -> None:
    cache = proven(tmp_path / "shepherd")
    assert doctor(tmp_path).startswith("ok: not measured: so small a model")
    assert doctor(tmp_path, "--no-probe") == "ok: switched off (probe = false)"
    assert doctor(tmp_path, "--probe").startswith("ok: not measured yet; the first start does it")
    setup = setup_of(header, WANTED, CELLS)
    probe.keep(cache, setup, FASTER)
    assert doctor(tmp_path, "--probe") == f"ok: {described(FASTER)}; measured on 2026-11-23, 1.5 s behind 4096 tokens"
    probe.keep(cache, setup, Verdict("2026-11-23", problem="the process that measures did crash (SIGABRT)"))
    shown = doctor(tmp_path, "--probe")
    assert shown.startswith("note: the process that measures did crash (SIGABRT); measured on 2026-11-23 ")
    assert str(probe.file_of(cache, setup)) in shown
    probe.file_of(cache, setup).unlink()
    (cache / "probes" / "lock").unlink(missing_ok=True)
    (cache / "probes").rmdir()
    (cache / "probes").write_text("no folder")
    assert doctor(tmp_path, "--probe").startswith("note: not measured: ")
