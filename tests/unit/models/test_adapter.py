"""Files of adapters: what is read of a good one, and the one sentence about each that does not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.engine.adapter_files import Damage, write_control, write_lora
from tests.unit.engine.tiny_gguf import N_EMBD, RECIPES, write

from shepherd.core import ConfigError
from shepherd.models.adapter import read_adapter
from shepherd.models.gguf import Header, read_header

Q = "blk.0.attn_q.weight"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Header:
    path = tmp_path_factory.mktemp("models") / "plain.gguf"
    write(RECIPES["plain"], path)
    return read_header(path)


def test_a_lora_is_read_with_its_memory(model: Header, tmp_path: Path) -> None:
    path = write_lora(tmp_path / "law.gguf", model, seed=1)
    found = read_adapter(path, model, name="law", scale=0.5, applies=False)
    pairs = [base.dims for name, base in model.tensors.items() if "attn_" in name and "norm" not in name]
    pairs += [base.dims for name, base in model.tensors.items() if "ffn_down" in name]
    assert found.n_bytes == 4 * 4 * sum(n_in + n_out for n_in, n_out in pairs)
    assert (found.name, found.kind, found.scale, found.applies) == ("law", "lora", 0.5, False)


def test_the_hash_is_of_all_that_decides_what_is_added(model: Header, tmp_path: Path) -> None:
    one, other = (write_lora(tmp_path / f"{seed}.gguf", model, seed=seed) for seed in (1, 2))
    control = write_control(tmp_path / "control.gguf", model, seed=1)
    copy = tmp_path / "copy.gguf"
    copy.write_bytes(one.read_bytes())
    loras = [read_adapter(path, model, name="x").hash() for path in (one, other)]
    controls = [read_adapter(control, model, name="x", layers=each).hash() for each in ((1, 1), (1, 2), None)]
    assert len({*loras, *controls}) == 4, "all layers are the layers 1 to 2"
    assert read_adapter(copy, model, name="y", scale=0.3).hash() == loras[0]


def test_a_control_vector_is_read_with_the_places_of_its_numbers(model: Header, tmp_path: Path) -> None:
    path = write_control(tmp_path / "control.gguf", model, seed=3)
    drawn = np.random.default_rng(3)
    expected = [drawn.standard_normal(N_EMBD, np.float32) for _ in range(1, model.n_layer)]
    found = read_adapter(path, model, name="calm")
    assert (found.kind, found.layers, [layer for layer, _ in found.directions]) == ("control", (1, 2), [1, 2])
    for (_, offset), numbers in zip(found.directions, expected, strict=True):
        assert (np.fromfile(path, "<f4", N_EMBD, offset=offset) == numbers).all()
    assert [layer for layer, _ in read_adapter(path, model, name="calm", layers=(2, 2)).directions] == [2]


def put(where: int, name: str, value: Any) -> Damage:
    """Set a key (0) or a tensor (1); None removes it."""

    def damage(*both: dict[str, Any]) -> None:
        both[where].pop(name, None)
        if value is not None:
            both[where][name] = value

    return damage


def numbers(*shape: int) -> Any:
    return np.ones(shape, np.float32)


def emptied(keys: dict[str, Any], tensors: dict[str, Any]) -> None:
    tensors.clear()


def for_the_lookup(keys: dict[str, Any], tensors: dict[str, Any]) -> None:
    tensors |= {"token_embd.weight.lora_a": numbers(128, 4), "token_embd.weight.lora_b": numbers(N_EMBD, 4)}


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (put(0, "general.type", "model"), ["is a model (llama), not an adapter"]),
        (put(0, "general.type", None), ["not an adapter"]),
        (put(0, "general.architecture", "qwen2"), ["for qwen2 models", "plain.gguf is a llama model"]),
        (put(0, "adapter.type", "dora"), ["type 'dora'"]),
        (put(0, "adapter.alora.invocation_tokens", [1, 2]), ["aLoRA"]),
        (put(1, f"{Q}.lora_a", None), [f"one of the two matrices of '{Q}' is missing"]),
        (put(1, f"{Q}.lora_b", None), [f"one of the two matrices of '{Q}' is missing"]),
        (put(1, f"{Q}.lora_a", numbers(4, 32)), ["'blk.0.attn_q.weight' is 64 x 64", "32 x 64", "another model"]),
        (put(1, f"{Q}.lora_b", numbers(65, 4)), ["is 64 x 64", "64 x 65"]),
        (put(1, f"{Q}.lora_a", numbers(5, 64)), ["the ranks 5 and 4"]),
        (put(1, f"{Q}.lora_a", numbers(2, 4, 64)), ["64 x 64"]),
        (put(1, f"{Q}.lora_a", np.ones((4, 64), np.int32)), ["i32", "f16 or f32"]),
        (put(1, "blk.7.attn_q.weight.lora_a", numbers(4, 64)), ["blk.7.attn_q.weight"]),
        (put(1, "blk.0.attn_q.weight", numbers(4, 64)), ["'blk.0.attn_q.weight', which is no part of a LoRA"]),
        (emptied, ["no matrices"]),
        (put(1, "token_embd.weight.lora_a", numbers(4, 64)), ["token_embd.weight"]),
    ],
)
def test_a_lora_that_does_not_fit_is_refused_in_one_sentence(
    damage: Damage, words: list[str], model: Header, tmp_path: Path
) -> None:
    path = write_lora(tmp_path / "law.gguf", model, seed=1, damage=damage)
    with pytest.raises(ConfigError) as error:
        read_adapter(path, model, name="law")
    assert all(word in str(error.value) for word in ("law.gguf", *words)), str(error.value)


def test_a_lookup_is_turned_and_never_the_output_as_well(model: Header, tmp_path: Path) -> None:
    path = write_lora(tmp_path / "law.gguf", model, seed=1, damage=for_the_lookup)
    assert read_adapter(path, model, name="law").kind == "lora"
    write(RECIPES["gemma"], tmp_path / "gemma.gguf")
    gemma = read_header(tmp_path / "gemma.gguf")
    path = write_lora(tmp_path / "tied.gguf", gemma, seed=1, damage=for_the_lookup)
    with pytest.raises(ConfigError, match="output of this model as well"):
        read_adapter(path, gemma, name="law")


@pytest.mark.parametrize(
    ("damage", "layers", "words"),
    [
        (put(0, "controlvector.model_hint", "qwen2"), None, ["for qwen2 models", "a llama model"]),
        (put(1, "direction.1", numbers(32)), None, ["32 numbers for layer 1", "64 numbers"]),
        (put(1, "direction.3", numbers(64)), None, ["layer 3", "layers 1 to 2"]),
        (put(1, "direction.0", numbers(64)), None, ["direction.0"]),
        (put(1, "direction.x", numbers(64)), None, ["direction.x"]),
        (put(1, "direction.1", np.ones(64, np.float16)), None, ["direction.1", "float32"]),
        (emptied, None, ["no directions"]),
        (None, (1, 9), ["[1, 9]", "1 to 2"]),
    ],
)
def test_a_control_vector_that_does_not_fit_is_refused_in_one_sentence(
    damage: Damage | None, layers: tuple[int, int] | None, words: list[str], model: Header, tmp_path: Path
) -> None:
    path = write_control(tmp_path / "calm.gguf", model, seed=1, damage=damage)
    with pytest.raises(ConfigError) as error:
        read_adapter(path, model, name="calm", layers=layers)
    assert all(word in str(error.value) for word in ("calm.gguf", *words)), str(error.value)


def test_layers_are_of_control_vectors_only(model: Header, tmp_path: Path) -> None:
    path = write_lora(tmp_path / "law.gguf", model, seed=1)
    with pytest.raises(ConfigError, match="no control vector"):
        read_adapter(path, model, name="law", layers=(1, 2))


@pytest.mark.parametrize(("content", "words"), [(None, "does not exist"), (b"", "empty"), (b"<html>", "web page")])
def test_a_file_that_is_no_gguf_is_named(content: bytes | None, words: str, model: Header, tmp_path: Path) -> None:
    path = tmp_path / "law.gguf"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=words):
        read_adapter(path, model, name="law")


def test_a_file_that_is_cut_anywhere_is_refused(model: Header, tmp_path: Path) -> None:
    whole = write_lora(tmp_path / "law.gguf", model, seed=1).read_bytes()
    for at in range(0, len(whole) - 64, 997):
        (tmp_path / "law.gguf").write_bytes(whole[:at])
        with pytest.raises(ConfigError):
            read_adapter(tmp_path / "law.gguf", model, name="law")
