"""The rows of a list of choices with one of them marked.

    typed "ctx" ─▶ fitting ─▶ /context, /export ─▶ rows ─▶ › /context  Show the content of the context, ...
                                                          /export   Write the conversation into a file.

Pure. The menu of the prompt (`editor.py`) and the list of saved conversations (`picker.py`) show them.
"""

from __future__ import annotations

from collections.abc import Sequence

from shepherd.cli.text import cut, n_columns

Line = list[tuple[str, str]]
"""Pieces of a row: a style of prompt_toolkit, and a text."""
MARK, NO_MARK = "› ", "  "
MARKED, NOTE = "class:marked", "class:note"
_LEAST_NOTE = 8
"""Columns below which no note is shown."""


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
