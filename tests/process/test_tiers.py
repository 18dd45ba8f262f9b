"""The rules of the folders of tests, shown by runs of planted tests under our own conftest files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.places import ROOT

GRID = """
import pytest

@pytest.mark.grid(0.2, family="family")
@pytest.mark.parametrize("case", range(20))
@pytest.mark.parametrize("family", "abcde")
def test_grid(family, case):
    print(f"ran {family}-{case}")
"""
LOUD = """
import subprocess, sys

def test_quiet():
    pass

def test_loud():
    subprocess.run([sys.executable, "--version"])
"""
PLANTED = """
import random

from hypothesis import given, strategies as st

@given(st.integers())
def test_drawn(number):
    print(f"ran {number}")
"""


def run(folder: Path, source: str, plugin: str, *where: str, **variables: str) -> str:
    """What a run of planted tests prints."""
    (folder / "test_planted.py").write_text(source)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "SHEPHERD"))}
    command = [sys.executable, "-m", "pytest", "-p", plugin, "-p", "no:anyio", "-p", "no:schemathesis", "-n", "0", "-s"]
    done = subprocess.run(
        [*command, "-c", os.devnull, "--rootdir", str(folder), *(where or (str(folder),))],
        cwd=ROOT, env=environment | variables, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.stdout + done.stderr


def ran(printed: str) -> list[str]:
    return [line.rpartition("ran ")[2] for line in printed.splitlines() if "ran " in line]


def test_the_gate_takes_a_fixed_part_of_a_grid_and_the_first_of_every_family(tmp_path: Path) -> None:
    printed = run(tmp_path, GRID, "tests.conftest")
    part = ran(printed)
    assert {f"{family}-0" for family in "abcde"} <= set(part)
    assert 8 < len(part) < 50
    assert f"{100 - len(part)} deselected" in printed
    assert ran(run(tmp_path, GRID, "tests.conftest")) == part


@pytest.mark.parametrize("how", ["by name", "search"])
def test_a_search_and_a_run_that_names_its_tests_leave_nothing_out(tmp_path: Path, how: str) -> None:
    if how == "search":
        printed = run(tmp_path, GRID, "tests.conftest", SHEPHERD_SEARCH="7")
        assert "SHEPHERD_SEARCH=7 repeats it" in printed
    else:
        printed = run(tmp_path, GRID, "tests.conftest", str(tmp_path / "test_planted.py"))
    assert len(ran(printed)) == 100


def test_examples_follow_from_the_source_in_the_gate_and_from_the_seed_in_a_search(tmp_path: Path) -> None:
    first, again = (ran(run(tmp_path, PLANTED, "tests.conftest")) for _ in range(2))
    assert first == again
    found = [ran(run(tmp_path, PLANTED, "tests.conftest", SHEPHERD_SEARCH=seed)) for seed in ("1", "1", "2")]
    assert found[0] == found[1] != found[2]
    assert len(found[0]) > 2 * len(first)


def test_a_unit_test_that_starts_a_process_is_found(tmp_path: Path) -> None:
    printed = run(tmp_path, LOUD, "tests.unit.conftest")
    assert "it belongs into tests/process" in printed
    assert "test_loud" in printed.partition("short test summary")[2]
    assert "2 passed, 1 error" in printed
