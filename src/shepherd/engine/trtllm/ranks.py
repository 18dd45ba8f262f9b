"""What a rank does: imports the library together with the others, works or serves, and leaves together with them.

    every rank   check the launcher ─▶ stdout away ─▶ MPI ─▶ import the library (a collective)
    rank 0       host(ranks) ──── session() ───────────────────── LEAVE + exit code ─▶ barrier ─▶ main returns
    others       wait for orders ── SERVE: tasks of the library ── LEAVE + exit code ─▶ barrier ─▶ main returns

One rank that leaves alone makes the others hang in MPI's finalisation, so that all leave after a barrier, with the same
exit code. Nothing here calls `MPI.Finalize`. `abort` ends all ranks at once: on an error of a rank, and by `RankWatch`
when one does not leave in time. Waiting costs no processor time (`Ibcast`, `Test` and a pause; MPI's own waits spin).

In spawn mode there is one rank, without MPI. Not here: how ranks start (`launch.py`), the engine and its socket.
"""

from __future__ import annotations

import array
import importlib
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, TypeVar

from shepherd.engine.trtllm.launch import RANK, RANKS, SIZE

T = TypeVar("T")

PAUSE_S = 0.02
"""Between two looks whether an order has come."""
WATCH_S = 0.5
"""Between two looks whether Shepherd is still there."""
LEAVE_S = 60.0
"""From the moment that the end is announced until all ranks are ended by force."""
WRONG_LAUNCH = 2
"""Exit status of ranks that were not started as they must be."""
SERVE, LEAVE = 1, 2


class Ranks:
    """The other ranks, as rank 0 sees them. For one thread."""

    def __init__(self, world: Any = None) -> None:
        """world: MPI's communicator of all ranks; None = this rank is alone. A collective."""
        self.world = world
        self.n_ranks = 1 if world is None else world.size
        self._orders = None if world is None else world.Dup()  # the library's own collectives do not meet our orders
        self._sessions: list[Any] = []
        self._is_broken = False
        """The others wait for an executor that never comes."""

    def session(self, make: Callable[[Any, int], T]) -> T | None:
        """The library's handle on the other ranks, which serve it until its `shutdown()`; None = this rank is alone.

        make: from the communicator of all ranks and their number; enters `MPICommExecutor`, as `MpiCommSession` does.
        """
        if self._orders is None:
            return None
        self._order(SERVE)
        self._is_broken = True
        made = make(self.world, self.n_ranks)
        self._is_broken = False
        self._sessions.append(made)
        return made

    def leave(self, code: int) -> None:
        """Tell the others the common exit code, and wait until all have reached the end."""
        if self._orders is None:
            return
        if self._is_broken:
            abort()
        for each in self._sessions:
            each.shutdown()  # does nothing where the library has done it
        self._order(LEAVE, code)
        _wait(self._orders.Ibarrier())

    def follow(self, watch: RankWatch) -> int:
        """Do what rank 0 orders. The common exit code comes back when all ranks have reached the end."""
        assert self._orders is not None
        futures = importlib.import_module("mpi4py.futures")
        while True:
            order, code = self._order(0)
            if order == LEAVE:
                watch.limit()
                _wait(self._orders.Ibarrier())
                return code
            with futures.MPICommExecutor(self.world) as executor:
                assert executor is None

    def _order(self, order: int, code: int = 0) -> tuple[int, int]:
        """The order of rank 0. A collective of all ranks."""
        words = array.array("i", [order, code])
        assert self._orders is not None
        _wait(self._orders.Ibcast(words, root=0))
        return words[0], words[1]


class RankWatch:
    """Ends this rank when its launcher has died, and all ranks when one does not leave in time. A thread of its own."""

    def __init__(self, leave_s: float) -> None:
        self.leave_s = leave_s
        self._deadline: float | None = None
        self._launcher = os.getppid()
        self._shepherd = _parent_of(self._launcher)
        threading.Thread(target=self._watch, name="rank-watch", daemon=True).start()

    def limit(self) -> None:
        """The end is announced: from now on all ranks have `leave_s` seconds."""
        if self._deadline is None:
            self._deadline = time.monotonic() + self.leave_s

    def _watch(self) -> None:
        under_mpirun = RANKS in os.environ
        while self._deadline is None or time.monotonic() < self._deadline:
            if os.getppid() != self._launcher:
                if under_mpirun:  # it cannot end the others any more; they see the same
                    os._exit(1)
                self.limit()
            elif under_mpirun and _parent_of(self._launcher) != self._shepherd:
                self.limit()
            time.sleep(WATCH_S)
        _say(f"a rank does not leave within {self.leave_s:g} s; all ranks are ended by force")
        abort()


def run(host: Callable[[Ranks], int], *, library: str = "tensorrt_llm", leave_s: float = LEAVE_S) -> int:
    """The exit code of this rank, the same for all; `main` returns it at once.

    host: runs on rank 0 only, in the main thread; what it returns is the common exit code. SIGTERM raises `SystemExit`
    in it. library: the module whose import initialises the library.
    """
    size, asked = os.environ.get(SIZE), os.environ.get(RANKS)
    if asked is not None and size != asked:  # every rank says it: the first that ends has mpirun kill the others
        _say(
            f"mpirun started {size} ranks, but this engine needs {asked}; remove other settings of mpirun"
            if size
            else f"mpirun is not Open MPI's ({SIZE} is not set); install Open MPI (apt install openmpi-bin) and put it "
            'first in PATH, or set launch = "spawn"'
        )
        return WRONG_LAUNCH
    rank = int(os.environ[RANK]) if asked is not None else 0
    _silence(rank)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the program with the terminal
    watch = RankWatch(leave_s)
    try:
        world = importlib.import_module("mpi4py.MPI").COMM_WORLD if asked is not None else None
        _import(library)
        ranks = Ranks(world)
        if rank > 0:
            return ranks.follow(watch)
        code = _hosted(host, ranks, watch)
        ranks.leave(code)
    except BaseException:
        traceback.print_exc()
        abort()
    return code


def abort() -> NoReturn:
    """End all ranks at once, with status 1: `mpirun` ends those that are left when one ends without the others.

    `MPI.Abort` would do the same, but loses what this rank has just written.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)


def _hosted(host: Callable[[Ranks], int], ranks: Ranks, watch: RankWatch) -> int:
    """What the host returns, or the status that a SIGTERM ends it with."""

    def end(_number: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        watch.limit()
        raise SystemExit(0)

    signal.signal(signal.SIGTERM, end)
    try:
        code = host(ranks)
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    watch.limit()
    return code


def _import(library: str) -> None:
    """Every rank imports the library at the same moment: its import is a collective."""
    try:
        importlib.import_module(library)
    except ImportError as error:  # such as a missing library of CUDA
        _say(f"{library} cannot be imported: {error}")
        abort()


def _silence(rank: int) -> None:
    """Nothing of the library reaches standard output: what rank 0 writes goes to its log, of the others to nowhere."""
    sys.stdout.flush()
    if rank == 0:
        os.dup2(2, 1)
    else:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.close(nowhere)


def _wait(request: Any) -> None:
    while not request.Test():
        time.sleep(PAUSE_S)


def _parent_of(pid: int) -> int:
    """0 where the system does not tell."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def _say(sentence: str) -> None:
    os.write(2, f"shepherd: {sentence}\n".encode())
