"""llama.cpp in process: the only file that knows `llama_cpp`, and of that only its low-level ctypes half.

`Weights` are loaded once and shared; a `LlamaRuntime` is one `llama_context` over them, with its own KV cache. Every C
return code is checked here and becomes one of our errors; everything that llama.cpp prints goes to Python's logging.

Facts about llama.h that shape this file (line numbers and measurements: the project's notes on llama.h):
- `llama_decode` aborts the *process* when a batch is larger than `n_batch`: batches are cut before the call.
- A positive return of `llama_decode` leaves the cache as it was (1) or partly extended (2, aborted): ask its length.
- Exceptions must not travel through C frames: the callbacks below do nothing that can raise.
"""

from __future__ import annotations

import ctypes
import importlib.util
import logging
import math
import os
import random
import sys
import threading
import types
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from shepherd.core import EngineError, Sampling
from shepherd.engine import sampling as chain
from shepherd.engine.base import Decoded, Special

logger = logging.getLogger(__name__)

CACHE_TYPES = {"f32": 0, "f16": 1, "q4_0": 2, "q4_1": 3, "q5_0": 6, "q5_1": 7, "q8_0": 8, "bf16": 30}
"""KV cache types by name: ggml's type ids."""
FILE_TYPES = {"F16": 1, "Q4_0": 2, "Q8_0": 7}
"""Targets of `quantize`: llama.cpp's ftype ids."""
QUANTIZED = frozenset(name for name in CACHE_TYPES if name.startswith("q"))

SMALL_MODEL = 50_000_000
"""Parameters below which a second thread costs more than it computes."""

_ATTR_UNKNOWN, _ATTR_CONTROL, _ATTR_USER_DEFINED, _ATTR_LSTRIP, _ATTR_RSTRIP = 1, 8, 16, 128, 256
_FLASH_ATTENTION = {None: -1, False: 0, True: 1}
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


# -- log -----------------------------------------------------------------------------------------------------------


class _Log:
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


_log: _Log | None = None
_start = threading.Lock()


def _started() -> _Log:
    """Initialises the library on first use, once per process."""
    global _log  # noqa: PLW0603 - the library itself is global state
    with _start:
        if _log is None:
            _log = _Log()
            C.llama_backend_init()
        return _log


def _because(log: _Log) -> str:
    """The library's own last words about a failure, as the end of a sentence."""
    told = [line.split(": ", 1)[-1] for line in log.errors if line]
    log.errors.clear()
    return f" ({told[0]})" if told else ""


# -- library -------------------------------------------------------------------------------------------------------


def library_path() -> Path:
    """The shared library in use."""
    return Path(C._lib._name)


def system_info() -> str:
    """The CPU features and options that this build uses, in llama.cpp's own words."""
    _started()
    text: bytes = C.llama_print_system_info()
    return text.decode("utf-8", "replace").strip()


def devices() -> tuple[str, ...]:
    """What can compute besides the CPU, by name; empty without a GPU."""
    _started()
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
    log = _started()
    params = C.llama_model_quantize_default_params()
    params.ftype = FILE_TYPES[file_type]
    params.nthread = 1
    if C.llama_model_quantize(os.fsencode(source), os.fsencode(target), ctypes.byref(params)) != 0:
        raise EngineError(f"{source.name} cannot be quantised to {file_type}{_because(log)}")


# -- weights -------------------------------------------------------------------------------------------------------


