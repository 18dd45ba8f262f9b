"""The composition root: a configuration becomes running parts, started and stopped in order.

    Config ─▶ Roster (what could be loaded) ─▶ Fleet (what is loaded) ◀─ Desk (what is asked for) ◀─ requests
           ─▶ memory file ─▶ Shelf (one store per user) ─▶ beside every back end

Nothing below but `roster` and `opening` reads the configuration; nothing here decides what a part does.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import platformdirs

from shepherd import config as configuration
from shepherd.agent.meanings import Meanings
from shepherd.agent.session import Session
from shepherd.backends.base import CacheUsage, Embeddings, Health, ModelCard
from shepherd.backends.router import Route, Router
from shepherd.config import Config
from shepherd.core import ConfigError, EngineDown, EngineError, Event, InvalidRequest, Request, ToolSpec
from shepherd.engine.snapshots import file as snapshot
from shepherd.engine.stats import CacheStats
from shepherd.fleet.desk import Desk
from shepherd.fleet.leases import Fleet
from shepherd.fleet.opening import Loading, Opened, Opener, Progress, in_log
from shepherd.fleet.roster import Entry, Roster, budget_of
from shepherd.memory.forget import Removed
from shepherd.memory.scope import shelf_of
from shepherd.memory.store import MemoryStore
from shepherd.tools import choice
from shepherd.tools.groups import GROUPS
from shepherd.tools.memory import MemoryTools

if TYPE_CHECKING:
    from shepherd.backends.local import LocalBackend

__all__ = ["App", "Facts", "Loading", "drop_snapshots", "open_session", "snapshot_folder"]

logger = logging.getLogger(__name__)

RESULT_TOKENS = 2048
"""What one result of a tool may take of the context at most, and never more than a quarter of it."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What a banner says of the default cache."""

    backend: str
    """Such as `llama.cpp (CPU)`."""
    model: str
    """The file's stem."""
    path: Path
    n_ctx: int
    embedded: bool
    dialect: str
    cache: str


