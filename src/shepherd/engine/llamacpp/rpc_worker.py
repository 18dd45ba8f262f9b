"""The other side of a model that is spread over machines: lends the devices of this one to the clients that may have
them.

    client ──▶ Worker: allowed? a place free? ──▶ relay, both ways ──loopback──▶ process: llama.cpp's own server
                  └─ no: closed, and logged          └─ one side ends: both end, its memory is free

The protocol has neither passwords nor encryption, and the library's server reads what a client sends without much
doubt: it knows no list of clients, serves one at a time, and ends its process on many errors. So it listens on loopback
only, in a process of its own for each client, and this process decides which clients reach it. A process whose client
has left serves the next one. What the relay costs: docs/rpc.md. Not here: the client's side (`rpc.py`).
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import logging
import os
import select
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from shepherd.core import ConfigError, EngineError, ShepherdError
from shepherd.core.dataclasses import dataclass
from shepherd.engine.llamacpp.rpc import is_near, look_up, probe
from shepherd.process import isolated
from shepherd.process.child import Child

logger = logging.getLogger(__name__)

HOST = "127.0.0.1"
MOST_CLIENTS = 8
"""At the same time: each may fill the memory, and all share the processors."""
START_S = 120.0
"""For a process with the library's server until it listens: a driver of a GPU may take long."""
STEP_S = 0.02
"""Between two looks at a process that starts."""
TURN_S = 0.2
"""For a client that leaves: the library connects several times, one after the other, before it computes."""
PAUSE_S = 1.0
"""For a process whose connections have ended to end, too."""
LEAVE_S = 10.0
"""For the library's server to notice that its client has left: it ends what it computes first."""
CHUNK_BYTES = 1 << 20
"""Passed on at once."""
KEEPALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
"""Seconds of silence, and questions, after which a client counts as gone whose machine was switched off."""


@dataclass(frozen=True, slots=True)
class Lent:
    """What a client gets of this machine."""

    n_threads: int = 0
    """Of the CPU; 0 = its cores."""
    devices: tuple[str, ...] = ()
    """Names such as `CUDA0`; none = every GPU, or else the CPU."""
    memory_bytes: int = 0
    """Most memory of a client's process, without that of GPUs; 0 = no limit."""
    cache: Path | None = None
    """A folder for the large tensors of models, which clients then need not send again."""
    cache_bytes: int = 0
    """What stays in that folder when a client has left."""


def address_of(host: str, port: int) -> tuple[str, int]:
    """Where to listen, in numbers. Raises: `ConfigError` for an address that other networks reach."""
    try:
        found = look_up(host, port)
    except OSError as error:
        raise ConfigError(
            f"{host!r} is no address of this machine ({error.strerror or error})", key="--host"
        ) from error
    if not found or not all(map(is_near, found)):
        is_all = "0.0.0.0" in found  # noqa: S104 - to refuse it
        what = "is every network of this machine, also a public one" if is_all else "is no private address"
        raise ConfigError(
            f"{host} {what}, and a client can use the memory of a worker as it likes, without a password; name the "
            "address of this machine in a private network, or 127.0.0.1 for a tunnel",
            key="--host",
        )
    return found[0], port


def networks_of(allow: Sequence[str], host: str) -> tuple[ipaddress.IPv4Network, ...]:
    """The clients that may connect to a worker at `host`: by default those of the same machine.

    Raises: `ConfigError` for what is no private address, and where another machine could connect and none is named.
    """
    found = []
    for text in allow:
        try:
            network = ipaddress.ip_network(text, strict=False)
        except ValueError as error:
            raise ConfigError(
                f"{text!r} is neither an address nor a network; write 10.0.0.4 or 10.0.0.0/24", key="--allow"
            ) from error
        if not isinstance(network, ipaddress.IPv4Network):
            raise ConfigError(
                f"{text} is IPv6, which llama.cpp's workers do not speak; name an IPv4 one", key="--allow"
            )
        if not (is_near(str(network.network_address)) and is_near(str(network.broadcast_address))):
            raise ConfigError(
                f"{text} holds public addresses, and a client can use the memory of a worker as it likes; allow "
                "private ones only",
                key="--allow",
            )
        found.append(network)
    if not found and not ipaddress.ip_address(host).is_loopback:
        raise ConfigError(
            f"name the machines that may connect to {host}: an address, as in --allow 10.0.0.4, or a network, as in "
            "--allow 10.0.0.0/24",
            key="--allow",
        )
    return tuple(found) or (ipaddress.IPv4Network("127.0.0.0/8"),)


