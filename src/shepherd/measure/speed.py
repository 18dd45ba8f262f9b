"""What this machine does in a second, measured once in about fifteen seconds and kept: the `Rates` of `models/plan.py`.

    number formats ─▶ small models of zeros, one for each question ─ measure/trial.py ─▶ [Run] ─ rates_from ─▶ Rates

A model of zeros costs what any other of its shape costs: no kernel looks at values. Four questions, a shape for each:
*wide* (weights of one format: their bytes, prompts, several users), *short* (several users, where rows are short),
*long* (attention, from two depths), *flat* (a layer that computes next to nothing). The engine computes them as it
computes every model.
"""

from __future__ import annotations

import math
import statistics
import struct
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, get_args

import numpy as np

from shepherd.core import EngineError
from shepherd.core.dataclasses import asdict, dataclass, replace
from shepherd.engine.llamacpp import selftest
from shepherd.engine.llamacpp.machine import hardware
from shepherd.measure import store
from shepherd.measure.space import Candidate, Goal
from shepherd.measure.trial import CROWD_DEPTH, N_PARALLEL, Run, Workload, measure
from shepherd.models import gguf, plan
from shepherd.models.gguf_file import BLOCKS, NUMBERS
from shepherd.models.sizing import Cells
from shepherd.process import child

FORMAT = 2
"""Of the kept file; another one is measured again."""
TIMEOUT_S = 300.0
_ALIGNMENT = 32
WIDE_DEPTH, LONG_DEPTHS, FLAT_DEPTH = 256, (256, 1024), 64
"""Tokens of the prompts, behind which generation is measured, too."""
N_GENERATE = 12
REPEAT_S = 2.0
"""For each measurement, whose median counts."""
PLAIN = "q8_0"
"""The number format where that is not the question."""
_UBATCH = 512
_SPEEDS = ("prompt", "empty", "deep", "parallel")


