"""Texts in bytes, by their beginning, and bytes in texts, as base64.

A byte order mark names the encoding. Without one, the zeros show UTF-16, of which every second byte of most texts is
one: what programs of Windows write. All else is UTF-8, or what the reader expects.
"""

from __future__ import annotations

import base64
import codecs
import json

_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",  # before UTF-16, whose mark it begins with
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_GUESSED_BYTES = 4096


def json_fault(error: json.JSONDecodeError) -> str:
    """What is wrong, without the words that lead to the place: it may stand in front."""
    return error.msg.removesuffix(" at").removesuffix(" starting")


def marked_encoding(head: bytes) -> str | None:
    """The codec that reads a text and drops its byte order mark; None when it begins with no mark."""
    return next((encoding for mark, encoding in _MARKS.items() if head.startswith(mark)), None)


def text_encoding(head: bytes) -> str | None:
    """The codec of the text that begins so, by its mark or by the zeros of UTF-16; None when nothing shows it."""
    if (marked := marked_encoding(head)) is not None:
        return marked
    head = head[:_GUESSED_BYTES]
    zeros = [head[at::2].count(0) for at in (0, 1)]
    wide = {(False, True): "utf-16-le", (True, False): "utf-16-be"}.get((zeros[0] > 0, zeros[1] > 0))
    if wide is None or max(zeros) * 8 < len(head):
        return None
    text = head[: len(head) & -2].decode(wide, "replace")
    return wide if all(char >= " " or char in "\t\n\r\f" for char in text) else None


def text_of(raw: bytes) -> str:
    """The text of a file in UTF-8, or in UTF-16 as programs of Windows write it. Raises: `UnicodeDecodeError`."""
    return raw.decode(text_encoding(raw) or "utf-8")


def readable(raw: bytes, default: str = "utf-8") -> str:
    """The text, with `\\n` as line end; invalid bytes become U+FFFD. `default`: its encoding where nothing shows it."""
    return raw.decode(text_encoding(raw) or default, "replace").replace("\r\n", "\n").replace("\r", "\n")


def read_base64(text: str) -> bytes:
    """The bytes; lines may break anywhere, as in mails and certificates, the alphabet may be the one of addresses
    (RFC 4648, section 5), and the padding may be missing.

    Raises: `ValueError`.
    """
    plain = "".join(text.split()).translate(_OF_ADDRESSES).rstrip("=")
    return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)


_OF_ADDRESSES = str.maketrans("-_", "+/")
