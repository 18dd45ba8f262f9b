"""What an eviction costs, the next decode included: a hole against a shift and a re-prefill, at 1k to 32k tokens.

    uv run python -m bench.engine.eviction [--model 0.5B] [--rounds N] [--quick]

A turn of 200 tokens leaves a sequence, and one token is decoded. The time for both is compared with the decodes of one
token just before and just after, in the same cache; doing nothing in between shows the noise. A shift (`seq_rm` and
`seq_add`, the calls of llama-server's `--context-shift`) turns all keys at the next decode. Times are by the clock and,
with one thread, of the processor, which a busy neighbour disturbs less.

A long cache is filled by loading a state made of one real piece over and over (`state.py`): what is measured depends on
how many cells, layers and heads there are, not on what they hold. Re-prefills of 1k and 4k are measured; longer ones
are estimated from the time of one batch at several depths.

On the embedded model, the engine too: a conversation without end in 512 cells. The histogram that it keeps of its
evictions (planning included), the first token of turns with an eviction against that of others, gaps in long answers.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import random
import statistics
import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.engine import state
from bench.rig.verdict import Options, quantile, run
from rich.console import Console
from rich.table import Table

from shepherd.core import Evicted, Sampling
from shepherd.engine.base import Chunk, Forget, Job, Op, Remove, Shift, Span
from shepherd.engine.engine import InProcessEngine
from shepherd.engine.llamacpp.runtime import ContextOptions, LlamaRuntime
from shepherd.engine.llamacpp.weights import Weights
from shepherd.engine.stats import Histogram

LENGTHS = (1024, 4096, 16_384, 32_768)
"""Resident tokens. The embedded model was trained for fewer, which what is measured here does not depend on."""
QUICK = (1024, 4096)
TURN = 200
"""Tokens that leave."""
KEPT = 64
"""Tokens of the system prompt."""
BATCH = 512
ARMS: tuple[str, ...] = ("nothing", "hole", "shift")
MEASURED = 4096
"""Re-prefills up to here are measured, longer ones estimated."""
N_WARM = 2
"""Decodes after a state was loaded, before anything is measured."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One eviction with its decode, and the plain decodes around it; seconds."""

    call_s: float
    """The eviction alone."""
    both_s: float
    plain_s: float
    """The mean of the two."""
    both_cpu_s: float
    plain_cpu_s: float


class Long:
    """A runtime whose sequence 0 can be made to hold so many tokens at once, again and again."""

    def __init__(self, weights: Weights, n_tokens: int, options: Options) -> None:
        self.n_tokens = n_tokens
        self.end = 0
        self._random = random.Random(0)
        self._n_words = weights.n_vocab // 2
        context = ContextOptions(
            n_ctx=n_tokens + BATCH, n_batch=BATCH, n_threads=options.threads, flash_attention=options.flash_attn
        )
        self.runtime = LlamaRuntime(weights, context)
        self.decode(BATCH)
        self._piece = state.parse(self.runtime.save(0))
        self._state = state.join(state.repeated(self._piece, n_tokens))

    def fill(self) -> None:
        """Hold `n_tokens` at positions 0 and on."""
        if not self.runtime.load(0, self._state):
            raise RuntimeError("the library does not take the state that was made")
        self.end = self.n_tokens
        assert self.runtime.held(0) == (0, self.end - 1)

    def empty(self) -> None:
        """Hold nothing."""
        self.runtime.apply(Forget(0))
        self.end = 0

    def decode(self, n: int = 1) -> None:
        """Compute `n` more tokens."""
        tokens = array("i", (self._random.randrange(self._n_words) for _ in range(n)))
        if self.runtime.decode([Chunk(0, tokens, self.end, True)]) != "ok":
            raise RuntimeError("the cache is full")
        self.end += n

    def apply(self, ops: Sequence[Op]) -> None:
        """Evict. A shift moves what is decoded next, too."""
        for op in ops:
            if not self.runtime.apply(op):
                raise RuntimeError(f"the runtime refused {op}")
            if isinstance(op, Shift):
                self.end += op.delta


