"""The encoding of a text by the mark at its beginning. Not here: a guess where no mark stands."""

from __future__ import annotations

import codecs

_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",  # before UTF-16, whose mark it begins with
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


def marked_encoding(head: bytes) -> str | None:
    """The codec that reads a text and drops its byte order mark; None when it begins with no mark."""
    return next((encoding for mark, encoding in _MARKS.items() if head.startswith(mark)), None)
