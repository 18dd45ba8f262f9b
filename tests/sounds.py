"""Recordings, made here."""

from __future__ import annotations

import math
import struct


def wave(n: int = 1_600, *, rate: int = 16_000) -> bytes:
    """A WAV file of `n` samples of a tone: 16 bits, one channel."""
    samples = struct.pack(f"<{n}h", *(int(8_000 * math.sin(at / 9)) for at in range(n)))
    form = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, rate, 2 * rate, 2, 16)
    body = b"WAVE" + form + struct.pack("<4sI", b"data", len(samples)) + samples
    return b"RIFF" + struct.pack("<I", len(body)) + body


MP3 = b"\xff\xfb\x90\x00" + bytes(413)
FLAC = b"fLaC\x80\0\0\x22" + bytes(34)
"""Their beginnings; nothing in them can be played."""
