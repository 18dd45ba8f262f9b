"""The caller's half of a submitted job: its steps, carried from the engine thread to the event loop.

The engine thread posts steps as they are made and wakes each loop once per decode, whatever the number of tickets:
waking is a system call, and at a thousand tokens per second every one counts.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator

from shepherd.core import ShepherdError
from shepherd.engine.base import Done, Job, Step


class Ticket:
    """Created and iterated on one event loop; posted to by the engine thread; `cancelled` is read there."""

    __slots__ = ("_error", "_finished", "_steps", "_waiter", "cancelled", "job", "loop")

    def __init__(self, job: Job, loop: asyncio.AbstractEventLoop) -> None:
        self.job = job
        self.loop = loop
        self.cancelled = False
        """Set by `Engine.cancel`; the engine looks at it between decodes."""
        self._steps: deque[Step] = deque()
        self._finished = False
        self._error: ShepherdError | None = None
        self._waiter: asyncio.Future[None] | None = None

    @property
    def finished(self) -> bool:
        """Whether the last step has been posted."""
        return self._finished

    # engine thread

    def post(self, step: Step) -> None:
        """Hand over one step; `Post.flush` delivers it. Never blocks: the job's token limit bounds the queue.

        A ticket that has ended with an error takes no more: the thread of a stalled engine that goes on would
        otherwise say `cancelled` to a caller who has not yet been woken for the error.
        """
        if self._error is not None:
            return
        self._steps.append(step)
        if type(step) is Done:
            self._finished = True

    def fail(self, error: ShepherdError) -> None:
        """End the ticket with an error; steps posted before are still delivered."""
        self._error = error
        self._finished = True

    # any thread

    def abandon(self, error: ShepherdError) -> None:
        """End the ticket with an error in place of its engine thread, which finds it cancelled if it goes on."""
        self.fail(error)
        self.cancelled = True  # last: whoever sees it set must find the error
        with contextlib.suppress(RuntimeError):  # the loop is closed: nothing reads this ticket any more
            self.loop.call_soon_threadsafe(self.wake)

    # event loop

    def wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def batches(self) -> AsyncGenerator[list[Step], None]:
        """The steps in order, in batches of all that is ready; ends after `Done`.

        Raises: `ContextFull`, `EngineError` or `EngineDown` after the last step when the engine could not go on.
        """
        while True:
            steps: list[Step] = []
            while self._steps:
                steps.append(self._steps.popleft())
            if steps:
                yield steps
                if isinstance(steps[-1], Done):
                    return
            elif self._finished:
                if self._error is not None:
                    raise self._error
                return
            else:
                self._waiter = self.loop.create_future()
                if not self._steps and not self._finished:
                    await self._waiter
                self._waiter = None


class Notifier:
    """Wakes the loops whose tickets have news. Used by one engine thread."""

    def __init__(self) -> None:
        self._news: dict[asyncio.AbstractEventLoop, set[Ticket]] = {}

    def add(self, ticket: Ticket) -> None:
        """`ticket` has steps that nobody has been woken for."""
        self._news.setdefault(ticket.loop, set()).add(ticket)

    def flush(self) -> None:
        """Wake everybody with news: one call per loop."""
        for loop, tickets in self._news.items():
            try:
                loop.call_soon_threadsafe(_wake_all, tickets)
            except RuntimeError:  # the loop is closed: nobody will ever read these tickets
                for ticket in tickets:
                    ticket.cancelled = True
        self._news = {}


def _wake_all(tickets: set[Ticket]) -> None:
    for ticket in tickets:
        ticket.wake()
