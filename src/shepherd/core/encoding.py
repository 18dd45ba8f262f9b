"""Texts in bytes, by the mark at their beginning, and bytes in texts, as base64. Not here: a guess without a mark."""

from __future__ import annotations

import base64
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


def read_base64(text: str) -> bytes:
    """The bytes; lines may break anywhere, as in mails and certificates, the alphabet may be the one of addresses
    (RFC 4648, section 5), and the padding may be missing.

    Raises: `ValueError`.
    """
    plain = "".join(text.split()).translate(_OF_ADDRESSES).rstrip("=")
    return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)


_OF_ADDRESSES = str.maketrans("-_", "+/")
