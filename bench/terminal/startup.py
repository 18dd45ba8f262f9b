"""How long a person waits for the program itself: the CPU time of `shepherd --help`, and of one answer from a cold
start.

uv run python -m bench.terminal.startup [--rounds 10]
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time

from bench.rig import machine
from rich.console import Console

BUDGET_MS = 150.0
COMMANDS = {
    "python -c pass": ["-c", "pass"],
    "shepherd --help": ["-m", "shepherd", "--help"],
    "shepherd --version": ["-m", "shepherd", "--version"],
    "shepherd chat -p Hello": ["-m", "shepherd", "chat", "-p", "Hello"],
}


def run(arguments: list[str]) -> tuple[float, float]:
    """CPU and wall milliseconds of one run."""
    before, started = os.times(), time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return cpu * 1000, (time.perf_counter() - started) * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    rounds = parser.parse_args().rounds
    console = Console()
    results = []
    for name, arguments in COMMANDS.items():
        run(arguments)  # byte code and file cache
        cpu, wall = (statistics.median(times) for times in zip(*(run(arguments) for _ in range(rounds)), strict=True))
        console.print(f"{name:>24}: {cpu:6.0f} ms CPU, {wall:6.0f} ms")
        results.append({"command": name, "cpu_ms": round(cpu, 1), "wall_ms": round(wall, 1)})
    help_ms = next(row["cpu_ms"] for row in results if row["command"] == "shepherd --help")
    console.print(f"--help: {float(help_ms) / BUDGET_MS:.2f} of its budget")
    console.print(f"written to {machine.save('startup', {'results': results})}")


if __name__ == "__main__":
    main()
