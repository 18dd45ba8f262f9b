"""The composition root: a configuration becomes running parts, started and stopped in order.

    Config ─▶ Roster (what could be loaded) ─▶ Fleet (what is loaded) ◀─ Desk (what is asked for) ◀─ requests
           ─▶ memory file ─▶ Shelf (one store per user) ─▶ beside every back end

Nothing below but `roster` and `opening` reads the configuration; nothing here decides what a part does.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import platformdirs

from shepherd import config as configuration
from shepherd.agent.session import Session
from shepherd.app.conversations import Choice, Facts, Talks
from shepherd.app.dispatch import Desk
from shepherd.app.loading import Loading, Opened, Opener, Progress, in_log
from shepherd.app.model_pool import Fleet
from shepherd.app.model_registry import Entry, Roster, budget_of
from shepherd.app.toolset import Advisors, Outfit
from shepherd.backends.router import Route, Router
from shepherd.config import Config
from shepherd.core import ConfigError, EngineDown, EngineError, Event, InvalidRequest, Request
from shepherd.core.status import CacheUsage, Embeddings, Health, ModelCard
from shepherd.engine.kv.tiers import file as snapshot
from shepherd.engine.stats import CacheStats
from shepherd.memory.archive.forget import Removed
from shepherd.memory.backfill import VectorBackfill
from shepherd.memory.store import MemoryStore
from shepherd.memory.users import configured_stores

if TYPE_CHECKING:
    from shepherd.agent.storage import Saves
    from shepherd.backends.local.backend import LocalBackend
    from shepherd.tools.base import Person
    from shepherd.tools.mcp.servers import McpServerPool
    from shepherd.tools.registry import Registry
    from shepherd.tools.toolbox import ConversationToolbox

__all__ = ["App", "Choice", "Facts", "Loading", "drop_snapshots", "open_session", "snapshot_folder"]

logger = logging.getLogger(__name__)

ROUGH_CTX = 32_768
"""Tokens of context that tools are fitted into before any model is known."""


class App:
    """All parts of one configuration. Made unloaded; `load` once, `aclose` once."""

    def __init__(
        self, config: Config, *, cache_folder: Path | None = None, env: Mapping[str, str] | None = None
    ) -> None:
        """Look at the configuration only; no file is opened.

        Raises: `ConfigError` for what this version cannot run.
        """
        _refuse_what_cannot_run(config)
        self.config = config
        self._cache_folder = cache_folder or Path(platformdirs.user_cache_dir("shepherd"))
        self._env = os.environ if env is None else env
        self._shelf = configured_stores(config.memory, self._env)
        self._meanings: VectorBackfill | None = None
        self._outfit = Outfit(config, env=self._env, models=Advisors([each.name for each in config.models], self._ask))
        self._desk: Desk | None = None
        self._talks: Talks | None = None
        self._opener: Opener | None = None
        self._is_ready = False
        self._is_loading = False
        """`load` has been called."""
        self._has_loaded = asyncio.Event()
        """It is over, well or badly."""
        self._failure = ""
        self._starting: Progress | None = None
        """Whom to tell of progress during `load`; afterwards it goes to the log."""
        self._fingerprints: dict[str, str] = {}
        """By cache, of the runtimes that have been: theirs are the conversations on disk."""
        self._preparing = threading.Lock()
        self._closed = False

    async def load(
        self,
        on_progress: Callable[[Loading], None] | None = None,
        *,
        lazy: bool = False,
        person: Person | None = None,
        patient: bool = False,
    ) -> None:
        """Look at all models and open those that are loaded at the start; takes long.

        `on_progress` is called from another thread. `lazy`: the default model may wait for its first request, where
        the configuration says so. `person`: whom MCP servers may ask. `patient`: wait for all of them, since there will
        be no second turn; else those that take long join the conversation later.

        Raises: `ConfigError`, `EngineError` with one sentence that names the file.
        """
        self._is_loading = True
        self._starting = on_progress or (lambda loading: None)
        self._outfit.start(person)
        try:
            await asyncio.to_thread(self._prepare, self._starting)
            if (desk := self._desk) is not None:
                if desk.roster.memory is not None:  # before anything that remembers
                    await self._load_meanings(desk, desk.roster.memory)
                default = self.config.models[0].name
                for name, entry in list(desk.roster.entries.items()):
                    if entry.model.load == "start" or (name == default and not lazy):
                        async with desk.fleet.use(name):
                            pass
                self._talks = await asyncio.to_thread(Talks, self.config, desk, self._outfit, self._shelf)
                await self._outfit.ready(all_of_them=patient)
                self._is_ready = True
        except Exception as error:
            if self._closed:  # stopped while it was loading: nobody waits for it
                return
            self._failure = str(error)
            raise
        finally:
            self._starting = None
            self._has_loaded.set()

    async def aclose(self) -> None:
        """End the MCP servers, stop every engine, then free the weights, then close the memory."""
        try:
            await self._outfit.aclose()
        finally:
            await asyncio.to_thread(self._close)

    # what is asked of models; all of it raises `EngineDown` before `load` is done and after `aclose`

    def stream(self, request: Request, *, endpoint: str = "") -> AsyncGenerator[Event, None]:
        """The answer of whichever cache the routes choose, its model loaded if need be; see `Backend.stream`.

        A request that says nothing at all loads its model, or unloads it if it is to stay for no time. One without
        tools gets ours, where the operator wants that (`server.use_tools`), and their calls are carried out here.
        """
        return self._talking().stream(request, endpoint=endpoint)

    async def count(self, request: Request, *, endpoint: str = "") -> int:
        """How many tokens the prompt of `request` has."""
        return await self._talking().count(request, endpoint=endpoint)

    async def tokenize(
        self, model: str, text: str, *, special: bool = False, bos: bool = False, endpoint: str = ""
    ) -> list[int]:
        """See `Service.tokenize`."""
        return await self._ready().tokenize(model, text, special=special, bos=bos, endpoint=endpoint)

    async def detokenize(self, model: str, tokens: Sequence[int], *, endpoint: str = "") -> list[bytes]:
        """See `Service.detokenize`."""
        return await self._ready().detokenize(model, tokens, endpoint=endpoint)

    async def embed(
        self, model: str, inputs: Sequence[str | Sequence[int]], *, dimensions: int | None = None,
        truncate: bool = True, endpoint: str = "",
    ) -> Embeddings:  # fmt: skip
        """See `Service.embed`; a name that no model has means the one that makes vectors."""
        return await self._ready().embed(model, inputs, dimensions=dimensions, truncate=truncate)

    async def unload(self, model: str) -> bool:
        """Free the model of this name as soon as nothing uses it; False when it was not loaded.

        Raises: `UnknownModel`.
        """
        return await self._ready().unload(model)

    # what is told

    def models(self) -> tuple[ModelCard, ...]:
        """One card per model that can be asked for, loaded or not, in the order of the configuration; none before
        `load` is done."""
        return self._desk.models() if self._desk and self._is_ready else ()

    def health(self) -> Health:
        """Whether requests can be answered now; cheap, from any thread."""
        backend = self.config.backend
        name = self._talks.facts.path.name if self._talks else Path(self.config.models[0].path).name
        caches = {
            cache: CacheUsage(backend.engine.n_ctx, backend.engine.used, backend.model)
            for cache, backend in self._backends().items()
        }
        if self._failure:
            return Health("error", backend, name, caches, self._failure)
        if not self._is_ready:
            return Health("loading", backend, name, caches, "the model is still loading")
        if down := [each.engine.down for each in self._backends().values() if each.engine.down]:
            return Health("error", backend, name, caches, "; ".join(down))
        return Health("ok", backend, name, caches)

    def stats(self) -> dict[str, CacheStats]:
        """By name, the figures of every cache that is open; cheap, from any thread."""
        return {cache: backend.engine.stats() for cache, backend in self._backends().items()}

    def n_archived(self) -> int:
        """Messages that were archived since the start, of all users."""
        return self._shelf.n_archived

    def n_loads(self) -> dict[str, int]:
        """How often each model was loaded since the start."""
        return self._desk.fleet.n_loads() if self._desk else {}

    def facts(self) -> Facts:
        """What answers our own conversation. Raises: `EngineDown` before `load` is done."""
        if self._talks is None:
            raise EngineDown(self._failure or "the model is still loading")
        return self._talks.facts

    # what is held and remembered

    async def clear(self, name: str) -> None:
        """Forget what a cache holds, kept copies included; answers in the making go on.

        Raises: `EngineDown`.
        """
        async with self._ready().fleet.borrow() as loaded:
            for opened in loaded:
                if name in opened.backends:
                    await opened.backends[name].engine.clear()
                    return
        # It is not loaded; what it has left on disk would come back with it.
        await asyncio.to_thread(self._drop_snapshots_of, name)

    def memory(self, user: str | None) -> MemoryStore | None:
        """The memory of one user; None for somebody unknown. May open a file: not on the event loop.

        Raises: `ConfigError` when the file is not a memory.
        """
        return self._shelf.find_store(user)

    async def forget(
        self,
        user: str,
        *,
        messages: Collection[int] = (),
        conversation: str | None = None,
        matching: str | None = None,
        before_ms: int | None = None,
    ) -> Removed:
        """Take what is meant out of a user's memory, and everything out of the caches, which may echo it.

        Raises: `InvalidRequest` when nothing is meant.
        """
        store = await asyncio.to_thread(self._shelf.find_store, user)
        if store is None:
            raise InvalidRequest("whose memory is not said", field="user")
        removed = await asyncio.to_thread(
            store.forget, messages=messages, conversation=conversation, matching=matching, before_ms=before_ms
        )
        if self._desk is not None:
            async with self._desk.fleet.borrow() as loaded:
                for opened in loaded:
                    await opened.forget()
        # Those of models that are not loaded now, too.
        await asyncio.to_thread(drop_snapshots, self._snapshots)
        return removed

    # conversations

    def session(
        self,
        *,
        system: str | None = None,
        user: str | None = None,
        recall: bool | None = None,
        tools: bool = True,
        person: Person | None = None,
    ) -> Session:
        """A new conversation on the default cache, whose model stays loaded from now on.

        `user`: whose memory it has; None = none. `recall`: whether memories are offered to the model unasked, by
        default as the configuration says. `tools`: whether it has tools that the configuration does not name.
        `person`: who is asked before a tool does what needs consent; None = nobody is there.

        Raises: `EngineDown` before `load` is done; `ConfigError` for a model that cannot chat, and when the memory that
        was configured cannot be opened. One that nobody has chosen is done without, with a warning: a machine may have
        no place to write to.
        """
        return self._talking().session(system=system, user=user, recall=recall, tools=tools, person=person)

    def choices(self) -> tuple[Choice, ...]:
        """What our conversation can be moved to. Raises: `EngineDown` before `load` is done."""
        return self._talking().choices()

    async def switch(self, session: Session, name: str) -> Facts:
        """Move a conversation to another model: what answered it is unloaded, then the other one loaded (C31).

        Where that fails, it goes on with what it had, loaded anew.

        Raises: `UnknownModel` with the names of `choices`; what loading raises.
        """
        return await self._talking().switch(session, name)

    def saves(self) -> Saves | None:
        """Where conversations are kept; None = they are not."""
        return self._outfit.saves()

    # tools

    @property
    def registry(self) -> Registry:
        """All the tools there are."""
        return self._outfit.registry

    @property
    def servers(self) -> McpServerPool | None:
        """The MCP servers; None = there are none."""
        return self._outfit.servers

    async def toolbox(self, *, user: str | None = None, allow: Sequence[str] = ()) -> ConversationToolbox:
        """Tools outside of any conversation, before or after `load`; MCP servers are started for them.

        `allow`: patterns of what nobody need be asked for, besides those of the configuration.
        """
        self._outfit.start()
        await self._outfit.ready(all_of_them=True)
        store = await asyncio.to_thread(self._shelf.find_store, user)
        n_ctx = self.config.caches[0].n_ctx or ROUGH_CTX
        return self._outfit.box(n_ctx=n_ctx, user=user, store=store, allow=allow)

    async def offer(
        self, user: str | None, *, everything: bool = False, allow: Sequence[str] = ()
    ) -> ConversationToolbox:
        """What other agents are offered (MCP): the memory and `chat`; with `everything`, all that is enabled as well.

        `chat` waits until `load` is done, or does it itself.
        """
        store = await asyncio.to_thread(self._shelf.find_store, user)
        return self._outfit.offer(user=user, store=store, everything=everything, allow=allow)

    def _ready(self) -> Desk:
        """Raises: `EngineDown`."""
        if self._desk is None or not self._is_ready:
            raise EngineDown(self._failure or "the model is still loading; try again in a moment")
        return self._desk

    def _talking(self) -> Talks:
        """Raises: `EngineDown`."""
        self._ready()
        assert self._talks is not None
        return self._talks

    async def _ask(self, request: Request) -> AsyncGenerator[Event, None]:
        """The answer of the model of this very name, as soon as there can be one."""
        if not self._is_loading:  # we are offered to another agent, and this is its first question
            await self.load(lazy=True)
        await self._has_loaded.wait()
        async with aclosing(self._ready().ask(request)) as events:
            async for event in events:
                yield event

    def _backends(self) -> dict[str, LocalBackend]:
        return self._desk.backends() if self._desk else {}

    # loading, in threads

    def _prepare(self, on_progress: Progress) -> None:
        with self._preparing:
            if self._closed:
                return
            budget = budget_of(self.config)
            roster = Roster(self.config, env=self._env, budget_bytes=budget)
            use_extra_bufts = self._test_library(on_progress)
            self._opener = Opener(
                self.config,
                shelf=self._shelf,
                folder=self._snapshots,
                cache_folder=self._cache_folder,
                use_extra_bufts=use_extra_bufts,
            )
            fleet = Fleet(self._open, budget_bytes=budget)
            for name, entry in roster.entries.items():
                fleet.add(name, entry.terms)
            routes = [_route(rule, self.config.memory) for rule in self.config.routes]
            router = Router(routes, [card.id for _, card in roster.cards()])
            self._desk = Desk(self.config, roster, fleet, router)

    def _open(self, name: str) -> Opened:
        """Called by the fleet, on its thread."""
        desk, opener = self._desk, self._opener
        assert desk is not None
        assert opener is not None
        entry = desk.roster.entries[name]

        def is_wanted() -> bool:
            return desk.fleet.is_wanted(name)

        if self._starting is not None:
            opened = opener.open(entry, self._starting, is_wanted)
        else:
            opened = self._open_later(opener, entry, is_wanted)
        self._fingerprints |= opened.fingerprints
        return opened

    def _open_later(self, opener: Opener, entry: Entry, is_wanted: Callable[[], bool]) -> Opened:
        """Load a model on demand, and tell the log."""
        began_s = time.monotonic()
        logger.info("loading model %r: %.1f MiB", entry.name, entry.terms.n_bytes / 2**20)
        try:
            opened = opener.open(entry, in_log(entry.name), is_wanted)
        except ConfigError as error:  # which is for starts only
            raise EngineError(f"model {entry.name!r} cannot be loaded: {error}") from error
        logger.info("model %r is loaded, after %.1f s", entry.name, time.monotonic() - began_s)
        return opened

    async def _load_meanings(self, desk: Desk, name: str) -> None:
        """Open the model that makes vectors for what is remembered; it stays to the end."""
        async with desk.fleet.use(name):
            opened = desk.fleet.hold(name)
        assert self._opener is not None
        await asyncio.to_thread(self._shelf.close)
        self._shelf = self._opener.shelf = configured_stores(self.config.memory, self._env, opened.embedder)
        self._meanings = VectorBackfill(self._shelf)

    def _test_library(self, on_progress: Progress) -> bool:
        from shepherd.engine.llamacpp import selftest  # noqa: PLC0415 - loads the native library

        on_progress(Loading("selftest", "native library", 0.0))
        verdict = selftest.verdict(self._cache_folder)
        on_progress(Loading("selftest", "native library", 1.0))
        if not verdict.use_extra_bufts:
            logger.warning("%s", verdict.detail)
        return verdict.use_extra_bufts

    @property
    def _snapshots(self) -> Path:
        return snapshot_folder(self.config, self._cache_folder)

    def _drop_snapshots_of(self, cache: str) -> None:
        """Delete what an unloaded cache has left on disk; what it may be when it has never been loaded."""
        own = self._fingerprints.get(cache)
        others = {snapshot.owner(said) for name, said in self._fingerprints.items() if said != own}
        for file in self._snapshots.glob("*.kv"):
            with contextlib.suppress(FileNotFoundError, snapshot.Damaged, snapshot.OtherVersion):
                whose = snapshot.read_head(file).owner
                if whose == snapshot.owner(own) if own else whose not in others:
                    file.unlink()

    def _close(self) -> None:
        self._closed = True
        with self._preparing:
            desk, self._is_ready = self._desk, False
            if self._meanings is not None:  # it uses one of the models
                self._meanings.close()
            if desk is not None:
                desk.fleet.close()
                self._desk = None
            self._shelf.close()


@asynccontextmanager
async def open_session(
    model: str = "embedded", *, system: str | None = None, tools: Sequence[str] = ()
) -> AsyncIterator[Session]:
    """A conversation with `model`: a path, a model's name, `hf:owner/repo`, `ollama:name`, or `embedded`.

    Loads the model and frees it at the end of the block. Environment and configuration files are not read. `tools`:
    names, categories or globs of those it may use, in the working folder; to name them is to allow them.

    Raises: `ConfigError`, `EngineError` when it cannot be loaded.
    """
    flags = {"model": model, "enable_tools": tuple(tools)}
    config = configuration.load(flags=flags, env={}, cwd=Path.cwd(), user_dir=Path.cwd(), read_files=False)
    app = App(config)
    try:
        await app.load()
        yield app.session(system=system)
    finally:
        await app.aclose()


def snapshot_folder(config: Config, cache_folder: Path | None = None) -> Path:
    """Where conversations are kept on disk, if they are."""
    if config.kv.folder:
        return Path(config.kv.folder)
    return (cache_folder or Path(platformdirs.user_cache_dir("shepherd"))) / "conversations"


def drop_snapshots(folder: Path) -> int:
    """Delete every conversation that is kept in the folder; how many. They hold what was said, as numbers."""
    n = 0
    for file in folder.glob("*.kv"):
        with contextlib.suppress(FileNotFoundError):  # another process tidies up, too
            file.unlink()
            n += 1
    return n


def _refuse_what_cannot_run(config: Config) -> None:
    if config.backend != "llamacpp":
        raise ConfigError(
            f"this version runs models in process with llama.cpp only; {config.backend!r} is not available yet. "
            'Use backend = "llamacpp"',
            key="backend",
        )
    if not config.caches:
        raise ConfigError("there is no cache to answer with: name a model", key="caches")
    for rule in config.routes:
        if rule.provider is not None or rule.fallback:
            raise ConfigError(
                f"routes to providers are not available yet ({rule.provider or rule.fallback[0]!r}); route to a cache",
                key="routes",
            )


def _route(rule: configuration.RouteConfig, memory: configuration.MemoryConfig) -> Route:
    assert rule.cache is not None
    return Route(
        rule.cache,
        match=rule.match,
        model=rule.model,
        endpoint=rule.endpoint,
        on_full=rule.overflow,
        user=rule.user,
        archive=rule.archive and memory.enable_archival,
        recall=memory.recall if rule.recall is None else rule.recall,
        background=rule.background,
    )
