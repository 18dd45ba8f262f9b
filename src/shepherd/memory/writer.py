"""The one thread that writes a memory: jobs in, one durable commit for all that wait together, results out.

    submit ─▶ queue ─▶ BEGIN IMMEDIATE · job · job · job · COMMIT, synced to the disk ─▶ futures resolve
                            └─ between two commits, and sooner when the queue is empty: `rest`, a small step of upkeep

A result means that the changes are on disk. A job that fails affects only its own future. If a commit fails, each job
of its group runs again alone, so that one that is too large for the disk does not fail the others. The writer works
again as soon as the disk does.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

import apsw

from shepherd.core import MemoryFailure
from shepherd.core.dataclasses import dataclass
from shepherd.memory.database import failure

logger = logging.getLogger(__name__)
T = TypeVar("T")

GROUP = 128
"""Jobs that share a commit; more would not be cheaper."""
GROUP_S = 0.05
"""A group takes no more jobs after this time, since its first job waits for the last."""
LOCKED_S = 60.0
"""How long other processes may lock the file before a job fails."""


@dataclass(frozen=True, slots=True)
class _Job:
    function: Callable[[apsw.Connection], Any]
    future: Future[Any]
    is_bare: bool
    """It runs outside of any transaction."""


class Writer:
    """Owns `connection`: no other thread may use it from now on.

    The thread calls `rest(connection, has_waiting)` between two commits, and when the queue is empty. `rest` returns
    after how many seconds it wants the next call (None = after the next commit). No transaction is open then. It must
    be short, since jobs wait for it. The thread calls `settle` after each commit, before the futures resolve.
    """

    def __init__(
        self,
        connection: apsw.Connection,
        *,
        name: str,
        rest: Callable[[apsw.Connection, bool], float | None] = lambda _connection, _has_waiting: None,
        settle: Callable[[apsw.Connection], None] = lambda _connection: None,
    ) -> None:
        self.name = name
        self._connection = connection
        self._rest, self._settle = rest, settle
        self._queue: SimpleQueue[_Job | None] = SimpleQueue()
        self._held: _Job | None = None  # taken from the queue, and next to run
        self._lock = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=f"memory {name}", daemon=True)
        self._thread.start()

    def submit(self, job: Callable[[apsw.Connection], T], *, is_bare: bool = False) -> Future[T]:
        """The result of `job`, when its changes are on disk. From any thread.

        `job` runs on the writer's thread inside a transaction, and once more if the commit of its group fails: it must
        have no effects beside those on the file. `is_bare`: it runs once, outside of any transaction.

        Raises: `MemoryFailure` when closed; the future raises it for an error of SQLite.
        """
        future: Future[T] = Future()
        with self._lock:  # nothing may follow the end mark
            if self._closed:
                raise MemoryFailure(f"the memory {self.name} is closed")
            self._queue.put(_Job(job, future, is_bare))
        return future

    def close(self) -> None:
        """Run the waiting jobs, end the thread and close the connection, which merges the log. Twice is allowed."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._queue.put(None)
        if threading.current_thread() is not self._thread:  # the garbage collector may call from there
            self._thread.join()

    def _run(self) -> None:
        rests_after_s: float | None = 0.0
        while True:
            try:
                job = self._take(rests_after_s)
            except Empty:
                rests_after_s = self._upkeep(partial(self._rest, self._connection, False))
                continue
            if job is None:
                break
            self._bare(job) if job.is_bare else self._group(job)
            rests_after_s = 0.0
            if not self._queue.empty():
                self._upkeep(partial(self._rest, self._connection, True))
        self._connection.close()  # the last connection of a file merges its log

    def _take(self, timeout_s: float | None = 0.0) -> _Job | None:
        """The next job that is not cancelled; None = end. Raises: `Empty` after `timeout_s`."""
        if held := self._held:
            self._held = None
            return held
        while (job := self._queue.get(timeout_s != 0, timeout_s)) and not job.future.set_running_or_notify_cancel():
            pass
        return job

    def _waiting(self) -> _Job | None:
        """The next waiting job, if it runs in a transaction."""
        try:
            job = self._take()
        except Empty:
            return None
        if job is None:
            self._queue.put(None)  # the end mark is for `_run`, and nothing follows it
        elif job.is_bare:
            self._held = job
            return None
        return job

    def _upkeep(self, step: Callable[[], T]) -> T | None:
        try:
            return step()
        except Exception as error:  # a wall: no caller waits; if the disk fails, the next job reports it
            logger.warning("upkeep of the memory %s: %s", self.name, error)
            self._roll_back()
            return None

    def _group(self, first: _Job, *, alone: bool = False) -> None:
        """One transaction for `first` and, unless it runs `alone`, the jobs that wait behind it."""
        stop_at = time.monotonic() + GROUP_S
        jobs, outcomes = [first], list[Callable[[], None]]()
        try:
            begin(self._connection)
            outcomes.append(self._one(first))
            while not alone and len(jobs) < GROUP and time.monotonic() < stop_at and (job := self._waiting()):
                jobs.append(job)
                outcomes.append(self._one(job))
            self._connection.execute("COMMIT")
        except Exception as error:  # a wall: the futures get the error, and the thread continues
            self._roll_back()
            outcomes = [partial(first.future.set_exception, self._translated(error))] if len(jobs) == 1 else []
        else:
            self._upkeep(partial(self._settle, self._connection))
        for outcome in outcomes:
            outcome()
        for job in jobs if not outcomes else ():
            self._group(job, alone=True)

    def _bare(self, job: _Job) -> None:
        try:
            value = job.function(self._connection)
        except Exception as error:  # a wall, as above
            self._roll_back()
            job.future.set_exception(self._translated(error))
        else:
            job.future.set_result(value)

    def _one(self, job: _Job) -> Callable[[], None]:
        """Run a job inside the open transaction; a function that resolves its future, to be called after the commit."""
        self._connection.execute("SAVEPOINT job")
        try:
            value = job.function(self._connection)
        except Exception as error:
            if not self._connection.in_transaction:  # SQLite rolls back everything when the disk fails
                raise
            self._connection.execute("ROLLBACK TO job; RELEASE job")
            return partial(job.future.set_exception, self._translated(error))
        self._connection.execute("RELEASE job")
        return partial(job.future.set_result, value)

    def _translated(self, error: Exception) -> Exception:
        if not isinstance(error, apsw.Error):
            return error
        translated = failure(self.name, error)
        translated.__cause__ = error
        return translated

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            with contextlib.suppress(apsw.Error):  # the disk failed; the transaction has ended anyway
                self._connection.execute("ROLLBACK")


def begin(connection: apsw.Connection) -> None:
    """Start a writing transaction. Raises: `apsw.BusyError` when other processes lock the file for `LOCKED_S`."""
    gives_up_at = time.monotonic() + LOCKED_S
    while True:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except apsw.BusyError:  # after the connection's own timeout
            if time.monotonic() >= gives_up_at:
                raise
        else:
            return
