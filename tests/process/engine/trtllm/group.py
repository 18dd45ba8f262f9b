"""A group of real ranks for tests, seen from the program that starts it; and the check that nothing of it is left."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, Listener
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.places import ROOT

from shepherd.engine.trtllm import launch

MARK = "RANKS_TEST_MARK"
LONG_S = 60.0
"""No event of a test takes so long, on a machine that is busy with something else."""

needs_mpi = [
    pytest.mark.skipif(shutil.which("mpirun") is None, reason="mpirun is not installed (apt install openmpi-bin)"),
    pytest.mark.skipif(importlib.util.find_spec("mpi4py") is None, reason="mpi4py is not installed"),
    pytest.mark.skipif(sys.platform != "linux", reason="TensorRT-LLM runs on Linux only"),
]


def environment(folder: Path, **variables: str) -> dict[str, str]:
    """Of a program that starts ranks; the stand-in is the library."""
    (folder / "tensorrt_llm.py").write_text("from tests.process.engine.trtllm.standin import *\n")
    (folder / "tmp").mkdir(exist_ok=True)
    paths = os.pathsep.join(map(str, (ROOT / "src", ROOT, folder)))
    own = {
        "PYTHONPATH": paths,
        "RANKS_TEST_ADDRESS": str(folder / "socket"),
        "TMPDIR": str(folder / "tmp"),
        "OMPI_MCA_btl_vader_backing_directory": str(folder / "tmp"),
        MARK: uuid.uuid4().hex,
    }
    return {**os.environ, **own, **variables}


def command(planned: launch.Launch, leave_s: float) -> list[str]:
    """The plan's command, with the tests' program in place of ours."""
    at = planned.command.index(launch.MODULE)
    return [*planned.command[:at], "tests.process.engine.trtllm.rank_program", str(leave_s)]


def left(mark: str) -> list[psutil.Process]:
    """The processes that have a mark in their environment and still run."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            alive = process.status() != psutil.STATUS_ZOMBIE
            if alive and process.pid != os.getpid() and process.environ().get(MARK) == mark:
                found.append(process)
    return found


def eventually(is_true: Callable[[], bool], timeout_s: float = LONG_S) -> bool:
    deadline = time.monotonic() + timeout_s
    while not (now := is_true()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return now


@dataclass
class Group:
    """Ranks that have been started. `ask` is for rank 0."""

    process: subprocess.Popen[bytes]
    listener: Listener
    mark: str
    out: Path
    errors: Path
    connection: Connection | None = None
    ready: tuple[str, int, int] = ("", 0, 0)
    took: dict[str, float] = field(default_factory=dict)

    def connect(self) -> Group:
        """Wait until rank 0 has connected."""
        self.connection = accept(self.listener, self.process)
        self.ready = self.connection.recv()
        return self

    def ask(self, *order: Any) -> Any:
        """What rank 0 answers."""
        self.tell(*order)
        assert self.connection is not None
        assert self.connection.poll(LONG_S), self.words()
        return self.connection.recv()

    def tell(self, *order: Any) -> None:
        assert self.connection is not None
        self.connection.send(order)

    def ranks(self) -> dict[int, psutil.Process]:
        """By rank."""
        return {int(each.environ()[launch.RANK]): each for each in left(self.mark) if launch.RANK in each.environ()}

    def words(self) -> str:
        return self.errors.read_text()

    def end(self) -> int:
        """The exit status, after everything has ended by itself; nothing is left, and standard output is empty."""
        before = time.monotonic()
        status = self.process.wait(LONG_S)
        assert eventually(lambda: not left(self.mark), 10), left(self.mark)
        self.took["end"] = time.monotonic() - before
        assert self.out.read_text() == ""
        return status


def accept(listener: Listener, process: subprocess.Popen[bytes]) -> Connection:
    """The connection of rank 0; fails when the process ends before."""
    socket = listener._listener._socket  # type: ignore[attr-defined] # has no public way to wait with an end
    socket.settimeout(0.1)
    deadline = time.monotonic() + LONG_S
    while time.monotonic() < deadline:
        with contextlib.suppress(TimeoutError):
            connection: Connection = listener.accept()
            return connection
        if process.poll() is not None:
            raise EOFError(f"status {process.returncode} before rank 0 connected")
    raise TimeoutError


@contextlib.contextmanager
def start(
    folder: Path,
    n_ranks: int,
    *,
    wish: launch.Wish = "mpirun",
    leave_s: float = LONG_S,
    change: Callable[[list[str]], list[str]] = list,
    **variables: str,
) -> Iterator[Group]:
    """Ranks as our plan starts them, in a session of their own. All are killed at the end of the block."""
    environ = environment(folder, **variables)
    planned = launch.plan((1, n_ranks, 1), wish, environ=environ)
    with (
        Listener(environ["RANKS_TEST_ADDRESS"], "AF_UNIX") as listener,
        open(folder / "out", "wb") as out,
        open(folder / "errors", "wb") as errors,
    ):
        process = subprocess.Popen(
            change(command(planned, leave_s)), env=planned.environment, cwd=ROOT, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=out, stderr=errors,
        )  # fmt: skip
        group = Group(process, listener, environ[MARK], folder / "out", folder / "errors")
        try:
            yield group
        finally:
            kill(group.mark)
            process.kill()
            process.wait()
            if group.connection is not None:
                group.connection.close()


def kill(mark: str) -> None:
    while members := left(mark):
        for each in members:
            with contextlib.suppress(psutil.Error):
                each.send_signal(signal.SIGKILL)


def program(environ: Mapping[str, str], **streams: Any) -> subprocess.Popen[bytes]:
    """A program that starts ranks itself (`parent_program.py`), and can be killed."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.process.engine.trtllm.parent_program"], env=environ, cwd=ROOT, **streams
    )
