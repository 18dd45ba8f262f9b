"""Loads one model: its weights once, and over them a context, an engine and a back end for each of its caches.

GGUF file  ─▶ trial ─▶ Weights ─▶ context ─▶ Engine ─▶ LocalBackend ─▶ MemoryBackend   for each cache
                         └─▶ EmbeddingModel                                           for a model that embeds
checkpoint ─▶ vocabulary, the library in a child ─▶ Engine ─▶ LocalBackend ─▶ MemoryBackend
"""

from __future__ import annotations

import contextlib
import gc
import logging
import sys
from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from shepherd.agent.archiving import Archiving
from shepherd.agent.with_memory import MemoryBackend
from shepherd.app import tensorrt
from shepherd.app.directory.entries import CachePlan, ModelEntry, chat_format, n_sequences
from shepherd.backends.local.backend import LocalBackend, LocalOptions
from shepherd.backends.local.chat_template import ChatFormat
from shepherd.backends.local.constrain import Constraints
from shepherd.backends.local.media import MediaLimits
from shepherd.config import Config, ModelConfig
from shepherd.core import ConfigError
from shepherd.core.dataclasses import dataclass, field, replace
from shepherd.core.edits import LeavingPolicy
from shepherd.dialects.render.prompt import end_of_answer
from shepherd.engine.base import Engine, MediaReader, Vocabulary
from shepherd.engine.kv.pool import Tiers
from shepherd.engine.llamacpp import selftest, trial
from shepherd.engine.scheduler import EngineOptions
from shepherd.engine.stats import CacheStats
from shepherd.memory.users import UserStores
from shepherd.models import gguf
from shepherd.models.checkpoint import Checkpoint
from shepherd.models.draft import DraftFile

if TYPE_CHECKING:
    from shepherd.engine.llamacpp.embedding import EmbeddingModel
    from shepherd.engine.llamacpp.model import CacheFacts, DraftOptions, ModelOptions
    from shepherd.engine.llamacpp.projector import Projector
    from shepherd.engine.llamacpp.remote import RemoteEmbedder, RemoteReranker
    from shepherd.engine.llamacpp.reranking import RerankModel

logger = logging.getLogger(__name__)

SWITCH_INTERVAL_S = 0.0002

LOW_WATER = 0.75
"""Share of the context that an eviction leaves, by default."""


@dataclass(frozen=True, slots=True)
class LoadProgress:
    stage: Literal["selftest", "trial", "weights", "context", "library"]
    name: str
    fraction: float
    """0.0 to 1.0."""
    total_bytes: int = 0
    """Of the weights, in that stage; 0 = not known."""


Progress = Callable[[LoadProgress], None]


