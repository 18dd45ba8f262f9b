"""Signal handlers that hold for a block; main thread only.

    a whole command   in_order: SIGTERM and SIGHUP end it as Ctrl-C does, so that its blocks are left in order
      a coroutine     run: they cancel it
      a server        server/http/listen.py: it stops as its page says (docs/serve.md); `held` until all is saved

SIGHUP says that the terminal is closed. A program that was started to ignore it (`nohup`) goes on.
"""

from __future__ import annotations

import signal
import socket
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")
INTERRUPTED = 128 + signal.SIGINT
"""Exit status after Ctrl-C, as in a shell."""
HANG_UP = getattr(signal, "SIGHUP", signal.SIGTERM)
"""Windows has none."""


@contextmanager
def handling(number: int, handler: Callable[[int, FrameType | None], Any]) -> Iterator[None]:
    """Within the block, `handler` takes the signal; one for a closed terminal that this program was started to ignore
    stays ignored. Under asyncio, the loop runs it between two events, and `call_soon_threadsafe` inside it wakes the
    loop."""
    if number == HANG_UP and signal.getsignal(number) is signal.SIG_IGN:
        yield
        return
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


@contextmanager
def writing_to(descriptor: int) -> Iterator[None]:
    """Within the block, every signal that has a handler writes a byte to this non-blocking socket when it comes. The
    handler itself runs between two steps of the main thread: that of a signal which comes when the last step before a
    sleep is done, or which the system gives to another thread, waits for whatever else ends the sleep."""
    before = signal.set_wakeup_fd(descriptor, warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)


@contextmanager
def waking(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Within the block, every signal that has a handler wakes asyncio's `loop`. Windows' loop does this itself."""
    if sys.platform == "win32":
        yield
        return
    near, far = socket.socketpair()
    near.setblocking(False)
    far.setblocking(False)

    def drain() -> None:
        with suppress(BlockingIOError):
            near.recv(4096)

    with near, far, writing_to(far.fileno()):
        loop.add_reader(near, drain)
        try:
            yield
        finally:
            loop.remove_reader(near)


@contextmanager
def in_order() -> Iterator[None]:
    """Within the block, SIGTERM and a closed terminal raise `SystemExit` with 128 + the signal."""

    def leave(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    with handling(signal.SIGTERM, leave), handling(HANG_UP, leave):
        yield


@contextmanager
def held() -> Iterator[list[int]]:
    """Within the block, no signal ends the program; those that came, where nothing inside has taken them."""
    came: list[int] = []
    with ExitStack() as stack:
        for number in (signal.SIGINT, signal.SIGTERM, HANG_UP):
            stack.enter_context(handling(number, lambda number, _: came.append(number)))
        yield came


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

        with waking(loop), handling(signal.SIGTERM, leave), handling(HANG_UP, leave):
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
