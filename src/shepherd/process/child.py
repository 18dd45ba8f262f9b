"""Runs work that may crash in a child process, and stores verdicts about such work in files.

    run(command) ─▶ child ─▶ Ended(status, its last words)        keep(file, verdict) ─▶ … ─▶ kept(file)

The native library calls abort() on many errors, which no caller can catch. So what has not worked on this machine yet
is tried in a child first: the library itself (`selftest.py`), each model (`trial.py`), and each combination of settings
(`measure/trial.py`).
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from shepherd.process.files import replace_private

logger = logging.getLogger(__name__)

HUNG = -int(getattr(signal, "SIGALRM", 14))
"""The status of a child that was killed because it took too long."""
POLL_S = 0.05
"""Seconds between two checks whether the child is still wanted."""
LAST_WORDS = 2000
"""Bytes from the end of what a child writes to standard error."""


class Cancelled(Exception):
    """The child was killed, since nothing waits for its result."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The result of a child process."""

    status: int
    """Its exit status; negative: the signal that killed it; `HUNG`."""
    answer: str
    """All of its standard output."""
    words: str
    """The end of its standard error."""


def run(
    command: Sequence[str],
    *,
    timeout_s: float,
    is_wanted: Callable[[], bool] = lambda: True,
    variables: Mapping[str, str] | None = None,
) -> Ended:
    """Run a command to its end, or kill it after `timeout_s`. Blocks.

    variables: added to the environment. The child's standard input stays open as long as this process lives; see
    `end_with_parent`.

    Raises: `Cancelled` as soon as `is_wanted` returns False.
    """
    # Without GGML_NO_BACKTRACE, a failed assertion starts a debugger, which takes seconds.
    environment = {**os.environ, "GGML_NO_BACKTRACE": "1", **(variables or {})}
    deadline_s = time.monotonic() + timeout_s
    with (
        tempfile.TemporaryFile() as answer,
        tempfile.TemporaryFile() as words,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=answer, stderr=words, env=environment) as child,
    ):
        try:
            status = _end(child, deadline_s, is_wanted)
        finally:
            child.kill()
        return Ended(status, _tail(answer), _tail(words, LAST_WORDS).strip())


def died(status: int, timeout_s: float) -> str:
    """How a child failed, as the end of a sentence in the plural: `crash (SIGABRT)`."""
    if status == HUNG:
        return f"hang for more than {timeout_s:.0f} s"
    if status < 0:
        with contextlib.suppress(ValueError):
            return f"crash ({signal.Signals(-status).name})"
        return f"crash (signal {-status})"
    return f"fail (exit status {status})"


def end_with_parent() -> None:
    """In the child: exit as soon as the parent has ended for any reason."""

    def watch() -> None:
        with contextlib.suppress(OSError):
            while os.read(0, 1):
                pass
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def limit_memory(most_bytes: int) -> None:
    """In the child: limit its memory, mapped files not counted, and make it the first to be killed when memory runs
    out."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource  # noqa: PLC0415 - POSIX only

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_DATA, (most_bytes, most_bytes))
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def kept(file: Path) -> dict[str, Any] | None:
    """A stored verdict; None if there is none that can be read."""
    try:
        stored = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return stored if isinstance(stored, dict) else None


def keep(file: Path, verdict: Mapping[str, Any]) -> None:
    """Store a verdict, whole or not at all. If the folder is not writable, the test runs again next time."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        replace_private(file, json.dumps(verdict).encode())
    except OSError as error:
        logger.info("the verdict %s cannot be kept (%s); the test will run again next time", file.name, error)


def _end(child: subprocess.Popen[bytes], deadline_s: float, is_wanted: Callable[[], bool]) -> int:
    while True:
        try:
            return child.wait(POLL_S)
        except subprocess.TimeoutExpired:
            if not is_wanted():
                raise Cancelled from None
            if time.monotonic() > deadline_s:
                return HUNG


def _tail(stream: IO[bytes], n_bytes: int | None = None) -> str:
    size = stream.seek(0, os.SEEK_END)
    stream.seek(max(0, size - n_bytes) if n_bytes is not None else 0)
    return stream.read().decode("utf-8", "replace")
