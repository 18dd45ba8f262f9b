"""The rules of the folders of tests, shown by runs of planted tests under our own conftest files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.places import ROOT

LOUD = """
import subprocess, sys

def test_quiet():
    pass

def test_loud():
    subprocess.run([sys.executable, "--version"])
"""
PLANTED = """
import random

import pytest
from hypothesis import given, strategies as st

@pytest.mark.grid(0.2, family="family")
@pytest.mark.parametrize("case", range(20))
@pytest.mark.parametrize("family", "abcde")
def test_grid(family, case):
    print(f"taken {family}-{case}")

@pytest.mark.search
def test_rare():
    print("taken rare")

@pytest.mark.parametrize("case", ["usual", pytest.param("odd", marks=pytest.mark.search)])
def test_partly_rare(case):
    print(f"taken {case}")

@given(st.lists(st.integers(), min_size=20))
def test_drawn(numbers):
    print(f"drawn {numbers}")
"""
N_ALL = 100 + 1 + 2
"""Of the cases that print `taken`."""


def run(folder: Path, source: str, plugin: str, *where: str, **variables: str) -> str:
    """What a run of planted tests prints."""
    (folder / "test_planted.py").write_text(source)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "SHEPHERD"))}
    command = [sys.executable, "-m", "pytest", "-p", plugin, "-p", "no:anyio", "-p", "no:schemathesis", "-n", "0", "-s"]
    done = subprocess.run(
        [*command, "-c", os.devnull, "--rootdir", str(folder), "--confcutdir", str(folder), *(where or (str(folder),))],
        cwd=ROOT, env=environment | variables, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.stdout + done.stderr


def said(word: str, printed: str) -> list[str]:
    return [line.rpartition(f"{word} ")[2] for line in printed.splitlines() if f"{word} " in line]


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """What two runs of the gate print, the second one beside a module with numbers of its own."""
    folder = tmp_path_factory.mktemp("gate")
    alone = run(folder, PLANTED, "tests.conftest")
    (folder / "conftest.py").write_text(f"NUMBERS = {list(range(10**6, 10**6 + 500))}\n")
    return alone, run(folder, PLANTED, "tests.conftest")


@pytest.fixture(scope="module")
def search(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str, str]:
    """What searches print: two from one seed, and one from another."""
    folder = tmp_path_factory.mktemp("search")
    first, again, other = (run(folder, PLANTED, "tests.conftest", SHEPHERD_SEARCH=seed) for seed in ("1", "1", "2"))
    return first, again, other


def test_the_gate_takes_a_fixed_part_of_a_grid_and_the_first_of_every_family(gate: tuple[str, str]) -> None:
    part, again = (said("taken", printed) for printed in gate)
    assert {f"{family}-0" for family in "abcde"} <= set(part)
    assert 8 < len(part) < 50
    assert f"{N_ALL - len(part)} deselected" in gate[0]
    assert again == part


def test_the_gate_leaves_out_what_is_for_a_search_alone(gate: tuple[str, str], search: tuple[str, str, str]) -> None:
    rare = {"rare", "usual", "odd"}
    assert rare & set(said("taken", gate[0])) == {"usual"}
    assert rare <= set(said("taken", search[0]))


def test_a_search_leaves_nothing_out_and_says_how_it_is_repeated(search: tuple[str, str, str]) -> None:
    assert "SHEPHERD_SEARCH=2 repeats it" in search[2]
    assert len(said("taken", search[2])) == N_ALL


def test_a_run_that_names_its_tests_leaves_nothing_out(tmp_path: Path) -> None:
    printed = run(tmp_path, PLANTED, "tests.conftest", str(tmp_path / "test_planted.py"))
    assert len(said("taken", printed)) == N_ALL


def test_examples_follow_from_the_source_in_the_gate_and_from_the_seed_in_a_search(
    gate: tuple[str, str], search: tuple[str, str, str]
) -> None:
    in_gate = [said("drawn", printed) for printed in gate]
    assert in_gate[0] == in_gate[1]
    first, again, other = (said("drawn", printed) for printed in search)
    assert first == again != other
    assert len(first) > 2 * len(in_gate[0])


def test_a_unit_test_that_starts_a_process_is_found(tmp_path: Path) -> None:
    printed = run(tmp_path, LOUD, "tests.unit.conftest")
    assert "it belongs into tests/process" in printed
    assert "test_loud" in printed.partition("short test summary")[2]
    assert "2 passed, 1 error" in printed
