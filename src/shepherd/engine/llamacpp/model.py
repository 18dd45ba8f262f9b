"""A whole model of llama.cpp: its weights once, and over them an engine for each cache, or a model of vectors.

    ModelOptions ─▶ weights, adapters, projector ─▶ LlamaModel ── engines, reader, embedder, reranker
                                                        └─ served ─▶ RemoteModel     in a child (`remote.py` asks it)

The same code makes a model in this process and in a child. Not here: what the options should be (`app/loading.py`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from shepherd.core.dataclasses import dataclass, replace
from shepherd.engine.draft_model import DraftModel
from shepherd.engine.engine import InProcessEngine
from shepherd.engine.grammar.mask import Constrainer
from shepherd.engine.kv.tiers.arena import Arena
from shepherd.engine.llamacpp.projector import Projector
from shepherd.engine.llamacpp.runtime import ContextOptions, LlamaRuntime, default_threads
from shepherd.engine.llamacpp.weights import Weights
from shepherd.engine.scheduler import EngineOptions
from shepherd.engine.stats import CacheStats
from shepherd.engine.watchdog import STALL_S
from shepherd.models.adapter import Adapter

if TYPE_CHECKING:
    from shepherd.engine.llamacpp.embedding import EmbeddingModel
    from shepherd.engine.llamacpp.pooled import Pooling
    from shepherd.engine.llamacpp.reranking import RerankModel

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CacheOptions:
    name: str
    context: ContextOptions
    engine: EngineOptions
    n_seq_recurrent: int
    """Sequences in place of the context's, where each takes the memory of a state."""
    draft: DraftOptions | None = None


@dataclass(frozen=True, slots=True)
class DraftOptions:
    """A model that guesses what the answers of a cache go on with."""

    path: Path
    context: ContextOptions


@dataclass(frozen=True, slots=True)
class ModelOptions:
    path: Path
    use: Literal["chat", "vectors", "scores"]
    caches: tuple[CacheOptions, ...] = ()
    gpu_layers: int | None = None
    use_extra_bufts: bool = True
    mmap: bool | None = None
    mlock: bool = False
    override_tensor: tuple[str, ...] = ()
    rpc_servers: tuple[str, ...] = ()
    """As those of `Weights.load`."""
    n_threads: int | None = None
    n_threads_batch: int | None = None
    adapters: tuple[Adapter, ...] = ()
    projector: Path | None = None
    """What lets it see images, or hear."""
    pooling: Pooling | None = None
    n_tokens: int | None = None
    stall_s: float = STALL_S
    """As those of `EmbeddingModel`; a child without a sign of life for about twice `stall_s` is killed."""
    end_tokens: frozenset[int] = frozenset()
    """All that end an answer."""
    spelled: tuple[str, ...] = ()
    """As that of `Constrainer`."""

    def load(self, *, vocab_only: bool = False, progress: Callable[[float], None] | None = None) -> Weights:
        """The weights, with the adapters; or their vocabulary alone. Raises: `EngineError`."""
        if vocab_only:
            return Weights.load(self.path, vocab_only=True, gpu_layers=0)
        weights = Weights.load(
            self.path,
            gpu_layers=self.gpu_layers,
            use_extra_bufts=self.use_extra_bufts,
            mmap=self.mmap,
            mlock=self.mlock,
            override_tensor=self.override_tensor,
            rpc_servers=self.rpc_servers,
            progress=progress,
        )
        try:
            for adapter in self.adapters:
                weights.add(adapter)
        except BaseException:
            weights.close()
            raise
        return weights


class CacheFacts(NamedTuple):
    """What is known of a cache when its context has been made."""

    fingerprint: str
    """Identifies its conversations on disk."""
    why: str
    """Of its memory: for a person."""
    hole: bool
    n_positions: int


class PooledFacts(NamedTuple):
    name: str
    width: int
    pooling: Pooling
    n_tokens: int


class ModelFacts(NamedTuple):
    adapters: tuple[str, ...] = ()
    """The hash of each, in order."""
    caches: tuple[CacheFacts, ...] = ()
    pooled: PooledFacts | None = None


