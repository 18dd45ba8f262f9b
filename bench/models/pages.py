"""How fast a model writes whose file is in memory in small pages, as after a download, and in large ones.

    uv run python -m bench.models.pages [--model 0.5B] [--pieces 4,16,64] [--threads 1,2] [--rounds 5] [--quick]

A copy of the model is written in pieces of so many KiB (4 is what `cp` and gguf-py leave, 16 curl), llama-bench writes
32 tokens with it, the copy is read again as Shepherd does before it loads a model (`engine/llamacpp/pages.py`), and
llama-bench does the same once more. So both speeds are llama.cpp's own, of one file, one after the other; medians over
the rounds.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

from bench.rig import machine
from bench.rig.llama_tools import folder, llama_bench
from bench.rig.sides import MODELS, model_path
from rich.console import Console
from rich.table import Table

from shepherd.engine.llamacpp.pages import read_in_large_pages


def write_in_pieces(source: Path, target: Path, n_bytes: int) -> None:
    target.unlink(missing_ok=True)  # its pages, too
    with source.open("rb") as given, target.open("wb", buffering=0) as file:
        while piece := given.read(n_bytes):
            file.write(piece)
        os.fdatasync(file.fileno())


def speed(path: Path, threads: int) -> float:
    """Tokens per second."""
    (row,) = llama_bench(path, {"-p": 0, "-n": 32, "-t": threads, "-r": 3, "-ngl": 0})
    return float(row["avg_ts"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="0.5B", help=f"{', '.join(MODELS)}, or a GGUF file")
    parser.add_argument("--pieces", default="4,16,64", help="KiB")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="one round: shows that everything works")
    options = parser.parse_args()
    source = model_path(options.model)
    threads = [int(n) for n in options.threads.split(",")]
    pieces = [int(n) for n in options.pieces.split(",")]
    found: dict[tuple[int, int], list[tuple[float, float]]] = {(piece, n): [] for piece in pieces for n in threads}
    seconds: list[float] = []
    folder().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder()) as place:
        path = Path(place) / source.name
        for _ in range(1 if options.quick else options.rounds):
            for piece in pieces:
                write_in_pieces(source, path, piece << 10)
                small = {n: speed(path, n) for n in threads}
                began_s = time.perf_counter()
                if not read_in_large_pages(path):
                    raise SystemExit(f"{path.parent} keeps no file in large pages, or too little memory is free")
                seconds.append(time.perf_counter() - began_s)
                for n in threads:
                    found[piece, n].append((small[n], speed(path, n)))
    table = Table("pieces, KiB", "threads", "as it is, tokens/s", "read again", "ratio", "range")
    rows = []
    for (piece, n), pairs in found.items():
        before, after = (statistics.median(each) for each in zip(*pairs, strict=True))
        ratios = sorted(later / sooner for sooner, later in pairs)
        ratio, around = statistics.median(ratios), (ratios[0], ratios[-1])
        rows.append(
            {"piece_kib": piece, "threads": n, "before": before, "after": after, "ratio": ratio, "range": around}
        )
        table.add_row(str(piece), str(n), f"{before:.2f}", f"{after:.2f}", f"{ratio:.2f}",
                      f"{around[0]:.2f}-{around[1]:.2f}")  # fmt: skip
    console = Console()
    console.print(table)
    took_s, size = statistics.median(seconds), source.stat().st_size
    console.print(f"reading {size / 2**20:.0f} MiB again took {took_s:.2f} s")
    result = {"model": source.name, "bytes": size, "read_again_s": took_s, "rows": rows}
    console.print(machine.save(f"pages-{source.stem}", result, quick=options.quick))


if __name__ == "__main__":
    main()
