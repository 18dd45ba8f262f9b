"""How much memory a process keeps after busy moments, and what a large block costs: glibc's default, a fixed threshold.

uv run python -m bench.engine.heap

Six threads allocate and free blocks of 1 to 6 MB, as saving and loading conversations does, and keep small blocks
between them. Before that, one block of 30 MB is freed, which raises glibc's threshold. Two processes in turn, three
times. With a fixed threshold (mallopt(3), M_MMAP_THRESHOLD) blocks of 1 MB and more always go back to the system.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys

from rich.console import Console
from rich.table import Table

ROUNDS = 3
WORK = """
import ctypes, json, random, sys, threading, time
import psutil
if sys.argv[1] == "fixed":
    ctypes.CDLL(None).mallopt(-3, 1 << 20)

def resident():
    return psutil.Process().memory_info().rss / 1e6

def touched(n):
    block = bytearray(n)
    block[::4096] = b"x" * len(block[::4096])
    return block

def work(seed):
    chance, kept = random.Random(seed), []
    for _ in range(300):
        block, small = touched(chance.randrange(1 << 20, 6 << 20)), bytearray(chance.randrange(1_000, 60_000))
        if chance.random() < 0.05:
            kept.append(small)
        del block

before = resident()
touched(30 << 20)
threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
kept, begun = resident() - before, time.perf_counter()
for _ in range(200):
    touched(2 << 20)
print(json.dumps([kept, (time.perf_counter() - begun) / 200 * 1e3]))
"""


def run(how: str) -> tuple[float, float]:
    """MB that a process holds more at the end than at its start, and ms for a block of 2 MB."""
    done = subprocess.run([sys.executable, "-c", WORK, how], capture_output=True, text=True, check=True)
    kept, ms = json.loads(done.stdout.splitlines()[-1])
    return kept, ms


def main() -> None:
    found: dict[str, list[tuple[float, float]]] = {"default": [], "fixed": []}
    for _ in range(ROUNDS):
        for how, figures in found.items():
            figures.append(run(how))
    table = Table("threshold", "MB kept", "ms for a block of 2 MB")
    for how, figures in found.items():
        kept, ms = (statistics.median(each) for each in zip(*figures, strict=True))
        table.add_row(how, f"{kept:.0f}", f"{ms:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
