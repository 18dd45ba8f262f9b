"""How often the process of a model says how its caches are."""

from __future__ import annotations

import asyncio
from array import array
from typing import Any, cast

from tests.fake_engine import SilentLoop

from shepherd.engine.base import Job, Ticket
from shepherd.engine.worker.host import PUSH_S, _Host
from shepherd.engine.worker.messages import BEAT_S


async def test_a_cache_that_is_only_watched_says_no_more_than_that_it_is_there() -> None:
    host = _Host(cast("Any", None))  # nothing is sent
    assert host.pause_s == BEAT_S
    watching = host._tasks[1] = asyncio.create_task(asyncio.sleep(0))
    assert host.pause_s == BEAT_S
    host._tickets[2] = 0, Ticket(Job(array("i", [1]), 1), cast("asyncio.AbstractEventLoop", SilentLoop()))
    assert host.pause_s == PUSH_S
    await watching
