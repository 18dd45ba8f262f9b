"""How often the process of a model says how its caches are."""

from __future__ import annotations

import asyncio
import multiprocessing
from array import array
from contextlib import closing
from typing import Any, cast

from tests.fake_engine import SilentLoop

from shepherd.engine.base import Job, Ticket
from shepherd.engine.worker.channel import Channel
from shepherd.engine.worker.host import PUSH_S, _Host
from shepherd.engine.worker.messages import BEAT_S, RemoteModel, State


async def test_a_cache_that_is_only_watched_says_no_more_than_that_it_is_there() -> None:
    host = _Host(cast("Any", None))  # nothing is sent
    assert host.pause_s == BEAT_S
    watching = host._tasks[1] = asyncio.create_task(asyncio.sleep(0))
    assert host.pause_s == BEAT_S
    host._tickets[2] = 0, Ticket(Job(array("i", [1]), 1), cast("asyncio.AbstractEventLoop", SilentLoop()))
    assert host.pause_s == PUSH_S
    await watching


class Stopped(asyncio.SelectorEventLoop):
    """Its clock stands still until a test sets it."""

    now_s = 0.0

    def time(self) -> float:
        return self.now_s


def test_the_first_job_is_not_held_up_by_a_state_that_comes_sooner_because_of_it() -> None:
    loop = Stopped()
    parent, child = map(Channel, multiprocessing.Pipe())

    async def run() -> None:
        host = _Host(child)
        host._model, host._engines, host._woken = RemoteModel(), (), asyncio.Event()
        beating = asyncio.create_task(host._beat())

        async def comes(after_s: float) -> bool:
            loop.now_s += after_s
            for _ in range(5):
                await asyncio.sleep(0)
            return parent.poll(0) and list(map(type, parent.receive())) == [State]

        assert not await comes(0.0)
        host._tickets[1] = 0, Ticket(Job(array("i", [1]), 1), loop)
        host._woken.set()
        assert [await comes(after_s) for after_s in (0.0, PUSH_S, 0.0, PUSH_S)] == [False, True, False, True]
        del host._tickets[1]
        assert [await comes(after_s) for after_s in (PUSH_S, PUSH_S, BEAT_S - PUSH_S)] == [True, False, True]
        beating.cancel()

    with closing(loop), closing(parent), closing(child):
        loop.run_until_complete(run())