class LlamaModel:
    """A model in this process, which owns its weights. `close` once."""

    def __init__(
        self,
        weights: Weights,
        options: ModelOptions,
        *,
        constrainer: Constrainer | None = None,
        arena: Arena | None = None,
        report: Callable[[str, float], None] = lambda stage, fraction: None,
    ) -> None:
        """`constrainer`: of this vocabulary, for answers that have a form. `arena`: see `Tiers`. `report`: gets the
        progress of the stage `context`. Raises: `EngineError`."""
        self.weights = weights
        self.engines: list[InProcessEngine] = []
        self.embedder: EmbeddingModel | None = None
        self.reranker: RerankModel | None = None
        self.reader: Projector | None = None
        self._drafts: dict[Path, Weights] = {}
        """The weights of draft models, by their files."""
        self.facts = ModelFacts(tuple(weights.added))
        try:
            if options.use == "chat":
                self._open_caches(options, constrainer, arena, report)
            else:
                self._open_pooled(options)
        except BaseException:
            self.close()
            raise

    def _open_caches(
        self,
        options: ModelOptions,
        constrainer: Constrainer | None,
        arena: Arena | None,
        report: Callable[[str, float], None],
    ) -> None:
        weights, facts = self.weights, []
        if options.projector is not None:
            self.reader = self._open_projector(options, options.projector)
        for cache in options.caches:
            report(cache.name, 0.0)
            context, engine = cache.context, cache.engine
            if weights.is_recurrent:
                context = replace(context, n_seq=cache.n_seq_recurrent)
            if arena is not None and engine.tiers.ram_bytes:
                engine = replace(engine, tiers=replace(engine.tiers, arena=arena))
            runtime = LlamaRuntime(weights, context, self.reader)
            made = InProcessEngine(
                runtime,
                name=cache.name,
                show=weights.piece,
                options=engine,
                constrainer=constrainer,
                draft_model=None if cache.draft is None else self._open_draft(options, cache.draft),
            )
            self.engines.append(made)
            if engine.tiers.folder is not None:
                made.wait_for_disk()  # the request that loads the model needs its conversation
            memory = runtime.memory
            facts.append(CacheFacts(runtime.fingerprint, memory.why, memory.hole, memory.n_positions))
            report(cache.name, 1.0)
        self.facts = self.facts._replace(caches=tuple(facts))

    def _open_draft(self, options: ModelOptions, draft: DraftOptions) -> DraftModel:
        if (weights := self._drafts.get(draft.path)) is None:
            # Its file is another one: what is said of the model's layers and tensors is not true of it.
            gpu_layers = options.gpu_layers if options.gpu_layers in {0, -1} else None
            own = replace(
                options, path=draft.path, adapters=(), override_tensor=(), rpc_servers=(), gpu_layers=gpu_layers
            )
            weights = self._drafts[draft.path] = own.load()
        runtime = LlamaRuntime(weights, draft.context)
        try:
            return DraftModel(runtime, min(weights.n_vocab, self.weights.n_vocab))
        except BaseException:
            runtime.close()
            raise

    def _open_projector(self, options: ModelOptions, path: Path) -> Projector:
        began_s = time.monotonic()
        n_threads = options.n_threads_batch or options.n_threads or default_threads(self.weights.n_params)
        use_gpu = options.gpu_layers != 0
        projector = Projector.load(path, self.weights, n_threads=n_threads, use_gpu=use_gpu, stall_s=options.stall_s)
        logger.info(
            "%s %s by %s, loaded in %.1f s",
            options.path.name,
            " and ".join(("sees",) * projector.takes_images + ("hears",) * projector.takes_audio),
            path.name,
            time.monotonic() - began_s,
        )
        return projector

    def _open_pooled(self, options: ModelOptions) -> None:
        from shepherd.engine.llamacpp.embedding import EmbeddingModel  # noqa: PLC0415 - few models need NumPy
        from shepherd.engine.llamacpp.reranking import RerankModel  # noqa: PLC0415 - as above

        common: Any = {"n_tokens": options.n_tokens, "n_threads": options.n_threads, "stall_s": options.stall_s}
        made: EmbeddingModel | RerankModel
        if options.use == "scores":
            self.reranker = made = RerankModel(self.weights, **common)
        else:
            assert options.pooling != "rank"
            self.embedder = made = EmbeddingModel(self.weights, pooling=options.pooling, **common)
        self.facts = self.facts._replace(pooled=PooledFacts(made.name, made.width, made.pooling, made.n_tokens))

    @property
    def down(self) -> str | None:
        """Why what is beside the engines computes nothing."""
        return next((part.down for part in self._watched() if part.down), None)

    def stats(self) -> CacheStats:
        """What makes vectors or scores has done."""
        made = self.embedder or self.reranker
        return CacheStats(0) if made is None else made.stats()

    def _watched(self) -> list[EmbeddingModel | RerankModel | Projector]:
        return [part for part in (self.embedder, self.reranker, self.reader) if part is not None]

    def close(self) -> None:
        """Close the engines that are open, and free the weights; but not memory that a stalled thread may use."""
        have_ended = [engine.close() for engine in self.engines]
        if all(have_ended):
            self.free()

    def free(self) -> None:
        """Free what is left when the engines have ended; but not weights that a stuck thread may use."""
        have_ended = [part.close() for part in self._watched()]
        if all(have_ended):
            for weights in (*self._drafts.values(), self.weights):
                weights.close()