@dataclass(slots=True, eq=False)
class LoadedModel:
    """A model in memory. `close` once, when nothing uses it any more."""

    name: str
    vocabulary: Vocabulary
    free: Callable[[], None]
    """Frees the weights, once no engine computes with them."""
    backends: dict[str, LocalBackend] = field(default_factory=dict)
    """By cache."""
    memory_backends: dict[str, MemoryBackend] = field(default_factory=dict)
    """By cache, its back end with the memory beside it."""
    fingerprints: dict[str, str] = field(default_factory=dict)
    """By cache: identifies its conversations on disk."""
    embedder: EmbeddingModel | RemoteEmbedder | None = None
    reranker: RerankModel | RemoteReranker | None = None
    reader: Projector | None = None
    """Where the model is in this process: that of a child is down with its engines."""
    adapter_hashes: tuple[str, ...] = ()
    """Of each adapter of its entry, in order."""
    ended: dict[str, CacheStats] = field(default_factory=dict)
    """By cache, the totals of all models that were closed; its loader's."""

    def stats(self) -> dict[str, CacheStats]:
        """By cache, its figures; a model that makes vectors or scores counts as one."""
        stats = {name: backend.engine.stats() for name, backend in list(self.backends.items())}
        if self.embedder is not None:
            stats[f"{self.name} (vectors)"] = self.embedder.stats()
        if self.reranker is not None:
            stats[f"{self.name} (scores)"] = self.reranker.stats()
        return stats

    def faults(self) -> list[str]:
        """Why an engine of it computes nothing, as sentences; empty: all work."""
        engines = [backend.engine for backend in list(self.backends.values())]
        parts = (*engines, self.embedder, self.reranker, self.reader)
        return [each.down for each in parts if each is not None and each.down]

    async def forget(self) -> None:
        """Drop all texts of users: kept answers and prompts, and the caches with their saved copies."""
        for remembering in self.memory_backends.values():
            remembering.forget()
        for backend in self.backends.values():
            backend.forget()
            await backend.engine.clear()

    def close(self) -> None:
        """Save what survives, stop the engines, free the memory; but not memory that a stalled thread may use."""
        nothing = CacheStats(0)
        self.ended |= {
            name: nothing.after(each).after(self.ended.get(name, nothing)) for name, each in self.stats().items()
        }
        ended: list[bool] = []
        with contextlib.ExitStack() as stack:  # if one fails, the others are freed all the same
            stack.callback(lambda: self.free() if all(ended) else None)
            engines = [backend.engine for backend in self.backends.values()]
            for each in (self.embedder, self.reranker, self.reader, *engines):  # the engines first: they use the others
                if each is not None:
                    stack.callback(lambda engine: ended.append(engine.close()), each)
        self.backends.clear()
        self.memory_backends.clear()
        gc.unfreeze()  # what is in circles can be collected again


