"""What is done between two commits: the log goes into the file, and room is made when there is too little.

    commit ─▶ above the limit? ─▶ prune by as much as it grew ─▶ acknowledge
           ─▶ a long log? ─▶ checkpoint ─▶ near the limit? ─▶ one step of pruning ─▶ again, or sleep

The second line is done in small steps when nobody waits for the writer; somebody who does waits for one only when the
log or the file is above its limit. On the writer's thread.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, field
from pathlib import Path

import apsw

from shepherd.memory.archive import retention
from shepherd.memory.archive.retention import Pruned
from shepherd.memory.schema import BUSY_MS
from shepherd.memory.writer import begin

QUIET_S = 0.1
"""Nothing is pruned so soon after a commit, unless the limit itself is passed: there may be another one."""
SETTLE_S = 0.02
"""So long somebody who writes waits, at most, for a file that was above its limit when it was opened."""
RETRY_S = 1.0
"""Between two attempts to empty a log that somebody reads."""
FRAME_BYTES = 4096 + 24
"""Of a page in the log."""
PATIENCE = 4
"""The log may be so many times as long before somebody waits for it."""


@dataclass(slots=True)
class Upkeep:
    """Of one file and its writer's connection."""

    path: Path
    limit_bytes: int
    log_pages: int = field(init=False)
    must_empty_log: bool = False
    """What was forgotten is still in it."""
    _size: int = 0
    """Of the file, when that was last looked at."""
    _n_logged: int = 0
    """Pages in the log that may not be in the file."""
    _has_grown: bool = True
    """Since there was last nothing to give up."""
    _spent_at: int = 0
    """The size at which there was last nothing to give up; it is not looked for again until it has grown well."""
    _busy_at: float = 0.0
    """When somebody last wrote, by the monotonic clock."""

    def __post_init__(self) -> None:
        self.log_pages = retention.log_pages(self.limit_bytes)

    def attach(self, connection: apsw.Connection) -> None:
        """Take over from SQLite, which would checkpoint inside of a commit that somebody waits for."""
        connection.set_wal_hook(self._logged)
        page_size = connection.pragma("page_size")
        assert isinstance(page_size, int)
        connection.execute(f"PRAGMA journal_size_limit = {self.log_pages * page_size}").fetchall()
        self._size = self._weight(connection)

    def _logged(self, _connection: apsw.Connection, _schema: str, n_pages: int) -> int:
        self._n_logged, self._has_grown, self._busy_at = n_pages, True, time.monotonic()
        return apsw.SQLITE_OK

    def settle(self, connection: apsw.Connection) -> None:
        """After a commit, before it is acknowledged: what has grown beyond the limit gives up as much as it grew by.

        So a file that is full stays as it is however fast it is written to, and one that was too large when it was
        opened does not keep the first who writes waiting until it is not.
        """
        if self._size + 2 * self._n_logged * FRAME_BYTES <= self.limit_bytes:  # they are in the log and in the file
            return
        self._empty_log(connection)
        size = self._weight(connection)
        stop_at = time.monotonic() + (SETTLE_S if self._size > self.limit_bytes else BUSY_MS / 1000)
        while size > max(self.limit_bytes, self._size) and time.monotonic() < stop_at:
            if not self.step(connection, self.limit_bytes).n_messages:
                break
            size = self._weight(connection)
        if self.path.stat().st_size > self.limit_bytes:  # the free pages in it are room, but not for others
            connection.execute("PRAGMA incremental_vacuum").fetchall()
            self._empty_log(connection)
        self._size, self._busy_at = size, time.monotonic()

    def __call__(self, connection: apsw.Connection, waited: bool) -> float | None:
        """One small step; after how many seconds there should be another (None = after the next commit)."""
        if self._n_logged >= self.log_pages * (PATIENCE if waited else 1):
            # The log keeps its length on the disk: to write over it is cheaper than to make it grow.
            with contextlib.suppress(apsw.BusyError):  # another process is at it
                connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            self._n_logged = 0
        if self.must_empty_log and not waited:
            self._empty_log(connection)
        if not self._has_grown:
            return RETRY_S if self.must_empty_log else None
        if waited:
            return None  # `settle` has done what cannot wait
        self._size = size = self._weight(connection)
        is_over = retention.is_over(size, self.limit_bytes)
        if not is_over and (quiet_s := time.monotonic() - self._busy_at) < QUIET_S:
            return QUIET_S - quiet_s
        if is_over or size > self._spent_at + self.limit_bytes // 50:
            if self.step(connection, self.limit_bytes).n_messages:
                return 0.0
            self._spent_at = size
        self._has_grown = False
        return None

    def step(self, connection: apsw.Connection, limit_bytes: int) -> Pruned:
        """Give up a little, if there is more than a limit allows; outside of any transaction."""
        size, busy_at = retention.weight_bytes(connection, self.path, limit_bytes), self._busy_at
        if not retention.is_due(size, limit_bytes):
            return Pruned()
        self._empty_log(connection)  # it counts, and what is in it may be old states of the same pages
        begin(connection)
        done = retention.step(connection, self.path, limit_bytes)
        connection.execute("COMMIT")
        self._empty_log(connection)  # or what makes room takes room
        self._busy_at = busy_at
        return Pruned(done.n_messages, max(0, size - retention.weight_bytes(connection, self.path, limit_bytes)))

    def _weight(self, connection: apsw.Connection) -> int:
        return retention.weight_bytes(connection, self.path, self.limit_bytes)

    def _empty_log(self, connection: apsw.Connection) -> None:
        """Bring the log into the file and cut it off; if somebody reads an old state, that is for the next time."""
        connection.set_busy_timeout(0)
        with contextlib.suppress(apsw.BusyError):
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            self.must_empty_log, self._n_logged = False, 0
        connection.set_busy_timeout(BUSY_MS)
