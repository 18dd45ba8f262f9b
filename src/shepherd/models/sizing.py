"""How much memory models need and may use, and which idle models must be unloaded for another one. Pure.

    Header + Cells of each cache ─▶ fit ─▶ Fit(weights, copies, cells, states, buffers, scratch)

The header says what a model needs before it is loaded. `fit` follows the library's own allocations: exactly for the
weights, the cells and the states, within a few per cent for the buffers of a computation (`bench/models/memory_fit.py`
compares them).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from shepherd.core import ConfigError
from shepherd.core.dataclasses import dataclass, replace
from shepherd.models import gguf
from shepherd.models.gguf_file import BLOCKS, Array

logger = logging.getLogger(__name__)

CACHE_TYPES = ("f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0")
LARGEST_DEFAULT_CONTEXT = 131_072
"""Tokens; the largest context that is chosen if the configuration gives none."""
RESERVE_BYTES, RESERVE_SHARE = 2**30, 16
"""Left to other programs by default: the smaller of this many bytes and this fraction (1/16) of what is free."""
PADDING = 256
"""The number of cells is a multiple of this."""
_FLOAT = 4
"""Bytes of a number that is computed with."""
_TOKEN = 190
"""Bytes that the library and the engine keep for each token of the vocabulary; measured."""
WINDOWED = {
    "afmoe": 4, "cohere2": 4, "cohere2moe": 4, "exaone-moe": 4, "exaone4": 4, "gemma-embedding": 6, "gemma2": 2,
    "gemma3": 6, "gemma3n": 5, "gpt-oss": 2, "laguna": 4, "lfm2": 0, "llama4": 4, "mellum": 4, "modern-bert": 3,
    "muse-glimmer": 4, "olmo2": 4, "plamo3": 8, "smallthinker": 4,
}  # fmt: skip
"""Architectures of which each nth layer sees the whole text and the others a window (0: all see a window), where the
file does not say so; of others every layer counts as one that sees all: that is never too little.
`bench/models/memory_fit.py` compares this table with the library's source."""
FULL_FIRST = frozenset({"cohere2moe", "laguna", "modern-bert", "smallthinker"})
"""Those of which the first layer sees the whole text, and not the nth."""
_WINDOWS = {"llama4": 8192, "smallthinker": 4096}
"""Tokens of the window of those for which the library takes no other."""
_TENSOR = re.compile(r"blk\.(\d+)\.(\w+)")
_STATE = ("ssm_", "shortconv", "time_mix_", "attn_qkv_conv")
"""Beginnings of the names of tensors of a layer that keeps a state."""
_WIDE = ("attn_qkv", "ssm_in", "shortconv")
"""Those of the widest matrices of such a layer."""


class _Most(NamedTuple):
    n_tokens: int
    """Of one image."""
    merge: int = 1
    """Patches on each side of a token, where the file does not say so."""


_MOST_TOKENS = {
    "qwen2vl_merger": _Most(4096, 2), "qwen2.5vl_merger": _Most(4096, 2), "qwen3vl_merger": _Most(4096, 2),
    "ling3vl": _Most(4096, 2), "muse-glimmer": _Most(4096, 2), "gemma4uv": _Most(1120, 3),
    "glm4v": _Most(4096, 2), "kimik25": _Most(4096, 2), "minimax_m3": _Most(576, 2),
    "pixtral": _Most(1024), "kimivl": _Most(1024, 2), "lfm2": _Most(256, 2), "gemma4v": _Most(1120, 3),
}  # fmt: skip
"""Kinds of projectors that take images as they are, up to this number of tokens (`clip.cpp` of the library). An image
for another kind, or each of its tiles, has the size that the file states."""
_MOST_PIXELS = 64_000_000
"""Larger images are not decoded, even if the file allows them."""


@dataclass(frozen=True, slots=True)
class IdleModel:
    """A loaded model that no request uses; a later request loads it again."""

    name: str
    n_bytes: int
    used_s: float
    """Time of its last use, on any clock."""


