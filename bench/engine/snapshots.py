"""How fast saved conversations move: into RAM, to disk and back, verified; and how long one search takes.

uv run python -m bench.engine.snapshots [--state-mb 48] [--folder DIR]
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import tempfile
import threading
import time
from array import array
from collections.abc import Callable
from pathlib import Path

from bench.rig import machine
from rich.console import Console

from shepherd.engine.base import Memory
from shepherd.engine.kv.tiers import Snapshot, Snapshots

ATTENTION = Memory(hole=True, rollback="any", share=True, shift=True, checkpoint=False)
"""A model with attention in every layer."""
N_TOKENS = 4096
N_ENTRIES = 1000
N_SHARED = 1000
"""Tokens of the system prompt that all the searched conversations begin with."""
MB = 1_000_000


def conversation(seed: int, state: bytes, *, n_shared: int = 0) -> Snapshot:
    """Random tokens behind a common beginning."""
    chance = random.Random(seed)
    tokens = array("i", [*range(n_shared), *(chance.randrange(150_000) for _ in range(N_TOKENS - n_shared))])
    return Snapshot(tokens, ((0, N_TOKENS, 0),), (), N_TOKENS - 200, state, cost_s=4.0)


def median_s(action: Callable[[], object], rounds: int) -> float:
    """Of one call, in seconds."""
    times = []
    for _ in range(rounds):
        started = time.perf_counter()
        action()
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def moving(folder: Path, state_bytes: int, rounds: int) -> dict[str, float]:
    """MB/s of a write, durable when it is counted, and of a read with its verification; milliseconds of `put`."""
    ready = threading.Event()
    snapshots = [conversation(seed, os.urandom(state_bytes)) for seed in range(rounds)]
    store = Snapshots(
        "bench",
        ATTENTION,
        1 << 20,
        ram_bytes=2 * state_bytes,
        folder=folder,
        disk_bytes=4 * rounds * state_bytes,
        on_ready=ready.set,
    )
    store.flush(60)
    puts, writes, reads = [], [], []
    for snapshot in snapshots:
        started = time.perf_counter()
        store.put(snapshot)
        puts.append(time.perf_counter() - started)
        assert store.flush(600)
        writes.append(time.perf_counter() - started)
    for snapshot in snapshots:  # the files are in the page cache: this is the cost of reading and verifying them
        found = store.find(snapshot.tokens, holes=True)
        assert found is not None
        store.take(found.key)
        ready.clear()
        started = time.perf_counter()
        store.fetch(found.key)
        assert ready.wait(600)
        reads.append(time.perf_counter() - started)
        taken = store.take(found.key)
        assert taken is not None
        assert taken.state == snapshot.state
    store.close()
    return {
        "put_ms": round(1e3 * statistics.median(puts), 3),
        "write_mb_s": round(state_bytes / MB / statistics.median(writes), 1),
        "read_mb_s": round(state_bytes / MB / statistics.median(reads), 1),
    }


def searching(folder: Path) -> dict[str, float]:
    """Milliseconds of `find` and `put` among many, and of reading the folder at the start."""
    snapshots = [conversation(seed, b"x" * 1000, n_shared=N_SHARED) for seed in range(N_ENTRIES)]
    store = Snapshots("bench", ATTENTION, 1 << 20, ram_bytes=1 << 30, folder=folder, disk_bytes=1 << 30)
    for snapshot in snapshots:
        store.put(snapshot)
    chance = random.Random(0)
    known = median_s(lambda: store.find(chance.choice(snapshots).tokens, holes=True), 100)
    branch = snapshots[7].tokens[:2000] + array("i", [1, 2, 3])
    branched = median_s(lambda: store.find(branch, holes=True), 100)
    unknown = median_s(lambda: store.find(array("i", [-1] * N_TOKENS), holes=True), 100)
    numbers = iter(range(N_ENTRIES, 2 * N_ENTRIES))
    put = median_s(lambda: store.put(conversation(next(numbers), b"x"), to_disk=False), 20)
    blank = median_s(lambda: conversation(0, b"x"), 20)
    assert store.flush(600)
    store.close()
    started = time.perf_counter()
    again = Snapshots("bench", ATTENTION, 1 << 20, ram_bytes=1 << 30, folder=folder, disk_bytes=1 << 30)
    assert again.flush(600)
    index = time.perf_counter() - started
    n_files = again.counts.on_disk
    again.close()
    return {
        "find_known_ms": round(1e3 * known, 3),
        "find_branch_ms": round(1e3 * branched, 3),
        "find_unknown_ms": round(1e3 * unknown, 3),
        "put_ms": round(1e3 * (put - blank), 3),
        "index_ms": round(1e3 * index, 1),
        "index_files": n_files,
    }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--state-mb", type=int, default=48, help="size of a state: 48 = 4k tokens of a 0.5B model")
    options.add_argument("--rounds", type=int, default=7)
    options.add_argument("--folder", type=Path, help="on the disk to measure; default: the temporary folder")
    arguments = options.parse_args()
    console = Console()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        moved = moving(Path(name) / "moving", arguments.state_mb * MB, arguments.rounds)
        found = searching(Path(name) / "searching")
    console.print(f"one state of {arguments.state_mb} MB: {moved}")
    console.print(f"{N_ENTRIES} conversations of {N_TOKENS} tokens, the first {N_SHARED} the same: {found}")
    result = {"state_mb": arguments.state_mb, "moving": moved, "entries": N_ENTRIES, "searching": found}
    console.print(f"written to {machine.save('snapshots', result)}")


if __name__ == "__main__":
    main()
