"""Conversations: the model that answers, the tools they have, and the models that they can switch to.

    our own        session(...) ─▶ Session over a cache, with a toolbox    switch(session, name): another model
    HTTP clients'  stream(request) ─▶ the cache of its route; with our tools, if the operator has allowed it

Not here: which tools there are (`toolset.py`), which model a request names (`dispatch.py`).
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from shepherd.agent.session import Session
from shepherd.agent.with_tools import ToolBackend, takes_our_tools
from shepherd.core import ConfigError, Event, InvalidRequest, Request, ShepherdError
from shepherd.core.status import ActiveModel, ModelChoice

if TYPE_CHECKING:
    from shepherd.app.dispatch import Dispatcher
    from shepherd.app.model_registry import ModelKey
    from shepherd.app.toolset import Toolset
    from shepherd.backends.local.backend import LocalBackend
    from shepherd.config import Config
    from shepherd.memory.store import MemoryStore
    from shepherd.memory.users import UserStores
    from shepherd.tools.base import Person
    from shepherd.tools.toolbox import ConversationToolbox

logger = logging.getLogger(__name__)


class Conversations:
    """The conversations of one program, over loaded models. One event loop."""

    def __init__(self, config: Config, dispatcher: Dispatcher, toolset: Toolset, stores: UserStores) -> None:
        self._config = config
        self._dispatcher = dispatcher
        self._toolset = toolset
        self._stores = stores
        self._held: WeakKeyDictionary[Session, ModelKey] = WeakKeyDictionary()
        """By conversation, the model that stays loaded for it."""
        self.active = self.describe(config.caches[0].name)
        """The cache that answers our own conversation now."""

    # our own

    def session(
        self,
        *,
        system: str | None = None,
        user: str | None = None,
        recall: bool | None = None,
        tools: bool = True,
        person: Person | None = None,
    ) -> Session:
        """A new conversation on the active cache; its model stays loaded from now on.

        `user`: the user of its memory; None = no memory. `recall`: whether memories are offered to the model; the
        default is the configuration's. `tools`: whether it has tools that the configuration does not name. `person`:
        gives consent to tools; None = consent is refused.

        Raises: `ConfigError` for a model that cannot chat, and when the configured memory cannot be opened. Without a
        configured memory that is a warning: a machine may have no folder to write to.
        """
        config, active, dispatcher = self._config, self.active, self._dispatcher
        if not active.cache:
            raise ConfigError(f"{active.path.name} makes vectors of texts and cannot chat; choose another model")
        store = None
        try:
            store = self._stores.find_store(user)
        except ConfigError as error:
            if config.memory.database_path is not None:
                raise
            logger.warning("this conversation goes without memory: %s", error)
            user = None
        key = dispatcher.entry_of(active.cache).key
        loaded = dispatcher.pool.hold(key)
        if self._toolset.servers is not None and person is not None:
            self._toolset.servers.person = person
        wants_tools = tools or bool(config.tools.enabled or config.tools.allow)
        session = Session(
            loaded.memory_backends[active.cache],
            model=active.model,
            n_ctx=active.n_ctx,
            system=config.system if system is None else system,
            max_tokens=config.max_tokens,
            on_full=config.caches[0].overflow or "evict",
            toolbox=self._box(loaded.backends[active.cache], user, store, person) if wants_tools else None,
            user=user,
            archive=config.memory.enable_archival and user is not None,
            recall=config.memory.recall is not False if recall is None else recall,
            max_rounds=config.tools.max_rounds,
            max_repeats=config.tools.max_repeats,
        )
        self._held[session] = key
        return session

    def choices(self) -> tuple[ModelChoice, ...]:
        """What our conversation can switch to."""
        pool = self._dispatcher.pool
        entries = {cache: self._dispatcher.entry_of(cache) for cache in self._dispatcher.caches}
        n_caches = Counter(entry.name for entry in entries.values())
        loaded = pool.loaded()
        return tuple(
            ModelChoice(
                entry.name if n_caches[entry.name] == 1 else cache,
                cache,
                "model" if n_caches[entry.name] == 1 else "cache",
                f"{entry.card.n_ctx} tokens{', loaded' if entry.key in loaded else ''}",
                cache == self.active.cache,
            )
            for cache, entry in entries.items()
            if not entry.makes_vectors
        )

    async def switch(self, session: Session, name: str) -> ActiveModel:
        """Move a conversation to another model: the old one is unloaded, then the new one is loaded (C31).

        `name`: one of `choices`, or whatever `--model` takes: a path, or a model that the catalogue finds. Where
        loading fails, the old model is loaded again. Raises: `InvalidRequest` for an unknown model; what loading
        raises.
        """
        choices, before, dispatcher = self.choices(), self.active.cache, self._dispatcher
        known, name = dispatcher.caches, name.strip()
        word = name.casefold()
        found = next((each.cache for each in choices if word in (each.name.casefold(), each.cache.casefold())), None)
        added = None
        if found is None:
            try:
                added = await asyncio.to_thread(dispatcher.add, name, before)
            except ConfigError as error:
                names = ", ".join(each.name for each in choices)
                raise InvalidRequest(f"{error.message}; the configuration has {names}", field="name") from error
            found = added.name
        if found != before:
            try:
                await self._move(session, found)
            except ShepherdError:
                await self._move(session, before)
                if added is not None and added.name not in known:
                    dispatcher.remove(added)
                raise
        return self.active

    async def _move(self, session: Session, cache: str) -> None:
        """Move our conversation to a cache. The model that it leaves is unloaded first, if it is another one."""
        pool, entry = self._dispatcher.pool, self._dispatcher.entry_of(cache)
        old = self._held.get(session)
        if old is not None and old != entry.key:
            del self._held[session]
            pool.let_go(old)
            if not pool.states()[old].n_leases:
                await pool.unload(old)
            logger.info("Loading provider: %s", next(each.name for each in self.choices() if each.cache == cache))
        async with self._dispatcher.lease(entry) as loaded:
            if session not in self._held:
                pool.hold(entry.key)
                self._held[session] = entry.key
        self.active = self.describe(cache)
        store = await asyncio.to_thread(self._stores.find_store, session.user)
        box = session.toolbox
        person = getattr(getattr(box, "permission", None), "person", None)
        session.move(
            loaded.memory_backends[cache],
            model=self.active.model,
            n_ctx=self.active.n_ctx,
            toolbox=None if box is None else self._box(loaded.backends[cache], session.user, store, person),
        )

    def _box(
        self, backend: LocalBackend, user: str | None, store: MemoryStore | None, person: Person | None
    ) -> ConversationToolbox | None:
        if not self._toolset.wants_tools:
            return None
        box = self._toolset.box(n_ctx=backend.n_ctx, count=backend.count_tokens, user=user, store=store, person=person)
        return box if box.specs or self._toolset.servers is not None else None

    # HTTP clients'

    def stream(self, request: Request, *, endpoint: str) -> AsyncGenerator[Event, None]:
        """The events of one answer: with our tools, where the operator has allowed it (`server.use_tools`)."""
        request = self._without_client_tools(request)
        if self._gets_our_tools(request):
            return self._with_tools(request, endpoint)
        return self._dispatcher.stream(request, endpoint=endpoint)

    async def count(self, request: Request, *, endpoint: str) -> int:
        """How many tokens the prompt of `request` has, with the tools that it would get."""
        return await self._dispatcher.count(await self._offered(request, endpoint), endpoint=endpoint)

    async def render(self, request: Request, *, endpoint: str) -> str:
        """The prompt of `request` as text, with the tools that it would get."""
        return await self._dispatcher.render(await self._offered(request, endpoint), endpoint=endpoint)

    async def _offered(self, request: Request, endpoint: str) -> Request:
        request = self._without_client_tools(request)
        if self._gets_our_tools(request):
            return replace(request, tools=tuple((await self._box_for(request, endpoint)).specs))
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
        return replace(request, tool_choice="none")

    def _gets_our_tools(self, request: Request) -> bool:
        return self._config.server.use_tools and self._toolset.wants_tools and takes_our_tools(request)

    async def _with_tools(self, request: Request, endpoint: str) -> AsyncGenerator[Event, None]:
        box, tools = await self._box_for(request, endpoint), self._config.tools
        backend = ToolBackend(
            _Routed(self._dispatcher, endpoint), box, max_rounds=tools.max_rounds, max_repeats=tools.max_repeats
        )
        async with aclosing(backend.stream(request)) as events:
            async for event in events:
                yield event

    async def _box_for(self, request: Request, endpoint: str) -> ConversationToolbox:
        """The tools of one request: of its user, and for the context of the cache that it will go to."""
        route = self._dispatcher.router.choose(request.model, endpoint)
        user = route.fill(request).user
        backend = self._dispatcher.backends().get(route.target)
        return self._toolset.box(
            n_ctx=self._dispatcher.entry_of(route.target).card.n_ctx,
            count=backend.count_tokens if backend else None,
            user=user,
            store=await asyncio.to_thread(self._stores.find_store, user),
        )

    def describe(self, cache: str) -> ActiveModel:
        """A cache and its model, loaded or not."""
        from shepherd.engine.llamacpp.library import devices  # noqa: PLC0415 - loads the native library

        entry, backend = self._dispatcher.entry_of(cache), self._dispatcher.backends().get(cache)
        assert entry.header is not None
        return ActiveModel(
            backend=f"llama.cpp ({next(iter(devices()), 'CPU')})",
            model=entry.header.path.stem,
            path=entry.header.path,
            n_ctx=backend.n_ctx if backend else entry.card.n_ctx,
            embedded=entry.model.path == "embedded",
            dialect=backend.dialect.name if backend else "",
            cache="" if entry.makes_vectors else cache,
        )


@dataclass(frozen=True, slots=True)
class _Routed:
    """The models behind the routes, for requests of one endpoint; satisfies `Backend`."""

    dispatcher: Dispatcher
    endpoint: str

    def stream(self, request: Request) -> AsyncGenerator[Event, None]:
        return self.dispatcher.stream(request, endpoint=self.endpoint)
