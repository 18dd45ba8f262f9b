"""The tests of `tests/process/server/test_completions.py` that take long."""

from __future__ import annotations

import httpx2
import pytest
from tests.process.server.test_completions import client  # noqa: F401 - fixtures


@pytest.mark.model
def test_a_model_that_cannot_fill_gaps_says_so_to_editors(server: str) -> None:
    with httpx2.Client(base_url=server, timeout=60) as client:
        told = client.post("/infill", json={"input_prefix": "a", "input_suffix": "b"})
    assert told.status_code == 400
    assert "cannot fill gaps" in told.json()["error"]["message"]
