"""Routes a request to a model, loads the model if it is not loaded, and streams its answer.

    request ─ Router ─▶ route ─┬▶ cache ─▶ its entry ─ ModelPool: lease ─▶ loaded model ─▶ back end ─▶ events
                               └▶ provider ─ Providers: open ─▶ its back end ─▶ events

What may leave this machine is decided in one place, `_check_privacy`. Not here: how a model is loaded (`loading.py`),
how a provider is asked (`backends/cloud`), which conversation a request belongs to (`conversations.py`).
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import TYPE_CHECKING, NoReturn, TypeVar

from shepherd.agent.compaction import CompactingBackend
from shepherd.agent.digest import Digests, DigestWriter
from shepherd.app.loading import LoadedModel
from shepherd.app.media import MediaDoor, Sense, for_provider
from shepherd.app.model_pool import ModelPool, ModelState
from shepherd.app.model_registry import ModelEntry, ModelRegistry
from shepherd.app.names import short_names
from shepherd.backends.fallback import Health, first_to_answer
from shepherd.backends.local.adapters import ModelAdapters
from shepherd.backends.local.completion import pieces
from shepherd.backends.local.media import MediaLimits
from shepherd.backends.local.prompt import Encoder
from shepherd.backends.router import Route, Router, base_of
from shepherd.config import CacheConfig, Config
from shepherd.core import (
    ConfigError,
    EngineError,
    Event,
    InvalidRequest,
    NotAllowed,
    Request,
    ShepherdError,
    TextOrTokens,
    UnknownModel,
    Unsupported,
)
from shepherd.core.pairs import Pairs, Scores
from shepherd.core.status import Embeddings, ModelCard
from shepherd.models.pulled import PulledModel, pulled_models
from shepherd.models.pulled import remove as remove_pulled
from shepherd.wire.history import plain
from shepherd.wire.names import find_name

if TYPE_CHECKING:
    from shepherd.agent.compaction import EditableBackend
    from shepherd.agent.compaction_store import CompactionStore
    from shepherd.agent.with_memory import MemoryBackend
    from shepherd.app.names import Names
    from shepherd.app.providers import Providers
    from shepherd.backends.local.backend import LocalBackend

logger = logging.getLogger(__name__)

T = TypeVar("T")

MOST_NAMED = 5
"""Models that see images, in an error."""
_NO_RERANKER = "add one, such as [models.rerank] with the path of a GGUF with rank pooling"
_STAYS_HERE: ContextVar[bool] = ContextVar("stays_here", default=False)
"""Of a request on a private route: the tools that run for it may ask other models, too."""


@dataclass(frozen=True, slots=True)
class _Served:
    """A pulled model that a request can name."""

    model: PulledModel
    cache: str
    own: CacheConfig | None
    """The cache, where it was made for it."""


class Dispatcher:
    """All models of a configuration, found by name or by route. One event loop; what is not awaited, any thread."""

    def __init__(
        self,
        config: Config,
        registry: ModelRegistry,
        pool: ModelPool[LoadedModel],
        router: Router,
        providers: Providers,
        *,
        names: Names,
        compactions: CompactionStore,
    ) -> None:
        """The caller closes the pool, the providers and the compactions."""
        self.registry = registry
        self.pool = pool
        self._router = router
        self._names = names
        self.providers = providers
        self.compactions = compactions
        self.digests = Digests(compactions)
        self._digesting = {each.name for each in config.caches if each.digest}
        self._digesting |= {each.name for each in config.providers if each.digest}
        self.health = Health()
        self._models = {cache.name: cache.model for cache in config.caches}
        self._serves_pulled = bool(config.caches) and not config.has_own_routes
        """Routes of the user say all that there is."""
        self._pulled: dict[str, _Served] = {}
        """By name, the pulled models that a request can name."""
        self._unusable: dict[str, PulledModel] = {}
        self._changing = threading.Lock()
        """Of the models: threads add and remove them."""
        self._reasoning = config.reasoning
        self._media = MediaDoor(MediaLimits(config.images.limits, config.audio.limits), config.images.hosts)
        self._own_aliases = config.aliases

    # requests

    async def stream(
        self, request: Request, *, endpoint: str | None, route: Route | None = None
    ) -> AsyncGenerator[Event, None]:
        """The events of one answer; see `Backend.stream`. The model stays loaded until the iterator is closed.

        The routes choose the cache; with `endpoint` None it is one of the model that has exactly this name. `route`:
        this one, whatever the request names.
        """
        route, request = await self._routed(request, endpoint, route)
        names = self._candidates(route, request)
        if len(names) > 1:
            attempts = first_to_answer(names, lambda name: self._answer(name, route, request), self.health)
            async with aclosing(attempts) as events:
                async for event in events:
                    yield event
            return
        (name,) = names
        async with self._opened(name, route, request) as (backend, asked), aclosing(backend.stream(asked)) as events:
            async for event in events:
                yield event

    async def _answer(self, name: str, route: Route, request: Request) -> AsyncGenerator[Event, None]:
        async with self._opened(name, route, request) as (backend, asked), aclosing(backend.stream(asked)) as events:
            async for event in events:
                yield event

    async def route(self, model: str, endpoint: str) -> Route:
        """The rule for a request that names `model`. Raises: `UnknownModel`."""
        await self._look_for(model)
        return self._route(model, endpoint)

    def _route(self, model: str, endpoint: str) -> Route:
        if (pulled := self._pulled.get(self._names.meaning(model))) is None:
            try:
                return self._router.choose(model, endpoint)
            except UnknownModel as error:
                raise UnknownModel(model, known=tuple(dict.fromkeys((*error.known, *self._known())))) from None
        return replace(self._router.find(model, endpoint) or Route(""), target=pulled.cache, fallback=())

    async def _routed(
        self, request: Request, endpoint: str | None, route: Route | None = None
    ) -> tuple[Route, Request]:
        """The rule of a request, and the request as the rule and its alias, if it names one, have it."""
        await self._look_for(request.model)
        if route is None:
            chosen = self._route_by_name(request.model) if endpoint is None else self._route(request.model, endpoint)
        else:
            chosen = route
        meaning = self._names.meaning(request.model)
        request = request if meaning == request.model else replace(request, model=meaning)
        return chosen, chosen.fill(request)

    def keep_here(self, route: Route) -> None:
        """From now on, in this task and those that it starts, prompts stay on this machine if the route is private."""
        _STAYS_HERE.set(route.is_private)

    def _candidates(self, route: Route, request: Request) -> tuple[str, ...]:
        """The caches and providers that may answer, in order."""
        return tuple(
            dict.fromkeys(
                each
                for name in (route.target, *route.fallback)
                for each in (self.providers.order(name, request) if name in self.providers else (name,))
            )
        )

    @asynccontextmanager
    async def _opened(
        self, name: str, route: Route, request: Request
    ) -> AsyncIterator[tuple[CompactingBackend, Request]]:
        """The back end of a cache or provider, ready, and the request as it reads it.

        Raises: `NotAllowed` for a provider elsewhere where the route keeps prompts on this machine.
        """
        if name in self.providers:
            self._check_privacy(name, route)
            opened = self.providers.open(name)
            _check_demand(request, opened.cloud.provider.protocol)
            bare, level = request.model.removeprefix(f"{name}/"), request.reasoning or self._reasoning
            if (bare, level) != (request.model, request.reasoning):
                request = replace(request, model=bare, reasoning=level)
            request = replace(request, messages=for_provider(request.messages))
            protocol = opened.cloud.provider.protocol
            ask = partial(self._answer, name, route)
            writer = DigestWriter(ask, _about, is_always=True, most_new=None) if name in self._digesting else None
            yield self._compacting(opened.backend, name, writer, protocol), request
            return
        _check_demand(request, "")
        request = replace(request, messages=plain(request.messages))
        request = await self._media.admit(request, partial(self._lacking, name))
        async with self.lease(self._behind(name), _keep_alive(request)) as model:
            count = model.backends[name].count_tokens if name in model.backends else _about
            writer = DigestWriter(partial(self._write, name, route), count, is_always=name in self._digesting)
            yield self._compacting(self._backend(model, name), name, writer), request

    def _lacking(self, name: str, sense: Sense) -> str:
        """What to say of a cache whose model does not see, or hear; empty where it does."""
        entry = self._behind(name)
        card = entry.card
        if sense in card.capabilities:
            return ""
        verb, word = ("see", "image") if sense == "vision" else ("hear", "recording")
        able = [each.id for each in self.models() if sense in each.capabilities]
        ways = [
            f"leave the {word} out",
            *([f"name a model that {verb}s ({', '.join(able[:MOST_NAMED])})"] if able else []),
        ]
        if entry.backend == "llamacpp":
            ways.append(f"set mmproj = PATH in [models.{card.id}] to the projector that belongs to this model")
        reads = f"cannot {verb}" if {"vision", "audio"} & {*card.capabilities} else "reads only text"
        return f"model {card.id!r} {reads}; {', or '.join(ways)}"

    def _compacting(
        self, backend: EditableBackend, name: str, writer: DigestWriter | None, protocol: str = ""
    ) -> CompactingBackend:
        return CompactingBackend(
            backend, self.compactions, name=name, protocol=protocol, digests=self.digests, writer=writer
        )

    async def _write(self, name: str, route: Route, request: Request) -> AsyncGenerator[Event, None]:
        """A digest of what a cache holds. Raises: `EngineError` where its model is not loaded any more."""
        if self.entry_of(name).key not in self.pool.loaded():
            raise EngineError(f"the model of cache {name!r} is not loaded any more")
        async with aclosing(self._answer(name, route, request)) as events:
            async for event in events:
                yield event

    def _check_privacy(self, name: str, route: Route) -> None:
        if (route.is_private or _STAYS_HERE.get()) and not self.providers.is_local(name):
            raise NotAllowed(f"this route keeps prompts on this machine, and {name!r} is not on it", status=403)

    async def count(self, request: Request, *, endpoint: str) -> int:
        """How many tokens the prompt of `request` has."""
        route, request = await self._routed(request, endpoint)
        async with self._opened(self._candidates(route, request)[0], route, request) as (backend, asked):
            return await backend.count(asked)

    async def render(self, request: Request, *, endpoint: str) -> str:
        """The prompt of `request` as text."""
        route, request = await self._routed(request, endpoint)
        async with self._opened(self._candidates(route, request)[0], route, request) as (backend, asked):
            return await backend.render(asked)

    async def search_left(self, request: Request, query: str, *, endpoint: str) -> str:
        """As `SearchableBackend`, in the cache that the request goes to."""
        route, request = await self._routed(request, endpoint)
        async with self._opened(self._candidates(route, request)[0], route, request) as (backend, asked):
            return await backend.search_left(asked, query)

    async def tokenize(self, model: str, text: str, *, special: bool, bos: bool, endpoint: str) -> list[int]:
        """The tokens of plain text. `special`: control tokens are recognised in it; `bos`: with the first token that
        every prompt has."""
        async with self.lease(await self._entry_for(model, endpoint)) as opened:
            encoder = next((each.encoder for each in opened.backends.values()), None) or Encoder(opened.vocabulary, "")
            return await asyncio.to_thread(encoder.tokenize, text, special=special, bos=bos)

    async def detokenize(self, model: str, tokens: Sequence[int], *, endpoint: str) -> list[bytes]:
        """The bytes of each token. Raises: `InvalidRequest` for what is no token of the model."""
        async with self.lease(await self._entry_for(model, endpoint)) as opened:
            return await asyncio.to_thread(pieces, tokens, opened.vocabulary)

    async def embed(
        self,
        model: str,
        inputs: Sequence[TextOrTokens],
        *,
        dimensions: int | None,
        truncate: bool,
        endpoint: str = "",
    ) -> Embeddings:
        """A vector for each input, of the model of this name, or else of the first that is made for it.

        A provider makes them where the name begins with its own: `openai/text-embedding-3-small`.
        """
        await self._look_for(model)
        name, _, bare = self._names.meaning(model).partition("/")
        if name in self.providers and (bare or self.providers.model(name)):
            texts = [each for each in inputs if isinstance(each, str)]
            if len(texts) < len(inputs):
                raise InvalidRequest("a provider makes vectors of texts; send texts, not tokens", field="input")
            self._check_privacy(name, self._router.find(model, endpoint) or Route(name))
            first = self.providers.order(name, Request(bare, session=""))[0]  # of a group
            return await self.providers.open(first).cloud.embed(bare, texts, dimensions, truncate=truncate)
        entry = self._embedder_for(model)
        async with self.lease(entry) as opened:
            assert opened.embedder is not None
            encode = partial(opened.embedder.encode, list(inputs), truncate=truncate, dimensions=dimensions)
            made = await _while_wanted(lambda is_wanted: encode(is_wanted=is_wanted))
            pooled = opened.embedder.pooling != "none"
        return Embeddings(entry.card.id, made.vectors.tolist(), made.n_tokens, pooled)

    async def rerank(self, model: str, pairs: Pairs) -> Scores:
        """The score of each pair, by the reranker of this name, or else by the first one."""
        named = self._find(model)
        if named is not None and named.header is None:
            await asyncio.to_thread(self._read_again, named.name)
        entry = self._reranker_for(model)
        async with self.lease(entry) as opened:
            assert opened.reranker is not None
            made = await _while_wanted(partial(opened.reranker.score, pairs))
        return replace(made, model=entry.card.id)

    async def load(self, model: str, keep_alive_s: float | None, *, endpoint: str) -> None:
        """Load the model that the routes choose; it stays for `keep_alive_s` from now on. With 0 it is unloaded."""
        await self._look_for(model)
        route, entry = self._router.find(model, endpoint), self._find(model)
        if route is not None and route.target in self.providers and not (entry and not entry.chats):
            return  # it is somewhere else; clients that load a model before they chat must not fail
        entry = await self._entry_for(model, endpoint)
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

    def meaning(self, name: str) -> str:
        """As `Names.meaning`."""
        return self._names.meaning(name)

    @property
    def aliases(self) -> Mapping[str, str]:
        """As `Names.all`."""
        return self._names.all()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all models that a request can name."""
        return tuple(self.registry.entries)

    def _known(self) -> tuple[str, ...]:
        """The same, with adapters and other names, for an error."""
        others = (self._names.all(), self.registry.adapter_names(), self._pulled)
        return (*self.names, *(name for names in others for name in names))

    def models(self) -> tuple[ModelCard, ...]:
        """One card for each model that a request can name, loaded or not, in the order of the configuration; then one
        for each other name that a route has for one of them."""
        states, now_s = self.pool.states(), time.time()
        behind: dict[str, list[str]] = {}
        for alias, cache in self._router.globless().items():
            behind.setdefault(self._models.get(cache, ""), []).append(alias)
        meanings = self._names.all()
        for name, served in self._pulled.items():
            behind.setdefault(self._models[served.cache], []).extend((name, *short_names(served.model)))
        adapted = self.registry.adapter_names()
        for alias, meaning in meanings.items():
            if (entry := self._find(alias)) is not None and base_of(meaning, adapted) is None:
                behind.setdefault(entry.name, []).append(alias)
        own = {
            name: replace(
                _current(entry.card, states[entry.key], now_s),
                aliases=tuple(dict.fromkeys((name, *behind.get(name, ())))),
            )
            for name, entry in self.registry.entries.items()
        }
        own |= {name: replace(own[model], id=name, aliases=(name,), parent=model) for name, model in adapted.items()}
        taken = {name.casefold() for name in (*own, *self._models)}
        targets = self._router.names().items()
        others = ((name, self._models[cache]) for name, cache in targets if cache in self._models)
        aliases = (
            replace(own[model], id=name)
            for name, model in others
            if model in own and name.casefold() not in taken and find_name(name, meanings) is None
        )
        named = (
            replace(card, id=alias, stands_for=meaning)
            for alias, meaning in meanings.items()
            if (card := self._card_of(alias, own)) is not None
        )
        return (*own.values(), *aliases, *named, *self.providers.cards())

    def _card_of(self, alias: str, own: Mapping[str, ModelCard]) -> ModelCard | None:
        """The card of what an alias stands for; None where it is not here any more."""
        meaning = self._names.meaning(alias)
        if (name := base_of(meaning, {each: each for each, card in own.items() if card.parent})) is not None:
            return own[name]
        if (entry := self._find(alias)) is not None:
            return own.get(entry.name)
        provider, _, model = meaning.partition("/")
        return self.providers.card(provider, model) if provider in self.providers else None

    def adapters(self, model: str) -> ModelAdapters:
        """Those of the model of this name, or of the first one where it is empty. Raises: `UnknownModel`."""
        entry = self._named(model) if model else next(iter(self.registry.entries.values()), None)
        if entry is None:
            raise UnknownModel(model, known=self._known())
        return entry.adapters or ModelAdapters(entry.name, ())

    def resting(self) -> dict[str, float]:
        """Seconds that each provider still rests after a failure; 0 = it does not."""
        down = self.health.down()
        return {name: max(0.0, down.get(name, 0.0)) for name in self.providers.in_use}

    def n_loads(self) -> dict[str, int]:
        """By name, how often each model was loaded since the start."""
        return {str(key): n for key, n in self.pool.n_loads().items()}

    @property
    def caches(self) -> tuple[str, ...]:
        """The names of all caches, open or not."""
        return tuple(self._models)

    def add(self, spec: str, like: str) -> CacheConfig:
        """As `ModelRegistry.add`; reads files."""
        with self._changing:
            return self._add(spec, like)

    def _add(self, spec: str, like: str, name: str = "") -> CacheConfig:
        cache = self.registry.add(spec, like, beside=name)
        self.pool.add(self.registry.residencies())
        self._models = {**self._models, cache.name: cache.model}
        self._digesting |= {cache.name} if cache.digest else set()
        return cache

    def remove(self, cache: CacheConfig) -> None:
        """Undo `add`."""
        with self._changing:
            self._remove(cache)

    def _remove(self, cache: CacheConfig) -> None:
        self._models = {name: model for name, model in self._models.items() if name != cache.name}
        self.registry.remove(cache)

    # pulled models

    async def _look_for(self, model: str) -> None:
        """Look again for pulled models, if this may be one that is not known yet, or is not there any more."""
        meaning = self._names.meaning(model)
        if (pulled := self._pulled.get(meaning)) is not None:
            is_known = pulled.model.path.exists()
        else:
            known = (*self.registry.entries, *self._models)
            words = (meaning, meaning.partition(":")[0])  # with an adapter
            is_known = any(find_name(word, known) is not None for word in words)
            is_known = is_known or meaning.partition("/")[0] in self.providers
        if not is_known:
            await self.look_again()

    async def look_again(self) -> None:
        """See which pulled models have come or gone; reads the headers of new ones."""
        if self._serves_pulled and (self._pulled or self._names.folder.exists()):
            await asyncio.to_thread(self._look)

    def _look(self) -> None:
        with self._changing:
            found, loaded = {each.name: each for each in pulled_models(self._names.folder)}, self.pool.loaded()
            kept = {
                name: each
                for name, each in self._pulled.items()
                # One that is in memory answers until it is unloaded.
                if found.get(name) == each.model or (each.own and self.entry_of(each.cache).key in loaded)
            }
            gone = [each.own for name, each in self._pulled.items() if name not in kept]
            self._pulled = dict(kept)  # the event loop reads it, and must not find the cache of one that has left
            for own in filter(None, gone):
                self._remove(own)
            like = next(iter(self._models))
            for name, model in found.items():
                if name not in kept and self._unusable.get(name) != model:
                    try:
                        before, cache = self._models, self._add(str(model.path), like, name)
                    except ShepherdError as error:
                        self._unusable[name] = model
                        logger.warning("the pulled model %r cannot be used: %s", name, error)
                    else:
                        kept[name] = _Served(model, cache.name, None if cache.name in before else cache)
            self._names.see_pulled({name: each.model for name, each in kept.items()})
            self._pulled = kept

    def entry_of(self, cache: str) -> ModelEntry:
        """The model that a cache is of."""
        return self.registry.entries[self._models[cache]]

    def backends(self) -> dict[str, LocalBackend]:
        """By cache, those that are open now, in the order of the configuration."""
        found = {
            name: backend for model in self.pool.loaded().values() for name, backend in list(model.backends.items())
        }
        return {cache: found[cache] for cache in self._models if cache in found}

    # names and files, as clients change them

    async def copy(self, source: str, name: str) -> None:
        """Give a model another name, also after a restart. Raises: `UnknownModel`; as `Names.copy`."""
        await self.look_again()
        if not self._exists(source):
            raise UnknownModel(source, known=self._known())
        await asyncio.to_thread(self._names.copy, source, name)

    async def delete(self, name: str) -> None:
        """Take away a name that a client has given; or unload a pulled model as soon as nothing uses it, and remove its
        files. Raises: `UnknownModel`; `InvalidRequest` for what the configuration names."""
        await self.look_again()
        if await asyncio.to_thread(self._names.forget, name):
            return
        served = self._pulled.get(self._names.meaning(name))
        if served is None and not self._exists(name):
            raise UnknownModel(name, known=self._known())
        if served is None or served.own is None or find_name(name, self._own_aliases) is not None:
            raise InvalidRequest(
                f"{name!r} stands in the configuration; only the operator removes it: this server deletes models that "
                "were pulled and that nothing else names",
                field="model",
            )
        if copies := self._names.copies_of(served.model.name):
            raise InvalidRequest(
                f"{', '.join(map(repr, copies))} would lose its model; delete that name first", field="model"
            )
        await self.unload(self.entry_of(served.cache).name)
        try:
            await asyncio.to_thread(remove_pulled, self._names.folder, served.model.folder)
        except OSError as error:
            raise EngineError(f"the files of {name!r} cannot be removed: {error.strerror or error}") from error
        await self.look_again()

    def _exists(self, name: str) -> bool:
        meaning = self._names.meaning(name)
        known = (*self._models, *self.providers.names)
        return (
            self._find(name) is not None
            or find_name(meaning, known) is not None
            or ("/" in meaning and meaning.partition("/")[0] in self.providers)
        )

    # which model

    def _find(self, model: str) -> ModelEntry | None:
        meaning = self._names.meaning(model)
        if meaning in self._pulled:
            return self.entry_of(self._pulled[meaning].cache)
        if meaning != model and meaning in self._models:  # of a cache
            meaning = self._models[meaning]
        name = find_name(base_of(meaning, self.registry.adapter_names()) or meaning, self.registry.entries)
        return None if name is None else self.registry.entries[name]

    def _named(self, model: str) -> ModelEntry:
        if (entry := self._find(model)) is None:
            raise UnknownModel(model, known=self._known())
        return entry

    def _embedder_for(self, model: str) -> ModelEntry:
        entries, memory = self.registry.entries, self.registry.memory
        if base := base_of(self._names.meaning(model), self.registry.adapter_names()):
            raise InvalidRequest(
                f"{model!r} is a model with an adapter, and vectors are computed without adapters; name {base!r}",
                field="model",
            )
        if (named := self._find(model)) is not None:
            if named.backend == "tensorrt":
                raise InvalidRequest(
                    f"model {named.name!r} runs with TensorRT-LLM, which makes no vectors; name a model of a GGUF file",
                    field="model",
                )
            if named.card.kind == "reranker":
                raise InvalidRequest(
                    f"model {named.name!r} scores pairs of texts and makes no vectors; ask for scores at /v1/rerank",
                    field="model",
                )
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

    def _reranker_for(self, model: str) -> ModelEntry:
        entries, named = self.registry.entries, self._find(model)
        rerankers = [name for name, entry in entries.items() if entry.card.kind == "reranker"]
        if named is not None and named.name in rerankers:
            return named
        if named is None and rerankers:
            return entries[self.registry.memory_reranker or rerankers[0]]
        can = f"name one that can: {', '.join(rerankers)}" if rerankers else _NO_RERANKER
        if named is None:
            asked = f"model {model!r} does not exist, and no" if model else "no"
            message = f"{asked} reranker is configured; {can}"
        else:
            message = f"model {named.name!r} cannot rerank: it scores no pairs of texts; {can}"
        raise InvalidRequest(message, field="model", status=404 if model and named is None else 400)

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
        provider, _, bare = self._names.meaning(model).partition("/")
        if provider in self.providers and (bare or self.providers.model(provider)):
            return Route(provider)
        entry = self._named(model)
        cache = next((cache for cache, name in self._models.items() if name == entry.name), None)
        if cache is None:
            self._refuse_to_chat(entry.name)
        return Route(cache)

    def _backend(self, model: LoadedModel, cache: str) -> MemoryBackend:
        if cache not in model.memory_backends:  # the file was missing at the start, and is not a chat model
            self._refuse_to_chat(model.name)
        return model.memory_backends[cache]

    def _behind(self, cache: str) -> ModelEntry:
        """The chat model that a cache is of. Raises: `InvalidRequest`."""
        if cache in self.providers:
            raise InvalidRequest(
                f"{cache!r} is a provider; name a model of this machine: {', '.join(self.names) or 'there is none'}",
                field="model",
            )
        entry = self.entry_of(cache)
        if not entry.chats:
            self._refuse_to_chat(entry.name)
        return entry

    def _refuse_to_chat(self, name: str) -> NoReturn:
        if self.registry.entries[name].card.kind == "reranker":
            message = f"model {name!r} scores pairs of texts and cannot chat; ask for scores at /v1/rerank"
        else:
            message = f"model {name!r} makes vectors of texts and cannot chat; ask for them at /v1/embeddings"
        raise InvalidRequest(message, field="model")

    async def _entry_for(self, model: str, endpoint: str) -> ModelEntry:
        """One that cannot chat by its name, any other as the routes choose. Raises: as `_behind`, `UnknownModel`."""
        await self._look_for(model)
        entry = self._find(model)
        return entry if entry and not entry.chats else self._behind(self._route(model, endpoint).target)


