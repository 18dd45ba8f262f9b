"""Many starts of one Python program for the price of one: a process that has imported it forks for each client.

    a test ─ starts ─▶ client ARGUMENTS ─ unix socket ─▶ server ─ fork ─▶ child: main(ARGUMENTS)

The client ends when the child ends, and the child when the client does, so that a test can wait for the one and kill
it. Imports take most of the time that a server needs to start, and llama.cpp's tests start one for each case.

    python -S fork_server.py SOCKET ARGUMENTS     the client
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence


def serve(path: str, main: Callable[[Sequence[str]], object]) -> None:
    """Fork `main` for each client, until this process is ended."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        while True:
            client, _ = listener.accept()
            _wait_for_children()  # the last one may still have the port
            if os.fork() == 0:
                listener.close()
                _run(client, main)
            client.close()


def _wait_for_children() -> None:
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)


def _run(client: socket.socket, main: Callable[[Sequence[str]], object]) -> None:
    arguments = b""
    while not arguments.endswith(b"\0\0"):
        arguments += client.recv(65536)
    # The kernel kills it in the moment in which the client ends: a test that kills a server and starts the next one
    # on the same port must not be answered by the old one.
    fcntl.fcntl(client, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(client, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(client, fcntl.F_SETFL, fcntl.fcntl(client, fcntl.F_GETFL) | os.O_ASYNC)
    try:
        main(arguments[:-2].decode().split("\0"))
    finally:
        sys.stderr.flush()
        os._exit(0)


def _connect(path: str, *arguments: str) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(path)
        server.sendall("\0".join(arguments).encode() + b"\0\0")
        server.recv(1)


if __name__ == "__main__":
    _connect(*sys.argv[1:])
