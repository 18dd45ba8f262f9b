"""The conformance suite of the Model Context Protocol, from npm, against our server and our client: `make clients`."""

import shutil

import pytest
from suites.mcp import run

pytestmark = pytest.mark.clients


@pytest.mark.timeout(900)
def test_every_scenario_that_applies_passes() -> None:
    if shutil.which("npm") is None:
        pytest.skip("there is no npm")
    report = run()
    assert len(report.rows) > 100
    assert not [row for row in report.rows if row.outcome == "failed"]
