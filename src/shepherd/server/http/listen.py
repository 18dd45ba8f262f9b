"""Opens a port and serves it until a signal comes. Knows no path and no protocol.

    signal ─▶ new requests: 503 ─ running answers may finish ─ error events ─ connections closed
              └──────────── grace_s ───────────┘└────────── LINGER_S ─────────┘
    a second signal ends it at once

The port is bound before anything else starts, so that a port in use is one clear error, and the server can listen
while the model is still loading.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import signal
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import httptools
import uvicorn
from starlette.applications import Starlette
from starlette.types import Message, Send
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from shepherd.core import ConfigError
from shepherd.process.notify import notify
from shepherd.server.http.body import LINGER_S as UNREAD_S
from shepherd.server.http.caller import is_loopback, names_in

logger = logging.getLogger(__name__)

GRACE_S = 5.0
"""How long running answers may continue after a signal: half of the time before service managers usually kill."""
LINGER_S = 3
"""How long the answers that are left may take to send the error that the server is stopping."""
IDLE_S = 75
"""Longer than the pools of common clients keep a connection: the server must not be the first to close it."""
HEAD_S = 30.0
"""How long the head of a request may take from its first byte; slower heads are an attack."""
MAX_HEAD_BYTES = 64 * 2**10
"""Path and headers. Those of real clients stay below 4 KiB; proxies allow 8 to 32."""
FRAME_RATIO = 8
"""Bytes of chunks around each byte of a body: chunks of one byte, the smallest, have five. Extensions have no use."""
PROBES_S = (0.2, 1.0, 5.0, 10.0, 20.0, 40.0, 80.0)
"""The waits after each byte that is sent early to a client that has ended its side of the connection: the byte after
one that was refused closes the connection. Fewer than `HTTP/1.1 `, with which every answer begins, has bytes."""


def stops() -> list[int]:
    """The signals that stop a server. SIGHUP says that its terminal is closed, where it was not started to ignore that
    (`nohup`); Windows has none."""
    numbers: list[int] = [signal.SIGINT, signal.SIGTERM]
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    return numbers


async def serve(
    app: Starlette,
    *,
    host: str,
    port: int,
    on_ready: Callable[[int], None] | None = None,
    grace_s: float = GRACE_S,
    tls: ssl.SSLContext | None = None,
) -> None:
    """Serve `app` until one of the signals `stops`, or until this task is cancelled.

    After a signal, running answers have `grace_s` to end by themselves; then, after a second signal and when this task
    is cancelled they end with an error. `on_ready` is called with the bound port once connections are accepted. `port`
    0 takes a free one. `tls`: the context of its certificate (`tls.Certificate`); None = connections are not encrypted.

    Raises: `ConfigError` when the address cannot be used, or when other machines can reach it without a key.
    """
    if app.state.server.is_open and not is_loopback(host):
        raise ConfigError(
            f"other machines can reach {host or 'this address'}, so an API key is needed; configure one, or set "
            "the host to 127.0.0.1",
            key="server.api_keys",
        )
    sockets = bind(host, port)
    try:
        server = _Server(app, sockets[0].getsockname()[1], on_ready, grace_s, tls)
        try:
            await server.serve(sockets)
        except asyncio.CancelledError:
            if server.started:
                await server.shutdown(sockets)
            raise
    finally:
        for listener in sockets:
            listener.close()


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """The fastest event loop there is, for `asyncio.Runner(loop_factory=...)` around `serve`."""
    try:
        import uvloop  # noqa: PLC0415 - not there on Windows
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop


def bind(host: str, port: int) -> list[socket.socket]:
    """Listening sockets for every address of `host`, all on one port. Raises: `ConfigError`."""
    if not 0 <= port <= 65535:
        raise ConfigError(f"the port must be between 0 and 65535 (0 = any free one), not {port}", key="server.port")
    sockets: list[socket.socket] = []
    try:
        for name in names_in(host):
            sockets += _bind_one(name, sockets[0].getsockname()[1] if sockets else port)
    except ConfigError:
        for opened in sockets:
            opened.close()
        raise
    return sockets


def _bind_one(host: str, port: int) -> list[socket.socket]:
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise ConfigError(
            f"the host {host!r} cannot be resolved; use 127.0.0.1 for this machine only, 0.0.0.0 for the whole network",
            key="server.host",
        ) from error
    sockets: list[socket.socket] = []
    failure = OSError()
    for family, address in dict.fromkeys((family, address) for family, _, _, _, address in found):
        try:
            listener = _listen(family, (address[0], port, *address[2:]))
        except OSError as error:
            # `localhost` may name an IPv6 address on a machine without IPv6: one address that works is enough.
            failure = error
            if error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                continue
            for opened in sockets:
                opened.close()
            raise _explained(error, host, port) from error
        sockets.append(listener)
        port = listener.getsockname()[1]
    if not sockets:
        raise _explained(failure, host, port) from failure
    return sockets


def _listen(family: int, address: tuple[object, ...]) -> socket.socket:
    opened = socket.create_server(address, family=family, backlog=1024)
    # The protocol must be named: asyncio switches Nagle's algorithm off only where it sees TCP, and with it every
    # answer in two pieces (head, body) takes 40 ms longer.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, opened.detach())
    listener.setblocking(False)
    return listener


def _explained(error: OSError, host: str, port: int) -> ConfigError:
    where = f"{host}:{port}"
    message = {
        errno.EADDRINUSE: f"{where} is already in use; stop the other program or choose another port (0 = a free one)",
        errno.EACCES: f"{where} needs administrator rights; choose a port above 1023",
        errno.EADDRNOTAVAIL: f"this machine has no address {host!r} to listen on; use 127.0.0.1",
    }.get(error.errno or 0, f"{where} cannot be used: {error.strerror or error}")
    is_host = error.errno not in (errno.EADDRINUSE, errno.EACCES)
    return ConfigError(message, key="server.host" if is_host else "server.port")


class Connection(HttpToolsProtocol):
    """uvicorn's connection, with what it lacks: limits on heads and on what stands around a body, and answers to
    clients that end their own side of the connection after the request (a half-close), or that offer HTTP/2.

    Bodies have their limits in `body`.
    """

    _head_timer: asyncio.TimerHandle | None = None
    _frame_bytes: int = 0
    """Of the request that is being read: its head, and its chunks less `FRAME_RATIO` times the body in them."""
    _probe_timer: asyncio.TimerHandle | None = None
    _is_refused = False
    _is_plain = True
    """TLS has no half-close, and its bytes are not those of the socket."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)  # type: ignore[arg-type]  # TCP has no other
        opened = transport.get_extra_info("socket")
        self._is_plain = transport.get_extra_info("sslcontext") is None
        if self._is_plain and opened is not None and sys.platform != "win32":  # there a socket is no file
            self.transport = _UnlockedTransport(self.transport, opened.fileno())  # type: ignore[assignment]  # as below
        # uvicorn's own timer, which it sets only after an answer.
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        self._frame_bytes += len(data)
        self._unset_keepalive_if_required()
        try:
            self._parse(data)
        except httptools.HttpParserError as error:
            if self._frame_bytes <= MAX_HEAD_BYTES:
                why = f"the request cannot be read as HTTP/1.1: {error}"
                if data.startswith(b"\x16\x03"):  # how TLS begins
                    why = "a client speaks https, and this server http; give the client an address with http://"
                logger.warning("%s", why)
                self._refuse(b"400 Bad Request", why)
        if self._frame_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
            if self._is_in_body:
                self._refuse(b"400 Bad Request", f"head and chunk extensions are larger than {MAX_HEAD_BYTES} bytes")
            else:
                self._refuse(b"431 Request Header Fields Too Large", f"the head is larger than {MAX_HEAD_BYTES} bytes")

    def _parse(self, data: bytes) -> None:
        """Read requests. One that offers another protocol, as Java's client does with h2c, is read as if it did not:
        the parser takes the body for bytes of that protocol.

        Raises: `HttpParserError`.
        """
        rest = memoryview(data)
        while rest:
            try:
                self.parser.feed_data(rest)
                rest = rest[len(rest) :]
            except httptools.HttpParserUpgrade as upgrade:
                rest = rest[upgrade.args[0] :]
                if self._offers_upgrade:
                    version = self.parser.get_http_version().encode()
                    head = [b"%b %b HTTP/%b\r\n" % (self.parser.get_method(), self.url, version)]
                    head += [b"%b: %b\r\n" % header for header in self.headers if header[0] != b"upgrade"]
                    self.parser.feed_data(b"".join(head) + b"\r\n")

    @property
    def _offers_upgrade(self) -> bool:
        """Before its body; CONNECT is no offer: what follows it is for another server."""
        return self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT"

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head_timer = self.loop.call_later(HEAD_S, self._give_up_head)

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value.rstrip(b" \t"))  # RFC 9110, section 5.5; the parser strips the other end

    def on_headers_complete(self) -> None:
        self._end_head()
        if self._offers_upgrade:
            return
        before = self.cycle
        super().on_headers_complete()
        if self.cycle is not before:
            self.cycle.transport = _HeadWithBody(self.cycle, self.transport, self.loop)  # type: ignore[assignment]  # as below
            if self.scope["http_version"] == "1.0":
                self.cycle.send = _until_close(self.cycle)  # type: ignore[method-assign, assignment]  # the app gets it

    def on_body(self, body: bytes) -> None:
        self._frame_bytes -= (1 + FRAME_RATIO) * len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self._offers_upgrade:
            return
        super().on_message_complete()
        self._frame_bytes = 0

    def eof_received(self) -> bool:  # type: ignore[override]  # asyncio takes a bool
        """Whether the connection stays open for the answers to whole requests.

        A client that has gone looks the same as one that only ends its own side, until it is sent something.
        """
        if not self._is_plain or not self._is_answering or self.cycle.more_body:
            return False
        self.cycle.keep_alive = False
        self._probe(0)
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_head()
        if self._probe_timer is not None:
            self._probe_timer.cancel()
        super().connection_lost(exc)

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    @property
    def _is_in_body(self) -> bool:
        return self._is_answering and self.cycle.more_body and self._head_timer is None

    def _probe(self, n: int) -> None:
        """Send the next bytes of the answer early: the machine of a client that has gone refuses them."""
        if not self._is_answering or self.pipeline or self.transport.is_closing() or n == len(PROBES_S):
            return
        if self.cycle.chunked_encoding:
            self.cycle.transport.write(b"0")  # a zero before the length of the next chunk
        elif not self.cycle.response_started:
            self.transport.write(STATUS_LINE[200][n : n + 1])
            self.cycle.transport = _BegunAnswer(self.cycle, self.transport, n + 1)  # type: ignore[assignment]  # all it uses
        self._probe_timer = self.loop.call_later(PROBES_S[n], self._probe, n + 1)

    def _end_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _give_up_head(self) -> None:
        if self._is_answering:  # an earlier request of this connection has no time limit
            self._end_head()
            self.cycle.keep_alive = False
            return
        self._refuse(b"408 Request Timeout", f"the head of the request did not come within {HEAD_S:g} s")

    def _refuse(self, status: bytes, why: str) -> None:
        """Before there is a path there is no protocol: plain text."""
        is_free = not self._is_answering or (self._is_in_body and not self.cycle.response_started and not self.pipeline)
        self._end_head()
        if not is_free and not self.cycle.more_body:  # what comes behind a whole request does not cut its answer
            self.cycle.keep_alive = False
            self._is_refused = True
            return
        if not is_free:
            self.transport.close()
            return
        self.transport.write(
            b"HTTP/1.1 %b\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\nconnection: close"
            b"\r\n\r\n%b" % (status, len(why), why.encode())
        )
        if self._is_answering:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self._is_refused = True
        self.loop.call_later(UNREAD_S, self.transport.close)


