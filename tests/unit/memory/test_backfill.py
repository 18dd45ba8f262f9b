"""Vectors that are made in the background."""

import threading
from pathlib import Path

import numpy as np
import numpy.typing as npt

from shepherd.core import EngineError
from shepherd.memory.backfill import VectorBackfill
from shepherd.memory.records import Entry
from shepherd.memory.users import LOCAL, UserStores


class Letters:
    """Counts letters; an embedder that says when it has worked, and fails the first time if it is told to."""

    name, dim = "letters", 64

    def __init__(self, *, fails: bool = False) -> None:
        self.fails = fails
        self.worked = threading.Event()
        self.texts: list[str] = []

    def embed(self, texts: list[str]) -> npt.NDArray[np.float32]:
        if self.fails:
            self.fails = False
            raise EngineError("out of memory")
        vectors = np.full((len(texts), self.dim), 0.01, np.float32)
        for row, text in zip(vectors, texts, strict=True):
            for character in text.casefold():
                row[ord(character) % self.dim] += 1
        self.texts += texts
        self.worked.set()
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        return np.asarray(vectors / lengths, np.float32)


def test_what_is_said_gets_a_vector_even_after_a_failure(tmp_path: Path) -> None:
    letters = Letters(fails=True)
    with UserStores(tmp_path / "memory.db", embedder=letters) as stores:
        store = stores.find_store(LOCAL)
        assert store is not None
        backfill = VectorBackfill(stores, pause_s=0.01)
        store.archive([Entry("user", "The zebra is striped.")])
        assert letters.worked.wait(30)
        letters.worked.clear()
        store.archive([Entry("user", "The quagga was striped, too.")])
        assert letters.worked.wait(30)
        backfill.close()
        assert any("zebra" in text for text in letters.texts)
        assert any("quagga" in text for text in letters.texts)
        assert store.stats().vectors == 2
