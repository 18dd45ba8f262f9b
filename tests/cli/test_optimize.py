"""`shepherd optimize`: what it prints and writes, with results that are given, and once with real ones."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from subprocess import PIPE
from xml.etree import ElementTree

import pytest
from tests.command_line import run
from tests.in_time import becomes_true

from shepherd.cli.command import optimize
from shepherd.core import ConfigError
from shepherd.optimize.measure import Run, Workload
from shepherd.optimize.search import State
from shepherd.optimize.space import Candidate
from shepherd.optimize.tuning import Progress

START = Candidate(n_batch=512, n_ubatch=512, flash_attn=False, cache_type_v="q8_0")
BEST = Candidate(n_threads=2, n_batch=512, n_ubatch=512, flash_attn=True)
CRASHED = Candidate(n_threads=3)
FILE = """# my file
model = "m"   # the default

[models.m]  # ours
path = "embedded"
n_threads = 1  # was measured by hand
[models.other]
path = "embedded"
n_threads = 7

[caches.main]
model = "m"
n_ctx = 1024
cache_type_v = "q8_0"
"""


def progress(best: Candidate = BEST, final: tuple[float, ...] = (0.2, 0.21, 0.19)) -> Progress:
    fast, slow = Run(220.0, 22.0, 20.0, 0.0, 2**28, took_s=1.0), Run(180.0, 18.0, 16.0, 0.0, 2**28, took_s=1.0)
    runs = ((START, slow), (BEST, fast), (START, slow), (CRASHED, Run(problem="it <crashes>", took_s=1.0)))
    return Progress(START, Workload(), State(best), runs, final)


def test_the_settings_are_printed_as_a_part_of_a_configuration() -> None:
    text = optimize.to_toml("m", progress())
    assert tomllib.loads(text) == {"models": {"m": {"n_threads": 2, "flash_attn": True, "cache_type_v": "f16"}}}
    worse = progress(final=(-0.2, -0.21, -0.19))
    assert worse.best == START, "the last comparison counts"
    assert optimize.to_toml("m", worse) == "# models.m: nothing to change\n"


def test_the_report_and_the_picture_hold_every_combination() -> None:
    found = optimize.report("m", progress(), "chat")
    assert json.loads(json.dumps(found)) == found
    assert found["gain"]["low"] > 1
    best, start, crashed = found["combinations"]
    assert best["settings"] == 'n_threads = 2, flash_attn = true, cache_type_v = "f16"'
    assert (start["settings"], start["runs"]) == ("as it is", 2)
    assert crashed["problem"] == "it <crashes>"
    assert len(ElementTree.fromstring(optimize.to_svg(progress(), "chat")).findall(".//{*}rect")) == 2


def test_only_the_keys_that_change_are_written_and_comments_stay(tmp_path: Path) -> None:
    file = tmp_path / "shepherd.toml"
    file.write_text(FILE)
    optimize.write_settings(file, "m", {"n_threads": 2, "flash_attn": True, "cache_type_v": "f16"})
    assert (tmp_path / "shepherd.toml.bak").read_text() == FILE
    before, after = tomllib.loads(FILE), tomllib.loads(file.read_text())
    assert after["models"]["m"] == {"path": "embedded", "n_threads": 2, "flash_attn": True}
    assert after["caches"]["main"]["cache_type_v"] == "f16", "the cache has its own"
    assert after["models"]["other"] == before["models"]["other"]
    assert file.read_text().startswith('# my file\nmodel = "m"   # the default\n\n[models.m]  # ours\n')
    assert "# was measured by hand" in file.read_text()


def test_a_file_without_the_table_of_the_model_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "shepherd.toml"
    file.write_text('model = "embedded"\n')
    with pytest.raises(ConfigError, match=r"there is no table \[models.lamb\] to write to; add it"):
        optimize.changed(file, "lamb", {})


@pytest.mark.model
@pytest.mark.costly
def test_a_real_search_prints_toml_and_leaves_the_file_as_it_is(tmp_path: Path) -> None:
    file, found = tmp_path / "shepherd.toml", tmp_path / "report.json"
    file.write_text(FILE.replace('cache_type_v = "q8_0"\n', ""))
    before = file.read_bytes()
    command = ("optimize", "--config", file, "--budget", "6s", "--json", found, "--svg", tmp_path / "picture.svg")
    done = run(*command, cwd=tmp_path, env={**os.environ, "XDG_CACHE_HOME": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    tomllib.loads(done.stdout)
    assert file.read_bytes() == before
    told = json.loads(found.read_text())
    assert told["model"] == "m"
    assert told["spent_s"] <= 9
    assert told["combinations"][0]["prompt"] > 0
    assert "SETTINGS" in done.stderr
    assert (tmp_path / "picture.svg").read_text().startswith("<svg")


@pytest.mark.model
@pytest.mark.costly
def test_an_interrupt_prints_what_is_known_and_the_next_run_goes_on(tmp_path: Path) -> None:
    file = tmp_path / "shepherd.toml"
    file.write_text(FILE.replace('cache_type_v = "q8_0"\n', ""))
    env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    command = ("optimize", "--config", str(file), "--apply", "--budget", "5m")
    with subprocess.Popen(
        (sys.executable, "-m", "shepherd", *command), stdout=PIPE, stderr=PIPE, env=env, cwd=tmp_path
    ) as process:
        results = tmp_path / "shepherd" / "optimize"
        assert becomes_true(lambda: len(list(results.glob("*.json"))) > 0)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err.decode()
    assert "models" in out.decode()
    assert b"Traceback" not in err
    assert file.read_text() == FILE.replace('cache_type_v = "q8_0"\n', ""), "an end before the end changes no file"
    (kept,) = results.glob("*.json")
    before = len(json.loads(kept.read_text())["runs"])
    done = run("optimize", "--config", file, "--budget", "2s", cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stderr
    assert len(json.loads(kept.read_text())["runs"]) >= before


def test_a_budget_that_is_none_is_refused() -> None:
    for budget in ("soon", "0", "-1"):
        done = run("optimize", "--model", "embedded", "--budget", budget)
        assert done.returncode == 1
        assert f"'{budget}' is no budget; write seconds, or a text such as 90s or 5m" in done.stderr
