"""The composition root: a configuration becomes running parts, started and stopped in order.

    Config ─▶ ModelRegistry ─▶ ModelPool ◀─ Catalogue ◀─ Dispatcher ◀─ Conversations ◀─ requests
              can be loaded    is loaded    has names    streams       adds our tools
           ─▶ memory file ─▶ one store for each user ─▶ beside every back end

The parts are public: `catalogue`, `dispatcher`, `conversations`, `tools`, `memory(user)`. Nothing here forwards to
them, or decides what they do.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import platformdirs

from shepherd import config as configuration
from shepherd.agent.archiving import Archiving
from shepherd.agent.compaction_store import CompactionStore
from shepherd.agent.session import Session
from shepherd.app.chats.chats import Chats
from shepherd.app.chats.person import PersonAtChats
from shepherd.app.conversations import Conversations, loading_log
from shepherd.app.directory.catalogue import Catalogue
from shepherd.app.directory.entries import Machine, ModelKey, ModelRegistry, machine_of
from shepherd.app.directory.rules import advisors, default_rule
from shepherd.app.dispatch import Dispatcher
from shepherd.app.files import compactions_file, drop_snapshots, snapshot_folder
from shepherd.app.live_window import LiveWindow
from shepherd.app.loading import LoadedModel, LoadProgress, ModelLoader, Progress, log_progress
from shepherd.app.model_pool import ModelPool
from shepherd.app.providers import Providers, usage_folder, user_spending
from shepherd.app.toolset import AGENT_CTX, Advisors, Toolset
from shepherd.app.usage import DayOfUse, LocalUse, Totals, UseByUser, days_of
from shepherd.backends.cloud.budget import Spending
from shepherd.config import Config, KeyStore
from shepherd.config.schema import LOCAL_BACKENDS
from shepherd.core import (
    BackendError,
    ConfigError,
    EngineDown,
    EngineError,
    Event,
    InvalidRequest,
    Request,
)
from shepherd.core.status import CacheUsage, Health
from shepherd.engine.kv.tiers import file as snapshot
from shepherd.engine.llamacpp import selftest
from shepherd.engine.stats import CacheStats
from shepherd.memory.archive.forget import Removed
from shepherd.memory.backfill import VectorBackfill
from shepherd.memory.location import unusual_path
from shepherd.memory.search.reranking import Reranking
from shepherd.memory.store import MemoryStore
from shepherd.memory.users import configured_stores
from shepherd.process.pools import in_pool

if TYPE_CHECKING:
    from shepherd.app.cloud_embedder import CloudEmbedder
    from shepherd.backends.local.backend import LocalBackend
    from shepherd.memory.records import Embedder
    from shepherd.tools.base import Person
    from shepherd.tools.offer import Offer
    from shepherd.tools.toolbox import ConversationToolbox

logger = logging.getLogger(__name__)

_NOT_ARCHIVED = "messages are not archived: the last write to the memory failed; the log has the reason"
"""Without the path of the file: the health check needs no key."""


class App:
    """All parts of one configuration. Made unloaded; `load` once, `aclose` once."""

    def __init__(
        self,
        config: Config,
        *,
        cache_folder: Path | None = None,
        env: Mapping[str, str] | None = None,
        user_folder: Path | None = None,
        isolates: bool | None = None,
        counts_use: bool = True,
    ) -> None:
        """Reads the configuration only; opens no file. `user_folder`: of the user's configuration, with the keys.
        `isolates`: models that do not say so compute in processes of their own; None = where there are several.
        `counts_use`: what it computes counts as use of this day; not for measurements.

        Raises: `ConfigError` for what this version cannot run."""
        if not config.caches and not config.providers:
            raise ConfigError("no cache and no provider is configured; name a model", key="caches")
        self.config = config
        self._cache_folder = cache_folder or Path(platformdirs.user_cache_dir("shepherd"))
        self._wants_isolation, self._counts_use = isolates, counts_use
        self._snapshots = snapshot_folder(config, self._cache_folder)
        self._spending, self._use = user_spending(), LocalUse(Spending(usage_folder()), self._computed)
        self._uses = UseByUser(usage_folder() / "users")
        self._env = os.environ if env is None else env
        self._keys = KeyStore(user_folder or Path(platformdirs.user_config_dir("shepherd")))
        self._stores = configured_stores(config.memory, self._env)
        self._archiving = Archiving(required=config.memory.required)
        self._compactions = CompactionStore(compactions_file(config, self._env))
        self.tools = Toolset(config, env=self._env, models=Advisors(advisors(config), self._ask))
        self._backfill: VectorBackfill | None = None
        self._cloud_embedder: CloudEmbedder | None = None
        self._embedder: Embedder | None = None
        """Makes the vectors of the memory."""
        self._reranking: Reranking | None = None
        self._dispatcher: Dispatcher | None = None
        self._conversations: Conversations | None = None
        self._chats: Chats | None = None
        self.person_at_chats = PersonAtChats()
        """Answers questions of MCP servers, for a program that serves chats."""
        self._loader: ModelLoader | None = None
        self.window = LiveWindow(self._backends, self.stats)
        self._is_ready = self._is_loading = False
        self._has_loaded = asyncio.Event()
        """`load` has ended, with or without success."""
        self._failure = ""
        self._starting: Progress | None = None
        """Receives the progress during `load`; afterwards it goes to the log."""
        self._fingerprints: dict[str, str] = {}
        """By cache, of every runtime so far: they own the conversations on disk."""
        self._preparing = threading.Lock()
        self._closed = False

    # loading, in threads

    async def load(
        self,
        on_progress: Callable[[LoadProgress], None] | None = None,
        *,
        lazy: bool = False,
        person: Person | None = None,
        patient: bool = False,
        tools: bool = True,
    ) -> None:
        """Read the headers of all models and load those that are loaded at the start; takes long.

        `on_progress` is called from another thread. `lazy`: the default model waits for its first request, where the
        configuration allows it. `person`: answers questions of MCP servers. `patient`: wait for all MCP servers;
        otherwise slow ones join the conversation later; without `tools` none starts.

        Raises: `ConfigError`, `EngineError` with one sentence that names the file.
        """
        self._is_loading = True
        self._starting = on_progress or (lambda loading: None)
        if tools:
            self.tools.start(person)
        try:
            await asyncio.to_thread(self._prepare, self._starting)
            if (dispatcher := self._dispatcher) is not None:
                registry = dispatcher.catalogue.registry
                if registry.memory_reranker is not None:  # both before anything opens the memory
                    await self._load_reranker(dispatcher, registry.memory_reranker)
                if registry.memory is not None:
                    model = await self._held(dispatcher, registry.memory)
                    await asyncio.to_thread(self._use_embedder, model.embedder)
                if (elsewhere := self.config.embedding_provider) is not None:
                    await asyncio.to_thread(self._open_embedder, dispatcher, *elsewhere)
                default = next((each.name for each in self.config.models), "")
                is_cloud = (rule := default_rule(self.config)) is not None and rule.provider is not None
                for name, entry in list(registry.entries.items()):
                    if entry.model.load == "start" or (name == default and not lazy and not is_cloud):
                        await self._load_at_start(dispatcher, name, entry.key)
                self._conversations = await asyncio.to_thread(
                    Conversations, self.config, dispatcher, self.tools, self._stores
                )
                self._chats = Chats(
                    self.config,
                    self._conversations,
                    self.tools,
                    env=self._env,
                    memory=self.memory,
                    models=dispatcher.catalogue.models,
                )
                self.person_at_chats.running = self._chats.asked.values
                await self.tools.ready(all_of_them=patient)
                dispatcher.watch.start()
                if self._counts_use:
                    self._use.start()
                self._is_ready = True
        except Exception as error:
            if self._closed:  # stopped while it was loading: the error reaches no caller
                return
            self._failure = str(error)
            raise
        finally:
            self._starting = None
            self._has_loaded.set()

    def _prepare(self, on_progress: Progress) -> None:
        with self._preparing:
            if self._closed:
                return
            machine = machine_of(self.config) if self.config.models else Machine(0)
            registry = ModelRegistry(self.config, env=self._env, machine=machine)
            use_extra_bufts = self._tested(on_progress) if registry.entries else False
            self._loader = ModelLoader(
                self.config,
                stores=self._stores,
                archiving=self._archiving,
                folder=self._snapshots,
                cache_folder=self._cache_folder,
                use_extra_bufts=use_extra_bufts,
                isolates=self._isolates(len({*registry.entries, registry.memory, registry.memory_reranker} - {None})),
            )
            pool = ModelPool(self._open, budget_bytes=machine.budget_bytes)
            pool.add(registry.residencies())
            providers = Providers(
                self.config,
                env=self._env,
                stores=self._stores,
                archiving=self._archiving,
                keys=self._keys,
                spending=self._spending,
                uses=self._uses,
            )
            catalogue = Catalogue(self.config, registry, pool, providers, env=self._env, keys=self._keys)
            self._dispatcher = Dispatcher(self.config, catalogue, pool, self._compactions, self.window)

    def _isolates(self, n_models: int) -> bool:
        """Whether models compute in processes of their own; Windows lacks the sockets for it."""
        is_wanted = n_models > 1 if self._wants_isolation is None else self._wants_isolation
        return is_wanted and sys.platform != "win32"

    def _tested(self, on_progress: Progress) -> bool:
        """Whether the native library may use its extra buffers here."""
        on_progress(LoadProgress("selftest", "native library", 0.0))
        verdict = selftest.verdict(self._cache_folder)
        on_progress(LoadProgress("selftest", "native library", 1.0))
        if not verdict.use_extra_bufts:
            logger.warning("%s", verdict.detail)
        return verdict.use_extra_bufts

    async def _held(self, dispatcher: Dispatcher, name: str) -> LoadedModel:
        """A model for the memory, which stays loaded to the end."""
        key = dispatcher.catalogue.registry.entries[name].key
        async with dispatcher.pool.use(key):
            return dispatcher.pool.hold(key)

    async def _load_reranker(self, dispatcher: Dispatcher, name: str) -> None:
        model = await self._held(dispatcher, name)
        assert model.reranker is not None
        self._reranking = Reranking(model.reranker.relevance, name)
        await asyncio.to_thread(self._open_stores)

    def _open_embedder(self, dispatcher: Dispatcher, provider: str, model: str) -> None:
        """Let a provider make the vectors of the memory; without it the memory is searched by words."""
        from shepherd.app.cloud_embedder import DEADLINES, TIMEOUTS, CloudEmbedder  # noqa: PLC0415 - loads NumPy

        try:
            self._cloud_embedder = CloudEmbedder(dispatcher.providers.cloud(provider, DEADLINES, TIMEOUTS), model)
        except BackendError as error:
            logger.warning("the memory is searched by words only: %s", error)
        else:
            self._use_embedder(self._cloud_embedder)

    def _use_embedder(self, embedder: Embedder | None) -> None:
        self._embedder = embedder
        self._open_stores()
        self._backfill = VectorBackfill(self._stores)

    def _open_stores(self) -> None:
        """Open the memory again, with the models that it uses."""
        assert self._dispatcher is not None
        assert self._loader is not None
        self._stores.close()
        self._stores = configured_stores(self.config.memory, self._env, self._embedder, self._reranking)
        self._dispatcher.providers.stores = self._loader.stores = self._stores

    async def _load_at_start(self, dispatcher: Dispatcher, name: str, key: ModelKey) -> None:
        """Raises: `EngineError`, unless the default route has a provider for what its model cannot answer."""
        rule = next((each for each in self.config.routes if each.takes_all and each.cache), None)
        is_default = rule is not None and dispatcher.catalogue.entry_of(rule.cache or "").name == name
        spares = [each for each in rule.fallback if each in dispatcher.providers] if rule and is_default else []
        try:
            async with dispatcher.pool.use(key):
                pass
        except EngineError as error:
            if not spares:
                raise
            logger.warning("%s; %s answers in its place", error.message, " or ".join(spares))

    def _open(self, key: ModelKey) -> LoadedModel:
        """The pool calls it, on its thread."""
        dispatcher, loader = self._dispatcher, self._loader
        assert dispatcher is not None
        assert loader is not None
        entry, name, began_s = dispatcher.catalogue.registry.get(key), str(key), time.monotonic()
        is_wanted = partial(dispatcher.pool.is_wanted, key)
        show = self._starting or log_progress(name)

        def report(loading: LoadProgress) -> None:
            show(loading)
            dispatcher.pool.report(key, loading)

        if self._starting is not None:
            if entry.backend == "tensorrt":  # takes minutes; it stands in no process of a rank, and so comes once
                loading_log.info("Loading provider: %s", entry.name)
            model = loader.open(entry, report, is_wanted)
        else:
            logger.info("loading model %r: %.1f MiB", name, entry.residency.n_bytes / 2**20)
            try:
                model = loader.open(entry, report, is_wanted)
            except ConfigError as error:  # `ConfigError` is for the start only
                raise EngineError(f"model {name!r} cannot be loaded: {error}") from error
            logger.info("model %r is loaded, after %.1f s", name, time.monotonic() - began_s)
        self._fingerprints |= model.fingerprints
        return model

    def stream(self, request: Request, *, endpoint: str = "") -> AsyncGenerator[Event, None]:
        """The events of one answer, as a client of the server gets them; other requests go to the parts themselves."""
        return self.conversations.stream(request, endpoint=endpoint)

    @property
    def dispatcher(self) -> Dispatcher:
        """Answers requests. Raises: `EngineDown` before `load` is done and after `aclose`."""
        if self._dispatcher is None or not self._is_ready:
            raise EngineDown(self._failure or "the model is still loading; try again in a moment")
        return self._dispatcher

    @property
    def conversations(self) -> Conversations:
        """Our own conversations, and requests that may get our tools. Raises: as `dispatcher`."""
        assert self.dispatcher
        assert self._conversations is not None
        return self._conversations

    @property
    def chats(self) -> Chats:
        """The conversations that clients read and continue. Raises: as `dispatcher`."""
        assert self.dispatcher
        assert self._chats is not None
        return self._chats

    @property
    def manages_models(self) -> bool:
        """Clients may pull models, give them other names, and delete those that were pulled."""
        return self.config.server.manage_models

    @property
    def catalogue(self) -> Catalogue:
        """Every model that a request can name. Raises: as `dispatcher`."""
        return self.dispatcher.catalogue

    def memory(self, user: str | None) -> MemoryStore | None:
        """The memory of one user; None for an unknown user. May open a file: not on the event loop. Raises:
        `ConfigError` when the file is not a memory."""
        return self._stores.find_store(user)

    @property
    def unusual_memory(self) -> Path | None:
        """Where the memory is, if not at the usual place."""
        return unusual_path(self.config.memory.database_path, self._env)

    # state

    def health(self) -> Health:
        """Whether requests can be answered now; cheap, from any thread."""
        backend = self.config.backend
        if self._dispatcher is not None and backend in LOCAL_BACKENDS:
            backend = next((each.backend for each in self._dispatcher.catalogue.registry.entries.values()), backend)
        active = self._conversations.active if self._conversations else None
        first = next((Path(each.path).name for each in self.config.models), "")
        name = active.path.name if active else first
        backends = self._backends()
        caches = {
            cache: CacheUsage(each.engine.n_ctx, each.engine.used, each.model) for cache, each in backends.items()
        }
        providers = self._dispatcher.resting() if self._dispatcher else {}
        groups = self._dispatcher.providers.groups() if self._dispatcher else {}
        if not self._failure and not self._is_ready:
            return Health("loading", backend, name, caches, "the model is still loading")
        loaded = self._dispatcher.pool.loaded().values() if self._dispatcher else ()
        fault = self._failure or "; ".join(dict.fromkeys(fault for model in loaded for fault in model.faults()))
        if not fault and self._archiving.failure:
            return Health("degraded", backend, name, caches, _NOT_ARCHIVED, providers, groups)
        return Health("error" if fault else "ok", backend, name, caches, fault, providers, groups)

    def stats(self) -> dict[str, CacheStats]:
        """By name, the statistics of every cache that is open; cheap, from any thread."""
        return {cache: backend.engine.stats() for cache, backend in self._backends().items()}

    def _backends(self) -> dict[str, LocalBackend]:
        return self._dispatcher.backends() if self._dispatcher else {}

    def totals(self) -> Totals:
        """What was counted since the start; cheap, from any thread."""
        caches, dispatcher = dict(self._loader.ended) if self._loader else {}, self._dispatcher
        for model in dispatcher.pool.loaded().values() if dispatcher else ():
            caches |= {
                name: each.after(caches[name]) if name in caches else each for name, each in model.stats().items()
            }
        return Totals(
            caches,
            {str(key): n for key, n in dispatcher.pool.n_loads().items()} if dispatcher else {},
            dispatcher.providers.spending() if dispatcher else {},
            self._stores.n_archived,
            self._archiving.n_failed,
            self._reranking.n_failures if self._reranking else 0,
        )

    def usage(self, n_days: int, user: str | None = None) -> tuple[DayOfUse, ...]:
        """What models and providers were used for, of all programs of this user; or what was answered to the `user` of
        an API key. Reads files: not on the event loop."""
        self._use.save()
        models, providers = (self._use.kept, self._spending) if user is None else self._uses.of(user)
        return tuple(days_of(models, providers, n_days))

    def _computed(self) -> dict[str, tuple[str, CacheStats]]:
        """By cache, its model, and its figures since the start."""
        if (dispatcher := self._dispatcher) is None:
            return {}
        known = dispatcher.catalogue.caches
        return {
            name: (dispatcher.catalogue.entry_of(name).name if name in known else name, each)
            for name, each in self.totals().caches.items()
        }

    # caches and memory

    async def clear(self, name: str) -> None:
        """Clear a cache, saved copies included; running answers continue. Raises: `EngineDown`."""
        async with self.dispatcher.pool.borrow() as loaded:
            for model in loaded:
                if name in model.backends:
                    await model.backends[name].engine.clear()
                    return
        # It is not loaded, but its files on disk would be loaded with it.
        await asyncio.to_thread(self._drop_snapshots_of, name)

    def _drop_snapshots_of(self, cache: str) -> None:
        """Delete the files of an unloaded cache; if it has never been loaded, all files that may be its own."""
        own = self._fingerprints.get(cache)
        others = {snapshot.fingerprint_id(each) for each in self._fingerprints.values() if each != own}
        for file in self._snapshots.glob("*.kv"):
            with contextlib.suppress(FileNotFoundError, snapshot.Damaged, snapshot.OtherVersion):
                found = snapshot.read_head(file).fingerprint_id
                if found == snapshot.fingerprint_id(own) if own else found not in others:
                    file.unlink()

    async def forget(self, user: str, **selection: Any) -> Removed:
        """Remove the selected messages from a user's memory, the compacted conversations with them, and everything from
        the caches, which may repeat them.

        `selection` and errors: as `MemoryStore.forget`.
        """
        store = await in_pool("memory", self._stores.find_store, user)
        if store is None:
            raise InvalidRequest("the request names no user, so there is no memory to forget from", field="user")
        removed = await in_pool("memory", partial(store.forget, **selection))
        await in_pool("memory", self._compactions.forget, user.strip(), frozenset(removed.shas))
        if self._dispatcher is not None:
            self._dispatcher.providers.forget()
            async with self._dispatcher.pool.borrow() as loaded:
                for model in loaded:
                    await model.forget()
        # Also those of models that are not loaded now.
        await asyncio.to_thread(drop_snapshots, self._snapshots)
        return removed

    # tools

    async def toolbox(self, *, user: str | None = None, allow: Sequence[str] = ()) -> ConversationToolbox:
        """Tools outside of any conversation, before or after `load`; MCP servers are started for them. `allow`: as
        `Toolset.box`."""
        self.tools.start()
        await self.tools.ready(all_of_them=True)
        store = await in_pool("memory", self._stores.find_store, user)
        n_ctx = next((each.n_ctx for each in self.config.caches), 0) or AGENT_CTX
        return self.tools.box(n_ctx=n_ctx, user=user, store=store, allow=allow)

    async def offer(self, user: str | None, *, everything: bool = False, allow: Sequence[str] = ()) -> Offer:
        """What other agents get (MCP): see `Toolset.offer`. `chat` waits for `load`, or loads by itself."""
        store = await in_pool("memory", self._stores.find_store, user)
        return self.tools.offer(user=user, store=store, everything=everything, allow=allow)

    async def _ask(self, request: Request) -> AsyncGenerator[Event, None]:
        """The answer of the model that has exactly this name, as soon as it is loaded."""
        if not self._is_loading:  # this process serves another agent, and this is its first question
            await self.load(lazy=True)
        await self._has_loaded.wait()
        async with aclosing(self.dispatcher.stream(request, endpoint=None)) as events:
            async for event in events:
                yield event

    # the end

    async def aclose(self) -> None:
        """Stop the turns of chats, end the MCP servers, stop every engine, free the weights, then close the memory."""
        self.window.close()
        try:
            if self._chats is not None:
                await self._chats.aclose()
            await self.tools.aclose()
            await self._use.aclose()
            if self._dispatcher is not None:
                await self._dispatcher.digests.aclose()
                await self._dispatcher.watch.aclose()
                await self._dispatcher.providers.aclose()
        finally:
            await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._closed = True
        with self._preparing:
            dispatcher, self._is_ready = self._dispatcher, False
            if self._backfill is not None:  # it uses one of the models
                self._backfill.close()
            if self._reranking is not None:
                self._reranking.close()
            if dispatcher is not None:
                dispatcher.pool.close()
                if self._counts_use:
                    self._use.save()
                self._dispatcher = None
            self._stores.close()
            self._compactions.close()
            if self._cloud_embedder is not None:
                self._cloud_embedder.close()


@asynccontextmanager
async def open_session(
    model: str = "embedded", *, system: str | None = None, tools: Sequence[str] = ()
) -> AsyncIterator[Session]:
    """A conversation with `model`: a path, a model's name, `hf:owner/repo`, `ollama:name`, or `embedded`.

    Loads the model and frees it at the end of the block. Environment and configuration files are not read. `tools`:
    names, categories or globs of the tools that it may use, in the working folder; naming them allows them.

    Raises: `ConfigError`, `EngineError` when it cannot be loaded.
    """
    flags = {"model": model, "enable_tools": tuple(tools)}
    config = configuration.load(flags=flags, env={}, cwd=Path.cwd(), user_dir=Path.cwd(), read_files=False)
    app = App(config, isolates=False)
    try:
        await app.load()
        yield app.conversations.session(system=system)
    finally:
        await app.aclose()
