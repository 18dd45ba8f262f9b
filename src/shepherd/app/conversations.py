"""Conversations: who answers them, with which tools, and what they can be moved to.

    our own        session(...) ─▶ Session over a cache, with a Box        switch(session, name): another model
    HTTP callers'  stream(request) ─▶ the cache of its route; with our tools, if the operator gives them any

Not here: what tools there are (`toolset.py`), which model a request means (`dispatch.py`).
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from weakref import WeakKeyDictionary

from shepherd.agent.session import Session
from shepherd.agent.with_tools import Acting, may_act
from shepherd.app.dispatch import Desk
from shepherd.app.toolset import Outfit
from shepherd.config import Config
from shepherd.core import ConfigError, Event, Request, ShepherdError, UnknownModel
from shepherd.memory.users import UserStores

if TYPE_CHECKING:
    from shepherd.backends.local.backend import LocalBackend
    from shepherd.memory.store import MemoryStore
    from shepherd.tools.base import Person
    from shepherd.tools.toolbox import ConversationToolbox

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Facts:
    """What a banner says of a cache."""

    backend: str
    """Such as `llama.cpp (CPU)`."""
    model: str
    """The file's stem."""
    path: Path
    n_ctx: int
    embedded: bool
    dialect: str
    cache: str
    """Empty for a model that cannot chat."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Something that a conversation can be answered by."""

    name: str
    """Of the model; of the cache, where a model has several."""
    cache: str
    kind: Literal["model", "cache", "provider"]
    detail: str
    """One line for a person."""
    current: bool


