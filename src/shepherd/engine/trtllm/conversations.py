"""What has left which conversation, and what was sent of it: the memory of an engine without cells of its own. Pure.

    tokens     s s s s | t t t t t t | u u u | a a a        as the client sends them, again and again
    gone                 - - - - - -                        whole turns, remembered here
    sent       s s s s |               u u u | a a a        what the library computes, and finds again by its beginning

The next request of a conversation leaves out the same turns without a new decision, so that what is sent begins as
before. A conversation is known by its owner and its leading tokens.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Iterator, Sequence

from shepherd.core.dataclasses import dataclass
from shepherd.engine.base import CachedPrefix, Job, Span
from shepherd.engine.kv.ledger import NoRoom, TurnEviction, common_prefix
from shepherd.engine.kv.plan import Range, cleared_ranges, joined, leaving, remaining, size
from shepherd.engine.stats import SequenceStats

MAX_CONVERSATIONS = 256
MAX_TOKENS = 8_000_000
"""Of all that are remembered; 32 MB."""
WORTH_KNOWING = 8
"""Leading tokens that two prompts must share to be one conversation that has lost turns."""


@dataclass(slots=True, eq=False)
class Conversation:
    """One that has been computed."""

    id: int
    tokens: array[int]
    """Those that have left, and the newest answer, included."""
    gone: tuple[Range, ...]
    sent: array[int]
    """What of them has not left."""
    row: SequenceStats
    """The figures of its last job."""
    n_fresh: int
    """Leading tokens of `sent` that were computed so lately that no event tells of them yet."""
    ended_s: float
    """By `time.monotonic`."""

    @property
    def owner(self) -> str:
        return self.row.owner


@dataclass(frozen=True, slots=True)
class Sendable:
    tokens: array[int]
    gone: tuple[Range, ...]
    """Of the prompt, all that is left out."""
    evictions: tuple[TurnEviction, ...] = ()
    """What of it leaves now."""


class Conversations:
    """The conversations of one engine, up to a limit; the least recently used are forgotten. One thread."""

    def __init__(self, *, max_tokens: int = MAX_TOKENS, most: int = MAX_CONVERSATIONS) -> None:
        self._known: dict[int, Conversation] = {}
        """In order of their last use."""
        self._max_tokens, self._most = max_tokens, most
        self._n_tokens = self._n_made = 0

    def __iter__(self) -> Iterator[Conversation]:
        return iter(self._known.values())

    def __len__(self) -> int:
        return len(self._known)

    def gone_of(self, tokens: array[int], spans: Sequence[Span], owner: str) -> tuple[Range, ...]:
        """What has left the conversation that a prompt continues, as far as that may stay away."""
        best, n_best = None, WORTH_KNOWING
        for known in self._known.values():
            if known.owner == owner and (n := common_prefix(known.tokens, tokens)) >= n_best:
                best, n_best = known, n
        if best is None:
            return ()
        kept = [(span.start, span.stop) for span in spans if span.keep]
        return tuple(
            (start, stop)
            for start, stop in best.gone
            if stop <= n_best and not any(low < stop and start < high for low, high in kept)
        )

    def shared(self, sent: array[int], owner: str) -> int:
        """The longest beginning that this owner has sent before."""
        own = (common_prefix(known.sent, sent) for known in self._known.values() if known.owner == owner)
        return max(own, default=0)

    def fresh(self, sent: array[int], owner: str) -> int:
        """How many leading tokens of this have been computed so lately that no event tells of them yet."""
        own = (known for known in self._known.values() if known.n_fresh and known.owner == owner)
        n = max((min(known.n_fresh, common_prefix(known.sent, sent)) for known in own), default=0)
        return max(0, min(n, len(sent) - 1))

    def keep(self, tokens: array[int], gone: tuple[Range, ...], row: SequenceStats, *, n_fresh: int = 0) -> None:
        """Remember a conversation; it takes the place of those that it continues."""
        owner = row.owner
        for known in list(self._known.values()):
            n = len(known.tokens)
            if known.owner == owner and n <= len(tokens) and common_prefix(known.tokens, tokens) == n:
                self._forget(known)
        self._n_made += 1
        sent = without(tokens, gone) if gone else tokens
        made = Conversation(self._n_made, tokens, gone, sent, row, n_fresh, time.monotonic())
        self._known[self._n_made] = made
        self._n_tokens += len(tokens)
        while len(self._known) > 1 and (self._n_tokens > self._max_tokens or len(self._known) > self._most):
            self._forget(next(iter(self._known.values())))

    def beginning_with(self, tokens: array[int], owner: str) -> list[array[int]]:
        """The tokens of the owner's conversations that are longer and begin with these."""
        n = len(tokens)
        own = (known.tokens for known in self._known.values() if known.owner == owner)
        return [each[:] for each in own if len(each) > n and each[:n] == tokens]

    def clear(self) -> None:
        self._known.clear()
        self._n_tokens = 0

    def _forget(self, known: Conversation) -> None:
        del self._known[known.id]
        self._n_tokens -= len(known.tokens)


def sendable(
    job: Job, tokens: array[int], gone: Sequence[Range], *, n_ctx: int, n_low: int, reserve: int, n_turns: int = 0
) -> Sendable | NoRoom:
    """What of a prompt is sent, so that `reserve` more tokens fit behind it; `n_turns` leave in any case.

    When something must leave, so much leaves that `n_low` tokens stay: then the beginning of the next requests is the
    same for a while. `tokens`: the prompt, and what has been generated already.
    """
    absent = [*gone, *cleared_ranges(job)]
    needed = size(remaining(0, len(tokens), absent)) + reserve
    evictions = leaving(job, absent, needed, n_ctx=n_ctx, n_low=n_low, n_turns=n_turns)
    if isinstance(evictions, NoRoom):
        return evictions
    leaves = [range_ for turn in evictions for range_ in turn.ranges]
    every = joined([*absent, *leaves])
    return Sendable(without(tokens, every), every, tuple(evictions))


def cached_prefix(n_tokens: int, gone: Sequence[Range], n_cached: int) -> CachedPrefix:
    """The cached part of a prompt, of which `n_cached` tokens are cached of what is sent."""
    ranges: list[Range] = []
    for start, stop in remaining(0, n_tokens, gone):
        n = min(stop - start, n_cached)
        if n <= 0:
            break
        ranges.append((start, start + n))
        n_cached -= n
    length = ranges[-1][1] if ranges else 0
    return CachedPrefix(length, tuple(ranges), "cells" if ranges else "")


def without(tokens: array[int], gone: Sequence[Range]) -> array[int]:
    left = array("i")
    for start, stop in remaining(0, len(tokens), gone):
        left += tokens[start:stop]
    return left
