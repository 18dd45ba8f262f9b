"""What a process of its own costs a model: an engine in a child against one in this process, in turn.

    uv run python -m bench.engine.worker [--rounds 7] [--model fake] [--threads 1] [--jobs 8]

`fake` computes nothing (the tests' runtime), so that only the engine and the way of its steps are measured. Other
models are made by the same code as in the program: `embedded`, `0.5B` (random weights), or the path of a GGUF file.
Ratios are the child's over the other's in the same round.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import statistics
import sys
import time
from array import array
from collections.abc import Iterator

import psutil
from bench.rig import machine
from bench.rig.machine import ROOT
from bench.rig.sides import model_path
from rich.console import Console

from shepherd.core import Sampling
from shepherd.engine.base import Engine, Job, Ticket
from shepherd.engine.engine import InProcessEngine
from shepherd.engine.scheduler import EngineOptions
from shepherd.engine.worker.host import SWITCH_INTERVAL_S
from shepherd.engine.worker.messages import RemoteModel
from shepherd.engine.worker.model_process import ChildEngine, ModelProcess, Program

MODELS, JOBS = ("fake", "embedded"), (1, 8)
N_FIRST, N_PROMPT = 50, 512
N_TOKENS = {"fake": 2000, "embedded": 400}
"""Of an answer; 100 of other models."""


def fake() -> InProcessEngine:
    from tests.fake_engine import FakeRuntime

    runtime = FakeRuntime(lambda tokens: len(tokens) % 256, n_ctx=20_000, n_seq=16)
    return InProcessEngine(runtime, options=EngineOptions(sequences=8))


def serve_fake(_workplace: object) -> RemoteModel:
    """The child imports this module."""
    return RemoteModel((fake(),))


@contextlib.contextmanager
def running(model: str, threads: int, *, apart: bool) -> Iterator[Engine]:
    if model == "fake" and apart:
        paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
        command = [sys.executable, "-m", "shepherd.engine.worker"]
        program = Program(command, "bench.engine.worker:serve_fake", (), {**os.environ, "PYTHONPATH": paths})
        with contextlib.closing(ChildEngine(ModelProcess(program, title="fake"))) as engine:
            yield engine
    elif model == "fake":
        with contextlib.closing(fake()) as made:
            yield made
    else:
        from shepherd.engine.llamacpp.model import CacheOptions, LlamaModel, ModelOptions
        from shepherd.engine.llamacpp.remote import RemoteLlama
        from shepherd.engine.llamacpp.runtime import ContextOptions

        context = ContextOptions(n_ctx=8192, n_seq=16, n_outputs=8, n_threads=threads)
        cache = CacheOptions("main", context, EngineOptions(sequences=8), 16)
        options = ModelOptions(model_path(model), "chat", (cache,))
        loaded = RemoteLlama(options, title=model) if apart else LlamaModel(options.load(), options)
        engine_: Engine = loaded.engines[0]
        yield engine_
        engine_.close()
        loaded.free()


def job(n_tokens: int, n_prompt: int = 8) -> Job:
    """Of a prompt that nothing has in common with any other."""
    prompt = array("i", (random.randrange(200) for _ in range(n_prompt)))
    return Job(prompt, n_tokens, Sampling(temperature=0.8, seed=0, ignore_eos=True))


async def read(ticket: Ticket) -> int:
    """How many tokens come."""
    return sum([type(step) is int async for steps in ticket.batches() for step in steps])


async def first_s(engine: Engine, n_prompt: int = 8) -> float:
    """Seconds to the first of a few tokens: with the last one the figures of the cache come."""
    begun, came = time.perf_counter(), list[float]()
    async for steps in engine.submit(job(4, n_prompt)).batches():
        came += [time.perf_counter() for step in steps if type(step) is int]
    return came[0] - begun


async def measure(engine: Engine, n_jobs: int, n_tokens: int) -> dict[str, float]:
    await read(engine.submit(job(50)))  # warm
    processes = [psutil.Process(), *psutil.Process().children()]
    cpu_s = sum(sum(each.cpu_times()[:2]) for each in processes)
    begun = time.perf_counter()
    n = sum(await asyncio.gather(*(read(engine.submit(job(n_tokens))) for _ in range(n_jobs))))
    took_s = time.perf_counter() - begun
    cpu_s = sum(sum(each.cpu_times()[:2]) for each in processes) - cpu_s
    firsts = [await first_s(engine) for _ in range(N_FIRST)]
    return {
        "tokens_per_s": n / took_s,
        "cpu_us_per_token": 1e6 * cpu_s / n,
        "first_token_us": 1e6 * statistics.median(firsts),
        "quickest_first_token_us": 1e6 * min(firsts),
        "prefill_tokens_per_s": N_PROMPT / await first_s(engine, N_PROMPT),
        "mib": sum(each.memory_full_info().uss for each in processes) / 2**20,
    }


def compare(model: str, threads: int, n_jobs: int, rounds: int) -> dict[str, object]:
    taken: dict[str, list[dict[str, float]]] = {"in_process": [], "child": []}
    for turn in range(rounds):
        for name in sorted(taken, reverse=bool(turn % 2)):
            with running(model, threads, apart=name == "child") as engine:
                taken[name].append(asyncio.run(measure(engine, n_jobs, N_TOKENS.get(model, 100))))
    row: dict[str, object] = {"model": model, "threads": threads, "jobs": n_jobs, "rounds": rounds}
    for metric in taken["child"][0]:
        for name, values in taken.items():
            row[f"{name}_{metric}"] = round(statistics.median(each[metric] for each in values), 1)
        ratios = [a[metric] / b[metric] for a, b in zip(taken["child"], taken["in_process"], strict=True)]
        row[f"ratio_{metric}"] = round(statistics.median(ratios), 3)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--model", action="append")
    parser.add_argument("--threads", type=int, action="append")
    parser.add_argument("--jobs", type=int, action="append")
    options = parser.parse_args()
    sys.setswitchinterval(SWITCH_INTERVAL_S)  # as the program does
    console = Console(width=200)
    rows = []
    for model in options.model or MODELS:
        for threads in options.threads or (1,):
            for n_jobs in options.jobs or JOBS:
                rows.append(row := compare(model, threads, n_jobs, options.rounds))
                console.print(row)
    console.print(f"written to {machine.save('worker', {'results': rows})}")


if __name__ == "__main__":
    main()
