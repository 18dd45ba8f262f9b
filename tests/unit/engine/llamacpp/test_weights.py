"""How the weights come into memory: mapped, read, locked, and where each tensor goes. Seen from the system's side.

Without the extra buffers, into which llama.cpp copies weights on processors that have AMX or another layout for them.
"""

from __future__ import annotations

import contextlib
import logging
import re
import shutil
import sys
from pathlib import Path

import pytest

from shepherd.core import EngineError
from shepherd.engine.llamacpp import library
from shepherd.engine.llamacpp.weights import Weights

pytestmark = pytest.mark.model
linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def mapped_bytes(path: Path) -> int:
    """How much of the address space is this file."""
    found = 0
    for line in Path("/proc/self/maps").read_text().splitlines():
        if line.endswith(f"/{path.name}"):
            start, stop = (int(part, 16) for part in line.split()[0].split("-"))
            found += stop - start
    return found


def locked_bytes() -> int:
    (found,) = re.findall(r"VmLck:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(found) * 1024


@linux
@pytest.mark.parametrize("mmap", [None, True, False])
@pytest.mark.parametrize("mlock", [False, True])
def test_the_file_is_mapped_and_the_weights_are_locked_as_asked(
    mmap: bool | None, mlock: bool, lamb: Path, tmp_path: Path
) -> None:
    own = Path(shutil.copy(lamb, tmp_path / "own.gguf"))  # other tests of this process map the file itself
    size_bytes, before = own.stat().st_size, locked_bytes()
    with contextlib.closing(Weights.load(own, mmap=mmap, mlock=mlock, use_extra_bufts=False)):
        assert (mapped_bytes(own) > 0.9 * size_bytes) == (mmap is not False)
        assert (locked_bytes() - before > 0.9 * size_bytes) == mlock


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
