"""A `llama_context` as a `Runtime`: one pool of cells, many sequences.

Facts about llama.h that shape this file (line numbers and measurements: the project's notes on llama.h):
- Many errors of a caller abort the *process*: batches above `n_batch`, more outputs than were announced, sampling
  without logits, sequences that do not exist, shifts where they are not supported, shifts of shared cells, copies onto
  cells that the target has already. Each is refused here before the call.
- A positive return of `llama_decode` leaves the cache as it was (1) or partly extended (2, aborted): see `held`.
- `seq_add` only notes a shift, and the next decode carries it out; a state saved in between is corrupt.
- Cells of sliding-window layers are reused once the window has passed, even if these layers have as many cells as the
  others (`swa_full`): `pos_min` tells what is left, and a rollback or a share that needs more is refused.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import math
import os
import sys
from array import array
from collections.abc import Callable, Sequence
from typing import Any, assert_never

from shepherd.core import EngineError, Sampling
from shepherd.core.dataclasses import dataclass
from shepherd.engine.base import (
    Adapters,
    Chunk,
    Copy,
    Decoded,
    Forget,
    Mask,
    Media,
    Memory,
    Op,
    Remove,
    Saved,
    Scored,
    Shift,
)
from shepherd.engine.kv import capabilities
from shepherd.engine.llamacpp import adapter
from shepherd.engine.llamacpp.batch import Batch
from shepherd.engine.llamacpp.library import CACHE_TYPES, FAST, C, build, devices, reason_from, start_library
from shepherd.engine.llamacpp.machine import n_processors
from shepherd.engine.llamacpp.positions import Positions
from shepherd.engine.llamacpp.projector import Projector
from shepherd.engine.llamacpp.sampler import LlamaSampler
from shepherd.engine.llamacpp.weights import Weights

QUANTIZED = frozenset(name for name in CACHE_TYPES if name.startswith("q"))
SMALL_MODEL = 50_000_000
"""Parameters below which a second thread costs more than it computes."""

PIECE = 128
"""Tokens of a piece of a prompt where answers are repeatable. Pieces of 64 to 512 take the same time within 3 %, and
half a piece is computed again for each turn."""

_FLASH_ATTENTION = {None: -1, False: 0, True: 1}
_PARTIAL = 1
"""`LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY`."""


@dataclass(frozen=True, slots=True)
class ContextOptions:
    """Options of a context. `None` means the default that measured best."""

    n_ctx: int
    """Number of cells; llama.cpp pads it to a multiple of 256."""
    n_seq: int = 1
    """Number of sequences; at most 256."""
    n_batch: int | None = None
    """Most tokens of one decode; by default `n_ubatch`, since larger batches are computed piece by piece anyway."""
    n_ubatch: int | None = None
    """Tokens computed at once; 512 by default."""
    n_outputs: int | None = None
    """Most tokens with logits in one decode; by default one per sequence. Each needs memory for two rows of logits."""
    n_threads: int | None = None
    n_threads_batch: int | None = None
    """Threads for more than one token; by default `n_threads`."""
    flash_attention: bool | None = None
    cache_type_k: str = "f16"
    cache_type_v: str = "f16"
    swa_full: bool = True
    """Give sliding-window layers as many cells as the others, so that conversations can be rolled back and shared."""
    repeatable: bool = False
    """A prompt gives the same logits whatever was computed before it (`Memory.piece`): there is one sequence, which
    begins at the first cell, and what is reused of it are whole pieces."""


class _Interrupt:
    """A flag that llama.cpp polls between graph nodes without entering Python.

    A Python callback would take the interpreter lock hundreds of times per token. C's `strlen` has the signature of the
    callback (pointer in, zero or non-zero out), so the flag is a C string: empty = continue, one character = stop.
    """

    def __init__(self) -> None:
        self._flag = ctypes.create_string_buffer(2)
        libc = ctypes.CDLL("msvcrt" if sys.platform == "win32" else None)
        self.params = {
            "abort_callback": ctypes.cast(libc.strlen, C.ggml_abort_callback),
            "abort_callback_data": ctypes.cast(self._flag, ctypes.c_void_p),
        }

    def set(self, on: bool) -> None:
        self._flag[0] = b"\x01" if on else b"\x00"


class LlamaRuntime:
    """One `llama_context`; satisfies `Runtime`. One thread at a time, except for `interrupt`."""

    def __init__(self, weights: Weights, options: ContextOptions, projector: Projector | None = None) -> None:
        """`projector`: reads images or sound for these weights; the caller closes it after this."""
        self._weights = weights
        self._projector = projector
        self._options = options
        self._interrupt = _Interrupt()
        self.n_outputs = max(options.n_outputs or 0, options.n_seq)
        advice = "try a smaller context size, or other cache types"
        self._context = weights.context(f"of {options.n_ctx} tokens", advice, self._params(options))
        self._kv = C.llama_get_memory(self._context)
        if not self._kv:
            C.llama_free(self._context)
            raise EngineError(f"{weights.path.name} has no KV cache: it is not a model that generates text")
        # llama.cpp pads the context; conversations may use only the requested cells.
        self.n_ctx = min(options.n_ctx, int(C.llama_n_ctx(self._context)))
        self.n_seq = options.n_seq
        self.n_batch = int(C.llama_n_batch(self._context))
        self._facts = weights.facts(
            type_k=options.cache_type_k,
            swa_full=options.swa_full,
            can_shift=bool(C.llama_memory_can_shift(self._kv)),
        )
        self.memory: Memory = capabilities.memory(self._facts)
        if options.repeatable:
            assert options.n_seq == 1
            self.memory = capabilities.repeatable(self.memory, min(PIECE, self.n_batch))
        # Without flash attention, all cells up to the highest used one are multiplied first and masked afterwards.
        self.pays_for_idle = flash_attention(options) is False
        self._batch = Batch(self.n_batch, self.n_seq)
        self._positions = Positions(self.n_seq) if projector is not None and projector.compresses else None
        """Where images take fewer positions than tokens; all other code here knows those of the library."""
        self._shared: list[set[int]] = [set() for _ in range(self.n_seq)]
        """Per sequence, the other sequences that may share cells with it."""
        self._incomplete: set[int] = set()
        """Sequences that wait for a checkpoint; see `_copy`."""
        self._adapters: Adapters | None = ()
        """With which the context computes; None where that is not known."""
        self._shifted = False
        self._asynchronous = bool(devices()) or weights.is_spread

    def _params(self, options: ContextOptions) -> dict[str, object]:
        n_ubatch = options.n_ubatch or 512
        n_batch = min(options.n_batch or n_ubatch, options.n_ctx)
        n_threads = options.n_threads or default_threads(self._weights.n_params)
        n_threads_batch = options.n_threads_batch or n_threads
        # An abort would leave a recurrent state between old and new.
        abort = {} if self._weights.is_recurrent else self._interrupt.params
        return {
            "n_ctx": options.n_ctx,
            "n_batch": n_batch,
            "n_ubatch": min(n_ubatch, n_batch),
            "n_seq_max": options.n_seq,
            "n_outputs_max": self.n_outputs,
            "swa_full": options.swa_full,
            "n_threads": n_threads,
            "n_threads_batch": n_threads_batch,
            "type_k": CACHE_TYPES[options.cache_type_k],
            "type_v": CACHE_TYPES[options.cache_type_v],
            "flash_attn_type": _FLASH_ATTENTION[flash_attention(options)],
            **abort,
        }

    @functools.cached_property
    def fingerprint(self) -> str:
        """Read from the file at first use. States do not depend on n_ctx and n_seq, so these are not part of it; nor on
        where the layers are: workers keep them in the same form, and one computes on what another has begun."""
        options = self._options
        facts = (
            self._weights.digest, build(), options.cache_type_k, options.cache_type_v, options.swa_full,
            flash_attention(options),  # decides how V lies in memory
            os.environ.get("LLAMA_ATTN_ROT_DISABLE"),
            *(() if self._positions is None else ("images",)),  # their positions stand behind a state
            *(() if not self.memory.piece else ("pieces", self.memory.piece, options.n_ubatch)),
        )  # fmt: skip
        return hashlib.sha256(repr(facts).encode()).hexdigest()[:32]

    # -- computing -------------------------------------------------------------------------------------------------

    def decode(self, batch: Sequence[Chunk]) -> Decoded:
        assert batch
        if (wanted := batch[0].adapters) != self._adapters:
            self._use(wanted)
        assert all(chunk.adapters == wanted for chunk in batch)
        assert not (self._incomplete and self._incomplete & {chunk.seq for chunk in batch})
        images = [chunk for chunk in batch if chunk.media is not None]
        if not images:
            return self._decode_texts(batch)
        for at, chunk in enumerate(images):
            if (decoded := self._decode_image(chunk)) != "ok":
                self._take_back(images[: at + 1])
                return decoded
        texts = [chunk for chunk in batch if chunk.media is None]
        decoded = self._decode_texts(texts) if texts else "ok"
        if decoded == "full":
            self._take_back(images)
        outputs = iter(self._batch.outputs if texts else ())
        self._batch.outputs[:] = [-1 if chunk.media is not None else next(outputs) for chunk in batch]
        return decoded

    def _decode_texts(self, batch: Sequence[Chunk]) -> Decoded:
        filled = self._batch
        n_logits = filled.fill(batch if self._positions is None else [self._placed(chunk) for chunk in batch])
        assert n_logits <= self.n_outputs
        return self._outcome(C.llama_decode(self._context, filled.struct), batch)

    def _decode_image(self, chunk: Chunk) -> Decoded:
        """All cells of an image, or none of them."""
        assert chunk.media is not None
        assert not chunk.logits
        if self._projector is None:
            raise EngineError(f"{self._weights.path.name} was loaded without a projector: it neither sees nor hears")
        position = self._placed(chunk).position
        code, n_positions = self._projector.decode(self._context, chunk.media, chunk.seq, position, self.n_batch)
        if code == 0 and self._positions is not None:
            self._positions.add(chunk.seq, chunk.position, len(chunk.tokens), n_positions)
        return self._outcome(code, [chunk])

    def _take_back(self, images: Sequence[Chunk]) -> None:
        """Remove images, one of them perhaps in part, from the ends of their sequences. Raises: `EngineError`."""
        for chunk in images:
            if self.held(chunk.seq)[1] >= chunk.position and not self._remove(chunk.seq, chunk.position, -1):
                raise EngineError(f"an image of {len(chunk.tokens)} tokens was computed in part")

    def _placed(self, chunk: Chunk) -> Chunk:
        """The chunk at the library's position."""
        if self._positions is None:
            return chunk
        # What was removed behind a hole leaves the images in the hole: the sequence ends before them.
        self._positions.cut(chunk.seq, chunk.position)
        position = self._positions.in_library(chunk.seq, chunk.position)
        assert position is not None
        return chunk._replace(position=position)

    def _outcome(self, code: int, batch: Sequence[Chunk]) -> Decoded:
        """What a code of `llama_decode` means. Raises: `EngineError` for a failure."""
        if code == 0:
            self._shifted = False
            if self._asynchronous:
                C.llama_synchronize(self._context)  # a call that releases the interpreter lock
            return "ok"
        self._batch.outputs[:] = [-1] * len(batch)
        if code == 1:
            return "full"
        if code == 2:
            self._shifted = False
            return "aborted"
        where = ", ".join(f"{len(c.tokens)} of sequence {c.seq} at position {c.position}" for c in batch[:8])
        raise EngineError(f"llama.cpp could not compute tokens: {where} (code {code}){reason_from(start_library())}")

    def prepare(self, media: Sequence[Media], on_ready: Callable[[], None]) -> bool:
        if self._projector is None:
            raise EngineError(f"{self._weights.path.name} was loaded without a projector: it neither sees nor hears")
        most = min(self.n_batch, int(C.llama_n_ubatch(self._context)))
        if (largest := max(map(self._projector.batch_size, media))) > most:
            # The library would abort the process.
            raise EngineError(
                f"an image has {largest} tokens that {self._projector.path.name} needs computed at once, but n_ubatch "
                f"is {most}; set n_ubatch = {largest} or more"
            )
        return self._projector.prepare(media, on_ready)

    def release(self, media: Sequence[Media]) -> bool:
        return self._projector is not None and self._projector.release(media)

    def waits(self) -> tuple[int, float]:
        return (0, 0.0) if self._projector is None else self._projector.waits()

    def _use(self, adapters: Adapters) -> None:
        self._adapters = None
        loaded = self._weights.adapters
        if missing := [key for key, _ in adapters if key not in loaded]:
            raise EngineError(f"an adapter of the hash {missing[0]} is not loaded")
        adapter.apply(self._context, [(loaded[key], scale) for key, scale in adapters])
        self._adapters = adapters

    def sampler(self, sampling: Sampling, history: Sequence[int], mask: Mask | None = None) -> LlamaSampler:
        return LlamaSampler(self._weights, self._context, self._batch.outputs, sampling, history, mask=mask)

    def scorer(self, chunk: int, n_top: int, behind: int = 0) -> Callable[[int], Scored]:
        import numpy as np  # noqa: PLC0415 - rarely needed, and imports slowly

        n_vocab = self._weights.n_vocab
        address = FAST.logits(self._context, self._output(chunk) - behind)
        logits: Any = (ctypes.c_float * n_vocab).from_address(address)
        row = np.frombuffer(logits, np.float32)
        row = row - row.max()  # a copy; in double precision all of this takes 15 times as long (150,000 tokens)
        whole = math.log(np.exp(row).sum(dtype=np.float64))
        n_top = min(n_top, n_vocab)
        best = np.argpartition(row, n_vocab - n_top)[n_vocab - n_top :] if n_top else ()
        found = ((int(token), float(row[token]) - whole) for token in best)
        top = tuple(sorted(found, key=lambda pair: (-pair[1], pair[0])))
        return lambda token: Scored(token, float(row[token]) - whole, top)

    def logits(self, chunk: int) -> array[float]:
        """A copy of the logits after chunk number `chunk` of the last decode, [n_vocab]; for tests and benchmarks.

        Raises: `EngineError` if they were not computed.
        """
        row = FAST.logits(self._context, self._output(chunk))
        return array("f", ctypes.string_at(row, 4 * self._weights.n_vocab))

    def _output(self, chunk: int) -> int:
        """The index in the last decode of a chunk's last token. Raises: `EngineError` if it has no logits."""
        output = self._batch.outputs[chunk]
        if output < 0:
            raise EngineError(f"chunk {chunk} of the last decode has no logits")
        return output

    def is_end(self, token: int) -> bool:
        return token in self._weights.end_tokens

    def interrupt(self, on: bool) -> None:
        """Has no effect on a recurrent memory, on a GPU or on a worker: there `decode` always completes."""
        self._interrupt.set(on)

    # -- the memory ------------------------------------------------------------------------------------------------

    def held(self, seq: int) -> tuple[int, int]:
        """A recurrent state has one position, returned twice; sliding-window layers return the lowest they hold."""
        low, high = self._held(seq)
        if self._positions is None or high < 0:
            return low, high
        return self._positions.in_engine(seq, low, last=False), self._positions.in_engine(seq, high, last=True)

    def _held(self, seq: int) -> tuple[int, int]:
        """The same in the library's positions."""
        self._check(seq)
        return FAST.pos_min(self._kv, seq), FAST.pos_max(self._kv, seq)

    def apply(self, op: Op) -> bool:
        match op:
            case Forget(seq):
                return self._forget(seq)
            case Remove(seq, start, stop):
                return self._remove(seq, start, stop)
            case Copy(source, target, start, stop):
                return self._copy(source, target, start, stop)
            case Shift(seq, start, delta):
                return self._shift(seq, start, delta)
            case _:
                assert_never(op)

    def _forget(self, seq: int) -> bool:
        self._check(seq)
        for other in self._shared[seq]:
            self._shared[other].discard(seq)
        self._shared[seq].clear()
        self._incomplete.discard(seq)
        if self._positions is not None:
            self._positions.cut(seq, 0)
        return bool(FAST.seq_rm(self._kv, seq, -1, -1))

    def _remove(self, seq: int, start: int, stop: int) -> bool:
        low, high = self._held(seq)
        begin, end = start, stop
        if self._positions is not None:
            library = self._positions.in_library(seq, max(start, 0)), self._positions.in_library(seq, stop)
            if library[0] is None or library[1] is None:
                return False  # inside of an image
            begin, end = library[0], library[1]
        is_middle = 0 <= end <= high
        if begin <= 0 and not is_middle:
            return self._forget(seq)
        if is_middle:
            if not self.memory.hole:
                return False
        elif begin <= high and not self._reaches(low, begin):
            return False
        # A recurrent state itself refuses to go back; behind a checkpoint only attention layers have more to remove.
        is_removed = bool(FAST.seq_rm(self._kv, seq, begin, end))
        if is_removed and not is_middle and self._positions is not None:
            self._positions.cut(seq, start)
        return is_removed

    def _reaches(self, low: int, position: int) -> bool:
        """Whether sliding-window layers that hold positions from `low` on have all that a token at `position` needs."""
        return low <= max(0, position - self._facts.n_swa + 1) if self._facts.n_swa else True

    def _copy(self, source: int, target: int, start: int, stop: int) -> bool:
        """If cells are not the whole state (`Memory.checkpoint`), the target must be completed by `load` next."""
        self._check(target)
        low, high = self._held(source)
        if source == target or self.held(target)[1] >= max(0, start):
            return False
        positions = self._positions
        if positions is not None:
            if self._held(target)[1] >= 0 and not positions.agree(source, target, start):
                return False  # the same text stands elsewhere there
            whole = positions.in_library(source, start), positions.in_library(source, stop)
            if whole[0] is None or whole[1] is None:
                return False  # inside of an image
            positions.copy(source, target, stop)
            start, stop = whole[0], whole[1]
        ends_early = 0 <= stop <= high
        if self.memory.checkpoint:
            if start > 0:
                return False
            # Window cells that two sequences share are never reused: copied windows would fill their small pool.
            if ends_early or (self._facts.n_swa and not self._facts.swa_full):
                self._incomplete.add(target)
        elif not self.memory.share or (ends_early and not self._reaches(low, stop)):
            return False
        FAST.seq_cp(self._kv, source, target, start, stop)
        group = {source, target} | self._shared[source] | self._shared[target]
        for member in group:
            self._shared[member] |= group - {member}
        return True

    def _shift(self, seq: int, start: int, delta: int) -> bool:
        self._check(seq)
        possible = self.memory.shift and not capabilities.is_shift_fatal(self._facts)
        if not possible or self._shared[seq] or delta >= 0 or start + delta < 0:
            return False
        FAST.seq_add(self._kv, seq, start, -1, delta)
        self._shifted = True
        return True

    def save(self, seq: int, *, partial: bool = False) -> bytes:
        self._check(seq)
        flags = _PARTIAL if partial else 0
        if self._shifted or self.held(seq)[1] < 0:
            return b""
        size: int = C.llama_state_seq_get_size_ext(self._context, seq, flags)
        state = _uninitialised(None, size)
        written: int = C.llama_state_seq_get_data_ext(self._context, _address_of(state), size, seq, flags)
        if written == size and self._positions is not None and not partial:
            return state + self._positions.saved(seq)
        return state if written == size else b""

    def load(self, seq: int, state: Saved, *, partial: bool = False) -> bool:
        self._check(seq)
        if not partial:
            self._forget(seq)
        flags = _PARTIAL if partial else 0
        size = len(state) if partial or self._positions is None else self._positions.load(seq, state)
        read: int = C.llama_state_seq_set_data_ext(self._context, _address_of(state), max(0, size), seq, flags)
        if read == size > 0:
            self._incomplete.discard(seq)
            return True
        start_library().errors.clear()
        self._forget(seq)
        return False

    # -- measuring -------------------------------------------------------------------------------------------------

    def _check(self, seq: int) -> None:
        if not 0 <= seq < self.n_seq:  # the library would abort the process
            raise EngineError(f"there is no sequence {seq}, only 0 to {self.n_seq - 1}")

    def close(self) -> None:
        if self._context:
            C.llama_free(self._context)
            self._context = None


