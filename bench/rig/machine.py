"""What every result is dated and signed with: the machine and the versions it was measured on."""

from __future__ import annotations

import json
import os
import platform
import tempfile
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

BENCH = Path(__file__).parents[1]
ROOT = BENCH.parent
RESULTS = BENCH / "results"
EMBEDDED = ROOT / "src" / "shepherd" / "models" / "lamb.gguf"
SHARED = ROOT.parent / "shared"
"""Data that a clone may lack."""


def facts() -> dict[str, str]:
    """Date, processor, cores, load and versions."""
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        lines = info.read_text().splitlines()
        cpu = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), cpu)
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "cpu": cpu,
        "cores": str(os.cpu_count()),
        "load": f"{os.getloadavg()[0]:.2f}",
        "python": platform.python_version(),
        "llama-cpp-python": version("llama-cpp-python"),
        "shepherd": version("shepherd"),
    }


def save(name: str, result: dict[str, Any], *, quick: bool = False) -> Path:
    """Write a result beside its machine's facts, dated; the path. A `quick` one goes to a new folder instead."""
    if quick:
        path = Path(tempfile.mkdtemp(prefix="shepherd-bench-")) / f"{name}.json"
    else:
        RESULTS.mkdir(exist_ok=True)
        path = RESULTS / f"{name}-{datetime.now(UTC):%Y-%m-%d}.json"
    path.write_text(json.dumps({"machine": facts(), **result}, indent=2) + "\n")
    return path
