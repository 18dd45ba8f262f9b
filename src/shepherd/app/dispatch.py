"""Routes a request to a model, loads the model if it is not loaded, and streams its answer.

    request ─ Router ─▶ route ─▶ cache ─▶ its entry ─ ModelPool: lease ─▶ loaded model ─▶ back end ─▶ events

Not here: how a model is loaded (`loading.py`), which conversation a request belongs to (`conversations.py`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, NoReturn

from shepherd.app.loading import LoadedModel
from shepherd.app.model_pool import ModelPool, ModelState
from shepherd.app.model_registry import ModelEntry, ModelRegistry
from shepherd.backends.local.completion import pieces
from shepherd.backends.local.prompt import Encoder
from shepherd.backends.router import Route, Router
from shepherd.config import CacheConfig, Config
from shepherd.core import ConfigError, EngineError, Event, InvalidRequest, Request, ShepherdError, UnknownModel
from shepherd.core.status import Embeddings, ModelCard
from shepherd.wire.names import model_names

if TYPE_CHECKING:
    from shepherd.agent.with_memory import MemoryBackend
    from shepherd.backends.local.backend import LocalBackend

logger = logging.getLogger(__name__)


class Dispatcher:
    """All models of a configuration, found by name or by route. One event loop; what is not awaited, any thread."""

    def __init__(self, config: Config, registry: ModelRegistry, pool: ModelPool[LoadedModel], router: Router) -> None:
        """The caller closes the pool."""
        self.registry = registry
        self.pool = pool
        self.router = router
        self._models = {cache.name: cache.model for cache in config.caches}

    # requests

    async def stream(self, request: Request, *, endpoint: str | None) -> AsyncGenerator[Event, None]:
        """The events of one answer; see `Backend.stream`. The model stays loaded until the iterator is closed.

        The routes choose the cache; with `endpoint` None it is one of the model that has exactly this name.
        """
        route = self._route_by_name(request.model) if endpoint is None else self.router.choose(request.model, endpoint)
        async with (
            self.lease(self._behind(route), _keep_alive(request)) as model,
            aclosing(self._backend(model, route).stream(route.fill(request))) as events,
        ):
            async for event in events:
                yield event

    async def count(self, request: Request, *, endpoint: str) -> int:
        """How many tokens the prompt of `request` has."""
        route = self.router.choose(request.model, endpoint)
        async with self.lease(self._behind(route), _keep_alive(request)) as model:
            return await self._backend(model, route).count(route.fill(request))

    async def render(self, request: Request, *, endpoint: str) -> str:
        """The prompt of `request` as text."""
        route = self.router.choose(request.model, endpoint)
        async with self.lease(self._behind(route), _keep_alive(request)) as model:
            return await self._backend(model, route).render(route.fill(request))

    async def tokenize(self, model: str, text: str, *, special: bool, bos: bool, endpoint: str) -> list[int]:
        """The tokens of plain text. `special`: control tokens are recognised in it; `bos`: with the first token that
        every prompt has."""
        async with self.lease(self._entry_for(model, endpoint)) as opened:
            encoder = next((each.encoder for each in opened.backends.values()), None) or Encoder(opened.weights, "")
            return await asyncio.to_thread(encoder.tokenize, text, special=special, bos=bos)

    async def detokenize(self, model: str, tokens: Sequence[int], *, endpoint: str) -> list[bytes]:
        """The bytes of each token. Raises: `InvalidRequest` for what is no token of the model."""
        async with self.lease(self._entry_for(model, endpoint)) as opened:
            return await asyncio.to_thread(pieces, tokens, opened.weights)

    async def embed(
        self, model: str, inputs: Sequence[str | Sequence[int]], *, dimensions: int | None, truncate: bool
    ) -> Embeddings:
        """A vector for each input, of the model of this name, or else of the first that is made for it."""
        entry = self._embedder_for(model)
        async with self.lease(entry) as opened:
            assert opened.embedder is not None
            encode = opened.embedder.encode
            made = await asyncio.to_thread(lambda: encode(list(inputs), truncate=truncate, dimensions=dimensions))
        return Embeddings(entry.card.id, made.vectors.tolist(), made.n_tokens)

    async def load(self, model: str, keep_alive_s: float | None, *, endpoint: str) -> None:
        """Load the model that the routes choose; it stays for `keep_alive_s` from now on. With 0 it is unloaded."""
        entry = self._entry_for(model, endpoint)
        if keep_alive_s == 0:
            await self.unload(entry.name)
        else:
            async with self.lease(entry, _positive(keep_alive_s)):
                pass

    async def unload(self, model: str) -> bool:
        """Free the model of this name as soon as nothing uses it; False when it was not loaded."""
        entry = self._named(model)
        entries = [entry, *filter(None, [self.registry.embedders.get(entry.name)])]
        return any([await self.pool.unload(each.key) for each in entries])

    # state

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all models that a request can name."""
        return tuple(self.registry.entries)

    def models(self) -> tuple[ModelCard, ...]:
        """One card for each model that a request can name, loaded or not, in the order of the configuration; then one
        for each other name that a route has for one of them."""
        states, now_s = self.pool.states(), time.time()
        own = {name: _current(entry.card, states[entry.key], now_s) for name, entry in self.registry.entries.items()}
        taken = {name.casefold() for name in (*own, *self._models)}
        others = ((name, self._models[cache]) for name, cache in self.router.names().items())
        aliases = (
            replace(own[model], id=name) for name, model in others if model in own and name.casefold() not in taken
        )
        return (*own.values(), *aliases)

    def n_loads(self) -> dict[str, int]:
        """By name, how often each model was loaded since the start."""
        return {str(key): n for key, n in self.pool.n_loads().items()}

    @property
    def caches(self) -> tuple[str, ...]:
        """The names of all caches, open or not."""
        return tuple(self._models)

    def add(self, spec: str, like: str) -> CacheConfig:
        """As `ModelRegistry.add`; reads files."""
        cache = self.registry.add(spec, like)
        self.pool.add(self.registry.residencies())
        self._models = {**self._models, cache.name: cache.model}
        return cache

    def remove(self, cache: CacheConfig) -> None:
        """Undo `add`."""
        self._models = {name: model for name, model in self._models.items() if name != cache.name}
        self.registry.remove(cache)

    def entry_of(self, cache: str) -> ModelEntry:
        """The model that a cache is of."""
        return self.registry.entries[self._models[cache]]

    def backends(self) -> dict[str, LocalBackend]:
        """By cache, those that are open now, in the order of the configuration."""
        found = {
            name: backend for model in self.pool.loaded().values() for name, backend in list(model.backends.items())
        }
        return {cache: found[cache] for cache in self._models if cache in found}

    # which model

    def _find(self, model: str) -> ModelEntry | None:
        by_name = {name.casefold(): entry for name, entry in self.registry.entries.items()}
        return next((by_name[name.casefold()] for name in model_names(model) if name.casefold() in by_name), None)

    def _named(self, model: str) -> ModelEntry:
        if (entry := self._find(model)) is None:
            raise UnknownModel(model, known=self.names)
        return entry

    def _embedder_for(self, model: str) -> ModelEntry:
        entries, memory = self.registry.entries, self.registry.memory
        if (named := self._find(model)) is not None:
            return self.registry.embedders.get(named.name, named)
        first = memory or next((name for name, entry in entries.items() if entry.makes_vectors), None)
        if first is not None:
            return entries[first]
        asked = f"model {model!r} does not exist, and no" if model else "no"
        raise InvalidRequest(
            f"{asked} model that makes vectors is configured; add one, such as [models.embed] with its path, or name "
            f"one of {', '.join(self.names)}",
            field="model", status=404 if model else 400,
        )  # fmt: skip

    @asynccontextmanager
    async def lease(self, entry: ModelEntry, keep_alive_s: float | None = None) -> AsyncIterator[LoadedModel]:
        """The model, loaded, for the length of the block; the only way to a model of a request."""
        if entry.header is None:
            await asyncio.to_thread(self._read_again, entry.name)
        async with AsyncExitStack() as stack:
            try:
                model = await stack.enter_async_context(self.pool.use(entry.key, keep_alive_s))
            except ShepherdError as error:
                logger.warning("model %r is not loaded: %s", str(entry.key), error)
                raise
            yield model

    def _read_again(self, name: str) -> None:
        try:
            self.registry.reread(name)
        except ConfigError as error:
            raise EngineError(f"model {name!r} cannot be loaded: {error}") from error
        self.pool.add(self.registry.residencies())

    def _route_by_name(self, model: str) -> Route:
        entry = self._named(model)
        cache = next((cache for cache, name in self._models.items() if name == entry.name), None)
        if cache is None:
            self._refuse_to_chat(entry.name)
        return Route(cache)

    def _backend(self, model: LoadedModel, route: Route) -> MemoryBackend:
        if route.target not in model.memory_backends:  # the file was missing at the start, and is not a chat model
            self._refuse_to_chat(model.name)
        return model.memory_backends[route.target]

    def _behind(self, route: Route) -> ModelEntry:
        entry = self.entry_of(route.target)
        if entry.makes_vectors:
            self._refuse_to_chat(entry.name)
        return entry

    def _refuse_to_chat(self, name: str) -> NoReturn:
        raise InvalidRequest(
            f"model {name!r} makes vectors of texts and cannot chat; ask for them at /v1/embeddings", field="model"
        )

    def _entry_for(self, model: str, endpoint: str) -> ModelEntry:
        """An embedding model by its name, any other as the routes choose. Raises: as `_behind`, `UnknownModel`."""
        entry = self._find(model)
        return entry if entry and entry.makes_vectors else self._behind(self.router.choose(model, endpoint))


def _keep_alive(request: Request) -> float | None:
    """How long its model stays after a request, in seconds; None = as before."""
    return _positive(request.extra.get("keep_alive"))


def _positive(keep_alive_s: float | None) -> float | None:
    return inf if keep_alive_s is not None and keep_alive_s < 0 else keep_alive_s


def _current(card: ModelCard, state: ModelState, now_s: float) -> ModelCard:
    left_s = state.expires_in_s
    return replace(card, loaded=state.is_loaded, expires=None if left_s is None else now_s + max(0.0, left_s))
