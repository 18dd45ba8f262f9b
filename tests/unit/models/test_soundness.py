"""What the library asserts, asked of the header: each fault gets one sentence, and what is sound passes."""

import math
import struct
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFWriter
from tests.unit.engine.tiny_gguf import RECIPES
from tests.unit.engine.tiny_gguf import write as write_tiny

from shepherd.core import ConfigError
from shepherd.models import catalog, gguf, soundness

LAMB = catalog.embedded()
OTHERS = sorted(Path("/work/shared/models").rglob("*.gguf"))


def write(path: Path, *, arch: str = "qwen2", tokenizer: str = "gpt2", tokens: Any = (), **keys: Any) -> Path:
    """A model of two layers with the tensors that are asked about; `__` stands for a dot."""
    writer = GGUFWriter(path, arch)
    writer.add_tokenizer_model(tokenizer)
    if tokens:
        writer.add_token_list(tokens)
    usual = {"block_count": 2, "embedding_length": 32, "attention__head_count": 2, "vocab_size": 4}
    for key, value in (usual | keys).items():
        name = f"{arch}.{key.replace('__', '.')}" if not key.startswith("tokenizer") else key.replace("__", ".")
        match value:
            case str():
                writer.add_string(name, value)
            case int():
                writer.add_uint32(name, value)
            case float():
                writer.add_float32(name, value)
            case list():
                writer.add_array(name, value)
    writer.add_tensor("token_embd.weight", np.zeros((4, 32), np.float32))
    for layer in range(2):
        writer.add_tensor(f"blk.{layer}.attn_q.weight", np.zeros((32, 32), np.float32))
        writer.add_tensor(f"blk.{layer}.ssm_out.weight", np.zeros((8, 32), np.float32))
    writer.add_tensor("output_norm.weight", np.zeros(32, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def check(path: Path) -> None:
    soundness.check(gguf.read_header(path))


SOUND: list[dict[str, Any]] = [
    {},
    {"rope__dimension_count": 16, "attention__key_length": 16, "attention__value_length": 16},
    {"arch": "lfm2", "rope__dimension_count": 8},
    {"arch": "deepseek2", "rope__dimension_count": 0, "attention__kv_lora_rank": 8},
    {"expert_count": 8, "expert_used_count": 2, "expert_group_count": 4, "expert_group_used_count": 2},
    {"rope__scaling__type": "yarn", "attention__layer_norm_rms_epsilon": 1e-6},
    {"tokens": ["a", "b", ""], "tokenizer__ggml__token_type": [1, 1, 1], "tokenizer__ggml__scores": [0.0, 0.0, 0.0]},
    {"attention__head_count": [2, 2], "attention__sliding_window": 4096},
    {"arch": "qwen35", "ssm__inner_size": 32},
]
FAULTS: list[tuple[str, dict[str, Any]]] = [
    ("0 layers", {"block_count": 0}),
    ("1000000 layers .* 1 to 512", {"block_count": 10**6}),
    ("3 layers .* tensors for 2", {"block_count": 3}),
    ("5 of its 2 layers predict", {"nextn_predict_layers": 5}),
    ("15 of the 16 numbers of a head are rotated", {"rope__dimension_count": 15, "arch": "lfm2"}),
    ("32 of the 16 numbers of a head are rotated", {"rope__dimension_count": 32, "arch": "lfm2"}),
    ("0 of the 16 numbers of a head are rotated", {"rope__dimension_count": 0, "arch": "lfm2"}),
    ("8 of the 16 numbers of a head are rotated", {"rope__dimension_count": 8}),
    (r"\(16, 16, 16, 0\) of the 16", {"rope__dimension_sections": [16, 16, 16, 0]}),
    ("keys of 16 numbers and values of 8", {"attention__value_length": 8}),
    ("3 heads in layer 0 .* 32 rows", {"attention__head_count": 3, "arch": "lfm2"}),
    ("1 heads in layer 1", {"attention__head_count": [2, 1]}),
    ("64 numbers in a state .* takes 32", {"arch": "qwen35", "ssm__inner_size": 64}),
    ("2000 experts", {"expert_count": 2000, "expert_used_count": 2}),
    ("9 of its 8 experts", {"expert_count": 8, "expert_used_count": 9}),
    ("0 of its 8 experts", {"expert_count": 8}),
    ("2 of its 0 experts", {"expert_used_count": 2}),
    ("8 experts are in 8 groups", {"expert_count": 8, "expert_used_count": 2, "expert_group_count": 8}),
    ("0 of 4 groups", {"expert_count": 8, "expert_used_count": 2, "expert_group_count": 4}),
    ("unknown rope.scaling.type 'Yarn'", {"rope__scaling__type": "Yarn"}),
    ("number nan for attention.layer_norm_rms_epsilon", {"attention__layer_norm_rms_epsilon": math.nan}),
    ("number -1.0 for attention.layer_norm_epsilon", {"attention__layer_norm_epsilon": -1.0}),
    ("sees 4294967295 tokens", {"attention__sliding_window": 2**32 - 1}),
    ("sees 2147483647 tokens", {"attention__sliding_window": 2**31 - 1}),
    ("2147483648 tokens .* tensors for 4", {"tokenizer": "no_vocab", "vocab_size": 2**31}),
    ("token 'b' twice, as number 1 and 3", {"tokens": ["a", "b", "c", "b"]}),
    ("token 'b' twice", {"tokens": ["a", "b", "b\0c"]}),
    (r"token '\[EMPTY_1\]' twice", {"tokens": ["[EMPTY_1]", ""]}),
    ("2 tokens, but 1 values in tokenizer.ggml.scores", {"tokens": ["a", "b"], "tokenizer__ggml__scores": [0.0]}),
    ("2 tokens, but 1 values in tokenizer.ggml.token_type", {"tokens": ["a", "b"], "tokenizer__ggml__token_type": [1]}),
    ("no token for the byte 0x00", {"tokenizer": "llama", "tokens": ["a"]}),
    ("tokens for single bytes", {"tokenizer": "bert", "tokens": ["a"], "tokenizer__ggml__token_type": [6]}),
]  # fmt: skip


@pytest.mark.parametrize("keys", SOUND, ids=[", ".join(keys) for keys in SOUND])
def test_what_is_possible_passes(keys: dict[str, Any], tmp_path: Path) -> None:
    check(write(tmp_path / "m.gguf", **keys))


@pytest.mark.parametrize(("says", "keys"), FAULTS, ids=[says for says, _ in FAULTS])
def test_what_would_end_the_process_is_refused_in_one_sentence(says: str, keys: dict[str, Any], tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf", **keys)
    with pytest.raises(ConfigError, match=says) as caught:
        check(path)
    assert caught.value.file == str(path)
    assert "\n" not in caught.value.message
    assert caught.value.message.endswith("it is damaged: download it again")


@pytest.mark.parametrize("path", [LAMB, *OTHERS], ids=lambda path: path.stem)
def test_real_models_pass(path: Path) -> None:
    check(path)


@pytest.mark.parametrize("kind", RECIPES)
def test_models_of_every_memory_pass(kind: str, tmp_path: Path) -> None:
    write_tiny(RECIPES[kind], tmp_path / "m.gguf")
    check(tmp_path / "m.gguf")


def test_one_flipped_bit_that_makes_two_tokens_one_is_seen(tmp_path: Path) -> None:
    content = bytearray(LAMB.read_bytes())
    place = content.index(struct.pack("<Q", 1) + b"A") + 8
    content[place] ^= 2  # a C, which there is already
    path = tmp_path / "flipped.gguf"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match="has the token 'C' twice"):
        check(path)


@pytest.mark.parametrize(
    ("name", "kind", "says"),
    [
        ("blk.0.ssm_a", "bf16", "which must be f32"),
        ("blk.0.ssm_conv1d.weight", "f16", "which must be f32"),
        ("blk.0.ssm_d", "i32", "with which nothing can be computed"),
        ("blk.0.ffn_norm", "f64", "with which nothing can be computed"),
        ("blk.0.ssm_a", "f32", ""),
        ("blk.0.ssm_in.weight", "bf16", ""),
    ],
)
def test_tensors_have_types_that_the_library_computes_with(name: str, kind: str, says: str, tmp_path: Path) -> None:
    header = gguf.read_header(write(tmp_path / "m.gguf"))
    tensor = replace(next(iter(header.tensors.values())), kind=kind)
    odd = replace(header, tensors={**header.tensors, name: tensor})
    with pytest.raises(ConfigError, match=says) if says else nullcontext():
        soundness.check(odd)


def test_tensors_of_integers_are_refused_where_something_is_computed_with_them(tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf")
    content = bytearray(path.read_bytes())
    place = content.index(b"output_norm.weight") + len(b"output_norm.weight") + 4 + 8
    content[place] = 26  # i32, of the same size
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"type i32 in the tensor 'output_norm.weight'"):
        check(path)
