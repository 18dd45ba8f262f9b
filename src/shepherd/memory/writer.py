"""The one thread that writes a memory: jobs in, one durable commit for all that wait together, answers out.

    submit ─▶ queue ─▶ BEGIN IMMEDIATE · job · job · job · COMMIT, synced to the disk ─▶ futures resolve
                            └─ between two commits, and sooner when nobody waits: `rest`, a small step of upkeep

An answer is an acknowledgement: what it speaks of is on the disk. A job that fails takes nothing with it but its own
future. A commit that fails acknowledges nothing, and its jobs are tried once more, each alone, so that one that is too
large for the disk does not fail the others; the next one works again as soon as the disk does.

Not here: what is written (`memory/archive/history.py` and its neighbours), and what upkeep is (`store.py`).
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

import apsw

from shepherd.core import MemoryFailure
from shepherd.memory.failure import failure

logger = logging.getLogger(__name__)
T = TypeVar("T")

GROUP = 128
"""Jobs that share a commit: more would not make it cheaper."""
GROUP_S = 0.05
"""No job is added to a group that has worked so long: the first one waits for the last."""
LOCKED_S = 60.0
"""How long other processes may keep the file before a job fails."""


@dataclass(frozen=True, slots=True)
class _Work:
    job: Callable[[apsw.Connection], Any]
    future: Future[Any]
    is_bare: bool
    """It wants no transaction."""


class Writer:
    """Owns `connection`, which no other thread may touch from now on.

    `rest` is called on the thread when nobody waits, and between two commits when somebody does; it is told which. It
    says after how many seconds it wants to be called again (None = after the next commit). It finds no open transaction
    and must be short: jobs wait for it. `settle` is called after each commit, before that is acknowledged.
    """

    def __init__(
        self,
        connection: apsw.Connection,
        *,
        name: str,
        rest: Callable[[apsw.Connection, bool], float | None] = lambda _connection, _waited: None,
        settle: Callable[[apsw.Connection], None] = lambda _connection: None,
    ) -> None:
        self.name = name
        self._connection = connection
        self._rest, self._settle = rest, settle
        self._queue: SimpleQueue[_Work | None] = SimpleQueue()
        self._held: _Work | None = None  # taken, and to be done next
        self._lock = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=f"memory {name}", daemon=True)
        self._thread.start()

    def submit(self, job: Callable[[apsw.Connection], T], *, is_bare: bool = False) -> Future[T]:
        """The answer of `job`, once it is on the disk. From any thread.

        `job` runs on the writer's thread inside a transaction, and again from the start if the commit of its group
        fails: it must leave nothing behind but what it writes. Raises: `MemoryFailure` when closed; the future raises
        it for whatever SQLite refuses. `is_bare`: outside of any transaction, once, for what cannot be done in one.
        """
        future: Future[T] = Future()
        with self._lock:  # nothing comes behind the end of the queue
            if self._closed:
                raise MemoryFailure(f"the memory {self.name} is closed")
            self._queue.put(_Work(job, future, is_bare))
        return future

    def close(self) -> None:
        """Do what waits, then end: the connection is closed, and its log is back in the file. Twice is allowed."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._queue.put(None)
        if threading.current_thread() is not self._thread:  # the collector of garbage may call from there
            self._thread.join()

    def _run(self) -> None:
        rests_after_s: float | None = 0.0
        while True:
            try:
                work = self._take(rests_after_s)
            except Empty:
                rests_after_s = self._upkeep(partial(self._rest, self._connection, False))
                continue
            if work is None:
                break
            self._bare(work) if work.is_bare else self._group(work)
            rests_after_s = 0.0
            if not self._queue.empty():
                self._upkeep(partial(self._rest, self._connection, True))
        self._connection.close()  # the last one of a file brings its log home

    def _take(self, timeout_s: float | None = 0.0) -> _Work | None:
        """The next job that nobody has called off; None when it is time to end. Raises: `Empty` after `timeout_s`."""
        if held := self._held:
            self._held = None
            return held
        while (work := self._queue.get(timeout_s != 0, timeout_s)) and not work.future.set_running_or_notify_cancel():
            pass
        return work

    def _waiting(self) -> _Work | None:
        """The next job, if one waits that wants a transaction."""
        try:
            work = self._take()
        except Empty:
            return None
        if work is None:
            self._queue.put(None)  # the end is for `_run`, and nothing can have come behind it
        elif work.is_bare:
            self._held = work
            return None
        return work

    def _upkeep(self, step: Callable[[], T]) -> T | None:
        try:
            return step()
        except Exception as error:  # a wall: nobody waits for this; if it is the disk, the next job will say so
            logger.warning("upkeep of the memory %s: %s", self.name, error)
            self._roll_back()
            return None

    def _group(self, first: _Work, *, alone: bool = False) -> None:
        """One transaction for `first` and, unless it shall be `alone`, for what waits behind it."""
        stop_at = time.monotonic() + GROUP_S
        works, answers = [first], list[Callable[[], None]]()
        try:
            begin(self._connection)
            answers.append(self._one(first))
            while not alone and len(works) < GROUP and time.monotonic() < stop_at and (work := self._waiting()):
                works.append(work)
                answers.append(self._one(work))
            self._connection.execute("COMMIT")
        except Exception as error:  # a wall: those who wait are told, and the thread goes on
            self._roll_back()
            answers = [partial(first.future.set_exception, self._told(error))] if len(works) == 1 else []
        else:
            self._upkeep(partial(self._settle, self._connection))
        for answer in answers:
            answer()
        for work in works if not answers else ():
            self._group(work, alone=True)

    def _bare(self, work: _Work) -> None:
        try:
            value = work.job(self._connection)
        except Exception as error:  # a wall, as above
            self._roll_back()
            work.future.set_exception(self._told(error))
        else:
            work.future.set_result(value)

    def _one(self, work: _Work) -> Callable[[], None]:
        """Run a job inside the open transaction; what is to be told once that is on the disk."""
        self._connection.execute("SAVEPOINT job")
        try:
            value = work.job(self._connection)
        except Exception as error:
            if not self._connection.in_transaction:  # SQLite gives up all of it when the disk fails or is full
                raise
            self._connection.execute("ROLLBACK TO job; RELEASE job")
            return partial(work.future.set_exception, self._told(error))
        self._connection.execute("RELEASE job")
        return partial(work.future.set_result, value)

    def _told(self, error: Exception) -> Exception:
        if not isinstance(error, apsw.Error):
            return error
        told = failure(self.name, error)
        told.__cause__ = error
        return told

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            with contextlib.suppress(apsw.Error):  # of a disk that failed; the transaction is over all the same
                self._connection.execute("ROLLBACK")


def begin(connection: apsw.Connection) -> None:
    """Start a transaction that may write. Raises: `apsw.BusyError` when others keep the file for `LOCKED_S`."""
    gives_up = time.monotonic() + LOCKED_S
    while True:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except apsw.BusyError:  # after the connection's own patience
            if time.monotonic() >= gives_up:
                raise
        else:
            return
