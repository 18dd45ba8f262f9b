"""How long the parts of an answer took, for protocols that report it: one clock, no I/O.

    began ─ waits ─ started ─ reads the prompt ─ first ─ generates ─ ended

Times are nanoseconds of a monotonic clock. The encoder of a stream notes them as it encodes; for a whole answer the
server calls `note_time` for each event.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from shepherd.core import (
    CallDelta,
    Event,
    Evicted,
    Finished,
    Progress,
    ReasoningDelta,
    Started,
    TextDelta,
    Traced,
    Usage,
)
from shepherd.wire.base import Json

Clock = Callable[[], int]


class Watch:
    """The times of one answer; of several choices, those of the first to start and of the last to end."""

    def __init__(self, began: int | None = None, clock: Clock = time.perf_counter_ns) -> None:
        """`began`: when the body was read."""
        self._clock = clock
        self.began = clock() if began is None else began
        self.started = self.first = self.ended = 0
        self.has_text = False
        """The answer has begun; later events change nothing but the end."""
        self._usage = Usage()
        self._n_done = self._n_pieces = 0

    def note_time(self, event: Event) -> None:
        match event:
            case Started():
                self.started = self.started or event.at_ns or self._clock()
                self._usage = event.usage
            case Finished():
                self.ended = self._clock()
            case Progress() | Evicted() | Traced():
                pass
            case _ if not self.has_text:
                self.first = self._clock()
                self.has_text = True

    def timings(self, usage: Usage) -> Json:
        """llama-server's `timings` of the whole answer. What was not measured is 0; the wait is in none of them."""
        return self._timings(usage, self.ended)

    def timings_so_far(self, event: Event) -> Json | None:
        """`timings` up to this piece of the answer, None for other events. Pieces count as tokens, which most are."""
        if not isinstance(event, TextDelta | ReasoningDelta | CallDelta):
            return None
        self._n_pieces += 1
        return self._timings(replace(self._usage, output=self._n_pieces), self._clock())

    def _timings(self, usage: Usage, ended: int) -> Json:
        first = self.first or ended
        return {
            "cache_n": usage.cache_read,
            **_speed("prompt", usage.prompt - usage.cache_read, first - self.started if self.started else 0),
            # The first token comes out of the prompt's last decode, so `n` tokens take `n - 1` steps.
            **_speed("predicted", usage.output, ended - first, max(usage.output - 1, 0)),
            **({"draft_n": usage.drafted, "draft_n_accepted": usage.accepted} if usage.drafted else {}),
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

    def timings_of(self, progress: Json) -> Json:
        """`timings` while the prompt is read, by what `progress` has just returned."""
        n = progress["processed"] - progress["cache"]
        ns = self._clock() - self.started if n else 0
        return {"cache_n": progress["cache"], **_speed("prompt", n, ns), **_speed("predicted", 0, 0)}


def _speed(name: str, n: int, ns: int, n_steps: int | None = None) -> Json:
    n_steps = n if n_steps is None else n_steps
    return {
        f"{name}_n": n,
        f"{name}_ms": ns / 1e6,
        f"{name}_per_token_ms": ns / 1e6 / n_steps if n_steps else 0.0,
        f"{name}_per_second": n_steps * 1e9 / ns if ns else 0.0,
    }
