"""Tokens and times of the answers: one turn folded from its events, and the sum over a conversation."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

from shepherd.agent.turn import CallReturned, TurnEvent
from shepherd.cli.text import bar, format_count, format_rate
from shepherd.core import (
    CallDelta,
    CallEnded,
    CallStarted,
    Evicted,
    Finished,
    Progress,
    ReasoningDelta,
    Started,
    StopReason,
    TextDelta,
    Usage,
)
from shepherd.core.dataclasses import dataclass, replace

PART = " · "
"""Between the parts of the line below an answer."""
_BARS = "▁▂▃▄▅▆▇█"
_PLAIN_BARS = "_.-=+*%#"


@dataclass(frozen=True, slots=True)
class AnswerStats:
    usage: Usage
    seconds: float
    """From the first token to the last; 0.0 where that is not known."""

    @property
    def tokens_per_s(self) -> float:
        return (self.usage.output - 1) / self.seconds if self.usage.output > 1 and self.seconds > 0 else 0.0


class TurnStats:
    """Counts and times of one turn: its answers, and the calls between them. A stopped answer counts one token for each
    piece that arrived."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self.answers: list[AnswerStats] = []
        """Those that have ended."""
        self.reason: StopReason | None = None
        """Why the last complete answer ended; None before the first."""
        self.first_s: float | None = None
        """Seconds until the first piece of the turn."""
        self.n_calls = self.n_rounds = 0
        """Calls of the model, and answers that hold calls."""
        self.n_results = self.n_failed = 0
        self.n_evictions = self.n_evicted = 0
        """Evictions, and their tokens."""
        self._open: Usage | None = None
        """Of the answer that has started and not ended."""
        self._answer_began = self._began
        """When the prompt of this answer was read, as far as is known."""
        self._answer_first: float | None = None
        """When the first piece of this answer came."""
        self._n_pieces = 0
        self._has_calls = False
        self._n_evicted_now = 0
        """Tokens evicted during this answer; the count of its prompt excludes earlier ones."""

    def feed(self, event: TurnEvent) -> None:
        match event:
            case Started(usage=usage):
                self._open = usage
                self._answer_began, self._answer_first = self._clock(), None
                self._n_pieces, self._has_calls, self._n_evicted_now = 0, False, 0
            case Progress():
                self._answer_began = self._clock()
            case TextDelta() | ReasoningDelta() | CallStarted() | CallDelta():
                now = self._clock()
                self._answer_first = now if self._answer_first is None else self._answer_first
                self.first_s = now - self._began if self.first_s is None else self.first_s
                self._n_pieces += 1
            case CallEnded():
                self.n_calls += 1
                self.n_rounds += not self._has_calls
                self._has_calls = True
            case CallReturned(result=result):
                self.n_results += 1
                self.n_failed += result.is_error
            case Evicted(tokens=n_tokens):
                self.n_evictions += 1
                self.n_evicted += n_tokens
                self._n_evicted_now += n_tokens if self._answer_first is not None else 0
            case Finished(reason=reason, usage=usage):
                self.reason = reason
                self._settle(usage)
            case _:
                pass

    def end(self) -> None:
        """The turn is over; an answer that is still open was stopped."""
        if self._open is not None:
            self._settle(replace(self._open, output=self._n_pieces))

    def _settle(self, usage: Usage) -> None:
        self._open = None
        seconds = 0.0
        if self._answer_first is not None and usage.output > 1:
            # Calls are held back until they are complete: their first piece comes when most tokens exist.
            is_late = self._n_pieces < usage.output / 2
            seconds = self._clock() - (self._answer_began if is_late else self._answer_first)
        self.answers.append(AnswerStats(usage, seconds))

    @property
    def usage(self) -> Usage:
        return sum((each.usage for each in self.answers), Usage())

    @property
    def seconds(self) -> float:
        """The time in which tokens came; prompts and tools do not count."""
        return sum(each.seconds for each in self.answers)

    @property
    def n_held(self) -> int | None:
        """Tokens in the context at its end; None when no answer has begun."""
        return self.answers[-1].usage.total - self._n_evicted_now if self.answers else None

    def line(self, n_ctx: int, max_rounds: int | None = None) -> str:
        """Speed, cache, context and calls of the turn; empty when no answer of it finished. `n_ctx`: 0 = not known."""
        if self.reason is None:
            return ""
        usage = self.usage
        parts = [f"{usage.output} tokens"]
        if self.seconds > 0:
            n_timed = sum(each.usage.output - 1 for each in self.answers if each.seconds > 0)
            parts.append(f"{format_rate(n_timed / self.seconds)} tokens/s")
        if self.first_s is not None:
            parts.append(f"first {self.first_s:.2f} s")
        # The first prompt alone: this turn itself computed what later prompts find in the cache.
        n_cached = self.answers[0].usage.cache_read
        parts.append(f"{usage.prompt - usage.cache_read} new + {n_cached} cached")
        n_held = self.n_held or 0
        parts.append(f"{bar(n_held, n_ctx, 8)} {n_held}/{n_ctx}" if n_ctx else f"{n_held} in the context")
        if self.n_calls:
            of = format_count(self.n_rounds, "round")
            if max_rounds is not None:
                of = f"{self.n_rounds} of {format_count(max_rounds, 'round')}"
            parts.append(f"{format_count(self.n_calls, 'call')} in {of}")
        if self.reason == "length":
            parts.append("cut off by the limit")
        return PART.join(parts)


def stat_rows(turns: Sequence[TurnStats], *, width: int = 80, plain: bool = False) -> Iterator[tuple[str, str]]:
    """Names and values of the sums over the `turns` of a conversation, for a person."""
    answers = [answer for turn in turns for answer in turn.answers]
    n_hits = sum(answer.usage.cache_read > 0 for answer in answers)
    usage = sum((turn.usage for turn in turns), Usage())
    seconds = sum(turn.seconds for turn in turns)
    speeds = [answer.tokens_per_s for answer in answers if answer.tokens_per_s][-max(8, width - 40) :]
    share = usage.cache_read / usage.prompt if usage.prompt else 0.0
    rate = usage.output / seconds if seconds > 0 else 0.0
    yield "Turns", f"{len(turns)}, {format_count(len(answers), 'round')}"
    yield "Tokens in", f"{usage.prompt:,}, of them {usage.cache_read:,} from the cache ({share:.0%})"
    yield "Tokens out", f"{usage.output:,}, of them {usage.reasoning:,} of thoughts"
    yield "Prefix hits", f"{n_hits} of {format_count(len(answers), 'prompt')}"
    yield "Calls", f"{sum(turn.n_results for turn in turns)}, {sum(turn.n_failed for turn in turns)} failed"
    n_evictions, n_evicted = sum(turn.n_evictions for turn in turns), sum(turn.n_evicted for turn in turns)
    yield "Evictions", f"{n_evictions}, {n_evicted:,} tokens"
    yield "Tokens/s", f"{rate:.1f}  {sparkline(speeds, plain=plain)}".rstrip()


def sparkline(values: Sequence[float], *, plain: bool = False) -> str:
    """One sign for each value, its height relative to the largest."""
    signs = _PLAIN_BARS if plain else _BARS
    most = max(values, default=0.0)
    if most <= 0:
        return signs[0] * len(values)
    return "".join(signs[round((len(signs) - 1) * max(0.0, value) / most)] for value in values)
