"""Adapters: GGUF files that change what a model computes, without a copy of its weights. Read before the model is.

A LoRA adds a product of two small matrices to some of the model's; a control vector adds a direction to the state
behind each layer. The library compares less than it needs: what it only asserts is compared here.
"""

from __future__ import annotations

import hashlib
import logging
import re
from pathlib import Path
from typing import Literal

from shepherd.core.dataclasses import dataclass, replace
from shepherd.models.gguf import Header
from shepherd.models.gguf_file import FileHeader, Tensor, read_file, refuse

logger = logging.getLogger(__name__)

_PART = re.compile(r"(.+)\.lora_([ab])")
_DIRECTION = re.compile(r"direction\.(\d{1,4})")
_NUMBERS = frozenset({"f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1"})
"""Number formats of the matrices of a LoRA."""


@dataclass(frozen=True, slots=True)
class Adapter:
    """One adapter of a model, and how the configuration uses it."""

    name: str
    path: Path
    kind: Literal["lora", "control"]
    n_bytes: int
    """Memory that it takes."""
    scale: float = 1.0
    applies: bool = True
    """Requests that choose no adapters get it."""
    layers: tuple[int, int] = (0, 0)
    """Of a control vector: the first and the last layer that it is added behind."""
    directions: tuple[tuple[int, int], ...] = ()
    """Of a control vector: layers, each with the offset of its numbers in the file."""

    def hash(self) -> str:
        """Of all that decides what it adds, but its scale; reads the whole file. Raises: `OSError`."""
        sha = hashlib.sha256(repr((self.kind, self.layers)).encode())
        with self.path.open("rb") as file:
            sha.update(hashlib.file_digest(file, "sha256").digest())
        return sha.hexdigest()[:32]


def read_adapter(
    path: Path,
    model: Header,
    *,
    name: str,
    scale: float = 1.0,
    applies: bool = True,
    layers: tuple[int, int] | None = None,
) -> Adapter:
    """The adapter in a file. Raises: `ConfigError`, in one sentence, for what does not fit the model.

    layers: for a control vector, the first and the last layer, from 1 on; None = all.
    """
    head = read_file(path)
    made = Adapter(name, path, "lora", 0, scale, applies)
    if head.metadata.get("general.architecture") == "controlvector":
        return _control_vector(made, head, model, layers)
    if layers is not None:
        refuse(path, "is no control vector, so layers cannot be chosen; leave layers out")
    return _lora(made, head, model)


def _lora(made: Adapter, head: FileHeader, model: Header) -> Adapter:
    path, facts = made.path, head.metadata
    architecture, kind = facts.get("general.architecture"), facts.get("adapter.type")
    if facts.get("general.type") != "adapter":
        what = f"is a model ({architecture})" if head.tensors else "holds no tensors"
        refuse(path, f"{what}, not an adapter; name a GGUF file made by convert_lora_to_gguf.py, or a control vector")
    if architecture != model.architecture:
        refuse(path, f"is an adapter for {architecture} models, but {model.path.name} is a {model.architecture} model")
    if kind != "lora":
        refuse(path, f"is an adapter of the type {kind!r}; only LoRA adapters and control vectors can be used")
    if "adapter.alora.invocation_tokens" in facts:
        refuse(path, "is an activated LoRA (aLoRA), which Shepherd does not support; use a LoRA, or merge it")
    pairs: dict[str, dict[str, Tensor]] = {}
    for tensor_name, tensor in head.tensors.items():
        if (part := _PART.fullmatch(tensor_name)) is not None:
            pairs.setdefault(part[1], {})[part[2]] = tensor
        elif not tensor_name.endswith("_norm.weight"):
            refuse(path, f"has the tensor {tensor_name[:80]!r}, which is no part of a LoRA")
    odd = next((name for name, tensor in head.tensors.items() if tensor.kind not in _NUMBERS), None)
    if odd is not None:
        refuse(path, f"has {odd[:80]!r} in the number format {head.tensors[odd].kind}; convert it again, to f16 or f32")
    if not pairs:
        refuse(path, "has no matrices of a LoRA; convert it again")
    if len(head.tensors) > sum(map(len, pairs.values())):
        logger.warning("%s changes norms, too; llama.cpp leaves that out", path.name)
    for tensor_name, pair in pairs.items():
        if fault := _misfit(tensor_name, pair, model):
            refuse(path, f"does not fit {model.path.name}: {fault}; it was made for another model")
    used = (tensor for pair in pairs.values() for tensor in pair.values())
    return replace(made, n_bytes=sum(tensor.n_bytes for tensor in used))


