"""Opens what answers a request, and streams its answer.

    request ─ Catalogue ─▶ names ─┬▶ cache ─▶ its entry ─ ModelPool: lease ─▶ loaded model ─▶ back end ─▶ events
                                  └▶ provider ─ Providers: open ─▶ its back end ─▶ events

What may leave this machine is decided in one place, `_check_privacy`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from math import inf
from typing import TypeVar

from shepherd.agent.compaction import CompactingBackend, EditableBackend
from shepherd.agent.compaction_store import CompactionStore
from shepherd.agent.digest import Digests, DigestWriter
from shepherd.app.directory.catalogue import Catalogue, ProviderModel
from shepherd.app.directory.entries import ModelEntry
from shepherd.app.live_window import LiveWindow
from shepherd.app.loading import LoadedModel
from shepherd.app.media import MediaDoor, for_provider
from shepherd.app.model_pool import ModelPool
from shepherd.app.replica_watch import ReplicaWatch
from shepherd.backends.fallback import can_another_answer, first_to_answer
from shepherd.backends.local.backend import LocalBackend
from shepherd.backends.local.completion import pieces
from shepherd.backends.local.media import MediaLimits, has_media
from shepherd.backends.local.prompt import Encoder
from shepherd.backends.router import Route
from shepherd.config import Config
from shepherd.core import (
    EngineError,
    Event,
    Finished,
    InvalidRequest,
    NotAllowed,
    Request,
    ShepherdError,
    TextOrTokens,
    Unsupported,
)
from shepherd.core.pairs import Pairs, Scores
from shepherd.core.status import Embeddings, ReplicaStatus
from shepherd.process.pools import in_pool, while_wanted
from shepherd.wire.base import shown
from shepherd.wire.history import plain

logger = logging.getLogger(__name__)

T = TypeVar("T")

_STAYS_HERE: ContextVar[bool] = ContextVar("stays_here", default=False)
"""Of a request on a private route: the tools that run for it may ask other models, too."""


class Dispatcher:
    """Answers requests with the models of a catalogue. One event loop; what is not awaited, any thread."""

    def __init__(
        self,
        config: Config,
        catalogue: Catalogue,
        pool: ModelPool[LoadedModel],
        compactions: CompactionStore,
        window: LiveWindow,
    ) -> None:
        """The caller closes the pool, the providers and the compactions. `window`: hears what was recalled."""
        self.catalogue = catalogue
        self.pool = pool
        self.providers = catalogue.providers
        self.compactions = compactions
        self.window = window
        self.digests = Digests(compactions)
        self.health = self.providers.replicas.health
        self.watch = ReplicaWatch(self.providers)
        self._reasoning = config.reasoning
        self._media = MediaDoor(MediaLimits(config.images.limits, config.audio.limits), config.images.hosts)

    # requests

    async def stream(
        self, request: Request, *, endpoint: str | None, route: Route | None = None
    ) -> AsyncGenerator[Event, None]:
        """The events of one answer; see `Backend.stream`. The model stays loaded until the iterator is closed.

        `endpoint`, `route`: as in `Catalogue.choose`.
        """
        route, request = await self.catalogue.choose(request, endpoint, route)
        names = self.catalogue.candidates(route, request)
        if len(names) > 1 or names[0] in self.providers.replicas:  # also the last one that is in has a health
            answer = first_to_answer(names, lambda name: self._answer(name, route, request), self.health)
        else:
            answer = self._answer(names[0], route, request)
        self.window.begin(request)
        async with aclosing(answer) as events:
            async for event in events:
                self.window.see(request, event)
                yield event

    async def _answer(self, name: str, route: Route, request: Request) -> AsyncGenerator[Event, None]:
        with self.providers.replicas.answering(name, request):
            async with (
                self._opened(name, route, request) as (backend, asked),
                aclosing(backend.stream(asked)) as events,
            ):
                async for event in events:
                    if isinstance(event, Finished) and name not in self.providers:
                        self.providers.uses.note(request.owner, self.catalogue.entry_of(name).name, event.usage)
                    yield event

    async def count(self, request: Request, *, endpoint: str) -> int:
        async with self._first(request, endpoint) as (backend, asked):
            return await backend.count(asked)

    async def render(self, request: Request, *, endpoint: str) -> str:
        async with self._first(request, endpoint) as (backend, asked):
            return await backend.render(asked)

    async def search_left(self, request: Request, query: str, *, endpoint: str) -> str:
        """As `SearchableBackend`, in the cache that the request goes to."""
        async with self._first(request, endpoint) as (backend, asked):
            return await backend.search_left(asked, query)

    async def tokenize(
        self, model: str, text: str, *, special: bool = False, bos: bool = False, endpoint: str = ""
    ) -> list[int]:
        async with self.lease(await self.catalogue.entry_for(model, endpoint)) as opened:
            encoder = next((each.encoder for each in opened.backends.values()), None) or Encoder(opened.vocabulary, "")
            return await in_pool("texts", encoder.tokenize, text, special=special, bos=bos)

    async def detokenize(self, model: str, tokens: Sequence[int], *, endpoint: str = "") -> list[bytes]:
        async with self.lease(await self.catalogue.entry_for(model, endpoint)) as opened:
            return await in_pool("texts", pieces, tokens, opened.vocabulary)

    async def embed(
        self,
        model: str,
        inputs: Sequence[TextOrTokens],
        *,
        dimensions: int | None = None,
        truncate: bool = True,
        endpoint: str = "",
    ) -> Embeddings:
        found = await self.catalogue.embedder(model, endpoint)
        if isinstance(found, ProviderModel):
            texts = [each for each in inputs if isinstance(each, str)]
            if len(texts) < len(inputs):
                raise InvalidRequest("a provider makes vectors of texts; send texts, not tokens", field="input")
            self._check_privacy(found.provider, found.route)
            return await self._embed_elsewhere(found, texts, dimensions, truncate=truncate)
        async with self.lease(found) as opened:
            assert opened.embedder is not None
            encode = partial(opened.embedder.encode, list(inputs), truncate=truncate, dimensions=dimensions)
            made = await while_wanted("embeddings", lambda is_wanted: encode(is_wanted=is_wanted))
            pooled = opened.embedder.pooling != "none"
        return Embeddings(found.card.id, made.vectors.tolist(), made.n_tokens, pooled)

    async def _embed_elsewhere(
        self, found: ProviderModel, texts: Sequence[str], dimensions: int | None, *, truncate: bool
    ) -> Embeddings:
        """The vectors of a provider, of a group those of the first replica that makes them."""
        request = Request(found.model)
        names = self.health.order(self.catalogue.candidates(Route(found.provider), request))
        model = self.providers.asked_model(found.provider, found.model)
        for at, name in enumerate(names):
            try:
                with self.providers.replicas.answering(name, request):
                    made = await self.providers.open(name).cloud.embed(model, texts, dimensions, truncate=truncate)
            except ShepherdError as error:
                if at + 1 == len(names) or not can_another_answer(error):
                    raise
                self.health.note(name, error)
            else:
                self.health.note(name, None)
                return made
        raise AssertionError("there is a candidate")

    async def rerank(self, model: str, pairs: Pairs) -> Scores:
        """The score of each pair, by the reranker of this name, or else by the first one."""
        entry = await self.catalogue.reranker(model)
        async with self.lease(entry) as opened:
            assert opened.reranker is not None
            made = await while_wanted("reranking", partial(opened.reranker.score, pairs))
        return replace(made, model=entry.card.id)

    async def load(self, model: str, keep_alive_s: float | None, *, endpoint: str = "") -> None:
        """Load the model that the routes choose; it stays for `keep_alive_s` from now on. With 0 it is unloaded."""
        if await self.catalogue.is_elsewhere(model, endpoint):
            return  # clients that load a model before they chat must not fail
        entry = await self.catalogue.entry_for(model, endpoint)
        if keep_alive_s == 0:
            await self.catalogue.unload(entry.name)
        else:
            async with self.lease(entry, _positive(keep_alive_s)):
                pass

    # the way to a back end

    @asynccontextmanager
    async def _first(self, request: Request, endpoint: str) -> AsyncIterator[tuple[CompactingBackend, Request]]:
        """The first back end that would be asked; as `_opened`."""
        route, request = await self.catalogue.choose(request, endpoint)
        async with self._opened(self.catalogue.candidates(route, request)[0], route, request) as opened:
            yield opened

    @asynccontextmanager
    async def _opened(
        self, name: str, route: Route, request: Request
    ) -> AsyncIterator[tuple[CompactingBackend, Request]]:
        """The back end of a cache or provider, ready, and the request as it reads it.

        Raises: `NotAllowed` for a provider elsewhere where the route keeps prompts on this machine.
        """
        is_digesting = self.catalogue.writes_digests(name)
        if name in self.providers:
            self._check_privacy(name, route)
            opened = self.providers.open(name)
            protocol = opened.protocol
            _check_demand(request, protocol)
            named = [each for each in (route.target, *route.fallback) if each in self.providers]
            group = next((each for each in named if name in self.providers.all_of(each)), name)
            bare, level = self.providers.asked_model(group, request.model), request.reasoning or self._reasoning
            if (bare, level) != (request.model, request.reasoning):
                request = replace(request, model=bare, reasoning=level)
            if has_media(request.messages):
                request = replace(request, messages=await in_pool("media", for_provider, request.messages))
            ask = partial(self._answer, name, route)
            writer = DigestWriter(ask, _about, is_always=True, most_new=None) if is_digesting else None
            yield self._compacting(opened.backend, name, writer, protocol), request
            return
        _check_demand(request, "")
        request = replace(request, messages=plain(request.messages))
        request = await self._media.admit(request, partial(self.catalogue.lacking, name))
        async with self.lease(self.catalogue.chat_model(name), _positive(request.extra.get("keep_alive"))) as model:
            if name not in model.backends:  # the file was missing at the start, and is not a chat model
                self.catalogue.refuse_to_chat(model.name)
            write, count = partial(self._write, name, route), model.backends[name].count_tokens
            writer = DigestWriter(write, count, is_always=is_digesting)
            yield self._compacting(model.memory_backends[name], name, writer), request

    def _compacting(
        self, backend: EditableBackend, name: str, writer: DigestWriter | None, protocol: str = ""
    ) -> CompactingBackend:
        return CompactingBackend(
            backend, self.compactions, name=name, protocol=protocol, digests=self.digests, writer=writer
        )

    async def _write(self, name: str, route: Route, request: Request) -> AsyncGenerator[Event, None]:
        """A digest of what a cache holds. Raises: `EngineError` where its model is not loaded any more."""
        if self.catalogue.entry_of(name).key not in self.pool.loaded():
            raise EngineError(f"the model of cache {name!r} is not loaded any more")
        async with aclosing(self._answer(name, route, request)) as events:
            async for event in events:
                yield event

    def _check_privacy(self, name: str, route: Route) -> None:
        if (route.is_private or _STAYS_HERE.get()) and not self.providers.is_local(name):
            raise NotAllowed(f"this route keeps prompts on this machine, and {name!r} is not on it", status=403)

    def keep_here(self, route: Route) -> None:
        """From now on, in this task and those that it starts, prompts stay on this machine if the route is private."""
        _STAYS_HERE.set(route.is_private)

    @asynccontextmanager
    async def lease(self, entry: ModelEntry, keep_alive_s: float | None = None) -> AsyncIterator[LoadedModel]:
        """The model, loaded, for the length of the block; the only way to a model of a request."""
        if entry.header is None:
            await asyncio.to_thread(self.catalogue.reread, entry.name)
        async with AsyncExitStack() as stack:
            try:
                model = await stack.enter_async_context(self.pool.use(entry.key, keep_alive_s))
            except ShepherdError as error:
                logger.warning("model %r is not loaded: %s", str(entry.key), error)
                raise
            yield model

    # state

    def take_out(self, name: str, *, is_out: bool) -> ReplicaStatus:
        """As `Replicas.take_out`. Raises: `InvalidRequest`."""
        if name not in self.providers.replicas:
            known = ", ".join(each for group in self.providers.groups().values() for each in group)
            raise InvalidRequest(
                f"there is no replica {shown(name)}; the replicas are: {known or 'none'}", field="name", status=404
            )
        logger.info("%s is %s", name, "taken out" if is_out else "put back")
        self.providers.replicas.take_out(name, is_out=is_out)
        return self.providers.replicas.status(name)

    def resting(self) -> dict[str, float]:
        """Seconds that each provider still rests after a failure; 0 = it does not."""
        down = self.health.down()
        return {name: max(0.0, down.get(name, 0.0)) for name in self.providers.in_use}

    def backends(self) -> dict[str, LocalBackend]:
        """By cache, those that are open now, in the order of the configuration."""
        found = {
            name: backend for model in self.pool.loaded().values() for name, backend in list(model.backends.items())
        }
        return {cache: found[cache] for cache in self.catalogue.caches if cache in found}


def _about(text: str) -> int:
    """Tokens of a text, as far as that is known of a model elsewhere."""
    return len(text) // 4


def _check_demand(request: Request, protocol: str) -> None:
    """Raises: `Unsupported` where the request demands what only a provider of another protocol does."""
    native = request.native
    if native is not None and native.demand is not None and native.protocol != protocol:
        raise Unsupported(native.demand.message, field=native.demand.field)


def _positive(keep_alive_s: float | None) -> float | None:
    """How long a model stays after a request; None = as before."""
    return inf if keep_alive_s is not None and keep_alive_s < 0 else keep_alive_s
