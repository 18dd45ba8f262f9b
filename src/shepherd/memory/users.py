"""Whose memory: where the owner's file is, and those of other users beside it.

    memory.db                                      the owner's (`LOCAL`)
    memory-users/7f9c2ba4e88f827d616045507605853e.db   one for each other user; a file name does not say whose

Users share nothing, so nothing of one can be found by another. Whoever does not say who he is has no memory: one that
all strangers share would tell each of them what the others said (M3, M6).
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

from shepherd.core import MemoryFailure
from shepherd.memory.location import default_path
from shepherd.memory.records import clean, digest

if TYPE_CHECKING:
    from shepherd.memory.records import Embedder
    from shepherd.memory.store import MemoryStore

LOCAL = "local"
"""The id of the owner: who has the machine, or a key to it."""
MAX_OPEN = 64
"""Stores that are kept open; of more, the one that was asked for longest ago is let go."""


class Settings(Protocol):
    """What a configuration says of the memory."""

    @property
    def database_path(self) -> str | None: ...
    @property
    def max_size_bytes(self) -> int: ...
    @property
    def mmap_size(self) -> int: ...


def configured_stores(settings: Settings, env: Mapping[str, str], embedder: Embedder | None = None) -> UserStores:
    """The memories that a configuration means; nothing is opened yet."""
    path = settings.database_path or default_path(env)
    return UserStores(path, max_size_bytes=settings.max_size_bytes, mmap_size=settings.mmap_size, embedder=embedder)


class UserStores:
    """The memories of all users, by their ids. Any thread.

    `path` is the owner's file; `options` are those of `MemoryStore`.
    """

    def __init__(self, path: Path | str, **options: Any) -> None:
        self.path = Path(path)
        self._options = options | {"on_archived": self._count}
        self.n_archived = 0
        """Messages that were stored since the start, in all memories."""
        self._open: OrderedDict[str, MemoryStore] = OrderedDict()
        self._lock, self._counting = threading.Lock(), threading.Lock()
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_about_the_error: object) -> None:
        self.close()

    def find_store(self, user: str | None) -> MemoryStore | None:
        """The memory of a user, opened or made; None for one who is not known. It is closed by the shelf.

        Raises: `ConfigError` when the file is not his memory, `MemoryFailure` when the shelf is closed.
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
                self._open.popitem(last=False)  # closes itself as soon as nobody uses it any more
            return store

    def _count(self, n_messages: int) -> None:
        with self._counting:
            self.n_archived += n_messages

    def open_stores(self) -> list[MemoryStore]:
        """The stores that are open."""
        with self._lock:
            return list(self._open.values())

    def path_of(self, user: str) -> Path:
        """Where a user's file is, or would be."""
        if user.strip() == LOCAL:
            return self.path
        name = digest(user.strip().encode("utf-8", "surrogatepass")).hex()
        return self.path.with_name(f"{self.path.stem}-users") / f"{name}.db"

    def forget_user(self, user: str) -> bool:
        """Delete all that is known of a user; whether there was anything. Who still uses his store is refused."""
        with self._lock:
            if store := self._open.pop(user.strip(), None):
                store.close()
            path = self.path_of(user)
            existed = path.exists()
            for file in (path, *(path.with_name(f"{path.name}-{end}") for end in ("wal", "shm"))):
                file.unlink(missing_ok=True)
            return existed

    def close(self) -> None:
        """Close all stores. Twice is allowed."""
        with self._lock:
            self._closed = True
            while self._open:
                self._open.popitem()[1].close()


class DefaultStore:
    """The store that `default_path` finds, opened when it is first asked for something; has all that it has.

    from shepherd.memory import rag_manager
    rag_manager.search("capital of France", max_results=5)
    """

    def __init__(self) -> None:
        self._store: MemoryStore | None = None
        self._lock = threading.Lock()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # asked for by those who inspect; not worth a file
            raise AttributeError(name)
        from shepherd.memory.store import MemoryStore  # noqa: PLC0415 - loads SQLite and NumPy

        with self._lock:
            path = default_path(os.environ).absolute()
            if self._store is not None and self._store.path != path:  # another folder, another variable
                self._store.close()
                self._store = None
            if self._store is None:
                self._store = MemoryStore(path)
            return getattr(self._store, name)

    def close(self) -> None:
        """Close the file; it is opened again when something is asked for."""
        with self._lock:
            if self._store is not None:
                self._store.close()
                self._store = None


if TYPE_CHECKING:
    rag_manager: MemoryStore
else:
    rag_manager = DefaultStore()
