"""The caller's handle of a submitted job: it carries steps from the engine thread to the event loop.

The engine thread posts steps as they are made and wakes each loop once per decode, for all tickets together: a wake-up
is a system call, and there may be a thousand tokens per second.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

from shepherd.core import ShepherdError
from shepherd.engine.base import Done, Job, Step


@dataclass(slots=True, eq=False)
class Ticket:
    """Created and iterated on one event loop; the engine thread posts to it and reads `cancelled`."""

    job: Job
    loop: asyncio.AbstractEventLoop
    cancelled: bool = False
    """Set by `Engine.cancel`; the engine thread reads it between decodes."""
    finished: bool = False
    """Whether the last step has been posted."""
    _steps: deque[Step] = field(default_factory=deque)
    _error: ShepherdError | None = None
    _waiter: asyncio.Future[None] | None = None

    # engine thread

    def post(self, step: Step) -> None:
        """Add one step; `Notifier.flush` wakes the reader. Never blocks: the job's token limit bounds the queue.

        A ticket that has ended with an error ignores later steps. Otherwise the thread of an engine that has stalled
        and recovered could replace the error by `cancelled` before the caller has read it.
        """
        if self._error is not None:
            return
        self._steps.append(step)
        if type(step) is Done:
            self.finished = True

    def fail(self, error: ShepherdError) -> None:
        """End the ticket with an error; earlier steps are still delivered."""
        self._error = error
        self.finished = True

    # any thread

    def abandon(self, error: ShepherdError) -> None:
        """End the ticket with an error because its engine thread has stalled; the thread finds it cancelled later."""
        self.fail(error)
        self.cancelled = True  # last: a thread that reads it must find the error
        with contextlib.suppress(RuntimeError):  # the loop is closed: nothing reads this ticket any more
            self.loop.call_soon_threadsafe(self.wake)

    # event loop

    def wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def batches(self) -> AsyncGenerator[list[Step], None]:
        """The steps in order, each batch with all steps that are ready; ends after `Done`.

        Raises: `ContextFull`, `EngineError` or `EngineDown`, after the last step, if the job fails.
        """
        while True:
            finished = self.finished  # read first: the engine thread sets it after the last step
            if steps := [self._steps.popleft() for _ in range(len(self._steps))]:
                yield steps
                if isinstance(steps[-1], Done):
                    return
            elif finished:
                if self._error is not None:
                    raise self._error
                return
            else:
                self._waiter = self.loop.create_future()
                if not self._steps and not self.finished:
                    await self._waiter
                self._waiter = None


class Notifier:
    """Wakes the event loops whose tickets have new steps. One per engine thread."""

    def __init__(self) -> None:
        self._tickets: dict[asyncio.AbstractEventLoop, set[Ticket]] = {}

    def add(self, ticket: Ticket) -> None:
        """Note that `ticket` has new steps."""
        self._tickets.setdefault(ticket.loop, set()).add(ticket)

    def flush(self) -> None:
        """Wake the readers of all noted tickets: one call per loop."""
        for loop, tickets in self._tickets.items():
            try:
                loop.call_soon_threadsafe(_wake_all, tickets)
            except RuntimeError:  # the loop is closed: nothing will read these tickets
                for ticket in tickets:
                    ticket.cancelled = True
        self._tickets = {}


def _wake_all(tickets: set[Ticket]) -> None:
    for ticket in tickets:
        ticket.wake()