class ModelLoader:
    def __init__(
        self, config: Config, *, stores: UserStores, archiving: Archiving, folder: Path, cache_folder: Path,
        use_extra_bufts: bool, isolates: bool,
    ) -> None:  # fmt: skip
        """`folder`: conversations on disk, if they are kept. `cache_folder`: results of trials. `isolates`: a model
        that does not say so computes in a process of its own."""
        self.config = config
        self.stores = stores
        self._archiving = archiving
        self._folder = folder
        self._cache_folder = cache_folder
        self._use_extra_bufts = use_extra_bufts
        self._isolates = isolates
        self.ended: dict[str, CacheStats] = {}
        """By cache, the totals of all models that were closed."""

    def open(
        self, entry: ModelEntry, on_progress: Progress, is_wanted: Callable[[], bool] = lambda: True
    ) -> LoadedModel:
        """Load a model; takes long. Raises: `ConfigError`, `EngineError`, `child.Cancelled`."""
        assert entry.header is not None
        if isinstance(entry.header, Checkpoint):
            return self._open_checkpoint(entry, entry.header, on_progress, is_wanted)
        return self._open_gguf(entry, entry.header, on_progress, is_wanted)

    def _open_gguf(
        self, entry: ModelEntry, header: gguf.Header, on_progress: Progress, is_wanted: Callable[[], bool]
    ) -> LoadedModel:
        from shepherd.engine.llamacpp.library import devices  # noqa: PLC0415 - loads the native library
        from shepherd.engine.llamacpp.model import LlamaModel  # noqa: PLC0415 - as above
        from shepherd.engine.llamacpp.remote import RemoteLlama  # noqa: PLC0415 - as above

        if not entry.model.rpc_servers:  # its own process may die: a trial would need all of its memory here
            self._try(entry, header.path, on_progress, is_wanted)
        for path in {plan.draft.header.path for plan in entry.plans if plan.draft is not None} - {header.path}:
            trial.prove(path, self._cache_folder, build=selftest.build_id(), is_wanted=is_wanted)
        # An engine thread that returns from the library must not wait 5 ms, the default, until the event loop releases
        # the interpreter: with a small model that is several tokens.
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        if entry.model.gpu_layers and not entry.model.rpc_servers and not devices():
            logger.warning(
                "model %r: gpu_layers = %d has no effect, since the library sees no GPU; 'shepherd doctor' says why",
                entry.name,
                entry.model.gpu_layers,
            )
        is_apart = self._isolates if entry.model.isolate is None else entry.model.isolate
        if entry.model.rpc_servers:
            if entry.model.isolate is False:
                raise ConfigError(
                    "a model that is spread over workers computes in a process of its own, since the library ends the "
                    "process that loses a worker; leave isolate out",
                    key=f"models.{entry.name}.isolate",
                )
            is_apart = True
        options = self._options(entry, header.path)

        def report(stage: str, fraction: float) -> None:
            on_progress(
                LoadProgress("weights", entry.name, fraction, header.size_bytes)
                if stage == "weights"
                else LoadProgress("context", stage, fraction)
            )

        weights = options.load(vocab_only=is_apart, progress=partial(report, "weights"))
        opened = LoadedModel(entry.name, weights, weights.close, ended=self.ended)
        try:
            # One for all caches: it holds the whole vocabulary.
            speech = _speech(entry.model, header, weights, weights.bos_text, weights.eos_text) if entry.chats else None
            made: LlamaModel | RemoteLlama
            if is_apart:
                if speech is not None:
                    options = replace(options, end_tokens=speech.end_tokens, spelled=speech.constraints.spelled)
                title = f"cache {options.caches[0].name!r}" if options.caches else f"model {entry.name!r}"
                made = RemoteLlama(options, title=title, is_wanted=is_wanted, report=report)
            else:
                constrainer = speech.constraints.constrainer if speech is not None else None
                made = LlamaModel(weights, options, constrainer=constrainer, report=report)
                opened.reader = made.reader
            engines: Sequence[Engine] = made.engines
            opened.free = partial(_free, made.free, weights.close)
            opened.embedder, opened.reranker = made.embedder, made.reranker
            opened.adapter_hashes = made.facts.adapters
            for plan, engine, facts in zip(entry.plans, engines, made.facts.caches, strict=True):
                assert speech is not None
                self._add_backend(entry, plan, opened, engine, speech, reader=made.reader, trained=facts.n_positions)
                if self.config.kv.disk:
                    opened.fingerprints[plan.cache.name] = facts.fingerprint
                self._tell(plan, engine.n_ctx, header.path.name, speech.chat, facts)
            if (pooled := made.facts.pooled) is not None:
                what = f"makes vectors of {pooled.width} numbers, pooling {pooled.pooling}"
                if opened.reranker is not None:
                    what = f"scores pairs of up to {pooled.n_tokens} tokens"
                logger.info("model %r: %s %s", str(entry.key), header.path.name, what)
        except BaseException:
            opened.close()
            raise
        # A collection that goes through all that was imported and loaded stops every thread for 0.1 s and more.
        gc.freeze()
        return opened

    def _options(self, entry: ModelEntry, path: Path) -> ModelOptions:
        from shepherd.engine.llamacpp.model import CacheOptions, ModelOptions  # noqa: PLC0415 - as above
        from shepherd.engine.llamacpp.runtime import ContextOptions  # noqa: PLC0415 - as above

        model, kv = entry.model, self.config.kv
        caches = tuple(
            CacheOptions(
                plan.cache.name,
                ContextOptions(
                    n_ctx=plan.n_ctx,
                    # States, and the pools of narrow windows, are allocated for each possible sequence.
                    n_seq=n_sequences(plan.cache, is_dear=not kv.swa_full),
                    n_outputs=plan.cache.sequences,
                    swa_full=kv.swa_full,
                    n_batch=model.n_batch,
                    n_ubatch=model.n_ubatch,
                    n_threads=model.n_threads,
                    n_threads_batch=model.n_threads_batch,
                    flash_attention=model.flash_attn,
                    cache_type_k=plan.cells.types[0],
                    cache_type_v=plan.cells.types[1],
                    repeatable=plan.cache.repeatable,
                ),
                EngineOptions(
                    sequences=plan.cache.sequences,
                    queue=plan.cache.queue,
                    low_water=LOW_WATER if kv.low_water is None else kv.low_water,
                    n_positions=kv.n_positions,
                    reuse_tail=kv.reuse_tail,
                    stall_s=kv.stall_s,
                    speculate=plan.draft is not None if plan.cache.speculate is None else plan.cache.speculate,
                    tiers=Tiers(
                        kv.ram_bytes // len(self.config.caches), self._folder if kv.disk else None, kv.disk_bytes
                    ),
                    checkpoint_bytes=kv.checkpoint_bytes // len(self.config.caches),
                ),
                n_seq_recurrent=n_sequences(plan.cache, is_dear=True),
                draft=_draft_options(plan.draft, model) if plan.draft is not None else None,
            )
            for plan in entry.plans
        )
        projector = entry.projector
        sees = projector is not None and (projector.takes_images or projector.takes_audio)
        return ModelOptions(
            path,
            "chat" if entry.chats else "scores" if entry.card.kind == "reranker" else "vectors",
            caches if entry.chats else (),
            gpu_layers=model.gpu_layers,
            use_extra_bufts=self._use_extra_bufts and model.repack is not False,
            mmap=model.mmap,
            mlock=bool(model.mlock),
            override_tensor=model.override_tensor,
            rpc_servers=model.rpc_servers,
            n_threads=model.n_threads,
            n_threads_batch=model.n_threads_batch,
            adapters=entry.adapters.adapters if entry.adapters is not None else (),
            projector=projector.path if projector is not None and sees else None,
            pooling=model.pooling,
            n_tokens=entry.n_tokens,
            stall_s=kv.stall_s,
        )

    def _try(self, entry: ModelEntry, path: Path, on_progress: Progress, is_wanted: Callable[[], bool]) -> None:
        """Let a child process load the model first, unless this build has loaded it before."""
        on_progress(LoadProgress("trial", entry.name, 0.0))
        trial.prove(
            path,
            self._cache_folder,
            build=selftest.build_id(),
            makes_vectors=not entry.chats,
            pooling="rank" if entry.card.kind == "reranker" else entry.model.pooling,
            projector=entry.projector.path if entry.projector is not None else None,
            is_wanted=is_wanted,
        )

    def _open_checkpoint(
        self, entry: ModelEntry, found: Checkpoint, on_progress: Progress, is_wanted: Callable[[], bool]
    ) -> LoadedModel:
        from shepherd.engine.trtllm.vocabulary import CheckpointVocabulary  # noqa: PLC0415 - few models are checkpoints

        (plan,) = entry.plans
        on_progress(LoadProgress("library", entry.name, 0.0))
        vocabulary = CheckpointVocabulary(found)
        speech = _speech(entry.model, found, vocabulary, vocabulary.bos_text, vocabulary.eos_text)
        engine = tensorrt.open_engine(
            entry.model,
            found,
            self.config,
            plan.cache,
            n_ctx=plan.n_ctx,
            end_tokens=speech.end_tokens,
            folder=self._cache_folder,
            is_wanted=is_wanted,
        )
        opened = LoadedModel(entry.name, vocabulary, lambda: None, ended=self.ended)
        self._add_backend(entry, plan, opened, engine, speech, trained=found.n_ctx_train)
        on_progress(LoadProgress("library", entry.name, 1.0))
        logger.info(
            "cache %r: %s with TensorRT-LLM, %d tokens for %d conversations at a time, dialect %s",
            plan.cache.name, found.name, engine.n_ctx, plan.cache.sequences, speech.chat,
        )  # fmt: skip
        return opened

    def _tell(self, plan: CachePlan, n_ctx: int, file: str, chat: ChatFormat, facts: CacheFacts) -> None:
        """Log what is known of a cache now that it works."""
        cache, draft = plan.cache, plan.draft
        logger.info(
            "cache %r: %s, %d tokens for %d conversations at a time, memory: %s, dialect %s",
            cache.name, file, n_ctx, cache.sequences, facts.why, chat,
        )  # fmt: skip
        if draft is not None:
            logger.info("cache %r: %s drafts its answers, where that pays", cache.name, draft.header.path.name)
        if 0 < facts.n_positions < n_ctx:
            logger.warning(
                "cache %r has a context of %d tokens, and %s was trained for %d: behind them answers get worse; set "
                "n_ctx of [caches.%s] (--context-size) to %d or less",
                cache.name, n_ctx, file, facts.n_positions, cache.name, facts.n_positions,
            )  # fmt: skip
        if cache.window is not None and not facts.hole:
            logger.warning(
                "cache %r has a window, but its memory cannot have holes: when old turns leave, what stands behind "
                "them is computed again",
                cache.name,
            )

    def _add_backend(
        self,
        entry: ModelEntry,
        plan: CachePlan,
        opened: LoadedModel,
        engine: Engine,
        speech: _Speech,
        *,
        reader: MediaReader | None = None,
        trained: int = 0,
    ) -> None:
        model, cache, chat = entry.model, plan.cache, speech.chat
        backend = LocalBackend(
            engine,
            opened.vocabulary,
            template=chat.template,
            with_tools=chat.with_tools,
            dialect=chat.dialect,
            constraints=speech.constraints,
            reader=reader,
            model=model.name,
            options=LocalOptions(
                sampling=model.sampling,
                reserve=self.config.reserve,
                max_tokens=self.config.max_tokens,
                strict_max_tokens=self.config.strict_max_tokens,
                thinking=self.config.reasoning,
                on_full=cache.overflow or ("error" if cache.window is None else "evict"),
                n_window=None if cache.window is None else plan.n_window,
                repeatable=cache.repeatable,
                trained=trained,
                adapters=entry.adapters,
                adapter_hashes=opened.adapter_hashes,
                leaving=None if cache.window is None else LeavingPolicy(**cache.leaving),
                constrain_calls=model.constrain_calls,
                shared_prefix=self.config.server.shared_prefix,
                system_changes=self.config.kv.system_changes,
                media=MediaLimits(
                    self.config.images.limits if "vision" in entry.card.capabilities else None,
                    self.config.audio.limits if "audio" in entry.card.capabilities else None,
                ),
            ),
        )
        opened.backends[cache.name] = backend
        opened.memory_backends[cache.name] = MemoryBackend(backend, self.stores, self._archiving)


