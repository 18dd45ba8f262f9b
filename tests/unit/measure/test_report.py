"""Reports: what is in them, what is refused, and regressions that are planted in one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shepherd.core import ConfigError
from shepherd.measure import report
from shepherd.measure.metrics import Measured

FACTS: dict[str, Any] = {
    "date": "2026-11-23T12:00:00+00:00",
    "machine": {"cpu": "a", "processors": 2, "load": 0.1, "load_after": 1.1},
    "build": {"shepherd": "0.1.0"},
    "model": {"name": "m", "digest": "d"},
    "settings": {"n_threads": 1},
}


def measured(factor: float = 1.0, depth: int = 512) -> Measured:
    found = Measured(workload={"depth": depth, "n_generate": 32, "through": "engine"})
    for each in (1.0, 1.01, 0.99, 1.02, 0.98, 1.0):
        found.add(prompt=500 * each, first_cold=1000 * each * factor, computed_again=0.0)
    found.missing["eviction"] = "no turn has left in the time"
    return found


def test_a_report_holds_every_sample_and_comes_back_as_it_was(tmp_path: Path) -> None:
    made = report.made(measured(), {**FACTS, "complete": True})
    file = tmp_path / "report.json"
    file.write_text(json.dumps(made))
    assert report.read(file) == made
    assert (made["format"], made["version"]) == ("shepherd bench", 1)
    prompt, cold, missing, again = made["figures"]
    assert (prompt["name"], prompt["unit"], prompt["better"]) == ("prompt", "tokens/s", "higher")
    assert prompt["workload"] == {"through": "engine", "depth": 512}
    assert (cold["n"], cold["median"], cold["low"], cold["high"]) == (6, 1000.0, 980.0, 1020.0)
    assert len(cold["samples"]) == 6
    assert missing["missing"] == "no turn has left in the time"
    assert again["median"] == 0.0


def test_a_planted_regression_is_found_and_nothing_else(tmp_path: Path) -> None:
    old = report.made(measured(), FACTS)
    found = report.compared(old, measured(factor=1.4))
    verdicts = {name: each.change.verdict for name, each in found.items() if each.change is not None}
    assert verdicts == {"prompt": "same", "first_cold": "worse", "computed_again": "same"}
    back = report.compared(report.made(measured(factor=1.4), FACTS), measured())
    assert back["first_cold"].change is not None
    assert back["first_cold"].change.verdict == "better"


def test_other_work_is_not_compared() -> None:
    found = report.compared(report.made(measured(), FACTS), measured(depth=128))
    assert found["prompt"].change is None
    assert found["prompt"].problem == "not comparable: depth 512 → 128"
    assert found["computed_again"].change is not None
    del (old := report.made(measured(), FACTS))["figures"][0]
    assert report.compared(old, measured())["prompt"].problem == "not in the earlier report"


def test_what_else_has_changed_is_said() -> None:
    other = {
        **FACTS,
        "machine": {**FACTS["machine"], "cpu": "b", "load": 1.0},
        "model": {"name": "m", "digest": "e"},
        "settings": {"n_threads": 2},
    }
    assert report.differences(FACTS, FACTS) == []
    told = ["machine cpu: a → b", "model digest: d → e", "settings n_threads: 1 → 2"]
    assert report.differences(FACTS, other) == told


@pytest.mark.parametrize(
    ("load", "after", "threads", "is_busy"),
    [(0.1, 1.1, 1, False), (2.0, 4.0, 2, False), (2.1, 2.0, 1, True), (0.1, 3.2, 1, True), (0.1, 3.2, 2, False)],
)
def test_a_machine_is_busy_by_what_others_do(load: float, after: float, threads: int, is_busy: bool) -> None:
    facts = {"machine": {"load": load, "load_after": after, "processors": 2}, "settings": {"n_threads": threads}}
    assert bool(report.busy(facts)) == is_busy


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("no json", "is no report: it is no JSON; 'shepherd bench --json FILE' writes one"),
        ("[]", "is no report of shepherd bench"),
        ('{"model": "m", "goal": "chat"}', "is no report of shepherd bench"),
        (
            '{"format": "shepherd bench", "version": 2}',
            "is a report of version 2, and this Shepherd compares version 1; measure again",
        ),
        ('{"format": "shepherd bench", "version": 1}', "is a damaged report"),
        ('{"format": "shepherd bench", "version": 1, "figures": [{"name": 1}]}', "is a damaged report"),
        (
            '{"format": "shepherd bench", "version": 1, '
            '"figures": [{"name": "prompt", "workload": {}, "samples": ["x"]}]}',
            "is a damaged report",
        ),
        ("[" * 100_000, "is no report: it is no JSON"),
    ],
)
def test_what_is_no_report_is_refused_in_one_sentence(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    file.write_text(text)
    with pytest.raises(ConfigError) as error:
        report.read(file)
    assert error.value.message.startswith(f"{file}: {message}")
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        report.read(tmp_path / "nowhere.json")
