"""A header that is made of a `config.json`, or put into another number format; configurations that say too little."""

from __future__ import annotations

import ctypes
import json
from pathlib import Path
from typing import Any

import pytest

from shepherd.core import ConfigError, InvalidRequest
from shepherd.models import catalog, gguf, outline
from shepherd.models.checkpoint import Fields, read_json
from shepherd.models.sizing import Cells, fit, keeps_states

SMALL: dict[str, Any] = {
    "model_type": "llama", "num_hidden_layers": 4, "hidden_size": 256, "num_attention_heads": 4, "vocab_size": 1000,
    "num_key_value_heads": 2, "intermediate_size": 512, "max_position_embeddings": 2048, "torch_dtype": "bfloat16",
}  # fmt: skip


def made(folder: Path, /, **changes: Any) -> gguf.Header:
    values = {key: value for key, value in (SMALL | changes).items() if value is not None}
    (folder / "config.json").write_text(json.dumps(values))
    config = read_json(folder / "config.json")
    assert config is not None
    return outline.header_of(config)


def test_a_header_has_the_shapes_of_the_configuration(tmp_path: Path) -> None:
    header = made(tmp_path)
    attention, feed_forward = 2 * 256 * 256 + 2 * 256 * 128, 3 * 256 * 512
    assert header.n_params == 2 * 1000 * 256 + 256 + 4 * (attention + feed_forward)
    assert (header.n_layer, header.n_head, header.n_head_kv, header.key_length) == (4, 4, (2,) * 4, 64)
    assert (header.n_ctx_train, header.n_vocab) == (2048, 1000)
    assert header.size_bytes == 2 * (header.n_params - 256) + 4 * 256


def test_tied_matrices_count_once(tmp_path: Path) -> None:
    assert made(tmp_path).n_params - made(tmp_path, tie_word_embeddings=True).n_params == 1000 * 256


def test_families_that_tie_their_matrices_do_so_unless_they_say_otherwise(tmp_path: Path) -> None:
    tied, untied = (
        made(tmp_path, model_type="gemma3_text"),
        made(tmp_path, model_type="gemma3", tie_word_embeddings=False),
    )
    assert ("output.weight" in tied.tensors, "output.weight" in untied.tensors) == (False, True)


def test_experts_may_be_in_some_layers_only(tmp_path: Path) -> None:
    """Llama 4: every second layer; DeepSeek: all but the first ones."""
    sparse = {"num_experts": 4, "num_experts_per_tok": 1}
    for changes, layers in (
        ({}, [0, 1, 2, 3]), ({"interleave_moe_layer_step": 2}, [1, 3]), ({"first_k_dense_replace": 3}, [3]),
    ):  # fmt: skip
        header = made(tmp_path, **sparse, **changes)
        assert [n for n in range(4) if f"blk.{n}.ffn_up_exps.weight" in header.tensors] == layers
        assert [n for n in range(4) if f"blk.{n}.ffn_up.weight" not in header.tensors] == layers


def test_the_text_part_of_a_model_that_sees_is_what_counts(tmp_path: Path) -> None:
    inner = {key: SMALL[key] for key in SMALL if key != "torch_dtype"}
    (tmp_path / "config.json").write_text(json.dumps({"torch_dtype": "float16", "text_config": inner}))
    config = read_json(tmp_path / "config.json")
    assert config is not None
    assert outline.header_of(config).n_params == made(tmp_path).n_params


@pytest.mark.parametrize(
    ("changes", "n_windowed"),
    [
        ({}, 0),
        ({"sliding_window": 512}, 4),
        ({"sliding_window": 512, "use_sliding_window": False}, 0),
        ({"sliding_window": 512, "sliding_window_pattern": 2}, 2),
        ({"sliding_window": 512, "layer_types": ["sliding_attention", "full_attention"] * 2}, 2),
        ({"sliding_window": 512, "layer_types": ["full_attention"] * 4}, 0),
    ],
)
def test_which_layers_see_a_window(changes: dict[str, Any], n_windowed: int, tmp_path: Path) -> None:
    header = made(tmp_path, **changes)
    wide, narrow = (fit(header, [Cells(65536, n_ubatch=256, swa_full=full)]).cells for full in (True, False))
    assert narrow == wide // 4 * (4 - n_windowed) + wide // 4 * n_windowed * 768 // 65536


