"""Kills of the process in which an engine computes: at random moments, in every way that a library can end it.

Killer ─ waits for a moment ─▶ a signal to the child ─▶ noted in `conversations.Deaths`, which knows when it is back
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import time
from collections import Counter
from pathlib import Path

import psutil
from bench.engine.conversations import Stage
from bench.rig.remains import Held
from bench.soak.surfaces import Ask, Turn

from shepherd.engine.worker.messages import ADDRESS

STALL_S = 4.0
"""Without progress for so long, the server ends a child."""
AFTER_S = 1.0
"""At most so long after the child has answered again, it is killed again."""
LOAD_S = 1.5
"""So long a child takes to load, at most: when it is killed while it does."""
IMAGE_S = 0.05
"""So long a child takes for an image, at most."""

MOST_LOADING = 2
"""Kills one after the other while it loads: behind five deaths without an answer the server starts no further child."""
MOMENTS = {"at any time": 6, "during an image": 2, "while it loads": 2}
WAYS = {signal.SIGKILL: 8, signal.SIGSEGV: 5, signal.SIGABRT: 5, signal.SIGSTOP: 1}
"""Of so many kills; SIGSTOP until the server itself ends the child."""


def engines(server: psutil.Process) -> dict[int, psutil.Process]:
    """The children in which a server's engines compute, by their numbers."""
    found = {}
    for child in server.children():
        with contextlib.suppress(psutil.Error, OSError):
            if ADDRESS in child.environ() and child.status() != psutil.STATUS_ZOMBIE:
                found[child.pid] = child
    return found


class Killer:
    """Kills the child of a model, again and again."""

    def __init__(self, stage: Stage, server: psutil.Process, model: str, spared: int) -> None:
        """`spared`: the child of the other model."""
        self._stage, self._server, self._model, self._spared = stage, server, model, spared
        self._rnd = random.Random(f"killer {stage.seed}")
        self.enough = asyncio.Event()
        """Set: no further kill of this kind."""
        self._n_loading = 0
        self.done: Counter[str] = Counter()

    def find(self) -> psutil.Process | None:
        return next((each for pid, each in engines(self._server).items() if pid != self._spared), None)

    def _draw(self) -> str:
        """A moment for the next kill."""
        moment = self._rnd.choices(list(MOMENTS), list(MOMENTS.values()))[0]
        self._n_loading = self._n_loading + 1 if moment == "while it loads" else 0
        return "at any time" if self._n_loading > MOST_LOADING else moment

    async def run(self, n: int) -> None:
        """Kill it so many times, and wait until it answers again. Raises: `TimeoutError` when it does not."""
        for _ in range(n):
            moment = self._draw()
            (way,) = self._rnd.choices(list(WAYS), list(WAYS.values()))
            await self._await(moment)
            if self._stage.done.is_set() or self.enough.is_set():
                break
            if await self._kill(way):
                self.done[f"{way.name} {moment}"] += 1
        await asyncio.wait_for(self._stage.deaths.is_well.wait(), self._stage.patience_s)

    async def _await(self, moment: str) -> None:
        """Wait for such a moment. Raises: `TimeoutError`."""
        stage, rnd = self._stage, self._rnd
        if moment == "while it loads" and not stage.deaths.is_well.is_set():
            await self._child()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stage.deaths.is_well.wait(), rnd.uniform(0.0, LOAD_S))
            return
        await asyncio.wait_for(stage.deaths.is_well.wait(), self._stage.patience_s)
        if moment == "during an image":
            stage.shows.clear()
            await asyncio.wait_for(stage.shows.wait(), self._stage.patience_s)
            await asyncio.sleep(rnd.uniform(0.0, IMAGE_S))
        else:
            await asyncio.sleep(rnd.uniform(0.0, AFTER_S))

    async def _child(self) -> psutil.Process:
        """The child, as soon as there is one. Raises: `TimeoutError`."""
        gives_up = time.monotonic() + self._stage.patience_s
        while time.monotonic() < gives_up:
            if (child := self.find()) is not None:
                return child
            await asyncio.sleep(0.01)
        raise TimeoutError

    async def _kill(self, way: signal.Signals) -> bool:
        """Whether there was one that has ended by this. Raises: `TimeoutError`."""
        child = await self._child()
        self._stage.deaths.begin()
        with contextlib.suppress(psutil.Error):
            child.send_signal(way)
            if way == signal.SIGSTOP:
                limit_s = 5 * STALL_S
                if not await _gone(child, limit_s):
                    self._stage.findings.add("hang", f"a child that is stopped was not ended within {limit_s:g} s")
                    child.kill()
            return await _gone(child, self._stage.patience_s)
        return False

    async def restarts(self, n: int, folder: Path) -> list[Held]:
        """Kill it so many times, each time as soon as it has answered; what the server holds then."""
        rnd, held = self._rnd, list[Held]()
        self.enough.clear()
        for number in range(n):
            if self.enough.is_set():
                break
            await self._kill(signal.SIGKILL)
            asked = Ask("chat", self._model, (Turn("user", f"Restart {number}-0?"),), max_tokens=1)
            if await self._stage.answered(asked, rnd) is None:
                break
            held.append(Held.of(self._server, folder))
        return held


async def _gone(child: psutil.Process, limit_s: float) -> bool:
    gives_up = time.monotonic() + limit_s
    while child.is_running() and child.status() != psutil.STATUS_ZOMBIE:
        if time.monotonic() > gives_up:
            return False
        await asyncio.sleep(0.01)
    return True
