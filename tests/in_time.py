"""Time-outs that are short for a test's sake: what a busy machine does not get done in one is tried in a longer one."""

from __future__ import annotations

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
