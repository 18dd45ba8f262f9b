"""Writes to a terminal: finished lines, which never change, and live lines below them, which may.

    ... scrollback, written once ...
    live line 1      ◀ rewritten in place, only from the first line that differs
    live line 2
    ▌cursor          ◀ always at the start of the line below the live ones

Every change is one write, and equal lines are not written again, so nothing flickers. A question takes the `front`:
other output waits until it is answered. Not here: what the lines say.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

_UP, _ERASE_LINE, _ERASE_BELOW = "\x1b[{}A", "\x1b[2K", "\x1b[J"
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


Draw = Callable[..., None]
"""As `Screen.update`."""


class Screen:
    """Writes to one terminal; safe from any thread."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._live: list[str] = []
        self._width = console.width
        self._lock = threading.RLock()
        self._behind: tuple[list[str], list[str]] | None = None
        """Finished and live lines that wait for the end of `front`; None outside of it."""

    def update(self, finished: Sequence[str], live: Sequence[str] = ()) -> None:
        """Replace the live lines by `finished`, for good, and `live` below.

        If the live lines do not fit, the last ones are shown. No line may be wider than the terminal.
        """
        with self._lock:
            if self._behind is None:
                self._draw(finished, live)
            else:
                self._behind = [*self._behind[0], *finished], list(live)

    def interject(self, text: str) -> None:
        """Write complete lines of `text` above the live ones, such as a log record."""
        with self._lock:
            self.update(text.splitlines(), self._live if self._behind is None else self._behind[1])

    @contextmanager
    def front(self) -> Iterator[Draw]:
        """Within the block, only the lines given to the yielded function are shown. Not reentrant.

        The live lines disappear; they and other output appear after the block, below an empty line.
        """
        width = self.console.width
        with self._lock:
            assert self._behind is None, "one at a time"
            self._behind = [], self._live
            self._draw([])
        try:
            yield self._draw
        finally:
            with self._lock:
                finished, live = self._behind
                self._behind = None
                live = live if self.console.width == width else []
                first = next(iter([*finished, *live]), "")
                self._draw([""] * bool(first) + finished, live)

    def _draw(self, finished: Sequence[str], live: Sequence[str] = ()) -> None:
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
                self.console.file.write(out)
                self.console.file.flush()

    def _compare(self, wanted: Sequence[str]) -> tuple[int, int]:
        """How many lines stay, and how many rows to go up to the first one that changes."""
        same = 0
        if self.console.width == self._width:  # else the terminal has wrapped the lines again
            for old, new in zip(self._live, wanted, strict=False):
                if old != new:
                    break
                same += 1
        self._width = self.console.width
        return same, sum(self._n_rows(line) for line in self._live[same:])

    def _n_rows(self, line: str) -> int:
        from rich.cells import cell_len

        return max(1, -(-cell_len(_COLOUR.sub("", line)) // self._width))
