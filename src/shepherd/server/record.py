"""The one line that the log has for each request that generates: what it cost and how it ended, never what was said."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field, fields

from shepherd.core import CallDelta, CallStarted, Event, Evicted, Finished, ReasoningDelta, Started, TextDelta, Usage

logger = logging.getLogger("shepherd.server")

_FREQUENT = frozenset((TextDelta, ReasoningDelta, CallDelta))


@dataclass(slots=True)
class Record:
    """The facts of one request, gathered while it runs."""

    id: str
    surface: str
    model: str = ""
    """As the client named it."""
    backend: str = "-"
    status: int = 0
    """0 = nothing was sent."""
    reason: str = "-"
    """The stop reason, or why there is none."""
    n_choices: int = 1
    evicted: int = 0
    """Messages that have left the context for this answer."""
    n_finished: int = 0
    """Choices whose `Finished` has come."""
    complete: bool = False
    """The last byte is on its way."""
    client_gone: bool = False
    begun_s: float = field(default_factory=time.perf_counter)
    first_s: float | None = None
    """When the first visible thing came."""
    usages: dict[int, Usage] = field(default_factory=dict)
    """By choice, from its first event on."""

    @property
    def started(self) -> bool:
        """The first event has come."""
        return bool(self.usages)

    @property
    def finished(self) -> bool:
        """Nothing more comes."""
        return self.n_finished == self.n_choices

    @property
    def usage(self) -> Usage:
        """Of all choices together."""
        told = self.usages.values()
        return Usage(*(sum(getattr(usage, each.name) for usage in told) for each in fields(Usage)))

    def see(self, event: Event, choice: int = 0) -> None:
        """Take note of `event`. Once per token: the frequent case comes first and is cheap."""
        if self.first_s is not None and type(event) in _FREQUENT:
            return
        match event:
            case TextDelta() | ReasoningDelta() | CallStarted():
                self.first_s = self.first_s or time.perf_counter()
            case Evicted():
                self.evicted += event.messages
            case Started():
                self.backend = event.origin or event.model
                self.usages[choice] = event.usage
            case Finished():
                self.usages[choice] = event.usage
                self.reason = event.reason
                self.n_finished += 1
            case _:
                pass

    def write(self) -> None:
        """Write the line."""
        now, usage = time.perf_counter(), self.usage
        first_ms = "-" if self.first_s is None else f"{(self.first_s - self.begun_s) * 1e3:.1f}"
        # The first token's time is prefill; the rate is that of the others.
        seconds = 0.0 if self.first_s is None else now - self.first_s
        rate = f"{(usage.output - 1) / seconds:.1f}" if usage.output > 1 and seconds > 0 else "-"
        logger.info(
            "%s %s model=%s backend=%s in=%d cached=%d out=%d evicted=%d first_ms=%s tokens_per_s=%s status=%d stop=%s",
            self.id, self.surface, _shown(self.model), _shown(self.backend), usage.prompt, usage.cache_read,
            usage.output, self.evicted, first_ms, rate, self.status, self.reason,
        )  # fmt: skip


def _shown(name: str, limit: int = 80) -> str:
    """A name from outside: one word of the line, whatever is in it."""
    return "".join(char if char.isprintable() and char != " " else "?" for char in name[:limit]) or "-"
