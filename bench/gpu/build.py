"""Builds llama.cpp for one kind of GPU, or for the CPU: the library that Shepherd loads, llama-bench and llama-server.

    python -m bench.gpu.build --work FOLDER --to FILE [--cpu]

A child of `bench.gpu.run`; what `bench.rig.llama_tools` builds, from the carried source and with fewer kernels. A build
that was ended goes on.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.gpu.facts import Facts
from bench.gpu.run import known
from bench.rig import llama_tools

TARGETS = (*llama_tools.TOOLS, "llama", "mtmd")
OPTIONS = (
    "-DGGML_CCACHE=OFF",
    "-DLLAMA_BUILD_APP=OFF",
    "-DLLAMA_BUILD_UI=OFF",
    "-DLLAMA_USE_PREBUILT_UI=OFF",  # would be fetched
    "-DLLAMA_OPENSSL=OFF",
)


@dataclass(frozen=True, slots=True)
class Build:
    """How CMake is called."""

    options: tuple[str, ...]
    environment: dict[str, str]
    notes: tuple[str, ...] = ()


def cuda_build(facts: Facts, folder: Path) -> Build:
    """For this GPU alone. The library of matrix products may be outside the toolkit, with a Python package.

    folder: a place for links to it.
    Raises: `FileNotFoundError` where it is nowhere.
    """
    root = Path(facts.toolkit)
    options = [
        "-DGGML_CUDA=ON",
        f"-DCMAKE_CUDA_COMPILER={facts.nvcc}",
        f"-DCMAKE_CUDA_ARCHITECTURES={facts.capability}-real",
        "-DGGML_CUDA_FA_QUANTS=f16-f16",  # attention reads no quantised caches here: 3 of 4 of its kernels less
        "-DGGML_CUDA_NCCL=OFF",  # one GPU
    ]
    environment, notes = {}, []
    if not list(_files([root], "include/cublas_v2.h", "targets/*/include/cublas_v2.h")):
        environment["CPATH"] = str(_link_cublas(facts.packages, folder))
        options += [f"-DCUDA_{name}_LIBRARY={folder}/lib{name}.so" for name in ("cublas", "cublasLt")]
        options += [f"-DCMAKE_{kind}_LINKER_FLAGS=-Wl,-rpath-link,{folder}" for kind in ("EXE", "SHARED")]
        notes.append(f"cuBLAS is not in {root}; that of {(folder / 'libcublas.so').resolve().parent} is used")
    if not list(_files([root], "lib64/stubs/libcuda.so", "targets/*/lib/stubs/libcuda.so")):
        driver = facts.driver_library
        options.append(f"-DCUDA_cuda_driver_LIBRARY={driver}" if driver else "-DGGML_CUDA_NO_VMM=ON")
        notes.append(f"the toolkit has no stub of libcuda.so; {driver or 'the build goes without virtual memory'}")
    return Build(tuple(options), environment, tuple(notes))


def _link_cublas(packages: Iterable[str], folder: Path) -> Path:
    """Headers and libraries of a Python package under the names that compilers look for; the folder of the headers.

    Only these headers: the package's folder has those of another toolkit beside them.
    """
    header = next(_files(map(Path, packages), "nvidia/*/include/cublas_v2.h"), None)
    if header is None:
        raise FileNotFoundError(
            "cuBLAS is neither in the CUDA toolkit nor in a Python package: install libcublas-dev of this version of "
            "CUDA, or start the run with a Python that has nvidia-cublas"
        )
    include = folder / "include"
    include.mkdir(parents=True, exist_ok=True)
    pairs = [(include / each.name, each) for each in header.parent.glob("cublas*.h")]
    for name in ("cublas", "cublasLt"):
        library = next(_files([header.parent.parent], f"lib/lib{name}.so.*"))
        pairs += [(folder / f"lib{name}.so", library), (folder / library.name, library)]
    for link, target in pairs:
        link.unlink(missing_ok=True)
        link.symlink_to(target)
    return include


def _files(folders: Iterable[Path], *patterns: str) -> Iterator[Path]:
    return (path for folder in folders for pattern in patterns for path in sorted(folder.glob(pattern)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="the folder of the run")
    parser.add_argument("--to", type=Path, required=True, help="the file that gets the result")
    parser.add_argument("--cpu", action="store_true", help="without CUDA")
    said = parser.parse_args()
    found = known(said.work)
    try:
        cuda = Build((), {}) if said.cpu else cuda_build(found, said.work / "cublas")
    except FileNotFoundError as error:
        sys.exit(str(error))
    programs = filter(None, (found.cmake, found.ninja, found.nvcc))
    path = os.pathsep.join([*(str(Path(each).parent) for each in programs), os.environ.get("PATH", "")])
    ninja = ("-GNinja",) if found.ninja else ()
    llama_tools.build((*OPTIONS, *ninja, *cuda.options), TARGETS, {**cuda.environment, "PATH": path})
    said.to.write_text(json.dumps({"notes": cuda.notes}), encoding="utf-8")


if __name__ == "__main__":
    main()
