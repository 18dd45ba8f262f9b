"""What it costs to compute a model over workers: one process, llama.cpp's own rpc-server, and `shepherd rpc-worker`.

    uv run python -m bench.engine.rpc [--model GGUF] [--workers 2] [--rounds 5]

All run on this machine, over loopback, a thread each, so that nothing is faster with more machines: what is measured is
the protocol (`library`), and our process between the client and the library's server (`worker`). The three take turns.
Ratios are to the way before in the same round; greedy text must be the same in all.
"""

from __future__ import annotations

import argparse
import json
import re
import socket
import statistics
import subprocess
import sys
import time
from array import array
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.rig import machine
from bench.rig.machine import EMBEDDED
from rich.console import Console

WAYS = ("alone", "library", "worker")
N_PROMPT, N_ANSWER = 512, 128
SERVE = "import sys; from shepherd.engine.llamacpp.library import serve_rpc; serve_rpc(sys.argv[1], n_threads=1)"


@contextmanager
def served(way: str) -> Iterator[str]:
    """The address of a worker."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    words = ["-c", SERVE, address] if way == "library" else ["-m", "shepherd", "rpc-worker", "--threads", "1"]
    words += [] if way == "library" else ["--port", address.rpartition(":")[2]]
    quiet = subprocess.DEVNULL
    with subprocess.Popen([sys.executable, *words], stdout=quiet, stderr=quiet) as process:
        try:
            yield address
        finally:
            process.terminate()


def measured(model: Path, servers: Sequence[str]) -> dict[str, object]:
    """The figures of a process of its own."""
    command = [sys.executable, "-m", "bench.engine.rpc", "--measure", str(model), *servers]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=600)
    found: dict[str, object] = json.loads(done.stdout)
    return found


def measure(model: Path, servers: Sequence[str]) -> dict[str, object]:
    from shepherd.core import EngineDown, Sampling
    from shepherd.engine.base import Chunk
    from shepherd.engine.llamacpp import rpc
    from shepherd.engine.llamacpp.runtime import ContextOptions, LlamaRuntime
    from shepherd.engine.llamacpp.weights import Weights

    for server in servers:
        for _ in range(600):  # it starts
            try:
                rpc.probe(server)
                break
            except EngineDown:
                time.sleep(0.1)
    begun = time.perf_counter()
    weights = Weights.load(model, rpc_servers=servers, use_extra_bufts=False)
    load_s = time.perf_counter() - begun
    runtime = LlamaRuntime(weights, ContextOptions(n_ctx=1024, n_batch=512, n_threads=1))
    text = weights.tokenize(" ".join(re.findall(r"\w+", __doc__ or "") * 20))
    prompt = array("i", text[:N_PROMPT])
    assert len(prompt) == N_PROMPT
    begun = time.perf_counter()
    assert runtime.decode([Chunk(0, prompt, 0, logits=True)]) == "ok"
    prefill_s = time.perf_counter() - begun
    sampler, said = runtime.sampler(Sampling(temperature=0), prompt), []
    begun = time.perf_counter()
    for at in range(N_ANSWER):
        said.append(sampler.sample(0))
        assert runtime.decode([Chunk(0, array("i", said[-1:]), N_PROMPT + at, logits=True)]) == "ok"
    decode_s = time.perf_counter() - begun
    return {
        "load_s": load_s, "prefill_tokens_per_s": N_PROMPT / prefill_s, "decode_tokens_per_s": N_ANSWER / decode_s,
        "said": said,
    }  # fmt: skip


def compare(model: Path, n_workers: int, rounds: int) -> dict[str, object]:
    taken: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    for turn in range(rounds):
        said = set()
        for way in WAYS if turn % 2 else reversed(WAYS):
            with ExitStack() as stack:
                servers = [stack.enter_context(served(way)) for _ in range(n_workers if way != "alone" else 0)]
                found = measured(model, servers)
            said.add(str(found.pop("said")))
            taken[way].append(found)  # type: ignore[arg-type]  # the others are numbers
        assert len(said) == 1, "not the same text"
    row: dict[str, object] = {"model": model.name, "workers": n_workers, "rounds": rounds}
    for metric in taken["alone"][0]:
        for way, values in taken.items():
            row[f"{way}_{metric}"] = round(statistics.median(each[metric] for each in values), 3)
        for way, before in (("library", "alone"), ("worker", "library")):
            ratios = [a[metric] / b[metric] for a, b in zip(taken[way], taken[before], strict=True)]
            row[f"{way}_to_{before}_{metric}"] = round(statistics.median(ratios), 3)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, action="append")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--measure", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        model, *servers = options.measure
        print(json.dumps(measure(Path(model), servers)))
        return
    console, rows = Console(width=200), []
    for model in options.model or (EMBEDDED,):
        rows.append(row := compare(model, options.workers, options.rounds))
        console.print(row)
    console.print(f"written to {machine.save('rpc', {'results': rows})}")


if __name__ == "__main__":
    main()
