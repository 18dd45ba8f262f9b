"""Notices that an engine thread gets nothing done while work waits for it, and says so.

    engine thread ── beat, begin ──▶ Pulse ◀── looks, a few times a second ── watchdog ──▶ stalled / going again

What counts is *progress*: a decode that computed something, a job that started for the first time, a job that ended.
Single operations do not: the thread can save and load conversations in turn for ever, each of which ends, and answer
nobody. A decode may take long on a large model, so it is allowed a multiple of what its tokens took before, and the
first one, which reads the model from disk, far more.

Time is counted in the watchdog's own steps: a program that was stopped, or a machine that slept, has not stalled.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType

STALL_S = 60.0
"""Without progress, until a cache counts as stalled. Far above any decode of a model that fits the machine."""
FIRST_DECODE = 10.0
"""Times as long for what has no measured pace: the first decodes, which bring the weights into memory, and saving."""
SLACK = 20.0
"""Times as long as a decode of so many tokens takes at the measured pace, where that is more."""
STEP_S = 0.25
"""Between two looks."""


class Heartbeat:
    """What the engine thread has got done. Written by that thread alone; any thread may read."""

    __slots__ = ("doing", "expected_s", "n_beats")

    def __init__(self) -> None:
        self.n_beats = 0
        """Times that there was progress."""
        self.doing = "waiting for requests"
        """For a person: the operation under way. Numbers only, never what a request says."""
        self.expected_s: float | None = 0.0
        """What the operation takes at the measured pace; None = there is no measure."""

    def begin(self, doing: str, expected_s: float | None = 0.0) -> None:
        """An operation begins."""
        self.doing, self.expected_s = doing, expected_s

    def beat(self) -> None:
        """There was progress."""
        self.n_beats += 1

    def allowed_s(self, stall_s: float) -> float:
        """How long it may go without progress now."""
        return stall_s * FIRST_DECODE if self.expected_s is None else max(stall_s, SLACK * self.expected_s)


class Watchdog:
    """A thread that looks at one pulse while there is work."""

    def __init__(
        self,
        heartbeat: Heartbeat,
        *,
        name: str,
        stall_s: float,
        has_work: Callable[[], bool],
        on_stall: Callable[[float], None],
        on_recovery: Callable[[float], None],
    ) -> None:
        """`has_work`, `on_stall` and `on_recovery` (seconds without progress) are called on the watchdog's thread."""
        self.quiet_s = 0.0
        """How long work has waited without progress; 0 while none waits."""
        self.is_stalled = False
        self._heartbeat = heartbeat
        self._stall_s = stall_s
        self._has_work = has_work
        self._on_stall = on_stall
        self._on_recovery = on_recovery
        self._work = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name=f"watchdog-{name}", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """There is work. Any thread."""
        self._work.set()

    def close(self) -> None:
        self._stop.set()
        self._work.set()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            self._work.wait()
            self._work.clear()
            if self._stop.is_set():
                return
            self._look_on()
            self.quiet_s = 0.0

    def _look_on(self) -> None:
        """While there is work, and until a stalled thread gets on again."""
        step_s = min(STEP_S, self._stall_s / 4)
        seen = self._heartbeat.n_beats
        while (self._has_work() or self.is_stalled) and not self._stop.wait(step_s):
            if self._heartbeat.n_beats != seen:
                seen, quiet_s, self.quiet_s = self._heartbeat.n_beats, self.quiet_s, 0.0
                if self.is_stalled:
                    self.is_stalled = False
                    self._on_recovery(quiet_s)
                continue
            self.quiet_s += step_s
            if not self.is_stalled and self.quiet_s >= self._heartbeat.allowed_s(self._stall_s):
                self.is_stalled = True
                self._on_stall(self.quiet_s)


def call_stack(thread: threading.Thread) -> str:
    """The functions that a thread is in, outermost first, as `file:line function`; no values, no text."""
    frame: FrameType | None = sys._current_frames().get(thread.ident or 0)
    calls = []
    while frame is not None:
        code = frame.f_code
        calls.append(f"{Path(code.co_filename).name}:{frame.f_lineno} {code.co_name}")
        frame = frame.f_back
    return " > ".join(reversed(calls)) or "nowhere"
