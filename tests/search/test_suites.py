"""The tests of `tests/unit/test_suites.py` that take long."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from suites.venv import rows_of

PLANTED = """
import pytest

def test_good():
    pass

def test_bad():
    assert {'input': 0} == {'input': 3}

def test_aside():
    pytest.skip("no such thing")
"""


def test_the_outcome_of_each_foreign_test_is_a_row(tmp_path: Path) -> None:
    (tmp_path / "test_planted.py").write_text(PLANTED)
    rows = rows_of(sys.executable, "-p", "no:xdist", "test_planted.py", cwd=tmp_path, environment={})
    assert {row.case.partition("::")[2]: row.outcome for row in rows} == {
        "test_good": "passed", "test_bad": "failed", "test_aside": "not applicable",
    }  # fmt: skip
    with pytest.raises(RuntimeError, match="ran no test"):
        rows_of(sys.executable, "--no-such-option", cwd=tmp_path, environment={})
