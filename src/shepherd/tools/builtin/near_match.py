"""Where a text is in another one; and where it nearly is, for one who has quoted it a little wrong."""

from __future__ import annotations

import difflib

MOST_PLACES = 1_000
MOST_LINES = 20_000
"""Of a file that is searched for what is nearly right."""
MOST_NEAR_LINES = 2_000
"""Likewise, for a line that is similar: this is slow."""
SHOWN_CHARS = 1_000
LONGEST_LINE = 400


def places_of(old: str, text: str) -> list[int]:
    """The numbers of the lines in which `old` begins, also where it overlaps itself; the first ones."""
    found: list[int] = []
    line, counted, at = 1, 0, text.find(old)
    while at >= 0 and len(found) < MOST_PLACES:
        line += text.count("\n", counted, at)
        found.append(line)
        counted, at = at, text.find(old, at + 1)
    return found


def not_found(old: str, text: str) -> str:
    """What may have been meant, in a sentence; empty if nothing is near."""
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
