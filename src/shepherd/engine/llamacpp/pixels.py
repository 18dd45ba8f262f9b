"""Image files as pixels: Pillow decodes them, with limits, so that no C code of the model's library parses a file.

What it makes of a PNG file is, byte for byte, what llama-server's decoder makes of it: eight bits a colour, no
transparency, the first frame of an animation. Photos are turned as their file says (EXIF).
"""

from __future__ import annotations

import io
import warnings
from typing import Any

from shepherd.core import InvalidRequest

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
MOST_PIXELS = 64_000_000
"""Of one image, which is decoded to three bytes a pixel from any format. An operator's limits come before."""
_WIDE = {"I;16": 256, "I;16B": 256, "I;16L": 256, "I": 256}
"""Modes of more than eight bits, by what one value of eight bits is worth in them."""


def rgb(data: bytes) -> tuple[int, int, bytes]:
    """Width, height and the pixels, row by row, three bytes each. Raises: `InvalidRequest`."""
    from PIL import ImageOps  # noqa: PLC0415 - most programs see no image

    image = _opened(data)
    try:
        image.load()
        if image.mode in _WIDE:  # its own conversion would cut values off at 255
            image = image.convert("I").point(lambda value: value / _WIDE["I"])
        image = ImageOps.exif_transpose(image).convert("RGB")
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
