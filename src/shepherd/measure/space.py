"""The settings that are tried, as a table, and the combinations that are never tried. Pure.

    Facts of the machine and the model ─▶ stages() ─▶ per stage, best ─▶ candidates that may be tried

A new setting is a field of `Candidate`, named as its key in `[models.NAME]` (or in `[caches.NAME]`: `OF_CACHES`), and a
row of `AXES`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any, Literal, NamedTuple, get_args

from shepherd.core.dataclasses import asdict, dataclass, fields, replace
from shepherd.models.gguf_file import BLOCKS

Goal = Literal["chat", "agent", "throughput", "memory"]
GOALS: tuple[Goal, ...] = get_args(Goal)


@dataclass(frozen=True, slots=True)
class Candidate:
    """One value for each setting; None = what Shepherd chooses by itself."""

    n_threads: int | None = None
    n_threads_batch: int | None = None
    n_batch: int | None = None
    n_ubatch: int | None = None
    flash_attn: bool | None = None
    cache_type_k: str | None = None
    cache_type_v: str | None = None
    repack: bool | None = None
    gpu_layers: int | None = None
    override_tensor: tuple[str, ...] | None = None
    mmap: bool | None = None
    mlock: bool | None = None
    sequences: int | None = None
    """Conversations at a time."""

    def __post_init__(self) -> None:
        if self.override_tensor is not None:  # JSON has lists
            object.__setattr__(self, "override_tensor", tuple(self.override_tensor))

    def changes(self, before: Candidate) -> dict[str, Any]:
        """The settings that differ, with their values here."""
        old = asdict(before)
        return {name: value for name, value in asdict(self).items() if value != old[name]}

    @property
    def lossy(self) -> bool:
        """Whether its cache holds less exact numbers than the one that others are compared with."""
        return any((kind or "f16") not in {"f16", "f32", "bf16"} for kind in (self.cache_type_k, self.cache_type_v))


KEYS = tuple(each.name for each in fields(Candidate))
OF_CACHES = frozenset({"sequences"})
"""Keys of `[caches.NAME]`; the others are those of `[models.NAME]`."""
CELLS_EACH = 512
"""Tokens of the context that each of many conversations has at least."""


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts of the machine and the model that decide which candidates exist."""

    n_cores: int
    """Physical cores."""
    n_processors: int
    n_ctx: int
    """Tokens that a step can have at most."""
    n_cells: int = 1 << 30
    """Tokens of the context."""
    key_length: int = 64
    value_length: int = 64
    n_layer: int = 1
    has_gpu: bool = False
    repacks: bool = False
    """Whether the library keeps a second copy of this model's weights, in another order."""
    has_cache: bool = True
    """False: a purely recurrent model."""
    has_experts: bool = False
    fits_gpu: bool = True
    """Whether all of the weights find room on the GPU, so that it makes no sense to place some elsewhere."""
    lockable: int | None = None
    """Bytes that the system lets this process lock in memory; None = not limited."""
    n_weights: int = 0
    """Bytes of the weights."""
    has_crowds: bool = False
    """The goal has many conversations at a time."""
    room: int | None = None
    """Bytes that the model may take; None = not limited."""
    needed: Callable[[Candidate], int] | None = None
    """Bytes that the model takes with a candidate."""


class Rule(NamedTuple):
    why: str
    holds: Callable[[Candidate, Facts], bool]


def _splits(length: int, kind: str | None) -> bool:
    return length % BLOCKS[kind or "f16"][0] == 0