def _misfit(name: str, pair: dict[str, Tensor], model: Header) -> str:
    """Why a pair cannot be added to the model's matrix of that name; empty if it can."""
    if len(pair) < 2:
        return f"one of the two matrices of {name!r} is missing"
    base, a, b = model.tensors.get(name), pair["a"], pair["b"]
    if base is None:
        return f"the model has no tensor {name!r}"
    if base.kind == "nvfp4":
        return f"{name!r} is in the format nvfp4, which llama.cpp adds nothing to"
    if name == "token_embd.weight":
        if "output.weight" not in model.tensors:
            return "it changes token_embd.weight, which is the output of this model as well"
        a, b = _turned(b), a  # a lookup takes rows of the first
    (n_in, n_out, *rest), (a_in, rank, *rest_a), (b_rank, b_out, *rest_b) = map(_dims, (base, a, b))
    if (a_in, b_out) != (n_in, n_out) or rest_a != rest or rest_b != rest:
        return f"{name!r} is {n_in} x {n_out}, and the adapter is for {a_in} x {b_out}"
    return "" if rank == b_rank > 0 else f"the two matrices of {name!r} have the ranks {rank} and {b_rank}"


def _dims(tensor: Tensor) -> tuple[int, ...]:
    """Four of them: those that a file leaves out are 1."""
    return (*tensor.dims, 1, 1, 1, 1)[:4]


def _turned(tensor: Tensor) -> Tensor:
    first, second, *rest = _dims(tensor)
    return Tensor(tensor.kind, (second, first, *rest), tensor.n_values, tensor.n_bytes, tensor.offset)


def _control_vector(made: Adapter, head: FileHeader, model: Header, layers: tuple[int, int] | None) -> Adapter:
    path, hint = made.path, head.metadata.get("controlvector.model_hint")
    last = model.n_layer - 1
    if isinstance(hint, str) and hint not in ("", model.architecture):
        refuse(path, f"is a control vector for {hint} models, but {model.path.name} is a {model.architecture} model")
    alignment = int(head.metadata.get("general.alignment", 32))
    start = -(-head.head_bytes // alignment) * alignment
    found: list[tuple[int, int]] = []
    for name, tensor in head.tensors.items():
        layer = int(match[1]) if (match := _DIRECTION.fullmatch(name)) else 0
        if layer < 1 or tensor.kind != "f32":
            refuse(path, f"has the tensor {name[:80]!r}, which is no direction of a layer in float32")
        if _dims(tensor) != (model.n_embd, 1, 1, 1) or layer > last:
            refuse(
                path,
                f"does not fit {model.path.name}: a direction of {tensor.n_values} numbers for layer {layer}, where "
                f"the model has {model.n_embd} numbers and the layers 1 to {last}; it was made for another model",
            )
        found.append((layer, start + tensor.offset))
    if not found:
        refuse(path, "holds no directions; make the control vector again")
    first, stop = layers or (1, last)
    if not 1 <= first <= stop <= last:
        refuse(path, f"layers is [{first}, {stop}], but {model.path.name} has the layers 1 to {last}")
    kept = tuple((layer, offset) for layer, offset in found if first <= layer <= stop)
    return replace(made, kind="control", n_bytes=4 * model.n_embd * last, layers=(first, stop), directions=kept)
