"""Our server against llama-server: the same library source, flags, threads and model, taking turns under one yardstick.

    uv run python -m bench.server.server [--threads 1] [--rounds 3] [--yardstick PATH] [--part cold]

Two parts. *The yardstick* is a script that measures any OpenAI-compatible server from outside and prints one JSON line:
turns of one conversation behind a long system prompt, one-token requests, streamed tokens/s with 1 to 8 clients. Both
servers run one at a time, in turn, `--rounds` times. *Cold first tokens*: both servers run, and prompts of 16 to 1,024
tokens that neither has seen go to one and the other in turn; the time to the first token, and the processor time that
the server takes for the whole request, are medians of `REQUESTS` in each round. The ratio printed is the median of the
rounds' ratios, above 1 when ours is better.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from bench.rig import machine
from bench.rig.dialogue import DRAWN, text
from bench.rig.machine import EMBEDDED
from bench.rig.sides import SIDES, Server, Setup, Side, in_turn, running
from bench.rig.traffic import ask
from bench.rig.verdict import Verdict
from rich.console import Console

YARDSTICK = machine.SHARED / "tools" / "measure_server.py"

N_CTX = 4096
SEQUENCES = 8
"""As many as the yardstick's clients at most."""
COLD_TOKENS = (16, 64, 256, 1024)
REQUESTS = 9
"""Cold prompts of each size and round."""
PARTS = ("yardstick", "cold")


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


def cold(servers: dict[Side, Server], n_tokens: int, round_: int) -> dict[Side, tuple[float, float]]:
    """By side, what a prompt that it has never seen takes: ms to its first token, and ms of the processor."""
    took: dict[Side, list[tuple[float, float]]] = defaultdict(list)
    for n in range(REQUESTS):
        for side in in_turn(round_ + n):
            content = text(random.Random(f"{round_} {n_tokens} {n}"), n_tokens)
            cpu_s = servers[side].processor_s
            reply = ask(
                servers[side].port, {"messages": [{"role": "user", "content": content}], "max_tokens": 1, **DRAWN}
            )
            took[side].append((reply.ttft_s * 1000, (servers[side].processor_s - cpu_s) * 1000))
    medians = {side: [statistics.median(column) for column in zip(*rows, strict=True)] for side, rows in took.items()}
    return {side: (first_ms, cpu_ms) for side, (first_ms, cpu_ms) in medians.items()}


def measure_cold(verdict: Verdict, setup: Setup, rounds: int, console: Console) -> None:
    with running(SIDES[0], setup) as ours, running(SIDES[1], setup) as theirs:
        servers = {ours.side: ours, theirs.side: theirs}
        cold(servers, COLD_TOKENS[0], -1)  # warm-up
        for round_ in range(rounds):
            console.print(f"cold first tokens, round {round_ + 1} of {rounds}")
            for n_tokens in COLD_TOKENS:
                for side, (first_ms, cpu_ms) in cold(servers, n_tokens, round_).items():
                    verdict.add(f"cold prompt of {n_tokens} tokens: first token", side, first_ms)
                    verdict.add(f"cold prompt of {n_tokens} tokens: processor", side, cpu_ms)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--yardstick", type=Path, default=YARDSTICK)
    parser.add_argument("--system-tokens", type=int, default=2000)
    parser.add_argument("--part", choices=PARTS, action="append", help="only this part")
    options = parser.parse_args()
    parts = options.part or PARTS
    if "yardstick" in parts and not options.yardstick.exists():
        raise SystemExit(f"no yardstick at {options.yardstick}; name one with --yardstick")
    console = Console()
    verdict = Verdict()
    setup = Setup(EMBEDDED, N_CTX, options.threads, sequences=SEQUENCES)
    if "cold" in parts:
        measure_cold(verdict, setup, options.rounds, console)
    for round_ in range(options.rounds if "yardstick" in parts else 0):
        for side in in_turn(round_):
            console.print(f"round {round_ + 1} of {options.rounds}: {side}")
            note(verdict, side, measure(options.yardstick, side, setup, ["--sys", str(options.system_tokens)]))
    verdict.show(console, f"{' and '.join(parts)}, embedded model, {options.threads} thread(s)")
    path = machine.save(
        "-".join(("server", *(options.part or ()), f"{options.threads}t")),
        {"threads": options.threads, "results": verdict.results()},
    )
    console.print(f"written to {path}")


if __name__ == "__main__":
    main()
