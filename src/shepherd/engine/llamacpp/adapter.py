"""Adapters in memory: LoRAs as the library keeps them, control vectors as numbers, and what a context adds of them.

    Adapter ─ load ─▶ Lora | ControlVector ─ apply(scales) ─▶ every decode of the context, until the next `apply`

A LoRA is bound to the weights that it was loaded for, and freed with them. Not here: whether a file fits its model
(`models/adapter.py`), which set is whose (`engine/base.Owner`).
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

from shepherd.core import EngineError
from shepherd.engine.llamacpp.library import C, reason_from, start_library
from shepherd.models.adapter import Adapter

_FLOAT_P = ctypes.POINTER(ctypes.c_float)


class Lora(NamedTuple):
    handle: Any


class ControlVector(NamedTuple):
    """A direction for each layer but the first."""

    directions: Any
    """float32 [layers - 1, size of the state]; zeros where nothing is added."""


def load(model: int, adapter: Adapter) -> Lora | ControlVector:
    """Load an adapter for the weights with this handle, before a context is made for them: the library plans a context
    for all that is loaded. Raises: `EngineError` with the library's reason."""
    if adapter.kind == "control":
        return _read_control_vector(model, adapter)
    log = start_library()
    log.errors.clear()
    handle = C.llama_adapter_lora_init(model, os.fsencode(adapter.path))
    if not handle:
        raise EngineError(f"{adapter.path.name} cannot be loaded{reason_from(log)}")
    return Lora(handle)


def _read_control_vector(model: int, adapter: Adapter) -> ControlVector:
    import numpy as np  # noqa: PLC0415 - few models have one

    n_layer, n_embd = C.llama_model_n_layer(model), C.llama_model_n_embd(model)
    directions = np.zeros((n_layer - 1, n_embd), np.float32)
    try:
        for layer, offset in adapter.directions:
            directions[layer - 1] += np.fromfile(adapter.path, "<f4", n_embd, offset=offset)
    except (OSError, ValueError) as error:  # the file has changed since its header was read
        raise EngineError(f"{adapter.path.name} cannot be read: {error}") from error
    return ControlVector(directions)


def apply(context: Any, adapters: Sequence[tuple[Lora | ControlVector, float]]) -> None:
    """From now on the context computes with these and no others, each with its scale. Raises: `EngineError`."""
    loras = [(each.handle, scale) for each, scale in adapters if isinstance(each, Lora)]
    handles = (C.llama_adapter_lora_p_ctypes * len(loras))(*(handle for handle, _ in loras))
    scales = (ctypes.c_float * len(loras))(*(scale for _, scale in loras))
    if C.llama_set_adapters_lora(context, handles, len(loras), scales):
        raise EngineError("llama.cpp could not use the LoRA adapters")
    total: Any = None
    for each, scale in adapters:
        if isinstance(each, ControlVector):
            # In float32, as llama.cpp scales it.
            scaled = each.directions * each.directions.dtype.type(scale)
            total = scaled if total is None else total + scaled
    if total is None:
        failed = C.llama_set_adapter_cvec(context, None, 0, 0, 0, 0)
    else:
        n_layers, n_embd = total.shape
        data = total.ctypes.data_as(_FLOAT_P)
        failed = C.llama_set_adapter_cvec(context, data, total.size, n_embd, 1, n_layers)
    if failed:
        raise EngineError(f"llama.cpp could not use the control vectors{reason_from(start_library())}")
