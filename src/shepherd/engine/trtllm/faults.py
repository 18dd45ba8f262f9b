"""What to do about an error of the library: it names a cause deep inside of CUDA, and a person needs the cure.

The words were taken from the documentation of CUDA, TensorRT and Open MPI; no error of the real library was seen here.
What no row knows is passed on as it is.
"""

from __future__ import annotations

import re

CURES: tuple[tuple[str, str], ...] = (
    (
        r"driver version is insufficient|unsupported (?:toolchain|PTX)|lib(?:cudart|cublas|nvrtc|cudnn)\w*\.so",
        "the library is for another version of CUDA than this machine has: update the NVIDIA driver, or install the "
        "library's build for it",
    ),
    (
        r"no NVIDIA driver|no CUDA[- ]capable|no CUDA GPUs|NVML|libcuda\.so|CUDA driver initialization failed",
        "no NVIDIA GPU can be used here: check it with nvidia-smi, or run a GGUF file of the model with llama.cpp",
    ),
    (
        r"out of memory|OutOfMemory|cudaMalloc|insufficient memory|not enough memory",
        "the model does not fit the GPUs: choose a smaller n_ctx or gpu_memory, end what else runs on them, or use "
        "more GPUs",
    ),
    (
        r"(?i:serializ|version tag|engine plan|built (?:for|with) (?:a )?(?:different|another)|compute capability)",
        "the engine was built for another version of TensorRT or another GPU: build it again on this machine",
    ),
    (
        r"(?i:world[ _]size|tensor_parallel|tp_size|invalid device ordinal|number of GPUs)",
        "the model is split over another number of GPUs than there is: check gpus in [tensorrt], and nvidia-smi",
    ),
    (
        r"libmpi|mpi4py|MPI_ERR_SPAWN|Open ?MPI",
        "the library needs Open MPI: install it (apt install openmpi-bin), and do not mix it with another MPI",
    ),
)
"""Pattern of the library's words -> the cure."""


def with_cure(words: str) -> str:
    """The library's words, and what to do where it is known."""
    found = next((cure for pattern, cure in CURES if re.search(pattern, words)), "")
    return f"{words.rstrip('. ')}; {found}" if found else words
