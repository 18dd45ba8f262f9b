"""Diffs for a person: applied to the old text they give the new one, and no texts make them take for ever."""

from __future__ import annotations

import re

from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.cases import examples

from shepherd.tools.builtin import diff
from shepherd.tools.builtin.diff import unified


def apply(change: str, old: str) -> str:
    """What `patch` does, and it checks all that is not changed."""
    before = re.findall(r"[^\n]*\n|[^\n]+", old)
    after: list[str] = []
    at = 0
    lines = change.split("\n")[2:]
    for number, line in enumerate(lines):
        is_last = lines[number + 1 : number + 2] == [diff.NO_END]
        text = line[1:] + ("" if is_last else "\n")
        match line[:1]:
            case "@":
                span = re.fullmatch(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@", line)
                assert span
                start = int(span[1]) - (span[2] != "0")
                after += before[at:start]
                at = start
                assert len(after) == int(span[3]) - (span[4] != "0")
            case " ":
                assert before[at] == text
                after.append(text)
                at += 1
            case "-":
                assert before[at] == text
                at += 1
            case "+":
                after.append(text)
            case _:
                assert line == diff.NO_END
    return "".join(after + before[at:])


LINES = st.lists(st.sampled_from(["a", "b", "c", "", "x" * 30]), max_size=30).map("\n".join)
LONG = "".join(f"{number}\n" for number in range(40))


@settings(deadline=None, max_examples=examples(250))
@given(old=LINES, new=LINES)
@example(old="", new="a")
@example(old="a\n", new="a")
@example(old=LONG, new=LONG.replace("\n5\n", "\nfive\n").replace("\n30\n", "\n"))
@example(old=LONG, new="0\n")
def test_a_diff_applied_to_the_old_text_gives_the_new_one(old: str, new: str) -> None:
    change = unified(old, new, "f")
    assert (change == "") == (old == new)
    if change:
        assert apply(change, old) == new


def test_a_diff_shows_three_lines_around_each_change() -> None:
    new = LONG.replace("\n5\n", "\nfive\n").replace("\n30\n", "\n")
    assert unified(LONG, new, "f") == (
        "--- a/f\n+++ b/f\n"
        "@@ -3,7 +3,7 @@\n 2\n 3\n 4\n-5\n+five\n 6\n 7\n 8\n"
        "@@ -28,7 +28,6 @@\n 27\n 28\n 29\n-30\n 31\n 32\n 33"
    )
    assert unified(None, "a", "f") == f"--- /dev/null\n+++ b/f\n@@ -0,0 +1 @@\n+a\n{diff.NO_END}"
    assert unified("a\n", None, "f") == "--- a/f\n+++ /dev/null\n@@ -1 +0,0 @@\n-a"
    assert unified(None, "", "f") == "--- /dev/null\n+++ b/f"


def test_large_changes_are_replaced_as_a_whole_or_only_told() -> None:
    many = [str(number) for number in range(diff.MOST_COMPARED + 5)]
    old, new = "\n".join(many) + "\n", "\n".join(reversed(many)) + "\n"
    change = unified(old, new, "f")
    assert apply(change, old) == new
    assert change.count("\n") == 2 + 2 * len(many)
    old, new = "a\n" * (diff.MOST_SHOWN + 1), "b\n" * (diff.MOST_SHOWN + 1)
    assert unified(old, new, "f") == "f: 20,001 lines become 20,001"
    assert unified("a" * (diff.MOST_CHARS + 1), None, "f") == "f: 16,777,217 characters become nothing"
