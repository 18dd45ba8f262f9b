"""Looks at every replica again and again: whether it takes requests, and which models it has.

One task, with one more for each replica; a look sends no prompt. Not here: what it changes (`backends/replicas.py`).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

from shepherd.app.providers import Providers
from shepherd.backends.cloud.packaged import PackagedBackend

LOOK_S = 5.0
"""A request of a look takes no longer."""
MODELS_EVERY = 6
"""Looks from one that asks for the models to the next."""


class ReplicaWatch:
    """Of one program; started and closed on one event loop."""

    def __init__(
        self,
        providers: Providers,
        *,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """`chance`: from 0 to 1; it spreads the looks of several routers over time."""
        self._providers = providers
        self._sleep, self._chance = sleep, chance
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to look, if there is a replica."""
        if watched := self._providers.watched():
            self._task = asyncio.create_task(self._watch_all(watched))

    async def aclose(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait((task,))

    async def _watch_all(self, watched: dict[str, float]) -> None:
        async with asyncio.TaskGroup() as tasks:
            for name, every_s in watched.items():
                tasks.create_task(self._watch(name, every_s))

    async def _watch(self, name: str, every_s: float) -> None:
        replicas, n_looks = self._providers.replicas, 0
        while True:
            backend = self._providers.open(name).cloud  # another one after a change
            if isinstance(backend, PackagedBackend):
                return
            lists = n_looks % MODELS_EVERY == 0 or replicas.wants_models(name)
            n_looks += 1
            wait_s = replicas.see(name, await backend.look(LOOK_S, lists=lists), every_s)
            await self._sleep(wait_s * (0.9 + 0.2 * self._chance()))
