"""stories260K, the trained model of one megabyte that most of llama.cpp's tests of its server name, as GGUF.

The tests compare its words and count its tokens, so random weights would not do. Its checkpoint (`stories260K.bin`)
and vocabulary (`tok512.bin`) are published with llama2.c, and copies stand in many repositories; both are read from the
cache folder. Not here: a download.
"""

from __future__ import annotations

import struct
from pathlib import Path

import gguf
import numpy as np

FILES = ("stories260K.bin", "tok512.bin")
_CONTROL = {1: "<s>", 2: "</s>"}
_N_TENSORS = 48


def has_stories(folder: Path) -> bool:
    return all((folder / name).exists() for name in FILES)


def write_stories_model(folder: Path, target: Path, *, fim: bool = False, n_ctx: int = 2048, parts: int = 1) -> None:
    """The model as GGUF. `fim`: three of its bytes stand around a gap. `parts`: files that it is split into."""
    checkpoint, vocabulary = (folder / name for name in FILES)
    writer = gguf.GGUFWriter(target, "llama", split_max_tensors=0 if parts == 1 else -(-_N_TENSORS // parts))
    writer.add_name("stories260K")
    shapes = _read_sizes(checkpoint)
    n_embd, n_ff, n_layer, n_head, n_head_kv, n_vocab, _ = shapes
    writer.add_block_count(n_layer)
    writer.add_context_length(n_ctx)
    writer.add_embedding_length(n_embd)
    writer.add_feed_forward_length(n_ff)
    writer.add_head_count(n_head)
    writer.add_head_count_kv(n_head_kv)
    writer.add_rope_dimension_count(n_embd // n_head)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(n_vocab)
    _add_vocabulary(vocabulary, writer)
    if fim:
        for token, part in enumerate(("pre", "suf", "mid"), 3):
            writer.add_uint32(f"tokenizer.ggml.fim_{part}_token_id", token)
    for name, tensor in _tensors(checkpoint, shapes).items():
        writer.add_tensor(f"{name}.weight", tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _read_sizes(checkpoint: Path) -> tuple[int, ...]:
    """Width, feed-forward width, layers, heads, heads of keys, tokens, positions."""
    return struct.unpack("<7i", checkpoint.read_bytes()[:28])


def _tensors(checkpoint: Path, sizes: tuple[int, ...]) -> dict[str, np.ndarray]:
    """Weights in the order of the file: one kind of tensor for all layers, then the next kind."""
    n_embd, n_ff, n_layer, n_head, n_head_kv, n_vocab, _ = sizes
    n_kv = n_embd // n_head * n_head_kv
    values = np.frombuffer(checkpoint.read_bytes(), dtype=np.float32, offset=28)
    found: dict[str, np.ndarray] = {}
    at = 0

    def take(name: str, *shape: int) -> None:
        nonlocal at
        n = int(np.prod(shape))
        found[name] = values[at : at + n].reshape(shape)
        at += n

    take("token_embd", n_vocab, n_embd)
    per_layer: dict[str, tuple[int, ...]] = {
        "attn_norm": (n_embd,),
        "attn_q": (n_embd, n_embd),
        "attn_k": (n_kv, n_embd),
        "attn_v": (n_kv, n_embd),
        "attn_output": (n_embd, n_embd),
        "ffn_norm": (n_embd,),
        "ffn_gate": (n_ff, n_embd),
        "ffn_down": (n_embd, n_ff),
        "ffn_up": (n_ff, n_embd),
    }
    for name, shape in per_layer.items():
        for layer in range(n_layer):
            take(f"blk.{layer}.{name}", *shape)
    take("output_norm", n_embd)
    found["output"] = found["token_embd"]
    return found


def _add_vocabulary(vocabulary: Path, writer: gguf.GGUFWriter) -> None:
    """SentencePiece's tokens: a score, a length and the text of each, after the length of the longest."""
    body = vocabulary.read_bytes()
    tokens: list[str] = []
    scores: list[float] = []
    kinds: list[int] = []
    at = 4
    while at < len(body):
        score, length = struct.unpack_from("<fi", body, at)
        text = body[at + 8 : at + 8 + length].decode()
        at += 8 + length
        id = len(tokens)
        is_byte = 3 <= id < 259
        kinds.append(gguf.TokenType.BYTE if is_byte else gguf.TokenType.NORMAL)
        if id in _CONTROL:
            kinds[-1] = gguf.TokenType.CONTROL
        elif id == 0:
            kinds[-1] = gguf.TokenType.UNKNOWN
        tokens.append(_CONTROL.get(id, text.replace(" ", "▁")))
        scores.append(score)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores(scores)
    writer.add_token_types(kinds)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
