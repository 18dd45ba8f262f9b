"""What the answers of one conversation have cost: counted event by event, shown by `/stats`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from shepherd.agent.turn import CallReturned, TurnEvent
from shepherd.core import CallDelta, CallStarted, Evicted, Finished, ReasoningDelta, Started, TextDelta, Usage

_BARS = "▁▂▃▄▅▆▇█"
_PLAIN_BARS = "_.-=+*%#"
MOST_ANSWERS = 200
"""Whose speeds are remembered: more than any terminal is wide."""


@dataclass(frozen=True, slots=True)
class Speed:
    """Of one answer."""

    tokens_per_s: float
    cached: float
    """The part of its prompt that came from the cache."""


class Figures:
    """Sums over a conversation; an answer that is stopped counts one token for each piece of it that came."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.n_turns = 0
        self.n_answers = 0
        """Rounds: a turn has one more with each time that results go back to the model."""
        self.n_hits = 0
        """Answers whose prompt was in the cache, the beginning of it at least."""
        self.n_calls = 0
        self.n_failed = 0
        self.n_evictions = 0
        self.n_evicted = 0
        """Tokens."""
        self.usage = Usage()
        self.seconds = 0.0
        """From the first token of an answer to its last."""
        self.speeds: list[Speed] = []
        self._open: Usage | None = None
        self._n_pieces = 0
        self._first = 0.0

    def begin(self) -> None:
        """A turn begins."""
        self.n_turns += 1
        self._open = None

    def feed(self, happening: TurnEvent) -> None:
        match happening:
            case Started(usage=usage):
                self.n_answers += 1
                self._open, self._first, self._n_pieces = usage, 0.0, 0
            case TextDelta() | ReasoningDelta() | CallStarted() | CallDelta():
                self._first = self._first or self._clock()
                self._n_pieces += 1
            case Finished(usage=usage):
                self._settle(usage)
            case CallReturned(result=result):
                self.n_calls += 1
                self.n_failed += result.is_error
            case Evicted(tokens=n_tokens):
                self.n_evictions += 1
                self.n_evicted += n_tokens
            case _:
                pass

    def end(self) -> None:
        """A turn is over, by itself or not."""
        if self._open is not None:
            self._settle(replace(self._open, output=self._n_pieces))

    def _settle(self, usage: Usage) -> None:
        self._open = None
        self.usage = self.usage + usage
        self.n_hits += usage.cache_read > 0
        seconds = self._clock() - self._first if self._first else 0.0
        self.seconds += seconds
        rate = (usage.output - 1) / seconds if usage.output > 1 and seconds > 0 else 0.0
        share = usage.cache_read / usage.prompt if usage.prompt else 0.0
        self.speeds = [*self.speeds, Speed(rate, share)][-MOST_ANSWERS:]

    def rows(self, *, width: int = 80, plain: bool = False) -> Iterator[tuple[str, str]]:
        """Names and values, for a person."""
        usage = self.usage
        share = usage.cache_read / usage.prompt if usage.prompt else 0.0
        rate = usage.output / self.seconds if self.seconds > 0 else 0.0
        yield "Turns", f"{self.n_turns}, {_n(self.n_answers, 'round')}"
        yield "Tokens in", f"{usage.prompt:,}, of them {usage.cache_read:,} from the cache ({share:.0%})"
        yield "Tokens out", f"{usage.output:,}, of them {usage.reasoning:,} of thoughts"
        yield "Prefix hits", f"{self.n_hits} of {_n(self.n_answers, 'prompt')}"
        yield "Calls", f"{self.n_calls}, {self.n_failed} failed"
        yield "Evictions", f"{self.n_evictions}, {self.n_evicted:,} tokens"
        speeds = [speed.tokens_per_s for speed in self.speeds if speed.tokens_per_s][-max(8, width - 40) :]
        yield "Tokens/s", f"{rate:.1f}  {sparkline(speeds, plain=plain)}".rstrip()


def sparkline(values: Sequence[float], *, plain: bool = False) -> str:
    """One column for each value, from nothing to the largest."""
    signs = _PLAIN_BARS if plain else _BARS
    most = max(values, default=0.0)
    if most <= 0:
        return signs[0] * len(values)
    return "".join(signs[round((len(signs) - 1) * max(0.0, value) / most)] for value in values)


def _n(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