class Weights:
    """A model's weights and vocabulary. Read-only after loading, safe from any thread; satisfies `Vocabulary`."""

    def __init__(self, handle: int, path: Path) -> None:
        self.path = path
        self._model = handle
        self._vocab = C.llama_model_get_vocab(handle)
        self.n_vocab: int = C.llama_vocab_n_tokens(self._vocab)
        self.n_params: int = C.llama_model_n_params(handle)
        self._pieces: list[bytes | None] = [None] * self.n_vocab
        bos: int = C.llama_vocab_bos(self._vocab)
        self.bos = bos if C.llama_vocab_get_add_bos(self._vocab) and bos >= 0 else None
        self.bos_text = self._text_of(C.llama_vocab_bos(self._vocab))
        self.eos_text = self._text_of(C.llama_vocab_eos(self._vocab))
        self.specials = self._find_specials()
        self.end_tokens = frozenset(s.id for s in self.specials if C.llama_vocab_is_eog(self._vocab, s.id))

    @classmethod
    def load(
        cls,
        path: Path,
        *,
        gpu_layers: int | None = None,
        use_extra_bufts: bool = True,
        progress: Callable[[float], None] | None = None,
    ) -> Weights:
        """Read a GGUF file. Takes long; `progress` gets 0.0 to 1.0, from the loading thread.

        Raises: `EngineError` with the library's reason when it cannot be loaded.
        """
        log = _started()
        log.errors.clear()
        params = C.llama_model_default_params()
        if gpu_layers is not None:
            params.n_gpu_layers = gpu_layers
        params.use_extra_bufts = use_extra_bufts

        def report(fraction: float, _user_data: object) -> bool:
            if progress is not None:
                progress(fraction)
            return True

        callback = C.llama_progress_callback(report)
        params.progress_callback = callback
        handle = C.llama_model_load_from_file(os.fsencode(path), params)
        if not handle:
            raise EngineError(f"{path.name} cannot be loaded{_because(log)}")
        return cls(handle, path)

    def close(self) -> None:
        """Free the weights; every runtime over them must have been closed."""
        if self._model:
            C.llama_model_free(self._model)
            self._model = 0

    @property
    def description(self) -> str:
        """Such as `llama 5M F16`."""
        buffer = ctypes.create_string_buffer(256)
        C.llama_model_desc(self._model, buffer, len(buffer))
        return buffer.value.decode("utf-8", "replace")

    @property
    def chat_template(self) -> str | None:
        """The Jinja source in the file, or None."""
        text: bytes | None = C.llama_model_chat_template(self._model, None)
        return text.decode("utf-8", "replace") if text is not None else None

    def metadata(self, key: str) -> str | None:
        """One scalar of the file's metadata as text, or None."""
        name = key.encode()
        length: int = C.llama_model_meta_val_str(self._model, name, None, 0)
        if length < 0:
            return None
        buffer = ctypes.create_string_buffer(length + 1)
        C.llama_model_meta_val_str(self._model, name, buffer, len(buffer))
        return buffer.value.decode("utf-8", "replace")

    def tokenize(self, text: str) -> list[int]:
        raw = text.encode("utf-8", "replace")
        room = len(raw) + 8
        buffer = (ctypes.c_int32 * room)()
        n: int = C.llama_tokenize(self._vocab, raw, len(raw), buffer, room, False, False)
        if n < 0:
            buffer = (ctypes.c_int32 * -n)()
            n = C.llama_tokenize(self._vocab, raw, len(raw), buffer, -n, False, False)
        return buffer[:n]

    def piece(self, token: int) -> bytes:
        if not 0 <= token < self.n_vocab:
            raise EngineError(f"token {token} is outside the vocabulary of {self.n_vocab}")
        known = self._pieces[token]
        if known is None:
            known = self._pieces[token] = self._read_piece(token)
        return known

    def _read_piece(self, token: int) -> bytes:
        room = 64
        while True:
            buffer = ctypes.create_string_buffer(room)
            # special=True: protocol tokens are control tokens in many files, and the scanner must see their text.
            n: int = C.llama_token_to_piece(self._vocab, token, buffer, room, 0, True)
            if n >= 0:
                return buffer.raw[:n]
            room = -n

    def _text_of(self, token: int) -> str:
        return self._read_piece(token).decode("utf-8", "replace") if 0 <= token < self.n_vocab else ""

    def _find_specials(self) -> tuple[Special, ...]:
        vocab, attribute = self._vocab, C.llama_vocab_get_attr
        wanted = _ATTR_CONTROL | _ATTR_USER_DEFINED | _ATTR_UNKNOWN
        found = ((token, attribute(vocab, token)) for token in range(self.n_vocab))
        return tuple(
            Special(
                id=token,
                text=self._text_of(token),
                control=not attr & _ATTR_USER_DEFINED,
                strip_left=bool(attr & _ATTR_LSTRIP),
                strip_right=bool(attr & _ATTR_RSTRIP),
            )
            for token, attr in found
            if attr & wanted
        )


# -- runtime -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ContextOptions:
    """How a context is made. `None` means the default that measured best."""

    n_ctx: int
    """Tokens; llama.cpp pads it up to a multiple of 256."""
    n_batch: int | None = None
    n_ubatch: int | None = None
    n_threads: int | None = None
    flash_attention: bool | None = None
    cache_type_k: str = "f16"
    cache_type_v: str = "f16"


