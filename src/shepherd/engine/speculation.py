"""How long drafts are: as long as they pay on this machine, for this answer, beside the others. Pure.

A draft of n tokens makes a decode longer, and saves as many decodes as the model draws its tokens. Both are measured:
`DecodeCost` knows what a decode of so many tokens takes here, `Odds` how often drafts of this answer have held, by the
length of the match. The source and the length with the most tokens a second are chosen; none where nothing beats a
decode without a draft. What the text proposes costs nothing; a draft model takes its time, which counts.

    an answer's account   LOAN ── a refused draft: what it has cost ──▶ less   0: no drafts
                          ◀── a draft that held: what it has saved ── more     + REFILL with each token without one

No draft may cost more than the account has. So an answer whose drafts fail loses the loan and no more, and one that
has begun to copy drafts again soon. Not here: what is proposed (`draft.py`), how it is checked (`decode_step.py`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from shepherd.core.dataclasses import dataclass, field
from shepherd.engine.draft import Drafter

LOAN = 6.0
"""Tokens' time without drafts that an answer may lose at its beginning; ..."""
SAVINGS = 18.0
"""... at most so many later, of which all but the loan have been saved before."""
REFILL = 1 / 64
"""What a token without a draft adds: drafts are tried again when enough has come together, at this part of the time."""
MARGIN = 1.3
"""A draft must promise so many times the tokens that its time would bring without it: the estimates are rough."""
PATIENCE_OF_OTHERS = 1.5
"""Where several answers run, drafts make a decode at most so many times as long."""
HOPELESS = 0.02
"""A draft ends where its next token has no more than this chance."""
REST = 64
"""Decodes without drafts after the library had no room for one with drafts."""

_LENGTHS = (3, 4, 6, 10, 16, 32)
"""Where classes of matches by length begin, behind the first: shorter ones are breaks that were bridged."""
_AT_FIRST = (0.5, 0.4, 0.5, 0.7, 0.8, 0.88, 0.93)
"""How often the next token holds in each class, until that has been seen ..."""
_WEIGHT = 4.0
"""... which counts like so many tokens."""
_MEMORY = 48.0
"""Tokens after which what has been seen of a class counts half; ..."""
_FADE = 0.01
"""... and so much of it is forgotten with each token that could have been drafted and was not: a text that did not
repeat may begin to."""

_KNOTS = 12
"""Sizes of decodes whose cost is known: 1, 2, 4, ... tokens."""
_FIRST, _OWN, _SCALE = 0.8, 0.25, 0.05
"""How much an observation moves sizes that no decode has had, the sizes beside it, and all others: the whole curve
rises with the context. What was not seen moves by the same seconds: several tokens may cost more than one at once."""
_SURPRISE, _OUTLIER = 4.0, 1.5
"""An observation counts as no more than so many times what was expected, of a size that is new, or known: other
programs make some decodes slow."""
_RELAX = 0.01
"""How much of an estimate above the first guess is forgotten with each decode of another size, so that it is tried
again: many conversations make a decode slower than one does with as many tokens."""


class DecodeCost:
    """Seconds of a decode without prompts, by its number of tokens; from the times of the last ones."""

    def __init__(self) -> None:
        self._knots: list[float] = []
        self._seen = {0}
        """The sizes beside those that decodes have had; the others are guesses."""

    @property
    def is_known(self) -> bool:
        return bool(self._knots)

    def seconds(self, n: int) -> float:
        """What `n` tokens take; between two known sizes as if in a straight line."""
        low, high, share = _place(n)
        return self._knots[low] * (1 - share) + self._knots[high] * share

    def observe(self, n: int, seconds: float, token_s: float) -> None:
        """`token_s`: what a prompt's token takes, or 0; the first guess for sizes that no decode has had."""
        if not self._knots:
            single_s = seconds / (1 + (n - 1) / 2)
            self._knots = list(self._guess(single_s, token_s))
        low, high, share = _place(n)
        beside, expected_s = {low, high}, self.seconds(n)
        if n > 1 and self._seen.isdisjoint(beside - {0}):
            more_s = _FIRST * expected_s * _error(seconds / expected_s, _SURPRISE)
            for at in {*range(_KNOTS)} - self._seen:
                self._knots[at] = max(self._knots[0], self._knots[at] + more_s)
        else:
            error = _error(seconds / expected_s, _OUTLIER)
            own = {low: _SCALE + (_OWN - _SCALE) * (1 - share), high: _SCALE + (_OWN - _SCALE) * (share or 1)}
            for at, guess in enumerate(self._guess(self._knots[0], token_s)):
                self._knots[at] *= 1 + own.get(at, _SCALE) * error
                if at not in own and self._knots[at] > guess:
                    self._knots[at] += _RELAX * (guess - self._knots[at])
        self._seen |= beside

    @staticmethod
    def _guess(single_s: float, token_s: float) -> Sequence[float]:
        step_s = min(single_s, 1.5 * token_s or single_s / 2)
        return [single_s + ((1 << at) - 1) * step_s for at in range(_KNOTS)]


