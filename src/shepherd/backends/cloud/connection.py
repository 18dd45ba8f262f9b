"""The connections to one provider, kept and used again: those of httpx2, with a guard in front of its parser.

    Connections.send ─▶ httpcore2's pool ─▶ its parser ─▶ WatchedStream ─▶ socket

The parser keeps what stands behind an answer, and takes it for the answer to the next request on the connection, which
may be another user's. `WatchedStream` knows what has been read since a request was sent: an answer that was there
before its request is refused, and only a request of which nothing has been heard is sent again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from typing import Any, cast

import httpcore2
import httpx2

MAX_FRAME_BYTES = 256 * 2**10
"""What stands around the bytes of a body: the head, chunks, trailers. Heads of real servers have a few KiB."""
FRAME_RATIO = 8
"""Bytes of chunks around each byte of a body: chunks of one byte, the smallest, have five."""
PIECE_BYTES = 256 * 2**10
"""Of a request: each has the whole time without progress, so that a slow line may carry a long request."""
KEPT = 32
KEPT_S = 30.0


class Unheard(httpcore2.ReadError):
    """The provider has closed a connection that it had kept, before it sent a byte of this answer."""


class WatchedStream(httpcore2.AsyncNetworkStream):
    def __init__(self, stream: httpcore2.AsyncNetworkStream, until: float) -> None:
        """`until`: the time of the event loop at which it must be open."""
        self._stream = stream
        self._until = until
        self._is_reused = False
        self.n_read = self.n_body = 0
        """Bytes since the last request was sent: all, and those of the body."""

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109 - the library's
        piece, error = b"", None
        try:
            piece = await self._stream.read(max_bytes, timeout)
        except httpcore2.ReadError as caught:
            error = caught
        if not piece and self._is_reused and not self.n_read:
            raise Unheard from error
        if error is not None:
            raise error
        self.n_read += len(piece)
        if self.n_read - (1 + FRAME_RATIO) * self.n_body > MAX_FRAME_BYTES:
            raise httpcore2.RemoteProtocolError("the head or the chunks of the answer are too long")
        return piece

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109 - as above
        self._is_reused |= self.n_read > 0
        self.n_read = self.n_body = 0
        for at in range(0, len(buffer), PIECE_BYTES):
            await self._stream.write(buffer[at : at + PIECE_BYTES], timeout)

    async def start_tls(self, *given: Any, **named: Any) -> WatchedStream:
        left_s = max(0.0, self._until - asyncio.get_running_loop().time())
        self._stream = await self._stream.start_tls(*given, **named | {"timeout": left_s})
        return self

    async def aclose(self) -> None:
        await self._stream.aclose()

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class _Network(httpcore2.AnyIOBackend):
    async def connect_tcp(self, *given: Any, **named: Any) -> WatchedStream:
        until = asyncio.get_running_loop().time() + named["timeout"]
        return WatchedStream(await super().connect_tcp(*given, **named), until)


class _Body(httpx2.AsyncByteStream):
    """The body of an answer. Closing it gives the connection back."""

    def __init__(self, answer: httpcore2.Response, line: WatchedStream) -> None:
        self._answer = answer
        self._line = line

    async def __aiter__(self) -> AsyncGenerator[bytes, None]:
        with _translated():
            async for piece in cast("AsyncIterator[bytes]", self._answer.stream):
                self._line.n_body += len(piece)
                yield piece

    async def aclose(self) -> None:
        await self._answer.aclose()


class Connections:
    """Those to one address, without a proxy. One event loop at a time."""

    def __init__(self, tls: ssl.SSLContext | None, connect_s: float) -> None:
        """`connect_s`: how long a new one may take, its encryption included."""
        _silence()
        self._tls = tls
        self._connect_s = connect_s
        self._pool: httpcore2.AsyncConnectionPool | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def send(
        self, method: str, url: httpx2.URL, headers: Mapping[str, str], content: bytes, idle_s: float
    ) -> httpx2.Response:
        """The answer to a request, when its head has come; the caller closes it. `idle_s`: the longest silence.

        Raises: `httpx2.TransportError`.
        """
        if self._pool is None or self._loop is not asyncio.get_running_loop():
            self._loop = asyncio.get_running_loop()
            self._pool = httpcore2.AsyncConnectionPool(self._tls, None, None, KEPT, KEPT_S, network_backend=_Network())
        named = {"host": url.netloc.decode(), **headers}
        if method == "POST":
            named["content-length"] = str(len(content))
        request = httpcore2.Request(
            method,
            httpcore2.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
            headers=[(name.encode("latin-1"), value.strip().encode("latin-1")) for name, value in named.items()],
            content=content,
            extensions={"timeout": {"connect": self._connect_s, "read": idle_s, "write": idle_s}},
        )
        with _translated():
            while True:
                with contextlib.suppress(Unheard):
                    answer = await self._pool.handle_async_request(request)
                    break
            line = answer.extensions["network_stream"]
            if not line.n_read:
                await answer.aclose()
                raise httpcore2.RemoteProtocolError("something stood behind the answer before")
        return httpx2.Response(answer.status, headers=answer.headers, stream=_Body(answer, line))

    async def aclose(self) -> None:
        """Close them all; those of an event loop that has ended went with it."""
        pool, self._pool = self._pool, None
        if pool is not None and self._loop is asyncio.get_running_loop():
            await pool.aclose()


def _silence() -> None:
    """Keep the libraries from logging every header that comes, at every step."""
    for name in ("httpx2", "httpcore2"):
        logging.getLogger(name).setLevel(logging.WARNING)


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    """Errors of httpcore2 become those of httpx2, which have the same names."""
    try:
        yield
    except (httpcore2.TimeoutException, httpcore2.NetworkError, httpcore2.ProtocolError) as error:
        raise getattr(httpx2, type(error).__name__)(str(error)) from error


class Proxied:
    """The same through a proxy, this one or that of the environment: httpx2's own connections."""

    def __init__(self, proxy: str | None, tls: ssl.SSLContext | None, connect_s: float) -> None:
        """Raises: `ValueError`, `ImportError` for a proxy that cannot be used."""
        _silence()
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=KEPT, keepalive_expiry=KEPT_S)
        self._client = httpx2.AsyncClient(verify=tls or True, proxy=proxy, limits=limits)
        self._connect_s = connect_s

    async def send(
        self, method: str, url: httpx2.URL, headers: Mapping[str, str], content: bytes, idle_s: float
    ) -> httpx2.Response:
        """As `Connections.send`."""
        extensions = {"timeout": httpx2.Timeout(idle_s, connect=self._connect_s, pool=None).as_dict()}
        # Not by `client.build_request`: it takes longer, and would send the cookies of earlier answers.
        request = httpx2.Request(method, url, headers=headers, content=content or None, extensions=extensions)
        return await self._client.send(request, stream=True, follow_redirects=False)

    async def aclose(self) -> None:
        await self._client.aclose()