class _Interrupt:
    """A flag that llama.cpp polls between graph nodes without ever entering Python.

    A Python callback would take the interpreter lock hundreds of times per token. C's `strlen` has the callback's
    shape already (pointer in, zero or not out), so the flag is a C string: empty = go on, one character = stop.
    """

    def __init__(self) -> None:
        self._flag = ctypes.create_string_buffer(2)
        libc = ctypes.CDLL("msvcrt" if sys.platform == "win32" else None)
        self.callback = ctypes.cast(libc.strlen, C.ggml_abort_callback)
        self.data = ctypes.cast(self._flag, ctypes.c_void_p)

    def set(self, on: bool) -> None:
        self._flag[0] = b"\x01" if on else b"\x00"


class LlamaRuntime:
    """One `llama_context` with one sequence; satisfies `Runtime`. One thread at a time."""

    def __init__(self, weights: Weights, options: ContextOptions) -> None:
        log = _started()
        log.errors.clear()
        self._weights = weights
        self._interrupt = _Interrupt()
        self._context = C.llama_init_from_model(weights._model, self._params(options))
        if not self._context:
            raise EngineError(
                f"no context of {options.n_ctx} tokens can be made for {weights.path.name}{_because(log)}; "
                "try a smaller context size, or other cache types"
            )
        self._memory = C.llama_get_memory(self._context)
        if not self._memory:
            C.llama_free(self._context)
            raise EngineError(f"{weights.path.name} has no KV cache: it is not a model that generates text")
        # llama.cpp pads the context; what was asked for is what a conversation may use.
        self.n_ctx = min(options.n_ctx, int(C.llama_n_ctx(self._context)))
        self.n_chunk = int(C.llama_n_ubatch(self._context))
        self._n_batch = int(C.llama_n_batch(self._context))
        self._batch = C.llama_batch_init(self._n_batch, 0, 1)
        for index in range(self._n_batch):
            self._batch.n_seq_id[index] = 1
            self._batch.seq_id[index][0] = 0

    def _params(self, options: ContextOptions) -> Any:
        params = C.llama_context_default_params()
        params.n_ctx = options.n_ctx
        params.n_batch = min(options.n_batch or 2048, options.n_ctx)
        params.n_ubatch = min(options.n_ubatch or 512, params.n_batch)
        params.n_seq_max = 1
        params.n_threads = params.n_threads_batch = options.n_threads or default_threads(self._weights.n_params)
        params.type_k = CACHE_TYPES[options.cache_type_k]
        params.type_v = CACHE_TYPES[options.cache_type_v]
        params.flash_attn_type = _FLASH_ATTENTION[flash_attention(options)]
        params.no_perf = True
        params.abort_callback = self._interrupt.callback
        params.abort_callback_data = self._interrupt.data
        return params

    def decode(self, tokens: Sequence[int], start: int) -> Decoded:
        batch = self._batch
        n = len(tokens)
        assert 0 < n <= self._n_batch
        batch.n_tokens = n
        if n == 1:
            batch.token[0] = tokens[0]
            batch.pos[0] = start
        else:
            ids, positions = array("i", tokens), array("i", range(start, start + n))
            ctypes.memmove(batch.token, ids.buffer_info()[0], 4 * n)
            ctypes.memmove(batch.pos, positions.buffer_info()[0], 4 * n)
            ctypes.memset(batch.logits, 0, n)
        batch.logits[n - 1] = 1
        code: int = C.llama_decode(self._context, batch)
        if code == 0:
            return "ok"
        if code == 1:
            return "full"
        if code == 2:
            return "aborted"
        raise EngineError(
            f"llama.cpp could not compute {n} tokens at position {start} (code {code}){_because(_started())}"
        )

    def sampler(self, sampling: Sampling, history: Sequence[int]) -> LlamaSampler:
        return LlamaSampler(self._weights, self._context, sampling, history)

    def truncate(self, length: int) -> bool:
        return bool(C.llama_memory_seq_rm(self._memory, 0, length, -1))

    def clear(self) -> None:
        C.llama_memory_clear(self._memory, False)

    def length(self) -> int:
        return int(C.llama_memory_seq_pos_max(self._memory, 0)) + 1

    def is_end(self, token: int) -> bool:
        return token in self._weights.end_tokens

    def interrupt(self, on: bool) -> None:
        self._interrupt.set(on)

    def close(self) -> None:
        if self._context:
            C.llama_batch_free(self._batch)
            C.llama_free(self._context)
            self._context = None