def test_layers_with_linear_attention_keep_a_state(tmp_path: Path) -> None:
    header = made(
        tmp_path, full_attention_interval=2, linear_num_value_heads=4, linear_value_head_dim=64, linear_num_key_heads=2,
        linear_key_head_dim=64, linear_conv_kernel_dim=4,
    )  # fmt: skip
    assert keeps_states(header)
    found = fit(header, [Cells(1024)])
    assert found.cells == 2 * 1024 * 2 * 128 * 2
    assert found.states == 2 * 4 * (3 * (256 + 2 * 2 * 64) + 64 * 256)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"num_hidden_layers": None}, "is missing"),
        ({"num_hidden_layers": "four"}, "is 'four', expected a whole number from 0 to 512"),
        ({"num_hidden_layers": 10**9}, "is 1000000000, expected a whole number from 0 to 512"),
        ({"hidden_size": -1}, "is -1, expected"),
        ({"vocab_size": None}, "is missing"),
        ({"intermediate_size": None}, "is missing"),
        ({"num_key_value_heads": 8}, "is 8, more than the 4 heads"),
        ({"num_experts": 8}, "is 0, and there are 8 experts"),
        ({"num_experts": 8, "num_experts_per_tok": 9}, "is 9, and there are 8 experts"),
        ({"layer_types": ["full_attention"] * 3}, "names 3 layers of 4"),
        ({"layer_types": ["mamba"] * 4}, "names layers of the kind 'mamba'"),
        ({"layers_block_type": ["mamba"] * 4}, "keep states of a kind that is not known here"),
        ({"text_config": 3}, "expected an object"),
    ],
)
def test_a_configuration_that_says_too_little_is_refused_by_its_key(
    changes: dict[str, Any], says: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as refused:
        made(tmp_path, **changes)
    assert says in refused.value.message
    assert "config.json" in refused.value.message


@pytest.mark.parametrize("name", outline.FORMATS)
def test_every_format_has_the_size_of_its_blocks(name: str) -> None:
    bits = {"F32": 32, "F16": 16, "BF16": 16, "Q8_0": 8.5, "Q4_K_M": 4.85, "Q6_K": 6.56, "Q2_K": 2.8, "FP8": 8}
    large = outline.header_of(Fields(Path("large"), SMALL | {"hidden_size": 4096, "intermediate_size": 12288}))
    found = outline.in_format(large, name.lower())
    assert found.n_params == large.n_params
    assert 2 < 8 * found.size_bytes / found.n_params < 33
    if name in bits:
        assert 8 * found.size_bytes / found.n_params == pytest.approx(bits[name], rel=0.2)


@pytest.mark.grid(0.2)
@pytest.mark.parametrize(
    "name",
    ["Q8_0", "Q6_K", "Q5_K_M", "Q5_K_S", "Q5_0", "Q4_K_M", "Q4_K_S", "Q4_0", "Q3_K_M", "Q2_K", "IQ4_XS", "IQ4_NL"],
)
def test_a_format_has_the_size_of_what_the_library_makes(name: str, tmp_path: Path) -> None:
    """Of a model with rows of 256 numbers, and of 704, for which the formats with large blocks have others."""
    llama_cpp: Any = pytest.importorskip("llama_cpp.llama_cpp")
    header = gguf.read_header(catalog.embedded())
    options = llama_cpp.llama_model_quantize_default_params()
    options.ftype = next(number for number, each in gguf.FILE_TYPES.items() if each == name)
    options.nthread = 1
    file = tmp_path / "made.gguf"
    assert not llama_cpp.llama_model_quantize(str(header.path).encode(), str(file).encode(), ctypes.byref(options))
    assert outline.in_format(header, name).size_bytes == pytest.approx(gguf.read_header(file).size_bytes, rel=0.03)


def test_a_format_that_is_none_is_refused_with_those_that_are() -> None:
    with pytest.raises(InvalidRequest, match="quant is 'Q9_Z'; give one of F32, F16"):
        outline.in_format(gguf.read_header(catalog.embedded()), "Q9_Z")
