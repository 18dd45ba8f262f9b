"""Image files for tests: right ones of every format, and the wrong ones that clients send."""

from __future__ import annotations

import base64
import io
import struct
import zlib
from collections.abc import Callable

from PIL import Image as Pillow

NAMES = {"PNG": "image/png", "JPEG": "image/jpeg", "GIF": "image/gif", "WEBP": "image/webp", "BMP": "image/bmp"}


def picture(name: str = "PNG", size: tuple[int, int] = (8, 6), n_frames: int = 1, tint: int = 0) -> bytes:
    """An image file that Pillow has written; `tint` makes another one of it."""
    frames = [Pillow.new("RGB", size, (tint, 255 * (at % 2), at)) for at in range(n_frames)]
    file = io.BytesIO()
    more = {"save_all": True, "append_images": frames[1:], "duration": 50} if n_frames > 1 else {}
    frames[0].save(file, name, **more)
    return file.getvalue()


def chunk(kind: bytes, content: bytes) -> bytes:
    """A chunk of a PNG."""
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def claiming(width: int, height: int) -> bytes:
    """A PNG of a few bytes that claims a size."""
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(bytes(9))) + chunk(b"IEND", b"")


def of_scans(n_more: int, size: tuple[int, int] = (48, 40), between: bytes = b"") -> bytes:
    """A progressive JPEG file whose last scan stands in it so many times more."""
    file = io.BytesIO()
    Pillow.new("RGB", size).save(file, "JPEG", progressive=True)
    data = file.getvalue()
    end = data.rfind(b"\xff\xd9")
    return data[:end] + (between + data[data.rfind(b"\xff\xda") : end]) * n_more + data[end:]


WRONG: dict[str, tuple[Callable[[], bytes], int, str]] = {
    "60,000 x 60,000": (
        lambda: claiming(60_000, 60_000), 400, "has 60,000 x 60,000 pixels, and the limit is 40,000,000",
    ),
    "50 megapixels": (lambda: claiming(8192, 6144), 400, "has 8,192 x 6,144 pixels, and the limit is 40,000,000"),
    "a pixel by 40 million": (
        lambda: claiming(1, 40_000_000), 400, "1 x 40,000,000 pixels, and the limit is 65,535 a side",
    ),
    "1,010 scans": (
        lambda: of_scans(1000), 400, "is a JPEG file of 1,010 scans, and the limit is 100; save it again with",
    ),
    "too many bytes": (
        lambda: picture() + bytes(20 * 2**20), 413, "bytes, and the limit is 20,971,520 (images.max_bytes)",
    ),
    "an animated GIF": (
        lambda: picture("GIF", n_frames=2), 400, "is an animation, and a model sees one picture; send one",
    ),
    "an animated WebP": (lambda: picture("WEBP", n_frames=2), 400, "is an animation, and a model sees one picture"),
    "an animated PNG": (lambda: picture("PNG", n_frames=2), 400, "is an animation, and a model sees one picture"),
    "a truncated PNG": (
        lambda: picture()[:-20], 400, "is a file of type image/png that ends too early; send all of it",
    ),
    "a truncated JPEG": (lambda: picture("JPEG")[:-20], 400, "is a file of type image/jpeg that ends too early"),
    "a truncated WebP": (lambda: picture("WEBP")[:-9], 400, "is a file of type image/webp that ends too early"),
    "an SVG": (lambda: b'<svg xmlns="http://www.w3.org/2000/svg"/>', 400, "is an SVG drawing; send a whole PNG, JPEG"),
    "HTML": (lambda: b"<!doctype html><title>Not found</title>", 400, "is an HTML page; send a whole PNG, JPEG"),
    "a PDF": (lambda: b"%PDF-1.7 \xff", 400, "is a PDF document; send a whole PNG"),
    "a header cut off": (
        lambda: picture("JPEG")[:12], 400, "begins like image/jpeg and has no readable header; send a whole",
    ),
}  # fmt: skip
"""By what it is: what makes the bytes, the status of the answer, and a part of the sentence."""


def data_url(data: bytes, media_type: str = "image/png") -> str:
    return f"data:{media_type};base64,{base64.b64encode(data).decode()}"
