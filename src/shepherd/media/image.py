"""An image file by its first bytes and its structure: its type, its size, whether it is whole. Nothing is decoded.

    first bytes ─▶ PNG | JPEG | GIF | WebP | BMP ─ a walk over its blocks ─▶ ImageFile(media_type, width, height, ...)

The type that a client names proves nothing, and a decoder needs memory for as many pixels as the header promises: both
are read here before anything decodes the file. A walk takes at most a number of steps that grows with the file, so a
file of a million empty blocks costs milliseconds.
"""

from __future__ import annotations

import codecs
import math
import re
import struct
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from struct import unpack_from
from typing import TypeVar

from shepherd.core.dataclasses import dataclass

T = TypeVar("T")

HEAD_BYTES = 1024
"""Of which the kind of a file that is no image is guessed."""


class NotMedia(ValueError):
    """The bytes are no image, or recording, of a known format; the text is the end of a sentence: "is an HTML page"."""

    def __init__(self, what: str, *, is_text: bool = False) -> None:
        super().__init__(what)
        self.is_text = is_text
        """Empty or text: nothing for anyone. Otherwise another program may know the format."""


@dataclass(frozen=True, slots=True)
class ImageFile:
    media_type: str
    width: int
    height: int
    """Both in pixels, at least 1, as stored: no rotation by EXIF is applied."""
    is_whole: bool = True
    """The file reaches the end that its structure names; what is in between may still be damaged."""
    is_animated: bool = False
    """It holds a second frame."""
    scans: int = 1
    """How often a decoder passes over all pixels: a progressive JPEG file may have it do so thousands of times."""


def find_type(data: bytes) -> str | None:
    """The media type of an image by its first bytes; None for anything else."""
    return next((kind for kind, (start, _) in FORMATS.items() if re.match(start, data, re.DOTALL)), None)


def read_header(data: bytes) -> ImageFile:
    """The facts about an image file. Time: linear in `len(data)`, far below a millisecond for usual files.

    Raises: `NotMedia` where the first bytes are of no known format, or the header has no size.
    """
    kind = find_type(data)
    if kind is None:
        name, is_text = kind_of(data[:HEAD_BYTES])
        raise NotMedia(f"is {name}", is_text=is_text)
    try:
        found = FORMATS[kind][1](data)
    except (struct.error, IndexError):
        found = None
    if found is None or found.width < 1 or found.height < 1:
        raise NotMedia(f"begins like {kind} and has no readable header")
    return found


# -- formats ----------------------------------------------------------------------------------------------------------


def _png(data: bytes) -> ImageFile | None:
    if data[12:16] != b"IHDR":
        return None
    width, height = unpack_from(">II", data, 16)
    has_pixels = is_whole = is_animated = False
    for kind, start, _ in _steps(data, _png_chunks(data)):
        if kind == b"acTL":
            is_animated = unpack_from(">I", data, start)[0] > 1
        has_pixels = has_pixels or kind == b"IDAT"
        is_whole = kind == b"IEND" and has_pixels
    return ImageFile("image/png", width, height, is_whole, is_animated)


def _png_chunks(data: bytes) -> Iterator[tuple[bytes, int, int]]:
    """The type, the start and the end of the content of each whole chunk, up to IEND."""
    at = 8
    while at + 12 <= len(data):
        size, kind = unpack_from(">I4s", data, at)
        if at + 12 + size > len(data):
            return
        yield kind, at + 8, at + 8 + size
        if kind == b"IEND":
            return
        at += 12 + size


def _jpeg(data: bytes) -> ImageFile | None:
    width = height = scans = 0
    is_whole = False
    for marker, start, _ in _steps(data, _jpeg_segments(data)):
        if marker in _FRAMES:
            height, width = max((height, width), unpack_from(">HH", data, start + 1), key=math.prod)
        scans += marker == _SCAN
        is_whole = marker == _END and scans > 0
    return ImageFile("image/jpeg", width, height, is_whole, scans=max(1, scans))


