"""A model that was made slower for a bench says what it said."""

from __future__ import annotations

from array import array
from contextlib import closing
from pathlib import Path

import pytest
from bench.engine.speculation import slowed

from shepherd.engine.base import Chunk
from shepherd.engine.llamacpp.runtime import ContextOptions, LlamaRuntime
from shepherd.engine.llamacpp.weights import Weights
from shepherd.models.gguf import read_header

pytestmark = pytest.mark.model


def test_layers_that_add_nothing_change_no_logit(weights: Weights, lamb: Path, tmp_path: Path) -> None:
    slow = slowed(lamb, 3, tmp_path)
    assert read_header(slow).n_layer == read_header(lamb).n_layer + 3
    prompt = Chunk(0, array("i", weights.tokenize("Why is the sky blue?")), 0, logits=True)
    found = []
    with closing(Weights.load(slow)) as other:
        for each in (weights, other):
            with closing(LlamaRuntime(each, ContextOptions(256, n_threads=1))) as runtime:
                assert runtime.decode([prompt]) == "ok"
                found.append(runtime.logits(0))
    assert found[0] == found[1]
