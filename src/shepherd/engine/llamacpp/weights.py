"""A model's weights and vocabulary, loaded once and shared by all its contexts."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from shepherd.core import EngineError
from shepherd.engine.base import Special
from shepherd.engine.kv import capabilities
from shepherd.engine.llamacpp import adapter, library, rpc
from shepherd.engine.llamacpp.library import C, buffer_types, own_devices, reason_from, rpc_devices, start_library
from shepherd.engine.llamacpp.pages import read_in_large_pages
from shepherd.models import gguf
from shepherd.models.adapter import Adapter

logger = logging.getLogger(__name__)

_HASHED_WHOLE = 32 << 20
"""Leading bytes that the digest reads: more than the longest header, which contains the vocabulary."""
_PIECE = 1 << 20
_SAMPLE, _SAMPLES = 4096, 256
"""Size and number of further samples: a fine-tuned or requantised copy differs in nearly all of them."""

_NO_TEXT = "{} has no vocabulary of texts, only numbered tokens"
_ROPES: dict[int, capabilities.Rope] = {-1: "none", 0: "norm", 2: "neox"}
"""llama.cpp's rope types; the others are kinds of M-RoPE."""
_LOAD_MODES = {
    (None, False): C.LLAMA_LOAD_MODE_AUTO, (None, True): C.LLAMA_LOAD_MODE_MMAP_MLOCK,
    (True, False): C.LLAMA_LOAD_MODE_MMAP, (True, True): C.LLAMA_LOAD_MODE_MMAP_MLOCK,
    (False, False): C.LLAMA_LOAD_MODE_NONE, (False, True): C.LLAMA_LOAD_MODE_MLOCK,
}  # fmt: skip
"""By `mmap` and `mlock`, the library's names for ways to load."""
_ATTR_UNKNOWN, _ATTR_CONTROL, _ATTR_USER_DEFINED, _ATTR_LSTRIP, _ATTR_RSTRIP = 1, 8, 16, 128, 256


class _Override(ctypes.Structure):
    """`llama_model_tensor_buft_override`: tensors whose name matches go to a kind of memory."""

    _fields_ = (("pattern", ctypes.c_char_p), ("buffer_type", ctypes.c_void_p))


