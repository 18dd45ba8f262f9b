"""`shepherd plan` on this machine, which is measured in processes of their own."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.process.measure.test_speed import TINY
from tests.unit.cli.conftest import Home

from shepherd.measure import speed

pytestmark = pytest.mark.model


def test_without_a_machine_this_one_is_planned_from_what_was_measured(home: Home, tmp_path: Path) -> None:
    home.env["XDG_CACHE_HOME"] = str(tmp_path)
    speed.measured_rates(
        ("f16",), n_threads=1, gpu_layers=0, cache_folder=tmp_path / "shepherd", shapes=TINY, repeat_s=0.0
    )
    done = home.run("plan", "embedded", "--context", "1024", "--users", "2")
    assert done.returncode == 0, done.stderr
    assert "measuring" not in done.stderr
    assert "Use this machine (1 thread), llama.cpp." in done.stderr
    assert "estimates" not in done.stderr
    assert 'path = "embedded"' in done.stdout
    assert "gpu_layers = 0" in done.stdout
