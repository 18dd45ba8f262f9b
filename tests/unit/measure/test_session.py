"""How a run shares out its time, and a real one over the embedded model."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shepherd import config as configuration
from shepherd.measure.session import DEPTHS, Session, Step, in_turn, single_user
from shepherd.measure.space import Candidate, Facts
from shepherd.measure.subject import Subject, subject_of
from shepherd.measure.trial import Run


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0
        self.done: list[str] = []

    async def work(self, name: str, seconds: float) -> None:
        self.done.append(name)
        self.now_s += seconds

    def step(self, name: str, seconds: float, weight: float = 1.0) -> Step:
        return Step(functools.partial(self.work, name, seconds), weight)


async def test_every_step_gets_its_share_and_none_begins_that_does_not_fit() -> None:
    clock, shown = Clock(), []
    steps = (clock.step("a", 1.0), clock.step("b", 3.0, 3.0), clock.step("c", 0.5))
    await in_turn(steps, until_s=50.0, on_step=lambda: shown.append(len(clock.done)), clock=lambda: clock.now_s)
    assert clock.done[:3] == ["a", "b", "c"]
    spent = {name: clock.done.count(name) * seconds for name, seconds in (("a", 1.0), ("b", 3.0), ("c", 0.5))}
    assert spent["b"] == pytest.approx(30, abs=4)
    assert spent["a"] == pytest.approx(10, abs=2)
    assert spent["c"] == pytest.approx(10, abs=2)
    assert 46 <= clock.now_s <= 50
    assert shown == [*range(1, len(clock.done) + 1)]


async def test_what_takes_longer_than_all_of_the_time_is_done_once() -> None:
    clock = Clock()
    await in_turn((clock.step("a", 100.0), clock.step("b", 1.0)), until_s=10.0, clock=lambda: clock.now_s)
    assert clock.done == ["a", "b"]


def session(facts: Facts, **options: Any) -> Session:
    subject = Subject("m", None, Candidate(n_threads=1), facts)  # type: ignore[arg-type] # no file is read
    return Session(None, subject, budget_s=60, folder=Path(), cache_folder=Path(), served=None, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("speed", "n_ctx", "seconds", "depth"),
    [(1000.0, 8192, 10.0, 512), (10.0, 8192, 10.0, 128), (1000.0, 512, 10.0, 128), (0.1, 8192, 10.0, 128)],
)
def test_a_prompt_is_as_long_as_time_and_context_allow(speed: float, n_ctx: int, seconds: float, depth: int) -> None:
    probe = Run(speed, speed, speed)
    assert session(Facts(1, 1, n_ctx))._depth(probe, seconds) == depth
    assert depth in DEPTHS


@pytest.mark.model
@pytest.mark.parametrize(
    ("flags", "start"), [({}, (1, False)), ({"flash_attn": True}, (1, True)), ({"threads": 2}, (2, False))]
)
def test_a_measurement_starts_from_the_settings_in_use(
    flags: dict[str, Any], start: tuple[int, bool], tmp_path: Path
) -> None:
    config = configuration.load(env={}, cwd=tmp_path, user_dir=tmp_path, flags={"model": "embedded", **flags})
    begun = subject_of(config, None).start
    assert (begun.n_threads, begun.flash_attn) == start


def test_nothing_of_the_user_is_in_the_configuration_that_is_measured(tmp_path: Path) -> None:
    file = tmp_path / "shepherd.toml"
    file.write_text(
        'model = "m"\nsystem = "Be brief."\n[models.m]\npath = "embedded"\n[models.m.sampling]\ntemperature = 0.5\n'
        '[memory]\ndatabase_path = "mine.db"\n[kv]\ndisk = true\n[providers.openai]\ntype = "openai"\napi_key = "sk"\n'
        '[[mcp_servers]]\nname = "x"\ncommand = "rm"\n[tools]\nenabled = ["files"]\n'
        '[[routes]]\nmatch = "*"\ncache = "main"\nuser = "me"\narchive = true\nfallback = ["openai"]\n'
        '[caches.main]\nmodel = "m"\nn_ctx = 512\n'
    )
    config = configuration.load(env={}, cwd=tmp_path, user_dir=tmp_path, file=file, flags={})
    subject = subject_of(config, None)
    subject = replace(subject, start=replace(subject.start, n_threads=1))
    found = single_user(config, subject, n_ctx=1024, folder=tmp_path)
    assert (found.providers, found.mcp_servers, found.tools.enabled) == ((), (), ())
    assert found.memory.database_path == str(tmp_path / "unused.db")
    assert not found.memory.enable_archival
    assert not found.kv.disk
    assert found.system == ""
    (model,), (cache,), (route,) = found.models, found.caches, found.routes
    assert (model.n_threads, model.sampling.temperature, cache.n_ctx) == (1, None, 1024)
    assert (route.cache, route.fallback, route.user, route.archive) == (cache.name, (), None, None)
