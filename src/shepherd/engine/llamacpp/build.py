"""How the native library is built: the switches that we want, and what each kind of device needs.

    seen files ─▶ `devices_seen` ─▶ a row of BACKENDS ─▶ its switches, the programs that it needs, a hint without them

The table is the only place that knows llama.cpp's switches. pyproject.toml has VARIABLES as well, for uv in a
checkout; a test compares them. Not here: the programs that build (`cli/command/build.py`). Imports nothing of the
library: it can be built where it does not load.
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

PACKAGE = "llama-cpp-python"

VARIABLES: Mapping[str, str] = {
    # llama.cpp's own CMake file: that of the bindings also compiles what nothing here loads, a third of the time.
    "SKBUILD_CMAKE_SOURCE_DIR": "vendor/llama.cpp",
    "SKBUILD_WHEEL_INSTALL_DIR": "llama_cpp",
    "SKBUILD_CMAKE_ARGS": ";".join(
        (
            # GCC before 14 drops the stores that set up AMX tiles: every quantised model would crash at its first
            # decode (`selftest.py`). Clang does not know the two flags, and stops at them.
            "-DCXX_FLAGS=$<$<CXX_COMPILER_ID:GNU>:-fno-tree-dse$<SEMICOLON>-fno-dse>",
            "-DGGML_RPC=ON",  # one model over several machines
            "-DBUILD_SHARED_LIBS=ON",
            "-DLLAMA_BUILD_MTMD=ON",  # images and sound
            *(f"-DLLAMA_BUILD_{part}=OFF" for part in ("COMMON", "TOOLS", "TESTS", "EXAMPLES", "SERVER", "APP")),
            "-DCMAKE_INSTALL_LIBDIR=lib",
            "-DCMAKE_INSTALL_RPATH=$<IF:$<PLATFORM_ID:Darwin>,@loader_path,$ORIGIN>",  # the libraries find each other
        )
    ),
}
"""scikit-build-core reads these beside CMAKE_ARGS, which stays a person's own."""


class Needed(NamedTuple):
    """A program without which a build fails."""

    names: tuple[str, ...]
    """Any of these."""
    variable: str
    """An environment variable that may name it instead."""
    hint: str
    """What has it, and how it is installed."""
    folders: tuple[str, ...] = ()
    """Where it is often, beside PATH."""

    def find(self, env: Mapping[str, str]) -> str | None:
        """Where it is; None if it is nowhere."""
        path = os.pathsep.join((env.get("PATH", os.defpath), *self.folders))
        return env.get(self.variable) or next(
            filter(None, (shutil.which(name, path=path) for name in self.names)), None
        )


class Backend(NamedTuple):
    """A kind of device."""

    title: str
    switch: str
    needs: tuple[Needed, ...]
    gigabytes: int
    """Of the disk, while it is built."""
    seen: tuple[str, ...] = ()
    """Patterns of files below the root of the file system; one that exists says that the machine has such a device."""
    time: str = "a few minutes on two cores"


_COMPILER = Needed(
    ("c++", "g++", "clang++"), "CXX", "a C++ compiler: apt-get install g++, dnf install gcc-c++, xcode-select --install"
)
_NVCC = Needed(
    ("nvcc",), "CUDACXX", "NVIDIA's CUDA toolkit: apt-get install nvidia-cuda-toolkit, or from NVIDIA's pages",
    ("/usr/local/cuda/bin", "/opt/cuda/bin"),
)  # fmt: skip
_HIPCC = Needed(("hipcc",), "HIPCXX", "AMD's ROCm with its HIP compiler, from AMD's pages", ("/opt/rocm/bin",))
_GLSLC = Needed(
    ("glslc",),
    "VULKAN_SDK",
    "the Vulkan SDK: apt-get install libvulkan-dev glslc spirv-headers, or from LunarG's pages",
)

BACKENDS: Mapping[str, Backend] = {
    "cuda": Backend(
        "NVIDIA GPU", "-DGGML_CUDA=ON", (_COMPILER, _NVCC), 4,
        ("dev/nvidia[0-9]*", "dev/nvhost-gpu", "usr/lib/wsl/lib/libcuda.so*", "Windows/System32/nvcuda.dll"),
        "10 to 60 minutes, by the number of cores",
    ),
    "rocm": Backend("AMD GPU", "-DGGML_HIP=ON", (_COMPILER, _HIPCC), 4, ("dev/kfd",), "10 to 60 minutes"),
    "vulkan": Backend(
        "GPU with Vulkan", "-DGGML_VULKAN=ON", (_COMPILER, _GLSLC), 2, ("dev/dri/renderD*",), "10 to 20 minutes"
    ),
    "metal": Backend("Apple GPU", "-DGGML_METAL=ON", (_COMPILER,), 1),
    "cpu": Backend("CPU", "-DGGML_METAL=OFF", (_COMPILER,), 1),
}  # fmt: skip
"""By name, the one to prefer first."""


def devices_seen(
    root: Path | None = None, *, system: str = sys.platform, machine: str | None = None
) -> Iterator[tuple[str, str]]:
    """The names of back ends whose devices this machine has, and what shows it. Loads no driver, starts no program."""
    root = root or Path(Path.home().anchor)
    for name, backend in BACKENDS.items():
        found = next((path for pattern in backend.seen for path in sorted(root.glob(pattern))), None)
        if found is not None:
            yield name, str(found)
    if system == "darwin" and (machine or platform.machine()) == "arm64":
        yield "metal", "an Apple processor"


def built_for(folder: Path) -> tuple[str, ...]:
    """The names of the back ends besides the CPU that the libraries in `folder` have."""
    files = {"cuda": "cuda", "rocm": "hip", "vulkan": "vulkan", "metal": "metal"}
    return tuple(name for name, part in files.items() if any(folder.glob(f"*ggml-{part}.*")))


def missing(backend: Backend, env: Mapping[str, str]) -> list[str]:
    """A hint for each program that a build for `backend` needs and that is not here."""
    found: list[str] = []
    if sys.platform == "win32":  # CMake finds Microsoft's compiler, which is on no PATH
        return found
    return [need.hint for need in backend.needs if need.find(env) is None]


def variables(backend: Backend, env: Mapping[str, str]) -> dict[str, str]:
    """What a build for `backend` needs in its environment, over `env`: a person's own CMAKE_ARGS come last, and win."""
    made = {"CMAKE_ARGS": f"{backend.switch} {env.get('CMAKE_ARGS', '')}".strip()}
    path = env.get("PATH", os.defpath)
    found = filter(None, (need.find(env) for need in backend.needs if need.folders))
    beside = [str(Path(each).parent) for each in found if shutil.which(Path(each).name, path=path) is None]
    return made | ({"PATH": os.pathsep.join((path, *beside))} if beside else {})
