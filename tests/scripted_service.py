"""A service that answers from a script: the server's seam without a model. For tests and demonstrations."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from shepherd.app.live_window import LiveWindow
from shepherd.app.usage import DayOfUse, Totals
from shepherd.backends.local.adapters import ModelAdapters
from shepherd.core import (
    EngineDown,
    Event,
    Finished,
    InvalidRequest,
    NotAllowed,
    Opaque,
    OpaqueBlock,
    Request,
    Started,
    Text,
    TextDelta,
    TextOrTokens,
    Usage,
)
from shepherd.core.edits import COMPACTION
from shepherd.core.pairs import Pairs, Scores
from shepherd.core.status import CacheUsage, Embeddings, Health, ModelCard, ReplicaStatus
from shepherd.engine.stats import CacheStats

if TYPE_CHECKING:
    from shepherd.app.chats.chats import Chats
    from shepherd.memory import MemoryStore
    from shepherd.memory.archive.forget import Removed
    from shepherd.memory.users import UserStores
    from shepherd.models.pull.pull import Event as PullEvent

Script = Callable[[Request], AsyncGenerator[Event, None]]


class ScriptedService:
    """Plays `script` for every request, and remembers what it was asked and how far it came. Is its own parts."""

    def __init__(
        self,
        script: Script,
        *,
        health: Health | None = None,
        stats: Mapping[str, CacheStats] | None = None,
        shelf: UserStores | None = None,
    ) -> None:
        """`shelf`: the memories, which the caller closes; None = it remembers nothing."""
        self._script = script
        self._shelf = shelf
        self.window = LiveWindow(dict, self.stats)
        self.caches = {"main": CacheStats(4096, used=17)} if stats is None else dict(stats)
        """Of `stats` and `totals`; a test may change it."""
        self.n_lost = 0
        """Of `totals`; a test may change it."""
        self.manages_models = True
        self.cleared: list[str] = []
        self.unloaded: list[str] = []
        self.copied: list[tuple[str, str]] = []
        self.deleted: list[str] = []
        self.taken_out: list[tuple[str, bool]] = []
        self.n_looks = 0
        """For pulled models."""
        self.cards: tuple[ModelCard, ...] = (ModelCard("fake", 4096, 1_700_000_000, "a script"),)
        """Of `models`; a test may change it."""
        self._health = health or Health("ok", "llamacpp", "fake.gguf", {"main": CacheUsage(4096, 17, "fake")})
        self.requests: list[Request] = []
        self.endpoints: list[str] = []
        self.n_events = 0
        """How many have been taken, over all requests."""
        self.n_running = 0
        self.ended = asyncio.Event()
        """Set whenever a stream has ended, cancelled or not."""

    @property
    def conversations(self) -> Self:
        return self

    @property
    def dispatcher(self) -> Self:
        return self

    @property
    def chats(self) -> Chats:
        raise EngineDown("a script keeps no chats")

    @property
    def catalogue(self) -> Self:
        if self._health.status == "loading":
            raise EngineDown("the model is still loading; try again in a moment")
        return self

    async def stream(self, request: Request, *, endpoint: str) -> AsyncGenerator[Event, None]:
        self.requests.append(request)
        self.endpoints.append(endpoint)
        self.n_running += 1
        try:
            async with aclosing(self._script(request)) as events:
                async for event in events:
                    self.n_events += 1
                    yield event
        finally:
            self.n_running -= 1
            self.ended.set()

    async def look_again(self) -> None:
        self.n_looks += 1

    async def here(self) -> dict[str, Any]:
        return {"models": [{"name": each.id, "path": f"/models/{each.id}.gguf"} for each in self.cards]}

    async def copy(self, source: str, name: str) -> None:
        self.copied.append((source, name))

    async def delete(self, name: str) -> None:
        self.deleted.append(name)

    def models(self) -> tuple[ModelCard, ...]:
        return self.cards

    def adapters(self, model: str) -> ModelAdapters:
        return ModelAdapters(model, ())

    def health(self) -> Health:
        return self._health

    def stats(self) -> Mapping[str, CacheStats]:
        return self.caches

    def totals(self) -> Totals:
        n_archived = self._shelf.n_archived if self._shelf else 0
        return Totals(self.caches, n_archived=n_archived, n_archive_failures=self.n_lost)

    def usage(self, n_days: int, user: str | None = None) -> tuple[DayOfUse, ...]:
        self.n_days = n_days
        return (DayOfUse("2026-11-27", "fake", False, 2, 7, 3, 5, 0.0),)

    async def clear(self, name: str) -> None:
        self.cleared.append(name)
        self.caches[name] = replace(self.caches[name], used=0, sequences=())

    async def count(self, request: Request, *, endpoint: str) -> int:
        """A token is a byte here."""
        self.requests.append(request)
        self.endpoints.append(endpoint)
        said = [message.text for message in request.messages]
        if request.completion is not None:
            prompt = request.completion.prompt
            said += [part if isinstance(part, str) else chr(part) for part in prompt]
        return sum(len(text.encode("utf-8", "replace")) for text in said)

    async def render(self, request: Request, *, endpoint: str) -> str:
        self.requests.append(request)
        self.endpoints.append(endpoint)
        return "".join(f"<{message.role}>{message.text}" for message in request.messages) + "<assistant>"

    async def tokenize(self, model: str, text: str, *, special: bool, bos: bool, endpoint: str) -> list[int]:
        return [256] * bos + list(text.encode())

    async def detokenize(self, model: str, tokens: Sequence[int], *, endpoint: str) -> list[bytes]:
        for token in tokens:
            if not 0 <= token <= 256:
                raise InvalidRequest(f"{token} is no token of model {model!r}: they go from 0 to 256", field="tokens")
        return [b"" if token == 256 else bytes([token]) for token in tokens]

    async def embed(
        self, model: str, inputs: Sequence[TextOrTokens], *, dimensions: int | None, truncate: bool, endpoint: str
    ) -> Embeddings:
        """How often each of four byte values is in the input, of length 1."""
        vectors, counts = [], []
        for text in inputs:
            given = b"".join(part.encode() if isinstance(part, str) else bytes([part % 256]) for part in text)
            often = [sum(map(given.count, range(rest, 256, 4))) for rest in range(4)]
            vector = [1.0 + n for n in often][:dimensions]
            length = math.sqrt(sum(value * value for value in vector))
            vectors.append([value / length for value in vector])
            counts.append(len(given))
        return Embeddings("fake-embedding", vectors, tuple(counts))

    async def rerank(self, model: str, pairs: Pairs) -> Scores:
        """How many words of the query a document has, less one; a token is a byte."""
        words = [(set(query.split()), document.split()) for query, document in pairs.texts]
        values = tuple(float(sum(word in asked for word in found)) - 1 for asked, found in words)
        return Scores(values, tuple(len(f"{query}{text}".encode()) for query, text in pairs.texts), model="fake-rank")

    async def load(self, model: str, keep_alive_s: float | None, *, endpoint: str) -> None:
        self.requests.append(Request(model, extra={} if keep_alive_s is None else {"keep_alive": keep_alive_s}))
        self.endpoints.append(endpoint)

    def take_out(self, name: str, *, is_out: bool) -> ReplicaStatus:
        """Of the replicas of `health`; they stay as they are."""
        found = next((some[name] for some in self._health.groups.values() if name in some), None)
        if found is None:
            raise InvalidRequest(f"there is no replica {name}", field="name", status=404)
        self.taken_out.append((name, is_out))
        return replace(found, state="draining") if is_out else found

    async def unload(self, model: str) -> bool:
        self.unloaded.append(model)
        return True

    async def pull(self, name: str, show: Callable[[PullEvent], None]) -> None:
        raise NotAllowed(f"this server pulls no {name}", status=403)

    def memory(self, user: str | None) -> MemoryStore | None:
        return self._shelf.find_store(user) if self._shelf is not None else None

    async def forget(self, user: str, **what: Any) -> Removed:
        store = self.memory(user)
        assert store is not None
        removed = await asyncio.to_thread(store.forget, **what)
        for name in self.caches:
            await self.clear(name)
        return removed


def playing(*events: Event | Exception) -> Script:
    """A script of these events; an exception is raised where it stands."""

    async def script(request: Request) -> AsyncGenerator[Event, None]:
        for event in events:
            if isinstance(event, Exception):
                raise event
            yield event

    return script


def saying(*texts: str, usage: Usage = Usage(input=7, cache_read=3, output=5)) -> Script:
    """A script that starts, says `texts` and ends; where the request asks for a compaction, it has one."""
    item = OpaqueBlock(Opaque(COMPACTION, '{"type": "compaction", "encrypted_content": "shp1.x"}', (Text("Hi"),)))

    async def script(request: Request) -> AsyncGenerator[Event, None]:
        yield Started("fake", "fake:fake")
        if any(edit.pause for edit in request.edits):
            yield item
        for text in texts:
            yield TextDelta(text)
        yield Finished("end", usage)

    return script
