"""Wakes the event loops that wait for steps.

The engine thread posts steps to tickets as they are made and wakes each loop once per decode, for all tickets together:
a wake-up is a system call, and there may be a thousand tokens per second.
"""

from __future__ import annotations

import asyncio

from shepherd.engine.base import Ticket


class Notifier:
    def __init__(self) -> None:
        self._tickets: dict[asyncio.AbstractEventLoop, set[Ticket]] = {}

    def add(self, ticket: Ticket) -> None:
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
