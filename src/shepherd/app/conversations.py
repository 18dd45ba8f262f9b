"""Conversations: the model that answers, the tools they have, and the models that they can switch to.

our own        session(...) ─▶ Session over a cache, with a toolbox    switch(session, name): another model
HTTP clients'  stream(request) ─▶ the cache of its route; with our tools, if the operator has allowed it
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from shepherd.agent.session import Session
from shepherd.agent.with_tools import ToolBackend, takes_our_tools
from shepherd.app.directory.rules import default_rule, default_target
from shepherd.app.toolset import AGENT_CTX, CHARS_PER_TOKEN
from shepherd.backends.router import Route
from shepherd.core import (
    Audio,
    ConfigError,
    EngineDown,
    Event,
    Evicted,
    Image,
    InvalidRequest,
    MemoryFailure,
    Message,
    Request,
    ShepherdError,
    Text,
)
from shepherd.core.dataclasses import dataclass, replace
from shepherd.core.errors import names_near
from shepherd.core.status import ActiveModel, ModelChoice
from shepherd.process.pools import in_pool
from shepherd.wire.history import plain
from shepherd.wire.names import find_name

if TYPE_CHECKING:
    from datetime import datetime

    from shepherd.agent.storage import Quote
    from shepherd.agent.with_memory import CountingBackend, MemoryBackend
    from shepherd.app.directory.entries import ModelKey
    from shepherd.app.dispatch import Dispatcher
    from shepherd.app.loading import LoadProgress
    from shepherd.app.toolset import Toolset
    from shepherd.backends.base import Backend
    from shepherd.backends.local.window import Window
    from shepherd.config import CacheConfig, Config
    from shepherd.memory.store import MemoryStore
    from shepherd.memory.users import UserStores
    from shepherd.tools.base import Person
    from shepherd.tools.sandbox.journal import FileJournal
    from shepherd.tools.toolbox import ConversationToolbox

logger = logging.getLogger(__name__)
loading_log = logging.getLogger("shepherd.loading")
"""One line for each change of the model that answers our conversation; people see it at every level of the log."""


@dataclass(frozen=True, slots=True)
class Target:
    """What answers a conversation."""

    cache: str
    """A cache or a provider; empty for a model that cannot chat."""
    adapted: str = ""
    """The model with one of its adapters, such as `qwen:law`; empty without."""


class Conversations:
    """The conversations of one program, over loaded models. One event loop."""

    def __init__(self, config: Config, dispatcher: Dispatcher, toolset: Toolset, stores: UserStores) -> None:
        self._config = config
        self._dispatcher = dispatcher
        self._catalogue = dispatcher.catalogue
        self._toolset = toolset
        self._stores = stores
        self._held: WeakKeyDictionary[Session, ModelKey] = WeakKeyDictionary()
        """By conversation, the model that stays loaded for it."""
        self._journals: WeakKeyDictionary[Session, FileJournal] = WeakKeyDictionary()
        self._active = self.describe(default_target(config))
        self._adapted = ""
        """The active model with one of its adapters, such as `qwen:law`; empty without."""

    @property
    def active(self) -> ActiveModel:
        """The cache or provider that answers our own conversation now; of a provider, with the window as it is known
        now."""
        active = self._active
        if active.is_provider:
            return replace(active, n_ctx=self._dispatcher.providers.window(active.cache))
        return replace(active, model=self._adapted) if self._adapted else active

    # our own

    def session(
        self,
        *,
        system: str | None = None,
        user: str | None = None,
        recall: bool | None = None,
        tools: bool = True,
        person: Person | None = None,
        journal: FileJournal | None = None,
    ) -> Session:
        """A new conversation on the active cache; its model stays loaded from now on.

        `user`: the user of its memory; None = no memory. `recall`: whether memories are offered to the model; the
        default is the configuration's. `tools`: whether it has tools that the configuration does not name. `person`:
        gives consent to tools; None = consent is refused. `journal`: hears of each change of a file.

        Raises: `ConfigError` for a model that cannot chat; that, or `MemoryFailure`, when the configured memory cannot
        be opened. Without a configured memory that is a warning: a machine may have no folder to write to, or a full
        disk.
        """
        config, active, dispatcher = self._config, self.active, self._dispatcher
        if not active.cache:
            raise ConfigError(f"{active.path.name} makes vectors of texts and cannot chat; choose another model")
        store = None
        try:
            store = self._stores.find_store(user)
        except (ConfigError, MemoryFailure) as error:
            if config.memory.database_path is not None:
                raise
            logger.warning("this conversation goes without memory: %s", error)
            user = None
        if self._toolset.servers is not None and person is not None:
            self._toolset.servers.person = person
        wants_tools = tools or self._toolset.names_tools
        key = None if active.is_provider else self._catalogue.entry_of(active.cache).key
        if key not in dispatcher.pool.loaded() and self._route_to(active.cache).fallback:
            key = None  # it could not be loaded; each turn tries again
        if key is not None:
            dispatcher.pool.hold(key)
        backend, counting = self._behind(active)
        session = Session(
            backend,
            model=active.model,
            n_ctx=lambda: self.active.n_ctx or counting.n_ctx,
            system=config.system if system is None else system,
            toolbox=self._box(counting, user, store, person, journal) if wants_tools else None,
            user=user,
            recall=config.memory.recall is not False if recall is None else recall,
            **self._settings(user),
        )
        if key is not None:
            self._held[session] = key
        if journal is not None:
            self._journals[session] = journal
        return session

    def chat(
        self,
        target: Target,
        *,
        user: str | None,
        owner: str = "",
        person: Person | None = None,
        journal: FileJournal | None = None,
        tools: bool = True,
    ) -> Session:
        """A new conversation with a model of its own, which is loaded at its turns only. `owner`: as that of a
        request; the rest is as for `session`.

        Raises: `ConfigError` for a model that cannot chat; that, or `MemoryFailure`, when the configured memory cannot
        be opened.
        """
        backend, n_ctx, _ = self._of_chat(target)
        session = Session(
            backend,
            model=self._model_of(target),
            n_ctx=n_ctx,
            system=self._config.system,
            toolbox=self._chat_box(target, user, person, journal) if tools else None,
            user=user,
            owner=owner,
            recall=self._config.memory.recall is not False,
            **self._settings(user),
        )
        if journal is not None:
            self._journals[session] = journal
        return session

    def _settings(self, user: str | None) -> dict[str, Any]:
        """What the configuration says of every conversation, as arguments of `Session`."""
        config = self._config
        return {
            "max_tokens": config.max_tokens,
            "on_full": next((each.overflow for each in config.caches), None) or "evict",
            "archive": config.memory.enable_archival and user is not None,
            "max_rounds": config.tools.max_rounds,
            "max_repeats": config.tools.max_repeats,
        }

    def move_chat(self, session: Session, target: Target) -> None:
        """Let another model answer a conversation of `chat` from now on."""
        backend, n_ctx, _ = self._of_chat(target)
        box = session.toolbox
        if box is not None:
            person = getattr(getattr(box, "permission", None), "person", None)
            box = self._chat_box(target, session.user, person, self._journals.get(session))
        session.move(backend, model=self._model_of(target), n_ctx=n_ctx, toolbox=box)

    @asynccontextmanager
    async def kept_loaded(self, target: Target) -> AsyncIterator[object]:
        """The model of a target, loaded for the length of the block; None for a provider, and for a model that is
        not loaded although something else answers in its place."""
        if target.cache in self._dispatcher.providers:
            yield None
            return
        async with AsyncExitStack() as stack:
            try:
                leased = self._dispatcher.lease(self._catalogue.entry_of(target.cache))
                model: object = await stack.enter_async_context(leased)
            except ShepherdError:
                if not self._route_to(target.cache).fallback:
                    raise
                model = None
            yield model

    @contextmanager
    def hearing(self, target: Target, hear: Callable[[LoadProgress], None]) -> Iterator[None]:
        """Within the block `hear` gets how far the model of a target is that loads, percent by percent."""
        if target.cache in self._dispatcher.providers:
            yield
            return
        loop, last = asyncio.get_running_loop(), ("", -1)

        def take(loading: LoadProgress) -> None:
            nonlocal last
            if (now := (loading.stage, int(100 * loading.fraction))) != last:
                last = now
                loop.call_soon_threadsafe(hear, loading)

        with self._dispatcher.pool.hearing(self._catalogue.entry_of(target.cache).key, take):
            yield

    def is_loaded(self, target: Target) -> bool:
        """Whether it can answer at once; a provider always can."""
        is_provider = target.cache in self._dispatcher.providers
        return is_provider or self._catalogue.entry_of(target.cache).key in self._dispatcher.pool.loaded()

    def tokens_for(self, target: Target) -> Callable[[str], int]:
        """How a target counts the tokens of a text; an estimate where it is not loaded."""
        return self._of_chat(target)[2]

    def _of_chat(self, target: Target) -> tuple[Backend, Callable[[], int], Callable[[str], int]]:
        """The back end of a target that may be unloaded, the tokens of its context, and how it counts those of a text.

        Raises: `ConfigError`.
        """
        if not target.cache:
            raise ConfigError("the model of this server cannot chat; choose another model")
        active = self.describe(target.cache)
        if active.is_provider:
            backend, counting = self._behind(active)
            return backend, lambda: self.describe(target.cache).n_ctx or counting.n_ctx, counting.count_tokens

        def count(text: str) -> int:
            opened = self._dispatcher.backends().get(target.cache)
            return opened.count_tokens(text) if opened else len(text) // CHARS_PER_TOKEN

        backend = _OwnFirst(self._dispatcher, self._route_to(target.cache))
        return backend, lambda: self.describe(target.cache).n_ctx, count

    def _chat_box(
        self, target: Target, user: str | None, person: Person | None, journal: FileJournal | None
    ) -> ConversationToolbox | None:
        if not self._toolset.wants_tools:
            return None
        _, n_ctx, count = self._of_chat(target)
        return self._toolset.box(
            n_ctx=n_ctx() or AGENT_CTX,
            count=count,
            user=user,
            store=self._stores.find_store(user),
            person=person,
            journal=journal,
            is_tiny=self.describe(target.cache).embedded,
        )

    def _model_of(self, target: Target) -> str:
        return target.adapted or self.describe(target.cache).model

    @property
    def active_target(self) -> Target:
        return Target(self._active.cache, self._adapted)

    def _behind(self, active: ActiveModel) -> tuple[Backend, CountingBackend]:
        """The back end of a loaded cache or of a provider, with its memory and without. Of a provider with replicas,
        and of either with a fallback: all of them, in the order of the route.

        Raises: `ConfigError` for a provider without a model.
        """
        providers, route = self._dispatcher.providers, self._route_to(active.cache)
        if active.is_provider:
            if not active.model:
                raise ConfigError(
                    f"the provider {active.cache!r} names no model; give it one, or start with -m {active.cache}/MODEL"
                )
            replicas = providers.row(active.cache).replicas
            opened = providers.open(next(iter(replicas), active.cache))
            if replicas or route.fallback:
                return _Routed(self._dispatcher, "", route), opened.counting
            return opened.backend, opened.counting
        loaded = self._dispatcher.pool.loaded().get(self._catalogue.entry_of(active.cache).key)
        if not route.fallback:
            assert loaded is not None, "it is held"
            return loaded.memory_backends[active.cache], loaded.backends[active.cache]
        if loaded is not None:
            return _OwnFirst(self._dispatcher, route), loaded.backends[active.cache]
        spare = next((each for each in route.fallback if each in providers), None)
        if spare is None:
            raise EngineDown(f"model {active.model!r} is not loaded")
        counting = providers.open(providers.all_of(spare)[0]).counting
        return _OwnFirst(self._dispatcher, route), counting

    def _route_to(self, target: str) -> Route:
        """The default rule, if it names this cache or provider; otherwise one without a fallback: the user has chosen
        it."""
        rule = default_rule(self._config)
        if rule is None or target not in (rule.cache, rule.provider):
            return Route(target)
        return Route(target, fallback=rule.fallback, is_private=rule.privacy == "local")

    def choices(self) -> tuple[ModelChoice, ...]:
        pool, providers = self._dispatcher.pool, self._dispatcher.providers
        entries = {cache: self._catalogue.entry_of(cache) for cache in self._catalogue.caches}
        n_caches = Counter(entry.name for entry in entries.values())
        loaded = pool.loaded()
        return tuple(
            ModelChoice(
                entry.name if n_caches[entry.name] == 1 else cache,
                cache,
                "model" if n_caches[entry.name] == 1 else "cache",
                f"{entry.card.n_ctx} tokens{', loaded' if entry.key in loaded else ''}",
                self._is_active(cache) and not self._adapted,
            )
            for cache, entry in entries.items()
            if entry.chats
        ) + tuple(
            ModelChoice(name, name, "provider", f"{providers.title(name)}, {model}", name == self.active.cache)
            for name in providers.names
            if (model := providers.model(name)) and (providers.row(name).is_declared or name == self.active.cache)
        )

    @property
    def aliases(self) -> Mapping[str, str]:
        """What each alias stands for, of the configuration or of a client."""
        return self._catalogue.names.all()

    def find_choice(self, name: str) -> ModelChoice | None:
        """The choice of this name, or of the one that an alias stands for; of a model with an adapter, the model's."""
        choices, meaning = self.choices(), self._catalogue.names.meaning(name.strip())
        if adapted := self._catalogue.find_adapted(meaning):
            base = self._catalogue.registry.adapter_names()[adapted]
            of_it = [
                each
                for each in choices
                if each.kind != "provider" and self._catalogue.entry_of(each.cache).name == base
            ]
            found = next((each for each in of_it if self._is_active(each.cache)), next(iter(of_it), None))
            return None if found is None else replace(found, name=adapted, current=adapted == self._adapted)
        known = find_name(meaning, [word for each in choices for word in (each.name, each.cache)])
        return next((each for each in choices if known in (each.name, each.cache)), None)

    @property
    def adapted(self) -> Mapping[str, str]:
        """By the name of a model with one of its adapters, the model's."""
        return self._catalogue.registry.adapter_names()

    def other_providers(self) -> tuple[str, ...]:
        """Providers that a conversation can switch to once a model is named: `NAME/MODEL`."""
        listed, providers = {each.cache for each in self.choices()}, self._dispatcher.providers
        return tuple(name for name in providers.names if name not in listed and not providers.row(name).replicas)

    async def switch(self, session: Session, name: str) -> ActiveModel:
        """Move a conversation to another model: the old one is unloaded, then the new one is loaded (C31).

        `name`: one of `choices`, a model with an adapter (`qwen:law`), an alias of either, `next` for the one behind
        the active one, or a name that `--model` takes: a path, a model that the catalogue finds, a provider's model.
        Where loading fails, the old model is loaded again. Raises: `InvalidRequest` for an unknown model; what loading
        raises.
        """
        before = self.active_target
        known = self._catalogue.caches
        target, added = await self._resolve(name, before)
        if not self._is_active(target.cache) or target.adapted != before.adapted:
            try:
                await self._move(session, target)
            except ShepherdError:
                await self._move(session, before)
                if added is not None and added.name not in known:
                    self._catalogue.remove(added)
                raise
        return self.active

    async def target(self, name: str, beside: Target | None = None) -> Target:
        """What `switch` takes by this name; `beside`: the target that it takes the place of, by default the active
        one. Raises: `InvalidRequest` for an unknown model."""
        return (await self._resolve(name, beside or self.active_target))[0]

    def name_of(self, target: Target, model: str) -> str:
        """What `find_target` finds a target by, in a later program too. `model`: the one that it answers with."""
        if target.cache in self._dispatcher.providers:
            return f"{target.cache}/{model}"
        return target.adapted or self._name_of(target.cache)

    async def find_target(self, name: str, *, is_guest: bool = False) -> Target | None:
        """As `target`, for a name that was saved; None for what is not there any more. A provider keeps the model that
        the configuration names. `is_guest`: only what `choices` has."""
        providers, choice = self._dispatcher.providers, self.find_choice(name)
        if choice is None:  # the terminal saves the title of a model of this machine
            local = (each for each in self.choices() if each.kind != "provider")
            choice = next((each for each in local if self.describe(each.cache).model == name), None)
        if choice is not None:
            return Target(choice.cache, self._catalogue.find_adapted(self._catalogue.names.meaning(name)))
        provider, _, model = name.partition("/")
        if provider in providers and model:
            has_model = providers.model(provider) == model
            if is_guest:
                return (
                    Target(provider) if has_model and any(each.cache == provider for each in self.choices()) else None
                )
            if not has_model:
                row = providers.row(provider)
                if row.replicas or any(each.model for each in self._config.providers if each.name == provider):
                    return None
                providers.add(replace(row, model=model))
            return Target(provider)
        if is_guest:
            return None
        try:
            found = await self.target(name)
        except ShepherdError:
            return None
        return found if self.describe(found.cache).cache else None

    async def _resolve(self, name: str, before: Target) -> tuple[Target, CacheConfig | None]:
        """A target by its name, and the entry that the catalogue has now for a model that was found for it."""
        choices, name = self.choices(), name.strip()
        if name == "next" and choices:
            at = next((at for at, each in enumerate(choices) if each.cache == before.cache), -1)
            name = choices[(at + 1) % len(choices)].name
        choice, name = self.find_choice(name), self._catalogue.names.meaning(name)
        if choice is not None:
            return Target(choice.cache, self._catalogue.find_adapted(name)), None
        if (found := await asyncio.to_thread(self._catalogue.add_provider, name)) is not None:
            return Target(found), None
        try:
            added = await asyncio.to_thread(self._catalogue.add, name, before.cache)
        except ConfigError as error:
            more = (f"{each}/MODEL" for each in self.other_providers())
            known_names = (*(each.name for each in choices), *self._catalogue.names.all(), *self.adapted, *more)
            raise InvalidRequest(f"{error.message}{names_near(name, known_names)}", field="name") from error
        return Target(added.name), added

    async def _move(self, session: Session, target: Target) -> None:
        """Move our conversation to another target. The model that it leaves is unloaded first, if it is another
        one."""
        cache = target.cache
        pool, is_provider = self._dispatcher.pool, cache in self._dispatcher.providers
        key = None if is_provider else self._catalogue.entry_of(cache).key
        old = self._held.get(session)
        if old is not None and (old != key or not self._is_active(cache)):
            del self._held[session]
            pool.let_go(old)
            if not pool.states()[old].n_leases:
                await pool.unload(old)
        if not self._is_active(cache):
            loading_log.info("Loading provider: %s", self._name_of(cache))
        if key is not None:
            async with self._dispatcher.lease(self._catalogue.entry_of(cache)):
                if session not in self._held:
                    pool.hold(key)
                    self._held[session] = key
        self._active, self._adapted = self.describe(cache), target.adapted
        backend, counting = self._behind(self.active)
        store = await in_pool("memory", self._stores.find_store, session.user)
        box = session.toolbox
        person = getattr(getattr(box, "permission", None), "person", None)
        session.move(
            backend,
            model=self.active.model,
            n_ctx=lambda: self.active.n_ctx or counting.n_ctx,
            toolbox=None
            if box is None
            else self._box(counting, session.user, store, person, self._journals.get(session)),
        )

    def _is_active(self, cache: str) -> bool:
        """Whether it answers now; a provider that is to answer with another model does not."""
        active, providers = self.active, self._dispatcher.providers
        return cache == active.cache and (not active.is_provider or providers.model(cache) == active.model)

    def _name_of(self, cache: str) -> str:
        return next((each.name for each in self.choices() if each.cache == cache), cache)

    def _box(
        self,
        backend: CountingBackend,
        user: str | None,
        store: MemoryStore | None,
        person: Person | None,
        journal: FileJournal | None,
    ) -> ConversationToolbox | None:
        if not self._toolset.wants_tools:
            return None
        box = self._toolset.box(
            n_ctx=backend.n_ctx,
            count=backend.count_tokens,
            user=user,
            store=store,
            person=person,
            is_tiny=self.active.embedded,
            journal=journal,
        )
        return box if box.specs or self._toolset.servers is not None else None

    # HTTP clients'

    def stream(self, request: Request, *, endpoint: str = "") -> AsyncGenerator[Event, None]:
        """The events of one answer: with our tools, where the operator has allowed it (`server.use_tools`)."""
        request = self._without_client_tools(request)
        if self._gets_our_tools(request):
            return self._with_tools(request, endpoint)
        return self._dispatcher.stream(request, endpoint=endpoint)

    async def tokens_of(self, part: Image | Audio) -> int | None:
        """How many tokens the active model makes of an image or a recording, exactly; None for a provider's model, and
        for one that is not loaded: nothing is loaded for it."""
        active, dispatcher = self.active, self._dispatcher
        if active.cache in dispatcher.providers:
            return None
        loaded = dispatcher.pool.loaded().get(self._catalogue.entry_of(active.cache).key)
        backend = None if loaded is None else loaded.backends.get(active.cache)
        if backend is None:
            return None
        words = Text("x")
        without, whole = (Request(active.cache, (Message("user", parts),)) for parts in ((words,), (part, words)))
        return await backend.count(whole) - await backend.count(without)

    def tokens_of_text(self, text: str) -> int:
        """How many tokens the active model makes of plain text; of a provider's model, an estimate."""
        return self._behind(self.active)[1].count_tokens(text)

    async def count(self, request: Request, *, endpoint: str = "") -> int:
        """How many tokens the prompt of `request` has, with the tools that it would get."""
        return await self._dispatcher.count(await self._offered(request, endpoint), endpoint=endpoint)

    async def render(self, request: Request, *, endpoint: str = "") -> str:
        """The prompt of `request` as text, with the tools that it would get."""
        return await self._dispatcher.render(await self._offered(request, endpoint), endpoint=endpoint)

    async def _offered(self, request: Request, endpoint: str) -> Request:
        request = self._without_client_tools(request)
        if self._gets_our_tools(request):
            return replace(request, tools=tuple((await self.box_for(request, endpoint)).specs))
        return request

    def _without_client_tools(self, request: Request) -> Request:
        """The request, whose own tools the prompt leaves out where the operator wants that (`--notools`).

        Calls are parsed all the same: a client may describe its tools in its system prompt (C12). Raises:
        `InvalidRequest` when a call must come.
        """
        if self._config.server.client_tools or not request.tools:
            return request
        if request.tool_choice not in ("auto", "none"):
            raise InvalidRequest(
                'tool_choice: this server describes no tools to the model (--notools); send "auto" or "none"',
                field="tool_choice",
            )
        return replace(request, tool_choice="none", shows_tools=False)

    def _gets_our_tools(self, request: Request) -> bool:
        return self._config.server.use_tools and self._toolset.wants_tools and takes_our_tools(request)

    async def _with_tools(self, request: Request, endpoint: str) -> AsyncGenerator[Event, None]:
        self._dispatcher.keep_here(await self._catalogue.route(request.model, endpoint))
        box, tools = await self.box_for(request, endpoint), self._config.tools
        backend = ToolBackend(
            _Routed(self._dispatcher, endpoint), box, max_rounds=tools.max_rounds, max_repeats=tools.max_repeats
        )
        async with aclosing(backend.stream(request)) as events:
            async for event in events:
                yield event

    async def box_for(self, request: Request, endpoint: str) -> ConversationToolbox:
        """The tools of one request: of its user, and for the context of the cache that it will go to."""
        route = await self._catalogue.route(request.model, endpoint)
        user = route.fill(request).user
        providers, backend = self._dispatcher.providers, self._dispatcher.backends().get(route.target)
        if route.target in providers:
            n_ctx = providers.window(route.target) or AGENT_CTX
        else:
            n_ctx = self._catalogue.entry_of(route.target).card.n_cells
        has_window = any(each.name == route.target and each.window is not None for each in self._config.caches)

        async def search_left(query: str) -> str:
            asked = replace(request, tools=tuple(box.specs))
            return await self._dispatcher.search_left(asked, query, endpoint=endpoint)

        box = self._toolset.box(
            n_ctx=n_ctx,
            count=backend.count_tokens if backend else None,
            user=user,
            store=await in_pool("memory", self._stores.find_store, user),
            search_left=search_left if has_window else None,
        )
        return box

    def describe(self, cache: str) -> ActiveModel:
        """A cache and its model, loaded or not; or a provider."""
        providers = self._dispatcher.providers
        if cache in providers:
            model = providers.model(cache)
            return ActiveModel(
                backend=providers.title(cache),
                model=model,
                path=Path(model or cache),
                n_ctx=providers.window(cache),
                embedded=False,
                dialect="",
                cache=cache,
                is_provider=True,
                is_away=not providers.is_local(cache),
            )
        from shepherd.engine.llamacpp.library import devices  # noqa: PLC0415 - loads the native library

        entry, backend = self._catalogue.entry_of(cache), self._dispatcher.backends().get(cache)
        assert entry.header is not None
        return ActiveModel(
            backend="TensorRT-LLM" if entry.backend == "tensorrt" else f"llama.cpp ({next(iter(devices()), 'CPU')})",
            model=entry.title,
            path=entry.header.path,
            n_ctx=backend.n_ctx if backend else entry.card.n_cells or entry.card.n_ctx,
            embedded=entry.model.path == "embedded",
            dialect=backend.dialect.name if backend else "",
            cache=cache if entry.chats else "",
        )