class App:
    """All parts of one configuration. Made unloaded; `load` once, `aclose` once."""

    def __init__(
        self, config: Config, *, cache_folder: Path | None = None, env: Mapping[str, str] | None = None
    ) -> None:
        """Look at the configuration only; no file is opened.

        Raises: `ConfigError` for what this version cannot run.
        """
        _refuse_what_cannot_run(config)
        for sentence in _without_effect(config):
            logger.warning("%s", sentence)
        self.config = config
        self._cache_folder = cache_folder or Path(platformdirs.user_cache_dir("shepherd"))
        self._env = os.environ if env is None else env
        self._shelf = shelf_of(config.memory, self._env)
        self._meanings: Meanings | None = None
        self._desk: Desk | None = None
        self._opener: Opener | None = None
        self._is_ready = False
        self._facts: Facts | None = None
        self._failure = ""
        self._starting: Progress | None = None
        """Whom to tell of progress during `load`; afterwards it goes to the log."""
        self._fingerprints: dict[str, str] = {}
        """By cache, of the runtimes that have been: theirs are the conversations on disk."""
        self._preparing = threading.Lock()
        self._closed = False

    async def load(self, on_progress: Callable[[Loading], None] | None = None, *, lazy: bool = False) -> None:
        """Look at all models and open those that are loaded at the start; takes long.

        `on_progress` is called from another thread. `lazy`: the default model may wait for its first request, where
        the configuration says so.

        Raises: `ConfigError`, `EngineError` with one sentence that names the file.
        """
        self._starting = on_progress or (lambda loading: None)
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
                await asyncio.to_thread(self._learn_facts, desk)
                self._is_ready = True
        except Exception as error:
            if self._closed:  # stopped while it was loading: nobody waits for it
                return
            self._failure = str(error)
            raise
        finally:
            self._starting = None

    async def aclose(self) -> None:
        """Stop every engine, then free the weights, then close the memory."""
        await asyncio.to_thread(self._close)

    # what is asked of models; all of it raises `EngineDown` before `load` is done and after `aclose`

    def stream(self, request: Request, *, endpoint: str = "") -> AsyncGenerator[Event, None]:
        """The answer of whichever cache the routes choose, its model loaded if need be; see `Backend.stream`.

        A request that says nothing at all loads its model, or unloads it if it is to stay for no time.
        """
        return self._ready().stream(request, endpoint=endpoint)

    async def count(self, request: Request, *, endpoint: str = "") -> int:
        """How many tokens the prompt of `request` has."""
        return await self._ready().count(request, endpoint=endpoint)

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
        name = self._facts.path.name if self._facts else Path(self.config.models[0].path).name
        caches = {
            cache: CacheUsage(backend.engine.n_ctx, backend.engine.used, backend.model)
            for cache, backend in self._backends().items()
        }
        if self._failure:
            return Health("error", backend, name, caches, self._failure)
        if not self._is_ready:
            return Health("loading", backend, name, caches, "the model is still loading")
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
        """What is running by default. Raises: `EngineDown` before `load` is done."""
        if self._facts is None:
            raise EngineDown(self._failure or "the model is still loading")
        return self._facts

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
        return self._shelf.of(user)

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
        store = await asyncio.to_thread(self._shelf.of, user)
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

    def session(
        self, *, system: str | None = None, user: str | None = None, recall: bool | None = None, tools: bool = True
    ) -> Session:
        """A new conversation on the default cache, whose model stays loaded from now on.

        `user`: whose memory it has; None = none. `recall`: whether memories are offered to the model unasked, by
        default as the configuration says. `tools`: whether it has tools that the configuration does not name.

        Raises: `EngineDown` before `load` is done; `ConfigError` for a model that cannot chat, and when the memory that
        was configured cannot be opened. One that nobody has chosen is done without, with a warning: a machine may have
        no place to write to.
        """
        facts, config, desk = self.facts(), self.config, self._ready()
        if not facts.cache:
            raise ConfigError(f"{facts.path.name} makes vectors of texts and cannot chat; choose another model")
        opened = desk.fleet.hold(desk.entry_of(facts.cache).name)
        try:
            store = self._shelf.of(user)
        except ConfigError as error:
            if config.memory.database_path is not None:
                raise
            logger.warning("this conversation goes without memory: %s", error)
            store = user = None
        if recall is None:
            recall = config.memory.recall is not False
        toolbox = self._toolbox(store, opened.backends[facts.cache]) if store else None
        return Session(
            opened.answering[facts.cache],
            model=facts.model,
            n_ctx=facts.n_ctx,
            system=config.system if system is None else system,
            max_tokens=config.max_tokens,
            on_full=config.caches[0].overflow or "evict",
            toolbox=toolbox if tools or config.tools.enabled else None,
            user=user,
            archive=config.memory.enable_archival and user is not None,
            recall=recall,
        )

    def _toolbox(self, store: MemoryStore, backend: LocalBackend) -> MemoryTools | None:
        """The tools to be offered; None when there are none: a call of such a model is nobody's to answer."""

        def cost(spec: ToolSpec) -> int:
            return backend.count_tokens(f"{spec.name} {spec.description} {json.dumps(spec.parameters)}")

        tools = self.config.tools
        chosen = choice.choose(GROUPS, enabled=tools.enabled, disabled=tools.disabled, n_ctx=backend.n_ctx, cost=cost)
        if not chosen:
            return None
        return MemoryTools(
            store,
            names={spec.name for spec in chosen},
            budget=min(RESULT_TOKENS, backend.n_ctx // 4),
            count=backend.count_tokens,
        )

    def _ready(self) -> Desk:
        """Raises: `EngineDown`."""
        if self._desk is None or not self._is_ready:
            raise EngineDown(self._failure or "the model is still loading; try again in a moment")
        return self._desk

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
                self.config, shelf=self._shelf, folder=self._snapshots, use_extra_bufts=use_extra_bufts
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
        if self._starting is not None:
            opened = opener.open(entry, self._starting)
        else:
            opened = self._open_later(opener, entry)
        self._fingerprints |= opened.fingerprints
        return opened

    def _open_later(self, opener: Opener, entry: Entry) -> Opened:
        """Load a model on demand, and tell the log."""
        began_s = time.monotonic()
        logger.info("loading model %r: %.1f MiB", entry.name, entry.terms.n_bytes / 2**20)
        try:
            opened = opener.open(entry, in_log(entry.name))
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
        self._shelf = self._opener.shelf = shelf_of(self.config.memory, self._env, opened.embedder)
        self._meanings = Meanings(self._shelf)

    def _test_library(self, on_progress: Progress) -> bool:
        from shepherd.engine import selftest  # noqa: PLC0415 - loads the native library

        on_progress(Loading("selftest", "native library", 0.0))
        verdict = selftest.verdict(self._cache_folder)
        on_progress(Loading("selftest", "native library", 1.0))
        if not verdict.use_extra_bufts:
            logger.warning("%s", verdict.detail)
        return verdict.use_extra_bufts

    def _learn_facts(self, desk: Desk) -> None:
        cache = self.config.caches[0]
        entry = desk.entry_of(cache.name)
        assert entry.header is not None
        backend = self._backends().get(cache.name)
        self._facts = Facts(
            backend=_backend_label(),
            model=entry.header.path.stem,
            path=entry.header.path,
            n_ctx=backend.n_ctx if backend else entry.card.n_ctx,
            embedded=entry.model.path == "embedded",
            dialect=backend.dialect.name if backend else "",
            cache="" if entry.makes_vectors else cache.name,
        )

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
async def open_session(model: str = "embedded", *, system: str | None = None) -> AsyncIterator[Session]:
    """A conversation with `model`: a path, a model's name, `hf:owner/repo`, `ollama:name`, or `embedded`.

    Loads the model and frees it at the end of the block. Environment and configuration files are not read.

    Raises: `ConfigError`, `EngineError` when it cannot be loaded.
    """
    config = configuration.load(flags={"model": model}, env={}, cwd=Path.cwd(), user_dir=Path.cwd(), read_files=False)
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


def _without_effect(config: Config) -> Iterator[str]:
    """What was asked for and is not there yet: said once, never ignored in silence."""
    if missing := choice.unknown(config.tools.enabled or (), GROUPS):
        yield f"tools that are not available yet cannot be enabled: {', '.join(missing)}"
    if config.mcp_servers:
        yield "MCP servers are not available yet; those configured are not started"


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


def _backend_label() -> str:
    from shepherd.engine.llamacpp import devices  # noqa: PLC0415 - loads the native library

    found = devices()
    return f"llama.cpp ({found[0] if found else 'CPU'})"