def _address_of(state: Saved) -> Any:
    if isinstance(state, memoryview):
        return (ctypes.c_uint8 * len(state)).from_buffer(state)
    return ctypes.cast(ctypes.c_char_p(state), ctypes.POINTER(ctypes.c_uint8))


_uninitialised: Callable[[None, int], bytes] = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_ssize_t)(
    ("PyBytes_FromStringAndSize", ctypes.pythonapi)
)
"""Makes a bytes object for C to fill before any other use: states are large, and to copy them out of a buffer takes
longer than writing them."""


# -- defaults ------------------------------------------------------------------------------------------------------


def flash_attention(options: ContextOptions) -> bool | None:
    """Whether to use flash attention: the option; True for a quantised V cache; None (the library decides) on a GPU;
    else False.

    On CPUs the library's automatic choice halves the speed of decoding behind a long context (bench/engine/engine.py).
    """
    if options.flash_attention is not None:
        return options.flash_attention
    if options.cache_type_v in QUANTIZED:
        return True
    return None if devices() else False


def default_threads(n_params: int = SMALL_MODEL) -> int:
    """The number of physical cores that are not busy; at least one, and one for a very small model.

    OpenMP threads that outnumber the free cores wait for each other by spinning, which makes decoding a hundred times
    slower. A model of a few million parameters gains little from a second thread and may lose much.
    """
    most = usual_threads(n_params)
    if most == 1:
        return 1
    import psutil  # noqa: PLC0415 - only needed when the user did not choose

    busy = round(psutil.cpu_percent(interval=0.05) / 100 * (os.cpu_count() or 1))
    return max(1, min(most, (os.cpu_count() or 1) - busy))


def usual_threads(n_params: int) -> int:
    """The same on an idle machine: the physical cores, of which this process may use only some."""
    import psutil  # noqa: PLC0415 - as above

    cores = psutil.cpu_count(logical=False) or os.cpu_count() or 1
    return 1 if n_params < SMALL_MODEL else min(cores, n_processors())
