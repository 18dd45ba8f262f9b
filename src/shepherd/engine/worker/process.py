"""Starts a child, waits for its connection, and ends it with everything that it has started.

    command ─▶ a session of its own (no Ctrl-C of our terminal) ─▶ connects to a socket in a private folder
    its standard output and standard error ─▶ one pipe ─▶ the log, and its last words
    its temporary files ─▶ folders of its own, which are removed behind it, however it ends

The child may be a group, such as `mpirun` and its ranks: whichever process connects first with the key is the one.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from pathlib import Path
from typing import Any

import psutil

from shepherd.core import EngineError
from shepherd.engine.worker.messages import ADDRESS, KEY
from shepherd.process.child import LAST_WORDS, Unwanted

logger = logging.getLogger(__name__)

POLL_S = 0.05
"""Seconds between two checks whether the child lives and is still wanted."""
HANDSHAKE_S = 5.0
"""Seconds that a process which connects has to show the key."""
MAX_PATH = 100
"""Bytes of a socket's path: the system's limit is 104 or more."""
TERM_S = 2.0
"""Seconds from SIGTERM to SIGKILL for a child that has not connected."""
KILL_S = 10.0
"""Seconds until killed processes must have gone; the kernel ends them, which takes long only where memory is large."""


class Child:
    """A process in a session of its own, and all that it starts."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        folders: Mapping[str, str],
        tidy: Callable[[str], str],
    ) -> None:
        """`environment`: all of it. `folders`, `tidy`: as `ChildEngine` has them. Raises: `EngineError`."""
        self._mark = f"{ADDRESS}={environment[ADDRESS]}".encode()
        self._tidy = tidy
        self._tail = b""
        self._folders = _make_folders(folders, environment)
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                env={**environment, **self._folders}, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            self._remove_folders()
            raise EngineError(f"the engine process cannot be started: {error}") from error
        self._drain = threading.Thread(target=self._read, name=f"worker-output-{self._process.pid}", daemon=True)
        self._drain.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait(self, timeout_s: float = 0.0) -> bool:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_s)
        return self._process.returncode is not None

    def ending(self) -> str:
        """How it ended, behind its name, such as `was killed by SIGKILL; its last words: ...`."""
        status = self._process.returncode
        if status is None:
            how = "closed its connection"
        elif status >= 0:
            how = f"ended with exit status {status}"
        else:
            names = {each.value: each.name for each in signal.Signals}
            how = f"was killed by {names.get(-status, f'signal {-status}')}"
        self._drain.join(1.0)
        words = self._tidy(self._tail.decode("utf-8", "replace")).strip()
        return f"{how}; its last words: {words}" if words else how

    def end(self, term_s: float) -> bool:
        """End the process and all that it has started: SIGTERM, after `term_s` SIGKILL. Whether they have gone, and
        with them their temporary files."""
        members = self._members()
        for number, patience_s in ((signal.SIGTERM, term_s), (signal.SIGKILL, KILL_S)):
            if members and patience_s > 0:
                _signal(members, number)
                gives_up = time.monotonic() + patience_s
                while (members := self._members()) and time.monotonic() < gives_up:
                    if number == signal.SIGKILL:
                        _signal(members, number)  # those that were started meanwhile
                    time.sleep(POLL_S)
        self._drain.join(1.0)
        if members:
            return False
        self._remove_folders()
        return self.wait(POLL_S)

    def _remove_folders(self) -> None:
        for folder in self._folders.values():
            shutil.rmtree(folder, ignore_errors=True)

    def _members(self) -> list[psutil.Process]:
        """The processes of its session, and those that have its mark; those that have ended are none."""
        pid = self._process.pid
        is_reused = self._process.poll() is not None and psutil.pid_exists(pid)  # then its session has no members
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                is_ours = (not is_reused and os.getsid(process.pid) == pid) or self._is_marked(process.pid)
                if is_ours and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def _is_marked(self, pid: int) -> bool:
        return self._mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as output:
            while chunk := os.read(output.fileno(), 65_536):
                self._tail = (self._tail + chunk)[-LAST_WORDS:]
                if logger.isEnabledFor(logging.DEBUG):
                    logger.debug("%d writes: %s", self._process.pid, chunk.decode("utf-8", "replace").rstrip())


def start(
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    connect_s: float,
    is_wanted: Callable[[], bool],
    folders: Mapping[str, str],
    tidy: Callable[[str], str],
) -> tuple[Child, Connection[Any, Any]]:
    """Start a child, and wait for its connection.

    Raises: `EngineError` if it ends, or does not connect within `connect_s`; `Unwanted` when `is_wanted` returns False.
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
            child = Child(command, {**environment, ADDRESS: address, KEY: key.hex()}, folders=folders, tidy=tidy)
            try:
                return child, _accept(listener, key, child, connect_s, is_wanted)
            except BaseException:
                child.end(TERM_S)
                raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _make_folders(folders: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """Private folders by their variable, where there is a place for them."""
    made = {}
    for variable, usual in folders.items():
        with contextlib.suppress(OSError):  # no such place here: the program decides as without the variable
            made[variable] = tempfile.mkdtemp(prefix="shepherd-", dir=environment.get(variable, usual))
    return made


def _accept(
    listener: socket.socket, key: bytes, child: Child, connect_s: float, is_wanted: Callable[[], bool]
) -> Connection[Any, Any]:
    gives_up = time.monotonic() + connect_s
    while True:
        if not is_wanted():
            raise Unwanted
        try:
            accepted, _ = listener.accept()
        except TimeoutError:
            if child.wait():
                raise EngineError(f"the engine process {child.ending()}") from None
            if time.monotonic() > gives_up:
                raise EngineError(f"the engine process has not connected within {connect_s:g} s") from None
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
    with as_socket(connection) as shared:
        _limit(shared, 0.0)
    return connection


def as_socket(connection: Connection[Any, Any]) -> socket.socket:
    """Another handle of the connection; close it."""
    return socket.fromfd(connection.fileno(), socket.AF_UNIX, socket.SOCK_STREAM)


def _limit(accepted: socket.socket, timeout_s: float) -> None:
    """Let each read fail after `timeout_s`; 0 = never. In the kernel: `Connection` knows no limit."""
    limit = struct.pack("ll", int(timeout_s), 0)
    for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        accepted.setsockopt(socket.SOL_SOCKET, option, limit)


def _signal(members: Sequence[psutil.Process], number: int) -> None:
    for process in members:
        with contextlib.suppress(psutil.Error):
            process.send_signal(number)
