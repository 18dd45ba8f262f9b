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
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shepherd.core import ShepherdError
from shepherd.core.dataclasses import asdict, dataclass, replace
from shepherd.measure.space import Candidate, Goal
from shepherd.models import gguf
from shepherd.process import child

if TYPE_CHECKING:
    from shepherd.engine.llamacpp.runtime import LlamaRuntime
    from shepherd.engine.llamacpp.weights import Weights

MOST_DIVERGENCE = 0.02
"""Nats by which the next token may differ on average from that of an f16 cache; more is another model."""
N_PARALLEL = 4
"""Conversations at a time, for throughput, where the candidate leaves them open."""
CROWD_DEPTH = 128
"""Tokens that each of them has before it generates."""
LEAST_TEXT = 64
"""Tokens of a text by which quality can be judged."""
_WEIGHTS: dict[Goal, tuple[int, int, int]] = {
    "chat": (400, 60, 240),
    "agent": (3000, 20, 300),
    "throughput": (400, 0, 240),
    "memory": (400, 60, 240),
}
"""The work that a goal stands for: tokens of a prompt, tokens generated in an empty context, and in a filled one (for
throughput: by many conversations at a time)."""
_MOST_MEMORY_BYTES = 64 << 30
"""Of a child, besides the size of the model: far above any context, far below what hurts the machine for long."""


