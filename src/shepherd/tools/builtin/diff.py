"""The unified diff of a change, for a person."""

from __future__ import annotations

import difflib
import re
from typing import Literal

CONTEXT = 3
"""Unchanged lines around a change."""
MOST_COMPARED = 2_000
"""Lines, on either side, between the first and the last change; more are shown as one replacement."""
MOST_CHARS = 16 << 20
"""Of a text that is compared."""
MOST_SHOWN = 20_000
"""Lines that differ; of more, only the number is shown."""
LINE = re.compile(r"[^\n]*\n|[^\n]+")
NO_END = "\\ No newline at end of file"


def unified(old: str | None, new: str | None, name: str) -> str:
    """The changes between two texts; None = there is no file. Empty if there are none. Takes about a second at most:
    `difflib` alone needs hours for the worst texts."""
    if old == new:
        return ""
    if max(len(old or ""), len(new or "")) > MOST_CHARS:
        sizes = ["nothing" if text is None else f"{len(text):,} characters" for text in (old, new)]
        return f"{name}: {sizes[0]} become {sizes[1]}"
    head = [f"--- {'/dev/null' if old is None else f'a/{name}'}", f"+++ {'/dev/null' if new is None else f'b/{name}'}"]
    before, after = LINE.findall(old or ""), LINE.findall(new or "")
    n_same = 0
    while n_same < min(len(before), len(after)) and before[n_same] == after[n_same]:
        n_same += 1
    n_end = 0
    while n_end < min(len(before), len(after)) - n_same and before[-1 - n_end] == after[-1 - n_end]:
        n_end += 1
    inner_before, inner_after = before[n_same : len(before) - n_end], after[n_same : len(after) - n_end]
    if max(len(inner_before), len(inner_after)) > MOST_SHOWN:
        return f"{name}: {len(inner_before):,} lines become {len(inner_after):,}"
    codes: list[Code] = [("replace", 0, len(inner_before), 0, len(inner_after))]
    if max(len(inner_before), len(inner_after)) <= MOST_COMPARED:
        codes = [*difflib.SequenceMatcher(None, inner_before, inner_after).get_opcodes()]
    whole: list[Code] = [
        ("equal", 0, n_same, 0, n_same),
        *((tag, a + n_same, b + n_same, c + n_same, d + n_same) for tag, a, b, c, d in codes),
        ("equal", len(before) - n_end, len(before), len(after) - n_end, len(after)),
    ]
    hunks = Compared([code for code in whole if code[1] < code[2] or code[3] < code[4]]).get_grouped_opcodes(CONTEXT)
    return "\n".join([*head, *(line for hunk in hunks for line in write(hunk, before, after))])


Code = tuple[Literal["replace", "delete", "insert", "equal"], int, int, int, int]
"""As of `difflib`: what to do with `before[a:b]` to get `after[c:d]`."""


class Compared(difflib.SequenceMatcher[str]):
    """A comparison whose result is known: for `get_grouped_opcodes`."""

    def __init__(self, codes: list[Code]) -> None:
        super().__init__()
        self.codes = codes

    def get_opcodes(self) -> list[Code]:
        return self.codes


def write(hunk: list[tuple[str, int, int, int, int]], before: list[str], after: list[str]) -> list[str]:
    (_, a, _, c, _), (_, _, b, _, d) = hunk[0], hunk[-1]
    lines = [f"@@ -{span(a, b)} +{span(c, d)} @@"]
    for tag, a, b, c, d in hunk:
        if tag == "equal":
            lines += [mark(" ", line) for line in before[a:b]]
        else:
            lines += [mark("-", line) for line in before[a:b]] + [mark("+", line) for line in after[c:d]]
    return lines


def span(start: int, stop: int) -> str:
    if stop - start == 1:
        return str(start + 1)
    return f"{start + (stop > start)},{stop - start}"


def mark(sign: str, line: str) -> str:
    return f"{sign}{line[:-1]}" if line.endswith("\n") else f"{sign}{line}\n{NO_END}"