@dataclass(frozen=True, slots=True)
class _Routed:
    """The models behind the routes, for requests of one endpoint; satisfies `Backend`."""

    dispatcher: Dispatcher
    endpoint: str
    route: Route | None = None
    """Of all of them, also where they name another model."""

    def stream(self, request: Request) -> AsyncGenerator[Event, None]:
        return self.dispatcher.stream(request, endpoint=self.endpoint, route=self.route)


@dataclass(frozen=True, slots=True)
class _OwnFirst:
    """A model of this machine, and what answers where it cannot; satisfies `Backend`, `WindowedBackend` and
    `QuotingBackend`.

    The window is the one of our own model, as it is now: turns that a provider has answered are not in it yet.
    """

    dispatcher: Dispatcher
    route: Route

    def stream(self, request: Request) -> AsyncGenerator[Event, None]:
        return self.dispatcher.stream(request, endpoint="", route=self.route)

    async def window(self, request: Request) -> Window:
        return await self._loaded().window(_as_sent(request))

    async def evict(self, request: Request, n_turns: int) -> Evicted:
        return await self._loaded().evict(_as_sent(request), n_turns)

    async def recognise(self, request: Request, began: datetime | None = None) -> None:
        if own := self._own():
            await own.recognise(_as_sent(request), began)

    def quotes(self, request: Request) -> Mapping[int, Quote]:
        found = (each.quotes(_as_sent(request)) for each in reversed(self._remembering()))
        return {at: quote for quotes in found for at, quote in quotes.items()}

    def quote(self, request: Request, quotes: Mapping[int, Quote]) -> None:
        for each in self._remembering():
            each.quote(_as_sent(request), quotes)

    def _own(self) -> MemoryBackend | None:
        cache = self.route.target
        loaded = self.dispatcher.pool.loaded().get(self.dispatcher.catalogue.entry_of(cache).key)
        return loaded.memory_backends[cache] if loaded else None

    def _loaded(self) -> MemoryBackend:
        if (own := self._own()) is None:
            raise InvalidRequest(
                f"the model of {self.route.target!r} is not loaded, so that it has no window; the next turn tries to "
                "load it"
            )
        return own

    def _remembering(self) -> list[MemoryBackend]:
        """The memories of all that may answer, the model of this machine first."""
        providers = self.dispatcher.providers
        names = [each for name in self.route.fallback if name in providers for each in providers.all_of(name)]
        return [*filter(None, [self._own()]), *(providers.open(name).backend for name in names)]


def _as_sent(request: Request) -> Request:
    """As `Dispatcher` gives it to a model of this machine."""
    return replace(request, messages=plain(request.messages))
