"""Our engine against llama-bench: the same library source, flags, threads and model, in one alternating run.

    uv run python -m bench.engine.engine [--threads 1] [--rounds 5] [--model embedded] [--kind decode] [--depth 0]

Measured through everything a request passes below HTTP: mailbox, engine thread, ledger, sampler, ticket, event loop.
The sampling that llama-bench leaves out is counted against us. Ratios above 1 mean that ours is faster. Each round
runs both sides in turn, so that a noisy neighbour disturbs both; the ratio printed is the median of the rounds' ratios.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import time
from array import array
from dataclasses import dataclass
from pathlib import Path

from bench.rig import machine
from bench.rig.llama_tools import llama_bench
from bench.rig.machine import EMBEDDED
from bench.rig.random_gguf import random_model
from rich.console import Console
from rich.table import Table

from shepherd.core import Sampling
from shepherd.engine.base import Job
from shepherd.engine.engine import InProcessEngine
from shepherd.engine.llamacpp.runtime import ContextOptions, LlamaRuntime
from shepherd.engine.llamacpp.weights import Weights

MODELS = ("embedded", "0.5B")
KINDS = ("prefill", "decode")
DEPTHS = (0, 2048)
N_PROMPT = 500
N_GENERATED = 120
# Chosen so that both sides pad their contexts to the same number of cells: without flash attention, decoding behind a
# long context is a third slower in a larger cache on this kind of CPU, on both sides.


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
    options = {"-p": 0, "-n": 0, "-d": case.depth, "-t": threads, "-fa": "off", "-r": 1}
    options |= {"-p": N_PROMPT} if case.kind == "prefill" else {"-n": N_GENERATED}
    return float(llama_bench(path, options)[0]["avg_ts"])


def ours(path: Path, case: Case, threads: int) -> float:
    """Tokens/s through a ticket; the weights are loaded each time: their place in memory is worth some percent."""
    weights = Weights.load(path)
    n_ctx = case.depth + (N_PROMPT if case.kind == "prefill" else N_GENERATED) + 2
    engine = InProcessEngine(LlamaRuntime(weights, ContextOptions(n_ctx=n_ctx, n_threads=threads)))
    try:
        asyncio.run(tokens_per_s(engine, case, weights.n_vocab, seed=0))  # warm-up, as llama-bench does
        return asyncio.run(tokens_per_s(engine, case, weights.n_vocab, seed=1))
    finally:
        engine.close()
        weights.close()


async def tokens_per_s(engine: InProcessEngine, case: Case, n_vocab: int, seed: int) -> float:
    """One measurement. Another `seed` gives other tokens: the prefix cache must not do the work."""
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


async def _times(engine: InProcessEngine, job: Job) -> list[float]:
    """When each token of a job arrived on the event loop."""
    times: list[float] = []
    async for steps in engine.submit(job).batches():
        now = time.perf_counter()
        times += [now for step in steps if isinstance(step, int)]
    return times


def measure(path: Path, cases: list[Case], threads: int, rounds: int, console: Console) -> list[dict[str, object]]:
    """Alternating rounds over all cases of one model; both sides start afresh in each."""
    results: list[dict[str, object]] = []
    for case in cases:
        mine, other = [], []
        for turn in range(rounds):
            if turn % 2:  # the sides take turns in running second
                mine.append(ours(path, case, threads))
            other.append(theirs(path, case, threads))
            if not turn % 2:
                mine.append(ours(path, case, threads))
        ratios = sorted(a / b for a, b in zip(mine, other, strict=True))
        ratio = statistics.median(ratios)
        console.print(
            f"{case.model:>10} {case.kind:>8} at {case.depth:>5}: ratio [bold]{ratio:.3f}[/bold] "
            f"(rounds {ratios[0]:.3f} to {ratios[-1]:.3f})"
        )
        results.append(
            {
                "model": case.model,
                "kind": case.kind,
                "depth": case.depth,
                "threads": threads,
                "shepherd_tokens_per_s": round(statistics.median(mine), 1),
                "llama_bench_tokens_per_s": round(statistics.median(other), 1),
                "ratio": round(ratio, 3),
                "ratio_of_rounds": [round(value, 3) for value in ratios],
            }
        )
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1, help="engine threads on both sides")
    parser.add_argument("--rounds", type=int, default=5, help="alternating rounds per case")
    parser.add_argument("--model", choices=MODELS, action="append", help="only this model")
    parser.add_argument("--kind", choices=KINDS, action="append", help="only this kind of work")
    parser.add_argument("--depth", choices=DEPTHS, type=int, action="append", help="only behind so many tokens")
    options = parser.parse_args()
    console = Console()
    results: list[dict[str, object]] = []
    for name in options.model or MODELS:
        path = EMBEDDED if name == "embedded" else random_model()
        cases = [Case(name, kind, depth) for depth in options.depth or DEPTHS for kind in options.kind or KINDS]
        results += measure(path, cases, options.threads, options.rounds, console)
    table = Table("model", "kind", "depth", "Shepherd tok/s", "llama-bench tok/s", "ratio")
    for row in results:
        table.add_row(*(str(row[key]) for key in row if key not in {"threads", "ratio_of_rounds"}))
    console.print(table)
    part = "-".join(str(value) for name in ("model", "kind", "depth") for value in getattr(options, name) or ())
    name = "-".join(filter(None, ["engine", f"{options.threads}t", part]))
    console.print(f"written to {machine.save(name, {'results': results})}")


if __name__ == "__main__":
    main()
