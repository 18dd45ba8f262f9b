"""The figures of `shepherd bench` by other means: llama-bench for the engine, llama-server as the other side.

    uv run python -m bench.optimize.standard [--model embedded] [--rounds 7] [--budget 3m] [--nice -10]

*Engine*: a child of `shepherd bench` and llama-bench over the same file, in turn: a prompt of 512 tokens, 32 tokens
generated in an empty context and behind 512; in tokens per second of processor time, which a busy machine disturbs
less. *Against*: what `shepherd bench --against` reports of a llama-server that is
built from the same source. Ratios above 1 mean that ours is faster; a figure of ours that is right has 1 in its
interval, or what the two programs really differ by: ours generates over a context of 768 cells, llama-bench over 256
where nothing is before it; a row of its own has 256 on both sides. `--nice`: the priority of both sides, on a machine
that is busy with something else.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.rig import machine
from bench.rig.llama_tools import tool
from bench.rig.sides import Setup, model_path, running
from rich.console import Console
from rich.table import Table

from shepherd.measure.metrics import BY_NAME
from shepherd.measure.space import Candidate
from shepherd.measure.statistics import paired, spread
from shepherd.measure.trial import Workload, measure

DEPTH, N_GENERATE = 512, 32
TESTS = {
    "prompt": ("-p", DEPTH, "-n", 0, "-d", 0),
    "generation": ("-p", 0, "-n", N_GENERATE, "-d", 0),
    "generation, 256 cells": ("-p", 0, "-n", N_GENERATE, "-d", 0),
    "generation_deep": ("-p", 0, "-n", N_GENERATE, "-d", DEPTH),
}
REPEAT_S = 2.0
REPEATS = {"prompt": 2}
"""Of llama-bench, more than one; 10 for what is not here."""
BY_PROCESSOR = (
    "import sys, time; time.perf_counter = time.process_time; "
    "from shepherd.measure.trial import _child; sys.exit(_child(sys.argv[1]))"
)
"""The child of `shepherd bench`, with a clock that stands still while other programs run."""
CANDIDATE = Candidate(n_threads=1, n_batch=512, n_ubatch=512, flash_attn=False)


def ours(path: Path) -> dict[str, float]:
    """The runs of one child as `shepherd bench` starts it; the first one warms up, as llama-bench does."""

    found = {}
    for workload, names in (
        (Workload(DEPTH, N_GENERATE), {"prompt": "prompt", "generation": "empty", "generation_deep": "deep"}),
        (Workload(64, N_GENERATE), {"generation, 256 cells": "empty"}),
    ):
        runs = measure(
            path, CANDIDATE, workload, repeat_s=REPEAT_S, timeout_s=600, command=(sys.executable, "-c", BY_PROCESSOR)
        )
        assert not runs[0].problem, runs[0].problem
        assert workload.n_ctx == 256 or workload.depth == DEPTH
        for name, field in names.items():
            found[name] = float(statistics.median(getattr(run, field) for run in runs[1:] or runs))
    return found


def theirs(path: Path) -> dict[str, float]:
    """By what a process with more repetitions takes more than one with a single one."""

    def processor_s(test: Sequence[object], n_repeats: int) -> float:
        command = [tool("llama-bench"), "-m", path, "-t", 1, "-fa", "off", "-r", n_repeats, "-o", "json", *test]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([*map(str, command)], check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    found = {}
    for name, test in TESTS.items():
        n = REPEATS.get(name, 10)
        n_tokens = DEPTH if name == "prompt" else N_GENERATE
        found[name] = n * n_tokens / (processor_s(test, 1 + n) - processor_s(test, 1))
    return found


def engine(path: Path, n_rounds: int) -> list[dict[str, Any]]:
    samples: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in TESTS}
    for n in range(n_rounds):
        sides = {side: side(path) for side in ((ours, theirs), (theirs, ours))[n % 2]}
        for name, (mine, other) in samples.items():
            mine.append(sides[ours][name])
            other.append(sides[theirs][name])
    rows = []
    for name, (mine, other) in samples.items():
        found = paired(BY_NAME["generation"], other, mine)  # all are speeds
        assert found is not None
        rows.append({
            "figure": name, "shepherd bench": spread(mine).median, "llama-bench": spread(other).median,
            "ratio": found.middle, "interval": [found.low, found.high], "rounds": [mine, other],
        })  # fmt: skip
    return rows


def against(path: Path, budget: str) -> dict[str, Any]:
    """The report of the command itself."""
    setup = Setup(path, n_ctx=4 * DEPTH, threads=1, sequences=1)
    with tempfile.TemporaryDirectory(prefix="shepherd-bench-") as folder, running("llama-server", setup) as server:
        file = Path(folder) / "report.json"
        options = ("--threads", "1", "--no-flash-attn", "--budget", budget, "--json", file)
        command = (sys.executable, "-m", "shepherd", "bench", "--model", path, *options)
        subprocess.run([*map(str, command), "--against", f"http://127.0.0.1:{server.port}"], check=True)
        report: dict[str, Any] = json.loads(file.read_text())
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="embedded", help="embedded, 0.5B, or a GGUF file")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--budget", default="3m", help="of shepherd bench --against")
    parser.add_argument("--nice", type=int, default=0)
    options = parser.parse_args()
    os.nice(options.nice)
    path = model_path(options.model)
    console = Console(width=120)
    rows = engine(path, options.rounds)
    table = Table("figure", "shepherd bench, tok/s", "llama-bench, tok/s", "ratio", "95 % interval", title=path.name)
    for row in rows:
        low, high = row["interval"]
        values = (f"{row[side]:.1f}" for side in ("shepherd bench", "llama-bench"))
        table.add_row(row["figure"], *values, f"{row['ratio']:.3f}", f"{low:.3f} to {high:.3f}")
    console.print(table)
    report = against(path, options.budget)
    name = options.model if options.model in ("embedded", "0.5B") else path.stem
    console.print(f"written to {machine.save(f'standard-{name}', {'engine': rows, 'against': report})}")


if __name__ == "__main__":
    main()
