"""Every model that a request can name: which one answers it, what there is, and what comes and goes.

configuration ─┐               ┌ a request ─▶ its rule, and the caches and providers that may answer, in order
pulled models ─┼─▶ Catalogue ─┤
copies, added ─┘               └ a name ─▶ its entry, its card; or an error that says what there is
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from shepherd.app.directory import here
from shepherd.app.directory.entries import ModelEntry, ModelRegistry, capacity_of
from shepherd.app.directory.names import Names, short_names
from shepherd.app.directory.rules import route_of
from shepherd.app.media import Sense
from shepherd.app.model_pool import ModelPool, ModelState
from shepherd.backends.cloud.provider import find_model
from shepherd.backends.local.adapters import ModelAdapters
from shepherd.backends.router import Route, Router, base_of
from shepherd.config import CacheConfig, Config, KeyStore, ProviderConfig
from shepherd.core import (
    ConfigError,
    EngineError,
    InvalidRequest,
    NotAllowed,
    Request,
    ShepherdError,
    Unavailable,
    UnknownModel,
)
from shepherd.core.dataclasses import dataclass, replace
from shepherd.core.status import ModelCard
from shepherd.models.pulled import PulledModel, pulled_models
from shepherd.models.pulled import remove as remove_pulled
from shepherd.wire.names import find_name

if TYPE_CHECKING:
    from shepherd.app.providers import Providers
    from shepherd.models.pull.pull import Event as PullEvent

logger = logging.getLogger(__name__)

MOST_NAMED = 5
"""Models that see, or hear, in an error."""
MOST_HERE = 1000
"""Models of this machine in one list."""
_NO_RERANKER = "add one, such as [models.rerank] with the path of a GGUF with rank pooling"


class ProviderModel(NamedTuple):
    provider: str
    model: str
    """As the provider calls it; empty = the one that the provider's row names."""
    route: Route


@dataclass(frozen=True, slots=True)
class _Served:
    """A pulled model that a request can name."""

    model: PulledModel
    cache: str
    own: CacheConfig | None
    """The cache, where it was made for it."""