@dataclass(frozen=True, slots=True)
class Cells:
    """The options of a context that decide how much memory it takes."""

    n_ctx: int
    types: tuple[str, str] = ("f16", "f16")
    """Of the cached keys and values."""
    n_seq: int = 1
    n_outputs: int = 0
    """Most tokens with logits in one decode; at least one per sequence."""
    n_ubatch: int = 512
    flash_attention: bool = False
    swa_full: bool = True
    """Layers with a sliding window have as many cells as the others."""


@dataclass(frozen=True, slots=True)
class Fit:
    """The memory of a model and its caches, in bytes."""

    weights: int
    copies: int
    """Weights in another order, for the CPU. The system may then drop the pages of the file that they come from."""
    cells: int
    states: int
    """Of recurrent layers."""
    buffers: int
    """Of a computation, and of its logits."""
    scratch: int = 0
    """What is not in the library's own buffers: the vocabulary, and numbers that its threads convert."""

    @property
    def least(self) -> int:
        """What certainly stays in memory."""
        return self.weights + self.cells + self.states

    @property
    def needed(self) -> int:
        """What a running model uses."""
        return self.least + self.buffers + self.scratch

    @property
    def total(self) -> int:
        """With the pages that the system may drop."""
        return self.needed + self.copies


class Layer(NamedTuple):
    key: int = 0
    """Numbers of the keys of one token."""
    value: int = 0
    windowed: bool = False
    state: int = 0
    """Numbers of its state."""


class Shape(NamedTuple):
    """What of a header decides its memory."""

    layers: tuple[Layer, ...]
    window: int
    n_used: int
    """Experts that a token is computed by."""
    dense: int
    """Rows of the widest matrix of a feed-forward network."""
    expert: int
    """The same of the experts of one token together."""
    wide: int
    """The same of a layer that keeps a state."""


