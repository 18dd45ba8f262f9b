"""Folders for TensorRT-LLM, each built small: what they state, and one sentence for each fault."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cases import amount
from tests.damage import KINDS, LEFT_OUT, damaged, places

from shepherd.core import ConfigError
from shepherd.models.checkpoint import is_checkpoint, read_checkpoint

ENGINE: dict[str, Any] = {
    "version": "1.2.1",
    "pretrained_config": {
        "architecture": "LlamaForCausalLM", "dtype": "bfloat16", "vocab_size": 1000, "num_hidden_layers": 4,
        "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": None},
        "mapping": {"world_size": 4, "gpus_per_node": 8, "cp_size": 1, "tp_size": 2, "pp_size": 2},
    },
    "build_config": {"max_input_len": 1024, "max_seq_len": 4096, "plugin_config": {"tokens_per_block": 32}},
}  # fmt: skip
CHECKPOINT: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "vocab_size": 1000, "torch_dtype": "bfloat16",
    "max_position_embeddings": 40960, "eos_token_id": 3, "quantization_config": {"quant_method": "fp8", "bits": 8},
}  # fmt: skip
TOKENIZER_CONFIG = {
    "bos_token": {"content": "<s>", "lstrip": False}, "eos_token": "</s>", "add_bos_token": True,
    "chat_template": [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "with tools"}],
}  # fmt: skip
GENERATION = {"eos_token_id": [3, 5], "temperature": 0.6}
INDEX = {
    "metadata": {"total_size": 8192},
    "weight_map": {"a.weight": "model-00001-of-00002.safetensors", "b.weight": "model-00002-of-00002.safetensors"},
}


def write(folder: Path, **files: Any) -> Path:
    """A folder with these files, `__` in a name for a dot: texts as they are, numbers as so many bytes, else JSON."""
    folder.mkdir(exist_ok=True)
    for name, content in {"tokenizer__json": {}, **files}.items():
        text = content if isinstance(content, str) else bytes(content) if type(content) is int else json.dumps(content)
        raw = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
        (folder / name.replace("__", ".").replace("_of_", "-of-")).write_bytes(raw)
    return folder


def engine(folder: Path, config: Any = ENGINE, ranks: int = 4, **files: Any) -> Path:
    return write(folder, config__json=config, **{f"rank{rank}__engine": 4096 for rank in range(ranks)}, **files)


def checkpoint(folder: Path, config: Any = CHECKPOINT, **files: Any) -> Path:
    return write(folder, **{"config__json": config, "model__safetensors": 4096, **files})


def test_an_engine_says_what_it_was_built_for(tmp_path: Path) -> None:
    found = read_checkpoint(engine(tmp_path / "llama", tokenizer_config__json=TOKENIZER_CONFIG))
    assert (found.kind, found.architecture, found.family, found.file_type) == (
        "engine", "LlamaForCausalLM", "llama", "FP8",
    )  # fmt: skip
    assert (found.n_ctx_train, found.n_vocab, found.mapping, found.n_ranks) == (4096, 1000, (2, 2, 1), 4)
    assert (found.size_bytes, [file.name for file in found.files]) == (16384, [f"rank{n}.engine" for n in range(4)])
    assert (found.bos_text, found.eos_text, found.adds_bos, found.name) == ("<s>", "</s>", True, "llama")
    assert (found.chat_template, found.template_file) == ("plain", "tokenizer_config.json")
    assert found.chat_templates["tool_use"] == "with tools"


def test_a_checkpoint_says_what_it_was_trained_for(tmp_path: Path) -> None:
    parts = {f"model-0000{n}_of_00002__safetensors": 2000 for n in (1, 2)}
    folder = checkpoint(
        tmp_path / "qwen", model__safetensors=0, **parts, generation_config__json=GENERATION,
        model__safetensors__index__json=INDEX,
    )  # fmt: skip
    found = read_checkpoint(folder)
    assert (found.kind, found.architecture, found.family, found.file_type) == (
        "checkpoint", "Qwen3ForCausalLM", "qwen3", "fp8",
    )  # fmt: skip
    assert (found.n_ctx_train, found.n_vocab, found.n_ranks, found.size_bytes) == (40960, 1000, 1, 4000)
    assert (found.end_tokens, found.chat_template, found.bos_text) == ((3, 5), None, "")


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"hf_quant_config__json": {"quantization": {"quant_algo": "NVFP4"}}}, {"file_type": "NVFP4"}),
        ({"config": {**CHECKPOINT, "quantization_config": None}}, {"file_type": "bfloat16", "end_tokens": (3,)}),
        ({"config": {"text_config": {"max_position_embeddings": 99, "vocab_size": 7, "dtype": "float16"}}},
         {"n_ctx_train": 99, "n_vocab": 7, "file_type": "float16", "architecture": ""}),
        ({"config": {"n_positions": 1024}}, {"n_ctx_train": 1024}),
        ({"tokenizer_config__json": {"chat_template": "old"}, "chat_template__jinja": "new"},
         {"chat_template": "new", "template_file": "chat_template.jinja"}),
        ({"tokenizer_config__json": {"bos_token": None, "eos_token": {"content": "<|im_end|>"}}},
         {"bos_text": "", "eos_text": "<|im_end|>", "chat_template": None, "template_file": ""}),
    ],
)  # fmt: skip
def test_a_fact_is_found_wherever_it_may_stand(tmp_path: Path, files: dict[str, Any], expected: dict[str, Any]) -> None:
    found = read_checkpoint(checkpoint(tmp_path / "m", **files))
    assert {name: getattr(found, name) for name in expected} == expected


def test_templates_in_a_folder_of_their_own_are_those_by_name(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "m", chat_template__jinja="plain")
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "tool_use.jinja").write_text("with tools")
    assert read_checkpoint(folder).chat_templates == {"tool_use": "with tools"}


def without(table: dict[str, Any], *path: str) -> dict[str, Any]:
    first, *rest = path
    return {key: without(value, *rest) if rest and key == first else value for key, value in table.items()
            if rest or key != first}  # fmt: skip


def mapped(**sizes: int) -> dict[str, Any]:
    return {**ENGINE, "pretrained_config": {**ENGINE["pretrained_config"], "mapping": sizes}}


FAULTS: list[tuple[Callable[[Path], object], str]] = [
    (lambda at: write(at, rank0__engine=4096), r"has no config\.json; copy it"),
    (lambda at: write(at, config__json=CHECKPOINT), r"neither rankN\.engine nor \*\.safetensors"),
    (lambda at: engine(at, ranks=3), r"rank3\.engine is missing: .* 4 GPUs \(tp_size 2 x pp_size 2 x cp_size 1 = 4\)"),
    (lambda at: engine(at, ranks=1), r"rank1\.engine and 2 more is missing"),
    (lambda at: engine(at, ranks=5), r"5 rank files, but config\.json says"),
    (lambda at: engine(at, mapped(tp_size=2, world_size=4)), r"mapping\.world_size: is 4, but tp_size 2"),
    (lambda at: engine(at, mapped(tp_size=1000, pp_size=1000)), r"mapping: asks for .* = 1000000 ranks, more than"),
    (lambda at: engine(at, mapped(tp_size=0)), r"mapping\.tp_size: is 0, expected a whole number from 1"),
    (lambda at: engine(at, mapped(tp_size=10**40)), r"mapping\.tp_size: is 1000.*expected a whole number"),
    (lambda at: engine(at, without(ENGINE, "build_config", "max_seq_len")), r"build_config\.max_seq_len: is missing"),
    (lambda at: engine(at, without(ENGINE, "pretrained_config")), r"pretrained_config: is missing; build the engine"),
    (lambda at: checkpoint(at, config__json="{"), r"config\.json: is not JSON \(Expecting .*download it again"),
    (lambda at: checkpoint(at, config__json="[" * 10**6), r"config\.json: is not JSON \(it is nested too deeply"),
    (lambda at: checkpoint(at, config__json='{"a":' * 10**6), r"config\.json: is not JSON"),
    (lambda at: checkpoint(at, config__json="1" * 10**5), r"config\.json: is not JSON"),
    (lambda at: checkpoint(at, config__json=65 << 20), r"config\.json: has 68157440 bytes, more than"),
    (lambda at: checkpoint(at, config__json="[]"), r"config\.json: holds \[\], expected an object"),
    (lambda at: checkpoint(at, config__json="version https://git-lfs.github.com/spec/v1"), r"Git LFS pointer"),
    (lambda at: checkpoint(at, model__safetensors="version https://git-lfs.github.com/spec/v1"), r"Git LFS pointer"),
    (lambda at: checkpoint(at, model__safetensors=0), r"model\.safetensors: is empty"),
    (lambda at: checkpoint(at, chat_template__jinja="\udc80"), r"chat_template\.jinja: is not a text in UTF-8"),
    (lambda at: checkpoint(at, tokenizer_config__json={"bos_token": 1}), r"bos_token: is 1, expected a text, or"),
    (lambda at: checkpoint(at, tokenizer_config__json={"chat_template": 1}), r"chat_template: is 1; it must be"),
    (lambda at: checkpoint(at, tokenizer_config__json={"chat_template": [{}]}), r"chat_template: holds \{\}; it must"),
    (lambda at: checkpoint(at, generation_config__json={"eos_token_id": "x"}), r"eos_token_id: is 'x', expected a"),
    (lambda at: checkpoint(at, model__safetensors__index__json=INDEX), r"model-00001-of-00002\.saf.* and 1 more"),
    (lambda at: checkpoint(at, model__safetensors__index__json={"weight_map": {"a": "../x"}}), r"weight_map: does"),
    (lambda at: (checkpoint(at) / "tokenizer.json").unlink(), r"has no tokenizer\.json; copy it, tok"),
    (lambda at: link(checkpoint(at) / "config.json", "config.json"), r"config\.json: .*links lead in a circle"),
    (lambda at: link(checkpoint(at) / "model.safetensors", "gone"), r"model\.safetensors: .*a link to nowhere"),
    (lambda at: pipe(checkpoint(at) / "config.json"), r"config\.json: is no file"),
    (lambda at: link(write(at), at.name), r"has no config\.json"),
]  # fmt: skip


def link(path: Path, to: str) -> None:
    path.rename(path.with_name("moved"))
    path.symlink_to(to)


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize(("make", "says"), FAULTS)
def test_each_fault_is_one_sentence_that_names_the_file_and_the_cure(
    tmp_path: Path, make: Callable[[Path], object], says: str
) -> None:
    make(tmp_path / "m")
    with pytest.raises(ConfigError, match=says) as caught:
        read_checkpoint(tmp_path / "m")
    assert str(tmp_path / "m") in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value).replace(str(tmp_path), "")) < 300


def damages() -> Iterator[tuple[str, Any]]:
    files = {
        "engine": ENGINE, "config": CHECKPOINT, "tokenizer_config": TOKENIZER_CONFIG, "generation_config": GENERATION,
        "model.safetensors.index": INDEX, "hf_quant_config": {"quantization": {"quant_algo": "FP8"}},
    }  # fmt: skip
    for name, content in files.items():
        for at in places(content):
            for by in (*KINDS, 10**30, float("nan"), "\0", {"content": []}):
                if at or by is not LEFT_OUT:
                    yield name, damaged(content, at, by)


def test_no_damage_to_a_file_raises_another_error(tmp_path: Path) -> None:
    """Every place of every file, replaced by every kind of JSON or left out: it is read, or refused in one sentence."""
    parts = {f"model-0000{n}_of_00002__safetensors": 2000 for n in (1, 2)}
    folders = {
        "engine": engine(tmp_path / "engine", tokenizer_config__json=TOKENIZER_CONFIG),
        "checkpoint": checkpoint(
            tmp_path / "checkpoint", **parts, tokenizer_config__json=TOKENIZER_CONFIG,
            generation_config__json=GENERATION, model__safetensors__index__json=INDEX,
            hf_quant_config__json={"quantization": {}},
        ),
    }  # fmt: skip
    refused = 0
    for name, content in damages():
        folder = folders["engine" if name == "engine" else "checkpoint"]
        file = folder / f"{'config' if name == 'engine' else name}.json"
        whole = file.read_bytes()
        file.write_text(json.dumps(content))
        with contextlib.suppress(ConfigError):
            read_checkpoint(folder)
            refused -= 1
        refused += 1
        file.write_bytes(whole)
    assert refused > 300


def test_cut_off_files_are_refused_or_read(tmp_path: Path) -> None:
    folder = engine(tmp_path / "m")
    whole = json.dumps(ENGINE)
    for end in range(0, len(whole), amount(7, 1)):
        (folder / "config.json").write_text(whole[:end])
        with pytest.raises(ConfigError):
            read_checkpoint(folder)


def test_a_folder_with_a_gguf_file_is_not_for_tensorrt(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "m")
    assert is_checkpoint(folder)
    assert is_checkpoint(write(tmp_path / "bare", rank0__engine=1))
    assert not is_checkpoint(write(tmp_path / "none"))
    assert not is_checkpoint(tmp_path / "gone")
    (folder / "model.Q4_K_M.gguf").touch()
    assert not is_checkpoint(folder)
