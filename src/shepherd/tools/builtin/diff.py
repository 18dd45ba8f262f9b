"""The unified diff of a change, for a person; and where a text that a model has quoted a little wrong nearly occurs."""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Iterator
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


# -- where a text is not, but nearly ----------------------------------------------------------------------------------


MOST_PLACES = 1_000
MOST_LINES = 20_000
"""Of a file that is searched for the text with other white space."""
MOST_NEAR_LINES = 2_000
"""Of a file that is searched for a similar line, which is slow."""
SHOWN_CHARS = 1_000
LONGEST_LINE = 400


def occurrences(wanted: str, text: str, *, once_a_line: bool = False) -> Iterator[tuple[int, int]]:
    """Where a text begins in another one, also where it overlaps itself: the line, from 0, and the character."""
    line, counted, at = 0, 0, text.find(wanted)
    while at >= 0:
        line += text.count("\n", counted, at)
        yield line, at
        counted, last = at, text.find("\n", at) if once_a_line else at
        at = text.find(wanted, last + 1) if last >= 0 else -1


def places_of(old: str, text: str) -> list[int]:
    """The numbers of the lines in which `old` begins; the first ones."""
    return [line + 1 for line, _ in itertools.islice(occurrences(old, text), MOST_PLACES)]


def not_found(old: str, text: str) -> str:
    """A sentence about the nearest text; empty if nothing is near."""
    if "\\n" in old and old.replace("\\n", "\n") in text:
        return 'It is there with line ends where you have written "\\n" as two characters.'
    lines = text.removeprefix("\ufeff").split("\n")
    wanted = [" ".join(line.split()) for line in old.strip().split("\n")]
    plain = [" ".join(line.split()) for line in lines[:MOST_LINES]]
    for first in range(len(plain) - len(wanted) + 1):
        if plain[first] == wanted[0] and plain[first : first + len(wanted)] == wanted:
            exact = "\n".join(lines[first : first + len(wanted)])
            where = (
                f"Line {first + 1} differs" if len(wanted) == 1 else f"Lines {first + 1}-{first + len(wanted)} differ"
            )
            return f"{where} only in white space; exactly, there is:\n{exact[:SHOWN_CHARS]}"
    longest = max(wanted, key=len)[:LONGEST_LINE]
    choices = {line[:LONGEST_LINE]: number for number, line in enumerate(plain[:MOST_NEAR_LINES], 1) if line}
    near = difflib.get_close_matches(longest, choices, 1) if longest else []
    if not near:
        return ""
    number = choices[near[0]]
    return f"The nearest line is {number}; exactly:\n{lines[number - 1][:SHOWN_CHARS]}"
