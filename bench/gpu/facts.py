"""What a machine has for a CUDA build, and what it lacks, in sentences. Standard library only.

nvidia-smi, nvcc, cmake, ninja ─ look ─▶ Facts ─ problems ─▶ sentences
                                         Facts ─ cuda_options ─▶ options for CMake
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

GIB = 1 << 30
LEAST_DISK, LEAST_MEMORY = 8 * GIB, 6 * GIB
"""For the build and the smallest models; others are looked at one by one."""
LEAST_CMAKE = (3, 18)
LEAST_CAPABILITY = {13: 75, 12: 50}
"""By the major version of nvcc, the oldest kind of GPU that it makes programs for."""
LOOK_S = 60


@dataclass(frozen=True, slots=True)
class Facts:
    """None or empty: it is not there."""

    gpu: str = ""
    capability: int = 0
    """90 for compute capability 9.0."""
    gpu_bytes: int = 0
    driver: str = ""
    driver_library: str = ""
    """The path of its `libcuda.so.1`."""
    driver_cuda: tuple[int, int] | None = None
    """The newest CUDA that the driver runs."""
    nvcc: str = ""
    nvcc_cuda: tuple[int, int] | None = None
    toolkit: str = ""
    """The folder of nvcc's headers and libraries; nvcc itself may be a script elsewhere."""
    cmake: str = ""
    cmake_version: tuple[int, int] | None = None
    ninja: str = ""
    cxx: str = ""
    cores: int = 0
    memory_bytes: int = 0
    disk_bytes: int = 0
    """Free, where the run works."""
    python: tuple[int, int] = (0, 0)
    packages: tuple[str, ...] = ()
    """Where that Python looks for packages: one may be NVIDIA's cuBLAS."""
    cpu: str = ""


def look(folder: Path) -> Facts:
    """Of this machine. `folder`: where the run works."""
    gpu = said_by(
        "nvidia-smi", "--query-gpu=name,compute_cap,memory.total,driver_version", "--format=csv,noheader,nounits"
    )
    name, capability, mib, driver = _gpu(gpu)
    nvcc, cmake = find("nvcc"), find("cmake")
    return Facts(
        gpu=name, capability=capability, gpu_bytes=mib << 20, driver=driver, driver_library=_loaded("libcuda.so.1"),
        driver_cuda=_version(r"CUDA Version:\s*(\d+)\.(\d+)", said_by("nvidia-smi")),
        nvcc=nvcc, nvcc_cuda=_version(r"release (\d+)\.(\d+)", said_by(nvcc, "--version")), toolkit=_toolkit(nvcc),
        cmake=cmake, cmake_version=_version(r"version (\d+)\.(\d+)", said_by(cmake, "--version")),
        ninja=find("ninja"), cxx=find("c++") or find("g++"),
        cores=len(os.sched_getaffinity(0)), memory_bytes=_memory(), disk_bytes=shutil.disk_usage(folder).free,
        python=sys.version_info[:2], packages=tuple(sys.path), cpu=_cpu(),
    )  # fmt: skip


def problems(facts: Facts, *, cpu: bool, python: tuple[int, int]) -> list[str]:
    """What has to be mended before a run. `python`: the version that the carried packages are for."""
    found = []
    if not facts.cmake:
        found.append("CMake is not there: install cmake, or put the folder of one on PATH")
    elif facts.cmake_version is not None and facts.cmake_version < LEAST_CMAKE:
        found.append(f"CMake is {_dotted(facts.cmake_version)}, and llama.cpp needs {_dotted(LEAST_CMAKE)} or later")
    if not facts.cxx:
        found.append("a C++ compiler is not there: install g++")
    if facts.python != python:
        found.append(
            f"the packages in the carried archive are for Python {_dotted(python)}, and this is "
            f"{_dotted(facts.python)}: start the run with python{_dotted(python)}, or pack again with "
            f"--python {_dotted(facts.python)}"
        )
    for what, has, least in (("disk", facts.disk_bytes, LEAST_DISK), ("memory", facts.memory_bytes, LEAST_MEMORY)):
        if has < least:
            found.append(f"{has / GIB:.1f} GiB of {what} are free, and the smallest run needs {least / GIB:.0f} GiB")
    return found if cpu else found + _cuda_problems(facts)


