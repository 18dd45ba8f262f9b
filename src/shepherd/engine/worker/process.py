"""Starts a child that connects back to a socket in a private folder.

The child may be a group, such as `mpirun` and its ranks: the process that connects first with the key is the one.
"""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import socket
import struct
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from pathlib import Path
from typing import Any

from shepherd.core import EngineError
from shepherd.engine.worker.messages import ADDRESS, KEY
from shepherd.process.child import POLL_S, Cancelled, Child

logger = logging.getLogger(__name__)

HANDSHAKE_S = 5.0
"""Seconds that a process which connects has to show the key."""
MAX_PATH = 100
"""Bytes of a socket's path: the system's limit is 104 or more."""
TERM_S = 2.0
"""Seconds from SIGTERM to SIGKILL for a child that has not connected."""


def start(
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    title: str,
    connect_s: float,
    is_wanted: Callable[[], bool],
    folders: Mapping[str, str],
    tidy: Callable[[str], str],
) -> tuple[Child, Connection[Any, Any]]:
    """A child, and its connection. `title`: of its engine.

    Raises: `EngineError` if it ends, or has not connected within `connect_s`; `Cancelled` when `is_wanted` is False.
    """
    key = secrets.token_bytes(32)
    folder = Path(tempfile.mkdtemp(prefix="shepherd-"))
    try:
        if len(os.fsencode(folder)) > MAX_PATH:
            folder.rmdir()
            folder = Path(tempfile.mkdtemp(prefix="shepherd-", dir="/tmp"))
        address = str(folder / "s")
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(address)
            listener.listen()
            listener.settimeout(POLL_S)
            try:
                child = Child(command, {**environment, ADDRESS: address, KEY: key.hex()}, folders=folders, tidy=tidy)
            except OSError as error:
                raise EngineError(f"the process of the engine of {title} cannot be started: {error}") from error
            try:
                return child, _accept(listener, key, child, title=title, connect_s=connect_s, is_wanted=is_wanted)
            except BaseException:
                child.end(TERM_S)
                raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _accept(
    listener: socket.socket, key: bytes, child: Child, *, title: str, connect_s: float, is_wanted: Callable[[], bool]
) -> Connection[Any, Any]:
    gives_up = time.monotonic() + connect_s
    while True:
        if not is_wanted():
            raise Cancelled
        try:
            accepted, _ = listener.accept()
        except TimeoutError:
            if child.wait():
                raise EngineError(f"the process of the engine of {title} {child.ending()}") from None
            if time.monotonic() > gives_up:
                raise EngineError(
                    f"the process of the engine of {title} has not connected within {connect_s:g} s"
                ) from None
            continue
        accepted.setblocking(True)
        if (connection := _authenticated(accepted, key)) is not None:
            return connection


def _authenticated(accepted: socket.socket, key: bytes) -> Connection[Any, Any] | None:
    """A connection to a process that has the key; None if it does not show it in time."""
    _limit(accepted, HANDSHAKE_S)
    connection: Connection[Any, Any] = Connection(accepted.detach())
    try:
        deliver_challenge(connection, key)
        answer_challenge(connection, key)
    except (AuthenticationError, EOFError, OSError):
        logger.warning("a process without the key has connected to the socket of an engine; it is refused")
        connection.close()
        return None
    with socket.fromfd(connection.fileno(), socket.AF_UNIX, socket.SOCK_STREAM) as shared:
        _limit(shared, 0.0)
    return connection


def _limit(accepted: socket.socket, timeout_s: float) -> None:
    """Let each read fail after `timeout_s`; 0 = never. In the kernel: `Connection` knows no limit."""
    limit = struct.pack("ll", int(timeout_s), 0)
    for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        accepted.setsockopt(socket.SOL_SOCKET, option, limit)
