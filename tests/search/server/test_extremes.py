"""The tests of `tests/unit/server/test_extremes.py` that take long."""

from typing import Any

import pytest
from tests.unit.server.test_extremes import report  # noqa: F401 - fixtures


@pytest.mark.model
@pytest.mark.timeout(900)
def test_every_request_with_an_extreme_number_is_answered_or_refused_by_name(report: dict[str, Any]) -> None:
    assert report["wrong"] == []
    for path, n_of in report["statuses"].items():
        assert set(n_of) == {"200", "400"}, path
