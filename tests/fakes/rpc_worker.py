"""A worker of llama.cpp's RPC as it may be met: of another version, busy, broken, or no worker at all.

It reads each request as the protocol has it, and answers with the bytes that a test gives.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

HANG = None
"""In place of an answer: nothing, and the connection stays open."""


def framed(answer: bytes) -> bytes:
    return struct.pack("<Q", len(answer)) + answer


def greeting(*version: int) -> bytes:
    """Of a worker with this version of the protocol."""
    return framed(bytes([*version, 0]) + bytes(24))


def devices(count: int) -> bytes:
    return framed(struct.pack("<I", count))


def memory(free: int, total: int) -> bytes:
    return framed(struct.pack("<QQ", free, total))


@contextmanager
def answering(*answers: bytes | None) -> Iterator[str]:
    """Its address. Each client, one after the other, gets these answers, one for each request; then it is closed."""
    done = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=_serve, args=(listener, answers, done))
        thread.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            done.set()
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def _serve(listener: socket.socket, answers: Sequence[bytes | None], done: threading.Event) -> None:
    while not done.is_set():
        with suppress(OSError, struct.error):
            client, _ = listener.accept()
            with client, client.makefile("rb") as asked:
                for answer in answers:
                    _, size = struct.unpack("<BQ", asked.read(9))
                    asked.read(size)
                    if answer is HANG:
                        done.wait()
                        return
                    client.sendall(answer)
