"""Errors of the library get their cure. The words are those of CUDA and TensorRT as documented, not seen here."""

from __future__ import annotations

import pytest

from shepherd.engine.trtllm.library import CURES, with_cure

WORDS = (
    ("CUDA driver version is insufficient for CUDA runtime version", "update the NVIDIA driver"),
    ("ImportError: libcublasLt.so.13: cannot open shared object file", "update the NVIDIA driver"),
    ("RuntimeError: Found no NVIDIA driver on your system.", "check it with nvidia-smi"),
    ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", "a smaller n_ctx or gpu_memory"),
    ("The engine plan file is not compatible with this version of TensorRT", "build it again on this machine"),
    ("Serialization assertion stdVersionRead == kSERIALIZATION_VERSION failed. Version tag does not match", "build it"),
    ("CUDA error: invalid device ordinal", "check gpus in [tensorrt]"),
    ("MPI_ERR_SPAWN: could not spawn processes", "install it (apt install openmpi-bin)"),
)


@pytest.mark.parametrize(("words", "cure"), WORDS)
def test_the_words_of_the_library_are_kept_and_the_cure_follows(words: str, cure: str) -> None:
    told = with_cure(words)
    assert told.startswith(words.rstrip("."))
    assert cure in told


def test_each_cure_has_an_example_and_other_words_stay_as_they_are() -> None:
    assert with_cure("KeyError: 'x'") == "KeyError: 'x'"
    told = [with_cure(words) for words, _ in WORDS]
    assert all(any(cure in each for each in told) for _, cure in CURES)
