"""The steps of `bench.gpu.run` that need Shepherd: a child each, whose result is a file.

    python -m bench.gpu.measure STEP --work FOLDER --to FILE [--cpu]

Both sides get the same file, flash attention, all layers on the GPU and the same threads. The models have the shapes of
real ones and random weights (`bench.rig.random_gguf`); they are written to memory (/dev/shm) where it has room.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import shutil
import signal
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from bench.engine import eviction
from bench.engine.engine import N_GENERATED, N_PROMPT, Case, tokens_per_s
from bench.gpu.facts import GIB
from bench.rig import llama_tools
from bench.rig.dialogue import SEVEN, Dialogue, text
from bench.rig.random_gguf import FileType, Shape, tiled_model
from bench.rig.sides import SIDES, Server, Setup, running
from bench.rig.traffic import Reply, ask
from bench.rig.verdict import Options, Verdict
from bench.server import clients

from shepherd.engine.engine import InProcessEngine
from shepherd.engine.llamacpp import library
from shepherd.engine.llamacpp.runtime import ContextOptions, LlamaRuntime
from shepherd.engine.llamacpp.weights import Weights

ALL_LAYERS = 999
RESERVE_BYTES = 2 << 30
"""Of a GPU: buffers of computing, and what the driver keeps."""
FILE_TYPES: tuple[FileType, ...] = ("F16", "Q8_0", "Q4_0")
SERVED: FileType = "Q8_0"
"""Of the model that the servers run."""
SHARED_MEMORY = Path("/dev/shm")
TURNS = (0, 35, 117, 50, 50, 50, 50, 50, 50, 50)
"""New tokens of the turns of a conversation; the first one has what `first_turn` says."""
SHOWN = (1, 2, 3, 10)
USER, ANSWER = 24, 8
AROUND_FIRST, AROUND = 29, 22
"""Tokens that the template writes around the first messages, and around a later one and the answer before it."""


@dataclass(frozen=True, slots=True)
class Model:
    """A shape under the name that the table has."""

    name: str
    shape: Shape
    depths: tuple[int, ...]
    """Tokens in the context before anything is measured."""
    types: tuple[FileType, ...] = FILE_TYPES
    repeats: int = 3


@dataclass(frozen=True, slots=True)
class Scale:
    """How large everything is."""

    small: Model
    middle: Model
    large: Model
    resident: int
    """Tokens in the cache that turns leave."""
    first_turn: int
    crowd: clients.Size
    isolated: int
    """Tokens of the prompt that two owners send."""
    threads: int


LLAMA_3 = 128_256
GPU = Scale(
    Model("1B", Shape(16, 2048, 8192, 32, 8, LLAMA_3, 131_072), (0, 4096)),
    Model("8B", Shape(32, 4096, 14_336, 32, 8, LLAMA_3, 131_072, tied=False), (0, 4096), repeats=2),
    Model("70B", Shape(80, 8192, 28_672, 64, 8, LLAMA_3, 131_072, tied=False), (0,), ("Q4_0",), repeats=2),
    resident=32_768,
    first_turn=4151,
    crowd=clients.Size(16_384, (1, 4, 16), 128, 4000, 600),
    isolated=2000,
    threads=4,
)
CPU = Scale(
    Model("0.4M", Shape(2, 128, 256, 4, 2, 1000), (0, 512)),
    Model("3M", Shape(4, 256, 512, 4, 2, 1000, tied=False), (0, 512), repeats=2),
    Model("4M", Shape(6, 256, 512, 4, 2, 1000, tied=False), (0,), ("Q4_0",), repeats=2),
    resident=2048,
    first_turn=415,
    crowd=clients.Size(4096, (1, 4), 32, 600, 900),
    isolated=400,
    threads=1,
)
"""The dry run's: everything happens, as fast as it can."""


