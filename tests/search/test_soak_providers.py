"""The tests of `tests/unit/test_soak_providers.py` that take long."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from bench.soak import providers
from bench.soak.providers import Plan
from tests.cases import amount


@pytest.mark.model
@pytest.mark.timeout(600)
def test_nothing_is_lost_or_doubled_between_faulty_providers(tmp_path: Path) -> None:
    plan = Plan(1e6, clients=5, seed=7, requests=amount(80, 400), pause_s=0.0)
    result = asyncio.run(providers.soak(plan, tmp_path))
    assert result["findings"] == []
    assert providers.failures(result) == []
    assert result["counts"]["answered"] > amount(16, 80)
    assert {"fault: none", "left"} <= result["counts"].keys()
    assert sum(name.startswith("fault: ") for name in result["counts"]) > 4
    assert result["settled"]["requests to providers"] == result["settled"]["jobs"] == 0
