"""A FAKE of NVIDIA's `tensorrt_llm`, for tests: no GPU, no weights, no TensorRT. Nothing here is NVIDIA's code.

It is strict where the real package is strict, and has its traps (spec/tensorrt.md, section 1):

    import            a banner on stdout; TLLM_LOG_LEVEL read once; with mpi4py a collective call of all ranks
    LLM(...)          `signatures.py`: arguments are bound to the real signatures; the class must suit the directory
    generate_async    results that are one object, cumulative tokens, text that shrinks at a stop (`executor.py`)
    reuse, events     a prefix index of blocks with leaf-first eviction, its events in the real JSON (`blocks.py`)
    the model         a rule that answers by a script, from the prompt, with real sampling and grammars (`model.py`)

Put the folder above this one on PYTHONPATH, and the fake is `tensorrt_llm`. What it does beyond the real package is
read from `fake.json` in the model's directory (`settings.py`). FAKE_TRTLLM_VERSION chooses the signatures (those of
1.2.1 or of 1.3) and what the sampler for checkpoints ignores; TLLM_DISABLE_MPI=1 leaves MPI out, as in the real one.
"""

import os

from .settings import VERSION as __version__

LOG_LEVEL = os.environ.get("TLLM_LOG_LEVEL", "info")
"""Read here and never again, as the real logger does."""


def _join_ranks() -> None:
    """What the import of the real package does with MPI: a collective call, so every rank must import it."""
    if os.environ.get("TLLM_DISABLE_MPI") == "1":
        return
    try:
        from mpi4py import MPI
    except ImportError:
        return
    MPI.COMM_WORLD.Split_type(9)  # OMPI_COMM_TYPE_HOST: Open MPI only


print(f"[TensorRT-LLM] TensorRT LLM version: {__version__} (a fake for tests)", flush=True)
_join_ranks()

from .executor import RequestError  # noqa: E402 - the import above comes first in the real package too
from .llmapi import LLM, GuidedDecodingParams, KvCacheConfig, SamplingParams  # noqa: E402

__all__ = ["LLM", "LOG_LEVEL", "GuidedDecodingParams", "KvCacheConfig", "RequestError", "SamplingParams", "__version__"]
