"""Server-sent events and NDJSON: the framing of records in bytes, and nothing about what is in them.

JSON escapes line breaks, so that a body that we write is always one `data:` line. The readers take bytes, cut anywhere,
and end lines at LF, CRLF and CR only: a line of text may hold U+2028 or U+0085, where `str.splitlines` would cut.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from shepherd.wire.base import COMPACT

MEDIA_TYPE = "text/event-stream; charset=utf-8"

PING = b": ping\n\n"
"""A comment, which readers skip. Keeps proxies and clients from giving up during a silence."""

DONE = b"data: [DONE]\n\n"


def encode_comment(text: str) -> bytes:
    """A line that readers skip, for people. `text`: one line of ASCII."""
    return f": {text}\n\n".encode("ascii")


def encode_event(body: Any, event: str | None = None) -> bytes:
    """One event with a JSON body.

    The text is ASCII: some readers split lines at U+2028 or U+0085 (`str.splitlines`), which JSON leaves unescaped.
    """
    name = f"event: {event}\n" if event is not None else ""
    return f"{name}data: {COMPACT.encode(body)}\n\n".encode("ascii")


MAX_RECORD_BYTES = 64 * 2**20
"""Of one record: far more than any answer."""


class RecordTooLong(ValueError):
    """A record never ends."""


class LineReader:
    """Lines in a stream of bytes, which LF, CRLF or CR end, wherever it is cut; those of NDJSON are records.

    The time is proportional to the bytes, however many lines they are.
    """

    def __init__(self, limit: int = MAX_RECORD_BYTES) -> None:
        self._limit = limit
        self._rest = bytearray()
        self._skip_lf = False
        """The last piece ended with CR: an LF at the start of the next one belongs to it."""

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """The lines that have ended, without their ends. Raises: `RecordTooLong`."""
        if self._skip_lf and piece:
            piece, self._skip_lf = piece.removeprefix(b"\n"), False
        if b"\r" in piece:
            self._skip_lf = piece.endswith(b"\r")
            piece = piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *ends, rest = piece.split(b"\n")
        for end in ends:
            yield self._with(end)
        self._keep(rest)

    def close(self) -> bytes:
        """What stands behind the last end of a line."""
        rest, self._rest = bytes(self._rest), bytearray()
        return rest

    def _with(self, end: bytes) -> bytes:
        """The line that `end` ends."""
        if not self._rest and len(end) <= self._limit:
            return end
        self._keep(end)
        return self.close()

    def _keep(self, piece: bytes) -> None:
        self._rest += piece
        if len(self._rest) > self._limit:
            raise RecordTooLong(f"a line has more than {self._limit:,} bytes")


class EventReader:
    """Server-sent events in a stream of bytes (WHATWG HTML, section 9.2.6).

    Unlike a browser's, it also returns an event that the end of the body cuts off, and a field `error` as an event of
    this name: servers of llama.cpp's family report a failure in it.
    """

    def __init__(self, limit: int = MAX_RECORD_BYTES) -> None:
        self._limit = limit
        self._lines = LineReader(limit)
        self._name = ""
        self._data: list[bytes] = []
        self._n_bytes = 0
        self._is_first = True

    def feed(self, piece: bytes) -> Iterator[tuple[str, bytes]]:
        """Name and data of each event that has ended; the name may be empty. Raises: `RecordTooLong`."""
        for line in self._lines.feed(piece):
            yield from self._take(line)

    def close(self) -> Iterator[tuple[str, bytes]]:
        """The event that the end of the body has cut off, if any."""
        if rest := self._lines.close():
            yield from self._take(rest)
        yield from self._take(b"")

    def _take(self, line: bytes) -> Iterator[tuple[str, bytes]]:
        if self._is_first:
            line, self._is_first = line.removeprefix(b"\xef\xbb\xbf"), False
        if not line:
            if self._data:
                yield self._name, b"\n".join(self._data)
            self._name, self._data, self._n_bytes = "", [], 0
            return
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        match name:
            case b"data":
                self._data.append(value)
                self._n_bytes += len(value) + 1  # the line's end: empty lines take room, too
                if self._n_bytes > self._limit:
                    raise RecordTooLong(f"an event has more than {self._limit:,} bytes")
            case b"event":
                self._name = value.decode("utf-8", "replace")
            case b"error":
                yield "error", value


class NdjsonReader:
    """Lines that are not blank, with the methods of `EventReader`: records without a name."""

    def __init__(self, limit: int = MAX_RECORD_BYTES) -> None:
        self._lines = LineReader(limit)

    def feed(self, piece: bytes) -> Iterator[tuple[str, bytes]]:
        for line in self._lines.feed(piece):
            if line.strip():
                yield "", line

    def close(self) -> Iterator[tuple[str, bytes]]:
        if (line := self._lines.close()).strip():
            yield "", line
