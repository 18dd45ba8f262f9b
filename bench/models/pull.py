"""The rate of `shepherd pull` against huggingface_hub's own download of the same file, from one hub on loopback.

    python -m bench.models.pull [--gigabytes 1] [--rounds 5]

Both take turns, each in a process of its own, into an empty folder; the time is that of the transfer, without imports.
Shepherd compares the SHA-256; the library compares the size only, so it is measured with a `hashlib` pass behind it,
too.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from multiprocessing.connection import Connection
from pathlib import Path

import gguf
import numpy as np
from bench.rig.machine import save
from tests.fakes.hub import Hub

REPO, FILE = "acme/big-GGUF", "big-F32.gguf"

SHEPHERD = """
import asyncio, sys, time
from pathlib import Path
import huggingface_hub, httpx2
from huggingface_hub import HfApi, get_async_session
from shepherd.models.pull import pull
from shepherd.models.pull.source import parse
root, endpoint = sys.argv[1:]
began_s = time.perf_counter()
source = parse("hf:acme/big-GGUF:F32")
asyncio.run(pull.pull(source, root=Path(root), env={"HF_ENDPOINT": endpoint}, memory_bytes=None, show=lambda event: 0))
print(time.perf_counter() - began_s)
"""
LIBRARY = """
import hashlib, sys, time
from huggingface_hub import hf_hub_download
root, endpoint = sys.argv[1:]
began_s = time.perf_counter()
path = hf_hub_download("acme/big-GGUF", "big-F32.gguf", local_dir=root, endpoint=endpoint)
print(time.perf_counter() - began_s)
with open(path, "rb") as file:
    hashlib.file_digest(file, "sha256")
print(time.perf_counter() - began_s)
"""


def serve(path: Path, pipe: Connection) -> None:
    with Hub() as hub:
        hub.put_repo(REPO, {FILE: path.read_bytes()})
        pipe.send(hub.url)
        pipe.recv()


def make(path: Path, n_bytes: int) -> None:
    """A GGUF file with one tensor."""
    writer = gguf.GGUFWriter(path, "llama")
    block = np.random.default_rng(0).random(2**20, dtype=np.float32)
    writer.add_tensor("token_embd.weight", np.tile(block, -(-n_bytes // block.nbytes)))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def measured(program: str, folder: Path, url: str) -> list[float]:
    """The seconds that the program prints."""
    env = {**os.environ, "HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_HOME": str(folder / "home")}
    try:
        done = subprocess.run(
            [sys.executable, "-c", program, str(folder / "got"), url],
            env=env,
            capture_output=True,
            text=True,
            check=True,
        )
    finally:
        shutil.rmtree(folder / "got", ignore_errors=True)
    return [float(line) for line in done.stdout.split()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make(folder / FILE, int(options.gigabytes * 1e9))
        here, there = multiprocessing.Pipe()
        server = multiprocessing.Process(target=serve, args=(folder / FILE, there))
        server.start()
        url = here.recv()
        rows = []
        for _ in range(options.rounds):
            (ours,) = measured(SHEPHERD, folder, url)
            theirs, theirs_checked = measured(LIBRARY, folder, url)
            rows.append({"shepherd_s": ours, "library_s": theirs, "library_checked_s": theirs_checked})
            print(f"shepherd {ours:.2f} s, library {theirs:.2f} s, with SHA-256 {theirs_checked:.2f} s", flush=True)
        here.send(None)
        server.join()
    ratios = {
        name: round(statistics.median(row[name] / row["shepherd_s"] for row in rows), 3)
        for name in ("library_s", "library_checked_s")
    }
    print(f"median ratios, above 1 when Shepherd is faster: {ratios}")
    save("pull", {"gigabytes": options.gigabytes, "rounds": rows, "ratios": ratios})


if __name__ == "__main__":
    main()
