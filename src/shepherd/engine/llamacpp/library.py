"""The native library itself: found, loaded, its log turned to ours, and what the build says of itself.

Two handles of one library: through `C` (the bindings' own) the interpreter lock is released during a call, which is
right for whatever computes; `FAST` keeps it, which is right for calls that take a microsecond. Releasing means asking
for it again, and a busy Python thread gives it up only after its switch interval.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import importlib.util
import logging
import os
import sys
import threading
import types
from collections import deque
from pathlib import Path
from typing import Any, Literal

from shepherd.core import EngineError

logger = logging.getLogger(__name__)

CACHE_TYPES = {"f32": 0, "f16": 1, "q4_0": 2, "q4_1": 3, "q5_0": 6, "q5_1": 7, "q8_0": 8, "bf16": 30}
"""KV cache types by name: ggml's type ids."""
FILE_TYPES = {"F16": 1, "Q4_0": 2, "Q8_0": 7}
"""Targets of `quantize`: llama.cpp's ftype ids."""

_ERROR, _CONTINUED = 4, 5
"""ggml's log levels that mean something here."""


def _import_bindings() -> Any:
    """The module of C bindings, without its package's `__init__`.

    That `__init__` imports the high-level half, NumPy and a cache library: 0.5 s of CPU against 0.06 s for what we use.
    """
    spec = importlib.util.find_spec("llama_cpp")
    if spec is None or spec.submodule_search_locations is None:
        raise EngineError("llama-cpp-python is not installed; install Shepherd with its dependencies (uv sync)")
    if "llama_cpp" not in sys.modules:
        package = types.ModuleType("llama_cpp")
        package.__path__ = list(spec.submodule_search_locations)
        package.__spec__ = spec
        sys.modules["llama_cpp"] = package
    try:
        return importlib.import_module("llama_cpp.llama_cpp")
    except (OSError, RuntimeError) as error:
        raise EngineError(f"the native llama.cpp library cannot be loaded: {error}") from error


C: Any = _import_bindings()


class _FastCalls:
    """Calls that take about a microsecond, with the interpreter lock held throughout."""

    def __init__(self) -> None:
        lib = ctypes.PyDLL(C._lib._name)
        pointer, integer = ctypes.c_void_p, ctypes.c_int32

        def call(name: str, result: Any, *arguments: Any) -> Any:
            function = getattr(lib, name)
            function.restype, function.argtypes = result, arguments
            return function

        self.seq_rm = call("llama_memory_seq_rm", ctypes.c_bool, pointer, integer, integer, integer)
        self.seq_cp = call("llama_memory_seq_cp", None, pointer, integer, integer, integer, integer)
        self.seq_add = call("llama_memory_seq_add", None, pointer, integer, integer, integer, integer)
        self.pos_min = call("llama_memory_seq_pos_min", integer, pointer, integer)
        self.pos_max = call("llama_memory_seq_pos_max", integer, pointer, integer)
        self.logits = call("llama_get_logits_ith", pointer, pointer, integer)
        self.sample = call("llama_sampler_sample", integer, pointer, pointer, integer)
        self.apply = call("llama_sampler_apply", None, pointer, pointer)
        self.accept = call("llama_sampler_accept", None, pointer, integer)


FAST = _FastCalls()


# -- log -----------------------------------------------------------------------------------------------------------


class Log:
    """Turns llama.cpp's log fragments into DEBUG records; called from any of its threads.

    Its errors are no warnings of ours: each becomes an error here, with its words, or was wanted (an interrupt).
    """

    def __init__(self) -> None:
        self.errors: deque[str] = deque(maxlen=8)
        self._pending = threading.local()
        self.callback = C.llama_log_callback(self._take)  # kept referenced: C holds a pointer to it
        C.llama_log_set(self.callback, None)

    def _take(self, level: int, text: bytes | None, _user_data: object) -> None:
        pending = self._pending
        if level != _CONTINUED:
            pending.level = level
        current: int = getattr(pending, "level", 0)
        if current != _ERROR and not logger.isEnabledFor(logging.DEBUG):
            return
        line = getattr(pending, "line", "") + (text or b"").decode("utf-8", "replace")
        if not line.endswith("\n"):
            pending.line = line
            return
        pending.line = ""
        line = line.strip()
        if current == _ERROR:
            self.errors.append(line)
        if line:
            logger.debug("llama.cpp: %s", line)


_log: Log | None = None
_start = threading.Lock()


def start_library() -> Log:
    """Initialises the library on first use, once per process."""
    global _log  # noqa: PLW0603 - the library itself is global state
    with _start:
        if _log is None:
            _log = Log()
            C.llama_backend_init()
        return _log


def reason_from(log: Log) -> str:
    """The library's own last words about a failure, as the end of a sentence."""
    told = [line.split(": ", 1)[-1] for line in log.errors if line]
    log.errors.clear()
    return f" ({told[0]})" if told else ""


# -- what the build says --------------------------------------------------------------------------------------------


def library_path() -> Path:
    """The shared library in use."""
    return Path(C._lib._name)


@functools.cache
def build() -> str:
    """A short name for this build: saved states are only read by the library that wrote them."""
    with library_path().open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def system_info() -> str:
    """The CPU features and options that this build uses, in llama.cpp's own words."""
    start_library()
    text: bytes = C.llama_print_system_info()
    return text.decode("utf-8", "replace").strip()


def devices() -> tuple[str, ...]:
    """What can compute besides the CPU, by name; empty without a GPU."""
    start_library()
    lib = C._lib
    lib.ggml_backend_dev_get.restype = ctypes.c_void_p
    lib.ggml_backend_dev_get.argtypes = [ctypes.c_size_t]
    lib.ggml_backend_dev_count.restype = ctypes.c_size_t
    lib.ggml_backend_dev_description.restype = ctypes.c_char_p
    lib.ggml_backend_dev_description.argtypes = [ctypes.c_void_p]
    lib.ggml_backend_dev_type.argtypes = [ctypes.c_void_p]
    cpu = 0
    found = [lib.ggml_backend_dev_get(index) for index in range(lib.ggml_backend_dev_count())]
    return tuple(
        lib.ggml_backend_dev_description(device).decode("utf-8", "replace")
        for device in found
        if lib.ggml_backend_dev_type(device) != cpu
    )


def supports_rpc() -> bool:
    """Whether one model can be spread over several machines with this build."""
    return bool(C.llama_supports_rpc())


def quantize(source: Path, target: Path, file_type: Literal["F16", "Q4_0", "Q8_0"]) -> None:
    """Write `source` in another number format. Raises: `EngineError` when llama.cpp refuses."""
    log = start_library()
    params = C.llama_model_quantize_default_params()
    params.ftype = FILE_TYPES[file_type]
    params.nthread = 1
    if C.llama_model_quantize(os.fsencode(source), os.fsencode(target), ctypes.byref(params)) != 0:
        raise EngineError(f"{source.name} cannot be quantised to {file_type}{reason_from(log)}")
