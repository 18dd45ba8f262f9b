"""A model of llama.cpp in a child process: what the child serves, and what stands for it in this process.

    this process: RemoteLlama(options) ─▶ ModelProcess ─▶ child: serve(options) ─▶ LlamaModel
                    engines, reader, embedder, reranker ── calls ──▶ the same

Numbers cross as bytes: nothing here builds objects of another library from what a child sends.
"""

from __future__ import annotations

import os
import signal
import sys
from array import array
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from shepherd.core.lru import LruCache
from shepherd.core.pairs import Pairs, Scores
from shepherd.engine.base import Job, Media
from shepherd.engine.grammar.mask import Constrainer
from shepherd.engine.llamacpp.model import LlamaModel, ModelFacts, ModelOptions, PooledFacts
from shepherd.engine.llamacpp.projector import MOST_READ, media_of, name_of
from shepherd.engine.llamacpp.trial import SLOWEST_BYTES_PER_S, TIMEOUT_S
from shepherd.engine.stats import CacheStats
from shepherd.engine.worker.messages import BEAT_S, RemoteModel, Workplace
from shepherd.engine.worker.model_process import ChildEngine, ModelProcess, Program, Timeouts
from shepherd.models import gguf

if TYPE_CHECKING:
    from shepherd.engine.llamacpp.embedding import Embedded, Input, Vectors

SERVE = f"{__name__}:serve"
OOM_SCORE = "500"
"""When memory runs out, the child is killed before its parent, which starts another one."""
USUAL = Timeouts()
LEAST_S = 3 * BEAT_S
"""A child that does nothing, or loads, sends once in `BEAT_S`: a shorter silence says nothing."""


# -- in the child ------------------------------------------------------------------------------------------------------


def serve(options: ModelOptions, workplace: Workplace) -> RemoteModel:
    """The factory. Raises: `EngineError`."""
    for name in ("SIGTERM", "SIGINT", "SIGHUP"):  # a system that stops all processes of a server asks its parent too
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    with suppress(OSError):  # only Linux has it
        Path("/proc/self/oom_score_adj").write_text(OOM_SCORE)
    weights = options.load(progress=lambda fraction: workplace.report("weights", fraction))
    constrainer = Constrainer(weights, options.end_tokens, options.spelled) if options.use == "chat" else None
    model = LlamaModel(weights, options, constrainer=constrainer, arena=workplace.arena, report=workplace.report)

    def prepare(job: Job) -> None:
        if constrainer is not None and job.grammar is not None:
            constrainer.check(job.grammar)  # what is compiled here does not stop the engine's thread

    calls: dict[str, Callable[..., Any]] = {}
    read: ReaderFacts | None = None
    if (reader := model.reader) is not None:
        calls["parts"] = reader.parts
        read = ReaderFacts(reader.digest, reader.takes_images, reader.takes_audio)
    if (embedder := model.embedder) is not None:

        def encode(inputs: Sequence[Input], is_wanted: Callable[[], bool], **keywords: Any) -> _Encoded:
            made = embedder.encode(inputs, is_wanted=is_wanted, **keywords)
            return _Encoded(made.vectors.tobytes(), made.vectors.shape[1], made.n_tokens, made.cut)

        calls["encode"] = encode
    if (reranker := model.reranker) is not None:
        calls["score"] = reranker.score
    return RemoteModel(model.engines, RemoteFacts(model.facts, read), calls, prepare, lambda: model.down, model.stats)


class ReaderFacts(NamedTuple):
    digest: bytes
    takes_images: bool
    takes_audio: bool


class RemoteFacts(NamedTuple):
    """What crosses when the model works."""

    model: ModelFacts
    reader: ReaderFacts | None
    """Of its projector, whose file is read for that."""


class _Encoded(NamedTuple):
    vectors: bytes
    """float32, as the rows of `Embedded.vectors`."""
    width: int
    n_tokens: tuple[int, ...]
    cut: tuple[int, ...]


# -- in this process ---------------------------------------------------------------------------------------------------


class RemoteLlama:
    """A model in a child, which is started again when it dies. `free` once."""

    def __init__(
        self,
        options: ModelOptions,
        *,
        title: str,
        is_wanted: Callable[[], bool] = lambda: True,
        report: Callable[[str, float], None] = lambda stage, fraction: None,
    ) -> None:
        """As `ModelProcess`."""
        self.process = ModelProcess(
            Program(command(), SERVE, (options,), environment(), timeouts_of(options), has_arena=True),
            title=title,
            is_wanted=is_wanted,
            report=report,
        )
        crossed = self.process.facts
        assert isinstance(crossed, RemoteFacts)
        self.facts = facts = crossed.model
        self.engines = [ChildEngine(self.process, index) for index in range(len(self.process.engines))]
        self.reader = crossed.reader and RemoteReader(self.process, crossed.reader)
        scores = options.use == "scores"
        self.embedder = RemoteEmbedder(self.process, facts.pooled) if facts.pooled and not scores else None
        self.reranker = RemoteReranker(self.process, facts.pooled) if facts.pooled and scores else None

    def free(self) -> None:
        """End the process, behind the engines' end."""
        self.process.close()


