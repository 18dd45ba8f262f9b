"""GGUFs of five architectures with random weights, of 0.1 to 1.3 GB: the shapes of real models, for `memory_fit.py` and
`plan_fit.py`.

Every number that takes memory is as in a real model: layers, widths, heads, experts, states, windows, the vocabulary.
The same few random rows fill every matrix.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import gguf
import numpy as np
from bench.rig.llama_tools import folder
from bench.rig.random_gguf import add_vocabulary
from tests.unit.engine.tiny_gguf import add_keys

Value = int | float | str | bool | list[int]
Shapes = dict[str, tuple[int, ...]]
"""Tensor name -> shape as NumPy has it: rows first."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The shape of one model."""

    architecture: str
    n_layer: int
    n_embd: int
    n_ff: int
    n_head: int
    n_head_kv: int
    head: int
    n_vocab: int
    keys: Mapping[str, Value] = field(default_factory=dict)
    n_expert: int = 0
    tied: bool = True
    """The output matrix is that of the tokens."""


SHAPES = {
    "llama": Shape("llama", 22, 1024, 2816, 16, 4, 64, 128_256),
    "smollm2": Shape("llama", 30, 576, 1536, 9, 3, 64, 49_152),
    "llama-1b": Shape("llama", 16, 2048, 8192, 32, 8, 64, 128_256),
    "qwen2": Shape("qwen2", 24, 896, 4864, 14, 2, 64, 151_936),
    "gemma3": Shape(
        "gemma3", 18, 640, 2048, 4, 1, 256, 262_144, {"attention.sliding_window": 512, "rope.freq_base_swa": 10_000.0}
    ),
    "qwen35": Shape(
        "qwen35", 16, 1024, 3584, 8, 2, 256, 151_936,
        {
            "ssm.conv_kernel": 4, "ssm.inner_size": 2048, "ssm.state_size": 128, "ssm.time_step_rank": 16,
            "ssm.group_count": 16, "full_attention_interval": 4, "rope.dimension_sections": [11, 11, 10, 0],
        },
    ),
    "qwen3moe": Shape(
        "qwen3moe", 12, 768, 3072, 12, 4, 64, 151_936, {"expert_used_count": 4, "expert_feed_forward_length": 512},
        n_expert=24,
    ),
}  # fmt: skip


def model(name: str, *, kind: str = "Q8_0") -> Path:
    """The path of the model of a shape, made when it is missing."""
    path = folder() / f"shape-{name}-{kind.lower()}.gguf"
    if not path.exists():
        folder().mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(".part")
        _write(SHAPES[name], draft, getattr(gguf.GGMLQuantizationType, kind))
        draft.rename(path)
    return path


def _tensors(shape: Shape) -> Iterator[tuple[str, tuple[int, ...]]]:
    embd = shape.n_embd
    yield "token_embd.weight", (shape.n_vocab, embd)
    yield "output_norm.weight", (embd,)
    if not shape.tied:
        yield "output.weight", (shape.n_vocab, embd)
    interval = shape.keys.get("full_attention_interval", 1)
    assert isinstance(interval, int)
    for layer in range(shape.n_layer):
        made = _attention(shape) if (layer + 1) % interval == 0 else _delta(shape)
        made |= _experts(shape) if shape.n_expert else _feed_forward(shape)
        yield from ((f"blk.{layer}.{name}", dims) for name, dims in made.items())


def _attention(shape: Shape) -> Shapes:
    embd, q, kv = shape.n_embd, shape.n_head * shape.head, shape.n_head_kv * shape.head
    made: Shapes = {
        "attn_norm.weight": (embd,),
        "attn_q.weight": (2 * q if shape.architecture == "qwen35" else q, embd),  # with its gate
        "attn_k.weight": (kv, embd),
        "attn_v.weight": (kv, embd),
        "attn_output.weight": (embd, q),
    }
    if shape.architecture == "qwen2":
        made |= {"attn_q.bias": (q,), "attn_k.bias": (kv,), "attn_v.bias": (kv,)}
    if shape.architecture in {"gemma3", "qwen35", "qwen3moe"}:
        made |= {"attn_q_norm.weight": (shape.head,), "attn_k_norm.weight": (shape.head,)}
    return made


