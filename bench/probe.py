"""What the probe of a model chooses, how long it takes, whether its copied cells measure what computed ones do, and
what a request feels of it.

    uv run python bench/probe.py [--model FILE ...] [--rounds 5] [--optimize 60s]

Models: the embedded one, and files. For each one:
- `probe`: so many probes after one another, in the foreground: what they choose, seconds of computing, seconds in all.
- `probe_1t`: the same with one thread given, which a busy machine disturbs less.
- `filled`: flash attention off against on, over cells that are copies, and over cells that were computed; in turn.
- `first_token`: a short request while a probe runs (which it ends), and without one; in turn. Ratios of the same round.
- `optimize` (on request): what `shepherd optimize` finds for flash attention and threads in so long.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from array import array
from collections import Counter
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import aclosing, closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import machine
from rich.console import Console

from shepherd import config
from shepherd.app.app import App
from shepherd.app.probing import Prober, depth_of
from shepherd.core import Message, Request, TextDelta
from shepherd.engine.base import Chunk
from shepherd.engine.llamacpp import probe
from shepherd.engine.llamacpp.runtime import ContextOptions, LlamaRuntime
from shepherd.engine.llamacpp.weights import Weights
from shepherd.models import catalog, gguf
from shepherd.models.sizing import Cells
from shepherd.process.child import Unwanted

LOWEST = ("nice", "-n", "39", sys.executable, "-m", "shepherd.engine.llamacpp.probe")
"""The child of a background probe, which does not look whether the machine is busy."""
DEPTH, CHUNK = 1024, 64
"""Cells of `filled`, which are really computed on one of its sides."""


def probes(header: gguf.Header, rounds: int, n_threads: int | None = None) -> dict[str, Any]:
    setup, depth = probe.Setup(header, n_threads=n_threads), depth_of(header, Cells(1 << 20))
    patient = probe.measure(setup, depth=depth)
    told: list[dict[str, Any]] = []
    for _ in range(rounds):
        began_s = time.perf_counter()
        verdict = probe.measure(setup, depth=depth, is_background=False)
        assert verdict is not None
        told.append(
            {
                "chooses": verdict.changes or "the defaults",
                "computed_s": verdict.computed_s,
                "took_s": round(time.perf_counter() - began_s, 2),
                "findings": [f"{each.words}: {each.why}" for each in verdict.findings],
                "problem": verdict.problem,
            }
        )
    return {
        "threads": n_threads,
        "depth": depth,
        "is_too_busy_here": patient is None,
        "chooses": dict(Counter(each["chooses"] for each in told)),
        "computed_s": statistics.median(each["computed_s"] for each in told),
        "took_s": statistics.median(each["took_s"] for each in told),
        "runs": told,
    }


def filled(path: Path, rounds: int) -> dict[str, float]:
    """The speed with flash attention by that without, over copied and over computed cells."""
    with closing(Weights.load(path)) as weights:
        tokens = array("i", ((7 * n + 3) % weights.n_vocab for n in range(DEPTH)))
        runtimes: dict[tuple[str, bool], tuple[LlamaRuntime, int]] = {}
        for flash in (False, True):
            for kind in ("copied", "computed"):
                options = ContextOptions(DEPTH + 1024, n_seq=2, n_batch=CHUNK, n_threads=1, flash_attention=flash)
                runtime = LlamaRuntime(weights, options)
                if kind == "copied":
                    runtime.decode([Chunk(0, tokens[:1], 0, logits=True)])
                    assert runtime.repeat(0, 1, DEPTH) == DEPTH
                else:
                    for start in range(0, DEPTH, CHUNK):
                        runtime.decode([Chunk(0, tokens[start : start + CHUNK], start, logits=True)])
                runtimes[kind, flash] = (runtime, runtime.held(0)[1] + 1)
        logs: dict[str, list[float]] = {"copied": [], "computed": []}
        n_tokens = 4
        for turn in range(6 * rounds):
            took_s = {}
            for kind, flash in sorted(runtimes, reverse=bool(turn % 2)):
                runtime, first = runtimes[kind, flash]
                began_s = time.perf_counter()
                for n in range(n_tokens):
                    runtime.decode([Chunk(0, tokens[:1], first + turn * n_tokens + n, logits=True)])
                took_s[kind, flash] = time.perf_counter() - began_s
            for kind, seen in logs.items():
                seen.append(took_s[kind, False] / took_s[kind, True])
        for runtime, _ in runtimes.values():
            runtime.close()
    ratios = {kind: round(statistics.median(seen), 3) for kind, seen in logs.items()}
    both = [copied / computed for copied, computed in zip(*logs.values(), strict=True)]
    return {**ratios, "copied_by_computed": round(statistics.median(both), 3)}


async def first_token(path: Path, rounds: int, folder: Path) -> dict[str, float]:
    flags = {"model": str(path), "probe": False, "context_size": 2048}
    made = config.load(flags=flags, env={}, cwd=folder, user_dir=folder / "none", read_files=False)
    app = App(made, cache_folder=folder / "cache", env={"RAG_DB_PATH": str(folder / "memory.db")})
    await app.load()
    (entry,) = app.dispatcher.catalogue.registry.entries.values()
    assert isinstance(entry.header, gguf.Header)

    async def asked(text: str) -> float:
        began_s = time.perf_counter()
        request = Request("m", (Message.user(text),), max_tokens=4)
        async with aclosing(app.conversations.stream(request)) as events:
            async for event in events:
                if isinstance(event, TextDelta):
                    return time.perf_counter() - began_s
        return time.perf_counter() - began_s

    took: dict[str, list[float]] = {"quiet_s": [], "probed_s": [], "ended_s": []}
    for turn in range(2 * rounds):
        for name in sorted(("quiet_s", "probed_s"), reverse=bool(turn % 2)):
            begun, ended = threading.Event(), Future[float]()
            measure = partial(_until_unwanted, begun, ended)
            prober = Prober(folder / str(turn), use_extra_bufts=True, n_jobs=app._n_jobs, quiet_s=0.0, measure=measure)
            if name == "probed_s":
                prober.add(entry.header, replace(entry.model, probe=True), entry.plans[0].cells)
                await asyncio.to_thread(begun.wait)
                await asyncio.sleep(1.0 + 0.1 * turn)  # loading, or computing
            began_s = time.perf_counter()
            took[name].append(await asked(f"Question {turn} {name}"))
            if name == "probed_s":
                took["ended_s"].append(await asyncio.wrap_future(ended) - began_s)
            await asyncio.to_thread(prober.close)
    await app.aclose()
    ratios = [probed / quiet for probed, quiet in zip(took["probed_s"], took["quiet_s"], strict=True)]
    return {
        **{name: round(statistics.median(seen), 4) for name, seen in took.items()},
        "ratio": round(statistics.median(ratios), 3),
    }


def _until_unwanted(begun: threading.Event, ended: Future[float], setup: probe.Setup, **options: Any) -> None:
    """Probes of the real kind, one after the other, until a request ends one."""
    begun.set()
    try:
        while True:
            probe.measure(setup, is_background=False, command=LOWEST, **options)
    except Unwanted:
        if not ended.done():
            ended.set_result(time.perf_counter())
        raise


def optimized(path: Path, budget: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "shepherd", "-m", str(path), "optimize", "--fresh", "--budget", budget]
        subprocess.run([*command, "--json", str(report)], check=False, capture_output=True, cwd=folder)
        return dict(json.loads(report.read_text())) if report.exists() else {"problem": "no report"}


def _run(measure: Callable[..., Coroutine[Any, Any, dict[str, float]]], *arguments: Any) -> dict[str, float]:
    return asyncio.run(measure(*arguments))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, action="append", default=[])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--optimize", metavar="BUDGET", help="such as 60s")
    options = parser.parse_args()
    console, rows = Console(width=160), []
    for path in (catalog.embedded(), *options.model):
        header = gguf.read_header(path)
        with tempfile.TemporaryDirectory(prefix="shepherd-bench-") as folder:
            steps: dict[str, Callable[[], Any]] = {
                "probe": partial(probes, header, options.rounds),
                "probe_1t": partial(probes, header, options.rounds, 1),
                "filled": partial(filled, path, options.rounds),
                "first_token": partial(_run, first_token, path, options.rounds, Path(folder)),
            }
            if options.optimize:
                steps["optimize"] = partial(optimized, path, options.optimize)
            row: dict[str, Any] = {"model": path.name, "parameters": header.n_params}
            for name, step in steps.items():
                row[name] = {"load": machine.facts()["load"], **step()}
                console.print(path.name, name, row[name])
            rows.append(row)
    console.print(f"written to {machine.save('probe', {'rounds': options.rounds, 'results': rows})}")


if __name__ == "__main__":
    main()
