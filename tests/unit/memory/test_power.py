"""Power cuts, disks that fail and disks that are full: what was acknowledged is there, and the next job works."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from pathlib import Path

import apsw
import pytest
from tests.cases import amount
from tests.unit.memory.disk import Disk, disk

from shepherd.core import MemoryFailure
from shepherd.memory.archive import queries
from shepherd.memory.archive.history import archive
from shepherd.memory.archive.index import FTS_TABLES
from shepherd.memory.records import Entry
from shepherd.memory.schema import open_file
from shepherd.memory.writer import Writer

N_CUTS = amount(5, 400)
N_TURNS = 40


@pytest.fixture
def made() -> Iterator[Disk]:
    with disk() as it:
        yield it


def turn(n: int) -> list[Entry]:
    return [Entry("user", f"question {n} about word{n}"), Entry("assistant", f"answer {n} " * (1 + n % 60))]


upkeeps = itertools.count()


def checkpointing(connection: apsw.Connection, _waited: bool) -> None:
    """Upkeep that brings the log home far more often than the real one, for cuts in the middle of that."""
    if next(upkeeps) % 3 == 0:
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)


def talk(made: Disk, path: Path, *, synchronous: str) -> list[Entry]:
    """Archive turns through a writer, and note on the disk what was acknowledged."""
    connection = open_file(path)
    connection.execute(f"PRAGMA synchronous = {synchronous}").fetchall()
    writer = Writer(connection, name="m", rest=checkpointing)
    history: list[Entry] = []
    for n in range(N_TURNS):
        history += turn(n)
        said = list(history)
        writer.submit(partial(archive, history=said, session="s")).result()
        made.note(len(history))
    writer.close()
    return history


def lost(files: dict[str, bytes], folder: Path, history: list[Entry], n_acknowledged: int) -> int:
    """How many acknowledged messages these files do not have. Raises for what may not happen at any cut."""
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    connection = open_file(folder / "m.db")
    try:
        assert connection.execute("PRAGMA integrity_check").get == "ok"
        stored = [body for (body,) in connection.execute("SELECT body FROM message ORDER BY seq")]
        assert stored == [entry.body for entry in history[: len(stored)]]
        ids = archive(connection, history, session="s")
        assert [message.body for message in queries.stored(connection, ids)] == [entry.body for entry in history]
        assert connection.execute("SELECT count(*) FROM message").get == len(history)
        for table in FTS_TABLES:
            connection.execute(f"INSERT INTO {table}({table}, rank) VALUES('integrity-check', 0)")
        return max(0, n_acknowledged - len(stored))
    finally:
        connection.close()


def cuts(made: Disk, folder: Path, history: list[Entry], n: int) -> int:
    """How many acknowledged messages `n` power cuts lose, all together."""
    rng = random.Random(7)
    first = next(at for at, op in enumerate(made.log) if op.kind == "note")
    apsw.set_default_vfs("unix")
    hooks, apsw.connection_hooks[:] = list(apsw.connection_hooks), []
    try:
        total = 0
        for number in range(n):
            moment = rng.randrange(first, len(made.log) + 1)
            acknowledged = [count for count in made.noted(moment) if isinstance(count, int)]
            files = made.at(moment, rng if number % 3 else None)
            total += lost(files, folder / str(number), history, max(acknowledged, default=0))
        return total
    finally:
        apsw.connection_hooks[:] = hooks


def test_no_power_cut_loses_what_was_acknowledged(made: Disk, tmp_path: Path) -> None:
    history = talk(made, tmp_path / "m.db", synchronous="FULL")
    assert cuts(made, tmp_path, history, N_CUTS) == 0


def test_the_power_cuts_would_find_a_commit_that_is_not_synced(made: Disk, tmp_path: Path) -> None:
    history = talk(made, tmp_path / "m.db", synchronous="NORMAL")
    assert cuts(made, tmp_path, history, 15) > 0


FAULTS = {
    "a sync that fails": ("sync", apsw.IOError),
    "a write that fails": ("write", apsw.IOError),
    "a full disk": ("write", apsw.FullError),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_write_that_a_failing_disk_refuses_is_reported_and_can_be_sent_again(
    made: Disk, tmp_path: Path, fault: str
) -> None:
    kind, error = FAULTS[fault]
    # A turn is one sync and many writes; how many of them upkeep makes for itself, nobody can say.
    rng, chance = random.Random(3), 0.25 if kind == "sync" else 0.04
    writer = Writer(open_file(tmp_path / "m.db"), name="m.db", rest=checkpointing)
    history: list[Entry] = []
    n_failed = acknowledged = 0
    for n in range(N_TURNS):
        history += turn(n)
        said = list(history)
        made.fails = lambda did, file: (
            error if did == kind and file.endswith("-wal") and rng.random() < chance else None
        )
        failure = writer.submit(partial(archive, history=said, session="s")).exception()
        if failure is None:
            acknowledged = len(history)
        else:
            assert isinstance(failure, MemoryFailure)
            assert failure.message.startswith("the memory m.db failed: its disk ")
            assert isinstance(failure.__cause__, error)
            n_failed += 1
    made.fails = lambda _kind, _file: None
    assert 0 < n_failed < N_TURNS
    left = made.at(len(made.log), None)
    made.note(acknowledged)
    writer.submit(lambda connection: archive(connection, history, session="s")).result()
    writer.close()
    apsw.set_default_vfs("unix")
    hooks, apsw.connection_hooks[:] = list(apsw.connection_hooks), []
    try:
        assert lost(left, tmp_path / "left", history, acknowledged) == 0
        whole = {name: (tmp_path / name).read_bytes() for name in ("m.db", "m.db-wal") if (tmp_path / name).exists()}
        assert lost(whole, tmp_path / "whole", history, len(history)) == 0
    finally:
        apsw.connection_hooks[:] = hooks


def test_a_job_too_large_for_the_disk_does_not_fail_those_that_wait_with_it(made: Disk, tmp_path: Path) -> None:
    writer = Writer(open_file(tmp_path / "m.db"), name="m.db")

    def large(connection: apsw.Connection) -> None:
        made.fails = lambda did, _file: apsw.FullError if did == "write" else None
        try:
            archive(connection, [Entry("user", "x" * 10_000_000)], session="large")
            connection.cache_flush()
        finally:
            made.fails = lambda _kind, _file: None

    gate: Future[None] = Future()
    held = writer.submit(lambda _connection: gate.result())
    small = [partial(archive, history=turn(n), session=str(n)) for n in range(3)]
    jobs: list[Callable[[apsw.Connection], object]] = [small[0], large, *small[1:]]
    waiting = [writer.submit(job) for job in jobs]
    gate.set_result(None)
    held.result()
    assert [type(future.exception()) for future in waiting] == [type(None), MemoryFailure, type(None), type(None)]
    writer.close()
