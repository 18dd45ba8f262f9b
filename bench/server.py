"""Our server against llama-server: the same library source, flags, threads and model, taking turns under one yardstick.

    uv run python bench/server.py [--threads 1] [--rounds 3] [--yardstick PATH]

The yardstick is a script that measures any OpenAI-compatible server from outside and prints one JSON line: turns of one
conversation behind a long system prompt, one-token requests, streamed tokens/s with 1 to 8 clients. Both servers run
one at a time, in turn, `--rounds` times; the ratio printed is the median of the rounds' ratios, above 1 when ours is
better.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import machine
from rich.console import Console
from sides import EMBEDDED, Setup, Side, in_turn, running
from verdict import Verdict

YARDSTICK = Path(__file__).parent.parent.parent / "shared" / "tools" / "measure_server.py"

N_CTX = 4096
SEQUENCES = 8
"""As many as the yardstick's clients at most."""


def measure(yardstick: Path, side: Side, setup: Setup, arguments: list[str]) -> dict[str, Any]:
    """One run of the yardstick over one freshly started server: its report."""
    with running(side, setup) as server:
        done = subprocess.run(
            [sys.executable, yardstick, f"http://127.0.0.1:{server.port}", *arguments],
            check=True, capture_output=True, text=True,
        )  # fmt: skip
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return report


def note(verdict: Verdict, side: Side, report: dict[str, Any]) -> None:
    """Take the yardstick's report apart."""
    turns = [turn[0] * 1000 for turn in report["turns"]]
    verdict.add("turn 1", side, turns[0])
    verdict.add("later turns: median", side, statistics.median(turns[1:]))
    for name, value in report.items():
        if name.startswith("one_token"):
            verdict.add(name.removesuffix("_ms").replace("_", " "), side, value)
        elif name.startswith("clients_"):
            clients = name.replace("_", " ")
            verdict.add(f"{clients}: all tokens", side, value["tok_s"], unit="tokens/s", better="more")
            verdict.add(f"{clients}: first token", side, value["ttft_ms"])
            if value["gap_p99_ms"] is not None:
                verdict.add(f"{clients}: gap, 99 %", side, value["gap_p99_ms"])


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
    verdict = Verdict()
    setup = Setup(EMBEDDED, N_CTX, options.threads, sequences=SEQUENCES)
    for round_ in range(options.rounds):
        for side in in_turn(round_):
            console.print(f"round {round_ + 1} of {options.rounds}: {side}")
            note(verdict, side, measure(options.yardstick, side, setup, ["--sys", str(options.system_tokens)]))
    verdict.show(console, f"the common yardstick, embedded model, {options.threads} thread(s)")
    path = machine.save(f"server-{options.threads}t", {"threads": options.threads, "results": verdict.results()})
    console.print(f"written to {path}")


if __name__ == "__main__":
    main()
