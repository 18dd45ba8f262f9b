"""A port, opened and served until a signal comes. Knows no path and no protocol.

The port is bound before anything else starts, so that one that is taken is one clear sentence, and the server can
listen while the model is still loading.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType

import uvicorn
from fastapi import FastAPI

from shepherd.core import ConfigError

logger = logging.getLogger(__name__)

GRACE_S = 3
"""How long running answers may take to say that the server is stopping."""


async def serve(app: FastAPI, *, host: str, port: int, on_ready: Callable[[int], None] | None = None) -> None:
    """Serve `app` until SIGINT or SIGTERM, or until this task is cancelled; a second signal does not wait for anybody.

    `on_ready` is called with the bound port once connections are accepted. `port` 0 takes a free one.

    Raises: `ConfigError` when the address cannot be used.
    """
    sockets = bind(host, port)
    try:
        server = _Server(app, sockets, on_ready)
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
    try:
        found = socket.getaddrinfo(host.strip("[]") or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise ConfigError(
            f"the host {host!r} cannot be resolved; use 127.0.0.1 for this machine only, 0.0.0.0 for the whole network",
            key="server.host",
        ) from error
    sockets: list[socket.socket] = []
    failure: OSError | None = None
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
        assert failure is not None
        raise _explained(failure, host, port) from failure
    return sockets


def _listen(family: int, address: tuple[object, ...]) -> socket.socket:
    # The protocol must be named: asyncio switches Nagle's algorithm off only where it sees TCP, and with it every
    # answer in two pieces (head, body) takes 40 ms longer.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if sys.platform != "win32":  # there it would allow two servers on one port
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(address)
        listener.listen(1024)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener


def _explained(error: OSError, host: str, port: int) -> ConfigError:
    where = f"{host}:{port}"
    match error.errno:
        case errno.EADDRINUSE:
            return ConfigError(
                f"{where} is already in use; stop the other program or choose another port (0 = any free one)",
                key="server.port",
            )
        case errno.EACCES:
            return ConfigError(f"{where} needs administrator rights; choose a port above 1023", key="server.port")
        case errno.EADDRNOTAVAIL:
            return ConfigError(f"this machine has no address {host!r} to listen on; use 127.0.0.1", key="server.host")
        case _:
            return ConfigError(f"{where} cannot be used: {error.strerror or error}", key="server.host")


class _Server(uvicorn.Server):
    """uvicorn's server, with our way to start and to stop."""

    def __init__(self, app: FastAPI, sockets: list[socket.socket], on_ready: Callable[[int], None] | None) -> None:
        config = uvicorn.Config(
            app,
            http="httptools",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            # Longer than the pools of common clients keep a connection: who closes first must not be the server.
            timeout_keep_alive=75,
            timeout_graceful_shutdown=GRACE_S,
        )
        super().__init__(config)
        self._app = app
        self._port: int = sockets[0].getsockname()[1]
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self._on_ready is not None:
            self._on_ready(self._port)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._app.state.live.stop()  # answers in the making end with an error, not with a cut line
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """As uvicorn's, but signals are not raised again after the end: who called `serve` goes on and cleans up."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.force_exit = self.should_exit
        self.should_exit = True