RULES = (
    Rule("n_ubatch is larger than n_batch", lambda c, f: (c.n_ubatch or 512) > (c.n_batch or c.n_ubatch or 512)),
    Rule("n_batch is larger than the context", lambda c, f: max(c.n_batch or 0, c.n_ubatch or 0) > f.n_ctx),
    Rule("more threads than processors",
         lambda c, f: max(c.n_threads or 1, c.n_threads_batch or 1) > f.n_processors),
    Rule("n_threads_batch is n_threads anyway", lambda c, f: (c.n_threads_batch or -1) == c.n_threads),
    Rule("quantised values need flash attention",
         lambda c, f: c.flash_attn is False and (c.cache_type_v or "f16").startswith("q")),
    Rule("the heads cannot be divided into blocks of this type",
         lambda c, f: not (_splits(f.key_length, c.cache_type_k) and _splits(f.value_length, c.cache_type_v))),
    Rule("a recurrent model has no cells of any type",
         lambda c, f: not f.has_cache and (c.cache_type_k, c.cache_type_v) != (None, None)),
    Rule("there is no GPU", lambda c, f: not f.has_gpu and bool(c.gpu_layers)),
    Rule("more layers than the model has", lambda c, f: (c.gpu_layers or 0) > f.n_layer + 1),
    Rule("tensors are placed only beside a GPU", lambda c, f: not f.has_gpu and bool(c.override_tensor)),
    Rule("the system does not lock so much memory",
         lambda c, f: bool(c.mlock) and f.lockable is not None and f.lockable < f.n_weights),
    Rule("the context has too few tokens for so many conversations",
         lambda c, f: (c.sequences or 1) > max(1, f.n_cells // CELLS_EACH)),
    Rule("it needs more memory than is free",
         lambda c, f: f.room is not None and f.needed is not None and f.needed(c) > f.room),
)  # fmt: skip


def refusal(candidate: Candidate, facts: Facts, best: Candidate | None = None) -> str | None:
    """Why a candidate is never tried; None for one that may be.

    best: settings that work here; a rule that they break does not count for candidates near them.
    """
    held = (rule for rule in RULES if rule.holds(candidate, facts))
    return next((rule.why for rule in held if best is None or not rule.holds(best, facts)), None)


Axis = tuple[str, Callable[[Facts], Sequence[Any]]]


def _threads(facts: Facts) -> Sequence[int]:
    cores, processors = facts.n_cores, facts.n_processors
    return sorted({n for n in (1, 2, cores // 2, cores * 3 // 4, cores - 1, cores, processors) if 0 < n <= processors})


def _placements(facts: Facts) -> Sequence[tuple[str, ...]]:
    """The feed-forward networks of a part of the layers, experts first of all, in the memory of the CPU."""
    if facts.fits_gpu:
        return ()
    names, most = (r"ffn_(up|down|gate|gate_up)_(ch|)exps", 4) if facts.has_experts else (r"ffn_(up|down|gate)\.", 3)
    counts = sorted({facts.n_layer * quarters // 4 for quarters in range(1, most + 1)} - {0})
    return [(rf"blk\.({'|'.join(map(str, range(n)))})\.{names}=CPU",) for n in counts]


AXES: tuple[tuple[str, tuple[Axis, ...]], ...] = (
    ("threads", (("n_threads", _threads),)),
    ("conversations at a time", (
        ("sequences", lambda f: (1, 2, 4, 8, 16, 32, 64) if f.has_crowds else ()),
    )),
    ("flash attention", (("flash_attn", lambda f: (False, True)),)),
    ("batches", (
        ("n_batch", lambda f: (256, 512, 1024, 2048)), ("n_ubatch", lambda f: (128, 256, 512, 1024, 2048)),
    )),
    ("threads of prompts", (("n_threads_batch", _threads),)),
    ("cache types", (
        ("flash_attn", lambda f: (True,)),
        ("cache_type_k", lambda f: (None, "q8_0", "q4_0")),
        ("cache_type_v", lambda f: (None, "q8_0", "q4_0")),
    )),
    ("repacking", (("repack", lambda f: (None, False) if f.repacks else ()),)),
    ("layers on the GPU", (
        ("gpu_layers", lambda f: sorted({f.n_layer // 2, f.n_layer * 3 // 4, f.n_layer + 1}) if f.has_gpu else ()),
    )),
    ("placement of tensors", (
        ("gpu_layers", lambda f: (f.n_layer + 1,)),
        ("override_tensor", _placements),
    )),
    ("loading", (("mmap", lambda f: (None, False)), ("mlock", lambda f: (None, True)))),
)  # fmt: skip
"""Stages, the one that usually decides most first: a name, and the settings whose combinations it tries."""


def stages(facts: Facts) -> tuple[Callable[[Candidate], tuple[Candidate, ...]], ...]:
    """Per stage, a function from the best candidate so far to those that are compared with it."""

    def stage(axes: tuple[Axis, ...]) -> Callable[[Candidate], tuple[Candidate, ...]]:
        return lambda best: tuple(_around(best, axes, facts))

    return tuple(stage(axes) for _, axes in AXES)


def _around(best: Candidate, axes: tuple[Axis, ...], facts: Facts) -> Iterator[Candidate]:
    names = [name for name, _ in axes]
    seen = {best}
    for values in product(*(values(facts) for _, values in axes)):
        made = replace(best, **dict(zip(names, values, strict=True)))
        if made not in seen and refusal(made, facts, best) is None:
            seen.add(made)
            yield made
