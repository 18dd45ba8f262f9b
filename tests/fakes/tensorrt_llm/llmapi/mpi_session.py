"""Sessions of real mpi4py workers, in the shape of the real package's; FAKE."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from ..signatures import bound


class MpiPoolSession:
    """Spawns its workers (MPI_Comm_spawn)."""

    @bound("MpiPoolSession.__init__")
    def __init__(self, n_workers: int) -> None:
        from mpi4py.futures import MPIPoolExecutor

        self.n_workers = n_workers
        self._pool = MPIPoolExecutor(max_workers=n_workers)

    @bound("MpiPoolSession.submit")
    def submit(self, task: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Future[Any]]:
        return [self._pool.submit(task, *args, **kwargs) for _ in range(self.n_workers)]

    @bound("MpiPoolSession.shutdown")
    def shutdown(self, wait: bool) -> None:
        self._pool.shutdown(wait=wait)


class MpiCommSession:
    """Uses the ranks of an mpirun job; rank 0 only, and every other rank must be inside `MPICommExecutor`."""

    @bound("MpiCommSession.__init__")
    def __init__(self, comm: Any, n_workers: int) -> None:
        from mpi4py import MPI
        from mpi4py.futures import MPICommExecutor

        self._comm = comm or MPI.COMM_WORLD
        if self._comm.Get_rank() != 0:
            raise RuntimeError(f"only rank 0 can start multi-node session, got {self._comm.Get_rank()}")
        if self._comm.Get_size() != n_workers:
            raise ValueError(f"n_workers must be equal to the number of MPI processes, got {n_workers}")
        self.n_workers = n_workers
        self._own = ThreadPoolExecutor(max_workers=2)
        self._context = MPICommExecutor(self._comm)
        self._pool: Any = self._context.__enter__() if n_workers > 1 else None

    @bound("MpiCommSession.submit")
    def submit(self, task: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Future[Any]]:
        """The task on all ranks; that of rank 0 in a thread."""
        others = [self._pool.submit(task, *args, **kwargs) for _ in range(self.n_workers - 1)] if self._pool else []
        return [*others, self._own.submit(task, *args, **kwargs)]

    @bound("MpiCommSession.shutdown")
    def shutdown(self, wait: bool) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=wait)
            self._pool = None
        self._own.shutdown(wait=wait)


def worker_main(n_workers: int) -> int:
    """What every rank does at the start: a barrier and a sum of all, as the real `worker_main` begins."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    if comm.Get_size() != n_workers:
        raise RuntimeError(f"{n_workers} ranks are needed, there are {comm.Get_size()}")
    comm.Barrier()
    total: int = comm.allreduce(1)
    return total
