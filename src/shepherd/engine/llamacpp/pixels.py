"""Image files as pixels: Pillow decodes them, so that no C code of the model's library parses a file; it does so in a
child process with limits (`process/isolated.py`), so that no file can keep a thread or memory of ours.

    file ─ decode ─▶ child: packed ─ rgb ─▶ width, height, pixels ─▶ the bitmap of the library

What it makes of a PNG file is, byte for byte, what llama-server's decoder makes of it: eight bits a colour, no
transparency, the first frame of an animation. Photos are turned as their file says (EXIF).
"""

from __future__ import annotations

import io
import struct
import warnings
from collections.abc import Callable
from typing import Any

from shepherd.core import InvalidRequest
from shepherd.process.isolated import TooMuch, WorkFailed, convert_isolated

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
MOST_PIXELS = 64_000_000
"""Of one image, which is decoded to three bytes a pixel from any format. An operator's limits come before."""
_WIDE = {"I;16": 256, "I;16B": 256, "I;16L": 256, "I": 256}
"""Modes of more than eight bits, by what one value of eight bits is worth in them."""


DECODE_S = 10.0
"""Of processor time for one image. Usual ones take some milliseconds; 64 million pixels of a progressive JPEG two
seconds."""
_SIZE = struct.Struct("<II")


def decode(
    data: bytes, is_wanted: Callable[[], bool] = lambda: True, *, deadline_s: float = DECODE_S
) -> tuple[int, int, bytes]:
    """As `rgb`, in a child process. Blocks: call it in a thread.

    Raises: `InvalidRequest`; `child.Cancelled` as soon as `is_wanted` returns False.
    """
    try:
        made = convert_isolated(f"{__name__}:packed", data, deadline_s=deadline_s, is_wanted=is_wanted)
    except TooMuch as error:
        raise InvalidRequest(
            f"an image of {len(data):,} bytes takes a decoder more than {deadline_s:g} s or too much memory; save it "
            "again with usual settings, or scale it down"
        ) from error
    except WorkFailed as error:
        raise InvalidRequest(error.message) from error
    return *_SIZE.unpack_from(made), made[_SIZE.size :]


def packed(data: bytes) -> bytes:
    """For `convert_isolated`: as `rgb`, one behind the other."""
    width, height, pixels = rgb(data)
    return _SIZE.pack(width, height) + pixels


def rgb(data: bytes) -> tuple[int, int, bytes]:
    """Width, height and the pixels, row by row, three bytes each. Raises: `InvalidRequest`."""
    from PIL import ImageOps  # noqa: PLC0415 - most programs see no image

    image = _opened(data)
    try:
        image.load()
        if image.mode in _WIDE:  # its own conversion would cut values off at 255
            image = image.convert("I").point(lambda value: value / _WIDE["I"])
        image = ImageOps.exif_transpose(image).convert("RGB")
    except MemoryError:
        raise
    except Exception as error:  # the decoders raise nearly anything on damaged files
        raise InvalidRequest(f"an image of {len(data)} bytes is damaged or not whole: {error}") from error
    return image.width, image.height, image.tobytes()


def _opened(data: bytes) -> Any:
    from PIL import Image  # noqa: PLC0415 - as above

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            image = Image.open(io.BytesIO(data), formats=FORMATS)
    except Exception as error:
        formats = ", ".join(FORMATS)
        raise InvalidRequest(f"{len(data)} bytes are no image that can be read; send one of {formats}") from error
    if image.width * image.height > MOST_PIXELS:
        raise InvalidRequest(
            f"an image has {image.width} x {image.height} pixels, more than the {MOST_PIXELS} that are decoded; "
            "send a smaller one"
        )
    return image
