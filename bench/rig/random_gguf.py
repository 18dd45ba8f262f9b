"""Makes a GGUF with random weights: the shape of a real model, none of its knowledge. For speed, not for reading.

    uv run python -m bench.rig.random_gguf      # 24 layers x 896, 152k tokens, Q8_0: the shape of a 0.5B model
    uv run python -m bench.rig.random_gguf --words      # the same with Qwen2's vocabulary, for texts in words

Every number that costs time is as in a real model: layers, widths, heads, and the vocabulary whose logits are sampled.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal

import gguf
import numpy as np
from bench.rig.llama_tools import folder, source

from shepherd.engine.llamacpp.library import quantize

TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def random_model(
    *,
    n_layer: int = 24,
    n_embd: int = 896,
    n_ff: int = 4864,
    n_head: int = 14,
    n_head_kv: int = 2,
    n_vocab: int = 151_936,
    n_ctx: int = 32_768,
    file_type: Literal["F16", "Q8_0", "Q4_0"] = "Q8_0",
    words: bool = False,
) -> Path:
    """The path of such a model, made when it is missing. `words`: with the vocabulary of Qwen2, else made-up words."""
    name = f"random-{n_layer}x{n_embd}-v{n_vocab}{'-words' if words else ''}"
    target = folder() / f"{name}-{file_type.lower()}.gguf"
    if target.exists():
        return target
    folder().mkdir(parents=True, exist_ok=True)
    unquantised = folder() / f"{name}.gguf"
    _write(unquantised, n_layer, n_embd, n_ff, n_head, n_head_kv, n_vocab, n_ctx, words=words)
    if file_type == "F16":
        return unquantised
    quantize(unquantised, target, file_type)
    unquantised.unlink()
    return target


def _write(  # noqa: PLR0917 - the shape, in the order of `random_model`
    path: Path,
    n_layer: int,
    n_embd: int,
    n_ff: int,
    n_head: int,
    n_head_kv: int,
    n_vocab: int,
    n_ctx: int,
    *,
    words: bool,
) -> None:
    random = np.random.default_rng(0)
    head = n_embd // n_head

    def matrix(rows: int, columns: int) -> np.ndarray:
        return (random.standard_normal((rows, columns), dtype=np.float32) * 0.02).astype(np.float16)

    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name(path.stem)
    writer.add_block_count(n_layer)
    writer.add_context_length(n_ctx)
    writer.add_embedding_length(n_embd)
    writer.add_feed_forward_length(n_ff)
    writer.add_head_count(n_head)
    writer.add_head_count_kv(n_head_kv)
    writer.add_rope_dimension_count(head)
    writer.add_rope_freq_base(1_000_000.0)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_vocab_size(n_vocab)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    (_add_words if words else add_vocabulary)(writer, n_vocab)
    writer.add_chat_template(TEMPLATE)
    writer.add_tensor("token_embd.weight", matrix(n_vocab, n_embd))
    writer.add_tensor("output_norm.weight", np.ones(n_embd, dtype=np.float32))
    for layer in range(n_layer):
        prefix = f"blk.{layer}."
        writer.add_tensor(prefix + "attn_norm.weight", np.ones(n_embd, dtype=np.float32))
        writer.add_tensor(prefix + "ffn_norm.weight", np.ones(n_embd, dtype=np.float32))
        shapes = {
            "attn_q": (n_embd, n_embd),
            "attn_k": (n_head_kv * head, n_embd),
            "attn_v": (n_head_kv * head, n_embd),
            "attn_output": (n_embd, n_embd),
            "ffn_gate": (n_ff, n_embd),
            "ffn_up": (n_ff, n_embd),
            "ffn_down": (n_embd, n_ff),
        }
        for name, (rows, columns) in shapes.items():
            writer.add_tensor(f"{prefix}{name}.weight", matrix(rows, columns))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file(progress=True)
    writer.close()


def add_vocabulary(writer: gguf.GGUFWriter, n_vocab: int) -> None:
    """Byte-level BPE: the 256 bytes in GPT-2's spelling, two control tokens, and made-up words."""
    spelled = _byte_spelling()
    specials = ["<|im_start|>", "<|im_end|>"]
    tokens = [*spelled, *(f"w{n}" for n in range(n_vocab - len(spelled) - len(specials))), *specials]
    types = [gguf.TokenType.NORMAL] * (n_vocab - len(specials)) + [gguf.TokenType.CONTROL] * len(specials)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges([f"{spelled[ord('a')]} {spelled[ord('b')]}"])
    writer.add_eos_token_id(n_vocab - 1)
    writer.add_add_bos_token(False)


def _add_words(writer: gguf.GGUFWriter, n_vocab: int) -> None:
    """Qwen2's vocabulary, as llama.cpp's source has it, filled up to `n_vocab`."""
    fields = gguf.GGUFReader(source() / "models" / "ggml-vocab-qwen2.gguf").fields

    def read(key: str) -> list[str]:
        return list(fields[f"tokenizer.ggml.{key}"].contents())

    tokens, types = read("tokens"), list(fields["tokenizer.ggml.token_type"].contents())
    n_more = n_vocab - len(tokens)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list([*tokens, *(f"[PAD{n}]" for n in range(n_more))][:n_vocab])
    writer.add_token_types([*types, *[gguf.TokenType.UNUSED] * n_more][:n_vocab])
    writer.add_token_merges(read("merges"))
    writer.add_eos_token_id(tokens.index("<|im_end|>"))
    writer.add_add_bos_token(False)


def _byte_spelling() -> list[str]:
    """The 256 characters that byte-level BPE writes bytes as: printable bytes as they are, the rest from U+0100 on."""
    printable = {*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    moved = iter(range(0x100, 0x200))
    return [chr(byte) if byte in printable else chr(next(moved)) for byte in range(256)]


if __name__ == "__main__":
    print(random_model(words="--words" in sys.argv))
