"""The header reader against the official package, against damaged files, and against a clock."""

from __future__ import annotations

import contextlib
import os
import random
import struct
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFReader, GGUFWriter, LlamaFileType
from tests.executed import executed

from shepherd.core import ConfigError
from shepherd.models import catalog, gguf
from shepherd.models.gguf_file import Array
from shepherd.models.sizing import Cells, context_size, fit

LAMB = catalog.embedded()
OTHERS = sorted(Path("/work/shared/models/arch").glob("*.gguf"))


def write(path: Path, fill: Callable[[GGUFWriter], None] = lambda writer: None, *, arch: str = "llama") -> Path:
    writer = GGUFWriter(path, arch)
    fill(writer)
    writer.add_tensor("token_embd.weight", np.zeros((4, 32), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def plain(value: Any) -> Any:
    return list(value.values()) if isinstance(value, Array) else value


def pair(key: str, number: int, value: bytes) -> bytes:
    return struct.pack("<Q", len(key)) + key.encode() + struct.pack("<I", number) + value


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def raw(*pairs: bytes, version: int = 3, n_tensors: int = 0, n_pairs: int | None = None) -> bytes:
    count = len(pairs) if n_pairs is None else n_pairs
    return b"GGUF" + struct.pack("<IQQ", version, n_tensors, count) + b"".join(pairs)


@pytest.mark.parametrize("path", [LAMB, *OTHERS], ids=lambda path: path.stem)
def test_every_field_and_size_equals_that_of_the_official_reader(path: Path) -> None:
    official, ours = GGUFReader(path), gguf.read_header(path)
    theirs = {key: field.contents() for key, field in official.fields.items() if not key.startswith("GGUF.")}
    assert {key: plain(value) for key, value in ours.metadata.items()} == theirs
    assert len(ours.tensors) == len(official.tensors)
    assert ours.n_params == sum(int(tensor.n_elements) for tensor in official.tensors)
    assert ours.size_bytes == sum(int(tensor.n_bytes) for tensor in official.tensors)


def test_the_embedded_model_is_described() -> None:
    header = gguf.read_header(LAMB)
    assert (header.architecture, header.name, header.file_type, header.tokenizer) == ("llama", "Lamb", "F16", "gpt2")
    assert (header.n_layer, header.n_embd, header.n_head, header.n_head_kv) == (7, 256, 4, (4,) * 7)
    assert (header.key_length, header.value_length, header.n_ctx_train, header.n_vocab) == (64, 64, 4096, 2048)
    assert header.path == LAMB
    assert header.files == (LAMB,)
    assert "<|im_start|>" in (header.chat_template or "")
    assert header.chat_templates == {}


def test_a_large_vocabulary_costs_two_lines_of_python_for_each_token(tmp_path: Path) -> None:
    def fill(writer: GGUFWriter) -> None:
        writer.add_array("tokenizer.ggml.tokens", [f"token{index}" for index in range(150_000)])
        writer.add_array("tokenizer.ggml.token_type", [1] * 150_000)
        writer.add_string("tokenizer.chat_template", "{{ messages }}")

    path = write(tmp_path / "large.gguf", fill)
    header = gguf.read_header(path)
    assert header.n_vocab == 150_000
    assert header.metadata["tokenizer.ggml.tokens"].first(2) == ("token0", "token1")
    assert header.chat_template == "{{ messages }}"
    assert executed(lambda: gguf.read_header(path), "line") < 3 * 150_000


def test_what_a_modern_model_says_is_found(tmp_path: Path) -> None:
    def fill(writer: GGUFWriter) -> None:
        writer.add_name("Modern")
        writer.add_file_type(LlamaFileType.MOSTLY_Q4_K_M)
        writer.add_block_count(3)
        writer.add_embedding_length(512)
        writer.add_context_length(32768)
        writer.add_head_count([8, 8, 8])
        writer.add_head_count_kv([2, 0, 4])
        writer.add_key_length(128)
        writer.add_value_length(64)
        writer.add_vocab_size(1000)
        writer.add_string("tokenizer.chat_template", "default")
        writer.add_string("tokenizer.chat_template.tool_use", "with tools")

    header = gguf.read_header(write(tmp_path / "m.gguf", fill, arch="qwen3"))
    assert (header.file_type, header.n_head, header.n_head_kv) == ("Q4_K_M", 8, (2, 0, 4))
    assert (header.key_length, header.value_length, header.n_ctx_train, header.n_vocab) == (128, 64, 32768, 1000)
    assert header.chat_templates == {"tool_use": "with tools"}
    cells = fit(header, [Cells(256, flash_attention=True)]).cells
    assert cells == 256 * (2 + 4) * (128 + 64) * 2
    assert fit(header, [Cells(256)]).cells == 256 * (2 * 128 + 4 * 64 + 4 * 128 + 4 * 64) * 2, "values across the cells"


def test_version_two_is_read(tmp_path: Path) -> None:
    path = tmp_path / "v2.gguf"
    path.write_bytes(raw(pair("general.architecture", 8, text("llama")), version=2))
    assert gguf.read_header(path).architecture == "llama"


NOT_GGUF = [
    (b"", "is empty"),
    (b"GGU", "not a GGUF"),
    (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n", "git lfs pull"),
    (struct.pack("<Q", 99) + b'{"a":{"dtype":"F32"}}', "safetensors"),
    (b"PK\x03\x04" + b"0" * 60, "zip archive or a PyTorch"),
    (b"\x1f\x8b\x08", "gzip"),
    (b"\n <!DOCTYPE html><html>", "web page"),
    (b'{"error": "not found"}', "JSON"),
    (b"tjgg\x01\0\0\0", "older GGML"),
    (bytes(4096), "zeros"),
    (b"some words that are no model at all", "not a GGUF"),
    (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian"),
    (raw(version=1), "version 1"),
    (raw(version=4), "version 4"),
    (raw(n_pairs=2**63), "claims"),
    (raw(n_tensors=2**40), "claims"),
    (raw(n_pairs=5), "in the middle of its metadata"),
    (raw(n_tensors=1), "in the middle of its list of tensors"),
    (raw(pair("k", 99, b"")), "unknown type 99"),
    (raw(pair("k", 8, struct.pack("<Q", 2**62))), "has a text of"),
    (raw(pair("k", 8, struct.pack("<Q", 2**20))), "truncated or damaged"),
    (raw(pair("k", 9, struct.pack("<IQ", 8, 2**60))), "an array of 1152921504606846976 texts"),
    (raw(pair("k", 9, struct.pack("<IQ", 4, 2**60))), "truncated or damaged"),
    (raw(pair("k", 9, struct.pack("<IQ", 8, 2) + struct.pack("<QQ", 2**63, 0))), "truncated or damaged"),
    (raw(pair("k", 9, struct.pack("<IQ", 9, 1))), "array of the unknown type 9"),
    (raw(pair("general.alignment", 4, struct.pack("<I", 0))), "alignment 0"),
    (raw(n_tensors=1) + text("t") + struct.pack("<I", 99), "99 dimensions"),
    (raw(n_tensors=1) + text("t") + struct.pack("<IQIQ", 1, 33, 8, 0), "no multiple of 32"),
    (raw(n_tensors=1) + text("t") + struct.pack("<IQIQ", 1, 2**60, 0, 0), "its tensors need 4611686018427387968"),
    (raw(n_tensors=2**17), "claims 131072 tensors"),
    (raw(pair("k", 7, b"\1"), pair("k", 7, b"\1")), "the key 'k' twice"),
    (raw(pair("", 7, b"\1")), "a key without a name"),
    (raw(pair("general.alignment", 4, struct.pack("<I", 48))), "alignment 48, no power of two"),
    (raw(n_tensors=1) + text("t") + struct.pack("<IQQIQ", 2, 2**40, 2**40, 0, 0), "dimensions .* in the tensor 't'"),
    (raw(n_tensors=1) + text("t") + struct.pack("<IQIQ", 1, 2**63, 0, 0), "dimensions .* in the tensor 't'"),
    (raw(n_tensors=1) + text("t") + struct.pack("<IQQIQ", 2, 16, 2, 8, 0), "16 values in a row of the tensor 't'"),
    (raw(n_tensors=1) + text("t") + struct.pack("<IQIQ", 1, 1, 0, 32), "the tensor 't' at offset 32, where 0 is next"),
    (raw(n_tensors=1) + text("n" * 64) + struct.pack("<IQIQ", 1, 1, 0, 0), "name is longer than 63 bytes"),
    (raw(n_tensors=2) + 2 * (text("t") + struct.pack("<IQIQ", 1, 0, 0, 0)), "two tensors called 't'"),
]


@pytest.mark.parametrize(("content", "says"), NOT_GGUF, ids=[says for _, says in NOT_GGUF])
def test_a_file_that_is_no_model_is_called_what_it_is(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=says) as caught:
        gguf.read_header(path)
    assert caught.value.file == str(path)
    assert "\n" not in caught.value.message


def test_a_truncated_download_names_both_sizes(tmp_path: Path) -> None:
    content = LAMB.read_bytes()[:5_000_000]
    path = tmp_path / "half.gguf"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=rf"has 5000000 bytes, but its tensors need {LAMB.stat().st_size}"):
        gguf.read_header(path)


def test_a_missing_file_and_an_unreadable_one_are_distinguished(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        gguf.read_header(tmp_path / "none.gguf")
    with pytest.raises(ConfigError, match="cannot be read"):
        gguf.read_header(LAMB / "below.gguf")


def test_a_type_newer_than_the_table_is_left_to_the_library(tmp_path: Path) -> None:
    path = tmp_path / "new.gguf"
    tensors = text("a") + struct.pack("<IQIQ", 1, 8, 77, 0) + text("b") + struct.pack("<IQIQ", 1, 8, 0, 640)
    path.write_bytes(raw(n_tensors=2) + tensors + bytes(800))
    assert gguf.read_header(path).tensors["a"].kind is None


class Counted(Mapping[str, Any]):
    """Metadata that counts how often it is asked."""

    def __init__(self, content: Mapping[str, Any]) -> None:
        self.content = content
        self.n_asked = 0

    def __getitem__(self, key: str) -> Any:
        self.n_asked += 1
        return self.content[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.content)

    def __len__(self) -> int:
        return len(self.content)


@pytest.mark.parametrize("heads", [4, "each"])
def test_the_work_for_the_memory_of_a_cache_does_not_grow_with_the_square_of_the_layers(
    tmp_path: Path, heads: int | str
) -> None:
    def asked(n_layer: int) -> int:
        def fill(writer: GGUFWriter) -> None:
            writer.add_block_count(n_layer)
            writer.add_embedding_length(64)
            writer.add_head_count(heads if isinstance(heads, int) else [4] * n_layer)

        header = gguf.read_header(write(tmp_path / f"{n_layer}.gguf", fill))
        counted = replace(header, metadata=(metadata := Counted(header.metadata)))
        assert fit(counted, [Cells(4096)]).needed > 0
        return metadata.n_asked

    assert asked(512) == asked(2)


def test_a_million_layers_cost_no_more_than_the_most_that_are_possible(tmp_path: Path) -> None:
    def fill(writer: GGUFWriter) -> None:
        writer.add_block_count(10**6)
        writer.add_embedding_length(64)
        writer.add_head_count(4)

    header = gguf.read_header(write(tmp_path / "deep.gguf", fill))
    assert len(header.n_head_kv) == gguf.MAX_LAYERS
    size = partial(context_size, header, cache="main", cells=Cells(0, ("f16", "q8_0")), is_loaded=False, room=2**40)
    assert executed(size, "line") < 200 * gguf.MAX_LAYERS


# Shards


def write_shards(folder: Path, n_files: int) -> list[Path]:
    paths = []
    for index in range(n_files):

        def fill(writer: GGUFWriter, index: int = index) -> None:
            writer.add_uint16("split.count", n_files)
            writer.add_uint16("split.no", index)
            if index == 0:
                writer.add_block_count(7)

        paths.append(write(folder / f"big-{index + 1:05}-of-{n_files:05}.gguf", fill))
    return paths


def test_a_split_model_is_one_model_from_any_of_its_shards(tmp_path: Path) -> None:
    paths = write_shards(tmp_path, 3)
    for start in (*paths, tmp_path):
        header = gguf.read_header(start)
        assert (header.path, header.files, header.n_layer) == (paths[0], tuple(paths), 7)
        assert (header.n_params, header.size_bytes) == (3 * 128, 3 * 512)


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    paths = write_shards(tmp_path, 3)
    paths[1].unlink()
    with pytest.raises(ConfigError, match=r"one of 3 parts, and big-00002-of-00003\.gguf is not beside it"):
        gguf.read_header(paths[0])
    paths[0].unlink()
    with pytest.raises(ConfigError, match=r"big-00001-of-00003\.gguf and 1 more is not"):
        gguf.read_header(tmp_path)


def test_a_renamed_shard_is_not_taken_for_the_whole_model(tmp_path: Path) -> None:
    path = write_shards(tmp_path, 2)[0].rename(tmp_path / "model.gguf")
    with pytest.raises(ConfigError, match=r"its name must end in -00001-of-00002\.gguf"):
        gguf.read_header(path)


def test_a_folder_gives_its_only_model_and_passes_over_what_is_none(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds no GGUF file"):
        gguf.read_header(tmp_path)
    for name in ("._a.gguf", "mmproj-a.gguf", "a-mmproj-f16.gguf", "readme.md"):
        (tmp_path / name).write_bytes(b"")
    write(tmp_path / "a.gguf")
    assert gguf.read_header(tmp_path).path == tmp_path / "a.gguf"
    write(tmp_path / "b.gguf")
    with pytest.raises(ConfigError, match=r"several models; name one of them: a.gguf, b.gguf"):
        gguf.read_header(tmp_path)


# Damage


def use(path: Path) -> None:
    """Read a header and everything that can be asked of it."""
    header = gguf.read_header(path)
    for name in dir(header):
        if not name.startswith("_"):
            getattr(header, name)
    fit(header, [Cells(4096, ("q8_0", "f16"))], repacked={"q4_0"})


def test_a_file_cut_anywhere_is_refused_in_one_sentence(tmp_path: Path) -> None:
    content = LAMB.read_bytes()
    header_end = 63_168
    path = tmp_path / "cut.gguf"
    spread = random.Random(1).sample(range(header_end), 300)
    for size in [*range(200), *spread, header_end, len(content) - 1]:
        path.write_bytes(content[:size])
        with pytest.raises(ConfigError):
            use(path)


def test_damaged_headers_never_raise_anything_else(tmp_path: Path) -> None:
    dice = random.Random(2)
    original = bytearray(write(tmp_path / "m.gguf", _small_header).read_bytes())
    path = tmp_path / "damaged.gguf"
    for _ in range(1500):
        content = original.copy()
        for _ in range(dice.randint(1, 3)):
            content[dice.randrange(len(content))] = dice.choice((0, 1, 0x7F, 0x80, 0xFF, dice.randrange(256)))
        path.write_bytes(content)
        with contextlib.suppress(ConfigError):
            use(path)


def test_a_damaged_vocabulary_neither_hangs_nor_fills_the_memory(tmp_path: Path) -> None:
    dice = random.Random(3)
    original, size = LAMB.read_bytes()[:63_168], LAMB.stat().st_size
    path = tmp_path / "damaged.gguf"
    tracemalloc.start()
    for _ in range(200):
        content = bytearray(original)
        content[dice.randrange(len(content))] ^= 1 << dice.randrange(8)
        path.write_bytes(content)
        os.truncate(path, size)
        with contextlib.suppress(ConfigError):
            use(path)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 64 << 20


def _small_header(writer: GGUFWriter) -> None:
    writer.add_block_count(2)
    writer.add_embedding_length(64)
    writer.add_head_count(4)
    writer.add_head_count_kv([2, 2])
    writer.add_context_length(128)
    writer.add_file_type(1)
    writer.add_array("tokenizer.ggml.tokens", ["a", "b", "c"])
    writer.add_array("tokenizer.ggml.scores", [0.0, 1.0, 2.0])
    writer.add_string("tokenizer.chat_template", "{{ x }}")
