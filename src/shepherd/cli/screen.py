"""The last lines of a terminal: those that may still change, and everything above, which never does.

    ... scrollback, written once ...
    live line 1      ◀ rewritten in place, only from the first line that differs
    live line 2
    ▌cursor          ◀ always at the start of the line below the live ones

Every change is one write, and equal lines are not written again, so nothing flickers. Not here: what the lines say.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

_UP, _ERASE_LINE, _ERASE_BELOW = "\x1b[{}A", "\x1b[2K", "\x1b[J"


class Screen:
    """Writes to one terminal; safe from any thread."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._live: list[str] = []
        self._width = console.width
        self._lock = threading.RLock()

    def update(self, finished: Sequence[str], live: Sequence[str] = ()) -> None:
        """Write `finished` for good where the live lines are, and `live` below.

        Of live lines that are more than the terminal is high, the last ones are shown. No line may be wider than it.
        """
        with self._lock:
            room = max(1, self.console.height - 2)
            shown = list(live[-room:])
            wanted = [*finished, *shown]
            same, back = self._compare(wanted)
            rest = wanted[same:]
            out = _UP.format(back) if back else ""
            out += "".join(f"{_ERASE_LINE}{line}\n" for line in rest)
            if back:
                out += _ERASE_BELOW
            self._live = shown
            if out:
                self._write(out)

    def _compare(self, wanted: Sequence[str]) -> tuple[int, int]:
        """How many lines stay as they are, and how many rows to go back to reach the first one that does not."""
        if self.console.width != self._width:  # the terminal has wrapped our lines anew
            from rich.text import Text

            self._width = self.console.width
            cells = [Text.from_ansi(line).cell_len for line in self._live]
            return 0, sum(max(1, -(-n_cells // self._width)) for n_cells in cells)
        same = 0
        for old, new in zip(self._live, wanted, strict=False):
            if old != new:
                break
            same += 1
        return same, len(self._live) - same

    def interject(self, text: str) -> None:
        """Write complete lines of `text` above the live ones, such as a log record."""
        with self._lock:
            live = self._live
            self.update(text.splitlines(), live)

    def _write(self, text: str) -> None:
        self.console.file.write(text)
        self.console.file.flush()
