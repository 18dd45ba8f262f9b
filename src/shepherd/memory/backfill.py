"""A thread that computes missing vectors while the memory is idle."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

from shepherd.core import ShepherdError
from shepherd.memory.users import UserStores

logger = logging.getLogger(__name__)

PAUSE_S = 5.0
"""Between two searches for messages without a vector."""


class VectorBackfill:
    def __init__(self, stores: UserStores, *, pause_s: float = PAUSE_S) -> None:
        self._stores = stores
        self._pause_s = pause_s
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="shepherd-vectors", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop after the current batch, and wait for the thread."""
        self._closed.set()
        self._thread.join()

    def _run(self) -> None:
        done: dict[Path, int] = {}
        """The newest message of each file when no vector was missing; a search for missing ones reads the file."""
        while not self._closed.wait(self._pause_s):
            for store in self._stores.open_stores():
                try:
                    newest = store.newest_message()
                    if done.get(store.path) == newest:
                        continue
                    if n := store.embed(stop=self._closed.is_set):
                        logger.info("made %d vectors for %s", n, store.path)
                    done[store.path] = newest
                except ShepherdError as error:
                    if not self._closed.is_set():
                        logger.warning("no vectors for %s: %s", store.path, error)
