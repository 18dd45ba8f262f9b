"""llama.cpp in process: the only package that uses `llama_cpp`, and only its low-level ctypes bindings.

Open first: `runtime.py` (a context as a `Runtime`), then `weights.py` (a model and its vocabulary) and `library.py`
(the native library). Every C return code is checked here and becomes an error of ours; a call that would abort the
process is refused before it is made; llama.cpp's output goes to Python's logging. *Weights*: loaded once, shared by
contexts. *Context*: a `llama_context`, one pool of cells. *Batch*: the tokens of one decode.
"""

from shepherd.engine.llamacpp.library import (
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
