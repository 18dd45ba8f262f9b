"""Signal handlers that hold for a block; main thread only."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

INTERRUPTED = 128 + signal.SIGINT
"""Exit status after Ctrl-C, as of any program."""


@contextmanager
def handling(number: int, handler: Callable[[int, FrameType | None], Any]) -> Iterator[None]:
    """Within the block, `handler` takes the signal.

    Plain handlers work under asyncio on every system: the loop runs them between two events, and
    `call_soon_threadsafe` inside one wakes it.
    """
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


@contextmanager
def dying_politely() -> Iterator[None]:
    """SIGTERM, and a terminal that is closed, end the program as Ctrl-C does: the terminal is put back in order, and no
    program that a tool has started is left; status 128 + the signal."""

    def leave(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    with handling(signal.SIGTERM, leave), handling(getattr(signal, "SIGHUP", signal.SIGTERM), leave):
        yield
