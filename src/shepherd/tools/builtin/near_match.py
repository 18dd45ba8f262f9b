"""Where a text occurs in another one; and where it nearly does, for a model that has quoted it a little wrong."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterator

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
