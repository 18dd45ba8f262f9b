"""`bench.engine.chaos` in small: nothing is found, and with each planted fault what it is."""

import asyncio
from pathlib import Path

import pytest
from bench.engine.chaos import PLANTS, Plan, chaos

pytestmark = [pytest.mark.model, pytest.mark.timeout(900)]


def test_a_server_outlives_its_engines_and_loses_nothing(tmp_path: Path) -> None:
    result = asyncio.run(chaos(Plan(kills=12, restarts=12, conversations=4), tmp_path))
    assert result["findings"] == []
    assert result["killed"]["all"] == 12
    assert result["answers"]["answered about an image"] > 0
    assert result["compared"]["same"] > 0


@pytest.mark.parametrize("plant", PLANTS)
def test_what_is_planted_is_found(plant: str, tmp_path: Path) -> None:
    count, _ = PLANTS[plant]
    result = asyncio.run(chaos(Plan(kills=3, restarts=20, conversations=3, plant=plant), tmp_path))
    assert result["found"][count] > 0, result["found"]
