"""How a call looks on a terminal: its progress, and its result, folded where it is long.

    [Tool Call: edit_file(path="a.py", old="x", new="y")]      call_line
    ⠹ 3 s · its last line of progress                          running; replaced by:
    [Tool Result: a.py: 1 replacement]                         outcome
      @@ -1,3 +1,3 @@                                          and a diff, or the first lines of the content
      … 34 more lines (Ctrl-O)                               whole: `unfolded`

Pure. Import it late: rich is heavy. Not here: when which part is shown (`live.py`).
"""

from __future__ import annotations

from collections.abc import Callable

from rich.text import Text

from shepherd.agent.turn import CallReturned
from shepherd.cli.terminal.answer import LINE_WIDTH, result_line, result_text
from shepherd.cli.text import output_line, readable

SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_TURN_S = 0.1
"""Seconds for each sign of the spinner."""
HEAD_LINES = 6
"""Lines of a result that are shown."""
DIFF_LINES = 40
"""Lines of a diff that are shown."""
_LOOKED_AT = 8 * 1024
"""Characters from which the lines of a result are taken."""
_INDENT = "  "
_DIFF_STYLES = (("+++", "bold"), ("---", "bold"), ("@@", "cyan"), ("+", "green"), ("-", "red"))


def spinning(seconds: float, before: str = "", after: str = "") -> Text:
    """A spinner with the time, between two texts."""
    whole = int(seconds)
    duration = f"{whole} s" if whole < 60 else f"{whole // 60}:{whole % 60:02} min"
    parts = [part for part in (output_line(before), duration, output_line(after)) if part]
    return row(f"{SPINNER[int(seconds / _TURN_S) % len(SPINNER)]} {' · '.join(parts)}", "dim cyan")


def outcome(returned: CallReturned, width: int, hint: str = "") -> list[Text]:
    """The lines of a result on a terminal of `width` columns. `hint`: how to see what is left out."""
    head, lines, most, n_more = _parts(returned, width)
    return [head, *folded(lines, most, n_more, hint)]


def is_folded(returned: CallReturned) -> bool:
    """Whether `outcome` leaves lines out."""
    _, lines, most, n_more = _parts(returned, LINE_WIDTH)
    return folded(lines, most, n_more) is not lines


def unfolded(returned: CallReturned) -> list[Text]:
    """The whole result, each line as many rows as it needs."""
    head, lines, _, _ = _parts(returned, LINE_WIDTH, looked_at=None)
    return [head, *(row(line.plain, str(line.style), wraps=True) for line in lines)]


def _parts(
    returned: CallReturned, width: int, *, looked_at: int | None = _LOOKED_AT
) -> tuple[Text, list[Text], int, int]:
    """The first line of a result, the lines below, how many of them are shown, and how many were not looked at."""
    is_error = returned.result.is_error
    head = result_line(returned, min(LINE_WIDTH, width))
    first = row(head, "red" if is_error else "cyan")
    if returned.diff:
        changes = returned.diff.strip("\n").split("\n")
        shown = changes if looked_at is None else changes[: DIFF_LINES + 1]
        lines = [row(_INDENT + readable(line), diff_style(line)) for line in shown]
        return first, lines, DIFF_LINES, len(changes) - len(shown)
    content = result_text(returned.result).strip("\r\n")
    if "\n" not in content or (len(content) < _LOOKED_AT and output_line(content) in head):
        return first, [], HEAD_LINES, 0
    style = "red" if is_error else "dim"
    lines = [row(_INDENT + line, style) for line in readable(content[:looked_at]).split("\n")]
    return first, lines, HEAD_LINES, 0 if looked_at is None else content.count("\n", looked_at)


def diff_style(line: str) -> str:
    return next((style for start, style in _DIFF_STYLES if line.startswith(start)), "dim")


def folded(lines: list[Text], most: int, n_more: int = 0, hint: str = "") -> list[Text]:
    """The first lines and the number of the others, with a `hint`; `n_more` lines are missing from `lines`. The same
    list where no line is left out."""
    n_hidden = len(lines) - most + n_more
    if n_hidden <= 1 and not n_more:  # a line for the number would save nothing
        return lines
    return [*lines[:most], row(f"{_INDENT}… {n_hidden:,} more lines{hint}", "dim italic")]


class Folds:
    """What was folded in a conversation: Ctrl-O shows the newest whole, pressed again the one before."""

    MOST = 20
    HINT = " (Ctrl-O)"

    def __init__(self) -> None:
        self._kept: list[Callable[[], list[Text]]] = []
        self._next = 0

    def add(self, whole: Callable[[], list[Text]]) -> None:
        """`whole`: all lines, made when they are shown."""
        self._kept = [*self._kept, whole][-self.MOST :]
        self._next = len(self._kept)

    def take(self) -> list[Text]:
        """The lines of the next one, with its number among all; none where nothing is folded. Behind the oldest the
        newest comes again."""
        if not self._kept:
            return []
        self._next = (self._next or len(self._kept)) - 1
        return [row(f"{self._next + 1} of {len(self._kept)} folded", "dim italic"), *self._kept[self._next]()]


def row(line: str, style: str = "", *, wraps: bool = False) -> Text:
    """A line of one row; with `wraps` of several rows."""
    if wraps:
        return Text(line, style, overflow="fold")
    return Text(line, style, no_wrap=True, overflow="ellipsis")