def budget_bytes(setting: int | float | None, *, free: int, total: int) -> int:
    """Bytes for all models: `setting` (int), a share of `total` (float), or, for None, all of `free` but a reserve."""
    if setting is None:
        return free - min(RESERVE_BYTES, free // RESERVE_SHARE)
    return setting if isinstance(setting, int) else int(total * setting)


def to_unload(needed: int, room: int, idle: Iterable[IdleModel]) -> tuple[str, ...] | None:
    """The names of the models to unload, the longest unused first and as few as possible; None if all are not enough.

    needed: bytes of the model to be loaded. room: bytes that are free.
    """
    leaving = []
    for holding in sorted(idle, key=lambda holding: holding.used_s):
        if needed <= room:
            break
        leaving.append(holding.name)
        room += holding.n_bytes
    return tuple(leaving) if needed <= room else None


def fit(header: gguf.Header, caches: Sequence[Cells], *, repacked: Collection[str] = ()) -> Fit:
    """The memory of a model with these caches over one copy of its weights.

    repacked: the number formats that the library puts in another order for this CPU.

    Raises: `ConfigError` for a cache type that does not exist.
    """
    tied = "output.weight" not in header.tensors
    copies = sum(
        tensor.n_bytes
        for name, tensor in header.tensors.items()
        if tensor.kind in repacked and len(tensor.dims) > 1 and tensor.dims[1] % 8 == 0
        if tied or not name.startswith("token_embd.")
    )
    shape = shape_of(header)
    found = [_fit(header, shape, cells) for cells in caches]
    return Fit(
        header.size_bytes,
        copies,
        sum(each.cells for each in found),
        sum(each.states for each in found),
        sum(each.buffers for each in found),
        _TOKEN * header.n_vocab + sum(each.scratch for each in found),
    )


def staying(found: Fit, header: gguf.Header, n_away: int | None) -> Fit:
    """What this machine needs of a model of which others hold a part: its input, the layers that stay, their cells.

    n_away: layers that leave, of which the output is the last; None and -1 = all.
    """
    n_layer = header.n_layer + 1
    stays = 0 if n_away is None or n_away < 0 else max(0, n_layer - n_away)
    given = sum(tensor.n_bytes for name, tensor in header.tensors.items() if name.startswith("token_embd."))
    return Fit(
        given + (found.weights - given) * stays // n_layer,
        found.copies * stays // n_layer,
        found.cells * stays // n_layer,
        found.states * stays // n_layer,
        found.buffers if stays else 0,
        found.scratch if stays else _TOKEN * header.n_vocab,
    )


def image_buffers(metadata: Mapping[str, object]) -> int:
    """Bytes that a projector with this header takes besides its file, while it encodes the largest image it takes."""

    def number(name: str) -> int:
        value = metadata.get(f"clip.vision.{name}")
        return max(0, value) if isinstance(value, int) else 0

    patch = max(1, number("patch_size"))
    kind = str(metadata.get("clip.projector_type") or metadata.get("clip.vision.projector_type"))
    if (most := _MOST_TOKENS.get(kind)) is not None:
        merge = number("spatial_merge_size") or number("projector.scale_factor") or most.merge
        n_pixels = number("image_max_pixels") or most.n_tokens * (patch * merge) ** 2
    else:
        n_pixels = number("image_max_pixels") or number("image_size") ** 2
    n_pixels = min(n_pixels, _MOST_PIXELS)
    n_patches = n_pixels // patch**2
    # What a layer has at once, with the gaps of the allocator, and its widest row in half precision, as the threads
    # multiply it; the pixels twice. Measured: `bench/models/projector_fit.py`.
    row = (13 * number("embedding_length") + number("feed_forward_length")) // 2
    return _FLOAT * (n_patches * row + 2 * 3 * n_pixels)


def about_needed(size_bytes: int) -> int:
    """A guess for models that are not here yet, from the size of the files; with a context of some thousand tokens."""
    return size_bytes + size_bytes // 8 + 2**29


def keeps_states(header: gguf.Header) -> bool:
    """Whether some layers keep a state instead of tokens."""
    return any(layer.state for layer in shape_of(header).layers)


def context_size(header: gguf.Header, *, cache: str, cells: Cells, is_loaded: bool, room: int, tier: int = 0) -> int:
    """Tokens of the context: `cells.n_ctx`, or as many as the memory allows if that is 0.

    is_loaded: whether the weights are in memory already. room: bytes that are free. tier: bytes that conversations
    outside the cells may take, of which up to a quarter of the room is left free.

    Raises: `ConfigError` if there is not enough memory, with the key of the cache's configuration.
    """
    weights, vocabulary = (0, 0) if is_loaded else (header.size_bytes, _TOKEN * header.n_vocab)
    shape = shape_of(header)

    def sized(n_ctx: int) -> Fit:
        found = _fit(header, shape, replace(cells, n_ctx=n_ctx))
        return replace(found, weights=weights, scratch=found.scratch + vocabulary)

    if cells.n_ctx:
        found = sized(cells.n_ctx)
        if found.least > room:
            raise ConfigError(
                f"{header.path.name} with a context of {cells.n_ctx} tokens needs {gib(found.needed)} of memory, "
                f"{gib(room)} is free; choose a smaller context size or smaller cache types",
                key=f"caches.{cache}.n_ctx",
            )
        if found.needed > room:  # the buffers are an estimate: they refuse no model
            logger.warning(
                "cache %r: a context of %d tokens needs about %s of memory with the buffers of a computation, %s is "
                "free; flash_attn = true or a smaller n_ubatch needs less",
                cache, cells.n_ctx, gib(found.needed), gib(room),
            )  # fmt: skip
        return padded(cells.n_ctx)
    trained = header.n_ctx_train or 4096
    n_ctx = min(trained, LARGEST_DEFAULT_CONTEXT)
    left = room - weights
    tier = min(tier, left // 4)
    # The cells take half of what the weights leave, at most: other programs need memory too.
    while n_ctx > 1024 and (sized(n_ctx).cells > left // 2 or sized(n_ctx).needed + tier > room):
        n_ctx //= 2
    found = sized(n_ctx)
    if found.least > room:
        raise ConfigError(
            f"{header.path.name} needs {gib(found.needed)} of memory, {gib(room)} is free; choose a smaller model",
            key=f"caches.{cache}.model",
        )
    logger.info(
        "cache %r: a context of %d of the %d tokens that the model was trained for, since %s is free: weights %s, "
        "cells and states %s, buffers %s",
        cache, n_ctx, trained, gib(room), gib(weights), gib(found.cells + found.states),
        gib(found.buffers + found.scratch),
    )  # fmt: skip
    return padded(n_ctx)


def padded(n_ctx: int) -> int:
    return -(-n_ctx // PADDING) * PADDING


def gib(size_bytes: int) -> str:
    """A size in words, such as `1.5 GiB`."""
    return f"{size_bytes / 2**30:.1f} GiB" if size_bytes >= 2**30 / 10 else f"{size_bytes / 2**20:.1f} MiB"


def _fit(header: gguf.Header, shape: Shape, cells: Cells) -> Fit:
    """One cache over the weights."""
    # Without flash attention, values lie across the cells, in rows as long as those of the widest layer.
    widest = 0 if cells.flash_attention else max((layer.value for layer in shape.layers if layer.key), default=0)
    n_bytes = sum(
        _n_cells(shape, cells, layer.windowed)
        * (_row_bytes(layer.key, cells.types[0]) + _row_bytes(max(layer.value, widest), cells.types[1]))
        for layer in shape.layers
        if layer.key
    )
    states = _FLOAT * cells.n_seq * sum(layer.state for layer in shape.layers)
    # Without flash attention the scores of one layer are converted to the type of the values.
    scores = 0 if cells.flash_attention else header.n_head * max(_seen(shape, cells), default=0)
    scratch = scores * min(cells.n_ubatch, cells.n_ctx) * (cells.types[1] != "f32") * 2
    return Fit(header.size_bytes, 0, n_bytes, states, _buffers(header, shape, cells), scratch)


def shape_of(header: gguf.Header) -> Shape:
    n_layer = min(header.n_layer, gguf.MAX_LAYERS)
    named: list[set[str]] = [set() for _ in range(n_layer)]
    n_used = _number(header, "expert_used_count")
    dense = expert = wide = 0
    for name, tensor in header.tensors.items():
        if not (match := _TENSOR.match(name)) or int(match[1]) >= n_layer:
            continue
        rows, what = tensor.dims[1] if len(tensor.dims) > 1 else 0, match[2]
        named[int(match[1])].add(what)
        if what in {"ffn_up", "ffn_gate"}:
            dense = max(dense, rows)
        elif what in {"ffn_up_exps", "ffn_gate_exps", "ffn_gate_up_exps"}:
            expert = max(expert, n_used * rows)
        elif what.startswith(_WIDE):
            wide = max(wide, rows)
    layers = tuple(_layers(header, named))
    return Shape(layers, _window(header), n_used, dense, expert, wide)


def _layers(header: gguf.Header, named: Sequence[Collection[str]]) -> Iterator[Layer]:
    """named: per layer, the names of its tensors."""
    windowed, state = _windows(header, len(named)), _state(header)
    n_heads = (*header.n_head_kv, *(0,) * len(named))  # a damaged file may give too few
    key, value = header.key_length, header.value_length
    key_swa, value_swa = _number(header, "attention.key_length_swa"), _number(header, "attention.value_length_swa")
    has_values = not _number(header, "attention.key_length_mla")
    n_own = len(named) - _number(header, "attention.shared_kv_layers")
    for layer, names in enumerate(named):
        keeps_state = state > 0 and any(name.startswith(_STATE) for name in names)
        attends = layer < n_own and (not keeps_state or "attn_output" in names)
        heads, narrow = max(0, n_heads[layer]) if attends else 0, windowed[layer]
        yield Layer(
            key=heads * ((narrow and key_swa) or key),
            value=heads * ((narrow and value_swa) or value) * has_values,
            windowed=narrow,
            state=state * keeps_state,
        )


def _window(header: gguf.Header) -> int:
    """Tokens of the window; 0 = none."""
    stated = _number(header, "attention.sliding_window")
    has_one = stated > 0 or (header.architecture == "llama4" and header.value("attention.sliding_window") is None)
    return _WINDOWS.get(header.architecture, stated) if has_one else 0


def _windows(header: gguf.Header, n_layer: int) -> tuple[bool, ...]:
    """Per layer, whether it sees a window only."""
    if not _window(header):
        return (False,) * n_layer
    pattern = header.value("attention.sliding_window_pattern")
    if isinstance(pattern, Array):
        found = tuple(bool(item) for item in pattern.first(n_layer))
        return found + (False,) * (n_layer - len(found))
    every = _number(header, "attention.sliding_window_pattern") or WINDOWED.get(header.architecture, 1)
    full = 0 if header.architecture in FULL_FIRST else every - 1
    return tuple(every == 0 or layer % every != full for layer in range(n_layer))


def _state(header: gguf.Header) -> int:
    """Numbers of the state of one recurrent layer, as the library lays it out."""
    if head := _number(header, "wkv.head_size"):
        return header.n_embd * (head + (_number(header, "token_shift_count") or 2))
    if taps := _number(header, "shortconv.l_cache"):
        return header.n_embd * (taps - 1)
    taps = max(0, _number(header, "ssm.conv_kernel") - 1)
    if head := _number(header, "kda.head_dim"):
        return header.n_head * head * (3 * (taps or 3) + head)
    inner, state = _number(header, "ssm.inner_size"), _number(header, "ssm.state_size")
    return taps * (inner + 2 * _number(header, "ssm.group_count") * state) + state * inner


def _n_cells(shape: Shape, cells: Cells, windowed: bool) -> int:
    n_ctx = padded(cells.n_ctx)
    return n_ctx if cells.swa_full or not windowed else padded(min(n_ctx, shape.window * cells.n_seq + cells.n_ubatch))


def _seen(shape: Shape, cells: Cells) -> list[int]:
    """For each kind of attention layers, the number of its cells."""
    kinds = {layer.windowed for layer in shape.layers if layer.key}
    return [_n_cells(shape, cells, windowed) for windowed in kinds]


def _buffers(header: gguf.Header, shape: Shape, cells: Cells) -> int:
    """The largest moment of a decode of `n_ubatch` tokens, and the logits that it leaves."""
    n = min(cells.n_ubatch, padded(cells.n_ctx))
    n = -(-n // cells.n_seq) * cells.n_seq * _FLOAT
    n_outputs = max(cells.n_outputs, cells.n_seq)
    row = _FLOAT * header.n_vocab
    embd, query = header.n_embd, header.n_head * header.key_length
    kv = max((layer.key + layer.value for layer in shape.layers), default=0)
    seen = _seen(shape, cells)
    masks = sum(seen) * n // (2 if cells.flash_attention else 1)
    scores = 0 if cells.flash_attention else header.n_head * max(seen, default=0)
    state = max((layer.state for layer in shape.layers), default=0)
    moments = (
        masks + n * (2 * embd + 3 * query + kv + scores),  # attention
        masks + n * (4 * embd + 3 * max(shape.dense, shape.expert)),  # feed-forward
        masks + n * (4 * embd + shape.expert + shape.n_used * embd),  # experts, before they are added up
        row * min(n_outputs, cells.n_ubatch) + n * 3 * embd,  # logits
        masks + n * (3 * embd + 3 * shape.wide) + 2 * _FLOAT * state * cells.n_seq if state else 0,
    )
    return max(moments) + row * n_outputs


def _number(header: gguf.Header, key: str) -> int:
    """A whole number of this architecture's metadata; the largest of a list; 0 if the file does not say."""
    n = min(header.n_layer, gguf.MAX_LAYERS) if isinstance(header.value(key), Array) else 1
    return max(0, 0, *header.each(key, n))


def _row_bytes(n_values: int, kind: str) -> int:
    if kind not in CACHE_TYPES:
        raise ConfigError(f"no cache can have the type {kind!r}; choose one of {', '.join(CACHE_TYPES)}")
    per_block, size_bytes = BLOCKS[kind]
    return -(-n_values // per_block) * size_bytes
