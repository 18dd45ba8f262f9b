"""The bytes of a file and the text in them: its encoding, some of its lines, or the kind of a binary file.

    sniff(head) ─▶ text encoding | "PNG image"        blocks ─▶ in_utf8 ─▶ read_lines ─▶ Lines

A file is read in blocks and never whole: it may have any size, and be one line.
"""

from __future__ import annotations

import codecs
import contextlib
import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from shepherd.core.dataclasses import dataclass
from shepherd.core.encoding import marked_encoding
from shepherd.tools.base import ToolError
from shepherd.tools.results import Count, char_boundary, room_for
from shepherd.tools.sandbox.folder import Folder

T = TypeVar("T", str, bytes)

BLOCK_BYTES = 1 << 20
HEAD_BYTES = 8192
"""Of which `sniff` takes a look."""
LOOKED_THROUGH_BYTES = 256 << 20
"""Before the first requested line: a second or less."""
COUNTED_BYTES = 64 << 20
"""After the last shown line, to count the lines."""

SIGNATURES = {
    b"\x89PNG\r\n": "a PNG image", b"\xff\xd8\xff": "a JPEG image", b"GIF8": "a GIF image", b"BM": "a BMP image",
    b"\x00\x00\x01\x00": "an icon", b"%PDF-": "a PDF document",
    b"PK\x03\x04": "a ZIP archive (or an office document, a package)", b"\x1f\x8b": "gzip data", b"BZh": "bzip2 data",
    b"\xfd7zXZ": "xz data", b"\x28\xb5\x2f\xfd": "zstandard data", b"7z\xbc\xaf": "a 7z archive",
    b"\x7fELF": "a program or library (ELF)", b"MZ": "a program or library (Windows)",
    b"\xcf\xfa\xed\xfe": "a program or library (macOS)", b"\xca\xfe\xba\xbe": "a Java class or macOS program",
    b"\x00asm": "a WebAssembly module", b"SQLite format 3\x00": "an SQLite database", b"GGUF": "a model (GGUF)",
    b"OggS": "Ogg sound or film", b"ID3": "MP3 sound", b"fLaC": "FLAC sound", b"RIFF": "RIFF sound, film or image",
    b"wOF2": "a font", b"\x00\x01\x00\x00": "a font",
}  # fmt: skip
TEXT_CONTROLS = frozenset("\t\n\r\f\b\x1b")


def sniff(head: bytes) -> tuple[str | None, str]:
    """The encoding of a file by its beginning, None = it is not text; and its kind. Any encoding but UTF-8 needs a mark
    at its beginning; text in another one is read as UTF-8 with errors."""
    if encoding := marked_encoding(head):
        return encoding, "text"
    text = codecs.getincrementaldecoder("utf-8")("replace").decode(head[:HEAD_BYTES])
    n_odd = sum(char == "\ufffd" or (char < " " and char not in TEXT_CONTROLS) for char in text)
    kind = next((kind for start, kind in SIGNATURES.items() if head.startswith(start)), "binary data")
    # A few wrong bytes are text in an old encoding; a PDF may begin with a page of text.
    is_binary = "\0" in text or n_odd * 4 > len(text) or (head.startswith(b"%PDF-"))
    return (None, kind) if is_binary else ("utf-8", "text")


def charset(name: str) -> str:
    """The name of an encoding as Python knows it. Raises: `ToolError`."""
    try:
        found = codecs.lookup(name).name if name.isascii() and "\0" not in name else ""
    except LookupError:
        found = ""
    if found in CHARSETS or found.startswith(("cp125", "iso8859-", "utf-")):
        return found
    raise ToolError(
        f"the encoding {name[:40]!r} is not known; it may be auto, text, base64, or a character set such as latin-1"
    )


CHARSETS = frozenset({
    "ascii", "big5", "cp437", "cp850", "cp932", "euc_jp", "euc_kr", "gb18030", "gb2312", "gbk", "koi8-r", "koi8-u",
    "mac-roman", "shift_jis",
})  # fmt: skip
"""Besides the families of Unicode, ISO 8859 and Windows."""


@contextlib.contextmanager
def opened(folder: Folder, name: str) -> Iterator[Iterator[bytes]]:
    """The bytes of a file in a folder, in blocks. Raises: `NotAFile`, `OSError`."""
    handle = folder.open(name)
    try:
        yield iter(lambda: os.read(handle, BLOCK_BYTES), b"")
    finally:
        os.close(handle)


def first_bytes(blocks: Iterator[bytes], most: int) -> bytes:
    """All bytes of the blocks, or the first ones: a little more than `most`."""
    content = b""
    for block in blocks:
        content += block
        if len(content) > most:
            break
    return content