def samples(long: Long, arm: str, n: int) -> list[Sample]:
    """Measure `n` evictions in a full cache, one after the other, the oldest turns first."""
    long.fill()
    for _ in range(N_WARM):
        long.decode()
    found = []
    before, before_cpu = _timed(long.decode)
    for turn in range(n):
        call, call_cpu = _timed(functools.partial(long.apply, _ops(arm, turn)))
        next_, next_cpu = _timed(long.decode)
        after, after_cpu = _timed(long.decode)
        plain, plain_cpu = (before + after) / 2, (before_cpu + after_cpu) / 2
        found.append(Sample(call, call + next_, plain, call_cpu + next_cpu, plain_cpu))
        before, before_cpu = after, after_cpu
    return found


def _ops(arm: str, turn: int) -> list[Op]:
    """How turn number `turn` leaves when all before it have left in the same way."""
    if arm == "nothing":
        return []
    start = KEPT if arm == "shift" else KEPT + turn * TURN
    hole = Remove(0, start, start + TURN)
    return [hole, Shift(0, start + TURN, -TURN)] if arm == "shift" else [hole]


def _timed(work: Callable[[], None]) -> tuple[float, float]:
    """Seconds by the clock, and of this thread's processor time."""
    cpu, clock = time.thread_time(), time.perf_counter()
    work()
    return time.perf_counter() - clock, time.thread_time() - cpu