def timeouts_of(options: ModelOptions) -> Timeouts:
    """Of the child of a model, by its `stall_s` and the size of its files."""
    paths = {options.path, *(cache.draft.path for cache in options.caches if cache.draft is not None)}
    paths |= {options.projector} if options.projector is not None else set()
    n_bytes = sum(file.stat().st_size for path in paths for file in gguf.shards(path))
    frozen_s = max(LEAST_S, min(USUAL.frozen_s, options.stall_s))
    return Timeouts(
        connect_s=60.0, build_s=TIMEOUT_S + n_bytes / SLOWEST_BYTES_PER_S, frozen_s=frozen_s,
        hung_s=options.stall_s, mute_s=frozen_s + options.stall_s, term_s=0.0,
    )  # fmt: skip


def command() -> list[str]:
    # -P: the working folder may have modules of the same names as ours.
    return [sys.executable, "-P", "-m", "shepherd.engine.worker"]


def environment() -> dict[str, str]:
    """With the place of our package, which may be known to this process alone. Without GGML_NO_BACKTRACE, a failed
    assertion starts a debugger, which takes seconds."""
    paths = (os.environ.get("PYTHONPATH", ""), str(Path(__file__).parents[3]))
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "GGML_NO_BACKTRACE": "1"}


class RemoteReader:
    """Satisfies `MediaReader`."""

    def __init__(self, process: ModelProcess, facts: ReaderFacts) -> None:
        self._process = process
        self._digest, self.takes_images, self.takes_audio = facts
        self._read: LruCache[tuple[array[int] | int, ...]] = LruCache(MOST_READ)

    def read(self, data: bytes, is_wanted: Callable[[], bool] = lambda: True) -> tuple[array[int] | Media, ...]:
        """As `MediaReader.read`; `EngineDown`."""
        name = name_of(self._digest, data)
        parts = self._read.find(name)
        if parts is None:
            parts = self._process.call("parts", data, is_wanted=is_wanted)
            self._read.keep(name, parts)
        return media_of(self._digest, data, parts)


class _RemotePooled:
    def __init__(self, process: ModelProcess, facts: PooledFacts) -> None:
        self._process = process
        self.name, self.width, self.pooling, self.n_tokens = facts

    @property
    def down(self) -> str | None:
        """As `Engine.down`."""
        return self._process.down

    def stats(self) -> CacheStats:
        """As `PooledModel.stats`."""
        return self._process.stats(None)

    def close(self) -> bool:
        """It goes with its process."""
        return True


class RemoteEmbedder(_RemotePooled):
    """As `EmbeddingModel`, for what programs ask of one that is loaded."""

    def __init__(self, process: ModelProcess, facts: PooledFacts) -> None:
        super().__init__(process, facts)
        self.dim = self.width

    def embed(self, texts: Sequence[str]) -> Vectors:
        return self.encode(texts).vectors

    def encode(
        self,
        inputs: Sequence[Input],
        *,
        truncate: bool = True,
        dimensions: int | None = None,
        is_wanted: Callable[[], bool] = lambda: True,
    ) -> Embedded:
        """As `EmbeddingModel.encode`; `EngineDown`."""
        import numpy as np  # noqa: PLC0415 - imports slowly

        from shepherd.engine.llamacpp.embedding import Embedded  # noqa: PLC0415 - as above

        made: _Encoded = self._process.call(
            "encode", inputs, truncate=truncate, dimensions=dimensions, is_wanted=is_wanted
        )
        vectors = np.frombuffer(made.vectors, np.float32).reshape(-1, made.width)
        return Embedded(vectors, made.n_tokens, made.cut)


class RemoteReranker(_RemotePooled):
    """As `RerankModel`."""

    def score(self, pairs: Pairs, is_wanted: Callable[[], bool] = lambda: True) -> Scores:
        """As `RerankModel.score`; `EngineDown`."""
        found: Scores = self._process.call("score", pairs, is_wanted=is_wanted)
        return found

    def relevance(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        return self.score(Pairs.beginnings(query, texts)).values