class Worker:
    """Listens from the beginning, and serves between `serve` and `stop`. `close` it once, on the thread of `serve`."""

    def __init__(
        self,
        address: tuple[str, int],
        allowed: Sequence[ipaddress.IPv4Network],
        lent: Lent,
        *,
        most_clients: int = MOST_CLIENTS,
    ) -> None:
        """Raises: `ConfigError` where the port is not free, `EngineError` where the library's server does not start."""
        self._allowed, self._lent, self._most_clients = tuple(allowed), lent, most_clients
        self._lock = threading.Condition()
        self._clients: dict[socket.socket, threading.Thread] = {}
        self._idle: _LibraryServer | None = None
        self._is_closing = False
        self._asked, self._ask = socket.socketpair()
        self._ask.setblocking(False)
        self.stopper = self._ask.fileno()
        """A byte that is written to it ends `serve`, as `stop` does."""
        self._listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            self._listen(address, most_clients)
            _trim(lent)
            self._idle = _LibraryServer(lent)
            self.free_bytes = probe(f"{HOST}:{self._idle.port}").free_bytes
            """Of each device, as a client sees it."""
        except BaseException:
            self.close()
            raise

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def serve(self) -> None:
        """Let clients in until `stop`."""
        while self._asked not in select.select([self._listener, self._asked], [], [])[0]:
            try:
                client, (host, port) = self._listener.accept()
            except OSError as error:  # the client has gone; or too many files are open: then a pause helps
                logger.warning("a client cannot be let in: %s", error.strerror or error)
                select.select([self._asked], [], [], 1.0)
                continue
            self._admit(client, host, f"{host}:{port}")

    def stop(self) -> None:
        """End `serve`; for any thread, and for a handler of a signal."""
        with contextlib.suppress(OSError):
            self._ask.send(b"\0")

    def close(self) -> None:
        """End every connection and every process."""
        with self._lock:
            self._is_closing = True
            clients = list(self._clients.items())
        self._listener.close()
        for client, _ in clients:
            _hang_up(client)
        for _, thread in clients:
            thread.join()
        if self._idle is not None:
            self._idle.end()
        self._asked.close()
        self._ask.close()

    def _listen(self, address: tuple[str, int], backlog: int) -> None:
        try:
            if os.name == "posix":
                self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._listener.bind(address)
            self._listener.listen(backlog)
        except OSError as error:
            host, port = address
            raise ConfigError(
                f"{host}:{port} cannot be listened on ({error.strerror}); choose another --host or --port"
            ) from error

    def _admit(self, client: socket.socket, host: str, name: str) -> None:
        if not any(ipaddress.IPv4Address(host) in network for network in self._allowed):
            logger.warning("%s may not connect: --allow does not name it", name)
        elif len(self._clients) >= self._most_clients:
            logger.warning("%s may not connect: %d clients are served, which is the limit", name, self._most_clients)
        else:
            thread = threading.Thread(target=self._serve, args=(client, name), name=f"client-{name}", daemon=True)
            with self._lock:
                self._clients[client] = thread
            thread.start()
            return
        client.close()

    def _serve(self, client: socket.socket, name: str) -> None:
        began_s, counts = time.monotonic(), [0, 0]
        logger.info("%s connects", name)
        try:
            self._relay(client, counts)
        except (ShepherdError, OSError) as error:
            logger.error("%s is not served any more: %s", name, error)  # noqa: TRY400 - a sentence is enough
        finally:
            with self._lock:
                del self._clients[client]
            client.close()
            _trim(self._lent)
            lasted_s = time.monotonic() - began_s
            logger.info("%s leaves after %.1f s: %d bytes came, %d went", name, lasted_s, *counts)

    def _relay(self, client: socket.socket, counts: list[int]) -> None:
        """Serve a client to its end, and count the bytes from it and to it.

        Raises: `EngineError` where the library's side ends first.
        """
        server, keeps = self._take(), False
        try:
            with server.connect() as inner:
                _tune(client)
                cut = threading.Event()
                back = threading.Thread(target=_pass_back, args=(inner, client, counts, cut), daemon=True)
                back.start()
                _copy(client, inner, counts, 0)
                is_cut = cut.is_set()
                with contextlib.suppress(OSError):
                    inner.shutdown(socket.SHUT_WR)
                back.join(0.0 if self._is_closing else LEAVE_S)
                is_free = not is_cut and not back.is_alive()
                if back.is_alive():  # it computes what no client waits for
                    server.end()
                back.join()
            if is_cut:
                raise EngineError(f"the library's RPC server {server.ending()}")
            with self._lock:
                keeps = is_free and self._idle is None and not self._is_closing
                self._idle = server if keeps else self._idle
                self._lock.notify()
        finally:
            if not keeps:
                server.end()

    def _take(self) -> _LibraryServer:
        """A process for a client: the idle one, or a new one."""
        with self._lock:
            self._lock.wait_for(lambda: self._idle is not None, TURN_S)
            server, self._idle = self._idle, None
        if server is not None and server.is_alive:
            return server
        if server is not None:
            server.end()
        return _LibraryServer(self._lent)


