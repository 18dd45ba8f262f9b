"""Makes a GGUF with random weights: the shape of a real model, none of its knowledge. For speed, not for reading.

    uv run python -m bench.rig.random_gguf      # 24 layers x 896, 152k tokens, Q8_0: the shape of a 0.5B model
    uv run python -m bench.rig.random_gguf --words      # the same with Qwen2's vocabulary, for texts in words

Every number that costs time is as in a real model: layers, widths, heads, and the vocabulary whose logits are sampled.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
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


FileType = Literal["F16", "Q8_0", "Q4_0"]
_BLOCK_BYTES = {"F16": (1, 2), "Q8_0": (32, 34), "Q4_0": (32, 18)}
"""Values in a block, and its bytes."""
_SPREAD = 0.02
"""The standard deviation of all weights."""
RIBBON_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class Shape:
    """Of a llama."""

    n_layer: int
    n_embd: int
    n_ff: int
    n_head: int
    n_head_kv: int
    n_vocab: int
    n_ctx: int = 32_768
    tied: bool = True
    """The output matrix is that of the tokens."""

    @property
    def head(self) -> int:
        return self.n_embd // self.n_head

    def vectors(self) -> Iterator[str]:
        """Names of those with `n_embd` values."""
        yield "output_norm.weight"
        for layer in range(self.n_layer):
            yield f"blk.{layer}.attn_norm.weight"
            yield f"blk.{layer}.ffn_norm.weight"

    def matrices(self) -> Iterator[tuple[str, int, int]]:
        """Name, rows and columns."""
        yield "token_embd.weight", self.n_vocab, self.n_embd
        if not self.tied:
            yield "output.weight", self.n_vocab, self.n_embd
        parts = {
            "attn_q": (self.n_embd, self.n_embd),
            "attn_k": (self.n_head_kv * self.head, self.n_embd),
            "attn_v": (self.n_head_kv * self.head, self.n_embd),
            "attn_output": (self.n_embd, self.n_embd),
            "ffn_gate": (self.n_ff, self.n_embd),
            "ffn_up": (self.n_ff, self.n_embd),
            "ffn_down": (self.n_embd, self.n_ff),
        }
        for layer in range(self.n_layer):
            for name, (rows, columns) in parts.items():
                yield f"blk.{layer}.{name}.weight", rows, columns

    def size_bytes(self, file_type: FileType) -> int:
        """Of the matrices, which is nearly all of a file."""
        return sum(_bytes(rows * columns, file_type) for _, rows, columns in self.matrices())

    def cache_bytes(self, n_cells: int) -> int:
        """Of keys and values in f16."""
        return 4 * n_cells * self.n_layer * self.n_head_kv * self.head


def random_model(*, words: bool = False) -> Path:
    """The path of such a model, made when it is missing. `words`: with the vocabulary of Qwen2, else made-up words."""
    shape = Shape(n_layer=24, n_embd=896, n_ff=4864, n_head=14, n_head_kv=2, n_vocab=151_936)
    name = f"random-{shape.n_layer}x{shape.n_embd}-v{shape.n_vocab}{'-words' if words else ''}"
    target = folder() / f"{name}-q8_0.gguf"
    if target.exists():
        return target
    folder().mkdir(parents=True, exist_ok=True)
    unquantised = folder() / f"{name}.gguf"
    _write(unquantised, shape, words=words)
    quantize(unquantised, target, "Q8_0")
    unquantised.unlink()
    return target


def tiled_model(target: Path, shape: Shape, file_type: FileType, ribbon_bytes: int = RIBBON_BYTES) -> Path:
    """A model of any size as fast as it can be written: blocks of the file's own format, repeated. Made when missing.

    ribbon_bytes: of random blocks, about. Their number is prime, so that each row of a matrix begins at another one.
    """
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    new = target.with_suffix(".new")
    writer = _writer(new, shape)
    kind, floats = gguf.GGMLQuantizationType[file_type], gguf.GGMLQuantizationType.F32
    for name in shape.vectors():
        writer.add_tensor_info(name, [shape.n_embd], np.dtype(np.float32), 4 * shape.n_embd, floats)
    for name, rows, columns in shape.matrices():
        size = _bytes(rows * columns, file_type)
        writer.add_tensor_info(name, [rows, columns], np.dtype(np.float16), size, kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    assert writer.fout is not None
    file = writer.fout[0]
    writer.write_padding(file, file.tell())
    ones = np.ones(shape.n_embd, np.float32).tobytes()
    for _ in shape.vectors():
        file.write(ones)
        writer.write_padding(file, len(ones))
    ribbon, at = memoryview(_ribbon(file_type, ribbon_bytes)), 0
    for _, rows, columns in shape.matrices():
        left = size = _bytes(rows * columns, file_type)
        while left:
            written = file.write(ribbon[at : at + left])
            left, at = left - written, (at + written) % len(ribbon)
        writer.write_padding(file, size)
    writer.close()
    new.replace(target)
    return target


def _bytes(n_values: int, file_type: FileType) -> int:
    values, size = _BLOCK_BYTES[file_type]
    return n_values // values * size


def _ribbon(file_type: FileType, most_bytes: int) -> bytes:
    """A prime number of blocks whose values have the usual spread."""
    random, (values, size) = np.random.default_rng(0), _BLOCK_BYTES[file_type]
    n = _prime_below(most_bytes // size)
    if file_type == "F16":
        return (random.standard_normal(n, dtype=np.float32) * _SPREAD).astype(np.float16).tobytes()
    blocks = random.integers(0, 256, (n, size), np.uint8)
    # Whole numbers, each as likely: their deviation is how many there are by the square root of 12.
    steps = 1 << (8 * (size - 2) // values)
    blocks[:, :2] = np.frombuffer(np.float16(_SPREAD * 12**0.5 / steps).tobytes(), np.uint8)
    return blocks.tobytes()


def _prime_below(n: int) -> int:
    return next(k for k in range(n, 1, -1) if all(k % d for d in range(2, math.isqrt(k) + 1)))


def _writer(path: Path, shape: Shape, *, words: bool = False) -> gguf.GGUFWriter:
    """With all that stands before the tensors."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name(path.stem)
    writer.add_block_count(shape.n_layer)
    writer.add_context_length(shape.n_ctx)
    writer.add_embedding_length(shape.n_embd)
    writer.add_feed_forward_length(shape.n_ff)
    writer.add_head_count(shape.n_head)
    writer.add_head_count_kv(shape.n_head_kv)
    writer.add_rope_dimension_count(shape.head)
    writer.add_rope_freq_base(1_000_000.0)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_vocab_size(shape.n_vocab)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    (_add_words if words else add_vocabulary)(writer, shape.n_vocab)
    writer.add_chat_template(TEMPLATE)
    return writer


def _write(path: Path, shape: Shape, *, words: bool) -> None:
    random = np.random.default_rng(0)
    writer = _writer(path, shape, words=words)
    for name in shape.vectors():
        writer.add_tensor(name, np.ones(shape.n_embd, dtype=np.float32))
    for name, rows, columns in shape.matrices():
        matrix = (random.standard_normal((rows, columns), dtype=np.float32) * _SPREAD).astype(np.float16)
        writer.add_tensor(name, matrix)
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
