"""Checks a model's header for what the library only asserts: a failed assertion in the library aborts the process.

Only faults that end the process, or use memory or time without a limit, are checked here; the library reports all
others as errors. Faults that these rules do not know are found in a child process (`engine/llamacpp/trial.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from shepherd.core import ConfigError
from shepherd.models.gguf import MAX_LAYERS, Header
from shepherd.models.gguf_file import Array

MAX_EXPERTS = 1024
"""The library's own limit."""
SCALINGS = ("none", "linear", "yarn", "longrope")
WHOLE_HEADS = frozenset((
    "arcee", "dream", "exaone", "exaone4", "internlm2", "llama", "llama4", "mistral3", "olmo", "olmo2", "olmoe",
    "qwen2", "qwen2moe", "qwen2vl", "qwen3", "qwen3moe", "qwen3vl", "qwen3vlmoe", "smollm3", "starcoder2",
))  # fmt: skip
"""Architectures whose graph asserts that the heads of queries, keys and values have one size and are rotated whole."""
_LAYER = re.compile(r"(?:^|\.)blk\.(\d+)\.")
_COMPUTED = re.compile(
    r"(?:norm|attn_\w+|ffn_(?:gate|up|down)(?:_exps|_shexp)?|output|token_embd|ssm_\w+)(?:\.(?:weight|bias))?$"
)
"""Tensors that are multiplied or added; others hold indices."""
_INTEGERS = ("i8", "i16", "i32", "i64", "f64")
"""Number formats that no computation uses."""
_FLOATS = re.compile(r"ssm_(?:a|conv1d\.weight)$")
"""Tensors that are read as floats of 32 bits, whatever their format."""
_EPSILONS = ("layer_norm_epsilon", "layer_norm_rms_epsilon", "group_norm_epsilon")
_BYTE_TOKEN = 6
"""The type of a token that stands for one byte."""
_UTF8_BYTES = (*range(0xC0), *range(0xC2, 0xF5))
"""The bytes that occur in UTF-8."""


def check(header: Header) -> None:
    """Raises: `ConfigError`, one sentence, for a model that would abort the library."""
    for rule in RULES:
        for fault in rule(header):
            raise ConfigError(f"{fault}; it is damaged: download it again", file=str(header.path))


def _layers(header: Header) -> Iterator[str]:
    n_layer = header.value("block_count")
    if not isinstance(n_layer, int):
        return
    if not 1 <= n_layer <= MAX_LAYERS:
        yield f"declares {n_layer} layers (block_count), but only 1 to {MAX_LAYERS} are possible"
    found = {int(match[1]) for name in header.tensors if (match := _LAYER.search(name))}
    if found and n_layer > max(found) + 1:
        yield f"declares {n_layer} layers (block_count), but there are tensors for {max(found) + 1}"
    extra = header.value("nextn_predict_layers")
    if isinstance(extra, int) and extra > n_layer:
        yield f"declares that {extra} of its {n_layer} layers predict further tokens (nextn_predict_layers)"


def _heads(header: Header) -> Iterator[str]:
    heads = header.each("attention.head_count", min(header.n_layer, MAX_LAYERS))
    if not any(heads):
        return
    key_length, value_length = (
        length if isinstance(length, int) else header.n_embd // max(heads)
        for length in (header.value("attention.key_length"), header.value("attention.value_length"))
    )
    rotated = header.value("rope.dimension_count")
    is_whole = header.architecture in WHOLE_HEADS
    is_latent = header.value("attention.kv_lora_rank") is not None  # such models may rotate nothing
    least = key_length if is_whole else 0 if is_latent else 2
    if isinstance(rotated, int) and (rotated % 2 or not least <= rotated <= key_length):
        yield f"declares that {rotated} of the {key_length} numbers of a head are rotated (rope.dimension_count)"
    sections = header.each("rope.dimension_sections", 4)
    if sum(sections) > key_length or min(sections, default=0) < 0:
        yield f"declares that {sections} of the {key_length} numbers of a head are rotated (rope.dimension_sections)"
    if is_whole and key_length != value_length:
        yield f"declares keys of {key_length} numbers and values of {value_length}, unlike any {header.architecture}"
    for layer, n_heads in enumerate(heads):
        query = header.tensors.get(f"blk.{layer}.attn_q.weight")
        if query is None or len(query.dims) < 2 or not n_heads:
            continue
        rows = query.dims[1]
        if rows % n_heads or (is_whole and rows != n_heads * key_length):
            yield f"declares {n_heads} heads in layer {layer} (attention.head_count), but its tensor has {rows} rows"


