"""A provider that makes the vectors of the memory: `memory.embedding_model = "openai/text-embedding-3-small"`.

    texts ─ known ones from memory ─▶ the others ─ CloudBackend.embed, on a loop and thread of its own ─▶ vectors

The memory asks from any of its threads, and waits. Every stored message goes to that provider, so a configuration that
has a private route refuses one on another machine (`config/resolve.py`).
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from shepherd.backends.cloud.backend import CloudBackend, Timeouts
from shepherd.backends.cloud.packaged import PackagedBackend
from shepherd.backends.cloud.transport import Deadlines
from shepherd.core import BackendError, BadReply, ShepherdError, Unavailable
from shepherd.core.lru import LruCache

REST_S = 30.0
"""After a failure the provider is not asked for so long: a search must not wait for it every time."""
N_KNOWN = 500
"""Texts whose vectors are kept: the questions of a conversation are searched for more than once."""
DEADLINES = Deadlines(connect=5.0, whole=15.0)
TIMEOUTS = Timeouts(attempts=2, stated_s=3.0, total_s=5.0)
"""A search waits for it: where the configuration names others, those count."""


class CloudEmbedder:
    """Satisfies `Embedder`. Any thread; `close` once."""

    def __init__(
        self, cloud: CloudBackend | PackagedBackend, model: str, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Owns `cloud`, which nothing else uses. Asks for one vector, to learn its size. Raises: `BackendError`."""
        self.name = f"{cloud.provider.name}/{model}"
        self._model = model
        self._cloud = cloud
        self._clock = clock
        self._known: LruCache[Any] = LruCache(N_KNOWN)
        self._failed: BackendError | None = None
        self._rests_until = 0.0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="shepherd-embedder", daemon=True)
        self._thread.start()
        try:
            self.dim = len(self._made(["size"])[0])
        except BackendError:
            self.close()
            raise

    def embed(self, texts: list[str]) -> np.ndarray[Any, np.dtype[np.float32]]:
        found: dict[str, Any] = {text: self._known.find(text) for text in texts}
        missing = [text for text, vector in found.items() if vector is None]
        if missing:
            if self._failed is not None and self._clock() < self._rests_until:
                raise self._failed
            for text, made in zip(missing, self._made(missing), strict=True):
                found[text] = vector = np.asarray(made, np.float32)
                self._known.keep(text, vector)
        vectors = np.stack([found[text] for text in texts]) if texts else np.zeros((0, self.dim), np.float32)
        if vectors.shape[1] != self.dim:
            raise BadReply(f"{self.name} has changed the size of its vectors; start again", backend=self.name)
        return vectors

    def _made(self, texts: list[str]) -> Any:
        """The vectors of these texts, all of one length."""
        try:
            made = asyncio.run_coroutine_threadsafe(self._cloud.embed(self._model, texts), self._loop).result()
        except ShepherdError as error:
            failed = error if isinstance(error, BackendError) else Unavailable(error.message, backend=self.name)
            self._failed, self._rests_until = failed, self._clock() + REST_S
            raise failed from error
        if len({len(vector) for vector in made.vectors}) != 1:
            raise BadReply(f"{self.name}: the vectors have several sizes", backend=self.name)
        return made.vectors

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._cloud.aclose(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