def _error(ratio: float, most: float) -> float:
    """How far an observation is from what was expected, in parts of that; no more than `most` times."""
    return min(max(ratio, 1 / most), most) - 1


def _place(n: int) -> tuple[int, int, float]:
    """The known sizes below and above `n`, and how far it is from the one to the other."""
    low = min(n.bit_length() - 1, _KNOTS - 1)
    high = min(low + 1, _KNOTS - 1)
    share = n / (1 << low) - 1
    return (low, high, share) if share and high > low else (low, low, 0.0)


class Odds:
    """How often the next token of a draft holds, by the length of the match before it."""

    def __init__(self, at_first: float | None = None, fade: float = _FADE) -> None:
        """`at_first`: how often in each class until that has been seen; None = as with matches in a text. `fade`: how
        much of what has been seen is forgotten with each token that could have been drafted and was not."""
        self._fade = fade
        self._at_first = _AT_FIRST if at_first is None else (at_first,) * len(_AT_FIRST)
        self._tried = [_WEIGHT] * len(_AT_FIRST)
        self._held = [_WEIGHT * share for share in self._at_first]

    def of(self, n_matched: int) -> float:
        at = bisect_right(_LENGTHS, n_matched)
        return self._held[at] / self._tried[at]

    def observe(self, n_matched: int, n_accepted: int, *, refused: bool) -> None:
        """A draft behind `n_matched` tokens: so many of it held; whether the next one did not."""
        for length, holds in enumerate([True] * n_accepted + [False] * refused, n_matched):
            at = bisect_right(_LENGTHS, length)
            if self._tried[at] >= _MEMORY:
                self._tried[at] /= 2
                self._held[at] /= 2
            self._tried[at] += 1
            self._held[at] += holds

    def forget(self) -> None:
        """Let what has been seen count a little less: it was longer ago."""
        for at, share in enumerate(self._at_first):
            self._tried[at] += self._fade * (_WEIGHT - self._tried[at])
            self._held[at] += self._fade * (_WEIGHT * share - self._held[at])


@dataclass(slots=True)
class Source:
    """A place that drafts of an answer come from."""

    drafter: Drafter
    odds: Odds = field(default_factory=Odds)


@dataclass(slots=True)
class Speculation:
    sources: tuple[Source, ...]
    most: int
    """Tokens of its longest draft."""
    account: float = LOAN
    """Tokens' time that drafts may cost."""
    chosen: Source | None = None
    """Where its newest draft has come from."""
    n_drafted: int = 0
    n_accepted: int = 0

    @property
    def n_matched(self) -> int:
        return max(source.drafter.n_matched for source in self.sources)

    @property
    def size_bytes(self) -> int:
        return sum(source.drafter.size_bytes for source in self.sources)

    def extend(self, tokens: Sequence[int]) -> None:
        """These tokens come next in the conversation."""
        for source in self.sources:
            source.drafter.extend(tokens)

    def settle(self, n_drafted: int, n_accepted: int, cost: float, *, was_tested: bool) -> None:
        """A draft was checked: `n_accepted` of its tokens were drawn, and it took the time of `cost` tokens.
        `was_tested`: whether the next of its tokens was refused; else the answer ended before it. Call it before the
        drafter reads what was drawn."""
        self.n_drafted += n_drafted
        self.n_accepted += n_accepted
        assert self.chosen is not None
        self.chosen.odds.observe(self.chosen.drafter.n_matched, n_accepted, refused=was_tested)
        self.account = min(SAVINGS, self.account + n_accepted - cost)

    def pause(self) -> None:
        """A token came without a draft. Call it before the drafters read it."""
        if self.account < LOAN:
            self.account = min(LOAN, self.account + REFILL)
        for source in self.sources:
            if source.drafter.n_matched:
                source.odds.forget()


