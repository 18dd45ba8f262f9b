"""The tests of `tests/unit/engine/test_embedding.py` that take long."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.engine.test_embedding import N_LONG, Llama, lettered, llama, model, same  # noqa: F401 - fixtures

from shepherd.engine.llamacpp.embedding import EmbeddingModel, Pooling

pytestmark = pytest.mark.model


@pytest.mark.grid(0.2)
@pytest.mark.parametrize("pooling", ["mean", "cls", "last"])
def test_a_decoder_computes_what_the_same_sums_give_in_numpy(llama: Llama, pooling: Pooling) -> None:
    """Long texts, which are computed in pieces, among short ones."""
    texts = ["a", lettered(700), "b c", lettered(1200), lettered(512), lettered(513), "p o n m"]
    expected = np.stack([llama.vector(llama.tokens(text), pooling) for text in texts])
    with EmbeddingModel.load(llama.path, pooling=pooling, n_tokens=None, n_threads=1) as model:
        assert model.n_tokens == N_LONG
        made = model.encode(texts, truncate=False)
        again = model.encode(texts[::-1])
    assert made.n_tokens == (1, 700, 2, 1200, 512, 513, 4)
    assert same(made.vectors, expected) > 0.9999
    assert same(again.vectors, expected[::-1]) > 0.9999
    assert same(made.vectors, np.roll(expected, 1, axis=0)) < 0.99, "otherwise this tests nothing"