class Catalogue:
    """The models, caches and providers of a configuration by their names. What is not awaited: any thread."""

    def __init__(
        self,
        config: Config,
        registry: ModelRegistry,
        pool: ModelPool[Any],
        providers: Providers,
        *,
        env: Mapping[str, str],
        keys: KeyStore,
    ) -> None:
        """The caller closes the pool, of which only the states are read, and the providers. `env`: names the folder of
        pulled models; `keys`: for `pull`."""
        self.registry = registry
        self.providers = providers
        self.names = Names(config, env)
        self._config = config
        self._env, self._keys = env, keys
        self._pool = pool
        self._router = Router(
            [route_of(rule, config.memory) for rule in config.routes],
            [*registry.entries, *providers.names],
            self.names.meaning,
            adapters=registry.adapter_names,
        )
        self._models = {cache.name: cache.model for cache in config.caches}
        self._digesting = {each.name for each in config.caches if each.digest}
        self._digesting |= {each.name for each in config.providers if each.digest}
        self._repeatable = {each.name for each in config.caches if each.repeatable}
        self._serves_pulled = bool(config.caches) and not config.has_own_routes
        """Routes of the user say all that there is."""
        self._pulled: dict[str, _Served] = {}
        """By name, the pulled models that a request can name."""
        self._unusable: dict[str, PulledModel] = {}
        self._facts = here.KnownFacts()
        self._looking = asyncio.Lock()
        """At the whole machine: one at a time."""
        self._changing = threading.RLock()
        """Of the models: threads add and remove them."""

    # which model answers a request; it may be a pulled one that has come a moment ago

    async def choose(self, request: Request, endpoint: str | None, route: Route | None = None) -> tuple[Route, Request]:
        """The rule of a request, and the request as the rule and its alias, if it names one, have it. `endpoint` None:
        to the model of exactly this name, and no rule; `route`: this rule, and no other.

        Raises: `UnknownModel`; `InvalidRequest` with `endpoint` None for a model that cannot chat, and where the answer
        must be repeatable, and the model has no cache for that.
        """
        model = request.model
        await self._look_for(model)
        if route is None:
            route = self._route_by_name(model) if endpoint is None else self._route(model, endpoint)
        if request.repeatable:
            route = self._repeatable_route(route)
        meaning = self.names.meaning(model)
        return route, route.fill(request if meaning == model else replace(request, model=meaning))

    def candidates(self, route: Route, request: Request) -> tuple[str, ...]:
        """The caches and providers that may answer, in order; at least one. Raises: `Unavailable`."""
        found = tuple(
            dict.fromkeys(
                each
                for name in (route.target, *route.fallback)
                for each in (self.providers.order(name, request) if name in self.providers else (name,))
            )
        )
        if not found:
            raise Unavailable(
                f"every replica of {route.target!r} is taken out; 'shepherd provider resume' puts one back",
                backend=route.target,
            )
        return found

    async def route(self, model: str, endpoint: str) -> Route:
        """The rule for a request that names `model`. Raises: `UnknownModel`."""
        await self._look_for(model)
        return self._route(model, endpoint)

    async def entry_for(self, model: str, endpoint: str) -> ModelEntry:
        """A model of this machine: one that cannot chat by its name, any other as the routes choose.

        Raises: `UnknownModel`; `InvalidRequest` where a provider answers.
        """
        await self._look_for(model)
        if (entry := self.find(model)) is not None and not entry.chats:
            return entry
        return self.chat_model(self._route(model, endpoint).target)

    async def is_elsewhere(self, model: str, endpoint: str) -> bool:
        await self._look_for(model)
        route, entry = self._router.find(model, endpoint), self.find(model)
        return route is not None and route.target in self.providers and (entry is None or entry.chats)

    async def embedder(self, model: str, endpoint: str) -> ModelEntry | ProviderModel:
        """What makes vectors for this name: a provider where the name begins with its own
        (`openai/text-embedding-3-small`), the model itself, or the first made for it where there is none of the name.

        Raises: `InvalidRequest`.
        """
        await self._look_for(model)
        provider, _, bare = self.names.meaning(model).partition("/")
        if provider in self.providers and (bare or self.providers.model(provider)):
            return ProviderModel(provider, bare, self._router.find(model, endpoint) or Route(provider))
        return self._own_embedder(model)

    async def reranker(self, model: str) -> ModelEntry:
        """The reranker of this name, or the first where no model has the name. Raises: `InvalidRequest`."""
        if (named := self.find(model)) is not None and named.header is None:
            await asyncio.to_thread(self.reread, named.name)
        return self._reranker(model)

    # which model a name means

    def find(self, model: str) -> ModelEntry | None:
        """The model of this name, of a name that stands for it, or of one of its adapters or caches."""
        meaning = self.names.meaning(model)
        if meaning in self._pulled:
            return self.entry_of(self._pulled[meaning].cache)
        if meaning != model and meaning in self._models:  # of a cache
            meaning = self._models[meaning]
        name = find_name(base_of(meaning, self.registry.adapter_names()) or meaning, self.registry.entries)
        return None if name is None else self.registry.entries[name]

    def find_adapted(self, meaning: str) -> str:
        """The name of a model with one of its adapters as the configuration writes it; empty for other names."""
        return find_name(meaning, self.registry.adapter_names()) or ""

    def named(self, model: str) -> ModelEntry:
        """As `find`. Raises: `UnknownModel`."""
        if (entry := self.find(model)) is None:
            raise UnknownModel(model, known=self.known())
        return entry

    def entry_of(self, cache: str) -> ModelEntry:
        return self.registry.entries[self._models[cache]]

    def chat_model(self, cache: str) -> ModelEntry:
        """The chat model that a cache is of. Raises: `InvalidRequest`."""
        if cache in self.providers:
            models = ", ".join(self.registry.entries) or "there is none"
            raise InvalidRequest(f"{cache!r} is a provider; name a model of this machine: {models}", field="model")
        entry = self.entry_of(cache)
        if not entry.chats:
            self.refuse_to_chat(entry.name)
        return entry

    def _own_embedder(self, model: str) -> ModelEntry:
        entries, memory = self.registry.entries, self.registry.memory
        if base := base_of(self.names.meaning(model), self.registry.adapter_names()):
            raise InvalidRequest(
                f"{model!r} is a model with an adapter, and vectors are computed without adapters; name {base!r}",
                field="model",
            )
        if (named := self.find(model)) is not None:
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
            f"one of {', '.join(entries)}",
            field="model", status=404 if model else 400,
        )  # fmt: skip

    def _reranker(self, model: str) -> ModelEntry:
        entries, named = self.registry.entries, self.find(model)
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

    def adapters(self, model: str) -> ModelAdapters:
        """Those of the model of this name, or of the first one where it is empty. Raises: `UnknownModel`."""
        entry = self.named(model) if model else next(iter(self.registry.entries.values()), None)
        if entry is None:
            raise UnknownModel(model, known=self.known())
        return entry.adapters or ModelAdapters(entry.name, ())

    def refuse_to_chat(self, name: str) -> NoReturn:
        """Raises: `InvalidRequest` for a model that makes vectors or scores only."""
        if self.registry.entries[name].card.kind == "reranker":
            message = f"model {name!r} scores pairs of texts and cannot chat; ask for scores at /v1/rerank"
        else:
            message = f"model {name!r} makes vectors of texts and cannot chat; ask for them at /v1/embeddings"
        raise InvalidRequest(message, field="model")

    def lacking(self, name: str, sense: Sense) -> str:
        """What to say of a cache whose model does not see, or hear; empty where it does."""
        entry = self.chat_model(name)
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

    # which rule

    def _route(self, model: str, endpoint: str) -> Route:
        """A pulled model has its own cache as target."""
        if (pulled := self._pulled.get(self.names.meaning(model))) is None:
            try:
                return self._router.choose(model, endpoint)
            except UnknownModel as error:
                raise UnknownModel(model, known=tuple(dict.fromkeys((*error.known, *self.known())))) from None
        return replace(self._router.find(model, endpoint) or Route(""), target=pulled.cache, fallback=())

    def _route_by_name(self, model: str) -> Route:
        """Raises: `UnknownModel`; `InvalidRequest` for a model that cannot chat."""
        provider, _, bare = self.names.meaning(model).partition("/")
        if provider in self.providers and (bare or self.providers.model(provider)):
            return Route(provider)
        entry = self.named(model)
        cache = next((cache for cache, name in self._models.items() if name == entry.name), None)
        if cache is None:
            self.refuse_to_chat(entry.name)
        return Route(cache)

    def _repeatable_route(self, route: Route) -> Route:
        """The rule, with a cache of its model whose answers are repeatable."""
        if route.target in self._repeatable:
            return replace(route, fallback=())
        if (model := self._models.get(route.target)) is None:
            raise InvalidRequest(
                f"repeatable answers come from models of this machine, and {route.target!r} is a provider; leave "
                "repeatable out, or name another model",
                field="repeatable",
            )
        cache = next((cache for cache, of in self._models.items() if of == model and cache in self._repeatable), None)
        if cache is None:
            raise InvalidRequest(
                f"no cache of the model {model!r} gives repeatable answers; leave repeatable out, or configure one: "
                "[caches.NAME] with repeatable = true",
                field="repeatable",
            )
        return replace(route, target=cache, fallback=())

    # what there is

    @property
    def caches(self) -> tuple[str, ...]:
        return tuple(self._models)

    def writes_digests(self, name: str) -> bool:
        """Whether a cache or provider has a digest written in every conversation, by the configuration."""
        return name in self._digesting

    def known(self) -> tuple[str, ...]:
        """Every name, those of adapters and of pulled models too, for an error."""
        others = (self.names.all(), self.registry.adapter_names(), self._pulled)
        return (*self.registry.entries, *(name for names in others for name in names))

    def models(self) -> tuple[ModelCard, ...]:
        """One card for each model that a request can name, loaded or not, in the order of the configuration; then one
        for each other name that a route has for one of them."""
        states, now_s = self._pool.states(), time.time()
        behind: dict[str, list[str]] = {}
        for alias, cache in self._router.globless().items():
            behind.setdefault(self._models.get(cache, ""), []).append(alias)
        meanings = self.names.all()
        for name, served in self._pulled.items():
            behind.setdefault(self._models[served.cache], []).extend((name, *short_names(served.model)))
        adapted = self.registry.adapter_names()
        for alias, meaning in meanings.items():
            if (entry := self.find(alias)) is not None and base_of(meaning, adapted) is None:
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

    async def here(self) -> dict[str, Any]:
        """What is on this machine, served or not, what fits, and what would; reads the headers of new files."""
        await self.look_again()
        async with self._looking:
            entries = [each for each in self.registry.entries.values() if each.header is not None]
            deletable = {name for name, each in self._pulled.items() if each.own is not None}
            return await asyncio.to_thread(self._here, entries, self._pool.states(), deletable)

    def _here(
        self, entries: Sequence[ModelEntry], states: Mapping[Hashable, ModelState], deletable: Collection[str]
    ) -> dict[str, Any]:
        """`entries`, `states`, `deletable`: as they were on the event loop, which may change them meanwhile."""
        capacity = capacity_of(self._config)
        by_path = {str(each.header.path.resolve()): each for each in entries if each.header is not None}
        found = here.scan_models(self._config, self._env, loaded=(), budget_bytes=capacity, facts=self._facts)
        rows = list(islice(found, MOST_HERE + 1))
        for row in rows:
            entry = by_path.get(str(Path(row["path"]).resolve())) if row["path"] else None
            if entry is not None:
                needed = entry.card.memory_bytes
                row |= {"served": entry.name, "loaded": states[entry.key].is_loaded, "fits": needed <= capacity}
                row |= {"memory_bytes": needed, "memory_context": entry.card.n_ctx}
            row |= {"deletable": row["name"] in deletable}
        return {
            "memory_bytes": capacity,
            "taken_bytes": sum(each.card.memory_bytes for each in entries if states[each.key].is_loaded),
            "unchosen": here.is_unchosen(self._config) and not deletable,
            "models": rows[:MOST_HERE],
            "more": len(rows) > MOST_HERE,
            "suggestions": here.suggested(capacity),
        }

    def _card_of(self, alias: str, own: Mapping[str, ModelCard]) -> ModelCard | None:
        """The card of what an alias stands for; None where it is not here any more."""
        meaning = self.names.meaning(alias)
        if (name := base_of(meaning, {each: each for each, card in own.items() if card.parent})) is not None:
            return own[name]
        if (entry := self.find(alias)) is not None:
            return own.get(entry.name)
        provider, _, model = meaning.partition("/")
        return self.providers.card(provider, model) if provider in self.providers else None

    # what comes and goes

    def add(self, spec: str, like: str, *, beside: str = "") -> CacheConfig:
        """As `ModelRegistry.add`; reads files."""
        with self._changing:
            cache = self.registry.add(spec, like, beside=beside)
            self._pool.add(self.registry.residencies())
            self._models = {**self._models, cache.name: cache.model}
            self._digesting |= {cache.name} if cache.digest else set()
            self._repeatable |= {cache.name} if cache.repeatable else set()
            return cache

    def add_provider(self, spec: str) -> str | None:
        """The provider that a name such as `claude-sonnet-4-5` or `openrouter/qwen/qwen3` means, with that model from
        now on; None for other names. Raises: `InvalidRequest` without its key."""
        providers = self.providers
        prefix, _, rest = spec.partition("/")
        if spec in providers and not providers.model(spec):
            raise InvalidRequest(
                f"the provider {spec!r} names no model; write {spec}/MODEL ('shepherd models list --provider {spec}' "
                "lists them)",
                field="name",
            )
        if prefix in providers and rest and not providers.row(prefix).replicas:
            providers.add(replace(providers.row(prefix), model=rest))
            return prefix
        if (found := find_model(spec)) is None or Path(spec).expanduser().exists():
            return None
        kind, model = found
        name = next((each for each in providers.names if providers.row(each).type == kind.name), kind.name)
        row = providers.row(name) if name in providers else ProviderConfig(name, kind.name)
        try:
            providers.add(replace(row, model=model))
        except ConfigError as error:
            raise InvalidRequest(error.message, field="name") from error
        return name

    def remove(self, cache: CacheConfig) -> None:
        """Undo `add`."""
        with self._changing:
            self._models = {name: model for name, model in self._models.items() if name != cache.name}
            self.registry.remove(cache)

    async def _look_for(self, model: str) -> None:
        """Look again for pulled models, if this may be one that is not known yet, or is not there any more."""
        meaning = self.names.meaning(model)
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
        if self._serves_pulled and (self._pulled or self.names.folder.exists()):
            await asyncio.to_thread(self._look)

    def _look(self) -> None:
        with self._changing:
            found, loaded = {each.name: each for each in pulled_models(self.names.folder)}, self._pool.loaded()
            kept = {
                name: each
                for name, each in self._pulled.items()
                # One that is in memory answers until it is unloaded.
                if found.get(name) == each.model or (each.own and self.entry_of(each.cache).key in loaded)
            }
            gone = [each.own for name, each in self._pulled.items() if name not in kept]
            self._pulled = dict(kept)  # the event loop reads it, and must not find the cache of one that has left
            for own in filter(None, gone):
                self.remove(own)
            like = next(iter(self._models))
            for name, model in found.items():
                if name not in kept and self._unusable.get(name) != model:
                    try:
                        before, cache = self._models, self.add(str(model.path), like, beside=name)
                    except ShepherdError as error:
                        self._unusable[name] = model
                        logger.warning("the pulled model %r cannot be used: %s", name, error)
                    else:
                        kept[name] = _Served(model, cache.name, None if cache.name in before else cache)
            self.names.see_pulled({name: each.model for name, each in kept.items()})
            self._pulled = kept

    def reread(self, name: str) -> None:
        """As `ModelRegistry.reread`, for a request. Raises: `EngineError`."""
        try:
            self.registry.reread(name)
        except ConfigError as error:
            raise EngineError(f"model {name!r} cannot be loaded: {error}") from error
        self._pool.add(self.registry.residencies())

    async def pull(self, name: str, show: Callable[[PullEvent], None]) -> None:
        """Get a model that is not on this machine, for a client; `show` gets what happens, on the event loop.

        Whether the operator allows it, the server asks. Raises: `ShepherdError`, in one sentence; `NotAllowed` for an
        address that clients may not have called.
        """
        from shepherd.app.directory.pulling import pull_model  # noqa: PLC0415 - few servers pull
        from shepherd.models.pull.source import parse_ollama  # noqa: PLC0415

        source = parse_ollama(name)
        try:
            await pull_model(self._config, source, env=self._env, keys=self._keys, show=show, is_of_client=True)
        except NotAllowed as error:  # of the source: 401 would speak of the client's key for this server
            raise NotAllowed(error.message, status=403) from error
        await self.look_again()

    async def copy(self, source: str, name: str) -> None:
        """Give a model another name, for a client, also after a restart.

        Raises: `UnknownModel`; as `Names.copy`.
        """
        await self.look_again()
        if not self._exists(source):
            raise UnknownModel(source, known=self.known())
        await asyncio.to_thread(self.names.copy, source, name)

    async def delete(self, name: str) -> None:
        """Take away a name that a client has given; or unload a pulled model as soon as nothing uses it, and remove its
        files; or those of an unfinished pull. Raises: `UnknownModel`; `InvalidRequest` for what the configuration
        names, and for a pull that runs."""
        await self.look_again()
        if await asyncio.to_thread(self.names.forget, name):
            return
        served = self._pulled.get(self.names.meaning(name))
        if served is None and not self._exists(name):
            from shepherd.models.pull.staging import discard_named  # noqa: PLC0415 - few programs pull

            if await asyncio.to_thread(discard_named, self.names.folder, name):
                return
            raise UnknownModel(name, known=self.known())
        if served is None or served.own is None or find_name(name, self._config.aliases) is not None:
            raise InvalidRequest(
                f"{name!r} stands in the configuration; only the operator removes it: this server deletes models that "
                "were pulled and that nothing else names",
                field="model",
            )
        if copies := self.names.copies_of(served.model.name):
            raise InvalidRequest(
                f"{', '.join(map(repr, copies))} would lose its model; delete that name first", field="model"
            )
        await self.unload(self.entry_of(served.cache).name)
        try:
            await asyncio.to_thread(remove_pulled, self.names.folder, served.model.folder)
        except OSError as error:
            raise EngineError(f"the files of {name!r} cannot be removed: {error.strerror or error}") from error
        await self.look_again()

    async def unload(self, model: str) -> bool:
        """Free the model of this name as soon as nothing uses it; False when it was not loaded."""
        entry = self.named(model)
        entries = [entry, *filter(None, [self.registry.embedders.get(entry.name)])]
        return any([await self._pool.unload(each.key) for each in entries])

    def _exists(self, name: str) -> bool:
        meaning = self.names.meaning(name)
        known = (*self._models, *self.providers.names)
        return (
            self.find(name) is not None
            or find_name(meaning, known) is not None
            or ("/" in meaning and meaning.partition("/")[0] in self.providers)
        )


def _current(card: ModelCard, state: ModelState, now_s: float) -> ModelCard:
    left_s = state.expires_in_s
    return replace(card, loaded=state.is_loaded, expires=None if left_s is None else now_s + max(0.0, left_s))
