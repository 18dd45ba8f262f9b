"""Recordings as samples: the library decodes them (miniaudio, by libmtmd), as llama-server does, in a child process
with limits (`process/isolated.py`), so that no file can keep a thread, or end this process.

    stream of `media/sound.py` ─ decode ─▶ child: packed ─ read_by(ear) ─▶ samples, float32, one channel, 16 kHz

libmtmd decodes for a projector only. The child has the smallest one, without a model: `ear.gguf`, of one tensor, which
`tests/unit/engine/llamacpp/test_samples.py` makes. For a projector of another rate (MiMo-Audio's 24 kHz) that projector
itself decodes, in this process.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shepherd.core import EngineError, InvalidRequest
from shepherd.engine.llamacpp.library import libmtmd, reason_from, start_library
from shepherd.process.isolated import TooMuch, WorkFailed, convert_isolated

EAR = Path(__file__).with_name("ear.gguf")
RATE = 16_000
"""Samples a second that the ear makes."""
DECODE_S, DECODE_SHARE = 10.0, 0.02
"""Processor time for one recording: so much, and a share of its length. An hour of MP3 takes two seconds."""


def decode(
    stream: bytes, seconds: float, is_wanted: Callable[[], bool] = lambda: True, *, deadline_s: float | None = None
) -> bytes:
    """The samples of a recording of so many seconds, in a child process. Blocks: call it in a thread.

    Raises: `InvalidRequest`; `child.Cancelled` as soon as `is_wanted` returns False.
    """
    limit_s = DECODE_S + DECODE_SHARE * seconds if deadline_s is None else deadline_s
    try:
        return convert_isolated(f"{__name__}:packed", stream, deadline_s=limit_s, is_wanted=is_wanted)
    except TooMuch as error:
        raise InvalidRequest(
            f"a recording of {seconds:.1f} s takes a decoder more than {limit_s:g} s or too much memory; save it again "
            "as a WAV file, or send less of it"
        ) from error
    except WorkFailed as error:
        raise InvalidRequest(error.message) from error


def packed(stream: bytes) -> bytes:
    """For `convert_isolated`: as `read_by`, for the ear. Raises: `EngineError` too."""
    mtmd, log = libmtmd(), start_library()
    params = mtmd.mtmd_context_params_default()
    params.use_gpu, params.n_threads, params.print_timings, params.warmup = False, 1, False, False
    handle = mtmd.mtmd_init_from_file(bytes(EAR), None, params)
    if not handle:
        raise EngineError(f"recordings cannot be decoded by this build of the native library{reason_from(log)}")
    return read_by(handle, stream)


def read_by(handle: Any, stream: bytes) -> bytes:
    """The samples that the library decodes for a projector, in its rate. Raises: `InvalidRequest`."""
    mtmd, log = libmtmd(), start_library()
    buffer = ctypes.cast(ctypes.c_char_p(stream), ctypes.POINTER(ctypes.c_uint8))
    bitmap = mtmd.mtmd_helper_bitmap_init_from_buf(handle, buffer, len(stream), False)
    if not bitmap:
        raise InvalidRequest(f"a recording is damaged, and cannot be decoded{reason_from(log)}")
    try:
        return ctypes.string_at(mtmd.mtmd_bitmap_get_data(bitmap), mtmd.mtmd_bitmap_get_n_bytes(bitmap))
    finally:
        mtmd.mtmd_bitmap_free(bitmap)
