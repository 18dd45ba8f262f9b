"""Writes to a terminal: finished lines, which never change, and live lines below them, which may.

    ... scrollback, written once ...
    live line 1      ◀ rewritten in place, only from the first line that differs
    live line 2
    foot             ◀ what is typed meanwhile, and the status line
    ▌cursor          ◀ always at the start of the line below the live ones

Every change is one write, and equal lines are not written again, so nothing flickers. A question takes the `front`:
other output waits until it is answered. Not here: what the lines say.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import takewhile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

_UP, _ERASE_LINE, _ERASE_BELOW = "\x1b[{}A", "\x1b[2K", "\x1b[J"
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


Draw = Callable[..., None]
"""As `Screen.update`."""
Foot = Callable[[int, int], Sequence[str]]
"""Columns and rows of the terminal -> lines of the foot; from any thread."""


class Screen:
    """Writes to one terminal; safe from any thread."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._live: list[str] = []
        self._drawn: list[str] = []
        """The live lines and the foot, as they are on the terminal."""
        self._foot: Foot = lambda width, height: ()
        self._codes = ""
        """For the terminal, while there is a foot; a line editor in the front switches them off."""
        self._width = console.width
        self._lock = threading.RLock()
        self._behind: tuple[list[str], list[str]] | None = None
        """Finished and live lines that wait for the end of `front`; None outside of it."""

    def update(self, finished: Sequence[str], live: Sequence[str] = ()) -> None:
        """Replace the live lines by `finished` and, below, the last of `live` that fit. No line may be too wide."""
        with self._lock:
            if self._behind is None:
                self._draw(finished, live)
            else:
                self._behind = [*self._behind[0], *finished], list(live)

    def interject(self, text: str) -> None:
        """Write complete lines of `text` above the live ones, such as a log record."""
        with self._lock:
            self.update(text.splitlines(), self._live if self._behind is None else self._behind[1])

    def refresh(self) -> None:
        """Draw the foot again."""
        self.update([], self._live if self._behind is None else self._behind[1])

    @contextmanager
    def with_foot(self, foot: Foot, before: str = "", after: str = "") -> Iterator[None]:
        """Within the block, `foot` is below the live lines; codes for the terminal go before and behind it."""
        self._set_foot(foot, before)
        try:
            yield
        finally:
            self._set_foot(lambda width, height: (), after)

    def _set_foot(self, foot: Foot, codes: str) -> None:
        with self._lock:
            self.console.file.write(codes)
            self._foot, self._codes = foot, codes
            self.refresh()
            self.console.file.flush()

    def send(self, code: str) -> None:
        """Write a code that shows nothing, such as a bell."""
        with self._lock:
            self.console.file.write(code)
            self.console.file.flush()

    @contextmanager
    def front(self) -> Iterator[Draw]:
        """Within the block, only the lines given to the yielded function are shown; live lines and other output appear
        after it, below an empty line. Not reentrant."""
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
                self.console.file.write(self._codes)
                live = live if self.console.width == width else []
                first = next(iter([*finished, *live]), "")
                self._draw([""] * bool(first) + finished, live)

    def _draw(self, finished: Sequence[str], live: Sequence[str] = ()) -> None:
        """Go up to the first line that changes, and write from there."""
        from rich.cells import cell_len

        with self._lock:
            width, height = self.console.size
            foot = self._foot(width, height) if self._behind is None else ()
            shown = list(live[-max(1, height - 2 - len(foot)) :])
            wanted = [*finished, *shown, *foot]
            same = 0
            if width == self._width:  # else the terminal has wrapped the lines again
                pairs = zip(self._drawn, wanted, strict=False)
                same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
            back = sum(max(1, -(-cell_len(_COLOUR.sub("", line)) // width)) for line in self._drawn[same:])
            self._width = width
            out = _UP.format(back) if back else ""
            out += "".join(f"{_ERASE_LINE}{line}\n" for line in wanted[same:])
            if back:
                out += _ERASE_BELOW
            self._live, self._drawn = shown, [*shown, *foot]
            if out:
                self.console.file.write(out)
                self.console.file.flush()
