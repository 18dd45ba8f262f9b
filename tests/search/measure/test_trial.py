"""The tests of `tests/unit/measure/test_trial.py` that take long."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.measure.test_trial import ONE

from shepherd.measure.trial import Workload, measure


@pytest.mark.model
def test_one_child_measures_again_and_again(lamb: Path) -> None:
    first, *others = measure(lamb, ONE, Workload(depth=64, n_generate=4, parallel=True), repeat_s=2.0, timeout_s=60)
    assert (first.problem, len(others) > 0) == ("", True)
    assert all(min(each.prompt, each.empty, each.deep, each.parallel) > 0 for each in (first, *others))
    assert first.took_s > 2
    assert first.memory_bytes > 0