def _draft_options(draft: DraftFile, model: ModelConfig) -> DraftOptions:
    from shepherd.engine.llamacpp.model import DraftOptions  # noqa: PLC0415 - as above
    from shepherd.engine.llamacpp.runtime import ContextOptions  # noqa: PLC0415 - as above

    context = ContextOptions(
        draft.cells.n_ctx,
        n_seq=draft.cells.n_seq,
        n_ubatch=draft.cells.n_ubatch,
        n_threads=model.n_threads,
        n_threads_batch=model.n_threads_batch,
        flash_attention=model.flash_attn,
    )
    return DraftOptions(draft.header.path, context)


def _free(*steps: Callable[[], None]) -> None:
    for step in steps:
        step()


def log_progress(name: str) -> Progress:
    """Writes the progress of a load to the log, a line per quarter."""
    logged = -inf

    def report(loading: LoadProgress) -> None:
        nonlocal logged
        if loading.stage == "weights" and (loading.fraction - logged >= 0.25 or loading.fraction == 1.0 > logged):
            logged = loading.fraction
            logger.info("loading model %r: %d %%", name, round(100 * loading.fraction))

    return report


class _Speech(NamedTuple):
    """How a model writes."""

    chat: ChatFormat
    end_tokens: frozenset[int]
    """All that end an answer."""
    constraints: Constraints


def _speech(
    model: ModelConfig, header: gguf.Header | Checkpoint, vocabulary: Vocabulary, bos_text: str, eos_text: str
) -> _Speech:
    control = [special.text for special in vocabulary.specials if special.control]
    chat = chat_format(model, header, bos_text, eos_text, control)
    if not model.chat_template and header.chat_template is None:
        logger.warning("%s has no chat template: using that of %s", header.path.name, chat.origin)
    # Not every file names the token that its template ends a turn with as an end token.
    end = end_of_answer(chat.template, chat.dialect)
    ends = vocabulary.end_tokens | {special.id for special in vocabulary.specials if end and special.text == end}
    return _Speech(chat, ends, Constraints(vocabulary, ends, chat.dialect))
