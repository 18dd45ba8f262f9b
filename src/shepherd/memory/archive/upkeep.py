"""Upkeep between two commits: the log is merged into the file, and text is pruned when the file is near its limit.

    commit ─▶ above the limit? ─▶ prune by as much as it grew ─▶ acknowledge
           ─▶ a long log? ─▶ checkpoint ─▶ near the limit? ─▶ one step of pruning ─▶ again, or sleep

The second line runs in small steps while the queue is empty. A waiting job waits for a step only when the log or the
file is above its limit. On the writer's thread.
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import apsw

from shepherd.core.dataclasses import dataclass
from shepherd.memory.archive import retention
from shepherd.memory.schema import BUSY_MS, pragma_int
from shepherd.memory.writer import begin

QUIET_S = 0.1
"""Pruning waits so long after a commit, in case another one follows; not above the limit itself."""
SETTLE_S = 0.02
"""The longest that a commit waits for pruning, if the file was above its limit when it was opened."""
RETRY_S = 1.0
"""Between two attempts to empty a log that a reader keeps."""
FRAME_BYTES = 4096 + 24
"""The size of a page in the log."""
PATIENCE = 4
"""Times the normal length of the log, from which on a waiting job waits for a checkpoint."""


@dataclass(frozen=True, slots=True)
class Pruned:
    n_messages: int = 0
    """0 = nothing more can be pruned."""
    freed_bytes: int = 0


@dataclass(slots=True)
class Upkeep:
    path: Path
    limit_bytes: int
    must_empty_log: bool = False
    """Forgotten text is still in it."""
    _size: int = 0
    """Of the file, when it was last measured."""
    _n_logged: int = 0
    """Pages in the log that may be missing in the file."""
    _has_grown: bool = True
    """Since there was last nothing to prune."""
    _spent_at: int = 0
    """The size at which there was last nothing to prune. The next attempt waits until the file has grown well."""
    _busy_at: float = 0.0
    """The time of the last commit, by the monotonic clock."""

    @property
    def log_pages(self) -> int:
        return retention.log_pages(self.limit_bytes)

    def attach(self, connection: apsw.Connection) -> None:
        """Take over checkpoints from SQLite, which would run them inside of a commit."""
        connection.set_wal_hook(self._logged)
        limit = self.log_pages * pragma_int(connection, "page_size")
        connection.execute(f"PRAGMA journal_size_limit = {limit}").fetchall()
        self._size = self._weight(connection)

    def _logged(self, _connection: apsw.Connection, _schema: str, n_pages: int) -> int:
        self._n_logged, self._has_grown, self._busy_at = n_pages, True, time.monotonic()
        return apsw.SQLITE_OK

    def settle(self, connection: apsw.Connection) -> None:
        """After a commit, before its futures resolve: above the limit, prune as much as the file has grown.

        So a full file does not grow, however fast it is written. A file that was too large when it was opened does not
        block the first commit until it is small enough.
        """
        if self._size + 2 * self._n_logged * FRAME_BYTES <= self.limit_bytes:  # each page is in the log and in the file
            return
        self._empty_log(connection)
        size = self._weight(connection)
        stop_at = time.monotonic() + (SETTLE_S if self._size > self.limit_bytes else BUSY_MS / 1000)
        while size > max(self.limit_bytes, self._size) and time.monotonic() < stop_at:
            if not self.step(connection, self.limit_bytes).n_messages:
                break
            size = self._weight(connection)
        if self.path.stat().st_size > self.limit_bytes:  # return its free pages to the disk
            connection.execute("PRAGMA incremental_vacuum").fetchall()
            self._empty_log(connection)
        self._size, self._busy_at = size, time.monotonic()

    def __call__(self, connection: apsw.Connection, has_waiting: bool) -> float | None:
        """One small step; after how many seconds the next one is due (None = after the next commit)."""
        if self._n_logged >= self.log_pages * (PATIENCE if has_waiting else 1):
            # The log keeps its length on disk: overwriting it is cheaper than growing it.
            with contextlib.suppress(apsw.BusyError):  # another process runs one
                connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            self._n_logged = 0
        if self.must_empty_log and not has_waiting:
            self._empty_log(connection)
        if not self._has_grown:
            return RETRY_S if self.must_empty_log else None
        if has_waiting:
            return None  # `settle` has done the urgent part
        self._size = size = self._weight(connection)
        is_over = size > self.limit_bytes
        if not is_over and (quiet_s := time.monotonic() - self._busy_at) < QUIET_S:
            return QUIET_S - quiet_s
        if is_over or size > self._spent_at + self.limit_bytes // 50:
            if self.step(connection, self.limit_bytes).n_messages:
                return 0.0
            self._spent_at = size
        self._has_grown = False
        return None

    def step(self, connection: apsw.Connection, limit_bytes: int) -> Pruned:
        """Prune a little, if the file is near a limit; outside of any transaction."""
        size, busy_at = retention.weight_bytes(connection, self.path, limit_bytes), self._busy_at
        if not retention.is_due(size, limit_bytes):
            return Pruned()
        self._empty_log(connection)  # it counts, and may hold old states of the same pages
        begin(connection)
        n_messages = retention.step(connection, self.path, limit_bytes)
        connection.execute("COMMIT")
        self._empty_log(connection)  # or pruning itself would take space
        self._busy_at = busy_at
        return Pruned(n_messages, max(0, size - retention.weight_bytes(connection, self.path, limit_bytes)))

    def _weight(self, connection: apsw.Connection) -> int:
        return retention.weight_bytes(connection, self.path, self.limit_bytes)

    def _empty_log(self, connection: apsw.Connection) -> None:
        """Merge the log into the file and truncate it; not while a reader keeps an old state."""
        connection.set_busy_timeout(0)
        with contextlib.suppress(apsw.BusyError):
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            self.must_empty_log, self._n_logged = False, 0
        connection.set_busy_timeout(BUSY_MS)
