"""HTTP/1.1 connections to one provider, kept and used again; without a proxy.

    head + body ─ Connections.send ─▶ Connection, an asyncio protocol ─ httptools ─▶ httpx2.Response

httpx2's own connections take 0.7 ms of processor time for a short answer, nearly half of what a first token cost; these
take a tenth of it. What they return and raise are httpx2's types, so that `transport.py` need not know which have sent
a request.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from itertools import zip_longest
from typing import cast

import httptools
import httpx2

MAX_FRAME_BYTES = 256 * 2**10
"""What stands around the bytes of a body: the head, chunks, trailers. Heads of real servers have a few KiB."""
FRAME_RATIO = 8
"""Bytes of chunks around each byte of a body: chunks of one byte, the smallest, have five."""
MAX_HELD_BYTES = 256 * 2**10
"""Of an answer, before its reader takes them: the provider has to wait then."""
STAGGER_S = 0.25
"""Until the next address of a host is tried beside those before (RFC 8305)."""
KEPT = 32
KEPT_S = 30.0


class Connection(asyncio.Protocol):
    """One connection, and the answer that it reads: one request at a time."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._parser: httptools.HttpResponseParser | None = None
        """None between two answers."""
        self._status = 0
        self._headers: list[tuple[bytes, bytes]] = []
        self._pieces: list[bytes] = []
        self._n_held = self._n_frame = self._n_unsent = 0
        self._has_head = self._is_paused = False
        self._is_whole = True
        self.has_heard = False
        """Whether anything has come since the last request."""
        self._fault: httpx2.TransportError | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._idle_s = 0.0

    async def send(self, content: bytes, idle_s: float) -> tuple[int, list[tuple[bytes, bytes]]]:
        """Send a request; the status and the headers of its answer. `idle_s`: how long nothing may come or go.

        Raises: `httpx2.TransportError`.
        """
        self._parser, self._idle_s = httptools.HttpResponseParser(self), idle_s
        self._parser.set_dangerous_leniencies(lenient_optional_cr_before_lf=True, lenient_chunked_length=True)
        self._headers, self._n_frame = [], 0
        self._has_head = self._is_whole = self.has_heard = False
        self._transport.write(content)
        while not self._has_head:
            await self._news()
        return self._status, self._headers

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body as it comes. Raises: `httpx2.TransportError`, after what came before the fault."""
        while True:
            if self._pieces:
                pieces, self._pieces, self._n_held = self._pieces, [], 0
                if self._is_paused:
                    self._is_paused = False
                    self._transport.resume_reading()
                yield b"".join(pieces)
            elif self._is_whole:
                return
            else:
                await self._news()

    @property
    def is_usable(self) -> bool:
        """Whether it can have another request."""
        return self._is_whole and not self._transport.is_closing() and self.loop is asyncio.get_running_loop()

    def close(self) -> None:
        """Close it at once, also in the middle of an answer."""
        if not self.loop.is_closed():
            self._transport.abort()

    async def _news(self) -> None:
        """Wait until something comes. Raises: `httpx2.TransportError`."""
        if self._fault is not None:
            raise self._fault
        self._n_unsent = self._transport.get_write_buffer_size()
        self._waiter = self.loop.create_future()
        self._timer = self.loop.call_later(self._idle_s, self._give_up)
        try:
            await self._waiter
        finally:
            self._timer.cancel()
            self._waiter = None

    def _give_up(self) -> None:
        n_unsent = self._transport.get_write_buffer_size()
        if n_unsent < self._n_unsent:  # a long request on a slow line
            self._n_unsent = n_unsent
            self._timer = self.loop.call_later(self._idle_s, self._give_up)
        else:
            self._fail(httpx2.ReadTimeout(""))

    def _fail(self, fault: httpx2.TransportError) -> None:
        self._fault = self._fault or fault
        self._transport.abort()
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # -- what asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop has its own class

    def data_received(self, data: bytes) -> None:
        if self._parser is None:  # what has not been asked for
            self._transport.abort()
            return
        self._n_frame += len(data)
        self.has_heard = True
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail(httpx2.RemoteProtocolError(str(error)))
        if self._n_frame > MAX_FRAME_BYTES:
            self._fail(httpx2.RemoteProtocolError("the head or the chunks of the answer are too long"))
        if self._n_held > MAX_HELD_BYTES and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        lengths = {name.lower() for name, _ in self._headers} & {b"content-length", b"transfer-encoding"}
        if self._has_head and not lengths and exc is None and self._fault is None:
            self._is_whole = True  # such a body ends with its connection
        elif not self._is_whole:
            self._fault = self._fault or httpx2.RemoteProtocolError("the connection was closed")
        self._wake()

    # -- what the parser calls

    def on_message_begin(self) -> None:
        if self._is_whole:
            raise httpx2.RemoteProtocolError("something follows the answer")

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._has_head:  # trailers are not read
            self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        assert self._parser is not None
        self._status = self._parser.get_status_code()
        if self._status < 200:  # the answer follows
            self._headers = []
        else:
            self._has_head = True
            self._wake()

    def on_body(self, body: bytes) -> None:
        self._n_frame -= (1 + FRAME_RATIO) * len(body)
        self._n_held += len(body)
        self._pieces.append(body)
        self._wake()

    def on_message_complete(self) -> None:
        if self._has_head:
            assert self._parser is not None
            if not self._parser.should_keep_alive():
                self._transport.close()
            self._is_whole, self._parser = True, None
            self._wake()


class _Body(httpx2.AsyncByteStream):
    """The body of an answer. Closing it gives the connection back."""

    def __init__(self, connection: Connection, owner: Connections) -> None:
        self._connection = connection
        self._owner = owner

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._connection.pieces()

    async def aclose(self) -> None:
        self._owner.take_back(self._connection)


class Connections:
    """Those to one address. One event loop at a time."""

    def __init__(self, address: httpx2.URL, tls: ssl.SSLContext | None, connect_s: float) -> None:
        """`tls`: None = nothing is encrypted. `connect_s`: how long a new one may take."""
        self._host, self._port = address.host, address.port or (80 if tls is None else 443)
        self._tls = tls
        if tls is not None:
            tls.set_alpn_protocols(["http/1.1"])
        self._connect_s = connect_s
        self._kept: list[tuple[float, Connection]] = []
        """With the time when each was given back, the longest first."""

    async def send(
        self, method: str, url: httpx2.URL, headers: Mapping[str, str], content: bytes, idle_s: float
    ) -> httpx2.Response:
        """The answer to a request, when its head has come; the caller closes it. `idle_s`: the longest silence.

        Raises: `httpx2.TransportError`.
        """
        head = [f"{method} {url.raw_path.decode()} HTTP/1.1", f"host: {url.netloc.decode()}"]
        head += [f"{name}: {value}" for name, value in headers.items()]
        if method == "POST":
            head.append(f"content-length: {len(content)}")
        sent = "\r\n".join([*head, "\r\n"]).encode("latin-1") + content
        while True:
            kept = self._usable()
            connection = kept or await self._opened()
            try:
                status, named = await connection.send(sent, idle_s)
            except httpx2.RemoteProtocolError:
                connection.close()
                # A server may close a connection that it has kept just when the next request is on its way.
                if connection is not kept or connection.has_heard:
                    raise
            except BaseException:
                connection.close()
                raise
            else:
                return httpx2.Response(status, headers=named, stream=_Body(connection, self))

    def take_back(self, connection: Connection) -> None:
        """An answer has been read, or is given up."""
        if connection.is_usable:
            self._kept.append((connection.loop.time(), connection))
        else:
            connection.close()

    async def aclose(self) -> None:
        """Close those that have no request."""
        kept, self._kept = self._kept, []
        for _, connection in kept:
            connection.close()

    def _usable(self) -> Connection | None:
        oldest_s = asyncio.get_running_loop().time() - KEPT_S
        while self._kept and (len(self._kept) > KEPT or self._kept[0][0] < oldest_s):
            self._kept.pop(0)[1].close()
        while self._kept:
            _, connection = self._kept.pop()
            if connection.is_usable:
                return connection
            connection.close()
        return None

    async def _opened(self) -> Connection:
        try:
            async with asyncio.timeout(self._connect_s):
                opened = await _connected(self._host, self._port)
                name = None if self._tls is None else self._host
                loop = asyncio.get_running_loop()
                _, made = await loop.create_connection(Connection, sock=opened, ssl=self._tls, server_hostname=name)
        except TimeoutError as error:
            raise httpx2.ConnectTimeout("") from error
        except OSError as error:
            raise httpx2.ConnectError(str(error)) from error
        return made


class Proxied:
    """The same through a proxy, this one or that of the environment: httpx2's own connections."""

    def __init__(self, proxy: str | None, tls: ssl.SSLContext | None, connect_s: float) -> None:
        """Raises: `ValueError`, `ImportError` for a proxy that cannot be used."""
        for name in ("httpx2", "httpcore2"):  # they log every header that comes, at every step
            logging.getLogger(name).setLevel(logging.WARNING)
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


