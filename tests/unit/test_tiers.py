"""What tells the folders of tests apart, as far as the sources show it. Planted tests are run in `tests/process`."""

from __future__ import annotations

import ast

from tests import cases
from tests.places import ROOT, TESTS


def test_a_new_case_changes_nothing_for_the_others() -> None:
    few = cases.few([f"case {n}" for n in range(100)], 0.3)
    more = cases.few([f"case {n}" for n in range(120)], 0.3)
    assert [name for name in more if int(name.split()[1]) < 100] == few
    assert 15 < len(few) < 50


def sleeps(source: str) -> list[int]:
    """The lines on which a source sleeps for a time; `asyncio.sleep(0)` only lets others go first."""
    if "sleep" not in source:  # most: parsing takes long
        return []
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    named = [call for call in calls if ast.unparse(call.func) in {"time.sleep", "asyncio.sleep", "sleep"}]
    return [call.lineno for call in named if [ast.unparse(each) for each in call.args] != ["0"]]


def test_no_test_of_this_folder_sleeps() -> None:
    assert sleeps("import time\ntime.sleep(1)\nawait_ = asyncio.sleep(0)\n") == [2]
    files = sorted((TESTS / "unit").rglob("*.py"))
    found = [f"{path.relative_to(ROOT)}:{line}" for path in files for line in sleeps(path.read_text("utf-8"))]
    assert found == []


PARTED = "pytest.mark.grid(", "pytest.mark.search"


def parted(source: str) -> int:
    """How many tests of a source say that the gate takes a part of them, or nothing."""
    if "mark.grid(" not in source and "mark.search" not in source:  # as above
        return 0
    tests = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    marks = [[ast.unparse(each) for each in test.decorator_list] for test in tests]
    return sum(any(each.startswith(PARTED) for each in of_test) for of_test in marks)


def test_every_law_of_which_the_gate_takes_a_part_has_a_row_in_the_table() -> None:
    source = "@pytest.mark.grid(0.2)\n@other\ndef test_a(): ...\n@other\nasync def test_b(): ...\n"
    assert (parted(source), parted(f"{source}@pytest.mark.search\ndef test_c(): ...\n")) == (1, 2)
    table = (TESTS / "README.md").read_text("utf-8")
    files = {path.relative_to(TESTS).as_posix(): parted(path.read_text("utf-8")) for path in TESTS.rglob("test_*.py")}
    assert sum(files.values()) > 40
    assert {file: n for file, n in files.items() if n > table.count(f"`{file}`")} == {}