class Talks:
    """The conversations of one program, over loaded models. One event loop."""

    def __init__(self, config: Config, desk: Desk, outfit: Outfit, shelf: UserStores) -> None:
        self._config = config
        self._desk = desk
        self._outfit = outfit
        self._shelf = shelf
        self._seats: WeakKeyDictionary[Session, str] = WeakKeyDictionary()
        """By conversation, the model that stays loaded for it."""
        self.facts = self.facts_of(config.caches[0].name)
        """What answers our own conversation now."""

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
        """See `App.session`."""
        config, facts, desk = self._config, self.facts, self._desk
        if not facts.cache:
            raise ConfigError(f"{facts.path.name} makes vectors of texts and cannot chat; choose another model")
        store = None
        try:
            store = self._shelf.find_store(user)
        except ConfigError as error:
            if config.memory.database_path is not None:
                raise
            logger.warning("this conversation goes without memory: %s", error)
            user = None
        model = desk.entry_of(facts.cache).name
        opened = desk.fleet.hold(model)
        if self._outfit.servers is not None and person is not None:
            self._outfit.servers.person = person
        wants_tools = tools or bool(config.tools.enabled or config.tools.allow)
        session = Session(
            opened.answering[facts.cache],
            model=facts.model,
            n_ctx=facts.n_ctx,
            system=config.system if system is None else system,
            max_tokens=config.max_tokens,
            on_full=config.caches[0].overflow or "evict",
            toolbox=self._box(opened.backends[facts.cache], user, store, person) if wants_tools else None,
            user=user,
            archive=config.memory.enable_archival and user is not None,
            recall=config.memory.recall is not False if recall is None else recall,
            max_rounds=config.tools.max_rounds,
            max_repeats=config.tools.max_repeats,
        )
        self._seats[session] = model
        return session

    def choices(self) -> tuple[Choice, ...]:
        """What our conversation can be moved to."""
        fleet = self._desk.fleet
        entries = {cache.name: self._desk.entry_of(cache.name) for cache in self._config.caches}
        n_caches = Counter(entry.name for entry in entries.values())
        loaded = fleet.loaded()
        return tuple(
            Choice(
                entry.name if n_caches[entry.name] == 1 else cache,
                cache,
                "model" if n_caches[entry.name] == 1 else "cache",
                f"{entry.card.n_ctx} tokens{', loaded' if entry.name in loaded else ''}",
                cache == self.facts.cache,
            )
            for cache, entry in entries.items()
            if not entry.makes_vectors
        )

    async def switch(self, session: Session, name: str) -> Facts:
        """See `App.switch`."""
        choices, before = self.choices(), self.facts.cache
        word = name.strip().casefold()
        found = next((each for each in choices if word in (each.name.casefold(), each.cache.casefold())), None)
        if found is None:
            raise UnknownModel(name, known=tuple(each.name for each in choices))
        if not found.current:
            try:
                await self._seat(session, found.cache, found.name)
            except ShepherdError:
                await self._seat(session, before, before)
                raise
        return self.facts

    async def _seat(self, session: Session, cache: str, name: str) -> None:
        """Have our conversation answered by a cache. The model that did is unloaded first, if it is another one."""
        fleet, new = self._desk.fleet, self._desk.entry_of(cache).name
        old = self._seats.get(session)
        if old is not None and old != new:
            del self._seats[session]
            fleet.let_go(old)
            if not fleet.standing()[old].n_leases:
                await fleet.unload(old)
            logger.info("Loading provider: %s", name)
        async with self._desk.use(self._desk.entry_of(cache)) as opened:
            if session not in self._seats:
                fleet.hold(new)
                self._seats[session] = new
        self.facts = self.facts_of(cache)
        store = await asyncio.to_thread(self._shelf.find_store, session.user)
        box = session.toolbox
        person = getattr(getattr(box, "permission", None), "person", None)
        session.move(
            opened.answering[cache],
            model=self.facts.model,
            n_ctx=self.facts.n_ctx,
            toolbox=None if box is None else self._box(opened.backends[cache], session.user, store, person),
        )

    def _box(
        self, backend: LocalBackend, user: str | None, store: MemoryStore | None, person: Person | None
    ) -> ConversationToolbox | None:
        """The tools of our conversation; None when there can be none: a call of such a model is nobody's to answer."""
        if not self._outfit.wants_tools:
            return None
        box = self._outfit.box(n_ctx=backend.n_ctx, count=backend.count_tokens, user=user, store=store, person=person)
        return box if box.specs or self._outfit.servers is not None else None

    # other people's

    def stream(self, request: Request, *, endpoint: str) -> AsyncGenerator[Event, None]:
        """See `App.stream`."""
        return self._act(request, endpoint) if self._acts(request) else self._desk.stream(request, endpoint=endpoint)

    async def count(self, request: Request, *, endpoint: str) -> int:
        """How many tokens the prompt of `request` has, with the tools that it would get."""
        if self._acts(request):
            request = replace(request, tools=tuple((await self._box_for(request, endpoint)).specs))
        return await self._desk.count(request, endpoint=endpoint)

    def _acts(self, request: Request) -> bool:
        return self._config.server.use_tools and self._outfit.wants_tools and may_act(request)

    async def _act(self, request: Request, endpoint: str) -> AsyncGenerator[Event, None]:
        box, tools = await self._box_for(request, endpoint), self._config.tools
        acting = Acting(_Routed(self._desk, endpoint), box, max_rounds=tools.max_rounds, max_repeats=tools.max_repeats)
        async with aclosing(acting.stream(request)) as events:
            async for event in events:
                yield event

    async def _box_for(self, request: Request, endpoint: str) -> ConversationToolbox:
        """The tools of one request: of its user, and for the context of the cache that it will go to."""
        route = self._desk.router.choose(request.model, endpoint)
        user = route.fill(request).user
        backend = self._desk.backends().get(route.target)
        return self._outfit.box(
            n_ctx=self._desk.entry_of(route.target).card.n_ctx,
            count=backend.count_tokens if backend else None,
            user=user,
            store=await asyncio.to_thread(self._shelf.find_store, user),
        )

    # told

    def facts_of(self, cache: str) -> Facts:
        """What a banner says of a cache, loaded or not."""
        entry, backend = self._desk.entry_of(cache), self._desk.backends().get(cache)
        assert entry.header is not None
        return Facts(
            backend=_backend_label(),
            model=entry.header.path.stem,
            path=entry.header.path,
            n_ctx=backend.n_ctx if backend else entry.card.n_ctx,
            embedded=entry.model.path == "embedded",
            dialect=backend.dialect.name if backend else "",
            cache="" if entry.makes_vectors else cache,
        )


@dataclass(frozen=True, slots=True)
class _Routed:
    """The models behind the routes, for requests of one endpoint; a `Backend`."""

    desk: Desk
    endpoint: str

    def stream(self, request: Request) -> AsyncGenerator[Event, None]:
        return self.desk.stream(request, endpoint=self.endpoint)


def _backend_label() -> str:
    from shepherd.engine.llamacpp import devices  # noqa: PLC0415 - loads the native library

    found = devices()
    return f"llama.cpp ({found[0] if found else 'CPU'})"