def in_utf8(blocks: Iterator[bytes], encoding: str) -> Iterator[bytes]:
    """The same text in UTF-8, without a mark at its beginning; wrong bytes are replaced."""
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    for block in blocks:
        yield decoder.decode(block).encode()
    yield decoder.decode(b"", final=True).encode()


Part = tuple[int, int | None, int]
"""The first line (from 1), the number of lines (None = all), the first character of the first line (from 1)."""


@dataclass(frozen=True, slots=True)
class Lines:
    """Some lines of a text, with their ends."""

    text: str
    next: int
    """The line with which to read on."""
    column: int
    """The character of that line with which to read on, from 1."""
    is_end: bool
    """Nothing follows."""
    total: int | None
    """Lines in all; None = too many to be counted."""
    is_cut: bool
    """There was no room for all of the part."""


def read_lines(blocks: Iterator[bytes], part: Part, budget: int, count: Count) -> Lines:
    """Part of a text in UTF-8, at most `budget` tokens. A cut is made behind a whole line, if there is one. Raises:
    `ToolError` when there is no such line, or too much before it.
    """
    offset, limit, column = part
    number, n_passed, rest, last = 1, 0, b"", b"\n"
    for block in blocks:
        n_ends = block.count(b"\n")
        if number + n_ends >= offset:
            rest = block[nth_end(block, b"\n", offset - number) :]
            number = offset
            break
        number += n_ends
        last = block[-1:] or last
        n_passed += len(block)
        if n_passed > LOOKED_THROUGH_BYTES:
            raise ToolError(
                f"line {offset:,} is not in its first 256 MiB, which have {number:,} lines; search_files looks further"
            )
    text, is_end = text_from(rest, blocks, column, lambda text: limit is not None and text.count("\n") >= limit)
    if number < offset or (not text and offset > 1 and column == 1):
        n_lines = offset - 1 if number == offset else number - (last == b"\n")
        raise ToolError(f"it has {n_lines:,} line{'s' * (n_lines != 1)}, and no line {offset:,}")
    asked = text if limit is None else text[: nth_end(text, "\n", limit)]
    n_chars = room_for(asked[:MOST_CHARS], budget, count)
    is_cut = n_chars < len(asked)
    if is_cut:
        n_chars = asked.rfind("\n", 0, n_chars) + 1 or max(1, char_boundary(asked, n_chars))
    shown = asked[:n_chars]
    n_lines = offset - 1 + text.count("\n")
    total: int | None = None
    ending, n_counted = text[-1:].encode(), 0
    for block in blocks:
        n_lines += block.count(b"\n")
        ending = block[-1:] or ending
        n_counted += len(block)
        if n_counted > COUNTED_BYTES:
            break
    else:
        total = n_lines + (ending not in {b"", b"\n"})
    return Lines(
        shown,
        next=offset + shown.count("\n"),
        column=len(shown) - shown.rfind("\n") - 1 + (1 if "\n" in shown else column),
        is_end=is_end and n_chars == len(text),
        total=total,
        is_cut=is_cut,
    )


MOST_CHARS = 2_000_000
"""That are shown at once, in any context."""


def text_from(rest: bytes, blocks: Iterator[bytes], column: int, is_enough: Callable[[str], bool]) -> tuple[str, bool]:
    """The text from character `column` of the first line on, and whether it goes to the end."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text, to_drop, n_dropped = "", column - 1, 0
    for block, final in itertools.chain([(rest, False)], ((block, False) for block in blocks), [(b"", True)]):
        piece = decoder.decode(block, final)
        if to_drop:
            end = piece.find("\n")
            if 0 <= end < to_drop:
                raise ToolError(f"the line has {n_dropped + end:,} characters; column {column:,} is after its end")
            n_dropped += min(to_drop, len(piece))
            piece, to_drop = piece[to_drop:], max(0, to_drop - len(piece))
        text += piece
        if final:
            if to_drop:
                raise ToolError(f"the line has {n_dropped:,} characters; column {column:,} is after its end")
            return text, True
        if len(text) > MOST_CHARS or is_enough(text):
            break
    return text, False


def nth_end(text: T, end: T, n: int) -> int:
    """The place behind the `n`th line end; the length of a text that has fewer."""
    at = 0
    for _ in range(n):
        found = text.find(end, at)
        if found < 0:
            return len(text)
        at = found + 1
    return at


def lines_that_fit(lines: Sequence[str], budget: int, count: Count) -> int:
    """How many of the first lines there is room for, at least one."""
    text = "\n".join(lines)
    n_chars = room_for(text, max(budget, 1), count)
    return len(lines) if n_chars == len(text) else max(1, text.count("\n", 0, n_chars))
