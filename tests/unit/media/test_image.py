"""That the header of an image says what Pillow says of it, and that no bytes make reading it fail or take long."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from PIL import Image as Pillow
from tests.cases import examples
from tests.pictures import NAMES, chunk, claiming, of_scans

from shepherd.media.image import FORMATS, ImageFile, NotMedia, find_type, read_header

MODES = {
    "PNG": ("1", "L", "LA", "P", "RGB", "RGBA", "I;16"),
    "JPEG": ("L", "RGB", "CMYK"),
    "GIF": ("L", "P", "RGB"),
    "WEBP": ("RGB", "RGBA"),
    "BMP": ("1", "L", "P", "RGB"),
}
OPTIONS: dict[str, tuple[dict[str, Any], ...]] = {
    "PNG": ({}, {"compress_level": 0}, {"dpi": (72, 72)}),
    "JPEG": ({}, {"progressive": True}, {"exif": b"Exif\0\0" + b"\xff\xd9" * 40}, {"restart_marker_blocks": 1}),
    "GIF": ({}, {"interlace": 0}, {"comment": b"x" * 700}, {"transparency": 0}),
    "WEBP": ({}, {"lossless": True}, {"exif": b"Exif\0\0abc"}, {"xmp": b"x"}),
    "BMP": ({}, {"dpi": (72, 72)}),
}
ANIMATED = {"PNG": {"save_all": True}, "GIF": {"save_all": True}, "WEBP": {"save_all": True}}


def encoded(name: str, mode: str, size: tuple[int, int], options: dict[str, Any], n_frames: int = 1) -> bytes:
    frames = [Pillow.new(mode, size, 255 * (at % 2)) for at in range(n_frames)]
    file = io.BytesIO()
    more = {**ANIMATED[name], "append_images": frames[1:], "duration": 50} if n_frames > 1 else {}
    frames[0].save(file, name, **options, **more)
    return file.getvalue()


@st.composite
def images(draw: st.DrawFn, *, longest: int = 300) -> tuple[str, bytes]:
    name = draw(st.sampled_from(sorted(NAMES)))
    side = st.integers(1, longest)
    options = draw(st.sampled_from(OPTIONS[name]))
    return name, encoded(name, draw(st.sampled_from(MODES[name])), (draw(side), draw(side)), options)


@settings(max_examples=examples(400), deadline=None)
@given(images())
def test_the_header_says_what_pillow_says(made: tuple[str, bytes]) -> None:
    name, data = made
    with Pillow.open(io.BytesIO(data)) as expected:
        assert replace(read_header(data), scans=1) == ImageFile(NAMES[name], *expected.size)
    assert find_type(data) == NAMES[name]


@pytest.mark.parametrize(
    ("options", "scans"),
    [({}, 1), ({"progressive": True}, 10), ({"restart_marker_blocks": 1}, 1), ({"exif": b"Exif\0\0\xff\xda" * 9}, 1)],
)
def test_the_scans_of_a_jpeg_are_counted(options: dict[str, Any], scans: int) -> None:
    data = encoded("JPEG", "RGB", (50, 40), options)
    assert read_header(data).scans == scans
    assert read_header(data + data).scans == scans, "a decoder stops at the end of the image"


def test_scans_behind_others_are_counted_wherever_they_stand() -> None:
    """Behind a comment that has the marks of an end and of a scan, behind other bytes, and behind marks of restart."""
    comment = b"\xff\xfe\0\x08\xff\xd9\xff\xda\xff\xda"
    for between in (b"", comment, b"xyz", b"\xff\xd3\xff\0", b"\xff\xff\xff"):
        found = read_header(of_scans(1000, between=between))
        assert (found.scans, found.is_whole) == (1010, True), between


@pytest.mark.parametrize("name", sorted(ANIMATED))
@pytest.mark.parametrize("n_frames", [1, 2, 3])
def test_a_second_frame_makes_an_animation(name: str, n_frames: int) -> None:
    data = encoded(name, "RGB" if name == "WEBP" else "L", (7, 5), {}, n_frames)
    assert read_header(data) == ImageFile(NAMES[name], 7, 5, is_animated=n_frames > 1)


@settings(max_examples=examples(400), deadline=None)
@given(images(), st.floats(0, 1, exclude_max=True))
def test_a_file_that_was_cut_is_not_whole(made: tuple[str, bytes], share: float) -> None:
    name, data = made
    # The trailer of a GIF, the padding of a WebP: readers need neither.
    cut = data[: int(share * (len(data) - (2 if name == "GIF" else 0)))]
    try:
        found = read_header(cut)
    except NotMedia:
        return
    assert not found.is_whole
    with Pillow.open(io.BytesIO(data)) as expected:
        assert (found.width, found.height) == expected.size


@settings(max_examples=examples(600), deadline=None)
@given(images(longest=40), st.lists(st.tuples(st.floats(0, 1), st.binary(max_size=6)), max_size=4))
@example(("PNG", b"\x89PNG\r\n\x1a\n"), [])
@example(("GIF", b"GIF89a\1\0\1\0\0\0\0,\0\0\0\0\x10\x27\x10\x27\x80\2\1\0\0"), [])
def test_a_damaged_file_is_read_or_refused_and_never_smaller_than_for_pillow(
    made: tuple[str, bytes], changes: list[tuple[float, bytes]]
) -> None:
    data = bytearray(made[1])
    for share, other in changes:
        at = int(share * len(data))
        data[at : at + len(other)] = other
    try:
        found = read_header(bytes(data))
    except NotMedia:
        return
    if not found.is_whole:
        return  # refused before anything decodes it; decoders look for a frame elsewhere then
    try:
        with Pillow.open(io.BytesIO(data)) as opened:
            size = opened.size
    except Exception:  # Pillow has its own limits; what it refuses cannot hurt
        return
    assert found.width * found.height >= size[0] * size[1]


@settings(max_examples=examples(600), deadline=None)
@given(
    st.sampled_from([b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF89a", b"RIFFxxxxWEBP", b"BMxxxx\0\0\0\0", b""]),
    st.binary(),
)
def test_no_bytes_make_it_fail(start: bytes, rest: bytes) -> None:
    try:
        found = read_header(start + rest)
    except NotMedia:
        return
    assert found.width > 0 < found.height


def test_the_size_is_known_before_anything_is_decoded() -> None:
    assert read_header(claiming(60_000, 60_000)) == ImageFile("image/png", 60_000, 60_000)


CANVAS = encoded("WEBP", "RGB", (9, 4), {"exif": b"Exif\0\0abc"})
FRAME = b"\xff\xc0\0\x0b\x08%b\1\1\x11\0"
LATER_SIZES = {
    # A second frame header in a JPEG, a frame that stands out of a GIF's screen, a WebP whose canvas is too small.
    "JPEG": (b"\xff\xd8" + FRAME % b"\0\1\0\1" + FRAME % b"\x27\x10\x27\x10" + b"\xff\xda\0\2\xff\xd9", 10**8),
    "GIF": (b"GIF89a\1\0\1\0\0\0\0" + b",\0\0\0\0\x10\x27\x10\x27\0\2\1\0\0;", 10**8),
    "WEBP": (CANVAS.replace(b"\x08\0\0\x03\0\0", bytes(6), 1), 36),
}  # fmt: skip


@pytest.mark.parametrize("name", LATER_SIZES)
def test_a_small_first_size_does_not_hide_a_large_one(name: str) -> None:
    data, n_pixels = LATER_SIZES[name]
    found = read_header(data)
    assert found.width * found.height == n_pixels


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "is empty"),
        (b"<!DOCTYPE html><html>", "is an HTML page"),
        (b"\n<html lang='en'>", "is an HTML page"),
        (b"<?xml version='1.0'?><svg xmlns='x'/>", "is an SVG drawing"),
        (b"<!-- made --><svg/>", "is an SVG drawing"),
        (b"%PDF-1.7", "is a PDF document"),
        (b"\0\0\0\x18ftypheic", "is a HEIF image"),
        (b"\0\0\0\x18ftypavif", "is an AVIF image"),
        (b'{"error": "x"}', "is JSON or text"),
        (b"not found", "is text"),
        (b"II*\0\x08\0", "is a TIFF image"),
        (b"\xde\xad\xbe\xef", "is of an unknown format"),
        (b"\x89PNG\r\n\x1a\n", "begins like image/png and has no readable header"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(20), "begins like image/png and has no readable header"),
        (b"\xff\xd8\xff\xe0\0\x10JFIF", "begins like image/jpeg and has no readable header"),
    ],
)
def test_what_is_no_image_has_a_name(data: bytes, what: str) -> None:
    with pytest.raises(NotMedia) as refused:
        read_header(data)
    assert str(refused.value) == what


@pytest.mark.parametrize(
    "data",
    [
        claiming(1, 1)[:33] + chunk(b"tEXt", b"") * 80_000,
        b"GIF89a\1\0\1\0\0\0\0!\xfe" + b"\1x" * 500_000,
        b"\xff\xd8\xff" + b"\xff" * 1_000_000,
        b"RIFFxxxxWEBP" + b"JUNK\0\0\0\0" * 100_000,
        b"\xff\xd8\xff\xda\0\2" + b"\xff\xda\0\2" * 300_000,
    ],
    ids=["PNG", "GIF", "JPEG", "WEBP", "scans"],
)  # fmt: skip
def test_a_walk_over_tiny_blocks_ends_early(data: bytes) -> None:
    most = 64_000 + len(data) // 128 + 1
    steps = 0

    def count(*_: object) -> None:
        nonlocal steps
        steps += 1

    # `unpack_from` and indexing read from the bytes: a subclass that counts would be slower than the walk.
    view = Counting(data, count)
    try:
        found: ImageFile | None = read_header(view)
    except NotMedia:
        found = None
    assert found is None or not found.is_whole
    assert steps <= 4 * most


class Counting(bytes):
    """Bytes that report each look at them."""

    def __new__(cls, data: bytes, count: Any) -> Counting:
        made = super().__new__(cls, data)
        made.count_look = count
        return made

    count_look: Any

    def __getitem__(self, at: Any) -> Any:
        self.count_look()
        return super().__getitem__(at)

    def __len__(self) -> int:
        self.count_look()
        return super().__len__()


def test_every_format_has_a_test() -> None:
    assert set(NAMES.values()) == set(FORMATS)