async def _while_wanted(work: Callable[[Callable[[], bool]], T]) -> T:
    """The result of `work`, in a thread. `work` gets a function that says whether it is still wanted; when it is not,
    the thread is waited for, since it uses a leased model."""
    left = threading.Event()
    working = asyncio.ensure_future(asyncio.to_thread(work, lambda: not left.is_set()))
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        left.set()
        await asyncio.wait({working})
        if not working.cancelled():
            working.exception()  # so that it is not reported
        raise


def _about(text: str) -> int:
    """Tokens of a text, as far as that is known of a model elsewhere."""
    return len(text) // 4


def _check_demand(request: Request, protocol: str) -> None:
    """Raises: `Unsupported` where the request demands what only a provider of another protocol does."""
    native = request.native
    if native is not None and native.demand is not None and native.protocol != protocol:
        raise Unsupported(native.demand.message, field=native.demand.field)


def _keep_alive(request: Request) -> float | None:
    """How long its model stays after a request, in seconds; None = as before."""
    return _positive(request.extra.get("keep_alive"))


def _positive(keep_alive_s: float | None) -> float | None:
    return inf if keep_alive_s is not None and keep_alive_s < 0 else keep_alive_s


def _current(card: ModelCard, state: ModelState, now_s: float) -> ModelCard:
    left_s = state.expires_in_s
    return replace(card, loaded=state.is_loaded, expires=None if left_s is None else now_s + max(0.0, left_s))
