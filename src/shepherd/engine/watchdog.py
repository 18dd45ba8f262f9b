"""Detects that an engine thread makes no progress while work waits for it, and reports it.

    engine thread ── beat, begin ──▶ Heartbeat ◀── reads, four times a second ── watchdog ──▶ stalled / recovered

*Progress* is a decode that computed tokens, a job that started for the first time, or a job that ended. Single
operations do not count: a thread that saves and loads conversations in turn completes each operation and answers no
request. A decode may take long on a large model, so it is allowed a multiple of what its tokens took before; the first
decode, which reads the model from disk, is allowed far more.

Time is counted in the watchdog's own steps, so a stopped process or a sleeping machine does not count as stalled.
"""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from shepherd.core.dataclasses import dataclass

STALL_S = 60.0
"""Seconds without progress until a cache counts as stalled. Far above any decode of a model that fits the machine."""
FIRST_DECODE = 10.0
"""Factor on the limit for operations of unknown speed: saving, and the first decodes, which load the weights."""
SLACK = 20.0
"""Factor on the expected time of a decode, which is the limit if it is larger."""
STEP_S = 0.25
"""Seconds between two checks."""
CLOSE_S = 2.0
"""Seconds without progress until `close` abandons a thread that does not end; more if a decode is known to take it."""


@dataclass(slots=True)
class Heartbeat:
    """The progress of the engine thread, which alone writes it; any thread may read."""

    n_beats: int = 0
    """How often there was progress."""
    doing: str = "waiting for requests"
    """The current operation, for a person: numbers only, never text of a request."""
    expected_s: float | None = 0.0
    """Expected seconds of the operation at the measured speed; None = not measured yet."""

    def begin(self, doing: str, expected_s: float | None = 0.0) -> None:
        self.doing, self.expected_s = doing, expected_s

    def beat(self) -> None:
        self.n_beats += 1

    def allowed_s(self, stall_s: float) -> float:
        """Seconds that the current operation may take without progress."""
        return stall_s * FIRST_DECODE if self.expected_s is None else max(stall_s, SLACK * self.expected_s)


class Watchdog:
    """A thread that checks one heartbeat while there is work."""

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
        """Seconds that work has waited without progress; 0 if no work waits."""
        self.is_stalled = False
        self._heartbeat = heartbeat
        self._stall_s = stall_s
        self._has_work = has_work
        self._on_stall = on_stall
        self._on_recovery = on_recovery
        self._woken = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name=f"watchdog-{name}", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Begin to watch: there is work. Any thread."""
        self._woken.set()

    def close(self) -> None:
        self._stop.set()
        self._woken.set()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            self._woken.wait()
            self._woken.clear()
            if self._stop.is_set():
                return
            self._watch_work()
            self.quiet_s = 0.0

    def _watch_work(self) -> None:
        """Check the heartbeat while there is work, and until a stalled thread makes progress again."""
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
    """The call stack of a thread, outermost first, as `file:line function`; no values."""
    frame: FrameType | None = _current_frames().get(thread.ident or 0)
    calls = []
    while frame is not None:
        code = frame.f_code
        calls.append(f"{Path(code.co_filename).name}:{frame.f_lineno} {code.co_name}")
        frame = frame.f_back
    return " > ".join(reversed(calls)) or "nowhere"


_collector = threading.Lock()
"""Two that switch the collector off and on in turn would leave it on for one of them."""


def _current_frames() -> dict[int, FrameType]:
    """As the function of `sys`, which holds the list of all threads: in CPython before 3.11.9, collecting garbage with
    a `threading.local` meanwhile waits for that list, and the whole process stands still for ever (gh-106883)."""
    with _collector:
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            return sys._current_frames()
        finally:
            if was_enabled:
                gc.enable()
