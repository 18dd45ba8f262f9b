"""A list of lines from which a person chooses one with the arrow keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from shepherd.cli.terminal.consent import exposed
from shepherd.cli.terminal.keyboard import END, ENTER, TerminalKeyboard

if TYPE_CHECKING:
    from shepherd.cli.terminal.view import View


async def choose(
    view: View, title: str, rows: Sequence[str], *, keyboard: TerminalKeyboard | None = None
) -> int | None:
    """The index of the chosen row, the last one at first; None after Ctrl-D or `q`, and without a screen."""
    from rich.text import Text

    from shepherd.cli.terminal.call_view import row
    from shepherd.cli.terminal.markdown import to_lines

    if (screen := view.screen) is None:
        return None
    at, keyboard = len(rows) - 1, keyboard or TerminalKeyboard()
    moves = {"up": -1, "k": -1, "down": 1, "j": 1, "pageup": -10, "pagedown": 10}
    with screen.front() as show, keyboard.listen():
        while True:
            room = max(1, screen.console.height - 4)
            first = min(max(0, at - room // 2), max(0, len(rows) - room))
            lines: list[Text] = [row(title, "bold")]
            for n, text in enumerate(rows[first : first + room], start=first):
                lines.append(row(f"{'>' if n == at else ' '} {exposed(text, in_one_line=True)}", "cyan" * (n == at)))
            lines.append(row("Up, Down: choose  Enter: take it  Ctrl-D: leave", "dim"))
            show([], [line for each in lines for line in to_lines(each, screen.console)])
            key = await keyboard.key()
            if key in {END, "q"}:
                return None
            if key == ENTER:
                return at
            at = min(max(0, at + moves.get(key, 0)), len(rows) - 1)
