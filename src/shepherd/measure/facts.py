"""What a report is signed with: the machine, the build, the model, the settings."""

from __future__ import annotations

import os
import platform
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil

import shepherd
from shepherd.engine.llamacpp import library, selftest
from shepherd.engine.llamacpp.machine import hardware
from shepherd.measure.subject import Subject


def load() -> float:
    """Processes that wanted a processor, as the mean of the last minute."""
    return round(psutil.getloadavg()[0], 2)


def machine() -> dict[str, Any]:
    """The facts that stay the same between two runs, and an id of them."""
    return {
        "id": hardware(),
        "cpu": _cpu(),
        "cores": psutil.cpu_count(logical=False),
        "processors": os.cpu_count() or 1,
        "memory_bytes": psutil.virtual_memory().total,
        "gpus": list(library.devices()),
        "system": platform.platform(),
    }


def build() -> dict[str, Any]:
    return {
        "shepherd": shepherd.__version__,
        "llama-cpp-python": version("llama-cpp-python"),
        "library": selftest.build_id(),
        "python": platform.python_version(),
    }


def model(subject: Subject) -> dict[str, Any]:
    header = subject.header
    return {
        "name": subject.name,
        "file": header.path.name,
        "digest": header.digest()[:16],
        "architecture": header.architecture,
        "type": header.file_type,
        "params": header.n_params,
        "size_bytes": header.size_bytes,
    }


def settings(subject: Subject) -> dict[str, Any]:
    """How the model runs; None = what the library chooses."""
    return asdict(subject.start)


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())
