"""Draws `/context`: what the context of the model holds, turn by turn.

    Window ─▶ bar, legend, one row per turn ─▶ lines of (text, style)

    ▕▓▓▓████████████▒▒░               ▏        system and tools pinned, two turns cached, one new, others evicted

Every state has its own sign as well as its own colour, so it is readable without colours. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from shepherd.backends.local.window import Window, WindowRow
from shepherd.cli.text import cut, n_columns
from shepherd.core.dataclasses import dataclass

Line = Sequence[tuple[str, str]]
"""Pieces of one line with their styles."""


@dataclass(frozen=True, slots=True)
class RowStyle:
    sign: str
    plain: str
    """The ASCII sign."""
    styles: tuple[str, str]
    """Neighbours use them in turn, so that they differ."""
    word: str

    def drawn(self, plain: bool) -> str:
        return self.plain if plain else self.sign


STYLES = {
    "pinned": RowStyle("▓", "#", ("blue", "bright_blue"), "pinned"),
    "cached": RowStyle("█", "=", ("green", "bright_green"), "cached"),
    "partly": RowStyle("▚", "%", ("magenta", "bright_magenta"), "partly cached"),
    "new": RowStyle("▒", "+", ("yellow", "bright_yellow"), "new"),
    "evicted": RowStyle("░", "x", ("red", "red"), "evicted"),
    "free": RowStyle(" ", ".", ("dim", "dim"), "free"),
}
_PLACES = {"memory": ", saved in memory", "disk": ", saved on disk"}
MOST_ROWS = 40
"""In a longer table, a run of evicted turns is one row."""
_NARROWEST = 24
_NARROW = 48
"""In a narrower table, the sign of a state replaces its word."""


def draw(window: Window, *, width: int, plain: bool = False) -> list[Line]:
    """The lines, each at most `width` columns wide; `plain`: ASCII signs, for pipes and simple terminals."""
    width = max(_NARROWEST, width)
    share = window.n_held / window.n_ctx if window.n_ctx else 0.0
    head = f"Context: {window.n_held:,} of {window.n_ctx:,} tokens ({share:.0%}){_PLACES.get(window.tier, '')}"
    edges = ("[", "]") if plain else ("▕", "▏")
    bar = [(edges[0], "dim"), *_bar(window, min(width, 100) - 3, plain), (edges[1], "dim")]
    lines = [[(head, "bold")], bar, *_legend(window, width, plain), [("", "")], *_table(window, width, plain)]
    return [_clipped(line, width) for line in lines]


def state_of(row: WindowRow) -> str:
    """The style of a row. A pinned row is always cached, so `pinned` has more information."""
    return "pinned" if row.kept and row.state == "cached" else row.state


def _bar(window: Window, width: int, plain: bool) -> Iterator[tuple[str, str]]:
    """One run of signs for each turn. Evicted turns take at most one column: they use no context."""
    runs = [
        (state, {"evicted": 0, "partly": row.n_held}.get(state, row.n_tokens))
        for state, rows in groupby(window.rows, state_of)
        for row in ([next(rows)] if state == "evicted" else rows)
    ]
    least = int(len(runs) <= width)  # each run is visible while the columns suffice
    room = width - least * len(runs)
    total = max(window.n_ctx, sum(n for _, n in runs), 1)
    before, drawn = 0, 0
    for index, (state, n_tokens) in enumerate(runs):
        before += n_tokens
        n = round(room * before / total) - drawn  # rounds the sum, so that rounding errors do not add up
        drawn += n
        look = STYLES[state]
        yield look.drawn(plain) * (n + least), look.styles[index % 2]
    free = STYLES["free"]
    yield free.drawn(plain) * (room - drawn), free.styles[0]


def _legend(window: Window, width: int, plain: bool) -> Iterator[Line]:
    """The tokens of each state, as many states on a line as fit."""
    sums = dict.fromkeys(STYLES, 0)
    for row in window.rows:
        sums[state_of(row)] += row.n_tokens
    sums["free"] = max(0, window.n_ctx - window.n_held)
    line: list[tuple[str, str]] = []
    length = 0
    for state, n in sums.items():
        if not n:
            continue
        look = STYLES[state]
        piece = f" {look.word} {n:,}  "
        if line and length + len(piece) + 1 > width:
            yield line
            line, length = [], 0
        line += [(look.drawn(plain), look.styles[0]), (piece, "")]
        length += len(piece) + 1
    yield line


def _table(window: Window, width: int, plain: bool) -> Iterator[Line]:
    rows = list(_rows(window))
    columns = [max((len(row[n]) for row in rows), default=0) for n in range(2)]
    words = {row[2]: STYLES[row[2]].word for row in rows}
    if width < _NARROW:
        words = {state: STYLES[state].drawn(plain) for state in words}
    longest = max(map(len, words.values()), default=0)
    for name, n_tokens, state, excerpt in rows:
        left = f"{name:<{columns[0]}}  {n_tokens:>{columns[1]}}  "
        word = f"{words[state]:<{longest}}  "
        room = width - len(left) - len(word)
        yield [
            (left, ""),
            (word, STYLES[state].styles[0]),
            (cut(" ".join(excerpt.split()), room, "~" if plain else "…"), "dim"),
        ]


def _clipped(line: Line, width: int) -> Line:
    pieces = []
    for text, style in line:
        shown = cut(text, width, "")
        width -= n_columns(shown)
        pieces.append((shown, style))
    return pieces


def _rows(window: Window) -> Iterator[tuple[str, str, str, str]]:
    """Name, tokens, state and excerpt of each row of the table."""
    folds = len(window.rows) > MOST_ROWS
    for state, group in groupby(window.rows, state_of):
        rows = list(group)
        if folds and state == "evicted" and len(rows) > 2:
            names = f"{_name(rows[0])}-{_name(rows[-1])}"
            yield names, f"{sum(row.n_tokens for row in rows):,}", state, f"{len(rows)} turns: {rows[0].excerpt}"
            continue
        for row in rows:
            yield _name(row), f"{row.n_tokens:,}", state, row.excerpt


def _name(row: WindowRow) -> str:
    return f"{row.index}" if row.kind == "turn" else row.kind
