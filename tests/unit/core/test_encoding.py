"""That a byte order mark names the encoding of a text, and that base64 is read as programs write it."""

from __future__ import annotations

import base64
import codecs

import pytest

from shepherd.core.encoding import marked_encoding, read_base64, text_encoding, text_of

MARKED = [
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
]


@pytest.mark.parametrize(("mark", "encoding"), MARKED)
def test_a_mark_names_the_codec_that_reads_the_text_without_it(mark: bytes, encoding: str) -> None:
    raw = mark + "Grüße".encode(encoding)
    found = marked_encoding(raw)
    assert found is not None
    assert raw.decode(found) == "Grüße"
    assert marked_encoding(raw[1:]) is None


@pytest.mark.parametrize("text", ["Hi", "Grüße, 猫!\r\nSo.\n", "x = 1\n" * 3000])
@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_zeros_show_utf_16_without_a_mark(text: str, encoding: str) -> None:
    assert text_encoding(text.encode(encoding)) == encoding
    assert text_of(text.encode(encoding)) == text


@pytest.mark.parametrize(
    "raw",
    [
        b"", b"a", b"Hi", "Grüße, 猫 🐑".encode(), b"a\0", b"\x7fELF\0\0\0\0\1\0\2\0", b"\1\0\2\0\3\0", b"\0\0\0\0",
        b"x" * 100 + b"\0", bytes(range(256)),
    ],
)  # fmt: skip
def test_other_bytes_are_not_taken_for_utf_16(raw: bytes) -> None:
    assert text_encoding(raw) == ("utf-16-le" if raw == b"a\0" else None)


def test_a_text_in_neither_is_an_error() -> None:
    assert text_of("Grüße".encode("utf-8-sig")) == "Grüße"
    with pytest.raises(UnicodeDecodeError):
        text_of("Grüße".encode("latin-1"))


DATA = bytes(range(256))


@pytest.mark.parametrize(
    "text",
    [
        base64.b64encode(DATA).decode(),
        base64.encodebytes(DATA).decode(),
        base64.encodebytes(DATA).decode().replace("\n", "\r\n"),
        " " + base64.b64encode(DATA).decode().rstrip("=") + "\t",
        base64.urlsafe_b64encode(DATA).decode(),
    ],
    ids=["plain", "lines", "lines of Windows", "no padding", "of addresses"],
)
def test_base64_is_read_however_programs_write_it(text: str) -> None:
    assert read_base64(text) == DATA


@pytest.mark.parametrize("text", ["@@@@", "AAAAA", "é", "AA=A"])
def test_what_is_no_base64_is_an_error(text: str) -> None:
    with pytest.raises(ValueError):
        read_base64(text)
