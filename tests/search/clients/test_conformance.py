"""The conformance suite of the Model Context Protocol, from npm, against our server and our client: `make clients`."""

import shutil

import pytest
from suites.mcp import WHY, run

pytestmark = pytest.mark.clients


@pytest.mark.timeout(900)
def test_no_scenario_fails_but_those_that_want_what_is_not_here() -> None:
    if shutil.which("npm") is None:
        pytest.skip("there is no npm")
    report = run()
    assert len(report.rows) > 100
    assert {row.case.split()[-1] for row in report.rows if row.outcome == "failed"} <= WHY.keys()
