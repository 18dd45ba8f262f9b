"""Adapters: what it costs to change them from request to request, and to have them without using them.

    uv run python -m bench.engine.adapters [--model 0.5B] [--rounds 12]

Four servers take turns, request by request: Shepherd with two LoRAs, llama-server with the same two; Shepherd with two
that no request names, Shepherd without any. The LoRAs are of rank 16, for all attention matrices and the feed-forward,
with random numbers. Each request has a long prompt that the server has seen before with the same adapters, and a short
answer:

* unused: requests without adapters, to the server that never uses its own and to the one without
* one set: every request with the first LoRA
* alternating: the first, the second, none, in turn
* side by side: two streams at a time, each with its own LoRA
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench.rig import machine
from bench.rig.sides import Server, Setup, model_path, running
from bench.rig.verdict import WIDTH, Verdict
from rich.console import Console

from shepherd.models.gguf import read_header

N_PROMPT, N_ANSWER = 600, 24
RANK = 16
BARE = "before (no adapters)"
"""Shepherd without any: the other side of `unused`."""
FIRST = [{"id": 0, "scale": 1.0}, {"id": 1, "scale": 0.0}]
SECOND = [{"id": 0, "scale": 0.0}, {"id": 1, "scale": 1.0}]
NEITHER = [{"id": 0, "scale": 0.0}, {"id": 1, "scale": 0.0}]


def ask(server: Server, lora: list[dict[str, Any]] | None, seed: int = 0) -> float:
    """Seconds of one request."""
    prompt = [(at * 7 + seed * 13) % 200 + 300 for at in range(N_PROMPT)]
    body = {"prompt": prompt, "n_predict": N_ANSWER, "temperature": 0, "ignore_eos": True, "cache_prompt": True}
    begun = time.perf_counter()
    server.post("/completion", body if lora is None else body | {"lora": lora})
    return time.perf_counter() - begun


def alternating(server: Server) -> float:
    return sum(ask(server, lora) for lora in (FIRST, SECOND, NEITHER)) / 3


def side_by_side(server: Server) -> float:
    with ThreadPoolExecutor(2) as pool:
        begun = time.perf_counter()
        for future in [pool.submit(ask, server, lora, seed) for seed, lora in enumerate((FIRST, SECOND), 1)]:
            future.result()
        return time.perf_counter() - begun


MEASURES: dict[str, Callable[[Server], float]] = {
    "one set": lambda server: ask(server, FIRST),
    "alternating": alternating,
    "side by side": side_by_side,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="0.5B")
    parser.add_argument("--rounds", type=int, default=12)
    options = parser.parse_args()
    from tests.unit.engine.adapter_files import write_lora  # from the root of the repository

    model, verdict = model_path(options.model), Verdict()
    with tempfile.TemporaryDirectory(prefix="shepherd-bench-") as folder, ExitStack() as stack:
        header = read_header(model)
        files = [write_lora(Path(folder) / f"{seed}.gguf", header, seed=seed, rank=RANK) for seed in (1, 2)]
        setup = Setup(model, 4096, sequences=2, llama=("--lora", ",".join(map(str, files))))
        rows = [{"path": str(file), "apply": False} for file in files]
        adapted = Setup(model, 4096, sequences=2, ours={"adapters": rows})
        ours, unused = (stack.enter_context(running("shepherd", adapted)) for _ in range(2))
        bare = stack.enter_context(running("shepherd", Setup(model, 4096, sequences=2)))
        theirs = stack.enter_context(running("llama-server", setup))
        for at in range(-1, options.rounds):
            for name, measure in MEASURES.items():
                pair = (ours, theirs) if at % 2 else (theirs, ours)
                for server in pair:
                    seconds = measure(server)
                    if at >= 0:  # the first round fills the caches
                        verdict.add(name, server.side, 1000 * seconds)
            for server in (unused, bare) if at % 2 else (bare, unused):
                seconds = ask(server, None)
                if at >= 0:
                    verdict.add("unused", "shepherd" if server is unused else BARE, 1000 * seconds)
    console = Console(width=WIDTH)
    verdict.show(console, f"{model.name}: {N_ANSWER} tokens behind {N_PROMPT}")
    result = {"model": model.name, "rounds": options.rounds, "results": verdict.results()}
    console.print(f"written to {machine.save('adapters', result)}")


if __name__ == "__main__":
    main()
