"""What a case of another project's suite comes to, and what the page says of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from suites.llama_cpp import judge
from suites.report import Report, Row, page
from tests.in_time import becomes_true
from tests.places import ROOT

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


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's signal for a closed socket")
def test_a_forked_server_ends_with_the_client_that_asked_for_it(tmp_path: Path) -> None:
    script = (
        "import os, sys, time; from suites.fork_server import serve\n"
        "def main(words):\n    open(words[0], 'w').write(str(os.getpid()))\n    time.sleep(60)\n"
        "serve(sys.argv[1], main)"
    )
    place, note = tmp_path / "socket", tmp_path / "pid"
    server = subprocess.Popen([sys.executable, "-c", script, str(place)], cwd=ROOT)
    try:
        assert becomes_true(place.exists)
        client = subprocess.Popen([sys.executable, "-S", str(ROOT / "suites" / "fork_server.py"), place, str(note)])
        assert becomes_true(lambda: note.exists() and note.read_text() != "")
        child = int(note.read_text())
        assert _runs(child)
        client.kill()
        client.wait()
        assert becomes_true(lambda: not _runs(child))
    finally:
        server.kill()
        server.wait()


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
