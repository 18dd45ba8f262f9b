"""Loads one model: its weights once, and over them a context, an engine and a back end for each of its caches.

    ModelEntry ─▶ trial ─▶ Weights ─▶ context ─▶ Engine ─▶ LocalBackend ─▶ MemoryBackend   for each cache
                             └─▶ EmbeddingModel                                           for a model that embeds

Not here: when a model is loaded (`model_pool.py`), and how large its caches are (`model_registry.py`).
"""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from shepherd.agent.archiving import Archiving
from shepherd.agent.with_memory import MemoryBackend
from shepherd.app.derivation import derived_dialect
from shepherd.app.model_pool import LoadCancelled
from shepherd.app.model_registry import CachePlan, ModelEntry
from shepherd.backends.local.backend import LocalBackend, LocalOptions
from shepherd.backends.local.chat_template import ChatFormat, TemplateSources, find_chat_format
from shepherd.backends.local.constrain import Constraints
from shepherd.config import Config, ModelConfig
from shepherd.dialects.render.prompt import end_of_answer
from shepherd.engine.engine import Engine
from shepherd.engine.kv.pool import Tiers
from shepherd.engine.llamacpp import selftest, trial
from shepherd.engine.llamacpp.child import Unwanted
from shepherd.engine.scheduler import EngineOptions
from shepherd.memory.users import UserStores
from shepherd.models import gguf

if TYPE_CHECKING:
    from shepherd.engine.llamacpp.embedding import EmbeddingModel
    from shepherd.engine.llamacpp.weights import Weights

logger = logging.getLogger(__name__)

SWITCH_INTERVAL_S = 0.0002

IDLE_SEQUENCES = 28
"""Idle conversations that a cache can hold, where one more costs nothing."""
IDLE_STATES = 2
"""The same where each one takes the memory of a whole state."""


@dataclass(frozen=True, slots=True)
class LoadProgress:
    """How far the loading is."""

    stage: Literal["selftest", "trial", "weights", "context"]
    name: str
    fraction: float
    """0.0 to 1.0."""


Progress = Callable[[LoadProgress], None]


@dataclass(slots=True, eq=False)
class LoadedModel:
    """A model in memory. `close` once, when nothing uses it any more."""

    name: str
    weights: Weights
    backends: dict[str, LocalBackend] = field(default_factory=dict)
    """By cache."""
    memory_backends: dict[str, MemoryBackend] = field(default_factory=dict)
    """By cache, its back end with the memory beside it."""
    fingerprints: dict[str, str] = field(default_factory=dict)
    """By cache: identifies its conversations on disk."""
    embedder: EmbeddingModel | None = None

    async def forget(self) -> None:
        """Drop all texts of users: kept answers and prompts, and the caches with their saved copies."""
        for remembering in self.memory_backends.values():
            remembering.forget()
        for backend in self.backends.values():
            backend.forget()
            await backend.engine.clear()

    def close(self) -> None:
        """Save what survives, stop the engines, free the memory; but not memory that a stalled thread may use."""
        ended: list[bool] = []
        with contextlib.ExitStack() as stack:  # if one fails, the others are freed all the same
            stack.callback(lambda: self.weights.close() if all(ended) else None)
            if self.embedder is not None:
                stack.callback(self.embedder.close)
            for backend in self.backends.values():
                stack.callback(lambda backend: ended.append(backend.engine.close()), backend)
        self.backends.clear()
        self.memory_backends.clear()