class LlamaSampler:
    """llama.cpp's sampler chain for one job; satisfies `TokenSampler`."""

    def __init__(self, weights: Weights, context: Any, sampling: Sampling, history: Sequence[int]) -> None:
        self._context = context
        self._kept: list[Any] = []  # C arrays that the chain's constructors read
        seed = random.getrandbits(32) if sampling.seed is None else sampling.seed & 0xFFFFFFFF
        self._chain = C.llama_sampler_chain_init(C.llama_sampler_chain_default_params())
        try:
            if sampling.ignore_eos:
                self._add_bias(weights, [(token, -math.inf) for token in sorted(weights.end_tokens)])
            for stage in chain.plan(sampling, seed=seed):
                self._add(weights, stage)
        except BaseException:
            self.close()
            raise
        for token in history[len(history) - chain.history_length(sampling, len(history)) :]:
            C.llama_sampler_accept(self._chain, token)

    def sample(self) -> int:
        return int(C.llama_sampler_sample(self._chain, self._context, -1))

    def close(self) -> None:
        if self._chain:
            C.llama_sampler_free(self._chain)  # frees its members too
            self._chain = None

    def _add(self, weights: Weights, stage: chain.Stage) -> None:
        match stage.name, stage.arguments:
            case "logit_bias", (bias,):
                self._add_bias(weights, bias)  # type: ignore[arg-type]  # the plan's own tuple of pairs
                return
            case "dry", (multiplier, base, allowed, last_n, breakers):
                encoded = [text.encode("utf-8", "replace") for text in breakers]  # type: ignore[attr-defined]  # as above
                strings = (ctypes.c_char_p * len(encoded))(*encoded)
                self._kept.append(strings)
                member = C.llama_sampler_init_dry(
                    weights._vocab, multiplier, base, allowed, last_n, strings, len(encoded)
                )
            case "penalties", arguments:
                member = C.llama_sampler_init_penalties(weights.n_vocab, *arguments)
            case "mirostat", arguments:
                member = C.llama_sampler_init_mirostat(weights.n_vocab, *arguments, 100)
            case name, arguments:
                member = getattr(C, f"llama_sampler_init_{name}")(*arguments)
        self._append(member, stage.name)

    def _add_bias(self, weights: Weights, bias: Sequence[tuple[int, float]]) -> None:
        pairs = (C.llama_logit_bias * len(bias))(*((token, value) for token, value in bias))
        self._kept.append(pairs)
        self._append(C.llama_sampler_init_logit_bias(weights.n_vocab, len(bias), pairs), "logit_bias")

    def _append(self, member: Any, name: str) -> None:
        if not member:
            raise EngineError(f"llama.cpp refused the sampler {name!r} with these values")
        C.llama_sampler_chain_add(self._chain, member)


# -- defaults ------------------------------------------------------------------------------------------------------


def flash_attention(options: ContextOptions) -> bool | None:
    """Whether to use flash attention: as told; needed for a quantised V cache; the library's choice on a GPU; else off.

    On CPUs the library's automatic choice halves the speed of decoding behind a long context (bench/engine.py).
    """
    if options.flash_attention is not None:
        return options.flash_attention
    if options.cache_type_v in QUANTIZED:
        return True
    return None if devices() else False


def default_threads(n_params: int = SMALL_MODEL) -> int:
    """The physical cores less those that other work keeps busy; at least one, and one for a very small model.

    OpenMP threads that outnumber the free cores wait for each other by spinning: decoding becomes a hundred times
    slower, not a little. A model of a few million parameters gains little from a second thread and loses much to it.
    """
    if n_params < SMALL_MODEL:
        return 1
    import psutil  # noqa: PLC0415 - only needed when the user did not choose

    cores = psutil.cpu_count(logical=False) or os.cpu_count() or 1
    busy = round(psutil.cpu_percent(interval=0.05) / 100 * (os.cpu_count() or 1))
    return max(1, min(cores, (os.cpu_count() or 1) - busy))
