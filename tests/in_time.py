"""Waiting on a machine that may be busy: for an event, never for a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

import pytest

SHORT_S = (0.3, 1.0, 4.0, 15.0, 60.0)


async def in_time(attempt: Callable[[float], Awaitable[None]], times_s: Sequence[float] = SHORT_S) -> None:
    """Let `attempt` succeed with one of these times, the shortest first; it fails as it does with the longest."""
    for time_s in times_s[:-1]:
        try:
            await attempt(time_s)
        except (Exception, pytest.fail.Exception):
            continue
        return
    await attempt(times_s[-1])


PATIENCE_S = 60.0


async def until(holds: Callable[[], bool]) -> None:
    """Wait until something becomes true that another thread or process does, and that wakes no event loop."""
    async with asyncio.timeout(PATIENCE_S):
        while not holds():  # noqa: ASYNC110 - nothing sets an event for it
            await asyncio.sleep(0.005)


def becomes_true(holds: Callable[[], bool], within_s: float = PATIENCE_S) -> bool:
    """`until` for a test without an event loop: whether it becomes true in that time."""
    give_up = time.monotonic() + within_s
    while not (held := holds()) and time.monotonic() < give_up:
        time.sleep(0.005)
    return held
