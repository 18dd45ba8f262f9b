"""The native library: finds and loads it, forwards its log to Python's logging, and describes the build.

There are two handles of one library. `C` (from the bindings) releases the interpreter lock during a call: right for
calls that compute. `FAST` keeps the lock: right for calls of about a microsecond, since a thread that releases the lock
may wait a whole switch interval to get it back from a busy Python thread.
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
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from shepherd.core import EngineError

logger = logging.getLogger(__name__)

CACHE_TYPES = {"f32": 0, "f16": 1, "q4_0": 2, "q4_1": 3, "q5_0": 6, "q5_1": 7, "q8_0": 8, "bf16": 30}
"""KV cache types by name: ggml's type ids."""
FILE_TYPES = {"F16": 1, "Q4_0": 2, "Q8_0": 7}
"""Targets of `quantize`: llama.cpp's ftype ids."""

_WARNING, _ERROR, _CONTINUED = 3, 4, 5
"""ggml's log levels that are handled here."""
_CPU, _GPU, _SHARING_GPU = 0, 1, 2
"""ggml's numbers for kinds of devices; the last is a GPU that shares the machine's memory."""


def _import_bindings() -> Any:
    """Import the module of C bindings without its package's `__init__`.

    That `__init__` imports the high-level half, NumPy and a cache library: 0.5 s of CPU instead of 0.06 s. It runs when
    a program that uses Shepherd as a library asks `llama_cpp` for more, such as `llama_cpp.Llama`.
    """
    spec = importlib.util.find_spec("llama_cpp")
    if spec is None or spec.submodule_search_locations is None:
        raise EngineError("llama-cpp-python is not installed; 'shepherd doctor --build' builds and installs it")
    if "llama_cpp" not in sys.modules:
        package = types.ModuleType("llama_cpp")
        package.__path__ = list(spec.submodule_search_locations)
        package.__spec__ = spec
        package.__dict__["__getattr__"] = functools.partial(_whole, package)
        sys.modules["llama_cpp"] = package
    try:
        return importlib.import_module("llama_cpp.llama_cpp")
    except (OSError, RuntimeError, AttributeError) as error:
        cure = "'shepherd doctor --build' builds it again"
        raise EngineError(f"the native llama.cpp library cannot be loaded ({error}); {cure}") from error


def _whole(package: types.ModuleType, name: str) -> Any:
    """An attribute of the whole package, whose `__init__` runs now (PEP 562)."""
    spec = package.__spec__
    if name.startswith("__") or spec is None or spec.loader is None:
        raise AttributeError(f"module {package.__name__!r} has no attribute {name!r}")
    del package.__dict__["__getattr__"]
    spec.loader.exec_module(package)
    if _log is not None:  # the package has taken the library's log
        C.llama_log_set(_log.callback, None)
    return getattr(package, name)


C: Any = _import_bindings()
_POINTER, _INT, _SIZE = ctypes.c_void_p, ctypes.c_int32, ctypes.c_size_t


def _declared(function: Any, result: Any, *arguments: Any) -> Any:
    function.restype, function.argtypes = result, arguments
    return function


class FAST:
    _lib = ctypes.PyDLL(C._lib._name)
    seq_rm = _declared(_lib.llama_memory_seq_rm, ctypes.c_bool, _POINTER, _INT, _INT, _INT)
    seq_cp = _declared(_lib.llama_memory_seq_cp, None, _POINTER, _INT, _INT, _INT, _INT)
    seq_add = _declared(_lib.llama_memory_seq_add, None, _POINTER, _INT, _INT, _INT, _INT)
    pos_min = _declared(_lib.llama_memory_seq_pos_min, _INT, _POINTER, _INT)
    pos_max = _declared(_lib.llama_memory_seq_pos_max, _INT, _POINTER, _INT)
    logits = _declared(_lib.llama_get_logits_ith, _POINTER, _POINTER, _INT)
    sample = _declared(_lib.llama_sampler_sample, _INT, _POINTER, _POINTER, _INT)
    apply = _declared(_lib.llama_sampler_apply, None, _POINTER, _POINTER)
    accept = _declared(_lib.llama_sampler_accept, None, _POINTER, _INT)


# -- log -----------------------------------------------------------------------------------------------------------


