"""The tests of `tests/process/process/test_isolated.py` that take long."""

from typing import Any

import pytest

from shepherd.process.isolated import WorkFailed, run_isolated


@pytest.mark.parametrize(
    ("work", "payload", "says"),
    [
        ("builtins:eval", "all(1 for _ in iter(int, 1))", "took longer than 0.5 s and was stopped"),
        ("time:sleep", 3600, "took longer than 0.05 s and was stopped"),
        ("builtins:bytearray", 100 * 2**30, "too much memory"),
        ("json:loads", "[" * 100_000, "nested too deeply"),
        ("json:loads", "[", "this cannot be done: JSONDecodeError: Expecting value"),
        ("os:_exit", 3, "too much for one call .status 3."),
        ("shepherd.tools.builtin.json_tools:matches", ["[]", "$["], "path: unexpected end"),
    ],
)
def test_what_goes_wrong_there_is_a_sentence_here(work: str, payload: Any, says: str) -> None:
    with pytest.raises(WorkFailed, match=says):
        run_isolated(work, payload, deadline_s={"builtins:eval": 0.5, "time:sleep": 0.05}.get(work, 60))
