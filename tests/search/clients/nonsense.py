"""Makes a model that says nonsense and can listen for long: the embedded model's vocabulary and chat template, one
layer of random weights, and room for what coding agents send first."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np

N_CTX = 131_072
N_EMBD, N_FF, HEAD = 64, 96, 32


def write(source: Path, target: Path) -> None:
    """Write the model to `target`; vocabulary and template are those of `source`."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, "llama")
    writer.add_name("nonsense")
    writer.add_context_length(N_CTX)
    writer.add_block_count(1)
    writer.add_embedding_length(N_EMBD)
    writer.add_feed_forward_length(N_FF)
    writer.add_head_count(N_EMBD // HEAD)
    writer.add_head_count_kv(1)
    writer.add_rope_dimension_count(HEAD)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    for name, field in reader.fields.items():
        if name.startswith("tokenizer."):
            kind, *inner = field.types
            writer.add_key_value(name, field.contents(), kind, inner[0] if inner else None)
    n_vocab = len(reader.fields["tokenizer.ggml.tokens"].data)
    shapes = {
        "token_embd": (n_vocab, N_EMBD),
        "blk.0.attn_q": (N_EMBD, N_EMBD),
        "blk.0.attn_k": (HEAD, N_EMBD),
        "blk.0.attn_v": (HEAD, N_EMBD),
        "blk.0.attn_output": (N_EMBD, N_EMBD),
        "blk.0.ffn_gate": (N_FF, N_EMBD),
        "blk.0.ffn_up": (N_FF, N_EMBD),
        "blk.0.ffn_down": (N_EMBD, N_FF),
    }
    random = np.random.default_rng(0)
    for name, shape in shapes.items():
        writer.add_tensor(f"{name}.weight", random.standard_normal(shape, dtype=np.float32))
    for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
        writer.add_tensor(f"{name}.weight", np.ones(N_EMBD, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
