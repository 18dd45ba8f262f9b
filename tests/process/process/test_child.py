"""Children that end badly: what is noticed, what is kept, and that none outlives its purpose."""

import json
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from shepherd.process import child

LASTING = "import shepherd.process.child as c, sys, threading; c.end_with_parent(); print('on', flush=True)"
WAITING = f"{LASTING}; threading.Event().wait()"


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_a_child_that_ends_in_order_tells_its_answer_and_its_last_words() -> None:
    ended = child.run(
        python("import sys; print('yes'); sys.stderr.write('x' * 9999 + 'end'); sys.exit(3)"), timeout_s=60
    )
    assert (ended.status, ended.answer.strip(), ended.words[-5:]) == (3, "yes", "xxend")
    assert len(ended.words) == child.LAST_WORDS
    assert child.died(ended.status, 60) == "fail (exit status 3)"


def test_a_child_that_aborts_is_known_by_its_signal() -> None:
    ended = child.run(python("import os; os.write(2, b'assertion'); os.abort()"), timeout_s=60)
    assert child.died(ended.status, 60) == "crash (SIGABRT)"
    assert ended.words.startswith("assertion")


def test_the_temporary_files_of_a_child_go_with_it_even_if_it_crashes(tmp_path: Path) -> None:
    code = "import os, tempfile; print(tempfile.mkdtemp(), flush=True); os.abort()"
    ended = child.run(python(code), timeout_s=60, folders={"TMPDIR": "/tmp"}, variables={"TMPDIR": str(tmp_path)})
    assert child.died(ended.status, 60) == "crash (SIGABRT)"
    assert Path(ended.answer.strip()).is_relative_to(tmp_path)
    assert os.listdir(tmp_path) == []


def test_a_task_of_any_length_is_read_and_one_that_is_not_read_blocks_nothing() -> None:
    task = "x" * 300_000 + "\n"
    assert child.run(python("print(len(input()))"), timeout_s=60, task=task).answer == "300000\n"
    assert child.run(python(""), timeout_s=60, task=task).status == 0


def test_a_child_that_hangs_is_killed_and_called_that() -> None:
    ended = child.run(python(WAITING), timeout_s=0)
    assert child.died(ended.status, 0) == "hang for more than 0 s"


def test_a_child_that_nothing_waits_for_is_killed() -> None:
    before = set(psutil.Process().children())
    with pytest.raises(child.Cancelled):
        child.run(python(WAITING), timeout_s=3600, is_wanted=lambda: False)
    assert set(psutil.Process().children()) <= before


def test_a_child_ends_when_its_parent_has_been_killed() -> None:
    start = f"c.run([sys.executable, '-c', {WAITING!r}], timeout_s=3600)"
    code = f"import sys, shepherd.process.child as c; {start}"
    parent = subprocess.Popen(python(code))
    found: list[psutil.Process] = []
    while not found:
        assert parent.poll() is None
        found = psutil.Process(parent.pid).children()
    parent.kill()
    parent.wait()
    _, alive = psutil.wait_procs(found, timeout=60)
    assert not alive


def test_verdicts_that_are_kept_at_once_are_whole(tmp_path: Path) -> None:
    file = tmp_path / "below" / "verdict.json"
    start = threading.Barrier(8)

    def keep(number: int) -> None:
        start.wait()
        for _ in range(50):
            child.keep(file, {"number": number, "text": "x" * 10_000})
            assert (child.kept(file) or {})["text"] == "x" * 10_000

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(keep, range(8)))
    assert [path.name for path in file.parent.iterdir()] == ["verdict.json"]


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff", json.dumps("text").encode()])
def test_a_damaged_verdict_is_none(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "verdict.json"
    assert child.kept(file) is None
    file.write_bytes(content)
    assert child.kept(file) is None


def test_a_folder_that_cannot_be_written_costs_only_the_memory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    child.keep(tmp_path / "file" / "below" / "verdict.json", {})
    assert os.listdir(tmp_path) == ["file"]
