"""A terminal for tests of what a person sees."""

from __future__ import annotations

import re

_CODE = re.compile(r"\x1b\[(\?)?([0-9;]*)([A-Za-z])|\x1b\]8;[^\x1b]*\x1b\\")


class Terminal:
    """A terminal small enough to trust: what a person sees after a program's output, scrollback included.

    Knows line feeds, wrapping at the last column, and the escape codes for colours, cursor up and erasing. Anything
    else in the output fails the test.
    """

    def __init__(self, width: int = 40, height: int = 10) -> None:
        self.width = width
        self.height = height
        self.rows: list[list[str]] = [[]]
        self.row = 0
        self.column = 0
        self.n_rewritten = 0
        """Lines erased so far: what flickers."""
        self.raw = ""
        """All that was written, codes included."""

    @property
    def top(self) -> int:
        """The first row that is on the screen; those before are scrollback and cannot be reached."""
        return max(0, len(self.rows) - self.height)

    def write(self, text: str) -> int:
        self.raw += text
        position = 0
        while position < len(text):
            character = text[position]
            if character == "\x1b":
                code = _CODE.match(text, position)
                assert code is not None, f"unknown escape code {text[position : position + 10]!r}"
                self._obey(code[2] or "", code[3] or "")
                position = code.end()
                continue
            position += 1
            if character == "\n":
                self._down()
                self.column = 0
            elif character == "\r":
                self.column = 0
            else:
                self._put(character)
        return len(text)

    def flush(self) -> None:
        pass

    def isatty(self) -> bool:
        return True

    @property
    def lines(self) -> list[str]:
        """Everything above the cursor, trailing spaces taken off."""
        return ["".join(row).rstrip() for row in self.rows[: self.row]]

    def _down(self) -> None:
        self.row += 1
        if self.row == len(self.rows):
            self.rows.append([])

    def _put(self, character: str) -> None:
        assert character >= " ", f"control character {character!r}"
        if self.column == self.width:
            self._down()
            self.column = 0
        row = self.rows[self.row]
        row.extend(" " * (self.column + 1 - len(row)))
        row[self.column] = character
        self.column += 1

    def _obey(self, number: str, name: str) -> None:
        match name:
            case "m" | "":
                pass
            case "A":
                self.row = max(self.top, self.row - int(number or 1))
            case "K" if number == "2":
                self.rows[self.row] = []
                self.n_rewritten += 1
            case "J" if not number:
                self.rows[self.row] = self.rows[self.row][: self.column]
                del self.rows[self.row + 1 :]
            case _:
                raise AssertionError(f"unknown escape code {number}{name}")
