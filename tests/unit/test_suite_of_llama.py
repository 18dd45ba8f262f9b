"""What a case of another project's suite comes to, and what the page says of it."""

from __future__ import annotations

import pytest
from suites.llama_cpp import judge
from suites.report import Report, Row, page

PASSED, OTHER_WORDS, FAILED = ("passed", ""), ("passed", "the words are not those of the test"), ("failed", "assert 1")


@pytest.mark.parametrize(
    ("case", "theirs", "ours", "outcome", "why"),
    [
        ("unit/test_a.py::test_a", PASSED, PASSED, "passed", ""),
        ("unit/test_a.py::test_a", OTHER_WORDS, OTHER_WORDS, "passed", ""),
        ("unit/test_a.py::test_a", OTHER_WORDS, PASSED, "passed", ""),
        ("unit/test_a.py::test_a", PASSED, OTHER_WORDS, "failed", "words"),
        ("unit/test_a.py::test_a", PASSED, FAILED, "failed", "assert 1"),
        ("unit/test_a.py::test_a", PASSED, None, "failed", "not run"),
        ("unit/test_a.py::test_a", FAILED, None, "not applicable", "llama-server does not pass it with these models"),
        ("unit/test_a.py::test_a", ("not applicable", "it skips itself"), None, "not applicable", "it skips itself"),
        ("unit/test_router.py::test_a", PASSED, FAILED, "not applicable", "router"),
        ("unit/test_router.py::test_a", PASSED, PASSED, "passed", ""),
        ("unit/test_speculative.py::test_a", PASSED, FAILED, "comes later", "draft"),
        ("unit/test_slot_save.py::test_a", PASSED, FAILED, "failed", "not over HTTP: assert 1"),
    ],
)
def test_a_case_counts_if_llama_server_passes_it(
    case: str, theirs: tuple[str, str], ours: tuple[str, str] | None, outcome: str, why: str
) -> None:
    row = judge(case, theirs, ours)
    assert (row.outcome, row.reference) == (outcome, theirs[0])
    assert why in row.why if why else not row.why


def test_the_page_counts_what_comes_later_by_itself() -> None:
    rows = [Row("a", "passed", "", "passed"), Row("b", "comes later", "one day", "passed"), Row("c", "failed", "x|y")]
    text = page([Report("theirs", "1.0", rows)])
    assert "| theirs | 1.0 | 2 | 1 | 1 | 1 | 0 |" in text
    assert "## theirs: what comes later\n\n* one day\n  * `b`" in text
    assert "* x/y\n  * `c`" in text
