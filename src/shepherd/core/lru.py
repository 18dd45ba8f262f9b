"""A bounded mapping that forgets what was least recently used."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Generic, TypeVar

V = TypeVar("V")

ENTRY_BYTES = 400
"""What an entry takes besides the texts of its value: its key, its links, and the objects around the texts."""


class LruCache(Generic[V]):
    """Values by key, up to a total weight; the least recently used leave first. Any thread."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held = 0
        self._entries: OrderedDict[object, tuple[V, int]] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, key: object) -> V | None:
        """The value, which is the most recently used one now; None when there is none."""
        with self._lock:
            if (known := self._entries.get(key)) is None:
                return None
            self._entries.move_to_end(key)
            return known[0]

    def keep(self, key: object, value: V, weight: int = 1) -> V | None:
        """Keep a value; the one that it replaces."""
        with self._lock:
            before = self._entries.pop(key, None)
            self._entries[key] = value, weight
            self._held += weight - (before[1] if before else 0)
            while self._held > self._limit:
                self._held -= self._entries.popitem(last=False)[1][1]
        return before[0] if before else None

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()
            self._held = 0
