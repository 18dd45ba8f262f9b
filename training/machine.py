"""What a run needs of the machine, found before it starts: memory, disk, cores."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import psutil

MEMORY_BYTES = 4_500_000_000
"""Of each process: PyTorch itself, the activations of a batch of long conversations, and the compiler."""
BYTES_PER_PARAMETER = 4 * (3 + 2)
"""Weights, two moments, and the gradients of two processes, in float32."""
DISK_BYTES_PER_PARAMETER = 4 * 3 * 2 + 4
"""Two checkpoints, while one replaces the other, and the model files."""
SPARE_DISK_BYTES = 200_000_000


@dataclass(frozen=True, slots=True)
class Need:
    memory_bytes: int
    disk_bytes: int

    @classmethod
    def of(cls, n_parameters: int, n_processes: int) -> Need:
        return cls(
            n_processes * MEMORY_BYTES + n_parameters * BYTES_PER_PARAMETER,
            n_parameters * DISK_BYTES_PER_PARAMETER + SPARE_DISK_BYTES,
        )

    def lacking(self, folder: Path, *, memory_bytes: int | None = None, disk_bytes: int | None = None) -> list[str]:
        """A sentence for each thing that this machine has too little of. The sizes are those that are free now."""
        free_memory = psutil.virtual_memory().available if memory_bytes is None else memory_bytes
        free_disk = shutil.disk_usage(folder).free if disk_bytes is None else disk_bytes
        found = []
        if free_memory < self.memory_bytes:
            found.append(
                f"training needs {_gb(self.memory_bytes)} of memory, and {_gb(free_memory)} are free; end other "
                "programs, or train in one process (--processes 1)"
            )
        if free_disk < self.disk_bytes:
            found.append(
                f"training writes {_gb(self.disk_bytes)} to {folder}, and {_gb(free_disk)} are free; free some, or "
                "name another folder"
            )
        return found


def _gb(n_bytes: int) -> str:
    return f"{n_bytes / 1e9:.1f} GB"


def has_compiler() -> bool:
    """Whether PyTorch can compile the element-wise functions of the network."""
    return any(map(shutil.which, (os.environ.get("CXX", "g++"), "g++", "clang++")))


def n_cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