@dataclass(frozen=True, slots=True)
class Shape:
    """The dimensions of a model of llama's architecture, without a vocabulary of texts."""

    n_layer: int
    n_embd: int
    n_ff: int
    n_head: int
    n_head_kv: int
    n_vocab: int = 256

    def tensors(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Names and dimensions, the row length first."""
        embd, narrow = self.n_embd, self.n_embd // self.n_head * self.n_head_kv
        yield "token_embd.weight", (embd, self.n_vocab)
        yield "output_norm.weight", (embd,)
        for layer in range(self.n_layer):
            for name, dims in {
                "attn_norm": (embd,), "ffn_norm": (embd,), "attn_q": (embd, embd), "attn_k": (embd, narrow),
                "attn_v": (embd, narrow), "attn_output": (embd, embd), "ffn_gate": (embd, self.n_ff),
                "ffn_up": (embd, self.n_ff), "ffn_down": (self.n_ff, embd),
            }.items():  # fmt: skip
                yield f"blk.{layer}.{name}.weight", dims


WIDE = Shape(8, 1024, 4096, 16, 4)
"""118 million weights: more bytes than the caches of a processor hold."""
SHORT = Shape(4, 512, 2048, 8, 2, 131_072)
"""Most of its 82 million weights are in one matrix, as in small models with large vocabularies."""
LONG = Shape(8, 1024, 256, 16, 4)
FLAT = Shape(32, 64, 64, 2, 2)
SHAPES: Mapping[str, Shape] = {"wide": WIDE, "short": SHORT, "long": LONG, "flat": FLAT}


def write(shape: Shape, path: Path, kind: str) -> None:
    """Write a model of zeros whose matrices have this number format. Raises: `OSError`."""

    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value)) + value.encode()

    whole = {
        "block_count": shape.n_layer, "context_length": 32_768, "embedding_length": shape.n_embd,
        "feed_forward_length": shape.n_ff, "attention.head_count": shape.n_head,
        "attention.head_count_kv": shape.n_head_kv, "rope.dimension_count": shape.n_embd // shape.n_head,
        "vocab_size": shape.n_vocab,
    }  # fmt: skip
    pairs = [text(key) + struct.pack("<I", 8) + text(value) for key, value in (
        ("general.architecture", "llama"), ("tokenizer.ggml.model", "no_vocab"))]  # fmt: skip
    pairs += [text(f"llama.{key}") + struct.pack("<II", 4, value) for key, value in whole.items()]
    pairs.append(text("llama.attention.layer_norm_rms_epsilon") + struct.pack("<If", 6, 1e-5))
    infos, at = [], 0
    for name, dims in shape.tensors():
        stored = kind if len(dims) > 1 else "f32"
        per_block, size_bytes = BLOCKS[stored]
        n_bytes = dims[0] // per_block * size_bytes * (dims[1] if len(dims) > 1 else 1)
        infos.append(text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, NUMBERS[stored], at))
        at += -(-n_bytes // _ALIGNMENT) * _ALIGNMENT
    head = b"GGUF" + struct.pack("<IQQ", 3, len(infos), len(pairs)) + b"".join(pairs + infos)
    with path.open("wb") as file:
        file.write(head + bytes(-len(head) % _ALIGNMENT))
        file.truncate(file.tell() + at)  # zeros that take no room on the disk, and pages of memory as any others


# -- from measurements to rates ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Measured:
    """The speeds of one model: what it has to do for a token, and behind how many."""

    work: plan.Work
    depth: int
    run: Run


def rates_from(
    wide: Mapping[str, Measured], short: Mapping[str, Measured], long: tuple[Measured, Measured], flat: Measured
) -> plan.Rates:
    """The rates with which `plan` gives back these measurements. wide, short: by number format."""
    shallow, deep = long
    more_looked = plan.looked(deep.work, 1, deep.depth) - plan.looked(deep.work, 1, 0)
    attention = more_looked / _above(1 / deep.run.deep - 1 / deep.run.empty)
    weights = {plan.ANY: math.inf}

    def weighing_s(found: Measured, kind: str) -> float:
        """What the weights in this format take of a token's time, with what layers cost whatever they compute."""
        others_s = (_n_bytes(found.work) - _n_bytes(found.work, kind)) / weights[plan.ANY]
        return 1 / found.run.empty - plan.looked(found.work, 1, 0) / attention - others_s

    usual, first = next(iter(wide.items()))
    for _ in range(2):  # norms have a format that is not measured: the second time they count at the slowest's rate
        per_byte = weighing_s(first, usual) / _n_bytes(first.work, usual)
        fixed_s = weighing_s(flat, usual) - _n_bytes(flat.work, usual) * per_byte
        layer_s = max(0.0, fixed_s) / flat.work.n_layer
        for kind, each in wide.items():
            weighed_s = weighing_s(each, kind) - each.work.n_layer * layer_s
            weights[kind] = _n_bytes(each.work, kind) / _above(weighed_s)
        weights[plan.ANY] = _slowest(weights)

    def prompting_s(found: Measured) -> float:
        """What a prompt takes beside what layers cost whatever they compute."""
        return found.depth / found.run.prompt - -(-found.depth // _UBATCH) * found.work.n_layer * layer_s

    # This is tokens x a + compared x b, with the same a for both.
    ratio = deep.depth / shallow.depth
    more_compared = plan.compared(deep.work, deep.depth) - ratio * plan.compared(shallow.work, shallow.depth)
    attention_prompt = more_compared / _above(prompting_s(deep) - ratio * prompting_s(shallow))
    prompt = dict[str, float]()
    for kind, each in wide.items():
        computed_s = prompting_s(each) - plan.compared(each.work, each.depth) / attention_prompt
        prompt[kind] = 2 * _n_values(each.work) * each.depth / _above(computed_s)
    prompt[plan.ANY] = _slowest(prompt)
    looking = plan.Rates({}, {}, {}, 0.0, attention, attention_prompt)
    several = {kind: _several(each, short[kind], looking, prompt[kind]) for kind, each in wide.items()}
    several[plan.ANY] = max(several.values(), key=lambda each: each.value_s + each.row_s / WIDE.n_embd)
    return plan.Rates(weights, several, prompt, max(weights.values()), attention, attention_prompt, layer_s)


def _several(wide: Measured, short: Measured, looking: plan.Rates, prompt: float) -> plan.Several:
    """The two numbers with which both models take what their four users took; one alone where noise makes the other
    fall below zero."""

    def beside(found: Measured) -> tuple[float, float, float]:
        work, run = found.work, found.run
        looking_s = plan.looking_s(work, looking, N_PARALLEL, min(found.depth, CROWD_DEPTH))
        one_s = 1 / run.empty - plan.looked(work, 1, 0) / looking.attention
        n_values, n_rows = _n_values(work, last=True), _n_rows(work)
        computed_s = (N_PARALLEL - 1) * 2 * n_values / prompt
        return max(0.0, N_PARALLEL / run.parallel - looking_s - one_s - computed_s), n_values, n_rows

    (wide_s, *wide_n), (short_s, *short_n) = beside(wide), beside(short)
    determinant = wide_n[0] * short_n[1] - short_n[0] * wide_n[1]
    value_s = (wide_s * short_n[1] - short_s * wide_n[1]) / determinant
    row_s = (wide_n[0] * short_s - short_n[0] * wide_s) / determinant
    if row_s < 0:
        return plan.Several(value_s=(wide_s + short_s) / (wide_n[0] + short_n[0]))
    if value_s < 0:
        return plan.Several(row_s=(wide_s + short_s) / (wide_n[1] + short_n[1]))
    return plan.Several(value_s, row_s)


def fitted(rates: plan.Rates, found: Measured) -> plan.Rates:
    """The rates with which `plan` gives back what was measured of this model itself."""
    work, run = found.work, found.run
    more_looked = plan.looked(work, 1, found.depth) - plan.looked(work, 1, 0)
    deeper_s = 1 / run.deep - 1 / run.empty
    rates = replace(rates, attention=more_looked / deeper_s if deeper_s > 0 else rates.attention)
    looking_s = plan.looked(work, 1, 0) / rates.attention
    slower = _above(1 / run.empty - looking_s) / _above(plan.step_s(work, rates, 1, 0) - looking_s)
    several = {kind: each.times(slower) for kind, each in rates.several.items()}
    once = replace(rates, weights=_times(rates.weights, 1 / slower), several=several, layer_s=rates.layer_s * slower)
    later = found.depth / run.prompt / plan.prompt_s(work, once, found.depth)
    return replace(once, prompt=_times(once.prompt, 1 / later), attention_prompt=once.attention_prompt / later)


def stored(header: gguf.Header, n_threads: int | None, cache_folder: Path) -> Measured | None:
    """What `shepherd optimize` has measured of this model on this machine, with the settings that it had."""
    for goal in get_args(Goal):
        progress = store.find(store.file_of(cache_folder, header, goal))
        if progress is None or progress.start.n_threads not in (n_threads, None):
            continue
        if runs := [run for run in progress.of(progress.start) if min(run.prompt, run.empty, run.deep) > 0]:
            cells = Cells(progress.workload.n_ctx)
            return Measured(plan.work_of(header, cells), progress.workload.depth, median(runs))
    return None


def _times(table: Mapping[str, float], factor: float) -> dict[str, float]:
    return {kind: factor * rate for kind, rate in table.items()}


def median(runs: Sequence[Run]) -> Run:
    """Of each speed."""
    return Run(**{speed: statistics.median(getattr(run, speed) for run in runs) for speed in _SPEEDS})


def _above(seconds: float) -> float:
    """A difference of two measurements, which noise may make too small for a rate."""
    return max(seconds, 1e-9)


def _slowest(rates: Mapping[str, float]) -> float:
    """It stands for formats that were not measured."""
    return min(rate for kind, rate in rates.items() if kind != plan.ANY)


def _n_bytes(work: plan.Work, only: str = "") -> float:
    """Of the weights, or of those in one number format."""
    amounts = (each for found in (work.shared, work.last) for each in found.items())
    return sum(amount.n_bytes for kind, amount in amounts if only in ("", kind))


def _n_values(work: plan.Work, *, last: bool = False) -> float:
    return sum(amount.n_values for found in (work.shared, work.last)[: 1 + last] for amount in found.values())


def _n_rows(work: plan.Work) -> float:
    return sum(amount.n_rows for found in (work.shared, work.last) for amount in found.values())


# -- measuring --------------------------------------------------------------------------------------------------------


class _Question(NamedTuple):
    shape: str
    kind: str
    depth: int

    @property
    def key(self) -> str:
        return f"{self.shape} {self.kind} {self.depth}"


def measured_rates(
    kinds: Collection[str],
    *,
    n_threads: int | None,
    gpu_layers: int | None,
    cache_folder: Path,
    say: Callable[[str], None] = lambda text: None,
    shapes: Mapping[str, Shape] = SHAPES,
    repeat_s: float = REPEAT_S,
) -> plan.Rates:
    """The rates of this machine for models in these number formats; from an earlier measurement where there is one.

    `say` gets a line when something is measured. Raises: `EngineError` where a model of zeros cannot be computed.
    """
    name = f"{selftest.build_id()}-{hardware()}-{n_threads or 'all'}-{'all' if gpu_layers is None else gpu_layers}"
    file = cache_folder / "speed" / f"{name}.json"
    runs = kept_runs(file)
    known = sorted({kind for kind in kinds if _is_computed(kind, shapes["wide"])} or {PLAIN})
    wide, short = ([_Question(shape, kind, WIDE_DEPTH) for kind in known] for shape in ("wide", "short"))
    shallow, deep = (_Question("long", PLAIN, depth) for depth in LONG_DEPTHS)
    flat = _Question("flat", PLAIN, FLAT_DEPTH)
    missing = [each for each in (*wide, *short, shallow, deep, flat) if each.key not in runs]
    if missing:
        say(f"measuring this machine, once: {len(missing)} measurements of about {repeat_s + 2:.0f} s")
        extra = selftest.verdict(cache_folder).use_extra_bufts
        candidate = Candidate(n_threads=n_threads, gpu_layers=gpu_layers)
        for each in missing:
            # A processor is measured as if no other program wanted it.
            n_busy = n_threads or 0 if gpu_layers == 0 else 0
            workload = Workload(each.depth, N_GENERATE, parallel=each.shape in {"wide", "short"}, n_busy=n_busy)
            with _model(shapes[each.shape], each.kind) as path:
                found = measure(
                    path, candidate, workload, timeout_s=TIMEOUT_S, repeat_s=repeat_s, use_extra_bufts=extra
                )
            if problem := found[0].problem:
                raise EngineError(f"the speed of this machine cannot be measured: {problem}")
            runs[each.key] = median(found)
            child.keep(file, {"format": FORMAT, "runs": {key: asdict(run) for key, run in runs.items()}})

    def measured(each: _Question) -> Measured:
        with _model(shapes[each.shape], each.kind) as path:
            return Measured(plan.work_of(gguf.read_header(path), Cells(1024)), each.depth, runs[each.key])

    wide_ones, short_ones = ({each.kind: measured(each) for each in asked} for asked in (wide, short))
    return rates_from(wide_ones, short_ones, (measured(shallow), measured(deep)), measured(flat))


def kept_runs(file: Path) -> dict[str, Run]:
    """The measurements that a file keeps; empty for one that is none."""
    stored = child.kept(file) or {}
    if stored.get("format") != FORMAT:
        return {}
    try:
        found = {str(name): Run(**run) for name, run in stored["runs"].items()}
        return found if all(min(run.prompt, run.empty, run.deep) > 0 for run in found.values()) else {}
    except (KeyError, TypeError, AttributeError):
        return {}


def _is_computed(kind: str, shape: Shape) -> bool:
    """Whether llama.cpp multiplies matrices in this format: all but whole numbers."""
    return kind in BLOCKS and kind not in ("i8", "i16", "i32", "i64", "f64") and shape.n_embd % BLOCKS[kind][0] == 0


def memory_rate() -> float:
    """Bytes per second that this machine's memory gives one thread, in a tenth of a second: the limit of what a model
    writes on a CPU, which reads all of its active weights for each token."""
    source = np.ones(2**24, np.int64)  # 128 MiB: more than the caches of a processor hold
    seconds = []
    for _ in range(4):
        begun_s = time.perf_counter()
        source.max()
        seconds.append(time.perf_counter() - begun_s)
    return source.nbytes / min(seconds)


@contextmanager
def _model(shape: Shape, kind: str) -> Iterator[Path]:
    """A file that is there as long as the block."""
    with tempfile.TemporaryDirectory(prefix="shepherd-speed-") as folder:
        path = Path(folder) / "zeros.gguf"
        try:
            write(shape, path, kind)
        except OSError as error:
            raise EngineError(
                f"the speed of this machine cannot be measured: no file can be written in {folder} ({error.strerror}); "
                "TMPDIR can name another folder"
            ) from error
        yield path