class Log:
    """Turns llama.cpp's log fragments into DEBUG records; called on any of its threads.

    Its errors are logged at DEBUG too: each becomes an exception here with the same words, or was intended (interrupt).
    """

    def __init__(self) -> None:
        self.errors: deque[str] = deque(maxlen=8)
        self.warnings: deque[str] = deque(maxlen=8)
        self._pending = threading.local()
        self.callback = C.llama_log_callback(self._take)  # kept referenced: C holds a pointer to it
        C.llama_log_set(self.callback, None)

    def _take(self, level: int, text: bytes | None, _user_data: object) -> None:
        pending = self._pending
        if level != _CONTINUED:
            pending.level = level
        current: int = getattr(pending, "level", 0)
        if current < _WARNING and not logger.isEnabledFor(logging.DEBUG):
            return
        line = getattr(pending, "line", "") + (text or b"").decode("utf-8", "replace")
        if not line.endswith("\n"):
            pending.line = line
            return
        pending.line = ""
        line = line.strip()
        if current >= _WARNING:
            (self.errors if current == _ERROR else self.warnings).append(line)
        if line:
            logger.debug("llama.cpp: %s", line)


_log: Log | None = None
_start = threading.Lock()


def start_library() -> Log:
    """Initialise the library on first use, once per process."""
    global _log  # noqa: PLW0603 - the library itself is global state
    with _start:
        if _log is None:
            _log = Log()
            C.llama_backend_init()
        return _log


@functools.cache
def libmtmd() -> Any:
    """The bindings of libmtmd, with their log where the library's goes. Raises: `EngineError` if it is not there."""
    log = start_library()
    try:
        mtmd = importlib.import_module("llama_cpp.mtmd_cpp")
    except (ImportError, OSError, RuntimeError, AttributeError) as error:
        raise EngineError(f"this build of the native library reads neither images nor sound: {error}") from error
    mtmd.mtmd_log_set(log.callback, None)
    mtmd.mtmd_helper_log_set(log.callback, None)
    return mtmd


def reason_from(log: Log) -> str:
    """The library's own error messages about a failure, as the end of a sentence; clears them."""
    messages = [line.split(": ", 1)[-1] for line in log.errors if line]
    log.errors.clear()
    return f" ({messages[0]})" if messages else ""


# -- the build ------------------------------------------------------------------------------------------------------


def library_path() -> Path:
    return Path(C._lib._name)


@functools.cache
def build() -> str:
    """A short id of this build: saved states are only loaded by the library that wrote them."""
    with library_path().open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def system_info() -> str:
    """The CPU features and options that this build uses, in llama.cpp's own words."""
    start_library()
    text: bytes = C.llama_print_system_info()
    return text.decode("utf-8", "replace").strip()


_REPACKED: tuple[tuple[str, frozenset[str]], ...] = (
    ("AVX2 = 1", frozenset({"q4_0", "q4_K", "iq4_nl", "mxfp4"})),
    ("AVX512 = 1", frozenset({"q2_K"})),
    ("DOTPROD = 1", frozenset({"q4_0", "q4_K", "q5_K", "q6_K", "q8_0", "iq4_nl", "mxfp4"})),
    ("AMX_INT8 = 1", frozenset({"q4_0", "q4_1", "q8_0", "q4_K", "q5_K", "q6_K", "iq4_xs"})),
)
"""By a feature of the CPU, in the words of `system_info`, the number formats of weights that get another order."""


def repacked_types() -> frozenset[str]:
    """The number formats of weights of which this build keeps a second copy on this CPU, in another order."""
    info = system_info()
    if "REPACK = 1" not in info:
        return frozenset()
    return frozenset().union(*(types for feature, types in _REPACKED if feature in info))


_DEVICE_CALLS: dict[str, tuple[Any, ...]] = {
    "count": (_SIZE,),
    "get": (_POINTER, _SIZE),
    "type": (_INT, _POINTER),
    "name": (ctypes.c_char_p, _POINTER),
    "description": (ctypes.c_char_p, _POINTER),
    "memory": (None, _POINTER, ctypes.POINTER(_SIZE), ctypes.POINTER(_SIZE)),
    "buffer_type": (_POINTER, _POINTER),
}
"""By the end of its name (`ggml_backend_dev_...`), the result and the arguments of a call; some builds lack some."""


def _device_call(name: str) -> Any:
    return _declared(getattr(C._lib, f"ggml_backend_dev_{name}"), *_DEVICE_CALLS[name])


def _devices(is_wanted: Callable[[int], bool]) -> list[Any]:
    """The devices of the kinds that `is_wanted` accepts. Raises: `AttributeError` if the build cannot list them."""
    start_library()
    get, kind_of = _device_call("get"), _device_call("type")
    return [each for each in map(get, range(_device_call("count")())) if is_wanted(kind_of(each))]


def devices() -> tuple[str, ...]:
    """The names of compute devices besides the CPU; empty without a GPU."""
    found = _devices(lambda kind: kind != _CPU)
    return tuple(_device_call("description")(each).decode("utf-8", "replace") for each in found)