async def _connected(host: str, port: int) -> socket.socket:
    """A socket to the first address of the host that answers. Raises: `OSError`."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    first = [each for each in found if each[0] == found[0][0]]
    others = [each for each in found if each[0] != found[0][0]]
    addresses = iter([each for pair in zip_longest(first, others) for each in pair if each is not None])
    pending: set[asyncio.Task[socket.socket]] = set()
    failure: BaseException = OSError(f"{host} has no address")
    try:
        while True:
            if (address := next(addresses, None)) is not None:
                pending.add(asyncio.create_task(_connected_to(address[0], address[4])))
            elif not pending:
                raise failure
            done, pending = await asyncio.wait(pending, timeout=STAGGER_S, return_when=asyncio.FIRST_COMPLETED)
            opened = [task.result() for task in done if task.exception() is None]
            failure = next(filter(None, (task.exception() for task in done)), failure)
            if opened:
                for late in opened[1:]:
                    late.close()
                return opened[0]
    finally:
        for task in pending:
            task.cancel()


async def _connected_to(family: int, address: tuple[object, ...]) -> socket.socket:
    # The protocol must be named: asyncio switches Nagle's algorithm off only where it sees TCP.
    opened = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        opened.setblocking(False)
        await asyncio.get_running_loop().sock_connect(opened, address)
    except BaseException:
        opened.close()
        raise
    return opened
