"""How the weights come into memory: mapped, read, locked, and where each tensor goes. Seen from the system's side.

Without the extra buffers, into which llama.cpp copies weights on processors that have AMX or another layout for them.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest

from shepherd.core import EngineError
from shepherd.engine.llamacpp import library
from shepherd.engine.llamacpp.weights import Weights

pytestmark = pytest.mark.model


def test_tensors_go_where_their_pattern_says(lamb: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, library.__name__):
        Weights.load(lamb, override_tensor=(r"blk\.[01]\.ffn_(up|down)=CPU",), use_extra_bufts=False).close()
    moved = re.findall(r"tensor (\S+) .* buffer type overridden to (\S+)", caplog.text)
    assert sorted(name for name, _ in moved) == [
        f"blk.{n}.ffn_{what}.weight" for n in (0, 1) for what in ("down", "up")
    ]


def test_memory_that_is_not_here_is_refused_by_name(lamb: Path) -> None:
    assert "CPU" in library.buffer_types()
    with pytest.raises(EngineError, match=r"'x=CUDA9' names no kind of memory that is here.*with one of CPU"):
        Weights.load(lamb, override_tensor=("x=CUDA9",))
