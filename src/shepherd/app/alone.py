"""Models without a program around them, for Python programs and commands: the vectors of texts, the scores of pairs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import platformdirs

from shepherd.engine.llamacpp import selftest, trial
from shepherd.models import catalog

if TYPE_CHECKING:
    from shepherd.engine.llamacpp.embedding import EmbeddingModel
    from shepherd.engine.llamacpp.reranking import RerankModel


def open_embedder(model: str) -> EmbeddingModel:
    """An embedding model by its path or name; the caller closes it. Raises: `ConfigError`, `EngineError`."""
    from shepherd.engine.llamacpp.embedding import EmbeddingModel  # noqa: PLC0415 - loads the native library

    return EmbeddingModel.load(_proven(model))


def open_reranker(model: str) -> RerankModel:
    """A reranker by its path or name; the caller closes it. Its `relevance(query, texts)` are scores, greater = better.

    Raises: `ConfigError`, `EngineError`.
    """
    from shepherd.engine.llamacpp.reranking import RerankModel  # noqa: PLC0415 - loads the native library

    return RerankModel.load(_proven(model, "rank"))


def _proven(model: str, pooling: Literal["rank"] | None = None) -> Path:
    """The file of a model, which this build can load."""
    path = catalog.find(model, env=os.environ, home=Path.home(), cwd=Path.cwd())
    folder = Path(platformdirs.user_cache_dir("shepherd"))
    trial.prove(path, folder, build=selftest.build_id(), makes_vectors=True, pooling=pooling)
    return path
