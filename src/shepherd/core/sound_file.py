"""A recording by its first bytes: its type. Nothing is decoded."""

from __future__ import annotations

import re
from collections.abc import Mapping

HEAD_BYTES = 16
"""Of which the type is known."""

_BEGINNINGS: Mapping[str, re.Pattern[bytes]] = {
    "audio/wav": re.compile(rb"RIFF....WAVE", re.DOTALL),
    "audio/flac": re.compile(rb"fLaC"),
    # A tag, or the head of a frame: MPEG 1, 2 or 2.5, layer III.
    "audio/mpeg": re.compile(rb"ID3|\xff[\xe2\xe3\xf2\xf3\xfa\xfb]"),
}


def find_type(data: bytes) -> str | None:
    """The media type of a WAV, MP3 or FLAC file by its first bytes; None for anything else."""
    return next((kind for kind, pattern in _BEGINNINGS.items() if pattern.match(data)), None)
