"""Our server against llama-server: the same library source, flags, threads and model, taking turns under one yardstick.

    uv run python bench/server.py [--threads 1] [--rounds 3] [--yardstick PATH]

The yardstick is a script that measures any OpenAI-compatible server from outside and prints one JSON line: turns of one
conversation behind a long system prompt, one-token requests, streamed tokens/s with 1 to 8 clients. Both servers run
one at a time, in turn, `--rounds` times; the ratio printed is the median of the rounds' ratios, above 1 when ours is
better.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import machine
from llama_tools import tool
from rich.console import Console
from rich.table import Table

from engine import EMBEDDED

YARDSTICK = Path(__file__).parent.parent.parent / "shared" / "tools" / "measure_server.py"
START_S = 120.0

N_CTX = 4096

BETTER_IS_LESS = ("_ms", "turn")
"""Measurements whose names contain one of these are times."""


@contextlib.contextmanager
def running(command: list[str], port: int) -> Iterator[None]:
    """A server for the length of the block."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait(process, port)
        yield
    finally:
        process.terminate()
        process.wait(20)


def _wait(process: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise SystemExit(f"the server ended with status {process.returncode}")
        with contextlib.suppress(OSError):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            connection.request("GET", "/health")
            if connection.getresponse().status == http.client.OK:
                return
        time.sleep(0.1)
    raise SystemExit("the server did not start in time")


def commands(model: Path, threads: int) -> dict[str, list[str]]:
    """How each server is started, `{port}` to be filled in."""
    common = ["--host", "127.0.0.1", "--port", "{port}"]
    ours = [sys.executable, "-m", "shepherd", "serve", "--model", str(model), *common]
    theirs = [str(tool("llama-server")), "-m", str(model), *common, "--jinja", "-fa", "off"]
    return {
        "shepherd": [*ours, "--context-size", str(N_CTX), "--threads", str(threads)],
        # Its best setting for many clients: four slots over one pool are its default; eight serve eight clients at
        # once.
        "llama-server": [*theirs, "-c", str(N_CTX), "-np", "8", "-kvu", "-t", str(threads)],
    }


def measure(yardstick: Path, command: list[str], arguments: list[str]) -> dict[str, float]:
    """One run of the yardstick over one freshly started server, flattened to named numbers."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with running([part.format(port=port) for part in command], port):
        done = subprocess.run(
            [sys.executable, yardstick, f"http://127.0.0.1:{port}", *arguments],
            check=True, capture_output=True, text=True,
        )  # fmt: skip
    return flatten(json.loads(done.stdout.splitlines()[-1]))


def flatten(report: dict[str, Any]) -> dict[str, float]:
    """The yardstick's report as numbers by name."""
    turns = [turn[0] * 1000 for turn in report["turns"]]
    numbers = {"turn_1_ms": turns[0], "later_turns_ms": statistics.median(turns[1:])}
    for name, value in report.items():
        if name.startswith("one_token"):
            numbers[name] = value
        elif name.startswith("clients_"):
            numbers[f"{name}_tok_s"] = value["tok_s"]
            numbers[f"{name}_ttft_ms"] = value["ttft_ms"]
            if value["gap_p99_ms"] is not None:
                numbers[f"{name}_gap_p99_ms"] = value["gap_p99_ms"]
    return numbers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--yardstick", type=Path, default=YARDSTICK)
    parser.add_argument("--system-tokens", type=int, default=2000)
    options = parser.parse_args()
    if not options.yardstick.exists():
        raise SystemExit(f"no yardstick at {options.yardstick}; name one with --yardstick")
    console = Console()
    runs: dict[str, list[dict[str, float]]] = {"shepherd": [], "llama-server": []}
    for turn in range(options.rounds):
        for name, command in commands(EMBEDDED, options.threads).items():
            console.print(f"round {turn + 1} of {options.rounds}: {name}")
            runs[name].append(measure(options.yardstick, command, ["--sys", str(options.system_tokens)]))
    results = []
    table = Table("measured", "Shepherd", "llama-server", "ratio")
    for name in runs["shepherd"][0]:
        mine, theirs = ([run[name] for run in runs[who]] for who in runs)
        pairs = zip(mine, theirs, strict=True)
        is_time = any(mark in name for mark in BETTER_IS_LESS)
        ratio = statistics.median(b / a if is_time else a / b for a, b in pairs)
        row = {
            "measured": name,
            "shepherd": round(statistics.median(mine), 2),
            "llama_server": round(statistics.median(theirs), 2),
            "ratio": round(ratio, 3),
        }
        results.append(row)
        table.add_row(*map(str, row.values()))
    console.print(table)
    path = machine.save(f"server-{options.threads}t", {"threads": options.threads, "results": results})
    console.print(f"written to {path}")


if __name__ == "__main__":
    main()