def _delta(shape: Shape) -> Shapes:
    """A gated delta net, which keeps a state."""
    embd, keys = shape.n_embd, shape.keys
    state, heads, groups, inner = (
        int(str(keys[f"ssm.{name}"])) for name in ("state_size", "time_step_rank", "group_count", "inner_size")
    )
    channels = inner + 2 * state * groups
    return {
        "attn_norm.weight": (embd,),
        "attn_qkv.weight": (channels, embd),
        "attn_gate.weight": (inner, embd),
        "ssm_conv1d.weight": (channels, 4),
        "ssm_dt.bias": (heads,),
        "ssm_a": (heads,),
        "ssm_alpha.weight": (heads, embd),
        "ssm_beta.weight": (heads, embd),
        "ssm_norm.weight": (state,),
        "ssm_out.weight": (embd, inner),
    }


def _feed_forward(shape: Shape) -> Shapes:
    embd, ff = shape.n_embd, shape.n_ff
    made: Shapes = {"ffn_gate.weight": (ff, embd), "ffn_up.weight": (ff, embd), "ffn_down.weight": (embd, ff)}
    if shape.architecture != "qwen35":
        made["ffn_norm.weight"] = (embd,)
    if shape.architecture in {"gemma3", "qwen35"}:
        made["post_attention_norm.weight"] = (embd,)
    if shape.architecture == "gemma3":
        made["post_ffw_norm.weight"] = (embd,)
    return made


def _experts(shape: Shape) -> Shapes:
    embd, n, ff = shape.n_embd, shape.n_expert, int(str(shape.keys["expert_feed_forward_length"]))
    return {
        "ffn_norm.weight": (embd,),
        "ffn_gate_inp.weight": (n, embd),
        "ffn_gate_exps.weight": (n, ff, embd),
        "ffn_up_exps.weight": (n, ff, embd),
        "ffn_down_exps.weight": (n, embd, ff),
    }


def _write(shape: Shape, path: Path, kind: gguf.GGMLQuantizationType) -> None:
    writer = gguf.GGUFWriter(path, name := shape.architecture)
    usual: dict[str, Value] = {
        "vocab_size": shape.n_vocab,
        "block_count": shape.n_layer,
        "context_length": 131_072,
        "embedding_length": shape.n_embd,
        "feed_forward_length": shape.n_ff,
        "attention.head_count": shape.n_head,
        "attention.head_count_kv": shape.n_head_kv,
        "attention.key_length": shape.head,
        "attention.value_length": shape.head,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "rope.dimension_count": shape.head,
        "rope.freq_base": 1_000_000.0,
        **({"expert_count": shape.n_expert} if shape.n_expert else {}),
    }
    add_keys(writer, name, usual | dict(shape.keys))
    add_vocabulary(writer, shape.n_vocab)
    tensors = dict(_tensors(shape))
    for tensor, dims in tensors.items():
        writer.add_tensor_info(tensor, *_info(dims, kind))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    assert writer.fout is not None
    with writer.fout[0] as file:
        writer.write_padding(file, file.tell())
        for dims in tensors.values():
            for piece in _data(dims, kind):
                file.write(piece)
            writer.write_padding(file, file.tell())


def _is_plain(dims: tuple[int, ...], kind: gguf.GGMLQuantizationType) -> bool:
    block, _ = gguf.GGML_QUANT_SIZES[kind]
    return len(dims) == 1 or dims[-1] % block != 0


def _info(
    dims: tuple[int, ...], kind: gguf.GGMLQuantizationType
) -> tuple[tuple[int, ...], np.dtype[np.float32], int, gguf.GGMLQuantizationType]:
    stored = gguf.GGMLQuantizationType.F32 if _is_plain(dims, kind) else kind
    block, size = gguf.GGML_QUANT_SIZES[stored]
    n_bytes = int(np.prod(dims)) // block * size
    return dims, np.dtype(np.float32), n_bytes, stored


def _data(dims: tuple[int, ...], kind: gguf.GGMLQuantizationType) -> Iterator[bytes]:
    rows = np.random.default_rng(0).standard_normal((min(int(np.prod(dims[:-1])), 64), dims[-1]), dtype=np.float32)
    if len(dims) == 1:
        yield np.ones(dims, np.float32).tobytes()
        return
    rows *= 0.02
    stored = rows if _is_plain(dims, kind) else gguf.quants.quantize(rows, kind)
    tile, left = stored.tobytes(), int(np.prod(dims[:-1]))
    while left:
        n = min(left, len(rows))
        yield tile[: len(tile) // len(rows) * n]
        left -= n
