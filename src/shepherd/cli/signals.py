"""Signal handlers that hold for a block; main thread only."""

from __future__ import annotations

import signal
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar

T = TypeVar("T")
INTERRUPTED = 128 + signal.SIGINT
"""Exit status after Ctrl-C, as in a shell."""


@contextmanager
def handling(number: int, handler: Callable[[int, FrameType | None], Any]) -> Iterator[None]:
    """Within the block, `handler` takes the signal. Under asyncio, the loop runs it between two events, and
    `call_soon_threadsafe` inside it wakes the loop."""
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


def run(body: Coroutine[Any, Any, T], *, stopped: str = "") -> T:
    """`asyncio.run`, in which SIGTERM and a closed terminal act like Ctrl-C: they cancel the coroutine, so the terminal
    is restored, and the programs that tools have started end. A handler that raises would interrupt any code, and the
    guard around tools that leave the program would catch the exception. `stopped`: a sentence for standard error.

    Raises: `SystemExit` with 128 + the signal, also for Ctrl-C; what the coroutine raises.
    """
    import asyncio

    numbers: list[int] = []

    async def whole() -> T:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None

        def leave(number: int, _frame: FrameType | None) -> None:
            numbers.append(number)
            loop.call_soon_threadsafe(task.cancel)

        with handling(signal.SIGTERM, leave), handling(getattr(signal, "SIGHUP", signal.SIGTERM), leave):
            return await body

    try:
        return asyncio.run(whole())
    except KeyboardInterrupt:
        numbers.append(signal.SIGINT)
    except asyncio.CancelledError:
        if not numbers:
            raise
    if stopped:
        from shepherd.cli import render

        render.show_error(stopped)
    raise SystemExit(128 + numbers[0])
