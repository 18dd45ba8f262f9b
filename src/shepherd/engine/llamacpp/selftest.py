"""Tests once per build whether the native library computes quantised models on this CPU without a crash.

On CPUs with AMX, llama.cpp built by GCC before 14 without our flags dies by SIGSEGV at the first decode of any
quantised model (ggml issue 20824). A crash cannot be caught in process, so a child makes a quantised copy of the
embedded model and decodes with it (`child.py`). The verdict is stored in the user's cache folder, keyed by library and
CPU. If the child crashes, a second one tries without llama.cpp's extra buffer types, which avoids AMX: slower, but it
works.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import platform
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from shepherd.core import EngineError
from shepherd.core.dataclasses import dataclass
from shepherd.engine.llamacpp.machine import hardware
from shepherd.models import catalog
from shepherd.process import child, isolated

if TYPE_CHECKING:
    from shepherd.models import gguf

logger = logging.getLogger(__name__)

_FILE_TYPES: tuple[Literal["Q8_0", "Q4_0"], ...] = ("Q8_0", "Q4_0")
TIMEOUT_S = 120.0
"""A healthy child takes about a second."""
ROOM_BYTES = 32 << 20
"""For the quantised models of the test, which have 9 MiB."""


@dataclass(frozen=True, slots=True)
class Verdict:
    use_extra_bufts: bool
    """Whether llama.cpp may use its extra buffer types (AMX, repacking)."""
    detail: str
    """One sentence for a person."""
    cached: bool = False
    """Whether it is from an earlier run."""


Run = Callable[[bool], int]
"""Runs the child with or without extra buffer types; its exit status (negative: killed by that signal)."""


def verdict(
    cache_folder: Path, *, run: Run | None = None, build: str | None = None, room_bytes: int | None = None
) -> Verdict:
    """The verdict on the library build in use, from the cache if this build was tested before.

    `room_bytes`: free for the models of the test; None = as the folder for temporary files has. Without enough there is
    no test: the safe way is taken, until the next start.

    Raises: `EngineError` if it crashes with and without extra buffer types, `ConfigError` if the embedded model, with
    which it is tested, is damaged.
    """
    build = build or build_id()
    file = cache_folder / f"selftest-{build}.json"
    known = _read(file)
    if known is not None:
        return known
    folder = tempfile.gettempdir()
    if (shutil.disk_usage(folder).free if room_bytes is None else room_bytes) < ROOM_BYTES:
        untested = f"the library is not tested, since {folder} has no room for {ROOM_BYTES >> 20} MiB"
        return Verdict(False, f"{untested}; quantised models run without AMX, which is slower")
    catalog.check_sum(catalog.embedded())
    found = _test(run or run_child)
    child.keep(file, {"use_extra_bufts": found.use_extra_bufts, "detail": found.detail})
    return found


def build_id() -> str:
    """A short id of this library build on this CPU."""
    from shepherd.engine.llamacpp.library import library_path  # noqa: PLC0415 - loads the library

    facts = [platform.machine(), _cpu_model()]
    for file in sorted(library_path().parent.iterdir()):
        status = file.stat()
        facts += [file.name, str(status.st_size), str(status.st_mtime_ns)]
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]


def results_id(header: gguf.Header) -> str:
    """What measurements of a model are kept under: the model, the build of the library, this machine."""
    return f"{header.digest()[:16]}-{build_id()}-{hardware()}"


def run_child(use_extra_bufts: bool, command: Sequence[str] | None = None) -> int:
    """Run the test in a child process; returns its exit status, negative if a signal killed it."""
    command = command or isolated.command("shepherd.engine.llamacpp.selftest:try_quantised")
    folders = {"TMPDIR": tempfile.gettempdir()}  # the copies of the model go with the child, also if it crashes
    ended = child.run(command, timeout_s=TIMEOUT_S, task=isolated.line(use_extra_bufts), folders=folders)
    if ended.status > 0:
        logger.warning("the self-test failed: %s", ended.words)
    return ended.status


def _test(run: Run) -> Verdict:
    status = run(True)
    if status == 0:
        return Verdict(True, "quantised models decode properly")
    failure = child.died(status, TIMEOUT_S)
    logger.warning("quantised models %s with this build; trying without extra buffer types", failure)
    fallback = run(False)
    if fallback == 0:
        return Verdict(
            False,
            f"quantised models {failure} with this build; they run without AMX, which is slower. "
            "'shepherd doctor --build' builds one that is cured",
        )
    raise EngineError(
        f"the native llama.cpp library does not work on this machine: a quantised model {failure}, and "
        f"{child.died(fallback, TIMEOUT_S)} without extra buffer types too; 'shepherd doctor --build' builds another"
    )


def _read(file: Path) -> Verdict | None:
    stored = child.kept(file)
    try:
        return Verdict(bool(stored["use_extra_bufts"]), str(stored["detail"]), cached=True) if stored else None
    except KeyError:
        return None


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith("model name")), "") + next(
        (line for line in lines if line.startswith("flags")), ""
    )


# -- in the child -----------------------------------------------------------------------------------------------------


def try_quantised(use_extra_bufts: bool) -> None:
    """Quantise the embedded model, load it, decode a batch and a token, and check the result."""
    from shepherd.engine.llamacpp import trial  # noqa: PLC0415 - only the child needs these
    from shepherd.engine.llamacpp.library import quantize  # noqa: PLC0415
    from shepherd.engine.llamacpp.weights import Weights  # noqa: PLC0415

    for file_type in _FILE_TYPES:
        target = Path(tempfile.mkdtemp()) / f"{file_type}.gguf"
        quantize(catalog.embedded(), target, file_type)
        with contextlib.closing(Weights.load(target, use_extra_bufts=use_extra_bufts)) as weights:
            tokens = weights.tokenize("The quick brown fox jumps over the lazy dog. " * 4)[:64]
            trial.answer(weights, tokens, n_threads=1)