@dataclass(slots=True)
class Work:
    """What a step gets, and what it leaves."""

    folder: Path
    cpu: bool
    verdict: Verdict = field(default_factory=Verdict)
    promises: list[dict[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    why: str = ""
    """Why nothing was measured."""

    @property
    def scale(self) -> Scale:
        return CPU if self.cpu else GPU

    def promise(self, id_: str, what: str, promised: str, measured: str) -> None:
        self.promises.append({"id": id_, "what": what, "promised": promised, "measured": measured})

    def setup(self, model: Path, n_ctx: int, sequences: int = 1) -> Setup:
        return Setup(
            model, n_ctx, self.scale.threads, sequences, flash_attn=True, llama=("-ngl", str(ALL_LAYERS))
        )  # ours puts all layers there by itself


# -- models --------------------------------------------------------------------------------------------------------


def _free_bytes() -> int:
    """For weights and caches: of the GPU, or of this machine."""
    memory = library.gpu_memory()
    return memory.free if memory is not None else psutil.virtual_memory().available


def _find_room(size: int, work: Path) -> Path | None:
    """A folder that can hold a file of that size: in memory, else on the disk."""
    in_memory = SHARED_MEMORY.is_dir() and psutil.virtual_memory().available > size + size // 4
    for folder in ([SHARED_MEMORY] if in_memory else []) + [work]:
        if shutil.disk_usage(folder).free > size + size // 16:
            return folder / "shepherd-gpu"
    return None


def _lacks(model: Model, file_type: FileType, n_ctx: int) -> str:
    """Why a model cannot run here; empty if it can."""
    weights, name = model.shape.size_bytes(file_type), f"{model.name} {file_type}"
    needs, has = weights + model.shape.cache_bytes(n_ctx) + RESERVE_BYTES, _free_bytes()
    if needs > has:
        return f"{name} needs {needs / GIB:.1f} GiB, and {has / GIB:.1f} GiB are free"
    return ""


@contextmanager
def _file(model: Model, file_type: FileType, n_ctx: int, work: Work) -> Iterator[Path | None]:
    """A model's file for the length of the block; None, with a note, where it cannot be had."""
    shape, name = model.shape, f"{model.name} {file_type}"
    size = shape.size_bytes(file_type)
    why, folder = _lacks(model, file_type, n_ctx), _find_room(size, work.folder)
    if not why and folder is None:
        why = f"{name} takes {size / GIB:.1f} GiB, and neither memory nor the disk has room for it"
    if why or folder is None:
        work.notes.append(f"left out: {why}")
        yield None
        return
    started = time.monotonic()
    path = tiled_model(folder / f"{model.name}-{file_type.lower()}.gguf", shape, file_type)
    print(f"{name}: {size / GIB:.1f} GiB written in {time.monotonic() - started:.1f} s to {folder}")
    try:
        yield path
    finally:
        shutil.rmtree(folder)


@contextmanager
def _served(n_ctx: int, work: Work) -> Iterator[tuple[Model, Path | None]]:
    """The larger of two models that fits."""
    middle, small = work.scale.middle, work.scale.small
    why = _lacks(middle, SERVED, n_ctx)
    model = small if why else middle
    if why:
        work.notes.append(f"{small.name} in place of {middle.name}: {why}")
    with _file(model, SERVED, n_ctx, work) as path:
        if path is None:
            work.why = work.notes[-1]
        yield model, path


# -- prefill and decode --------------------------------------------------------------------------------------------


def speed(work: Work, model: Model) -> dict[tuple[FileType, str, int], list[float]]:
    """Tokens/s of ours, by file type, kind and depth."""
    n_ctx = max(model.depths) + 2 * N_PROMPT
    found: dict[tuple[FileType, str, int], list[float]] = {}
    for file_type in model.types:
        with _file(model, file_type, n_ctx, work) as path:
            if path is None:
                continue
            cases = [Case(model.name, kind, depth) for depth in model.depths for kind in ("prefill", "decode")]
            rival = _llama_bench(path, model, work.scale.threads)
            mine = _ours(path, cases, work.scale.threads, model.repeats)
            for case in cases:
                name = f"{model.name} {file_type}, {case.kind} behind {case.depth:,} tokens"
                for side, values in (("shepherd", mine[case]), ("llama-bench", rival[case.kind, case.depth])):
                    for value in values:
                        work.verdict.add(name, side, value, unit="tokens/s", better="more")
                found[file_type, case.kind, case.depth] = mine[case]
    if not found:
        work.why = work.notes[-1]
    return found


def _llama_bench(path: Path, model: Model, threads: int) -> dict[tuple[str, int], list[float]]:
    options = {
        "-p": N_PROMPT, "-n": N_GENERATED, "-d": ",".join(map(str, model.depths)), "-t": threads,
        "-fa": "on", "-ngl": ALL_LAYERS, "-r": model.repeats,
    }  # fmt: skip
    rows = llama_tools.llama_bench(path, options)
    return {("prefill" if row["n_prompt"] else "decode", row["n_depth"]): row["samples_ts"] for row in rows}


def _ours(path: Path, cases: list[Case], threads: int, repeats: int) -> dict[Case, list[float]]:
    """One load; a context for each case, and other tokens each time: the prefix cache must not do the work."""
    weights = Weights.load(path)
    found: dict[Case, list[float]] = {}
    try:
        for case in cases:
            context = ContextOptions(n_ctx=case.depth + N_PROMPT + 2, n_threads=threads, flash_attention=True)
            engine = InProcessEngine(LlamaRuntime(weights, context))
            try:
                speeds = [asyncio.run(tokens_per_s(engine, case, weights.n_vocab, seed)) for seed in range(repeats + 1)]
            finally:
                engine.close()
            found[case] = speeds[1:]
    finally:
        weights.close()
    return found


def large(work: Work) -> None:
    """And what was promised of it."""
    model = work.scale.large
    found = speed(work, model)
    first = next(iter(model.types))
    if not found:
        return
    prefill, decode = (statistics.median(found[first, kind, 0]) for kind in ("prefill", "decode"))
    name = f"{model.name} {first}"
    work.promise("ENG-33", f"prompt, {name}", "1,200 tokens/s (CUDA, 70B)", f"{prefill:,.0f} tokens/s")
    work.promise("ENG-33", f"generation, {name}", "25 tokens/s", f"{decode:,.1f} tokens/s")
    work.promise("ENG-33", f"latency of {N_PROMPT} tokens", "about 80 ms", f"{1000 * N_PROMPT / prefill:,.0f} ms")


# -- the cache -----------------------------------------------------------------------------------------------------


def evict(work: Work) -> None:
    """The oldest turns leave a full cache; the next decode is included. The other side: a shift, a re-prefill."""
    n, scale = work.scale.resident, work.scale
    with _served(n + eviction.BATCH, work) as (model, path):
        if path is None:
            return
        options = Options(scale.threads, flash_attn=True, quick=False, rounds=6)
        weights = Weights.load(path)
        try:
            found = eviction.evictions(weights, n, options)
            again = eviction.reprefills(weights, [n], options)[n]
        finally:
            weights.close()
        name = f"{model.name} {SERVED}: {eviction.TURN} of {n:,} tokens leave, and a decode"
        for side, arm in (("shepherd", "hole"), ("llama-server's context shift", "shift")):
            work.verdict.add(name, side, found[arm]["both_ms"])
        work.verdict.add(name, f"computing all again, {again['how']}", 1000 * again["s"])
        work.notes.append(
            f"a plain decode there takes {found['nothing']['plain_ms']:.2f} ms; the call that evicts takes "
            f"{found['hole']['call_us']['p50']:.0f} us"
        )


def prefix(work: Work) -> None:
    """Turns of one conversation against prompts of the same length of which nothing is cached."""
    first = work.scale.first_turn
    n_ctx = 2 * first + sum(TURNS) + len(TURNS) * (USER + ANSWER)
    with _served(n_ctx, work) as (model, path):
        if path is None:
            return
        measured: dict[tuple[str, int], tuple[float, float]] = {}
        for side in SIDES:
            with running(side, work.setup(path, n_ctx)) as server:
                _ask(server, 64, seed=-1)  # warm-up
                dialogue = Dialogue(0, first - USER - AROUND_FIRST, user_tokens=USER, answer_tokens=ANSWER)
                turns = [dialogue.ask(server.port, max(new - AROUND, 0)) for new in TURNS]
                for number in SHOWN:
                    turn = turns[number - 1]
                    cold = _ask(server, turn.n_prompt, seed=number)
                    name = f"{model.name} {SERVED}, turn {number} ({turn.n_prompt:,} tokens)"
                    work.verdict.add(f"{name}: first token", side, 1000 * turn.ttft_s)
                    work.verdict.add(f"{name}: computed", side, turn.n_prefilled, unit="tokens")
                    work.verdict.add(f"{name}: first token, nothing cached", side, 1000 * cold.ttft_s)
                    measured[side, number] = (turn.ttft_s, cold.ttft_s)
        for number, promised in zip(SHOWN, ("1.5 s", "8 times", "9 times", "14 times"), strict=True):
            warm_s, cold_s = measured["shepherd", number]
            got = f"{warm_s:.3f} s" if number == 1 else f"{cold_s / warm_s:.1f} times ({cold_s:.3f} to {warm_s:.3f} s)"
            what = f"first token of turn {number}" + ("" if number == 1 else ", faster by the cache")
            work.promise("PFX-09", what, promised, f"{got}, {model.name} {SERVED}")


def _ask(server: Server, n_tokens: int, *, seed: int, n_answer: int = 1, **more: object) -> Reply:
    """A prompt of about so many tokens. Raises: `RuntimeError` for a refusal."""
    content = text(random.Random(f"gpu {seed}"), n_tokens)
    body = {"messages": [{"role": "user", "content": content}], "max_tokens": n_answer, **SEVEN, **more}
    reply = ask(server.port, body)
    if reply.status != 200 or reply.error or not reply.times:
        raise RuntimeError(f"{server.side}: status {reply.status}: {reply.error[:500]}")
    return reply


def crowd(work: Work) -> None:
    """Several clients at once; a stream beside a long prompt."""
    size = work.scale.crowd
    n_ctx = size.n_ctx
    with _served(n_ctx, work) as (model, path):
        if path is None:
            return
        for side in SIDES:
            with running(side, work.setup(path, n_ctx, max(size.clients))) as server:
                clients.crowd(server.port, -1, 1, size)  # warm-up
                for n_clients in size.clients:
                    clients.note_crowd(work.verdict, side, n_clients, clients.crowd(server.port, 0, n_clients, size))
                clients.note_stall(work.verdict, side, clients.stall(server.port, 0, size))
        work.notes.append(f"the model is {model.name} {SERVED}")


def isolation(work: Work) -> None:
    """Two owners send the same prompt: the second one is computed, and takes as long as the first.

    Raises: `RuntimeError` if an owner gets tokens of another one.
    """
    n = work.scale.isolated
    with _served(4 * n, work) as (model, path):
        if path is None:
            return
        for side in SIDES:
            with running(side, work.setup(path, 4 * n, sequences=2)) as server:
                _ask(server, 64, seed=-1)  # warm-up
                for name, owner in (("its first", "anna"), ("its second", "anna"), ("of another owner", "ben")):
                    reply = _ask(server, n, seed=0, cache_salt=owner)
                    if side == "shepherd" and owner == "ben" and reply.n_cached:
                        raise RuntimeError(f"an owner got {reply.n_cached} tokens that another one had computed")
                    what = f"{model.name} {SERVED}, {n:,} tokens, {name}"
                    # A prompt that is shared is no speed to compare with.
                    whose = side if side == "shepherd" or owner == "anna" else f"shared by {side}"
                    work.verdict.add(
                        f"{what}: taken from the cache", whose, reply.n_cached, unit="tokens", better="more"
                    )
                    work.verdict.add(f"{what}: first token", whose, 1000 * reply.ttft_s)
        work.notes.append("llama-server has no owners: whoever sends a prompt again finds it cached")


STEPS: Mapping[str, Callable[[Work], object]] = {
    "small": lambda work: speed(work, work.scale.small),
    "middle": lambda work: speed(work, work.scale.middle),
    "large": large,
    "eviction": evict,
    "prefix": prefix,
    "clients": crowd,
    "isolation": isolation,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=list(STEPS))
    parser.add_argument("--work", type=Path, required=True, help="the folder of the run")
    parser.add_argument("--to", type=Path, required=True, help="the file that gets the result")
    parser.add_argument("--cpu", action="store_true", help="small shapes")
    said = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that no server stays behind
    work = Work(said.work, said.cpu)
    if not said.cpu and not library.devices():
        sys.exit("the library that was built finds no GPU: look at the log of the step 'build'")
    STEPS[said.step](work)
    result: dict[str, Any] = {"rows": work.verdict.results(), "promises": work.promises, "notes": work.notes}
    said.to.write_text(json.dumps(result | {"left_out": bool(work.why), "why": work.why}), encoding="utf-8")


if __name__ == "__main__":
    main()
