"""Calls a person back to the terminal: at the end of a long turn, and where a question waits.

Terminals say in their own way that a window without the focus has rung. Not here: when a turn ends (`cli/chat`).
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Literal

Notify = Literal["bell", "desktop", "off"]

_BELL = "\a"
_NOTIFIES = ("foot", "rxvt")
"""Beginnings of TERM of terminals that know `OSC 777`; others that show notifications know `OSC 9`."""


class Bell:
    """One terminal's. From the event loop only."""

    def __init__(
        self,
        write: Callable[[str], object] = lambda code: None,
        *,
        notify: Notify = "off",
        after_s: float = 20.0,
        env: Mapping[str, str] = os.environ,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`write`: writes a code to the terminal. `after_s`: so long after the last key the person counts as away."""
        self._write = write
        self._notify = notify
        self._after_s = after_s
        self._env = env
        self._clock = clock
        self._touched = clock()

    def touch(self) -> None:
        """The person has pressed a key just now."""
        self._touched = self._clock()

    def ring(self, text: str) -> None:
        """Call the person, who may be away."""
        if self._notify != "off" and self._clock() - self._touched >= self._after_s:
            self._write(_BELL if self._notify == "bell" else notification(text, self._env))

    @contextmanager
    def waiting(self, text: str) -> Iterator[None]:
        """The block waits for a key of the person, who is called once where none comes."""
        wait_s = max(0.0, self._touched + self._after_s - self._clock())
        call = asyncio.get_running_loop().call_later(wait_s, self.ring, text)
        try:
            yield
        finally:
            call.cancel()
            self.touch()


def notification(text: str, env: Mapping[str, str]) -> str:
    """The code by which the terminal that the variables describe shows a notification; `text` has no control
    characters and no semicolon."""
    term = env.get("TERM", "")
    if term == "linux":  # it would print the code
        return _BELL
    body = f"777;notify;Shepherd;{text}" if term.startswith(_NOTIFIES) else f"9;Shepherd: {text}"
    code = f"\x1b]{body}\x1b\\"
    if env.get("TMUX"):  # which hands over only what is wrapped, where `allow-passthrough` is on
        doubled = code.replace("\x1b", "\x1b\x1b")
        return f"\x1bPtmux;{doubled}\x1b\\"
    return code
