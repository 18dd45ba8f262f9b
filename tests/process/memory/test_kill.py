"""Killed at any moment: no acknowledged message is lost, and sending everything again stores nothing twice."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cases import amount
from tests.places import ROOT

from shepherd.memory.archive import queries
from shepherd.memory.archive.history import archive
from shepherd.memory.archive.index import FTS_TABLES
from shepherd.memory.records import Entry
from shepherd.memory.schema import open_file

N_KILLS = amount(3, 1_000)
A_SESSION = 20
"""Turns."""

CHILD = """
import sys
from shepherd.memory.store import MemoryStore
from tests.process.memory.test_kill import history_at

path, start = sys.argv[1], int(sys.argv[2])
with MemoryStore(path, max_size_bytes=2**40) as store:
    for n in range(start, start + 1_000_000):
        session, history = history_at(n)
        store.archive(history, session=session)
        print(n, flush=True)
"""


def turn(n: int) -> list[Entry]:
    return [Entry("user", f"question {n} about word{n}"), Entry("assistant", f"answer {n} " * (1 + n % 40))]


def history_at(n: int) -> tuple[str, list[Entry]]:
    """The session of turn `n`, and its history up to there."""
    first = n - n % A_SESSION
    return f"session {first}", [entry for each in range(first, n + 1) for entry in turn(each)]


def acknowledged(path: Path, start: int, lifetime_s: float) -> int:
    """Run the child from turn `start` on and kill it; the last turn that it said was stored."""
    root = ROOT
    program = [sys.executable, "-c", CHILD, str(path), str(start)]
    last = start - 1
    with subprocess.Popen(program, cwd=root, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        lines: Iterator[str] = iter(child.stdout)
        last = int(next(lines))  # it has begun
        time.sleep(lifetime_s)
        child.send_signal(signal.SIGKILL)
        for line in lines:
            if line.endswith("\n"):
                last = int(line)
    return last


@pytest.mark.timeout(amount(180, 7_200))
def test_kills_lose_nothing_and_double_nothing(tmp_path: Path) -> None:
    path, rng, n = tmp_path / "m.db", random.Random(11), 0
    for _ in range(N_KILLS):
        n = acknowledged(path, n, rng.uniform(0, 0.2))
    connection = open_file(path)
    try:
        assert connection.execute("PRAGMA integrity_check").get == "ok"
        for table in FTS_TABLES:
            connection.execute(f"INSERT INTO {table}({table}, rank) VALUES('integrity-check', 0)")
        before = connection.execute("SELECT count(*) FROM message").get
        # A turn may be stored whose acknowledgement was killed; none may be missing, and none may come twice.
        assert isinstance(before, int)
        assert 2 * (n + 1) <= before <= 2 * (n + 2)
        connection.execute("BEGIN IMMEDIATE")
        for last in [*range(A_SESSION - 1, n + 1, A_SESSION), n]:
            session, history = history_at(last)
            ids = archive(connection, history, session=session)
            assert [message.body for message in queries.stored(connection, ids)] == [entry.body for entry in history]
        connection.execute("COMMIT")
        assert connection.execute("SELECT count(*) FROM message").get == before
    finally:
        connection.close()