def buffer_types() -> dict[str, int]:
    """The kinds of memory that tensors can be placed in, by name: `CPU`, `CUDA0`, ...; their pointers."""
    name_of = _declared(C._lib.ggml_backend_buft_name, ctypes.c_char_p, _POINTER)
    found = filter(None, map(_device_call("buffer_type"), _devices(lambda _: True)))
    return {name_of(each).decode("utf-8", "replace"): each for each in found}


class GpuMemory(NamedTuple):
    """The memory of all GPUs together, in bytes."""

    free: int
    total: int


def gpu_memory(kind: int = _GPU) -> GpuMemory | None:
    """The memory of all devices of one kind; None if there is none, or if this build does not report it."""
    free, total, sums = _SIZE(), _SIZE(), GpuMemory(0, 0)
    try:
        memory_of = _device_call("memory")
        for device in _devices(lambda each: each == kind):
            memory_of(device, ctypes.byref(free), ctypes.byref(total))
            sums = GpuMemory(sums.free + free.value, sums.total + total.value)
    except AttributeError:
        return None
    return sums if sums.total else None


# -- other machines ------------------------------------------------------------------------------------------------


def supports_rpc() -> bool:
    return bool(C.llama_supports_rpc())


def _rpc_call(name: str, result: Any, *arguments: Any) -> Any:
    """A function of the RPC back end. Raises: `EngineError` for a build without it."""
    start_library()
    registry = _declared(C._lib.ggml_backend_reg_by_name, _POINTER, ctypes.c_char_p)(b"RPC")
    find = _declared(C._lib.ggml_backend_reg_get_proc_address, _POINTER, _POINTER, ctypes.c_char_p)
    address = find(registry, name.encode()) if registry else None
    if not address:
        raise EngineError(
            "this llama.cpp was built without RPC, which spreads a model over machines; build it with -DGGML_RPC=ON"
        )
    return ctypes.CFUNCTYPE(result, *arguments)(address)


def rpc_devices(address: str) -> list[int]:
    """The devices of a worker, as pointers. Where it does not answer, the library ends the process: probe it before."""
    registry = _rpc_call("ggml_backend_rpc_add_server", _POINTER, ctypes.c_char_p)(address.encode())
    if not registry:
        raise EngineError(f"the worker {address} has no devices")
    count = _declared(C._lib.ggml_backend_reg_dev_count, _SIZE, _POINTER)(registry)
    get = _declared(C._lib.ggml_backend_reg_dev_get, _POINTER, _POINTER, _SIZE)
    return [get(registry, index) for index in range(count)]


def own_devices() -> list[int]:
    """The GPUs of this machine, as pointers; those that share its memory only where there is no other."""
    return _devices(lambda kind: kind == _GPU) or _devices(lambda kind: kind == _SHARING_GPU)


def serve_rpc(address: str, *, n_threads: int, device_names: Sequence[str] = (), cache: Path | None = None) -> None:
    """Serve this machine's devices to one client after the other; returns where it cannot listen, otherwise never.

    device_names: such as `CUDA0`; none = every GPU, or else the CPU. cache: a folder for large tensors.

    Raises: `EngineError` for a device that is not here.
    """
    start = _rpc_call(
        "ggml_backend_rpc_start_server", None, ctypes.c_char_p, ctypes.c_char_p, _SIZE, _SIZE, ctypes.POINTER(_POINTER)
    )
    name_of = _device_call("name")
    known = {name_of(each).decode("utf-8", "replace"): each for each in _devices(lambda _: True)}
    if missing := [name for name in device_names if name not in known]:
        raise EngineError(f"there is no device {missing[0]!r} here; there are {', '.join(known)}")
    chosen = [known[name] for name in device_names] or own_devices() or _devices(lambda kind: kind == _CPU)[:1]
    folder = None if cache is None else os.fsencode(cache)
    start(address.encode(), folder, n_threads, len(chosen), (_POINTER * len(chosen))(*chosen))


def quantize(source: Path, target: Path, file_type: Literal["F16", "Q4_0", "Q8_0"]) -> None:
    """Write `source` in another number format. Raises: `EngineError` if llama.cpp refuses."""
    log = start_library()
    params = C.llama_model_quantize_default_params()
    params.ftype = FILE_TYPES[file_type]
    params.nthread = 1
    params.allow_requantize = True  # the embedded model may be quantised
    if C.llama_model_quantize(os.fsencode(source), os.fsencode(target), ctypes.byref(params)) != 0:
        raise EngineError(f"{source.name} cannot be quantised to {file_type}{reason_from(log)}")