class Weights:
    """A model's weights and vocabulary. Read-only after loading, safe from any thread; satisfies `Vocabulary`."""

    def __init__(self, handle: int, path: Path, *, is_spread: bool = False) -> None:
        self.path = path
        self.is_spread = is_spread
        """Whether workers on other machines hold a part of it."""
        self.handle = handle
        """The library's pointer, for contexts over these weights; 0 after `close`."""
        self.vocab = C.llama_model_get_vocab(handle)
        self.n_vocab: int = C.llama_vocab_n_tokens(self.vocab)
        self.n_params: int = C.llama_model_n_params(handle)
        self.adapters: dict[str, adapter.Lora | adapter.ControlVector] = {}
        """By the hash of each."""
        self.added: list[str] = []
        """The hashes in the order of `add`."""
        self._pieces: list[bytes | None] = [None] * self.n_vocab
        self.has_text = bool(C.llama_vocab_type(self.vocab))
        """Whether its tokens have text. Without, most calls would abort the process, and are refused."""
        bos: int = C.llama_vocab_bos(self.vocab)
        self.bos = bos if C.llama_vocab_get_add_bos(self.vocab) and bos >= 0 else None
        fim = (C.llama_vocab_fim_pre(self.vocab), C.llama_vocab_fim_suf(self.vocab), C.llama_vocab_fim_mid(self.vocab))
        self.fim = fim if self.has_text and min(fim) >= 0 else None
        self.bos_text = self._text_of(bos)
        self.eos_text = self._text_of(C.llama_vocab_eos(self.vocab))
        self.specials = self._find_specials()
        self.end_tokens = frozenset(s.id for s in self.specials if C.llama_vocab_is_eog(self.vocab, s.id))

    @classmethod
    def load(
        cls,
        path: Path,
        *,
        gpu_layers: int | None = None,
        use_extra_bufts: bool = True,
        cpu_only: bool = False,
        mmap: bool | None = None,
        mlock: bool = False,
        override_tensor: Sequence[str] = (),
        rpc_servers: Sequence[str] = (),
        vocab_only: bool = False,
        progress: Callable[[float], None] | None = None,
    ) -> Weights:
        """Load a GGUF file, which may take long; `progress` gets 0.0 to 1.0 on the loading thread.

        cpu_only: use no GPU, not even for a part of the computation (as may happen with `gpu_layers` 0).
        mmap: map the file, or read it into memory of its own; None = as the library does it for the devices.
        mlock: never let the system take the memory of the weights; where it refuses, a warning says so.
        override_tensor: `pattern=buffer type` each: the memory for tensors whose name matches a regular expression.
        rpc_servers: `host:port` of each worker that holds a part. From then on the library ends this process when one
        of them is lost, and waits without end for one that hangs.
        vocab_only: no weights; what they are computed with is not known then, only the vocabulary and the metadata.

        Raises: `EngineError` with the library's reason if the file cannot be loaded; as `gguf.shards`, `rpc.probe`.
        """
        log = start_library()
        log.errors.clear()
        log.warnings.clear()
        params = C.llama_model_default_params()
        if gpu_layers is not None:
            params.n_gpu_layers = gpu_layers
        params.use_extra_bufts = use_extra_bufts
        params.vocab_only = vocab_only
        params.load_mode = _LOAD_MODES[mmap, mlock]
        overrides = _overrides(override_tensor)
        if overrides is not None:
            params.tensor_buft_overrides = ctypes.addressof(overrides)
        if cpu_only:
            params.split_mode, params.main_gpu = C.LLAMA_SPLIT_MODE_NONE, -1
        if devices := _spread_over(rpc_servers):
            params.devices = ctypes.addressof(devices)

        def report(fraction: float, _user_data: object) -> bool:
            if progress is not None:
                progress(fraction)
            return True

        is_computed_here = cpu_only or gpu_layers == 0 or not library.devices()
        if is_computed_here and not vocab_only and mmap is not False and path.exists():
            for file in gguf.shards(path):
                read_in_large_pages(file)
        callback = C.llama_progress_callback(report)
        params.progress_callback = callback
        handle = C.llama_model_load_from_file(os.fsencode(path), params)
        if not handle:
            raise EngineError(f"{path.name} cannot be loaded{reason_from(log)}")
        if any("mlock" in warning for warning in log.warnings):
            logger.warning(
                "%s is not locked in memory as mlock = true asks for: the system allows less; raise the limit "
                "(ulimit -l, or LimitMEMLOCK of a service), or leave mlock out",
                path.name,
            )
        return cls(handle, path, is_spread=bool(rpc_servers))

    def add(self, file: Adapter) -> str:
        """Load an adapter, and return its hash; before any context is made. Raises: `EngineError`."""
        try:
            key = file.hash()
        except OSError as error:
            raise EngineError(f"{file.path.name} cannot be read: {error.strerror}") from error
        if key not in self.adapters:
            self.adapters[key] = adapter.load(self.handle, file)
        self.added.append(key)
        return key

    def close(self) -> None:
        """Free the weights; all runtimes over them must have been closed."""
        if self.handle:
            C.llama_model_free(self.handle)
            self.handle = 0

    @property
    def chat_template(self) -> str | None:
        text: bytes | None = C.llama_model_chat_template(self.handle, None)
        return text.decode("utf-8", "replace") if text is not None else None

    @property
    def is_recurrent(self) -> bool:
        return bool(C.llama_model_is_recurrent(self.handle) or C.llama_model_is_hybrid(self.handle))

    def context(self, what: str, advice: str, params: Mapping[str, object]) -> Any:
        """A new `llama_context`, which the caller frees: the library's default parameters, and `params`.

        Raises: `EngineError` with the library's reason: no context `what` can be made; `advice`.
        """
        log = start_library()
        log.errors.clear()
        all_params = C.llama_context_default_params()
        for name, value in {"kv_unified": True, "no_perf": True, **params}.items():
            setattr(all_params, name, value)
        context = C.llama_init_from_model(self.handle, all_params)
        if not context:
            raise EngineError(f"no context {what} can be made for {self.path.name}{reason_from(log)}; {advice}")
        return context

    def parameter(self, key: str) -> str | None:
        """As `metadata`, for a key of this model's architecture."""
        return self.metadata(f"{self.metadata('general.architecture') or ''}.{key}")

    def metadata(self, key: str) -> str | None:
        """One scalar of the file's metadata as text, or None."""
        name = key.encode()
        length: int = C.llama_model_meta_val_str(self.handle, name, None, 0)
        if length < 0:
            return None
        buffer = ctypes.create_string_buffer(length + 1)
        C.llama_model_meta_val_str(self.handle, name, buffer, len(buffer))
        return buffer.value.decode("utf-8", "replace")

    def facts(self, *, type_k: str, swa_full: bool, can_shift: bool) -> capabilities.Facts:
        """The facts for `kv.capabilities` about the file and a context with these options."""
        heads = C.llama_model_n_head(self.handle)
        key_length = self.parameter("attention.key_length")
        return capabilities.Facts(
            architecture=self.metadata("general.architecture") or "",
            rope=_ROPES.get(C.llama_model_rope_type(self.handle), "mrope"),
            scaling=self.parameter("rope.scaling.type") or "none",
            attn_factor=float(self.parameter("rope.scaling.attn_factor") or 1.0),
            recurrent=self.is_recurrent,
            n_swa=C.llama_model_n_swa(self.handle),
            swa_full=swa_full,
            type_k=type_k,
            head_size=int(key_length) if key_length else C.llama_model_n_embd(self.handle) // max(1, heads),
            rotated=os.environ.get("LLAMA_ATTN_ROT_DISABLE", "0") in {"", "0"},
            can_shift=can_shift,
            n_ctx_train=C.llama_model_n_ctx_train(self.handle),
        )

    @functools.cached_property
    def digest(self) -> str:
        return digest_of(gguf.shards(self.path))

    def tokenize(self, text: str, *, add_special: bool = False) -> list[int]:
        """As `Vocabulary.tokenize`. add_special: put the special tokens around it that the file requests."""
        if not self.has_text:
            raise EngineError(_NO_TEXT.format(self.path.name))
        raw = text.encode("utf-8", "replace")
        room = len(raw) + 8
        buffer = (ctypes.c_int32 * room)()
        n: int = C.llama_tokenize(self.vocab, raw, len(raw), buffer, room, add_special, False)
        if n < 0:
            buffer = (ctypes.c_int32 * -n)()
            n = C.llama_tokenize(self.vocab, raw, len(raw), buffer, -n, add_special, False)
        return buffer[:n]

    def piece(self, token: int) -> bytes:
        if not self.has_text:
            raise EngineError(_NO_TEXT.format(self.path.name))
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
            # special=True: in many files protocol tokens are control tokens, and the parser needs their text.
            n: int = C.llama_token_to_piece(self.vocab, token, buffer, room, 0, True)
            if n >= 0:
                return buffer.raw[:n]
            room = -n

    def _text_of(self, token: int) -> str:
        return self._read_piece(token).decode("utf-8", "replace") if self.has_text and 0 <= token < self.n_vocab else ""

    def _find_specials(self) -> tuple[Special, ...]:
        vocab, attribute = self.vocab, C.llama_vocab_get_attr
        wanted = _ATTR_CONTROL | _ATTR_USER_DEFINED | _ATTR_UNKNOWN
        found = ((token, attribute(vocab, token)) for token in range(self.n_vocab if self.has_text else 0))
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


