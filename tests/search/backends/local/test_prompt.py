"""The tests of `tests/unit/backends/local/test_prompt.py` that take long."""

from __future__ import annotations

import gc
import tracemalloc
from typing import TYPE_CHECKING

import pytest

from shepherd.backends.local.prompt import Encoder
from shepherd.dialects import Piece

if TYPE_CHECKING:  # a run without the model loads no native library
    pass
from tests.unit.backends.local.test_prompt import TEMPLATE, vocabulary


@pytest.mark.parametrize("text", ["word {}", "word {}" + "\U0001f411" * 300], ids=["short", "long"])
def test_what_is_remembered_of_tokenising_takes_no_more_memory_than_its_limit(text: str) -> None:
    limit_bytes = 500_000
    encoder = Encoder(vocabulary(), TEMPLATE, keep_bytes=limit_bytes)
    tracemalloc.start()
    try:
        for n in range(5_000):
            encoder.encode([Piece(text.format(n), 0)])
        gc.collect()
        n_bytes = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert 0.3 * limit_bytes < n_bytes < 1.3 * limit_bytes
