"""Vectors for what has been said, made in the background while nobody waits for them."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

from shepherd.core import ShepherdError
from shepherd.memory.users import UserStores

logger = logging.getLogger(__name__)

PAUSE_S = 5.0
"""Between two looks for messages that have none."""


class VectorBackfill:
    """A thread that makes the vectors which the open memories of a shelf are lacking, until it is closed."""

    def __init__(self, stores: UserStores, *, pause_s: float = PAUSE_S) -> None:
        self._stores = stores
        self._pause_s = pause_s
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._live, name="shepherd-vectors", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop at the next message, and wait for that."""
        self._closed.set()
        self._thread.join()

    def _live(self) -> None:
        done: dict[Path, int] = {}
        """The newest message of each file when all had theirs: looking for missing ones reads the whole file."""
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
