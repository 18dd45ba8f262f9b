"""The composition root: a configuration becomes running parts, started and stopped in order.

    Config ─▶ model files ─▶ Weights (once per model) ─▶ one context, engine and back end per cache ─▶ Router
           ─▶ memory file ─▶ Shelf (one store per user) ─▶ beside every back end ─────────────────────▶

Nothing below reads the configuration; nothing here decides what a part does.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import sys
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import platformdirs

from shepherd import config as configuration
from shepherd.agent.meanings import Meanings
from shepherd.agent.remember import Remembering
from shepherd.agent.session import Session
from shepherd.backends.base import CacheUsage, Health, ModelCard
from shepherd.backends.constrain import Constraints
from shepherd.backends.local import LocalBackend, LocalOptions
from shepherd.backends.router import Route, Router
from shepherd.backends.speech import Sources, Speech, find_speech
from shepherd.config import CacheConfig, Config, ModelConfig
from shepherd.core import ConfigError, EngineDown, Event, InvalidRequest, Request, ToolSpec
from shepherd.dialects.prompt import end_of_answer
from shepherd.engine import catalog, gguf
from shepherd.engine.engine import Engine
from shepherd.engine.pool import Tiers
from shepherd.engine.sizing import context_size
from shepherd.engine.stats import CacheStats
from shepherd.engine.work import EngineOptions
from shepherd.memory.forget import Removed
from shepherd.memory.scope import shelf_of
from shepherd.memory.store import MemoryStore
from shepherd.tools import choice
from shepherd.tools.groups import GROUPS
from shepherd.tools.memory import MemoryTools

if TYPE_CHECKING:
    from shepherd.engine.llamacpp import Weights
    from shepherd.engine.llamacpp.embedding import EmbeddingModel

logger = logging.getLogger(__name__)

RESULT_TOKENS = 2048
"""What one result of a tool may take of the context at most, and never more than a quarter of it."""

SWITCH_INTERVAL_S = 0.0002

IDLE_SEQUENCES = 28
"""Conversations that a cache can hold besides those that are computed, where one more costs nothing."""
IDLE_STATES = 2
"""The same where each one costs the memory of a whole state."""


@dataclass(frozen=True, slots=True)
class Loading:
    """How far the start has come."""

    stage: Literal["selftest", "weights", "context"]
    name: str
    fraction: float
    """0.0 to 1.0."""


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
        self._embedding: EmbeddingModel | None = None
        self._meanings: Meanings | None = None
        self._backends: dict[str, LocalBackend] = {}
        self._answering: dict[str, Remembering] = {}
        """By cache, its back end with the memory beside it."""
        self._weights: dict[str, Weights] = {}
        self._constraints: dict[str, Constraints] = {}
        self._cards: list[ModelCard] = []
        self._router: Router | None = None
        self._facts: Facts | None = None
        self._failure = ""
        self._loading = threading.Lock()
        self._closed = False

    async def load(self, on_progress: Callable[[Loading], None] | None = None) -> None:
        """Open every cache; takes long. `on_progress` is called from another thread.

        Raises: `ConfigError`, `EngineError` with one sentence that names the file.
        """
        try:
            await asyncio.to_thread(self._load, on_progress or (lambda loading: None))
        except Exception as error:
            self._failure = str(error)
            raise

    async def aclose(self) -> None:
        """Stop every engine, then free the weights, then close the memory."""
        await asyncio.to_thread(self._close)

    def stream(self, request: Request, *, endpoint: str = "") -> AsyncGenerator[Event, None]:
        """The answer of whichever cache the routes choose; see `Backend.stream`.

        Raises: `EngineDown` while the models are loading.
        """
        if self._router is None:
            raise EngineDown(self._failure or "the model is still loading; try again in a moment")
        return self._router.stream(request, endpoint=endpoint)

    def models(self) -> tuple[ModelCard, ...]:
        """One card per model that is loaded, in the order of the configuration."""
        return tuple(self._cards)

    def health(self) -> Health:
        """Whether requests can be answered now; cheap, from any thread."""
        default = self.config.caches[0]
        model = self._model(default).path
        name = self._facts.path.name if self._facts else Path(model).name
        caches = {
            cache: CacheUsage(backend.engine.n_ctx, backend.engine.used, backend.model)
            for cache, backend in list(self._backends.items())
        }
        if self._failure:
            return Health("error", self.config.backend, name, caches, self._failure)
        if self._router is None:
            return Health("loading", self.config.backend, name, caches, "the model is still loading")
        return Health("ok", self.config.backend, name, caches)

    def stats(self) -> dict[str, CacheStats]:
        """By name, the figures of every cache that is open; cheap, from any thread."""
        return {cache: backend.engine.stats() for cache, backend in list(self._backends.items())}

    def n_archived(self) -> int:
        """Messages that were archived since the start, of all users."""
        return self._shelf.n_archived

    async def clear(self, name: str) -> None:
        """Forget what a cache of `stats` holds, kept copies included; answers in the making go on.

        Raises: `EngineDown`.
        """
        backend = self._backends.get(name)
        if backend is None:
            raise EngineDown("the cache was closed meanwhile")
        await backend.engine.clear()

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
        for name, backend in list(self._backends.items()):
            self._answering[name].forget()
            backend.forget()
            await backend.engine.clear()
        await asyncio.to_thread(drop_snapshots, self._snapshots)
        return removed

    def facts(self) -> Facts:
        """What is running by default. Raises: `EngineDown` before `load` is done."""
        if self._facts is None:
            raise EngineDown(self._failure or "the model is still loading")
        return self._facts

    def session(
        self, *, system: str | None = None, user: str | None = None, recall: bool | None = None, tools: bool = True
    ) -> Session:
        """A new conversation on the default cache.

        `user`: whose memory it has; None = none. `recall`: whether memories are offered to the model unasked, by
        default as the configuration says. `tools`: whether it has tools that the configuration does not name.

        Raises: `EngineDown` before `load` is done; `ConfigError` when the memory that was configured cannot be opened.
        One that nobody has chosen is done without, with a warning: a machine may have no place to write to.
        """
        facts, config = self.facts(), self.config
        try:
            store = self._shelf.of(user)
        except ConfigError as error:
            if config.memory.database_path is not None:
                raise
            logger.warning("this conversation goes without memory: %s", error)
            store = user = None
        if recall is None:
            recall = config.memory.recall is not False
        return Session(
            self._answering[facts.cache],
            model=facts.model,
            n_ctx=facts.n_ctx,
            system=config.system if system is None else system,
            max_tokens=config.max_tokens,
            on_full=config.caches[0].overflow or "evict",
            toolbox=self._toolbox(store) if store and (tools or config.tools.enabled) else None,
            user=user,
            archive=config.memory.enable_archival and user is not None,
            recall=recall,
        )

    def _toolbox(self, store: MemoryStore) -> MemoryTools | None:
        """The tools to be offered; None when there are none: a call of such a model is nobody's to answer."""
        backend = self._backends[self.facts().cache]

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

    # loading, in its own thread

    def _load(self, on_progress: Callable[[Loading], None]) -> None:
        # An engine thread that comes back from the library must not wait 5 ms, the default, for the event loop to let
        # go of the interpreter: with a small model that is several tokens.
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        with self._loading:
            headers = self._check_files()
            use_extra_bufts = self._test_library(on_progress)
            self._open_embedding(use_extra_bufts, on_progress)
            for cache in self.config.caches:
                if self._closed:
                    return
                self._open_cache(cache, headers, use_extra_bufts, on_progress)
            self._answering = {name: Remembering(backend, self._shelf) for name, backend in self._backends.items()}
            self._router = Router(self._answering, [_route(rule, self.config.memory) for rule in self.config.routes])

    def _open_embedding(self, use_extra_bufts: bool, on_progress: Callable[[Loading], None]) -> None:
        """Load the model that makes vectors, if one is configured, and keep making those that are missing."""
        if (spec := self.config.memory.embedding_model) is None:
            return
        from shepherd.engine.llamacpp.embedding import EmbeddingModel  # noqa: PLC0415 - as above

        path = catalog.find(spec, env=self._env, home=Path.home(), cwd=Path.cwd())
        on_progress(Loading("weights", path.stem, 0.0))
        self._embedding = EmbeddingModel.load(path, n_threads=1, use_extra_bufts=use_extra_bufts)
        on_progress(Loading("weights", path.stem, 1.0))
        self._shelf.close()
        self._shelf = shelf_of(self.config.memory, self._env, self._embedding)
        self._meanings = Meanings(self._shelf)

    def _check_files(self) -> dict[str, gguf.Header]:
        """Read every model's header before anything is loaded: a wrong path must not cost a minute."""
        used = {cache.model for cache in self.config.caches}
        return {model.name: gguf.read_header(self._find(model)) for model in self.config.models if model.name in used}

    def _find(self, model: ModelConfig) -> Path:
        return catalog.find(model.path, env=self._env, home=Path.home(), cwd=Path.cwd())

    def _test_library(self, on_progress: Callable[[Loading], None]) -> bool:
        from shepherd.engine import selftest  # noqa: PLC0415 - loads the native library

        on_progress(Loading("selftest", "native library", 0.0))
        verdict = selftest.verdict(self._cache_folder)
        on_progress(Loading("selftest", "native library", 1.0))
        if not verdict.use_extra_bufts:
            logger.warning("%s", verdict.detail)
        return verdict.use_extra_bufts

    def _open_cache(
        self,
        cache: CacheConfig,
        headers: Mapping[str, gguf.Header],
        use_extra_bufts: bool,
        on_progress: Callable[[Loading], None],
    ) -> None:
        from shepherd.engine.llamacpp import ContextOptions, LlamaRuntime  # noqa: PLC0415 - as above

        model = self._model(cache)
        header = headers[model.name]
        type_k = cache.cache_type_k or model.cache_type_k or "f16"
        type_v = cache.cache_type_v or model.cache_type_v or "f16"
        n_ctx = context_size(
            header, cache=cache.name, asked=cache.n_ctx, types=(type_k, type_v), is_loaded=model.name in self._weights
        )
        weights = self._weights.get(model.name) or self._load_weights(model, header, use_extra_bufts, on_progress)
        on_progress(Loading("context", cache.name, 0.0))
        speech = _speech(model, weights, header)
        # States, and the pools of narrow windows, are made for each sequence there may be.
        is_dear = weights.is_recurrent or not self.config.kv.swa_full
        options = ContextOptions(
            n_ctx=n_ctx,
            n_seq=cache.sequences + (IDLE_STATES if is_dear else IDLE_SEQUENCES),
            n_outputs=cache.sequences,
            swa_full=self.config.kv.swa_full,
            n_batch=model.n_batch,
            n_ubatch=model.n_ubatch,
            n_threads=model.n_threads,
            flash_attention=model.flash_attn,
            cache_type_k=type_k,
            cache_type_v=type_v,
        )
        runtime = LlamaRuntime(weights, options)
        constraints = self._constraints_of(model.name, weights, speech)
        engine = Engine(
            runtime,
            name=cache.name,
            show=weights.piece,
            options=self._engine_options(cache),
            constrainer=constraints.constrainer,
        )
        self._backends[cache.name] = LocalBackend(
            engine,
            weights,
            template=speech.template,
            with_tools=speech.with_tools,
            dialect=speech.dialect,
            constraints=constraints,
            model=model.name,
            options=LocalOptions(
                sampling=model.sampling,
                reserve=self.config.reserve,
                max_tokens=self.config.max_tokens,
                strict_max_tokens=self.config.strict_max_tokens,
                thinking=self.config.thinking,
                on_full=cache.overflow or "error",
                constrain_calls=model.constrain_calls,
            ),
        )
        if all(card.id != model.name for card in self._cards):
            created = int(weights.path.stat().st_mtime)
            self._cards.append(ModelCard(model.name, engine.n_ctx, created, weights.description))
        if self._facts is None:
            self._facts = Facts(
                backend=_backend_label(),
                model=weights.path.stem,
                path=weights.path,
                n_ctx=engine.n_ctx,
                embedded=model.path == "embedded",
                dialect=speech.dialect.name,
                cache=cache.name,
            )
        logger.info(
            "cache %r: %s, %d tokens for %d conversations at a time, memory: %s, dialect %s",
            cache.name, weights.path.name, engine.n_ctx, cache.sequences, runtime.memory.why, speech,
        )  # fmt: skip
        on_progress(Loading("context", cache.name, 1.0))

    def _constraints_of(self, model: str, weights: Weights, speech: Speech) -> Constraints:
        """One for all caches of a model: it holds the whole vocabulary."""
        if model not in self._constraints:
            # Not every file names the token that its template ends a turn with as an end token.
            end = end_of_answer(speech.template, speech.dialect)
            ends = {special.id for special in weights.specials if end and special.text == end}
            self._constraints[model] = Constraints(weights, weights.end_tokens | ends, speech.dialect)
        return self._constraints[model]

    def _engine_options(self, cache: CacheConfig) -> EngineOptions:
        kv = self.config.kv
        return EngineOptions(
            sequences=cache.sequences,
            queue=cache.queue,
            low_water=kv.low_water,
            n_positions=kv.n_positions,
            reuse_tail=kv.reuse_tail,
            tiers=Tiers(kv.ram_bytes // len(self.config.caches), self._snapshots if kv.disk else None, kv.disk_bytes),
        )

    @property
    def _snapshots(self) -> Path:
        return snapshot_folder(self.config, self._cache_folder)

    def _load_weights(
        self,
        model: ModelConfig,
        header: gguf.Header,
        use_extra_bufts: bool,
        on_progress: Callable[[Loading], None],
    ) -> Weights:
        from shepherd.engine.llamacpp import Weights  # noqa: PLC0415 - as above

        self._weights[model.name] = weights = Weights.load(
            header.path,
            gpu_layers=model.gpu_layers,
            use_extra_bufts=use_extra_bufts,
            progress=lambda fraction: on_progress(Loading("weights", model.name, fraction)),
        )
        return weights

    def _model(self, cache: CacheConfig) -> ModelConfig:
        return next(model for model in self.config.models if model.name == cache.model)

    def _close(self) -> None:
        self._closed = True
        with self._loading:
            for backend in self._backends.values():
                backend.engine.close()
            for weights in self._weights.values():
                weights.close()
            self._backends.clear()
            self._weights.clear()
            self._constraints.clear()
            self._answering.clear()
            self._router = None
            if self._meanings is not None:
                self._meanings.close()
            self._shelf.close()
            if self._embedding is not None:
                self._embedding.close()


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
    )


def _speech(model: ModelConfig, weights: Weights, header: gguf.Header) -> Speech:
    """How to speak to this model. Raises: `ConfigError` without a usable template."""
    control = [special.text for special in weights.specials if special.control]
    sources = Sources(
        weights.path, weights.chat_template, header.chat_templates, weights.bos_text, weights.eos_text, control
    )
    return find_speech(
        sources,
        template=Path(model.chat_template) if model.chat_template else None,
        dialect=model.dialect,
        key=f"models.{model.name}.chat_template",
    )


def _backend_label() -> str:
    from shepherd.engine.llamacpp import devices  # noqa: PLC0415 - loads the native library

    found = devices()
    return f"llama.cpp ({found[0] if found else 'CPU'})"
