"""llama.cpp in process: the only package that knows `llama_cpp`, and of that only its low-level ctypes half.

`Weights` are loaded once and shared; a `LlamaRuntime` is one `llama_context` over them: a pool of cells for many
sequences. Every C return code is checked here and becomes one of our errors; whatever would abort the process is
refused before the call; everything that llama.cpp prints goes to Python's logging.
"""

from shepherd.engine.llamacpp.library import (
    CACHE_TYPES,
    build,
    devices,
    library_path,
    quantize,
    supports_rpc,
    system_info,
)
from shepherd.engine.llamacpp.runtime import ContextOptions, LlamaRuntime, default_threads, flash_attention
from shepherd.engine.llamacpp.sampler import LlamaSampler
from shepherd.engine.llamacpp.weights import Weights

__all__ = [
    "CACHE_TYPES",
    "ContextOptions",
    "LlamaRuntime",
    "LlamaSampler",
    "Weights",
    "build",
    "default_threads",
    "devices",
    "flash_attention",
    "library_path",
    "quantize",
    "supports_rpc",
    "system_info",
]
