"""Choices that what is typed narrows down: how well one fits, and the rows of a list with one of them marked.

    typed "ctx" ─▶ rank ─▶ /context, /export ─▶ rows ─▶ › /context  Show the content of the context, ...
                                                          /export   Write the conversation into a file.

Pure. The menu of the prompt (`editor.py`) and the list of saved conversations (`picker.py`) show them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Literal, TypeVar

from shepherd.cli.text import cut, n_columns

T = TypeVar("T")
Line = list[tuple[str, str]]
"""Pieces of a row: a style of prompt_toolkit, and a text."""
Rank = Literal[0, 1, 2, 3, 4]

BEGINS: Rank = 1
"""The text begins with what is typed; 0: it is the same. Then: one of its words does, it has it inside, it has the
letters in order."""
MARK, NO_MARK = "› ", "  "
MARKED, NOTE = "class:marked", "class:note"
_LEAST_NOTE = 8
"""Columns below which no note is shown."""


def rank(typed: str, text: str) -> Rank | None:
    """How well a text fits, best first, in any case; None where it does not. Letters in order count from the beginning
    of a word on."""
    small, whole = typed.casefold(), text.casefold()
    if whole.startswith(small):
        return 0 if whole == small else BEGINS
    bare = small.lstrip("/")
    if len(bare) < 2:
        return None
    if re.search(rf"(?<![^\W_]){re.escape(bare)}", whole):
        return 2
    if bare in whole:
        return 3
    starts = (found.start() for found in re.finditer(rf"(?<![^\W_]){re.escape(bare[0])}", whole))
    return 4 if _is_in_order(bare, whole[next(starts, len(whole)) :]) else None  # the first start leaves the most


def _is_in_order(letters: str, text: str) -> bool:
    left = iter(text)
    return all(letter in left for letter in letters)


def fitting(typed: str, choices: Iterable[tuple[str, T]]) -> list[tuple[str, T]]:
    """The choices whose texts begin with what is typed; where there are none, those that fit otherwise. The best first,
    equal ones in their order."""
    found = [(how, choice) for choice in choices if (how := rank(typed, choice[0])) is not None]
    most = BEGINS if any(how <= BEGINS for how, _ in found) else 4
    return [choice for how, choice in sorted(found, key=lambda each: each[0]) if how <= most]


def shown(n: int, marked: int | None, room: int) -> range:
    """The part of `n` rows that `room` rows can show, with the marked one inside."""
    start = min(max(0, (marked or 0) - room + 1), max(0, n - room))
    return range(start, min(n, start + room))


def joined(lines: Sequence[Line]) -> Line:
    """The pieces of several rows, one below the other."""
    return [piece for line in lines for piece in (*line, ("", "\n"))][:-1]


def rows(choices: Sequence[tuple[str, str]], marked: int | None, *, width: int, room: int) -> list[Line]:
    """At most `room` rows of at most `width` columns: a name and its note each, and how many others there are."""
    if room < 1:
        return []
    has_more = len(choices) > room > 1
    room -= has_more  # for the number of the others
    part = shown(len(choices), marked, room)
    widest = max((n_columns(choices[at][0]) for at in part), default=0)
    most = max(width // 2, width - len(MARK) - 40) if any(choices[at][1] for at in part) else width
    left = min(widest, most, width - len(MARK))
    lines: list[Line] = []
    for at in part:
        name, note = choices[at]
        name = cut(name, left)
        line = [(MARKED if at == marked else "", f"{MARK if at == marked else NO_MARK}{name}")]
        free = width - len(MARK) - left - 3
        if note and free >= _LEAST_NOTE:
            line.append((NOTE, f"{' ' * (left - n_columns(name))}  {cut(note, free)}"))
        lines.append(line)
    if has_more:
        lines.append([(NOTE, cut(f"{NO_MARK}{part.stop}/{len(choices)}, the arrow keys show the others", width))])
    return lines
