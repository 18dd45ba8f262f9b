"""The tests of `tests/unit/memory/test_processes.py` that take long."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.cases import amount
from tests.places import ROOT
from tests.unit.memory.test_processes import turn

from shepherd.memory.store import MemoryStore

N_PROCESSES, N_TURNS = amount(3, 8), amount(15, 2_000)


CHILD = """
import sys
from shepherd.memory.store import MemoryStore
from tests.unit.memory.test_processes import turn

path, name, n_turns = sys.argv[1], sys.argv[2], int(sys.argv[3])
with MemoryStore(path) as store:
    history = []
    for n in range(n_turns):
        history += turn(name, n)
        mine = store.archive(history[-100:] if len(history) % 100 == 0 else history[-(len(history) % 100):],
                             session=f"{name} {(len(history) - 1) // 100}")
        store.archive(turn("shared", n), session=f"shared {n}")
        assert len(store.stored(mine)) == len(mine)
        store.set_fact(f"{name} has done", str(n))
"""


@pytest.mark.timeout(amount(180, 7_200))
def test_processes_share_a_file(tmp_path: Path) -> None:
    path, root = tmp_path / "m.db", ROOT
    names = [f"process{n}" for n in range(N_PROCESSES)]
    children = [
        subprocess.Popen(
            [sys.executable, "-c", CHILD, str(path), name, str(N_TURNS)], cwd=root, stderr=subprocess.PIPE, text=True
        )
        for name in names
    ]
    errors = [child.communicate()[1] for child in children]
    assert errors == [""] * N_PROCESSES
    with MemoryStore(path) as store:
        bodies = sorted(body for (body,) in store.read(lambda c: list(c.execute("SELECT body FROM message"))))
        wanted = [entry.body for name in [*names, "shared"] for n in range(N_TURNS) for entry in turn(name, n)]
        assert bodies == sorted(wanted)
        done = {fact.key: fact.value for fact in store.facts()}
        assert done == {f"{name} has done": str(N_TURNS - 1) for name in names}
        assert store.check(deep=True) == []
