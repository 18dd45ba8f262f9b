"""What has changed in a file, as a unified diff for a person to read; also one that will be."""

from __future__ import annotations

import difflib
import re

CONTEXT = 3
"""Unchanged lines around a change."""
MOST_COMPARED = 2_000
"""Lines, on either side, between the first and the last change; more are shown as replaced all together."""
MOST_CHARS = 16 << 20
"""Of a text that is compared."""
MOST_SHOWN = 20_000
"""Lines that differ; of more, nobody reads one."""
LINE = re.compile(r"[^\n]*\n|[^\n]+")
NO_END = "\\ No newline at end of file"


def unified(old: str | None, new: str | None, name: str) -> str:
    """The changes between two texts; None = there is no file. Empty if there are none.

    Takes no more than a second or so, whatever the texts: `difflib` alone needs hours for the worst ones.
    """
    if old == new:
        return ""
    if max(len(old or ""), len(new or "")) > MOST_CHARS:
        return f"{name}: {size_of(old)} become {size_of(new)}"
    head = [f"--- {'/dev/null' if old is None else f'a/{name}'}", f"+++ {'/dev/null' if new is None else f'b/{name}'}"]
    before, after = lines_of(old or ""), lines_of(new or "")
    n_same = 0
    while n_same < min(len(before), len(after)) and before[n_same] == after[n_same]:
        n_same += 1
    n_end = 0
    while n_end < min(len(before), len(after)) - n_same and before[-1 - n_end] == after[-1 - n_end]:
        n_end += 1
    inner_before, inner_after = before[n_same : len(before) - n_end], after[n_same : len(after) - n_end]
    if max(len(inner_before), len(inner_after)) > MOST_SHOWN:
        return f"{name}: {len(inner_before):,} lines become {len(inner_after):,}"
    if max(len(inner_before), len(inner_after)) > MOST_COMPARED:
        codes = [("replace", 0, len(inner_before), 0, len(inner_after))]
    else:
        codes = list(difflib.SequenceMatcher(None, inner_before, inner_after).get_opcodes())
    moved = [(tag, a + n_same, b + n_same, c + n_same, d + n_same) for tag, a, b, c, d in codes]
    whole = [
        ("equal", 0, n_same, 0, n_same),
        *moved,
        ("equal", len(before) - n_end, len(before), len(after) - n_end, len(after)),
    ]
    return "\n".join([*head, *(line for hunk in hunks(whole) for line in write(hunk, before, after))])


Code = tuple[str, int, int, int, int]
"""As of `difflib`: what to do with `before[a:b]` to get `after[c:d]`."""


def lines_of(text: str) -> list[str]:
    """Each with its end, if it has one."""
    return LINE.findall(text)


def hunks(codes: list[Code]) -> list[list[Code]]:
    """Changes with the lines around them; those that are near each other together."""
    found: list[list[Code]] = [[]]
    for tag, a, b, c, d in codes:
        if tag != "equal":
            found[-1].append((tag, a, b, c, d))
        elif b - a > 2 * CONTEXT:
            found[-1].append((tag, a, a + CONTEXT, c, c + CONTEXT))
            found.append([(tag, b - CONTEXT, b, d - CONTEXT, d)])
        elif b > a:
            found[-1].append((tag, a, b, c, d))
    changed = [hunk for hunk in found if any(tag != "equal" for tag, *_ in hunk)]
    for hunk in changed:  # at both ends of the file there may be more than is wanted
        for place, back in ((0, True), (-1, False)):
            tag, a, b, c, d = hunk[place]
            if tag == "equal" and b - a > CONTEXT:
                hunk[place] = (tag, b - CONTEXT, b, d - CONTEXT, d) if back else (tag, a, a + CONTEXT, c, c + CONTEXT)
    return changed


def write(hunk: list[Code], before: list[str], after: list[str]) -> list[str]:
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


def size_of(text: str | None) -> str:
    return "nothing" if text is None else f"{len(text):,} characters"
