"""The tests of `tests/unit/test_memory.py` that take long."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cases import amount
from tests.unit.test_memory import _close_the_client, path  # noqa: F401 - fixtures

from shepherd.memory.records import Entry
from shepherd.memory.store import MemoryStore

pytestmark = pytest.mark.model


def test_24_a_size_limit_holds_and_facts_stay(path: Path) -> None:
    limit, batch, n_answers = 2**20, 64 * 2**10, amount(50, 160)
    with MemoryStore(path, max_size_bytes=limit) as store:
        store.set_fact("favorite_color", "blue")
        largest = 0
        for n in range(n_answers):
            answer = f"Answer {n}: " + " ".join(f"word{n}x{k}" for k in range(2_900))
            store.archive([Entry("user", f"Question number {n}?"), Entry("assistant", answer)], session=f"s{n}")
            files = [file for file in path.parent.glob(f"{path.name}*") if not file.name.endswith("-shm")]
            largest = max(largest, sum(file.stat().st_size for file in files))
        assert largest <= limit + batch, f"{largest} bytes"
        assert [(fact.key, fact.value) for fact in store.facts()] == [("favorite_color", "blue")]
        assert store.search(f"question number {n_answers - 1}")
        assert not any("word0x1 " in hit.assistant_response for hit in store.search("word0x1"))
