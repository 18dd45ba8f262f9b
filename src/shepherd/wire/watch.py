"""How long the parts of an answer took, for protocols that report it: one clock, no I/O.

    began ─ waits ─ started ─ reads the prompt ─ first ─ generates ─ ended

Times are nanoseconds of a monotonic clock. The encoder of a stream notes them as it encodes; for a whole answer the
server calls `note_time` for each event.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from shepherd.core import Event, Evicted, Finished, Progress, Started, Traced, Usage
from shepherd.wire.base import Json

Clock = Callable[[], int]
"""Nanoseconds since some moment."""


class Watch:
    """The times of one answer; of several choices, those of the first to start and of the last to end."""

    def __init__(self, began: int | None = None, clock: Clock = time.perf_counter_ns) -> None:
        """`began`: when the body was read."""
        self._clock = clock
        self.began = clock() if began is None else began
        self.started = self.first = self.ended = 0
        self.has_text = False
        """The answer has begun; later events change nothing but the end."""
        self._has_progress = False
        self._usage = Usage()
        self._n_done = 0

    def note_time(self, event: Event) -> None:
        match event:
            case Started():
                self.started = self.started or self._clock()
                self._usage = event.usage
            case Finished():
                self.ended = self._clock()
            case Progress():
                self._has_progress = True
            case Evicted() | Traced():
                pass
            case _ if not self.has_text:
                self.first = self._clock()
                self.has_text = True

    def timings(self, usage: Usage) -> Json:
        """llama-server's `timings`. What was not measured is 0; a prompt of one batch includes its wait."""
        first = self.first or self.ended
        # The engine reports the start of a prompt of one batch together with its end.
        read_from = self.started if self._has_progress else self.began
        return {
            "cache_n": usage.cache_read,
            **_speed("prompt", usage.prompt - usage.cache_read, first - read_from if self.started else 0),
            **_speed("predicted", usage.output, self.ended - first),
        }

    def progress(self, event: Event) -> Json | None:
        """llama-server's `prompt_progress` after an event, where there is more to report than before it."""
        total, cached = self._usage.prompt, self._usage.cache_read
        match event:
            case Started():
                done = 0
            case Progress():
                done = event.done
            case Evicted() | Traced():
                return None
            case _ if cached + self._n_done < total:  # a prompt of one batch reports nothing on its way
                done = total - cached
            case _:
                return None
        self._n_done = done
        ms = (self._clock() - self.started) / 1e6
        return {"total": total, "cache": cached, "processed": cached + done, "time_ms": round(ms)}


def _speed(name: str, n: int, ns: int) -> Json:
    return {
        f"{name}_n": n,
        f"{name}_ms": ns / 1e6,
        f"{name}_per_token_ms": ns / 1e6 / n if n else 0.0,
        f"{name}_per_second": n * 1e9 / ns if ns else 0.0,
    }