class ModelLoader:
    """Loads models of one configuration."""

    def __init__(
        self, config: Config, *, stores: UserStores, archiving: Archiving, folder: Path, cache_folder: Path,
        use_extra_bufts: bool,
    ) -> None:  # fmt: skip
        """`folder`: conversations on disk, if they are kept. `cache_folder`: results of trials."""
        self.config = config
        self.stores = stores
        self._archiving = archiving
        self._folder = folder
        self._cache_folder = cache_folder
        self._use_extra_bufts = use_extra_bufts

    def open(
        self, entry: ModelEntry, on_progress: Progress, is_wanted: Callable[[], bool] = lambda: True
    ) -> LoadedModel:
        """Load a model; takes long. Raises: `ConfigError`, `EngineError`, `LoadCancelled`."""
        from shepherd.engine.llamacpp.weights import Weights  # noqa: PLC0415 - loads the native library

        assert entry.header is not None
        self._try(entry, entry.header.path, on_progress, is_wanted)
        # An engine thread that returns from the library must not wait 5 ms, the default, until the event loop releases
        # the interpreter: with a small model that is several tokens.
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        weights = Weights.load(
            entry.header.path,
            gpu_layers=entry.model.gpu_layers,
            use_extra_bufts=self._use_extra_bufts,
            progress=lambda fraction: on_progress(LoadProgress("weights", entry.name, fraction)),
        )
        opened = LoadedModel(entry.name, weights)
        try:
            if entry.makes_vectors:
                self._open_embedder(entry, opened)
            else:
                self._open_caches(entry, opened, entry.header, on_progress)
        except BaseException:
            opened.close()
            raise
        return opened

    def _try(self, entry: ModelEntry, path: Path, on_progress: Progress, is_wanted: Callable[[], bool]) -> None:
        """Let a child process load the model first, unless this build has loaded it before."""
        on_progress(LoadProgress("trial", entry.name, 0.0))
        try:
            trial.prove(
                path,
                self._cache_folder,
                build=selftest.build_id(),
                makes_vectors=entry.makes_vectors,
                pooling=entry.model.pooling,
                is_wanted=is_wanted,
            )
        except Unwanted:
            raise LoadCancelled from None

    def _open_embedder(self, entry: ModelEntry, opened: LoadedModel) -> None:
        from shepherd.engine.llamacpp.embedding import EmbeddingModel  # noqa: PLC0415 - as above

        opened.embedder = embedder = EmbeddingModel(
            opened.weights, pooling=entry.model.pooling, n_tokens=entry.n_tokens, n_threads=entry.model.n_threads
        )
        logger.info(
            "model %r: %s makes vectors of %d numbers, pooling %s",
            str(entry.key), opened.weights.path.name, embedder.dim, embedder.pooling,
        )  # fmt: skip

    def _open_caches(self, entry: ModelEntry, opened: LoadedModel, header: gguf.Header, on_progress: Progress) -> None:
        chat_format = _chat_format(entry.model, opened.weights, header)
        # Not every file names the token that its template ends a turn with as an end token.
        end = end_of_answer(chat_format.template, chat_format.dialect)
        ends = {special.id for special in opened.weights.specials if end and special.text == end}
        # One for all caches: it holds the whole vocabulary.
        constraints = Constraints(opened.weights, opened.weights.end_tokens | ends, chat_format.dialect)
        for plan in entry.plans:
            on_progress(LoadProgress("context", plan.cache.name, 0.0))
            self._open_cache(entry.model, plan, opened, chat_format, constraints)
            on_progress(LoadProgress("context", plan.cache.name, 1.0))

    def _open_cache(
        self,
        model: ModelConfig,
        plan: CachePlan,
        opened: LoadedModel,
        chat: ChatFormat,
        constraints: Constraints,
    ) -> None:
        from shepherd.engine.llamacpp.runtime import ContextOptions, LlamaRuntime  # noqa: PLC0415 - as above

        cache, weights, kv = plan.cache, opened.weights, self.config.kv
        # States, and the pools of narrow windows, are allocated for each possible sequence.
        is_dear = weights.is_recurrent or not kv.swa_full
        options = ContextOptions(
            n_ctx=plan.n_ctx,
            n_seq=cache.sequences + (IDLE_STATES if is_dear else IDLE_SEQUENCES),
            n_outputs=cache.sequences,
            swa_full=kv.swa_full,
            n_batch=model.n_batch,
            n_ubatch=model.n_ubatch,
            n_threads=model.n_threads,
            flash_attention=model.flash_attn,
            cache_type_k=plan.types[0],
            cache_type_v=plan.types[1],
        )
        runtime = LlamaRuntime(weights, options)
        engine = Engine(
            runtime,
            name=cache.name,
            show=weights.piece,
            options=EngineOptions(
                sequences=cache.sequences,
                queue=cache.queue,
                low_water=kv.low_water,
                n_positions=kv.n_positions,
                reuse_tail=kv.reuse_tail,
                stall_s=kv.stall_s,
                tiers=Tiers(kv.ram_bytes // len(self.config.caches), self._folder if kv.disk else None, kv.disk_bytes),
            ),
            constrainer=constraints.constrainer,
        )
        backend = LocalBackend(
            engine,
            weights,
            template=chat.template,
            with_tools=chat.with_tools,
            dialect=chat.dialect,
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
                shared_prefix=self.config.server.shared_prefix,
            ),
        )
        opened.backends[cache.name] = backend
        opened.memory_backends[cache.name] = MemoryBackend(backend, self.stores, self._archiving)
        if kv.disk:
            opened.fingerprints[cache.name] = runtime.fingerprint
            engine.wait_for_disk()  # the request that loads the model needs its conversation
        logger.info(
            "cache %r: %s, %d tokens for %d conversations at a time, memory: %s, dialect %s",
            cache.name, weights.path.name, engine.n_ctx, cache.sequences, runtime.memory.why, chat,
        )  # fmt: skip


def log_progress(name: str) -> Progress:
    """Writes the progress of a load to the log, a line per quarter."""
    logged = -inf

    def report(loading: LoadProgress) -> None:
        nonlocal logged
        if loading.stage == "weights" and (loading.fraction - logged >= 0.25 or loading.fraction == 1.0 > logged):
            logged = loading.fraction
            logger.info("loading model %r: %d %%", name, round(100 * loading.fraction))

    return report


def _chat_format(model: ModelConfig, weights: Weights, header: gguf.Header) -> ChatFormat:
    control = [special.text for special in weights.specials if special.control]
    sources = TemplateSources(
        weights.path, weights.chat_template, header.chat_templates, weights.bos_text, weights.eos_text, control
    )
    return find_chat_format(
        sources,
        template=Path(model.chat_template) if model.chat_template else None,
        dialect=model.dialect,
        key=f"models.{model.name}.chat_template",
        derive=derived_dialect,
    )
