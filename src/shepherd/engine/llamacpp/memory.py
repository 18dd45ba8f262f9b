"""The memory of this machine's GPUs."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

from shepherd.engine.llamacpp.library import C, start_library

_GPU = 1
"""ggml's number for a device with its own memory; devices that share the machine's memory have another one."""


@dataclass(frozen=True, slots=True)
class GpuMemory:
    """The memory of all GPUs together, in bytes."""

    free: int
    total: int


def gpu_memory(kind: int = _GPU) -> GpuMemory | None:
    """The memory of all devices of one kind; None if there is none, or if this build does not report it."""
    start_library()
    lib = C._lib
    try:
        get, n_devices = lib.ggml_backend_dev_get, lib.ggml_backend_dev_count
        kind_of, memory_of = lib.ggml_backend_dev_type, lib.ggml_backend_dev_memory
    except AttributeError:
        return None
    n_devices.restype = ctypes.c_size_t
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    kind_of.argtypes = [ctypes.c_void_p]
    memory_of.restype = None
    memory_of.argtypes = [ctypes.c_void_p, ctypes.POINTER(ctypes.c_size_t), ctypes.POINTER(ctypes.c_size_t)]
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    sums = [0, 0]
    for device in map(get, range(n_devices())):
        if kind_of(device) == kind:
            memory_of(device, ctypes.byref(free), ctypes.byref(total))
            sums = [sums[0] + free.value, sums[1] + total.value]
    return GpuMemory(*sums) if sums[1] else None
