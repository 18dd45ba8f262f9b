"""The tests of `tests/unit/cli/test_bench.py` that take long."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE
from typing import Any
from xml.etree import ElementTree

import psutil
import pytest
from tests.in_time import becomes_true
from tests.own_server import serving
from tests.unit.cli.test_bench import bench

from shepherd.measure.metrics import THROUGH_HTTP

pytestmark = pytest.mark.model


def test_another_server_is_measured_in_turn(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    with serving(tmp_path / "there", "context_size = 2048", api_keys=["sk-there-secret"]) as url:
        refused = bench(tmp_path, "--against", url)
        assert refused.returncode == 1
        assert f"{url} refuses access; give its key with --api-key KEY" in refused.stderr
        found, picture = tmp_path / "report.json", tmp_path / "picture.svg"
        key = ("--api-key", "sk-there-secret")
        done = bench(tmp_path, "--budget", "3s", "--against", url, *key, "--json", found, "--svg", picture)
        assert done.returncode == 0, done.stderr
    report, n_bars = json.loads(found.read_text()), 0
    for side in (report, report["against"]):
        figures = {row["name"]: row for row in side["figures"]}
        assert figures.keys() == set(THROUGH_HTTP)
        assert all(row["workload"]["through"] == "http" for row in figures.values())
        assert all(row["median"] > 0 for row in figures.values() if "missing" not in row)
        n_bars += sum("missing" not in row for row in figures.values())
    assert (report["against"]["url"], report["against"]["model"]) == (url, "lamb")
    assert "sk-there-secret" not in found.read_text() + done.stdout + done.stderr
    assert url.removeprefix("http://") in done.stdout
    assert len(ElementTree.fromstring(picture.read_text()).findall(".//{*}rect")) == n_bars >= 6
    assert not Path(os.environ["RAG_DB_PATH"]).exists()


def started(folder: Path, *options: str | Path) -> subprocess.Popen[bytes]:
    command: tuple[Any, ...] = (sys.executable, "-m", "shepherd", "bench", "--model", "embedded", "--threads", "1")
    env = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache")}
    return subprocess.Popen((*command, *options), stdout=PIPE, stderr=PIPE, env=env, cwd=folder)


def test_an_interrupt_shows_and_writes_what_is_known(tmp_path: Path) -> None:
    found = tmp_path / "report.json"
    with started(tmp_path, "--budget", "10s", "--json", found) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if b"measuring: dialogue" in line:
                break
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err.decode()
    assert b"Traceback" not in err
    assert "generation, empty context" in out.decode()
    report = json.loads(found.read_text())
    assert report["complete"] is False
    assert {"prompt", "generation", "generation_deep"} <= {row["name"] for row in report["figures"]}
    assert "archive" not in {row["name"] for row in report["figures"]}
    assert list((tmp_path / "cache" / "shepherd").glob("bench-*")) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_before_the_first_figure_writes_nothing(number: signal.Signals, tmp_path: Path) -> None:
    found = tmp_path / "report.json"
    with started(tmp_path, "--budget", "5m", "--json", found) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if b"measuring: engine" in line:
                break
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (128 + number, b""), err.decode()
    assert b"stopped before anything was measured" in err
    assert b"Traceback" not in err
    assert not found.exists()
    assert list((tmp_path / "cache" / "shepherd").glob("bench-*")) == []


def test_an_interrupt_ends_the_server_that_the_other_one_is_compared_with(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    with (
        serving(tmp_path / "there", "context_size = 2048") as url,
        started(tmp_path, "--budget", "5m", "--against", url) as process,
    ):
        assert process.stderr is not None
        for line in process.stderr:
            if b"in turn" in line:
                break
        watched = psutil.Process(process.pid)
        assert becomes_true(lambda: any("bench_server" in " ".join(each.cmdline()) for each in watched.children()))
        children = watched.children(recursive=True)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        assert process.returncode == 130, err.decode()
        assert b"Traceback" not in err
    _, alive = psutil.wait_procs(children, timeout=60)
    assert alive == []
