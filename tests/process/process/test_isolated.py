"""Work in a process of its own: what comes back, and what cannot hurt us.

The work is done by functions of the standard library and by the JSON tools, which are what this is for.
"""

import json
import zlib
from typing import Any

import psutil
import pytest

from shepherd.process import child, isolated
from shepherd.process.isolated import TooMuch, WorkFailed, convert_isolated, run_isolated


def test_what_the_function_makes_of_it_comes_back() -> None:
    assert run_isolated("copy:deepcopy", None) is None
    payload = [None, 1, "ü\ud800\0", [1, {"a": [None]}], "x" * 300_000]
    assert run_isolated("copy:deepcopy", payload) == payload


def test_what_the_work_prints_is_no_part_of_its_answer() -> None:
    assert run_isolated("builtins:eval", "print('hello') or 7") == 7


def test_an_error_of_ours_and_any_other_have_different_names() -> None:
    for work, payload, status, kind, says in (
        ("copy:deepcopy", "it", 0, "value", "it"),
        ("shepherd.tools.builtin.json_tools:matches", ["[]", "$["], 1, "error", "path: unexpected end"),
        ("builtins:eval", "1 / 0", 1, "fault", "this cannot be done: ZeroDivisionError"),
    ):
        ended = child.run(isolated.command(work), timeout_s=60, task=json.dumps(payload) + "\n")
        found = json.loads(ended.answer)
        assert (ended.status, [*found]) == (status, [kind])
        assert found[kind].startswith(says)
        assert ("ZeroDivisionError" in ended.words) == ("fault" in found), "the traceback is for the log"


def test_the_working_folder_cannot_slip_in_a_module(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "copy.py").write_text("def deepcopy(it): return 'stolen'")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert run_isolated("copy:deepcopy", "mine") == "mine"


@pytest.mark.parametrize("content", [b"", b"\n", bytes(range(256)) * 4000])
def test_bytes_become_bytes(content: bytes) -> None:
    assert convert_isolated("zlib:decompress", zlib.compress(content)) == content


def test_bytes_of_which_nothing_can_be_made_are_a_sentence() -> None:
    with pytest.raises(WorkFailed, match="this cannot be done: error") as failed:
        convert_isolated("zlib:decompress", b"")
    assert not isinstance(failed.value, TooMuch)


@pytest.mark.parametrize(
    ("work", "content", "says"),
    [
        ("builtins:eval", b"[0 for _ in iter(int, 1)]", "this took longer than 0.2 s"),
        ("builtins:eval", b"b'x' * 3_000_000_000", "this needs too much memory"),
        ("builtins:eval", b"__import__('os').abort()", "this is too much for one call"),
    ],
)
def test_what_takes_more_than_it_may_is_told_apart(work: str, content: bytes, says: str) -> None:
    with pytest.raises(TooMuch, match=says):
        convert_isolated(work, content, deadline_s=0.2)


def test_work_for_a_caller_that_has_gone_is_killed() -> None:
    before = set(psutil.Process().children())
    with pytest.raises(child.Cancelled):
        convert_isolated("builtins:eval", b"[0 for _ in iter(int, 1)]", deadline_s=3600, is_wanted=lambda: False)
    assert set(psutil.Process().children()) <= before
