"""The tests of `tests/unit/cli/test_optimize.py` that take long."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from subprocess import PIPE

import pytest
from tests.command_line import run
from tests.in_time import becomes_true
from tests.proven import proven
from tests.unit.cli.test_optimize import FILE

from shepherd import config as configuration
from shepherd.app.app import App


@pytest.mark.model
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


SLOW = """# mine
model = "m"

[models.m]
path = "embedded"
n_threads = 1
n_ubatch = 1   # planted: a prompt is computed token by token
mmap = false

[caches.main]
model = "m"
n_ctx = 512   # short
"""


@pytest.mark.model
async def test_a_slow_setting_is_found_proved_and_written_and_reaches_the_engine(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file, found, text = tmp_path / "shepherd.toml", tmp_path / "report.json", tmp_path / "text.txt"
    file.write_text(SLOW)
    text.write_text("The lamb eats grass on the hill, and the shepherd counts the lambs. " * 20)
    command = ("optimize", "--config", file, "--goal", "agent", "--budget", "60s", "--apply", "--text", text)
    env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    done = run(*command, "--json", found, cwd=tmp_path, env=env, timeout_s=300)
    assert done.returncode == 0, done.stderr
    told = json.loads(found.read_text())
    assert told["gain"]["low"] > 1
    settings = tomllib.loads(done.stdout)["models"]["m"]
    assert settings == told["settings"]
    assert settings["n_ubatch"] >= 128
    assert (tmp_path / "shepherd.toml.bak").read_text() == SLOW
    before, after = tomllib.loads(SLOW), tomllib.loads(file.read_text())
    assert after["models"]["m"] == before["models"]["m"] | settings
    assert {**after, "models": None} == {**before, "models": None}
    for line in ("# mine", "# planted: a prompt", "n_ctx = 512   # short"):
        assert line in file.read_text()
    config = configuration.load(flags={"threads": 1}, env={}, cwd=tmp_path, user_dir=tmp_path, file=file)
    app = App(config, cache_folder=proven(tmp_path / "cache"), env={})
    try:
        with caplog.at_level(logging.DEBUG, "shepherd.engine.llamacpp"):
            await app.load()
        assert re.search(rf"n_ubatch += {settings['n_ubatch']}\n", caplog.text)
    finally:
        await app.aclose()


@pytest.mark.model
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
