"""The writer behind debug files and recordings: one thread, in order, with a bound on what waits for a slow disk.

A disk that is full or slow costs files, never an answer and never the memory of the server. Only the owner of the
process can read the files.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

logger = logging.getLogger("shepherd.server")

MAX_WAITING_BYTES = 256 * 2**20
"""What may wait for the disk; requests beyond it are not written."""


class FileWriter:
    """Writes for one folder. `submit` and `close` on any thread; they do not write themselves."""

    def __init__(self, what: str, folder: Path, max_waiting_bytes: int) -> None:
        """`what` the log calls the files."""
        self._what = what
        self._folder = folder
        self._max_waiting_bytes = max_waiting_bytes
        self._lock = threading.Lock()
        self._waiting_bytes = 0
        self._executor = ThreadPoolExecutor(1, "file-writer")
        self._is_failing = False

    def submit(self, n_bytes: int, write: Callable[[], None]) -> None:
        """Call `write` soon; it holds about `n_bytes` until then. If too much waits already, log that and drop it."""
        with self._lock:
            fits = self._waiting_bytes + n_bytes <= self._max_waiting_bytes
            self._waiting_bytes += n_bytes * fits
        if fits:
            with contextlib.suppress(RuntimeError):  # closed: after a second signal the server does not wait
                self._executor.submit(self._write, n_bytes, write)
        else:
            logger.warning("the %s of a request were not written: the disk of %s is too slow", self._what, self._folder)

    def close(self) -> None:
        """Wait until everything is written. What is submitted later is dropped."""
        self._executor.shutdown()

    def _write(self, n_bytes: int, write: Callable[[], None]) -> None:
        try:
            write()
            self._is_failing = False
        except OSError as error:
            if not self._is_failing:  # a full disk would fill the log, too
                logger.warning("%s cannot be written in %s: %s", self._what, self._folder, error.strerror or error)
            self._is_failing = True
        except Exception:  # the result of this future is not read
            logger.exception("%s could not be written", self._what)
        finally:
            with self._lock:
                self._waiting_bytes -= n_bytes


def write_private(path: Path, content: bytes) -> None:
    """Write a new file that only its owner can read. Raises: `OSError`, also if the file exists."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
