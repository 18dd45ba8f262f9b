"""Builds llama-bench and llama-server from the llama.cpp tree inside the llama-cpp-python sdist, with our own flags.

    uv run python -m bench.rig.llama_tools

The sdist is the one whose library we run, so both sides of every comparison are the same source, compiler and options.
Takes about ten minutes on two cores, once; the programs stay in the user's cache folder.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import platformdirs

FLAGS = "-fno-tree-dse -fno-dse"
"""As in pyproject.toml."""
TOOLS = ("llama-bench", "llama-server")
OPTIONS = [
    "-DCMAKE_BUILD_TYPE=Release",
    "-DBUILD_SHARED_LIBS=ON",
    "-DGGML_RPC=ON",
    "-DLLAMA_CURL=OFF",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
    f"-DCMAKE_C_FLAGS={FLAGS}",
    f"-DCMAKE_CXX_FLAGS={FLAGS}",
]


def folder() -> Path:
    """Where everything that benchmarks build or make is kept."""
    return Path(platformdirs.user_cache_dir("shepherd-bench"))


def tool(name: str) -> Path:
    """The path of `llama-bench` or `llama-server`, built when it is missing."""
    program = folder() / "build" / "bin" / name
    if not program.exists():
        build()
        assert program.exists()
    return program


def source() -> Path:
    """The folder of llama.cpp's own source, fetched when it is missing."""
    path = folder() / "src"
    if not path.is_dir():
        _fetch(path)
    return path


def build(
    options: Sequence[str] = (), targets: Sequence[str] = TOOLS, environment: Mapping[str, str] | None = None
) -> None:
    """Configure and compile, with `options` more; a build that was ended goes on."""
    into = folder() / "build"
    variables = {**os.environ, **(environment or {})}
    subprocess.run(["cmake", "-S", source(), "-B", into, *OPTIONS, *options], check=True, env=variables)
    jobs = str(os.cpu_count() or 1)
    subprocess.run(["cmake", "--build", into, "--target", *targets, "-j", jobs], check=True, env=variables)


def llama_bench(path: Path, options: Mapping[str, object]) -> list[dict[str, Any]]:
    """What llama-bench says of a model file: a row for each test."""
    command = [tool("llama-bench"), "-m", path, "-o", "json", *(part for pair in options.items() for part in pair)]
    done = subprocess.run([*map(str, command)], check=True, capture_output=True, text=True)
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    return rows


def _fetch(target: Path) -> None:
    wanted = f"llama-cpp-python=={version('llama-cpp-python')}"
    download = folder() / "sdist"
    download.mkdir(parents=True, exist_ok=True)
    pip = [sys.executable, "-m", "pip"] if shutil.which("uv") is None else ["uv", "run", "--with", "pip", "pip"]
    subprocess.run([*pip, "download", "--no-deps", "--no-binary", ":all:", "-d", download, wanted], check=True)
    archive = next(download.glob("llama_cpp_python-*.tar.gz"))
    with tarfile.open(archive) as tar:
        tar.extractall(download, filter="data")
    tree = next(path for path in download.glob("llama_cpp_python-*/vendor/llama.cpp") if path.is_dir())
    tree.rename(target)


if __name__ == "__main__":
    for name in TOOLS:
        print(tool(name))
