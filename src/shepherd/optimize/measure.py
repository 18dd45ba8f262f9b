"""Measures one candidate in a child process: speed of prompts, of generation at two depths, memory, quality.

    Candidate ─▶ child: load, fill the context, generate ─▶ Run        a crash, no memory, no time: a Run with a problem
                 the same again and again                ─▶ rounds     one child, for those that compare no settings

The child is the program that Shepherd itself is: the same weights, the same runtime, the same options.
"""

from __future__ import annotations

import json
import sys
import time
from array import array
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shepherd.core import ShepherdError
from shepherd.engine.llamacpp import child
from shepherd.models import gguf
from shepherd.optimize.space import Candidate, Goal

if TYPE_CHECKING:
    from shepherd.engine.llamacpp.runtime import LlamaRuntime
    from shepherd.engine.llamacpp.weights import Weights

MOST_DIVERGENCE = 0.02
"""Nats by which the next token may differ on average from that of an f16 cache; more is another model."""
N_PARALLEL = 4
"""Conversations at a time, for throughput."""
_WEIGHTS: dict[Goal, tuple[int, int, int]] = {
    "chat": (400, 60, 240),
    "agent": (3000, 20, 300),
    "throughput": (0, 0, 0),
    "memory": (400, 60, 240),
}
"""What a goal wants done: tokens of a prompt, tokens generated in an empty context, and in a filled one."""
_MOST_MEMORY_BYTES = 64 << 30
"""Of a child, besides the size of the model: far above any context, far below what hurts the machine for long."""


