"""Compressed bodies: the bytes behind zstd, gzip or deflate, piece by piece.

    Content-Encoding ─ decoder_for ─▶ BodyDecoder ─ feed(piece) ─▶ pieces of at most STEP_BYTES ─ end ─▶ checked

A piece of a kilobyte may stand for a gigabyte: what comes out is cut into steps, so that the reader of the body stops
at its limit, and nothing of the rest is ever in memory. Codex sends zstd.
"""

from __future__ import annotations

import importlib
import sys
import zlib
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from shepherd.core import InvalidRequest

ACCEPTED = "zstd, gzip, deflate"
STEP_BYTES = 256 * 2**10
"""Of one step: a millisecond."""
WINDOW_LOG = 23
"""8 MiB: RFC 9659 allows no larger window for zstd in HTTP. A frame may ask for gigabytes."""


class UnknownEncoding(InvalidRequest):
    """The encoding of the body is none of `ACCEPTED`, or there are several."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"content-encoding {name[:80]!r} is not supported; send one of {ACCEPTED}, or the body uncompressed",
            status=415,
        )


class _Decompressor(Protocol):
    """One compressed stream; `zstd.ZstdDecompressor` is one."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    @property
    def needs_input(self) -> bool: ...
    def decompress(self, data: bytes, max_length: int) -> bytes: ...


class _Zlib:
    """Python's object for gzip and deflate, with the interface of its younger ones."""

    def __init__(self, wbits: int) -> None:
        self._stream = zlib.decompressobj(wbits)

    @property
    def eof(self) -> bool:
        return self._stream.eof

    @property
    def unused_data(self) -> bytes:
        return self._stream.unused_data

    @property
    def needs_input(self) -> bool:
        return not self._stream.unconsumed_tail

    def decompress(self, data: bytes, max_length: int) -> bytes:
        return self._stream.decompress(self._stream.unconsumed_tail + data, max_length)


class BodyDecoder:
    """The body of one request. Members of gzip and frames of zstd may follow each other."""

    def __init__(self, name: str, make: Callable[[bytes], _Decompressor], broken: type[Exception] = zlib.error) -> None:
        """`make` gets the first piece; `broken` is what its result raises."""
        self._name = name
        self._make = make
        self._broken = broken
        self._stream: _Decompressor | None = None

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """What the piece stands for, in steps. Raises: `InvalidRequest` for bytes that are not of this encoding."""
        while piece or self._has_more():
            if self._stream is None:
                self._stream = self._make(piece)
            try:
                step = self._stream.decompress(piece, STEP_BYTES)
            except self._broken as error:
                raise InvalidRequest(f"the body is not valid {self._name}; send it again, or uncompressed") from error
            piece = b""
            if self._stream.eof:
                piece, self._stream = self._stream.unused_data, None
            yield step

    def _has_more(self) -> bool:
        return self._stream is not None and not self._stream.needs_input

    def end(self) -> None:
        """The body has ended. Raises: `InvalidRequest` in the middle of a stream."""
        if self._stream is not None:
            raise InvalidRequest(f"the body ends in the middle of its {self._name}; send it again")


def decoder_for(name: str) -> BodyDecoder | None:
    """What reads a body with this `Content-Encoding`; None where it is not compressed. Raises: `UnknownEncoding`."""
    match name.strip().lower():
        case "" | "identity":
            return None
        case "gzip" | "x-gzip" as known:
            return BodyDecoder(known, lambda _: _Zlib(zlib.MAX_WBITS | 16))
        case "deflate" as known:  # with zlib's head; many clients leave it out
            return BodyDecoder(known, lambda head: _Zlib(zlib.MAX_WBITS if head[0] & 15 == 8 else -zlib.MAX_WBITS))
        case "zstd" as known:
            # In the standard library from Python 3.14 on; the other package is the same code for older ones.
            library: Any = importlib.import_module(
                "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
            )
            options = {library.DecompressionParameter.window_log_max: WINDOW_LOG}
            return BodyDecoder(known, lambda _: library.ZstdDecompressor(options=options), library.ZstdError)
        case _:
            raise UnknownEncoding(name)