_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""The markers that begin a frame; the three others in this range are tables."""
_SCAN, _END = 0xDA, 0xD9
_ALONE = frozenset({0x01, *range(0xD0, 0xD9)})
"""Markers without a segment."""
_MARKER = re.compile(rb"\xff+([\x02-\xcf\xd8-\xfe])")
"""In pixels and behind them, where a decoder passes over all else: a zero makes a byte 0xFF of it, and marks of restart
stand between pixels."""


def _jpeg_segments(data: bytes) -> Iterator[tuple[int, int, int]]:
    """The marker, the start and the end of the content of each segment, up to the end of the image."""
    at, has_pixels = 2, False
    while at + 2 <= len(data):
        if has_pixels:
            if (found := _MARKER.search(data, at)) is None:
                return
            at = found.end() - 2
        if data[at] != 0xFF:
            return
        marker = data[at + 1]
        if marker == 0xFF or marker in _ALONE or marker == _END:
            at += 1 if marker == 0xFF else 2
            yield marker, at, at
            if marker == _END:
                return
            continue
        if at + 4 > len(data):
            return
        stop = at + 2 + unpack_from(">H", data, at + 2)[0]
        yield marker, at + 4, stop
        has_pixels = has_pixels or marker == _SCAN
        at = max(stop, at + 4) if has_pixels else stop


def _gif(data: bytes) -> ImageFile | None:
    """A file may end behind a whole frame: readers do not need the trailer. A frame may stand out of the screen."""
    width, height, flags = unpack_from("<HHB", data, 6)
    blocks = _steps(data, _gif_blocks(data, 13 + _colours(flags)))
    frames = list(islice((at for kind, at in blocks if kind == _FRAME), 2))
    for at in frames[:1]:
        left, top, wide, high = unpack_from("<HHHH", data, at + 1)
        width, height = max(width, left + wide), max(height, top + high)
    return ImageFile("image/gif", width, height, len(frames) > 0, len(frames) > 1)


_FRAME, _EXTENSION, _PIECE = 0x2C, 0x21, 0
"""Kinds of blocks of a GIF file; a piece is one of our own: some bytes of a block."""


def _colours(flags: int) -> int:
    """Bytes of a table of colours."""
    return 3 << ((flags & 7) + 1) if flags & 0x80 else 0


def _gif_blocks(data: bytes, at: int) -> Iterator[tuple[int, int]]:
    """The kind and the start of each whole block and of its pieces."""
    while at < len(data):
        kind, start = data[at], at
        if kind == _FRAME:
            at += 11 + _colours(data[at + 9])  # a descriptor, its colours, the size of its codes
        elif kind == _EXTENSION:
            at += 2
        else:
            return
        while at < len(data) and (size := data[at]):
            yield _PIECE, at
            at += 1 + size
        if at >= len(data):
            return
        yield kind, start
        at += 1


def _webp(data: bytes) -> ImageFile | None:
    """The size of a canvas is checked against that of the picture on it: a decoder makes room for both."""
    sizes: list[tuple[int, int]] = []
    is_animated = has_pixels = False
    for kind, start, stop in _steps(data, _riff_chunks(data)):
        if kind == b"VP8X":
            is_animated = bool(data[start] & 2)
            sizes.append((1 + _triple(data, start + 4), 1 + _triple(data, start + 7)))
        elif kind == b"VP8L" and data[start] == 0x2F:
            (bits,) = unpack_from("<I", data, start + 1)
            sizes.append((1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)))
        elif kind == b"VP8 " and data[start + 3 : start + 6] == b"\x9d\x01\x2a":
            width, height = unpack_from("<HH", data, start + 6)
            sizes.append((width & 0x3FFF, height & 0x3FFF))
        is_animated = is_animated or kind == b"ANMF"
        has_pixels = has_pixels or (kind in {b"VP8 ", b"VP8L", b"ANMF"} and stop <= len(data))
    is_whole = has_pixels and len(data) >= 8 + unpack_from("<I", data, 4)[0]
    return max(
        (ImageFile("image/webp", width, height, is_whole, is_animated) for width, height in sizes),
        key=lambda each: each.width * each.height,
        default=None,
    )


def _triple(data: bytes, at: int) -> int:
    low, high = unpack_from("<HB", data, at)
    return int(low | high << 16)


def _riff_chunks(data: bytes) -> Iterator[tuple[bytes, int, int]]:
    """The name, the start and the end of the content of each chunk; the end may lie behind that of the file."""
    at = 12
    while at + 8 <= len(data):
        kind, size = unpack_from("<4sI", data, at)
        yield kind, at + 8, at + 8 + size
        at += 8 + size + size % 2


def _bmp(data: bytes) -> ImageFile | None:
    start, size_of_header = unpack_from("<II", data, 10)
    if size_of_header == 12:
        width, height, _, depth = unpack_from("<HHHH", data, 18)
        packing, n_bytes = 0, 0
    else:
        width, height, _, depth, packing, n_bytes = unpack_from("<iiHHII", data, 18)
        height = abs(height)  # negative: the first row is the top one
    if packing in _PLAIN:
        n_bytes = (width * depth + 31) // 32 * 4 * height
    return ImageFile("image/bmp", width, height, start < len(data) and start + n_bytes <= len(data))


_PLAIN = frozenset({0, 3, 6})
"""The ways of packing in which every row has the same size."""


def _steps(data: bytes, blocks: Iterator[T]) -> Iterator[T]:
    """The blocks, at most as many as a usual file of this size has: one of 128 bytes is rare."""
    return islice(blocks, 64_000 + len(data) // 128)


FORMATS: Mapping[str, tuple[bytes, Callable[[bytes], ImageFile | None]]] = {
    "image/png": (rb"\x89PNG\r\n\x1a\n", _png),
    "image/jpeg": (rb"\xff\xd8\xff", _jpeg),
    "image/gif": (rb"GIF8[79]a", _gif),
    "image/webp": (rb"RIFF....WEBP", _webp),
    "image/bmp": (rb"BM....\0\0\0\0", _bmp),
}
"""How the files of each format begin, as a regular expression, and what reads the rest."""


# -- what is no image --------------------------------------------------------------------------------------------------

_OTHERS = (
    (rb"\s*(<\?xml[^>]*>\s*)?(<!--.*?-->\s*)*(<!doctype svg[^>]*>\s*)?<svg\b", "an SVG drawing"),
    (rb"\s*(<!--.*?-->\s*)*<(!doctype html|html|head|body)\b", "an HTML page"),
    (rb"%PDF-", "a PDF document"),
    (rb"....ftyp(hei|hev|mif|msf)", "a HEIF image"),
    (rb"....ftypavi", "an AVIF image"),
    (rb"....ftyp", "a film"),
    (rb"II\*\0|MM\0\*", "a TIFF image"),
    (rb"\0\0\x01\0", "an icon"),
    (rb"\xff\x0a|\0\0\0\x0cJXL ", "a JPEG XL image"),
    (rb"\s*[{\[]", "JSON or text"),
)
"""The beginnings of what is sent in place of an image, and its name."""


def kind_of(head: bytes) -> tuple[str, bool]:
    """What these first bytes are of, and whether it is text."""
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(head)  # its last character may be cut
    except UnicodeDecodeError:
        text = "\0"
    is_text = not any(char < " " and char not in "\t\n\r\f" for char in text)
    known = (name for start, name in _OTHERS if re.match(start, head, re.DOTALL | re.IGNORECASE))
    return next(known, "empty" if not head else "text" if is_text else "of an unknown format"), is_text