@dataclass(frozen=True, slots=True)
class Workload:
    depth: int = 512
    """Tokens in the filled context."""
    n_generate: int = 16
    n_quality: int = 0
    """Tokens whose probabilities are compared; 0 = none."""
    parallel: bool = False
    n_busy: int = 0
    """Threads whose processor time is measured in place of the time by the clock: what other programs take from this
    one does not count. 0 = by the clock."""

    @property
    def n_ctx(self) -> int:
        return self.cells(N_PARALLEL)

    def cells(self, n_seq: int) -> int:
        """Tokens of a context for all that is measured, with so many conversations at a time."""
        alone = self.depth + self.n_quality + N_PARALLEL * self.n_generate + 64
        crowd = n_seq * (min(self.depth, CROWD_DEPTH) + self.n_generate) if self.parallel else 0
        return -(-max(alone, crowd) // 256) * 256


@dataclass(frozen=True, slots=True)
class Run:
    """What one child measured. Speeds are tokens per second."""

    prompt: float = 0.0
    empty: float = 0.0
    """Generation in an empty context."""
    deep: float = 0.0
    """Generation in a filled one."""
    parallel: float = 0.0
    """Generation of many conversations, all together."""
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
        generation = self.parallel if goal == "throughput" else self.deep
        if not generation:
            return None
        prompt, empty, deep = _WEIGHTS[goal]
        speed = 1 / (prompt / self.prompt + empty / self.empty + deep / generation)
        return speed**0.2 / self.memory_bytes if goal == "memory" else speed


def measure(
    path: Path,
    candidate: Candidate,
    workload: Workload,
    *,
    timeout_s: float,
    repeat_s: float = 0.0,
    reference: Path | None = None,
    text: Path | None = None,
    is_wanted: Callable[[], bool] = lambda: True,
    command: tuple[str, ...] = (sys.executable, "-m", "shepherd.measure.trial"),
    use_extra_bufts: bool = True,
) -> list[Run]:
    """Measure one candidate in a child that loads once and measures for `repeat_s` seconds, at least once. Blocks. It
    fails by the `problem` of its result alone.

    The first run has the memory, the quality, and `took_s` of all of them together. reference: where the probabilities
    of an f16 cache are kept; they are written if the file is missing. text: a file whose words are computed, and by
    which quality is judged; None = a text of our own.

    Raises: `child.Cancelled`.
    """
    task = {
        "path": str(path),
        "candidate": asdict(candidate),
        "workload": asdict(workload),
        "repeat_s": repeat_s,
        "reference": str(reference) if reference else None,
        "text": str(text) if text else None,
        "use_extra_bufts": use_extra_bufts,
    }
    began_s = time.monotonic()
    ended = child.run((*command, json.dumps(task)), timeout_s=timeout_s, is_wanted=is_wanted)
    took_s = time.monotonic() - began_s
    try:
        first, *others = json.loads(ended.answer)
        return [_judged(Run(**first, took_s=took_s)), *(Run(**each) for each in others)]
    except (ValueError, TypeError):
        if ended.status == child.HUNG:  # or is slow: nothing tells one from the other
            return [Run(problem=f"this combination takes longer than {timeout_s:.0f} s", took_s=took_s)]
        return [Run(problem=f"this combination makes the library {child.died(ended.status, timeout_s)}", took_s=took_s)]


def _judged(run: Run) -> Run:
    """A run whose answers are those of another model counts as failed."""
    if run.divergence is None or run.divergence <= MOST_DIVERGENCE:
        return run
    worse = f"the answers differ by {run.divergence:.3f} nats a token from those of an f16 cache"
    return replace(run, problem=f"{worse}, and {MOST_DIVERGENCE} are allowed")


# -- the child --------------------------------------------------------------------------------------------------------


def _speeds(runtime: LlamaRuntime, tokens: array[int], workload: Workload, reference: Path | None) -> dict[str, Any]:
    """One round in a context. `tokens`: those that fill it, then those whose probabilities show the quality."""
    from shepherd.engine.base import Chunk, Forget  # noqa: PLC0415 - only the child needs it

    def now_s() -> float:
        return time.process_time() / workload.n_busy if workload.n_busy else time.perf_counter()

    def decode(*chunks: Chunk) -> None:
        if runtime.decode(list(chunks)) != "ok":
            raise ShepherdError("the context has too few cells")

    def generated(start: int, n_seq: int = 1, n_steps: int = workload.n_generate) -> float:
        began_s = now_s()
        for n in range(n_steps):
            token = tokens[n % len(tokens) :][:1]
            decode(*(Chunk(seq, token, start + n, logits=True) for seq in range(n_seq)))
        return n_steps * n_seq / (now_s() - began_s)

    def fill(depth: int) -> None:
        for start in range(0, depth, runtime.n_batch):
            decode(Chunk(0, tokens[start : min(start + runtime.n_batch, depth)], start, logits=True))

    for seq in range(runtime.n_seq):
        runtime.apply(Forget(seq))  # of an earlier round
    decode(Chunk(0, tokens[:1], 0, logits=True))  # wakes threads and pages
    runtime.apply(Forget(0))
    found: dict[str, Any] = {"empty": generated(0)}
    runtime.apply(Forget(0))
    began_s = now_s()
    fill(workload.depth)
    found["prompt"] = workload.depth / (now_s() - began_s)
    if workload.n_quality and reference is not None:
        found["divergence"] = _divergence(runtime, tokens[workload.depth :], workload.depth, reference)
    found["deep"] = generated(workload.depth + workload.n_quality)
    if workload.parallel:
        depth, n_seq = min(workload.depth, CROWD_DEPTH), runtime.n_seq
        runtime.apply(Forget(0))
        fill(depth)
        state = runtime.save(0)
        for seq in range(1, n_seq):  # cells of its own for each, as different conversations have
            if not runtime.load(seq, state):
                raise ShepherdError("the context has too few cells for so many conversations")
        found["parallel"] = generated(depth, n_seq, max(4, min(workload.n_generate, 128 // n_seq)))
    return found


def _divergence(runtime: LlamaRuntime, tokens: array[int], start: int, reference: Path) -> float | None:
    """Mean KL divergence over these tokens from `start` on; None when this run wrote the reference."""
    import numpy as np  # noqa: PLC0415 - only the child needs it

    from shepherd.engine.base import Chunk  # noqa: PLC0415 - only the child needs it

    rows = []
    for n in range(len(tokens)):
        if runtime.decode([Chunk(0, tokens[n : n + 1], start + n, logits=True)]) != "ok":
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


def _text(weights: Weights, n_tokens: int, file: Path | None) -> array[int]:
    """Tokens of a text, repeated where it is short; of a model without texts, numbered tokens."""
    if not weights.has_text:
        if file is not None:
            raise ShepherdError(f"{weights.path.name} has no vocabulary of texts: leave --text out")
        return array("i", ((7 * n + 3) % weights.n_vocab for n in range(n_tokens)))
    if file is None:
        text = "\n".join(f"{n}. {line}" for n, line in enumerate((__doc__ or "").splitlines() * 3))
    else:
        text = file.read_text("utf-8", "replace")
    tokens = weights.tokenize(text)
    if len(tokens) < LEAST_TEXT and file is not None:
        raise ShepherdError(f"{file}: has {len(tokens)} tokens, {LEAST_TEXT} are needed; give a longer text")
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
        mmap=candidate.mmap,
        mlock=bool(candidate.mlock),
        override_tensor=candidate.override_tensor or (),
    )
    n_seq = candidate.sequences or N_PARALLEL
    options = ContextOptions(
        workload.cells(n_seq),
        n_seq=n_seq,
        n_batch=candidate.n_batch,
        n_ubatch=candidate.n_ubatch,
        n_threads=candidate.n_threads,
        n_threads_batch=candidate.n_threads_batch,
        flash_attention=candidate.flash_attn,
        cache_type_k=candidate.cache_type_k or "f16",
        cache_type_v=candidate.cache_type_v or "f16",
    )
    runtime = LlamaRuntime(weights, options)
    tokens = _text(weights, workload.depth + workload.n_quality, Path(task["text"]) if task.get("text") else None)
    reference = Path(task["reference"]) if task.get("reference") else None
    until_s = time.monotonic() + float(task["repeat_s"])
    found = [_speeds(runtime, tokens, workload, reference)]
    while time.monotonic() < until_s:
        found.append(_speeds(runtime, tokens, workload, None))
    found[0]["memory_bytes"] = psutil.Process().memory_info().rss
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