def evictions(weights: Weights, n_tokens: int, options: Options) -> dict[str, Any]:
    """The arms at one length, in turn in every round."""
    long = Long(weights, n_tokens, options)
    per_load = max(1, min(4, n_tokens // 4096))  # loading a long state takes as long as some decodes
    found: dict[str, list[Sample]] = {arm: [] for arm in ARMS}
    for round_ in range(max(6, options.rounds // per_load)):
        for n in range(len(ARMS)):
            arm = ARMS[(n + round_) % len(ARMS)]
            found[arm] += samples(long, arm, per_load)
    result = {arm: _summary(values) for arm, values in found.items()}
    long.runtime.close()
    return result


def _summary(found: Sequence[Sample]) -> dict[str, Any]:
    more = [1000 * (sample.both_s - sample.plain_s) for sample in found]
    more_cpu = [1000 * (sample.both_cpu_s - sample.plain_cpu_s) for sample in found]
    return {
        "n": len(found),
        "plain_ms": statistics.median(1000 * sample.plain_s for sample in found),
        "both_ms": statistics.median(1000 * sample.both_s for sample in found),
        "call_us": _spread([1e6 * sample.call_s for sample in found]),
        "more_ms": _spread(more),
        "more_cpu_ms": _spread(more_cpu),
        "samples_ms": [round(value, 4) for value in more],
        "samples_cpu_ms": [round(value, 4) for value in more_cpu],
    }


def _spread(values: Sequence[float]) -> dict[str, float]:
    return {"p50": quantile(values, 0.5), "p90": quantile(values, 0.9), "p99": quantile(values, 0.99)}


# -- re-prefill ----------------------------------------------------------------------------------------------------


def reprefills(weights: Weights, lengths: Sequence[int], options: Options) -> dict[int, dict[str, Any]]:
    """Seconds for computing again what a turn of `TURN` tokens leaves of so many, and one decode; how they were got."""
    result: dict[int, dict[str, Any]] = {}
    depths = [0, *(length for length in lengths if length > MEASURED or length == max(lengths))]
    per_token: list[tuple[int, float]] = []
    for depth in depths if max(lengths) > MEASURED else []:
        long = Long(weights, max(depth, BATCH), options)
        if depth:
            long.fill()
        else:
            long.empty()
        n = BATCH // 2
        per_token.append((depth, _timed(functools.partial(long.decode, n))[0] / n))
        long.runtime.close()
    for length in lengths:
        if length <= MEASURED:
            result[length] = {"s": _prefill(weights, length - TURN, options), "how": "measured"}
        else:
            result[length] = {"s": _integral(per_token, length - TURN), "how": "estimated"}
    return result


def _prefill(weights: Weights, n_tokens: int, options: Options) -> float:
    long = Long(weights, max(n_tokens, BATCH), options)
    long.empty()

    def work() -> None:
        for at in range(0, n_tokens, BATCH):
            long.decode(min(BATCH, n_tokens - at))
        long.decode()

    seconds = _timed(work)[0]
    long.runtime.close()
    return seconds


def _integral(per_token: Sequence[tuple[int, float]], n_tokens: int) -> float:
    """The area under straight lines through (depth, seconds per token), up to `n_tokens`."""
    total = 0.0
    for (low, a), (high, b) in itertools.pairwise(per_token):
        stop = min(high, n_tokens)
        if stop > low:
            last = a + (b - a) * (stop - low) / (high - low)
            total += (stop - low) * (a + last) / 2
    return total


# -- the engine ----------------------------------------------------------------------------------------------------

N_CTX = 512
SYSTEM, ASKED, ANSWERED = 24, 24, 16
"""Tokens of the system prompt, of a message, and of its answer."""
LONG_ANSWER = 300


class Chat:
    """A conversation whose client resends all of it, on the real engine."""

    def __init__(self, engine: InProcessEngine, n_vocab: int) -> None:
        self._engine = engine
        self._random = random.Random(1)
        self._n_words = n_vocab // 2
        self._tokens = self._words(SYSTEM)
        self._spans = [Span(0, SYSTEM, 0, 0, keep=True)]

    async def turn(self, n_answer: int, *, reserve: int) -> tuple[float, list[float], list[int]]:
        """Seconds to the first token, gaps between tokens, and before which tokens something was evicted."""
        turn = self._spans[-1].turn + 1
        start = len(self._tokens)
        self._tokens += self._words(ASKED)
        asked = Span(start, len(self._tokens), len(self._spans), turn, keep=True)
        sampling = Sampling(temperature=0.8, seed=0, ignore_eos=True)
        spans = (*self._spans, asked)
        job = Job(self._tokens[:], n_answer, sampling, spans=spans, on_full="evict", reserve=reserve)
        times = [time.perf_counter()]
        evicted: list[int] = []
        async for steps in self._engine.submit(job).batches():
            now = time.perf_counter()
            for step in steps:
                if isinstance(step, int):
                    self._tokens.append(step)
                    times.append(now)
                elif isinstance(step, Evicted):
                    evicted.append(len(times) - 1)
        answer = Span(asked.stop, len(self._tokens), asked.message + 1, turn)
        self._spans += [Span(asked.start, asked.stop, asked.message, turn), answer]
        gaps = [after - before for before, after in itertools.pairwise(times)]
        return gaps[0], gaps[1:], evicted

    def _words(self, n: int) -> array[int]:
        return array("i", (self._random.randrange(self._n_words) for _ in range(n)))


def engine(weights: Weights, options: Options) -> dict[str, Any]:
    """Turns that fit into what is free against turns that others must leave for, and long answers that overflow."""
    return asyncio.run(_engine(weights, options))


async def _engine(weights: Weights, options: Options) -> dict[str, Any]:
    context = ContextOptions(n_ctx=N_CTX, n_seq=2, n_threads=options.threads, flash_attention=options.flash_attn)
    running = InProcessEngine(LlamaRuntime(weights, context))
    try:
        chat = Chat(running, weights.n_vocab)
        first: dict[bool, list[float]] = {False: [], True: []}
        n_turns = 60 if options.quick else 900
        parts: list[Histogram] = []
        for turn in range(n_turns):
            seconds, _, evicted = await chat.turn(ANSWERED, reserve=ANSWERED)
            if turn > N_CTX // (ASKED + ANSWERED):  # from the first eviction on, the cache is about as full as ever
                first[bool(evicted)].append(1000 * seconds)
            if (turn + 1) % (n_turns // 3) == 0:
                parts.append(_since(running.stats().eviction_s, parts))
        gaps: dict[bool, list[float]] = {False: [], True: []}
        for _ in range(5 if options.quick else 150):
            # Short turns first, so that there is something to leave in the middle of the answer.
            for _ in range(8):
                await chat.turn(2, reserve=2)
            _, between_tokens, evicted = await chat.turn(LONG_ANSWER, reserve=1)
            for at, gap in enumerate(between_tokens, 1):
                gaps[at in evicted].append(1000 * gap)
        within = _since(running.stats().eviction_s, parts)
        usual, usual_gap = statistics.median(first[False]), statistics.median(gaps[False])
        return {
            "n_ctx": N_CTX,
            "eviction_seconds": {
                **{
                    f"turns {n_turns * n // 3} to {n_turns * (n + 1) // 3}": _histogram(part)
                    for n, part in enumerate(parts)
                },
                "with long answers": _histogram(within),
            },
            "first_token_ms": {"without": _spread(first[False]), "with": _spread(first[True]), "n": len(first[True])},
            "first_token_more_ms": _spread([value - usual for value in first[True]]),
            "first_token_noise_ms": _spread([value - usual for value in first[False]]),
            "gap_ms": {"without": _spread(gaps[False]), "with": _spread(gaps[True]), "n": len(gaps[True])},
            "gap_more_ms": _spread([value - usual_gap for value in gaps[True]]),
            "gap_noise_ms": _spread([value - usual_gap for value in gaps[False]]),
            "rebases": running.stats().rebases,
        }
    finally:
        running.close()


def _since(histogram: Histogram, before: Sequence[Histogram]) -> Histogram:
    """What came after the observations in `before`."""
    rest = Histogram(histogram.bounds)
    rest.total = histogram.total - sum(part.total for part in before)
    rest.counts = [n - sum(part.counts[at] for part in before) for at, n in enumerate(histogram.counts)]
    return rest


def _histogram(histogram: Histogram) -> dict[str, Any]:
    """Its counts, and the bounds below which half and 99 % of the evictions lie."""
    n = sum(histogram.counts)
    bounds = [*histogram.bounds, float("inf")]

    def below(share: float) -> float:
        seen = 0
        for bound, count in zip(bounds, histogram.counts, strict=True):
            seen += count
            if seen >= share * n:
                return bound
        return bounds[-1]

    return {
        "n": n,
        "mean_s": histogram.total / n if n else 0.0,
        "p50_at_most_s": below(0.5),
        "p99_at_most_s": below(0.99),
        "bounds_s": list(histogram.bounds),
        "counts": histogram.counts[:],
    }


# -- what came out -------------------------------------------------------------------------------------------------


def measure(model: str, path: Path, options: Options, console: Console) -> dict[str, Any]:
    """All lengths over one model."""
    weights = Weights.load(path)
    lengths = QUICK if options.quick else LENGTHS
    by_length: dict[str, dict[str, Any]] = {}
    for length in lengths:
        console.print(f"{model}: {length} resident tokens")
        by_length[str(length)] = evictions(weights, length, options)
    again = reprefills(weights, lengths, options)
    result: dict[str, Any] = {
        "turn": TURN,
        "lengths": by_length,
        "reprefill": {str(length): value for length, value in again.items()},
    }
    if model == "embedded":
        result["engine"] = engine(weights, options)
    weights.close()
    show(console, model, result)
    return result


def show(console: Console, model: str, result: dict[str, Any]) -> None:
    """Print the tables."""
    table = Table("resident", "arm", "n", "plain decode, ms", "call, us p50 / p99", "ms more: p50 / p90 / p99",
                  "ms of processor time more", title=f"evicting {TURN} tokens and decoding one, {model}")  # fmt: skip
    for length, arms in result["lengths"].items():
        for arm, found in arms.items():
            call = found["call_us"]
            table.add_row(
                length, arm, str(found["n"]), f"{found['plain_ms']:.3g}", f"{call['p50']:.1f} / {call['p99']:.1f}",
                _three(found["more_ms"]), _three(found["more_cpu_ms"]),
            )  # fmt: skip
        again = result["reprefill"][length]
        table.add_row(length, "re-prefill", again["how"], "", "", f"{1000 * again['s']:,.0f}", "")
        table.add_section()
    console.print(table)
    if "engine" not in result:
        return
    found = result["engine"]
    table = Table("engine, 512 cells", "n", "ms p50 / p90 / p99")
    for what, name in (("first token of a turn", "first_token"), ("gap in a long answer", "gap")):
        table.add_row(f"{what}, nothing leaves", "", _three(found[f"{name}_ms"]["without"]))
        table.add_row(f"{what}, turns leave", str(found[f"{name}_ms"]["n"]), _three(found[f"{name}_ms"]["with"]))
        table.add_row("  more than the median without", "", _three(found[f"{name}_more_ms"]))
        table.add_row("  noise: the same where nothing leaves", "", _three(found[f"{name}_noise_ms"]))
    console.print(table)
    table = Table("eviction_seconds", "n", "mean, us", "p50 at most", "p99 at most")
    for when, seen in found["eviction_seconds"].items():
        values = (1e6 * seen[name] for name in ("mean_s", "p50_at_most_s", "p99_at_most_s"))
        table.add_row(when, str(seen["n"]), *(f"{value:,.0f}" for value in values))
    console.print(table)


def _three(spread: dict[str, float]) -> str:
    return " / ".join(f"{spread[name]:.3f}" for name in ("p50", "p90", "p99"))


if __name__ == "__main__":
    run("eviction", __doc__, {"0.5B": 60, "embedded": 400}, measure)