def _types(header: Header) -> Iterator[str]:
    for name, tensor in header.tensors.items():
        if tensor.kind in _INTEGERS and _COMPUTED.search(name):
            yield f"has numbers of the type {tensor.kind} in the tensor {name!r}, with which nothing can be computed"
        elif tensor.kind != "f32" and _FLOATS.search(name):
            yield f"has numbers of the type {tensor.kind} in the tensor {name!r}, which must be f32"


def _experts(header: Header) -> Iterator[str]:
    n_experts, n_groups, n_chosen = (
        _count(header, key) for key in ("expert_count", "expert_group_count", "expert_group_used_count")
    )
    used = header.value("expert_used_count")
    n_used = max(used.first(MAX_LAYERS), default=0) if isinstance(used, Array) else _count(header, "expert_used_count")
    if n_experts > MAX_EXPERTS:
        yield f"declares {n_experts} experts (expert_count), but at most {MAX_EXPERTS} are possible"
    if not (0 < n_used <= n_experts if n_experts else n_used == 0):
        yield f"declares that {n_used} of its {n_experts} experts are used (expert_used_count)"
    if n_groups and not n_groups < n_experts:
        yield f"declares that its {n_experts} experts are in {n_groups} groups (expert_group_count)"
    if n_groups > 1 and (n_experts % n_groups or not 0 < n_chosen < n_groups):
        yield f"declares {n_chosen} of {n_groups} groups of its {n_experts} experts as used (expert_group_used_count)"


def _numbers(header: Header) -> Iterator[str]:
    scaling = header.value("rope.scaling.type")
    if isinstance(scaling, str) and scaling not in SCALINGS:
        yield f"has the unknown rope.scaling.type {scaling[:80]!r}"
    for name in _EPSILONS:
        epsilon = header.value(f"attention.{name}")
        if isinstance(epsilon, float) and not epsilon >= 0:  # as the library asks, so that NaN is caught
            yield f"has the number {epsilon} for attention.{name}, which must not be negative"
    inner = header.value("ssm.inner_size")
    for name, tensor in header.tensors.items() if isinstance(inner, int) else ():
        if name.endswith(".ssm_out.weight") and tensor.dims[0] != inner:
            yield f"declares {inner} numbers in a state (ssm.inner_size), but {name!r} takes {tensor.dims[0]}"
    window = _count(header, "attention.sliding_window")
    if window >= 1 << 30:
        yield f"declares that a layer sees {window} tokens (attention.sliding_window)"


def _vocabulary(header: Header) -> Iterator[str]:
    kind, tokens = header.tokenizer, _strings(header, "tokens")
    if kind in ("no_vocab", "none"):
        tensor = header.tensors.get("token_embd.weight")
        if tensor and len(tensor.dims) > 1 and header.n_vocab > tensor.dims[1]:
            yield f"declares {header.n_vocab} tokens (vocab_size), but there are tensors for {tensor.dims[1]}"
        return
    if tokens is None:
        return
    for name in ("scores", "token_type"):
        others = header.metadata.get(f"tokenizer.ggml.{name}")
        if isinstance(others, Array) and others.length < tokens.length:
            yield f"has {tokens.length} tokens, but {others.length} values in tokenizer.ggml.{name}"
    # The library reads a string up to its first zero byte, and names empty ones as below.
    texts = [text.partition(b"\0")[0] for text in tokens.texts()]
    texts = [text or b"[EMPTY_%d]" % index for index, text in enumerate(texts)]
    known = set(texts)
    if len(known) < len(texts):
        places: dict[bytes, int] = {}
        second = next(index for index, text in enumerate(texts) if places.setdefault(text, index) != index)
        text = texts[second]
        twice = f"{text[:80].decode('utf-8', 'replace')!r} twice, as number {places[text]} and {second}"
        yield f"has the token {twice}"
    if kind == "llama":
        missing = [byte for byte in _UTF8_BYTES if b"<0x%02X>" % byte not in known and bytes([byte]) not in known]
        if missing:
            yield f"has no token for the byte 0x{missing[0]:02X}, which any text may contain"
    types = header.metadata.get("tokenizer.ggml.token_type")
    if kind == "bert" and isinstance(types, Array) and _BYTE_TOKEN in types.values():
        yield "has tokens for single bytes, which no vocabulary of its kind (bert) has"


RULES: tuple[Callable[[Header], Iterator[str]], ...] = (_layers, _heads, _types, _experts, _numbers, _vocabulary)


def _count(header: Header, key: str) -> int:
    value = header.value(key)
    return value if isinstance(value, int) else 0


def _strings(header: Header, name: str) -> Array | None:
    value = header.metadata.get(f"tokenizer.ggml.{name}")
    return value if isinstance(value, Array) and value.kind == "string" else None
