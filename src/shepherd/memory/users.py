"""The memory of each user: the owner's file, and one file for each other user beside it.

    memory.db                                          the owner's (`LOCAL`)
    memory-users/7f9c2ba4e88f827d616045507605853e.db   another user's; the file name does not show whose

Users share no file, so a search cannot find another user's text. A request without a user has no memory: a shared one
would show every stranger the messages of the others (M3, M6).
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from shepherd.core import MemoryFailure
from shepherd.memory.location import default_path
from shepherd.memory.records import clean, digest

if TYPE_CHECKING:
    from shepherd.memory.records import Embedder
    from shepherd.memory.search.reranking import Reranking
    from shepherd.memory.store import MemoryStore

LOCAL = "local"
"""The id of the owner: the user of this machine, or a client with its key."""
MAX_OPEN = 64
"""Stores that are kept open; beyond that, the least recently used one is released."""


def configured_stores(
    settings: Any, env: Mapping[str, str], embedder: Embedder | None = None, reranking: Reranking | None = None
) -> UserStores:
    """The memories of the `[memory]` section of a configuration; no file is opened yet."""
    path = settings.database_path or default_path(env)
    return UserStores(
        path,
        max_size_bytes=settings.max_size_bytes,
        mmap_size=settings.mmap_size,
        embedder=embedder,
        reranking=reranking,
    )


class UserStores:
    """The stores of all users. Any thread. `path`: the owner's file; `options`: those of `MemoryStore`."""

    def __init__(self, path: Path | str, **options: Any) -> None:
        self.path = Path(path)
        self._options = options | {"on_archived": self._count}
        self.n_archived = 0
        """Messages stored since the start, in all memories."""
        self._open: OrderedDict[str, MemoryStore] = OrderedDict()
        self._lock, self._counting = threading.Lock(), threading.Lock()
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_about_the_error: object) -> None:
        self.close()

    def find_store(self, user: str | None) -> MemoryStore | None:
        """The store of a user, opened or created; None for a blank id. `UserStores` closes it.

        Raises: `ConfigError` when the file is another user's memory or none, `MemoryFailure` after `close`.
        """
        if not (name := (user or "").strip()):
            return None
        from shepherd.memory.store import MemoryStore  # noqa: PLC0415 - loads SQLite and NumPy

        with self._lock:
            if self._closed:
                raise MemoryFailure(f"the memory {self.path} is closed")
            store = self._open.pop(name, None)
            if store is None:
                store = MemoryStore(self.path_of(name), user="" if name == LOCAL else clean(name), **self._options)
            self._open[name] = store
            if len(self._open) > MAX_OPEN:
                self._open.popitem(last=False)  # closes when the last reference goes
            return store

    def _count(self, n_messages: int) -> None:
        with self._counting:
            self.n_archived += n_messages

    def open_stores(self) -> list[MemoryStore]:
        with self._lock:
            return list(self._open.values())

    def path_of(self, user: str) -> Path:
        """The file may not exist."""
        if user.strip() == LOCAL:
            return self.path
        name = digest(user.strip().encode("utf-8", "surrogatepass")).hex()
        return self.path.with_name(f"{self.path.stem}-users") / f"{name}.db"

    def forget_user(self, user: str) -> bool:
        """Delete the memory of a user; whether there was one. A store in use is closed."""
        with self._lock:
            if store := self._open.pop(user.strip(), None):
                store.close()
            path = self.path_of(user)
            existed = path.exists()
            for file in (path, *(path.with_name(f"{path.name}-{end}") for end in ("wal", "shm"))):
                file.unlink(missing_ok=True)
            return existed

    def close(self) -> None:
        with self._lock:
            self._closed = True
            while self._open:
                self._open.popitem()[1].close()


class DefaultStore:
    """The store at `default_path`, with the methods of `MemoryStore`. It opens on first use.

    from shepherd.memory import rag_manager
    rag_manager.search("capital of France", max_results=5)
    """

    def __init__(self) -> None:
        self._store: MemoryStore | None = None
        self._lock = threading.RLock()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # inspection must not create a file
            raise AttributeError(name)
        from shepherd.memory.store import MemoryStore  # noqa: PLC0415 - loads SQLite and NumPy

        with self._lock:
            path = default_path(os.environ).absolute()
            if self._store is not None and self._store.path != path:  # the folder or the environment has changed
                self.close()
            if self._store is None:
                self._store = MemoryStore(path)
            return getattr(self._store, name)

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        with self._lock:
            if self._store is not None:
                self._store.close()
                self._store = None


if TYPE_CHECKING:
    rag_manager: MemoryStore
else:
    rag_manager = DefaultStore()
