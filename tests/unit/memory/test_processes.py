"""Several processes and threads on one file: nothing is refused, lost or stored twice."""

from __future__ import annotations

import threading
from pathlib import Path

from shepherd.memory.archive import queries
from shepherd.memory.records import Entry
from shepherd.memory.store import MemoryStore


def turn(name: str, n: int) -> list[Entry]:
    return [Entry("user", f"{name} asks {n}"), Entry("assistant", f"{name} is told {n}")]


def test_threads_share_a_store(tmp_path: Path) -> None:
    failed: list[BaseException] = []

    def work(store: MemoryStore, name: str) -> None:
        try:
            history: list[Entry] = []
            for n in range(10):
                history += turn(name, n)
                ids = store.archive(history, session=name)
                assert [message.body for message in store.stored(ids)] == [entry.body for entry in history]
                assert store.search(f"{name} asks {n}", 3)
        except BaseException as error:
            failed.append(error)

    with MemoryStore(tmp_path / "m.db") as store:
        threads = [threading.Thread(target=work, args=(store, f"thread{n}")) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failed == []
        assert store.stats().messages == 8 * 20
        assert store.read(queries.conversations)[0].n_messages == 20
