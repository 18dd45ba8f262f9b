"""Writes adapters with random numbers for any model: LoRAs and control vectors that change every answer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from tests.unit.engine.tiny_gguf import finish

from shepherd.models.adapter import Adapter, read_adapter
from shepherd.models.gguf import Header, read_header

Damage = Callable[[dict[str, Any], dict[str, Any]], None]
"""Changes the keys and the tensors before they are written."""
CHANGED = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_down", "attn_qkv", "ssm_in", "shortconv.in_proj")
"""The matrices of a layer that are changed, where the model has them."""


def write_lora(path: Path, model: Header, *, seed: int, rank: int = 4, damage: Damage | None = None) -> Path:
    """A LoRA for the matrices of every layer."""
    random = np.random.default_rng(seed)
    keys: dict[str, Any] = {
        "general.type": "adapter", "adapter.type": "lora", "adapter.lora.alpha": 8.0,
    }  # fmt: skip
    tensors: dict[str, Any] = {}
    for name, base in model.tensors.items():
        if name.startswith("blk.") and name.split(".", 2)[2].removesuffix(".weight") in CHANGED:
            n_in, n_out = base.dims[:2]
            tensors[f"{name}.lora_a"] = random.standard_normal((rank, n_in), np.float32) * np.float32(n_in**-0.5)
            tensors[f"{name}.lora_b"] = random.standard_normal((n_out, rank), np.float32) / np.float32(rank)
    return _write(path, model.architecture, keys, tensors, damage)


def write_control(path: Path, model: Header, *, seed: int, strength: float = 1.0, damage: Damage | None = None) -> Path:
    """A control vector with a direction for every layer but the first."""
    random = np.random.default_rng(seed)
    keys: dict[str, Any] = {"controlvector.model_hint": model.architecture}
    tensors: dict[str, Any] = {
        f"direction.{layer}": random.standard_normal(model.n_embd, np.float32) * np.float32(strength)
        for layer in range(1, model.n_layer)
    }
    return _write(path, "controlvector", keys, tensors, damage)


def _write(path: Path, architecture: str, keys: dict[str, Any], tensors: dict[str, Any], damage: Damage | None) -> Path:
    if damage is not None:
        damage(keys, tensors)
    writer = gguf.GGUFWriter(path, keys.pop("general.architecture", architecture))
    for key, value in keys.items():
        match value:
            case str():
                writer.add_string(key, value)
            case float():
                writer.add_float32(key, value)
            case list():
                writer.add_array(key, value)
    for name, tensor in tensors.items():
        writer.add_tensor(name, np.ascontiguousarray(tensor))
    finish(writer)
    return path


def adapters_for(model: Path, folder: Path) -> list[Adapter]:
    """Two LoRAs and a control vector for a model."""
    header = read_header(model)
    files = [write_lora(folder / f"lora-{seed}.gguf", header, seed=seed) for seed in (1, 2)]
    files.append(write_control(folder / "control.gguf", header, seed=3, strength=8.0))
    return [read_adapter(file, header, name=file.stem) for file in files]
