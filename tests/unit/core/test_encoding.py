"""That a byte order mark names the encoding of a text, in any order of bytes."""

from __future__ import annotations

import codecs

import pytest

from shepherd.core.encoding import marked_encoding

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
