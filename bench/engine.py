"""Our engine against llama-bench: the same library source, flags, threads and model, in one alternating run.

    uv run python bench/engine.py [--threads 1] [--rounds 5] [--quick]

Measured through everything a request passes below HTTP: mailbox, engine thread, ledger, sampler, ticket, event loop.
The sampling that llama-bench leaves out is counted against us. Ratios above 1 mean that ours is faster. Each round
runs both sides in turn, so that a noisy neighbour disturbs both; the ratio printed is the median of the rounds' ratios.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import subprocess
import time
from array import array
from dataclasses import dataclass
from pathlib import Path

import machine
from llama_tools import tool
from random_gguf import random_model
from rich.console import Console
from rich.table import Table

from shepherd.core import Sampling
from shepherd.engine.base import Job
from shepherd.engine.engine import Engine
from shepherd.engine.llamacpp import ContextOptions, LlamaRuntime, Weights

EMBEDDED = Path(__file__).parent.parent / "src" / "shepherd" / "models" / "lamb.gguf"
N_PROMPT = 500
N_GENERATED = 120
# Chosen so that both sides pad their contexts to the same number of cells: without flash attention, decoding behind a
# long context is a third slower in a larger cache on this kind of CPU, whoever does it.


@dataclass(frozen=True, slots=True)
class Case:
    """One thing to measure."""

    model: str
    kind: str
    """`prefill` of `N_PROMPT` tokens or `decode` of `N_GENERATED`."""
    depth: int
    """Tokens in the context already."""


def theirs(path: Path, case: Case, threads: int) -> float:
    """Tokens/s of llama-bench; one repetition, the warm-up is its own."""
    n_prompt, n_generated = (N_PROMPT, 0) if case.kind == "prefill" else (0, N_GENERATED)
    options = {"-m": path, "-p": n_prompt, "-n": n_generated, "-d": case.depth, "-t": threads, "-fa": "off", "-r": 1}
    command = [str(tool("llama-bench")), "-o", "json", *(str(part) for pair in options.items() for part in pair)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(json.loads(done.stdout)[0]["avg_ts"])


async def ours(engine: Engine, case: Case, n_vocab: int, seed: int) -> float:
    """Tokens/s through a ticket. Another `seed` gives other tokens: the prefix cache must not do the work."""
    rnd = random.Random(seed)

    def tokens(n: int) -> array[int]:
        return array("i", (rnd.randrange(n_vocab // 2) for _ in range(n)))

    sampling = Sampling(temperature=0.8, seed=0, ignore_eos=True)
    context = tokens(case.depth)
    if context:
        await _times(engine, Job(context, 1, sampling))
    if case.kind == "prefill":
        started = time.perf_counter()
        times = await _times(engine, Job(context + tokens(N_PROMPT), 1, sampling))
        return N_PROMPT / (times[-1] - started)
    times = await _times(engine, Job(context + tokens(1), N_GENERATED + 1, sampling))
    return N_GENERATED / (times[-1] - times[0])


async def _times(engine: Engine, job: Job) -> list[float]:
    """When each token of a job arrived on the event loop."""
    times: list[float] = []
    async for steps in engine.submit(job).batches():
        now = time.perf_counter()
        times += [now for step in steps if isinstance(step, int)]
    return times


async def measure(
    path: Path, cases: list[Case], threads: int, rounds: int, console: Console
) -> list[dict[str, object]]:
    """Alternating rounds over all cases of one model."""
    weights = Weights.load(path)
    results = []
    for case in cases:
        n_ctx = case.depth + (N_PROMPT if case.kind == "prefill" else N_GENERATED) + 2
        engine = Engine(LlamaRuntime(weights, ContextOptions(n_ctx=n_ctx, n_threads=threads)))
        await ours(engine, case, weights.n_vocab, -1)  # warm-up, as llama-bench does
        mine, other = [], []
        for seed in range(rounds):
            other.append(theirs(path, case, threads))
            mine.append(await ours(engine, case, weights.n_vocab, seed))
        await asyncio.to_thread(engine.close)
        ratio = statistics.median(a / b for a, b in zip(mine, other, strict=True))
        console.print(f"{case.model:>10} {case.kind:>8} at {case.depth:>5}: ratio [bold]{ratio:.3f}[/bold]")
        results.append(
            {
                "model": case.model,
                "kind": case.kind,
                "depth": case.depth,
                "threads": threads,
                "shepherd_tokens_per_s": round(statistics.median(mine), 1),
                "llama_bench_tokens_per_s": round(statistics.median(other), 1),
                "ratio": round(ratio, 3),
            }
        )
    weights.close()
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1, help="engine threads on both sides")
    parser.add_argument("--rounds", type=int, default=5, help="alternating rounds per case")
    parser.add_argument("--quick", action="store_true", help="the embedded model only")
    options = parser.parse_args()
    console = Console()
    models = {"embedded": EMBEDDED} if options.quick else {"embedded": EMBEDDED, "0.5B": random_model()}
    results: list[dict[str, object]] = []
    for name, path in models.items():
        cases = [Case(name, kind, depth) for depth in (0, 2048) for kind in ("prefill", "decode")]
        results += asyncio.run(measure(path, cases, options.threads, options.rounds, console))
    table = Table("model", "kind", "depth", "Shepherd tok/s", "llama-bench tok/s", "ratio")
    for row in results:
        table.add_row(*(str(row[key]) for key in row if key != "threads"))
    console.print(table)
    console.print(f"written to {machine.save(f'engine-{options.threads}t', {'results': results})}")


if __name__ == "__main__":
    main()
