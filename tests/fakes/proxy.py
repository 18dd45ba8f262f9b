"""A proxy on loopback: CONNECT, and plain requests with whole addresses. It reaches one host, by whatever name.

Proxy("127.0.0.1:9000")      hub.invalid, cdn.invalid and all others are 127.0.0.1:9000 behind it
"""

from __future__ import annotations

import base64
import contextlib
import socket
import threading

MAX_HEAD_BYTES = 2**16


class Proxy:
    """`with Proxy(...) as proxy:` starts and stops it. `login`: `name:password` that it wants."""

    def __init__(self, target: str, *, login: str = "") -> None:
        self.login = login
        self.cuts: list[int] = []
        """Each ends one connection after so many bytes of the answer."""
        self.seen: list[str] = []
        """The first line of every request."""
        self._target = target
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.host = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self.url = f"http://{self.host}"

    def __enter__(self) -> Proxy:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._socket.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError, ValueError):
            head = b""
            while b"\r\n\r\n" not in head and len(head) < MAX_HEAD_BYTES:
                if not (more := client.recv(4096)):
                    return
                head += more
            line, _, rest = head.partition(b"\r\n")
            self.seen.append(line.decode())
            method, url, version = line.split(b" ")
            wanted = b"basic " + base64.b64encode(self.login.encode())
            if self.login and b"proxy-authorization: " + wanted.lower() not in head.lower():
                client.sendall(
                    b"HTTP/1.1 407 Proxy Authentication Required\r\n"
                    b'Proxy-Authenticate: Basic realm="x"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n'
                )
                return
            name, _, port = self._target.rpartition(":")
            with socket.create_connection((name, int(port))) as server:
                if method == b"CONNECT":
                    client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                else:  # one request a connection
                    path = b"/" + url.split(b"/", 3)[3]
                    server.sendall(b" ".join((method, path, version)) + b"\r\nConnection: close\r\n" + rest)
                threading.Thread(target=_copy, args=(client, server), daemon=True).start()
                if method != b"CONNECT":  # the client must not send another request on this connection
                    first, _, more = server.recv(65536).partition(b"\r\n")
                    client.sendall(first + b"\r\nConnection: close\r\n" + more)
                _copy(server, client, self.cuts.pop(0) if self.cuts and method == b"GET" and b"/cdn/" in url else None)
                with contextlib.suppress(OSError):
                    client.shutdown(socket.SHUT_RDWR)


def _copy(source: socket.socket, target: socket.socket, n_most: int | None = None) -> None:
    """Until one of both ends, or after so many bytes."""
    n_bytes = 0
    with contextlib.suppress(OSError):
        while chunk := source.recv(65536):
            target.sendall(chunk)
            n_bytes += len(chunk)
            if n_most is not None and n_bytes >= n_most:
                return