def _cuda_problems(facts: Facts) -> list[str]:
    found = []
    if not facts.gpu:
        found.append("nvidia-smi lists no GPU: this needs a machine with one and its driver (--cpu runs without)")
    if facts.nvcc_cuda is None:
        found.append("nvcc is not there: install the CUDA toolkit, or set CUDA_HOME to its folder")
        return found
    newest = facts.driver_cuda
    if newest is not None and newest[0] < facts.nvcc_cuda[0]:
        found.append(
            f"driver {facts.driver} runs CUDA up to {_dotted(newest)}, and nvcc makes programs for "
            f"{_dotted(facts.nvcc_cuda)}: install a newer driver, or put an nvcc of CUDA {newest[0]} first on PATH"
        )
    least = LEAST_CAPABILITY.get(facts.nvcc_cuda[0], 0)
    if facts.gpu and facts.capability < least:
        found.append(
            f"{facts.gpu} has compute capability {facts.capability / 10}, and nvcc {_dotted(facts.nvcc_cuda)} makes "
            f"programs for {least / 10} and later: use an older CUDA toolkit"
        )
    return found


def lines(facts: Facts, *, cpu: bool) -> list[str]:
    """The machine in words, one thing a line."""
    said = [
        f"CPU: {facts.cpu}, {facts.cores} cores, {facts.memory_bytes / GIB:.0f} GiB free, "
        f"{facts.disk_bytes / GIB:.0f} GiB of disk free",
        f"CMake {_dotted(facts.cmake_version)}, Ninja: {facts.ninja or 'not there, Make is used in its place'}",
    ]
    if cpu:
        return said
    gpu = f"GPU: {facts.gpu}, compute capability {facts.capability / 10}, {facts.gpu_bytes / GIB:.0f} GiB"
    return [f"{gpu}, driver {facts.driver} (CUDA {_dotted(facts.driver_cuda)}), nvcc {_dotted(facts.nvcc_cuda)}", *said]


def find(program: str) -> str:
    """The path of a program: on PATH, beside this Python, or where CUDA is installed; empty if there is none."""
    homes = [os.environ.get(name, "") for name in ("CUDA_HOME", "CUDA_PATH")]
    cuda = [*filter(None, homes), "/usr/local/cuda", *sorted(map(str, Path("/usr/local").glob("cuda-*")), reverse=True)]
    places = [os.environ.get("PATH", ""), str(Path(sys.executable).parent), *(f"{home}/bin" for home in cuda)]
    return shutil.which(program, path=os.pathsep.join(places)) or ""


# -- what programs say ---------------------------------------------------------------------------------------------


def said_by(*command: str) -> str:
    """What a program prints; empty if it is not there, fails or takes a minute."""
    if not command[0]:
        return ""
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LOOK_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout


def _gpu(said: str) -> tuple[str, int, int, str]:
    """Name, compute capability, MiB and driver of the first GPU; nothing where no line is as expected."""
    found = re.search(r"^(.+), (\d+)\.(\d+), (\d+), ([\d.]+)$", said, re.MULTILINE)
    return (found[1], int(found[2] + found[3]), int(found[4]), found[5]) if found else ("", 0, 0, "")


def _toolkit(nvcc: str) -> str:
    """As nvcc itself says where it is."""
    found = re.search(r"^#\$ TOP=(.+)$", said_by(nvcc, "--dryrun", "-x", "cu", "-E", os.devnull), re.MULTILINE)
    return os.path.realpath(found[1]) if found else ""


def _loaded(library: str) -> str:
    """Where the system's loader finds a library; empty if nowhere."""
    folders = [Path(each) for each in os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep) if each]
    said = re.search(rf"{re.escape(library)} .*=> (\S+)", said_by("ldconfig", "-p"))
    found = [*(str(each / library) for each in folders if (each / library).exists()), *([said[1]] if said else [])]
    return found[0] if found else ""


def _version(pattern: str, said: str) -> tuple[int, int] | None:
    found = re.search(pattern, said)
    return (int(found[1]), int(found[2])) if found else None


def _dotted(version: tuple[int, int] | None) -> str:
    return "unknown" if version is None else f"{version[0]}.{version[1]}"


def _memory() -> int:
    found = re.search(r"MemAvailable:\s*(\d+) kB", Path("/proc/meminfo").read_text(encoding="utf-8"))
    return int(found[1]) << 10 if found else 0


def _cpu() -> str:
    found = re.search(r"model name\s*:\s*(.*)", Path("/proc/cpuinfo").read_text(encoding="utf-8"))
    return found[1] if found else platform.machine()
