"""The tests of `tests/unit/test_soak.py` that take long."""

from typing import Any

import pytest
from tests.unit.test_soak import (
    REQUESTS,
    result,  # noqa: F401 - fixtures
)


@pytest.mark.model
@pytest.mark.timeout(900)
def test_nothing_hangs_is_wrong_or_lost(result: dict[str, Any]) -> None:
    assert result["plan"]["ended"] == "requests"
    assert result["findings"] == []
    assert result["stopped"]["status"] == 0
    assert result["answers"]["answered"] > REQUESTS / 2
    assert result["answers"]["evicted"] > 0
    assert result["answers"]["lulls"] > 0
    assert result["compared"]["same"] > REQUESTS / 20
    assert sum(seen["acknowledged"] for seen in result["memory"].values()) > REQUESTS / 4
