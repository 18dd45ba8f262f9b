"""What this machine does in a second, measured once in about ten seconds and kept: the `Rates` of `models/plan.py`.

    number formats ─▶ small models of zeros, one for each question ─ measure/trial.py ─▶ [Run] ─ rates_from ─▶ Rates

A model of zeros costs what any other of its shape costs: no kernel looks at values. Three questions, a shape for each:
*wide* (weights of one format: their bytes, prompts, several users), *long* (attention, from two depths), *flat* (a
layer that computes next to nothing). The engine computes them as it computes every model.
"""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from shepherd.core import EngineError
from shepherd.engine.llamacpp import selftest
from shepherd.engine.llamacpp.machine import hardware
from shepherd.measure.space import Candidate
from shepherd.measure.trial import CROWD_DEPTH, N_PARALLEL, Run, Workload, measure
from shepherd.models import gguf, plan
from shepherd.models.gguf_file import BLOCKS, NUMBERS
from shepherd.models.sizing import Cells
from shepherd.process import child

FORMAT = 1
"""Of the kept file; another one is measured again."""
TIMEOUT_S = 300.0
_ALIGNMENT = 32
_LONG = (256, 1024)
"""Tokens behind which attention is measured."""
_N_GENERATE = 12


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
LONG = Shape(8, 1024, 256, 16, 4)
FLAT = Shape(32, 64, 64, 2, 2)
_FLAT_KIND = "q8_0"


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
    """What was measured of a model: the shape's work, behind how many tokens, and the speeds."""

    work: plan.Work
    depth: int
    run: Run
    n_users: int = 1
    """At a time, for `run.parallel`."""


def rates_from(wide: Mapping[str, Measured], long: tuple[Measured, Measured], flat: Measured) -> plan.Rates:
    """The rates with which `plan` gives back these measurements. wide: by number format."""
    floor_s = 1e-9
    first = next(iter(wide.values()))
    per_byte = 1 / first.run.empty / _n_bytes(first.work)
    layer_s = max(0.0, 1 / flat.run.empty - _n_bytes(flat.work) * per_byte) / flat.work.n_layer
    short, deep = long
    decoded = 4 * (deep.work.seen(deep.depth) - deep.work.seen(0))
    attention = decoded / max(floor_s, 1 / deep.run.deep - 1 / deep.run.empty)
    # Two prompts: seconds = tokens x a + compared x b; the weights' part is the same for each token of both.
    compared = [plan.compared(each.work, each.depth) for each in long]
    seconds = [each.depth / each.run.prompt for each in long]
    ratio = deep.depth / short.depth
    attention_prompt = (compared[1] - ratio * compared[0]) / max(floor_s, seconds[1] - ratio * seconds[0])
    weights, more, prompt = dict[str, float](), dict[str, float](), dict[str, float]()
    for kind, each in wide.items():
        n_values = _n_values(each.work)
        one_s = 1 / each.run.empty - each.work.n_layer * layer_s
        weights[kind] = _n_bytes(each.work) / max(floor_s, one_s)
        users_s = each.n_users / each.run.parallel if each.run.parallel else each.n_users / each.run.empty
        looked = each.n_users**2 * 4 * each.work.seen(min(each.depth, CROWD_DEPTH)) / attention
        more[kind] = 2 * n_values * (each.n_users - 1) / max(floor_s, users_s - looked - 1 / each.run.empty)
        prompt_s = each.depth / each.run.prompt - plan.compared(each.work, each.depth) / attention_prompt
        prompt[kind] = 2 * n_values * each.depth / max(floor_s, prompt_s)
    for table in (weights, more, prompt):  # the slowest stands for formats that were not measured
        table[plan.ANY] = min(table.values())
    return plan.Rates(weights, more, prompt, max(weights.values()), attention, attention_prompt, layer_s)


def _n_bytes(work: plan.Work) -> float:
    return sum(amount.n_bytes for found in (work.shared, work.last) for amount in found.values())


def _n_values(work: plan.Work) -> float:
    return sum(amount.n_values for amount in work.shared.values())


# -- measuring --------------------------------------------------------------------------------------------------------


def measured_rates(
    kinds: Collection[str],
    *,
    n_threads: int | None,
    gpu_layers: int | None,
    cache_folder: Path,
    say: Callable[[str], None] = lambda text: None,
) -> plan.Rates:
    """The rates of this machine for models in these number formats; from an earlier measurement where there is one.

    `say` gets a line when something is measured. Raises: `EngineError` where a model of zeros cannot be computed.
    """
    file = cache_folder / "speed" / f"{selftest.build_id()}-{hardware()}-{n_threads or 'all'}-{gpu_layers}.json"
    stored = child.kept(file) or {}
    runs: dict[str, Run] = {}
    if stored.get("format") == FORMAT:
        try:
            runs = {name: Run(**run) for name, run in stored["runs"].items()}
        except (KeyError, TypeError, AttributeError):
            runs = {}
    known = sorted({kind for kind in kinds if kind in BLOCKS and WIDE.n_ff % BLOCKS[kind][0] == 0} or {_FLAT_KIND})
    questions = [("wide", kind, 256) for kind in known]
    questions += [("long", _FLAT_KIND, depth) for depth in _LONG] + [("flat", _FLAT_KIND, 64)]
    missing = [each for each in questions if _named(*each) not in runs]
    if missing:
        say(f"Measuring this machine, which is kept: {len(missing)} measurements of about 3 s.")
        verdict = selftest.verdict(cache_folder)
        candidate = Candidate(n_threads=n_threads, gpu_layers=gpu_layers)
        for name, kind, depth in missing:
            with _model(_SHAPES[name], kind) as path:
                workload = Workload(depth=depth, n_generate=_N_GENERATE, parallel=name == "wide")
                run, *_ = measure(
                    path, candidate, workload, timeout_s=TIMEOUT_S, use_extra_bufts=verdict.use_extra_bufts
                )
            if run.problem or not (run.empty and run.prompt and run.deep):
                raise EngineError(f"the speed of this machine cannot be measured: {run.problem or 'it shows no speed'}")
            runs[_named(name, kind, depth)] = run
        child.keep(file, {"format": FORMAT, "runs": {name: asdict(run) for name, run in runs.items()}})
    works = {(name, kind): _work(_SHAPES[name], kind) for name, kind, _ in questions}

    def found(name: str, kind: str, depth: int) -> Measured:
        return Measured(works[name, kind], depth, runs[_named(name, kind, depth)], N_PARALLEL)

    short, deep = (found("long", _FLAT_KIND, depth) for depth in _LONG)
    return rates_from({kind: found("wide", kind, 256) for kind in known}, (short, deep), found("flat", _FLAT_KIND, 64))


_SHAPES = {"wide": WIDE, "long": LONG, "flat": FLAT}


def _named(name: str, kind: str, depth: int) -> str:
    return f"{name} {kind} {depth}"


def _work(shape: Shape, kind: str) -> plan.Work:
    with _model(shape, kind) as path:
        return plan.work_of(gguf.read_header(path), Cells(1024))


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
