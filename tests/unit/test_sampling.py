"""A run's share of the large grids, and the rules of a run, shown by runs of their own on planted tests."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests import sampling
from tests.conftest import LONGEST
from tests.places import ROOT

GRID = """
import pytest

@pytest.mark.sampled(0.2, family="family")
@pytest.mark.parametrize("case", range(20))
@pytest.mark.parametrize("family", "abcde")
def test_grid(family, case):
    print(f"ran {family}-{case}")
"""
COSTLY = """
import pytest

@pytest.mark.costly
@pytest.mark.parametrize("case", range(3))
def test_alone(case):
    print(f"ran alone-{case}")

@pytest.mark.costly("pair")
def test_one():
    print("ran one")

@pytest.mark.costly("pair")
def test_two():
    print("ran two")
"""
NATIVE = """
import sys

def test_innocent():
    pass

def test_that_loads_the_library():
    sys.modules["llama_cpp"] = sys

def test_that_comes_after():
    pass
"""


def run(folder: Path, source: str, *arguments: str, **variables: str) -> str:
    """What a run of this file with the conftest of all tests prints."""
    (folder / "test_planted.py").write_text(source)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SHEPHERD_", "PYTEST_"))}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "tests.conftest",
        "-p",
        "no:anyio",
        "-p",
        "no:schemathesis",
        "-n",
        "0",
        "-s",
        "-c",
        os.devnull,
        "--rootdir",
    ]
    done = subprocess.run(
        [*command, str(folder), *arguments],
        cwd=ROOT, env=environment | variables, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.stdout + done.stderr


def ran(printed: str) -> set[str]:
    return {line.rpartition("ran ")[2] for line in printed.splitlines() if "ran " in line}


@pytest.mark.costly
def test_a_quick_run_takes_a_share_that_turns_with_the_commit_and_the_first_of_every_family(tmp_path: Path) -> None:
    printed = [run(tmp_path, GRID, str(tmp_path), SHEPHERD_SAMPLE=turn) for turn in ("one", "two")]
    shares = [ran(each) for each in printed]
    assert shares[0] != shares[1]
    for share in shares:
        assert {f"{family}-0" for family in "abcde"} <= share
        assert 8 < len(share) < 50
    assert "SHEPHERD_SAMPLE=one" in printed[0]
    assert f"{100 - len(shares[0])} deselected" in printed[0]


@pytest.mark.costly
def test_a_glance_takes_little_of_every_grid_and_nothing_costly(tmp_path: Path) -> None:
    source = GRID.replace('@pytest.mark.sampled(0.2, family="family")', "") + COSTLY.removeprefix("\nimport pytest\n")
    share = ran(run(tmp_path, source, str(tmp_path), SHEPHERD_SAMPLE="c", SHEPHERD_THOROUGH="-1"))
    assert "a-0" in share
    assert 2 < len(share) < 30
    assert all(name.rpartition("-")[0] in set("abcde") for name in share)


def drawn(turn: str, alone: set[str], pair: set[str]) -> set[str]:
    """Which of the planted costly tests a quick run of this turn takes."""
    chosen = set[str]()
    for name, of in (("test_planted.py::test_alone", alone), ("pair", pair)):
        chosen |= of if sampling.is_chosen(name, sampling.QUICK, turn) else set()
    return chosen


@pytest.mark.costly
def test_costly_tests_take_turns_and_those_of_one_name_go_together(tmp_path: Path) -> None:
    alone, pair = {f"alone-{case}" for case in range(3)}, {"one", "two"}
    for due in (alone, pair, alone | pair, set[str]()):
        turn = next(turn for turn in map(str, itertools.count()) if drawn(turn, alone, pair) == due)
        assert ran(run(tmp_path, COSTLY, str(tmp_path), SHEPHERD_SAMPLE=turn)) == due
    assert ran(run(tmp_path, COSTLY, str(tmp_path), SHEPHERD_THOROUGH="1")) == alone | pair


@pytest.mark.parametrize("how", ["thorough", "by name"])
@pytest.mark.costly
def test_a_thorough_run_and_one_that_names_its_tests_leave_nothing_out(tmp_path: Path, how: str) -> None:
    where = str(tmp_path / "test_planted.py") if how == "by name" else str(tmp_path)
    variables = {"SHEPHERD_THOROUGH": "1"} if how == "thorough" else {}
    assert len(ran(run(tmp_path, GRID, where, **variables))) == 100


@pytest.mark.costly
def test_what_loads_the_library_in_a_run_without_the_model_is_found(tmp_path: Path) -> None:
    printed = run(tmp_path, NATIVE, str(tmp_path), "-m", "not model")
    assert "ERROR" in printed
    assert "test_that_loads_the_library" in printed.partition("short test summary")[2]
    assert "test_that_comes_after" not in printed.partition("short test summary")[2]
    assert "3 passed, 1 error" in printed
    assert "3 passed in" in run(tmp_path, NATIVE, str(tmp_path))


def test_the_longest_files_are_there() -> None:
    assert [name for name in LONGEST if not (ROOT / name).is_file()] == []