class _LibraryServer:
    """A process with the library's server, at a port of loopback that the system chooses."""

    def __init__(self, lent: Lent) -> None:
        """Blocks until it listens. Raises: `EngineError`, with its own words, or where it does not listen in time."""
        task = {"n_threads": lent.n_threads, "devices": lent.devices, "cache": lent.cache and str(lent.cache)}
        program = isolated.command(f"{__name__}:serve_task", memory_bytes=lent.memory_bytes)
        self._answer = tempfile.TemporaryFile()  # noqa: SIM115 - for as long as the process
        # Without GGML_NO_BACKTRACE, a failed assertion starts a debugger, which takes seconds.
        environment = {**os.environ, "GGML_NO_BACKTRACE": "1"}
        self._child = Child(program, environment, stdin=subprocess.PIPE, stdout=self._answer)
        self._child.send(isolated.line(task).encode())
        self.port = 0
        try:
            until_s = time.monotonic() + START_S
            while not (port := self._find_port()):
                self._check()
                if time.monotonic() > until_s:
                    raise EngineError(f"the library's RPC server does not listen within {START_S:g} s")
            self.port = port
        except BaseException:
            self.end()
            raise

    @property
    def is_alive(self) -> bool:
        return self._child.status is None

    def connect(self) -> socket.socket:
        """Raises: `EngineError`."""
        try:
            inner = socket.create_connection((HOST, self.port), LEAVE_S)
        except OSError as error:
            raise EngineError(f"the library's RPC server cannot be reached ({error.strerror or error})") from error
        inner.settimeout(None)
        inner.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return inner

    def ending(self) -> str:
        """How it ended, behind its name."""
        self._child.wait(PAUSE_S)  # its connections end first
        return self._child.ending()

    def end(self) -> None:
        self._child.end()
        self._answer.close()

    def _check(self) -> None:
        """Raises: `EngineError` where it has ended."""
        if not self._child.wait(STEP_S):
            return
        self._answer.seek(0)
        try:
            why = str(json.loads(self._answer.read())["error"])
        except (ValueError, KeyError, TypeError):  # it reported no error itself
            why = f"the library's RPC server {self.ending()}"
        raise EngineError(why)

    def _find_port(self) -> int:
        """The port at which it listens; 0 = not yet."""
        try:
            found = psutil.Process(self._child.pid).net_connections("tcp4")
        except (psutil.Error, OSError):  # it ends
            return 0
        return next((each.laddr.port for each in found if each.status == psutil.CONN_LISTEN), 0)


def _pass_back(inner: socket.socket, client: socket.socket, counts: list[int], cut: threading.Event) -> None:
    """Everything that the library's server answers; its end, which is the end of both, sets `cut`."""
    _copy(inner, client, counts, 1)
    cut.set()
    _hang_up(client)
    _hang_up(inner)


def _copy(source: socket.socket, target: socket.socket, counts: list[int], index: int) -> None:
    """Pass on what comes, until one side has gone; counts the bytes."""
    buffer = memoryview(bytearray(CHUNK_BYTES))
    with contextlib.suppress(OSError):
        while n := source.recv_into(buffer):
            target.sendall(buffer[:n])
            counts[index] += n


def _tune(client: socket.socket) -> None:
    """Send small messages at once, and notice a machine that was switched off."""
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEPALIVE.items():
        if (option := getattr(socket, name, None)) is not None:
            client.setsockopt(socket.IPPROTO_TCP, option, value)


def _hang_up(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _trim(lent: Lent) -> None:
    """Remove the tensors from the cache that were kept first, until it has its size."""
    with contextlib.suppress(OSError):  # another client's end removes them at the same time
        kept = [(each.stat(), each) for each in lent.cache.iterdir()] if lent.cache is not None else []
        n_bytes = sum(about.st_size for about, _ in kept)
        for about, path in sorted(kept, key=lambda each: each[0].st_mtime):
            if n_bytes > lent.cache_bytes:
                path.unlink(missing_ok=True)
                n_bytes -= about.st_size


# -- in the process of the library's server ----------------------------------------------------------------------------


def serve_task(task: dict[str, Any]) -> None:
    """Serve one client after the other. Raises: `EngineError`."""
    from shepherd.engine.llamacpp.library import serve_rpc  # noqa: PLC0415 - only this process needs it
    from shepherd.engine.llamacpp.runtime import usual_threads  # noqa: PLC0415

    n_threads = task["n_threads"] or usual_threads(10**9)
    cache = Path(task["cache"]) if task["cache"] else None
    serve_rpc(f"{HOST}:0", n_threads=n_threads, device_names=task["devices"], cache=cache)
