"""The tests of `tests/unit/cli/test_bench.py` that start programs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tests.unit.cli.test_bench import bench

from shepherd.cli.command import bench_server
from shepherd.core import EngineError
from shepherd.measure.metrics import METRICS

pytestmark = pytest.mark.model

ALL = {metric.name for metric in METRICS}


def test_a_real_run_measures_every_figure_and_touches_nothing(tmp_path: Path) -> None:
    found, picture = tmp_path / "report.json", tmp_path / "picture.svg"
    done = bench(tmp_path, "--budget", "1s", "--json", found, "--svg", picture)
    assert done.returncode == 0, done.stderr
    report = json.loads(found.read_text())
    figures = {row["name"]: row for row in report["figures"]}
    assert figures.keys() == ALL
    for row in figures.values():
        assert row["title"] in done.stdout
        if "samples" in row:  # a short time may be too short for an eviction
            assert row["low"] <= row["median"] <= row["high"]
            assert row["n"] == len(row["samples"]) > 0
    for name in ("prompt", "generation", "generation_deep", "first_cold", "first_warm", "archive", "search"):
        assert figures[name]["median"] > 0
    assert set(figures["computed_again"].get("samples", [0])) == {0}
    assert report["complete"] is True
    assert (report["model"]["name"], report["settings"]["n_threads"]) == ("lamb", 1)
    assert len(report["model"]["digest"]) == 16
    assert report["machine"]["processors"] == os.cpu_count()
    bars = ElementTree.fromstring(picture.read_text()).findall(".//{*}rect")
    assert len(bars) == sum("samples" in row for row in figures.values())
    assert not Path(os.environ["RAG_DB_PATH"]).exists(), "the memory of the user"
    left = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    of_library = {path for path in left if path.startswith("cache/shepherd/") and path.endswith(".json")}
    assert left - of_library == {"shepherd.toml", "report.json", "picture.svg"}
    assert "medians; the true one is in the interval" in done.stderr
    # a regression is planted in the earlier report, far beyond what a busy machine does
    report["machine"] |= {"load": 0.0, "load_after": 0.0, "cpu": "another"}
    figures["archive"] |= {"samples": [1e9 + n for n in range(20)], "median": 1e9}
    earlier = tmp_path / "earlier.json"
    earlier.write_text(json.dumps(report))
    done = bench(tmp_path, "--budget", "1s", "--compare", earlier, "--svg", picture)
    assert done.returncode == 0, done.stderr
    assert "not the same as in the earlier report: machine cpu: another → " in done.stderr
    (row,) = (line for line in done.stdout.splitlines() if "stored durably" in line)
    assert "×0.00" in row
    assert ("worse" in row) == ("no verdict on changes: the machine was busy" not in done.stderr)
    assert "(earlier)" in picture.read_text()


async def test_a_server_of_this_model_that_cannot_start_says_why(tmp_path: Path) -> None:
    options = {"model": str(tmp_path / "nowhere.gguf")}
    with pytest.raises(EngineError, match=r"the server of this model did not start: .*nowhere\.gguf"):
        async with bench_server.running(options, 512, tmp_path, tmp_path):
            pass