def _until_close(cycle: RequestResponseCycle) -> Send:
    """What sends the answer to a client of HTTP/1.0, which knows no chunks: an answer of unknown length ends with the
    connection (RFC 9112, section 6.3)."""
    send, is_of_unknown_length = cycle.send, False

    async def send_plain(message: Message) -> None:
        nonlocal is_of_unknown_length
        if message["type"] == "http.response.start":
            names = {name.lower() for name, _ in message.get("headers", ())}
            is_of_unknown_length = b"content-length" not in names
            if is_of_unknown_length:
                cycle.chunked_encoding = False
        elif is_of_unknown_length:
            cycle.expected_content_length = len(message.get("body", b""))
        await send(message)  # type: ignore[arg-type]  # Starlette's messages are dictionaries

    return send_plain


class _UnlockedTransport:
    """A transport whose writes release the interpreter lock; the rest is the transport's.

    uvloop keeps the lock while the kernel takes the bytes. The client that wakes up there may get this thread's core,
    and an engine thread that has its next token would wait for the lock until this thread runs again: milliseconds.
    """

    def __init__(self, transport: asyncio.Transport, file: int) -> None:
        self._transport = transport
        self._file = file

    def write(self, content: bytes) -> None:
        """Send what the kernel takes now; the transport keeps the rest, and finds out what is wrong with a socket."""
        if not self._transport.is_closing() and not self._transport.get_write_buffer_size():
            with contextlib.suppress(OSError):
                content = content[os.write(self._file, content) :]
        if content:
            self._transport.write(content)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class _HeadWithBody:
    """The transport of an answer until its body begins: the head goes out with what is written in the same turn."""

    def __init__(
        self, cycle: RequestResponseCycle, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._cycle = cycle
        self._transport = transport
        self._loop = loop
        self._head = b""
        self._turn: asyncio.Handle | None = None

    def write(self, content: bytes) -> None:
        if not self._cycle.response_started:  # "100 Continue"
            self._transport.write(content)
        elif self._turn is None:
            self._head, self._turn = content, self._loop.call_soon(self._flush)
        else:
            self._turn.cancel()
            self._flush(content)

    def _flush(self, content: bytes = b"") -> None:
        self._cycle.transport = self._transport
        self._transport.write(self._head + content)

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def close(self) -> None:
        if self._turn is not None:
            self._turn.cancel()
            self._flush()
        self._transport.close()


class _BegunAnswer:
    """The transport of an answer whose first bytes have been sent early: leaves them out of its first write."""

    def __init__(self, cycle: RequestResponseCycle, transport: asyncio.Transport, n_sent: int) -> None:
        self._cycle = cycle
        self._transport = transport
        self._n_sent = n_sent

    def write(self, content: bytes) -> None:
        self._cycle.transport = self._transport
        self._transport.write(content[self._n_sent :])

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def close(self) -> None:
        self._transport.close()


class _Server(uvicorn.Server):
    """uvicorn's server, with a start and a stop of its own."""

    def __init__(
        self,
        app: Starlette,
        port: int,
        on_ready: Callable[[int], None] | None,
        grace_s: float,
        tls: ssl.SSLContext | None,
    ) -> None:
        config = uvicorn.Config(
            app,
            http=Connection,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=IDLE_S,
            timeout_graceful_shutdown=LINGER_S,
        )
        config.load()
        config.ssl = tls
        super().__init__(config)
        self._active = app.state.server.active
        self._port = port
        self._on_ready = on_ready
        self._grace_s = grace_s

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        notify("READY=1")
        if self._on_ready is not None:
            self._on_ready(self._port)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        active = self._active
        active.stopping = True
        notify("STOPPING=1")
        if self.should_exit:  # by a signal; a cancelled task does not wait
            until_s = time.monotonic() + self._grace_s
            while active.tasks and not self.force_exit and time.monotonic() < until_s:  # noqa: ASYNC110 - as uvicorn:
                await asyncio.sleep(0.02)  # a signal handler cannot set an event
        active.cancel_all()  # answers that are left end with an error, not with a cut line
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """As uvicorn's, but signals are not raised again after the end: the caller of `serve` cleans up."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in stops()}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.force_exit = self.should_exit
        self.should_exit = True