def digest_of(files: Sequence[Path]) -> str:
    """A hash of files: of all bytes of a small one, of the header and samples of a large one."""
    sha = hashlib.sha256()
    for file in files:
        with file.open("rb") as stream:
            size = stream.seek(0, os.SEEK_END)
            sha.update(size.to_bytes(8, "little"))
            stream.seek(0)
            for _ in range(0, min(size, _HASHED_WHOLE), _PIECE):
                sha.update(stream.read(_PIECE))
            for index in range(_SAMPLES if size > _HASHED_WHOLE else 0):
                stream.seek(_HASHED_WHOLE + (size - _HASHED_WHOLE - _SAMPLE) * index // (_SAMPLES - 1))
                sha.update(stream.read(_SAMPLE))
    return sha.hexdigest()[:32]


def _overrides(placements: Sequence[str]) -> ctypes.Array[_Override] | None:
    """The library's form of `pattern=buffer type`, with an empty one at its end. Raises: `EngineError`."""
    if not placements:
        return None
    known, found = buffer_types(), []
    for placement in placements:
        pattern, _, name = placement.rpartition("=")
        if name not in known:
            raise EngineError(
                f"override_tensor: {placement!r} names no kind of memory that is here; expected PATTERN=NAME, with one "
                f"of {', '.join(known)} as NAME"
            )
        found.append(_Override(pattern.encode(), known[name]))
    return (_Override * (len(found) + 1))(*found)


def _spread_over(servers: Sequence[str]) -> ctypes.Array[ctypes.c_void_p] | None:
    """The devices of a model that workers hold parts of, with a null at their end; workers first, as the library does
    it, since then fewer numbers cross the network. Raises: as `rpc.probe`."""
    if not servers:
        return None
    os.environ.setdefault("GGML_NO_BACKTRACE", "1")  # where a worker is lost, the library would start a debugger first
    workers = rpc.probe_all(servers)  # all of them, before the library connects to one
    found = [device for worker in workers for device in rpc_devices(worker.address)] + own_devices()
    return (ctypes.c_void_p * (len(found) + 1))(*found, None)