@dataclass(slots=True)
class Wish:
    """What an answer could draft."""

    speculation: Speculation
    most: int
    """Tokens that there is room for in its own limits."""


class Choice(NamedTuple):
    """What an answer drafts in the next decode."""

    source: Source
    n: int
    """Tokens at most."""
    least: float
    """What one of them costs, in tokens: with less chance it does not pay."""
    expected: float
    """How many of them will hold."""
    rate: float
    """Tokens a second of the decode with it."""


class _Plan(NamedTuple):
    """A decode with the drafts that are chosen so far."""

    n: int
    """Its tokens."""
    gain: float
    """Those that it brings."""
    before_s: float
    """What a draft model takes before it: the time of the longest of its drafts, for it makes them together."""
    rate: float
    """Tokens a second without any draft."""


@dataclass(slots=True)
class Speculator:
    """Decides on the drafts of one cache's decodes."""

    cost: DecodeCost = field(default_factory=DecodeCost)
    rest: int = 0
    """Decodes without drafts that come next."""

    def rate(self, n_tokens: int) -> float:
        """Tokens a second of a decode of `n_tokens` without drafts; 0 = not known yet."""
        return n_tokens / self.cost.seconds(n_tokens) if self.cost.is_known else 0.0

    def choose(self, wishes: Sequence[Wish], n_tokens: int, n_room: int) -> list[Choice | None]:
        """What each answer drafts in a decode that has `n_tokens` without drafts, `n_room` more at most.

        The answers with the longest matches come first.
        """
        chosen: list[Choice | None] = [None] * len(wishes)
        if self.rest:
            self.rest -= 1
            return chosen
        if not (rate := self.rate(n_tokens)):
            return chosen
        plan, alone_s = _Plan(n_tokens, float(n_tokens), 0.0, rate), n_tokens / rate
        limit_s = alone_s * PATIENCE_OF_OTHERS if n_tokens > 1 else float("inf")
        for at in sorted(range(len(wishes)), key=lambda at: -wishes[at].speculation.n_matched):
            one, own = wishes[at].speculation, min(wishes[at].most, n_room)
            most_s = min(limit_s, self._seconds(plan) + one.account / rate)
            sources = (source for source in one.sources if source.drafter.n_matched)
            found = [*filter(None, (self._length(source, own, plan, most_s) for source in sources))]
            if found:
                chosen[at] = best = max(found, key=lambda choice: choice.rate)
                before_s = max(plan.before_s, best.source.drafter.seconds(best.n))
                plan = _Plan(plan.n + best.n, plan.gain + best.expected, before_s, rate)
                n_room -= best.n
        return chosen

    def _seconds(self, plan: _Plan) -> float:
        return self.cost.seconds(plan.n) + plan.before_s

    def _length(self, source: Source, most: int, plan: _Plan, limit_s: float) -> Choice | None:
        """The draft of this source that brings the most beside what is planned; None if none pays."""
        odds, drafter, alone_s = source.odds.of, source.drafter, self._seconds(plan)
        best, fastest = None, plan.gain / alone_s
        least = MARGIN * fastest
        chance, more = 1.0, 0.0
        for n in range(1, most + 1):
            chance *= odds(drafter.n_matched + n - 1)
            more += chance
            took_s = self.cost.seconds(plan.n + n) + max(plan.before_s, drafter.seconds(n))
            if took_s > limit_s or chance < HOPELESS:
                break
            if (plan.gain + more) / took_s > fastest and more > least * (took_s - alone_s):
                fastest = (plan.gain + more) / took_s
                best = Choice(source, n, (took_s - alone_s) * plan.rate / n, more, fastest)
        return best

    def observe(self, n_tokens: int, n_drafted: int, seconds: float, token_s: float) -> float:
        """A decode of `n_tokens` without prompts, `n_drafted` of them in drafts, took so long. Returns what one drafted
        token has cost, in tokens' time without drafts."""
        self.cost.observe(n_tokens, seconds, token_s)
        if not n_drafted:
            return 0.0
        n = n_tokens - n_drafted
        took_s = min(seconds, _OUTLIER * self.cost.seconds(n_tokens))
        return max(0.0, took_s / self.cost.seconds(n) - 1) * n / n_drafted
