"""A thread for calls of the library outside an engine: vectors, scores, and what a projector reads and encodes.

    callers ── call, submit ──▶ mailbox ──▶ thread ── the library      a watchdog ends what waits if it hangs

Not here: what is computed (`pooled.py`, `projector.py`).
"""

from __future__ import annotations

import itertools
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, InvalidStateError
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, TypeVar

from shepherd.core import EngineDown
from shepherd.engine.prefill import SMALLEST, SpeedEstimate
from shepherd.engine.stats import CacheStats
from shepherd.engine.watchdog import CLOSE_S, FIRST_DECODE, SLACK, STEP_S, Heartbeat, Watchdog, call_stack

logger = logging.getLogger(__name__)

T = TypeVar("T")


class WatchedThread:
    """Computes what callers wait for, in the order in which they ask, urgent things first. If a call of the
    library does not return, all callers and all later ones get `EngineDown` until it does."""

    def __init__(self, name: str, stall_s: float) -> None:
        self.down: str | None = None
        self._stats = CacheStats(0)
        self.heartbeat = Heartbeat()
        self.speed = SpeedEstimate()
        self._name, self._stall_s = name, stall_s
        self._lock = threading.Lock()  # guards `down` against further calls
        self._open: set[Future[Any]] = set()
        self._mailbox: queue.PriorityQueue[tuple[int, int, Callable[[], Any], Future[Any] | None]] = (
            queue.PriorityQueue()
        )
        self._numbers = itertools.count()
        self._thread = threading.Thread(target=self._run, name=f"engine-{name}", daemon=True)
        self._thread.start()
        self._watchdog = Watchdog(
            self.heartbeat, name=name, stall_s=stall_s, has_work=lambda: bool(self._open), on_stall=self._stall,
            on_recovery=self._recover,
        )  # fmt: skip

    def call(self, work: Callable[[], T], *, is_urgent: bool = False) -> T:
        """What `work` returns; urgent: it is computed next. Raises: what it raises; `EngineDown`."""
        return self.submit(work, is_urgent=is_urgent).result()

    def submit(self, work: Callable[[], T], *, is_urgent: bool = False) -> Future[T]:
        """As `call`, without waiting. Raises: `EngineDown`."""
        done: Future[T] = Future()
        done.add_done_callback(self._open.discard)
        with self._lock:
            if self.down is not None:
                raise EngineDown(self.down)
            self._open.add(done)
            self._mailbox.put((0 if is_urgent else 1, next(self._numbers), work, done))
        self._watchdog.wake()
        return done

    @contextmanager
    def computing(self, doing: str, n_tokens: int, n_texts: int, *, first_s: float = 0.0) -> Iterator[None]:
        """Around a call of the library, on the thread. What it may take follows the speed of those before it; the first
        one may take `first_s`, if that is longer than what a heartbeat allows it."""
        expected_s = self.speed.expected_s(n_tokens)
        if expected_s is None and first_s > FIRST_DECODE * self._stall_s:
            expected_s = first_s / SLACK
        self.heartbeat.begin(doing, expected_s)
        began_s = time.perf_counter()
        yield
        seconds, stats = time.perf_counter() - began_s, self._stats
        self.speed.observe(seconds, n_prompt=max(n_tokens, SMALLEST), n_running=0)
        stats.prefill_s, stats.prefilled_tokens = stats.prefill_s + seconds, stats.prefilled_tokens + n_tokens
        stats.decodes, stats.decoded_chunks = stats.decodes + 1, stats.decoded_chunks + n_texts
        self.heartbeat.beat()

    def stats(self) -> CacheStats:
        """What it has computed, as of a cache without cells. Any thread."""
        return replace(self._stats, quiet_s=self._watchdog.quiet_s)

    def close(self) -> bool:
        """End behind what was asked; False: it is stuck, and left. Twice is allowed."""
        self._mailbox.put((2, next(self._numbers), lambda: None, None))
        quiet_s, seen = self._watchdog.quiet_s, self.heartbeat.n_beats  # the watchdog looks no more the second time
        while self._thread.is_alive() and quiet_s < self.heartbeat.allowed_s(CLOSE_S):
            self._thread.join(STEP_S)
            quiet_s, seen = (quiet_s + STEP_S if self.heartbeat.n_beats == seen else 0.0), self.heartbeat.n_beats
        self._watchdog.close()
        self._refuse(f"{self._name} has been closed")
        return not self._thread.is_alive()

    def _run(self) -> None:
        while True:
            _, _, work, done = self._mailbox.get()
            if done is None:
                return
            self.heartbeat.begin("beginning", None)  # what it imports, too, may take long
            with suppress(InvalidStateError):  # it has been refused meanwhile
                try:
                    if not done.done():
                        done.set_result(work())
                except Exception as error:
                    done.set_exception(error)
            self.heartbeat.beat()

    def _stall(self, quiet_s: float) -> None:
        reason = f"the engine of {self._name} has made no progress for {quiet_s:.0f} s ({self.heartbeat.doing})"
        logger.error("%s; requests end with an error until it recovers. Stack: %s", reason, call_stack(self._thread))
        self._stats.stalls += 1
        self._refuse(reason)

    def _refuse(self, reason: str) -> None:
        with self._lock:
            self.down, refused = reason, self._open.copy()
        for done in refused:
            with suppress(InvalidStateError):
                done.set_exception(EngineDown(reason))

    def _recover(self, quiet_s: float) -> None:
        logger.warning("the engine of %s has recovered after %.0f s without progress", self._name, quiet_s)
        self.down = None
