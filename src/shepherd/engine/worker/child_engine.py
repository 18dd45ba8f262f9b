"""One engine of a model in a child process, for the rooms above: an `Engine` like any other."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from shepherd.core import Evicted
from shepherd.engine.base import CachedPrefix, Engine, Job, Owner, Span, Ticket
from shepherd.engine.stats import CacheStats
from shepherd.engine.window import Feed
from shepherd.engine.worker.model_process import ModelProcess


class ChildEngine:
    """An engine in a child; satisfies `Engine`. It stays the same when the child is started again."""

    def __init__(self, process: ModelProcess, index: int = 0) -> None:
        self.process = process
        self._index = index
        self.gate, self.n_low = process.engines[index]
        self.name, self.n_ctx = self.gate.name, self.gate.n_ctx

    def submit(self, job: Job) -> Ticket:
        return self.process.submit(self._index, job)

    def cancel(self, ticket: Ticket) -> None:
        self.process.cancel(ticket)

    def stats(self) -> CacheStats:
        return self.process.stats(self._index)

    @property
    def down(self) -> str | None:
        return self.process.down or self.process.state(self._index).down

    @property
    def used(self) -> int:
        return self.process.state(self._index).stats.used

    async def clear(self) -> None:
        await self.process.ask(self._index, "clear")

    async def evict(self, job: Job, n_turns: int) -> Evicted:
        evicted: Evicted = await self.process.ask(self._index, "evict", job, n_turns)
        return evicted

    async def held(self, tokens: array[int], spans: Sequence[Span], owner: Owner, *, holes: bool) -> CachedPrefix:
        found: CachedPrefix = await self.process.ask(self._index, "held", tokens, spans, owner, holes=holes)
        return found

    async def beginning_with(
        self, tokens: array[int], owner: Owner, spans: Sequence[Span] = (), n_other: int = 0
    ) -> list[array[int]]:
        found: list[array[int]] = await self.process.ask(self._index, "beginning_with", tokens, owner, spans, n_other)
        return found

    async def tokens(self, seq: int, owner: str, start: int, stop: int) -> array[int]:
        found: array[int] = await self.process.ask(self._index, "tokens", seq, owner, start, stop)
        return found

    @property
    def is_watched(self) -> bool:
        return self.process.is_watched(self._index)

    def watch(self) -> Feed:
        return self.process.watch(self._index)

    def unwatch(self, feed: Feed) -> None:
        self.process.unwatch(feed)

    def close(self, timeout_s: float = 30.0) -> bool:
        """As `Engine.close`. Behind the last engine the child and all that it has started end, by force if need be;
        False only if the system does not end a killed process."""
        return self.process.close_engine(self._index, timeout_s)


_proof: type[Engine] = ChildEngine  # it satisfies the seam
