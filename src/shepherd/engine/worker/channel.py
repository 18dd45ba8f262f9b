"""A connection to a child: lists of our own values in both directions, and once the handle of a file.

Values are pickled. A child computes foreign files, so what it sends may not be what it should: this process builds
nothing of its messages but plain values and those of `ALLOWED`.
"""

from __future__ import annotations

import io
import os
import pickle
import socket
import sys
import threading
from collections.abc import Iterator
from dataclasses import is_dataclass
from multiprocessing.connection import Connection
from typing import Any

from shepherd.core import ShepherdError
from shepherd.engine.stats import Histogram

MOST_BYTES = 1 << 30
"""Of one message."""
READ_BYTES = 1 << 16
"""At once. Most messages are far smaller, and a larger buffer takes the system longer than the reading."""
ALLOWED = ("shepherd.core.", "shepherd.engine.")
"""The packages of the values that cross."""
VALUES = (tuple, ShepherdError, Histogram)
"""What they are, besides data classes."""
_PLAIN = {("array", "_array_reconstructor"), ("array", "array"), ("builtins", "frozenset"), ("builtins", "set")}
_PLAIN |= {("shepherd.core.errors", "_restore")}


class Channel:
    """Any thread may send; one thread at a time receives."""

    def __init__(self, connection: Connection[Any, Any], *, is_trusted: bool = False) -> None:
        """`is_trusted`: the other side is the parent, which may send what it likes."""
        self._connection = connection
        self._load = pickle.loads if is_trusted else _load
        self._sending = threading.Lock()
        self._begun = bytearray()
        """What `arrived` has read of a message whose rest has not come."""

    def send(self, values: list[Any]) -> None:
        """Raises: `OSError` where the other side has gone, or `close` was called; what `pickle` raises."""
        packed = pickle.dumps(values, pickle.HIGHEST_PROTOCOL)
        with self._sending:
            self._connection.send_bytes(packed)

    def send_handle(self, handle: int) -> None:
        """Lend an open file to the other side, which calls `receive_handle` next. Raises: `OSError`."""
        with self._sending, self._socket() as shared:
            socket.send_fds(shared, [b"h"], [handle])

    def poll(self, timeout_s: float) -> bool:
        return self._connection.poll(timeout_s)

    def receive(self) -> list[Any]:
        """Raises: `EOFError` or `OSError` at the end; `pickle.UnpicklingError` for anything but a list of ours."""
        return self._loaded(self._connection.recv_bytes(MOST_BYTES))

    def arrived(self) -> Iterator[list[Any]]:
        """Once `poll` says that something has come: the messages that are whole by now. A child may stop in the middle
        of one, or name a length of which nothing comes; no reader waits for the rest. Not beside `receive`. Raises: as
        `receive`.
        """
        came = os.read(self._connection.fileno(), READ_BYTES)
        if not came:
            raise EOFError
        self._begun += came
        while (packed := self._cut()) is not None:
            yield self._loaded(packed)

    def _cut(self) -> bytes | None:
        """The first message of what has been read; None: it is not whole. Raises: `pickle.UnpicklingError`."""
        n_head, size = 4, int.from_bytes(self._begun[:4], "big", signed=True)
        if size == -1:  # the length of a large one follows, as `Connection` writes it
            n_head, size = 12, int.from_bytes(self._begun[4:12], "big")
        if len(self._begun) < n_head:
            return None
        if not 0 <= size <= MOST_BYTES:
            raise pickle.UnpicklingError(f"not a message: it would have {size} bytes")
        if len(self._begun) < n_head + size:
            return None
        packed = bytes(self._begun[n_head : n_head + size])
        del self._begun[: n_head + size]
        return packed

    def _loaded(self, packed: bytes) -> list[Any]:
        try:
            values = self._load(packed)
        except pickle.UnpicklingError:
            raise
        except Exception as error:  # of the constructors, which get whatever the bytes say
            raise pickle.UnpicklingError(f"not a message: {type(error).__name__}: {error}") from error
        if not isinstance(values, list):
            raise pickle.UnpicklingError(f"not a message: {type(values).__name__}")
        return values

    def receive_handle(self) -> int:
        """An open file of the other side. Raises: `OSError`."""
        with self._socket() as shared:
            handles = socket.recv_fds(shared, 1, 1)[1]
        if len(handles) != 1:
            raise OSError("no handle has come")
        return handles[0]

    def hang_up(self) -> None:
        """Let a blocked sender and a receiver return. Any thread."""
        try:
            with self._socket() as shared:
                shared.shutdown(socket.SHUT_RDWR)
        except OSError:  # it has ended, or was closed
            pass

    def close(self) -> None:
        self._connection.close()

    def _socket(self) -> socket.socket:
        """Another handle of the connection; close it."""
        return socket.fromfd(self._connection.fileno(), socket.AF_UNIX, socket.SOCK_STREAM)


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _PLAIN:
            return super().find_class(module, name)
        if module.startswith(ALLOWED) and "." not in name:
            found = getattr(sys.modules.get(module), name, None)
            if isinstance(found, type) and (issubclass(found, VALUES) or is_dataclass(found)):
                return found
        raise pickle.UnpicklingError(f"{module}.{name} is no value that crosses")


def _load(packed: bytes) -> Any:
    return _Unpickler(io.BytesIO(packed)).load()