@dataclass(frozen=True, slots=True)
class Workload:
    """How much a child computes."""

    depth: int = 512
    """Tokens in the filled context."""
    n_generate: int = 16
    n_quality: int = 0
    """Tokens whose probabilities are compared; 0 = none."""
    parallel: bool = False
    """Measure `N_PARALLEL` conversations at a time as well."""

    @property
    def n_ctx(self) -> int:
        return -(-(self.depth + N_PARALLEL * self.n_generate + 64) // 256) * 256


@dataclass(frozen=True, slots=True)
class Run:
    """What one child measured. Speeds are tokens per second."""

    prompt: float = 0.0
    empty: float = 0.0
    """Generation in an empty context."""
    deep: float = 0.0
    """Generation in a filled one."""
    parallel: float = 0.0
    memory_bytes: int = 0
    divergence: float | None = None
    """Mean KL divergence of the next token from that of an f16 cache, in nats."""
    took_s: float = 0.0
    problem: str = ""
    """Why there is no measurement, as a sentence."""

    def score(self, goal: Goal) -> float | None:
        """How good it is for a goal; larger is better; None for a run that counts as failed."""
        if self.problem or not min(self.prompt, self.empty, self.deep):
            return None
        if goal == "throughput":
            return self.parallel or None
        prompt, empty, deep = _WEIGHTS[goal]
        speed = 1 / (prompt / self.prompt + empty / self.empty + deep / self.deep)
        return speed**0.2 / self.memory_bytes if goal == "memory" else speed


_CHILD = (sys.executable, "-m", "shepherd.optimize.measure")


def measure(
    path: Path,
    candidate: Candidate,
    workload: Workload,
    *,
    timeout_s: float,
    reference: Path | None = None,
    is_wanted: Callable[[], bool] = lambda: True,
    command: tuple[str, ...] = _CHILD,
    use_extra_bufts: bool = True,
) -> Run:
    """Measure one candidate in a child. Blocks. It fails by the `problem` of its result alone.

    reference: where the probabilities of an f16 cache are kept; they are written if the file is missing.

    Raises: `child.Unwanted`.
    """
    (run,) = rounds(
        path, candidate, workload, repeat_s=0.0, timeout_s=timeout_s, reference=reference, is_wanted=is_wanted,
        command=command, use_extra_bufts=use_extra_bufts,
    )  # fmt: skip
    if run.divergence is not None and run.divergence > MOST_DIVERGENCE:
        worse = f"the answers differ by {run.divergence:.3f} nats a token from those of an f16 cache"
        run = Run(**{**asdict(run), "problem": f"{worse}, and {MOST_DIVERGENCE} are allowed"})
    return run


def rounds(
    path: Path,
    candidate: Candidate,
    workload: Workload,
    *,
    repeat_s: float,
    timeout_s: float,
    reference: Path | None = None,
    is_wanted: Callable[[], bool] = lambda: True,
    command: tuple[str, ...] = _CHILD,
    use_extra_bufts: bool = True,
) -> list[Run]:
    """The runs of one child that loads once and measures for `repeat_s` seconds, at least once. As `measure`; the
    first run has the memory and the quality, and `took_s` of all of them together."""
    task = {
        "path": str(path),
        "candidate": asdict(candidate),
        "workload": asdict(workload),
        "repeat_s": repeat_s,
        "reference": str(reference) if reference else None,
        "use_extra_bufts": use_extra_bufts,
    }
    began_s = time.monotonic()
    ended = child.run((*command, json.dumps(task)), timeout_s=timeout_s, is_wanted=is_wanted)
    took_s = time.monotonic() - began_s
    try:
        first, *others = json.loads(ended.answer)
        return [Run(**first, took_s=took_s), *(Run(**each) for each in others)]
    except (ValueError, TypeError):
        return [Run(problem=f"this combination makes the library {child.died(ended.status, timeout_s)}", took_s=took_s)]


# -- the child --------------------------------------------------------------------------------------------------------


def _speeds(runtime: LlamaRuntime, tokens: array[int], workload: Workload) -> dict[str, float]:
    from shepherd.engine.base import Chunk, Forget  # noqa: PLC0415 - only the child needs it

    def decode(*chunks: Chunk) -> None:
        if runtime.decode(list(chunks)) != "ok":
            raise ShepherdError("the context has too few cells")

    def generated(start: int, n_seq: int = 1) -> float:
        began_s = time.perf_counter()
        for n in range(workload.n_generate):
            token = tokens[n % len(tokens) :][:1]
            decode(*(Chunk(seq, token, (start if seq == 0 else 0) + n, logits=True) for seq in range(n_seq)))
        return workload.n_generate * n_seq / (time.perf_counter() - began_s)

    for seq in range(N_PARALLEL):
        runtime.apply(Forget(seq))  # of an earlier round
    decode(Chunk(0, tokens[:1], 0, logits=True))  # wakes threads and pages
    runtime.apply(Forget(0))
    found = {"empty": generated(0)}
    runtime.apply(Forget(0))
    began_s = time.perf_counter()
    for start in range(0, workload.depth, runtime.n_batch):
        decode(Chunk(0, tokens[start : min(start + runtime.n_batch, workload.depth)], start, logits=True))
    found["prompt"] = workload.depth / (time.perf_counter() - began_s)
    found["deep"] = generated(workload.depth)
    if workload.parallel:
        for seq in range(N_PARALLEL):
            runtime.apply(Forget(seq))
        found["parallel"] = generated(0, N_PARALLEL)
    return found


def _divergence(runtime: LlamaRuntime, tokens: array[int], n_quality: int, reference: Path) -> float | None:
    """Mean KL divergence over the last tokens of a text; None when this run wrote the reference."""
    import numpy as np  # noqa: PLC0415 - only the child needs it

    from shepherd.engine.base import Chunk, Forget  # noqa: PLC0415 - only the child needs it

    runtime.apply(Forget(0))
    rows = []
    for position in range(n_quality):
        if runtime.decode([Chunk(0, tokens[position : position + 1], position, logits=True)]) != "ok":
            raise ShepherdError("the context has too few cells")
        row = np.frombuffer(runtime.logits(0), np.float32).astype(np.float64)
        row -= row.max()
        rows.append(row - np.log(np.exp(row).sum()))
    found = np.stack(rows)
    if not reference.exists():
        with reference.open("wb") as file:
            np.save(file, found.astype(np.float32))
        return None
    before = np.load(reference).astype(np.float64)
    return float((np.exp(before) * (before - found)).sum(axis=1).mean())


def _text(weights: Weights, n_tokens: int) -> array[int]:
    """Tokens of a text that the model can read, or numbered tokens of a model without texts."""
    if not weights.has_text:
        return array("i", ((7 * n + 3) % weights.n_vocab for n in range(n_tokens)))
    text = "\n".join(f"{n}. {line}" for n, line in enumerate((__doc__ or "").splitlines() * 3))
    tokens = weights.tokenize(text)
    return array("i", (tokens * (n_tokens // len(tokens) + 1))[:n_tokens])


def _measured(task: Mapping[str, Any]) -> list[dict[str, Any]]:
    import psutil  # noqa: PLC0415 - only the child needs these

    from shepherd.engine.llamacpp.runtime import ContextOptions, LlamaRuntime  # noqa: PLC0415
    from shepherd.engine.llamacpp.weights import Weights  # noqa: PLC0415

    candidate, workload = Candidate(**task["candidate"]), Workload(**task["workload"])
    weights = Weights.load(
        Path(task["path"]),
        gpu_layers=candidate.gpu_layers,
        use_extra_bufts=bool(task["use_extra_bufts"]) and candidate.repack is not False,
    )
    options = ContextOptions(
        workload.n_ctx,
        n_seq=N_PARALLEL,
        n_batch=candidate.n_batch,
        n_ubatch=candidate.n_ubatch,
        n_threads=candidate.n_threads,
        n_threads_batch=candidate.n_threads_batch,
        flash_attention=candidate.flash_attn,
        cache_type_k=candidate.cache_type_k or "f16",
        cache_type_v=candidate.cache_type_v or "f16",
    )
    runtime = LlamaRuntime(weights, options)
    tokens = _text(weights, max(workload.depth, workload.n_quality) + 1)
    until_s = time.monotonic() + float(task["repeat_s"])
    found: list[dict[str, Any]] = [_speeds(runtime, tokens, workload)]
    while time.monotonic() < until_s:
        found.append(_speeds(runtime, tokens, workload))
    found[0]["memory_bytes"] = psutil.Process().memory_info().rss
    if workload.n_quality and task["reference"]:
        found[0]["divergence"] = _divergence(runtime, tokens, workload.n_quality, Path(task["reference"]))
    runtime.close()
    weights.close()
    return found


def _child(text: str) -> int:
    child.end_with_parent()
    task = json.loads(text)
    child.limit_memory(gguf.read_header(task["path"]).size_bytes + _MOST_MEMORY_BYTES)
    try:
        answer = _measured(task)
    except ShepherdError as error:
        answer = [{"problem": error.message}]
    sys.stdout.write(json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(_child(sys.argv[1]))
