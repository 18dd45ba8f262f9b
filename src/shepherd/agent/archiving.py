"""Whether messages are archived: the outcome of the last attempt, of any user, and how many have failed.

A disk that is full fails no answer, unless the configuration wants that. So the failure must be seen elsewhere: the
first of a row is a warning, and the server reports the state (`/health`, `/metrics`, a header of the answer).
"""

from __future__ import annotations

import logging
import threading
from concurrent.futures import Future
from typing import Any

from shepherd.core import MemoryFailure

logger = logging.getLogger(__name__)


class Archiving:
    """The state of the archive. Any thread."""

    def __init__(self, *, required: bool = False) -> None:
        """`required`: a request that cannot be archived fails."""
        self.required = required
        self.failure = ""
        """Why the last attempt failed; empty after one that succeeded."""
        self.n_failed = 0
        """Attempts that failed, since the start."""
        self._lock = threading.Lock()

    def succeed(self) -> None:
        if self.failure:  # rarely; no lock for each message
            with self._lock:
                self.failure = ""
            logger.warning("messages are archived again")

    def fail(self, error: BaseException) -> None:
        """Note that messages are not archived. Raises: `MemoryFailure` where they must be."""
        self._note(error)
        if self.required:
            raise MemoryFailure(f"the messages cannot be archived, and memory.required is true: {error}") from error

    def see(self, attempt: Future[Any]) -> None:
        """Note the outcome of an attempt that no request waits for."""
        if attempt.cancelled():
            return
        if (error := attempt.exception()) is None:
            self.succeed()
        else:
            self._note(error)

    def _note(self, error: BaseException) -> None:
        with self._lock:
            is_first, self.failure = not self.failure, str(error)
            self.n_failed += 1
        if is_first:
            logger.warning("messages are not archived, until a write succeeds: %s", error)
