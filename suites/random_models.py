"""Small models with random weights and real vocabularies: those that llama.cpp ships for the tests of its tokenisers.

They speak nonsense, but count, stop, cache and obey grammars as any model. Not here: models for speed (`bench`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np

N_EMBD, N_FF, N_HEAD, N_LAYER = 64, 128, 4, 2


def write_chat_model(vocabulary: Path, target: Path, *, fim: bool = False, n_ctx: int = 4096) -> None:
    """A llama of two layers, without a template. `fim`: three of its tokens stand around a gap."""
    writer = gguf.GGUFWriter(target, "llama")
    n_vocab = _copy_vocabulary(vocabulary, writer)
    writer.add_block_count(N_LAYER)
    writer.add_context_length(n_ctx)
    writer.add_embedding_length(N_EMBD)
    writer.add_feed_forward_length(N_FF)
    writer.add_head_count(N_HEAD)
    writer.add_head_count_kv(N_HEAD)
    writer.add_rope_dimension_count(N_EMBD // N_HEAD)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(n_vocab)
    if fim:
        for token, part in enumerate(("pre", "suf", "mid"), 3):
            writer.add_uint32(f"tokenizer.ggml.fim_{part}_token_id", token)
    shapes = {"token_embd": (n_vocab, N_EMBD), "output": (n_vocab, N_EMBD), "output_norm": (N_EMBD,)}
    for layer in range(N_LAYER):
        own = {
            "attn_norm": (N_EMBD,),
            "ffn_norm": (N_EMBD,),
            **dict.fromkeys(("attn_q", "attn_k", "attn_v", "attn_output"), (N_EMBD, N_EMBD)),
            "ffn_gate": (N_FF, N_EMBD),
            "ffn_up": (N_FF, N_EMBD),
            "ffn_down": (N_EMBD, N_FF),
        }
        shapes |= {f"blk.{layer}.{name}": shape for name, shape in own.items()}
    _write(writer, {f"{name}.weight": shape for name, shape in shapes.items()})


def write_embedding_model(vocabulary: Path, target: Path, *, ranks: bool = False) -> None:
    """A BERT of two layers. `ranks`: it scores pairs of texts."""
    writer = gguf.GGUFWriter(target, "bert")
    n_vocab = _copy_vocabulary(vocabulary, writer)
    writer.add_block_count(N_LAYER)
    writer.add_context_length(512)
    writer.add_embedding_length(N_EMBD)
    writer.add_feed_forward_length(N_FF)
    writer.add_head_count(N_HEAD)
    writer.add_layer_norm_eps(1e-12)
    writer.add_causal_attention(False)
    writer.add_vocab_size(n_vocab)
    writer.add_pooling_type(gguf.PoolingType.RANK if ranks else gguf.PoolingType.CLS)
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (n_vocab, N_EMBD),
        "position_embd.weight": (512, N_EMBD),
        "token_types.weight": (2, N_EMBD),
        "token_embd_norm.weight": (N_EMBD,),
        "token_embd_norm.bias": (N_EMBD,),
    }
    for layer in range(N_LAYER):
        inner = {"attn_q": N_EMBD, "attn_k": N_EMBD, "attn_v": N_EMBD, "attn_output": N_EMBD, "ffn_up": N_FF}
        for name, n_out in inner.items():
            shapes |= {f"blk.{layer}.{name}.weight": (n_out, N_EMBD), f"blk.{layer}.{name}.bias": (n_out,)}
        shapes |= {f"blk.{layer}.ffn_down.weight": (N_EMBD, N_FF), f"blk.{layer}.ffn_down.bias": (N_EMBD,)}
        for norm in ("attn_output_norm", "layer_output_norm"):
            shapes |= {f"blk.{layer}.{norm}.weight": (N_EMBD,), f"blk.{layer}.{norm}.bias": (N_EMBD,)}
    if ranks:
        shapes |= {"cls.weight": (N_EMBD, N_EMBD), "cls.bias": (N_EMBD,)}
        shapes |= {"cls.output.weight": (1, N_EMBD), "cls.output.bias": (1,)}
    _write(writer, shapes)


def _copy_vocabulary(vocabulary: Path, writer: gguf.GGUFWriter) -> int:
    """The number of its tokens."""
    reader = gguf.GGUFReader(vocabulary)
    for field in reader.fields.values():
        if field.name.startswith("tokenizer.") and field.name != "tokenizer.chat_template":
            kind, inner = field.types[0], field.types[-1]
            is_array = kind == gguf.GGUFValueType.ARRAY
            writer.add_key_value(field.name, field.contents(), kind, sub_type=inner if is_array else None)
    return len(reader.fields["tokenizer.ggml.tokens"].data)


def _write(writer: gguf.GGUFWriter, shapes: dict[str, tuple[int, ...]]) -> None:
    random = np.random.default_rng(1)
    for name, shape in shapes.items():
        drawn: Any = random.standard_normal(shape).astype(np.float32)
        if name.endswith("norm.weight"):
            drawn = np.ones(shape, dtype=np.float32)
        elif len(shape) == 2 and not name.startswith(("position", "token_types")):
            drawn = (drawn / np.sqrt(shape[1]) * 4).astype(np.float16)
        writer.add_tensor(name, drawn)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
