"""No number, and no list of texts, ends the process or takes much memory, in any protocol."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.places import ROOT

MIB = 2**20


@pytest.fixture(scope="module")
def report(coder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What came of all requests, in a process that may take 2 GiB more than it has at the start."""
    child = [sys.executable, str(Path(__file__).with_name("extremes.py")), str(coder)]
    found = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    ended = subprocess.run(
        child,
        cwd=tmp_path_factory.mktemp("extremes"),
        env={**os.environ, "PYTHONPATH": found},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    lines = ended.stdout.splitlines()
    assert ended.returncode == 0, (ended.returncode, lines[-1:], ended.stderr[-2000:])
    told: dict[str, Any] = json.loads(lines[-1])
    return told


@pytest.mark.model
@pytest.mark.timeout(900)
def test_all_extreme_numbers_together_take_little_memory(report: dict[str, Any]) -> None:
    assert report["grown_bytes"] < 150 * MIB


@pytest.mark.model
@pytest.mark.timeout(900)
def test_every_request_with_an_extreme_number_is_answered_or_refused_by_name(report: dict[str, Any]) -> None:
    assert report["wrong"] == []
    for path, n_of in report["statuses"].items():
        assert set(n_of) == {"200", "400"}, path
