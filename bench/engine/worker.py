"""What a process of its own costs an engine: `ChildEngine` against `InProcessEngine` over the same runtime, in turn.

    uv run python -m bench.engine.worker [--rounds 7] [--model fake] [--jobs 8]

`fake` computes nothing (the tests' runtime), so that only the engine and the way of its steps are measured; `embedded`
is the small model that Shepherd brings, on one thread. Ratios are the child's over the other's in the same round.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import statistics
import sys
import time
from array import array

import psutil
from bench.rig import machine
from bench.rig.machine import ROOT
from rich.console import Console

from shepherd.core import Sampling
from shepherd.engine.base import Engine, Job, Ticket
from shepherd.engine.engine import InProcessEngine
from shepherd.engine.scheduler import EngineOptions
from shepherd.engine.worker.child_engine import ChildEngine
from shepherd.engine.worker.host import SWITCH_INTERVAL_S
from shepherd.engine.worker.messages import RemoteModel
from shepherd.engine.worker.model_process import ModelProcess, Program

MODELS, JOBS = ("fake", "embedded"), (1, 8)
N_TOKENS, N_FIRST = {"fake": 2000, "embedded": 400}, 100


def make(model: str, _workplace: object = None) -> RemoteModel:
    """For a child."""
    return RemoteModel((engine(model),))


def engine(model: str) -> InProcessEngine:
    """The child imports this module."""
    options = EngineOptions(sequences=8)
    if model == "fake":
        from tests.fake_engine import FakeRuntime

        return InProcessEngine(FakeRuntime(lambda tokens: len(tokens) % 256, n_ctx=20_000, n_seq=16), options=options)
    from shepherd.engine.llamacpp.runtime import ContextOptions, LlamaRuntime
    from shepherd.engine.llamacpp.weights import Weights

    weights = Weights.load(ROOT / "src" / "shepherd" / "models" / "lamb.gguf")
    context = ContextOptions(n_ctx=4096, n_seq=16, n_outputs=8, n_threads=1)
    return InProcessEngine(LlamaRuntime(weights, context), options=options)


def child(model: str) -> ChildEngine:
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    command = [sys.executable, "-m", "shepherd.engine.worker"]
    program = Program(command, "bench.engine.worker:make", (model,), {**os.environ, "PYTHONPATH": paths})
    return ChildEngine(ModelProcess(program, title="cache 'main'"))


def job(n_tokens: int) -> Job:
    """Of a prompt that nothing has in common with any other."""
    prompt = array("i", (random.randrange(200) for _ in range(8)))
    return Job(prompt, n_tokens, Sampling(temperature=0.8, seed=0, ignore_eos=True))


async def read(ticket: Ticket, n: int = 10**9) -> int:
    """Read so many tokens."""
    got = 0
    async for steps in ticket.batches():
        got += sum(type(step) is int for step in steps)
        if got >= n:
            break
    return got


async def measure(engine: Engine, n_jobs: int, n_tokens: int) -> dict[str, float]:
    await read(engine.submit(job(50)))  # warm
    processes = [psutil.Process(), *psutil.Process().children()]
    cpu_s = sum(sum(each.cpu_times()[:2]) for each in processes)
    begun = time.perf_counter()
    n = sum(await asyncio.gather(*(read(engine.submit(job(n_tokens))) for _ in range(n_jobs))))
    took_s = time.perf_counter() - begun
    cpu_s = sum(sum(each.cpu_times()[:2]) for each in processes) - cpu_s
    firsts = []
    for _ in range(N_FIRST):
        begun = time.perf_counter()
        await read(engine.submit(job(1)), 1)
        firsts.append(time.perf_counter() - begun)
    return {
        "tokens_per_s": n / took_s,
        "cpu_us_per_token": 1e6 * cpu_s / n,
        "first_token_us": 1e6 * statistics.median(firsts),
    }


def compare(model: str, n_jobs: int, rounds: int) -> dict[str, object]:
    taken: dict[str, list[dict[str, float]]] = {"in_process": [], "child": []}
    for turn in range(rounds):
        for name in sorted(taken, reverse=bool(turn % 2)):
            made: Engine = engine(model) if name == "in_process" else child(model)
            taken[name].append(asyncio.run(measure(made, n_jobs, N_TOKENS[model])))
            made.close()
    row: dict[str, object] = {"model": model, "jobs": n_jobs, "rounds": rounds}
    for metric in taken["child"][0]:
        for name, values in taken.items():
            row[f"{name}_{metric}"] = round(statistics.median(each[metric] for each in values), 1)
        ratios = [a[metric] / b[metric] for a, b in zip(taken["child"], taken["in_process"], strict=True)]
        row[f"ratio_{metric}"] = round(statistics.median(ratios), 3)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--model", choices=MODELS, action="append")
    parser.add_argument("--jobs", type=int, action="append")
    options = parser.parse_args()
    sys.setswitchinterval(SWITCH_INTERVAL_S)  # as the program does
    console = Console(width=200)
    rows = []
    for model in options.model or MODELS:
        for n_jobs in options.jobs or JOBS:
            rows.append(row := compare(model, n_jobs, options.rounds))
            console.print(row)
    console.print(f"written to {machine.save('worker', {'results': rows})}")


if __name__ == "__main__":
    main()
