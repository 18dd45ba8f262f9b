"""Stands in for `tensorrt_llm` in tests of the processes: the import is a collective and writes a banner; no model.

Not a copy of NVIDIA's package: it has `MpiCommSession`'s shape only, as `spec/tensorrt.md` reports it.
"""

import os
import signal
import sys
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from mpi4py import MPI
from mpi4py.futures import MPICommExecutor, MPIPoolExecutor

RANK = MPI.COMM_WORLD.rank
print(f"[Stand-in] version banner of rank {RANK}", flush=True)
os.write(1, b"[Stand-in] a banner written by C++\n")
if os.environ.get("STANDIN_FAILS_ON") == str(RANK):
    raise RuntimeError("the stand-in fails")
if os.environ.get("STANDIN_LACKS_CUDA"):
    raise ImportError("libcudart.so.13: cannot open shared object file: No such file or directory")
if os.environ.get("STANDIN_STOPS_ON") == str(RANK):
    os.kill(os.getpid(), signal.SIGSTOP)
MPI.COMM_WORLD.Split_type(9)  # Open MPI's OMPI_COMM_TYPE_HOST: hangs until every rank does it


class Session:
    """Rank 0's task runs in a thread, the others' in `MPICommExecutor`."""

    def __init__(self, comm: Any, n_workers: int) -> None:
        assert n_workers == comm.size
        self.threads = ThreadPoolExecutor(2)
        self.entered = MPICommExecutor(comm)
        self.pool: Any = self.entered.__enter__()

    def submit(self, task: Any, *arguments: Any) -> list[Future[Any]]:
        others = [self.pool.submit(task, *arguments) for _ in range(MPI.COMM_WORLD.size - 1)] if self.pool else []
        return [self.threads.submit(task, *arguments), *others]

    def shutdown(self) -> None:
        if self.pool is not None:
            self.pool.shutdown(wait=True)
            self.pool = None
        self.threads.shutdown(wait=True)


class Pool:
    """What the library does alone: it starts its ranks by `MPI_Comm_spawn`."""

    def __init__(self, n_workers: int) -> None:
        self.n_workers = n_workers
        self.pool = MPIPoolExecutor(n_workers)

    def submit(self, task: Any, *arguments: Any) -> list[Future[Any]]:
        return [self.pool.submit(task, *arguments) for _ in range(self.n_workers)]

    def shutdown(self) -> None:
        self.pool.shutdown(wait=True)


def where() -> tuple[int, int, int]:
    """Rank, process, and the sum of all ranks: a collective."""
    MPI.COMM_WORLD.Barrier()
    total: int = MPI.COMM_WORLD.allreduce(RANK)
    return RANK, os.getpid(), total


def cpu_s(seconds: float) -> float:
    """The processor time that this rank takes while it waits in a task."""
    before = time.process_time()
    time.sleep(seconds)
    return time.process_time() - before


def compute(until: str) -> bool:
    """Takes all processor time until a file exists."""
    while not os.path.exists(until):
        sum(range(10_000))
    return True


def die(rank: int, how: str) -> None:
    """End one rank in the middle of a task."""
    if rank == RANK:
        match how:
            case "exit 3":
                os._exit(3)
            case "SIGKILL":
                os.kill(os.getpid(), signal.SIGKILL)
            case "stop":
                os.kill(os.getpid(), signal.SIGSTOP)
            case "hang":
                threading.Event().wait()
    sys.stdout.write("[Stand-in] a rank lives\n")
