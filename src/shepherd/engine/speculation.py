"""How long drafts are: as long as they pay on this machine, for this answer, beside the others. Pure.

A draft of n tokens makes a decode longer, and saves as many decodes as the model draws its tokens. Both are measured:
`DecodeCost` knows what a decode of so many tokens takes here, a drafter's `Odds` how often its proposals have held. The
source and the length with the most tokens a second are chosen; none where nothing beats a decode without a draft. What
the text proposes costs nothing; a draft model takes its time, which counts.

    an answer's account   START ── a refused draft: what it has cost ──▶ less     0: no drafts
                                ◀── a draft that held: what it has saved ── more
                                ◀── a proposal that held, drafted or not ── CREDIT, up to LOAN

No draft may cost more than the account has: an answer whose proposals fail loses `START`, and `REFILL` of its time. Not
here: what is proposed (`draft.py`), how it is checked (`decode_step.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from shepherd.core.dataclasses import dataclass, field
from shepherd.engine.draft import Drafter

START = 1.0
"""Tokens' time without drafts that an answer may lose at its beginning; ..."""
CREDIT = 0.5
"""... so much more with each decode whose proposal has held, which costs nothing until it is drafted; ..."""
LOAN = 8.0
"""... at most so many in all, and from the beginning where a draft model is to be tried, ..."""
SAVINGS = 18.0
"""... and at most so many of which all but the loan have been saved before."""
REFILL = 1 / 128
"""What each decode adds: drafts are tried again when enough has come together, at this part of the time."""
MARGIN = 1.25
"""A draft must promise so many times the tokens that its time would bring without it: the estimates are rough."""
PATIENCE_OF_OTHERS = 1.5
"""Where several answers run, drafts make a decode at most so many times as long."""
HOPELESS = 0.02
"""A draft ends where its next token has no more than this chance."""
REST = 64
"""Decodes without drafts after the library had no room for one with drafts."""

_KNOTS = 12
"""Sizes of decodes whose cost is known: 1, 2, 4, ... tokens."""
_OWN, _SCALE = 0.25, 0.05
"""How much an observation moves the sizes beside it, and all others: the whole curve rises with the context."""
_SURPRISE, _OUTLIER = 4.0, 1.5
"""An observation counts as no more than so many times what was expected, of a size that is new, or known: other
programs make some decodes slow."""
_RELAX = 0.001
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
            self._knots = [seconds / (1 + (n - 1) / 2)] * _KNOTS
            self._guess(token_s)
        low, high, share = _place(n)
        beside = {low, high}
        is_new = n > 1 and self._seen.isdisjoint(beside - {0})
        most = _SURPRISE if is_new else _OUTLIER
        error = min(max(seconds / self.seconds(n), 1 / most), most) - 1
        own = {low: _SCALE + (_OWN - _SCALE) * (1 - share), high: _SCALE + (_OWN - _SCALE) * (share or 1)}
        for at in range(_KNOTS):
            self._knots[at] *= 1 + error * (at in beside - {0} if is_new else own.get(at, _SCALE))
        self._seen |= beside
        self._guess(token_s, beside)

    def _guess(self, token_s: float, beside: Collection[int] = ()) -> None:
        """Guess the sizes that no decode has had: beyond the others, a token more takes no longer than there, nor than
        in a prompt. That is a low guess: a size that seems too slow would never be tried."""
        knots, seen = self._knots, sorted(self._seen)
        most_s = step_s = min(knots[0], token_s or knots[0] / 2)
        for at in range(1, _KNOTS):
            n_more = 1 << (at - 1)
            if at not in self._seen:
                above = next((other for other in seen if other > at), 0)
                own_s = (knots[above] - knots[at - 1]) / ((1 << above) - n_more) if above else step_s
                knots[at] = knots[at - 1] + n_more * max(0.0, own_s)
            elif at not in beside:
                knots[at] += _RELAX * min(0.0, knots[0] + ((1 << at) - 1) * most_s - knots[at])
            step_s = min(step_s, max(0.0, knots[at] - knots[at - 1]) / n_more)


def _place(n: int) -> tuple[int, int, float]:
    """The known sizes below and above `n`, and how far it is from the one to the other."""
    low = min(n.bit_length() - 1, _KNOTS - 1)
    high = min(low + 1, _KNOTS - 1)
    share = n / (1 << low) - 1
    return (low, high, share) if share and high > low else (low, low, 0.0)


@dataclass(slots=True)
class Speculation:
    sources: tuple[Drafter, ...]
    most: int
    """Tokens of its longest draft."""
    account: float = START
    """Tokens' time that drafts may cost."""
    n_drafted: int = 0
    n_accepted: int = 0

    @property
    def n_matched(self) -> int:
        return max(source.n_matched for source in self.sources)

    @property
    def size_bytes(self) -> int:
        return sum(source.size_bytes for source in self.sources)

    def extend(self, tokens: Sequence[int]) -> None:
        """These tokens come next in the conversation."""
        before = self.n_matched
        for source in self.sources:
            source.extend(tokens)
        if self.n_matched > before > 0:
            self._add(CREDIT)

    def settle(self, n_drafted: int, n_accepted: int, cost: float) -> None:
        """A decode is over: `n_accepted` tokens of its draft were drawn, which took the time of `cost` tokens."""
        self.n_drafted += n_drafted
        self.n_accepted += n_accepted
        self.account = min(SAVINGS, self.account + n_accepted - cost)
        self._add(REFILL)

    def _add(self, tokens: float) -> None:
        self.account = max(self.account, min(LOAN, self.account + tokens))


@dataclass(slots=True)
class Wish:
    """What an answer could draft."""

    speculation: Speculation
    most: int
    """Tokens that there is room for in its own limits."""
    possible: dict[Drafter, int] = field(default_factory=dict)
    """Tokens of a source's draft that may come, where the others behind them may not."""


class Choice(NamedTuple):
    """What an answer drafts in the next decode."""

    source: Drafter
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
        self.rest, is_resting = max(0, self.rest - 1), self.rest > 0
        if is_resting or not (rate := self.rate(n_tokens)):
            return chosen
        plan, alone_s = _Plan(n_tokens, float(n_tokens), 0.0, rate), n_tokens / rate
        limit_s = alone_s * PATIENCE_OF_OTHERS if n_tokens > 1 else float("inf")
        for at in sorted(range(len(wishes)), key=lambda at: -wishes[at].speculation.n_matched):
            one, own = wishes[at].speculation, min(wishes[at].most, n_room)
            most_s = min(limit_s, self._seconds(plan) + one.account / rate)
            most = {source: wishes[at].possible.get(source, own) for source in one.sources if source.n_matched}
            found = [*filter(None, (self._length(source, min(own, n), plan, most_s) for source, n in most.items()))]
            if found:
                chosen[at] = best = max(found, key=lambda choice: choice.rate)
                before_s = max(plan.before_s, best.source.seconds(best.n))
                plan = _Plan(plan.n + best.n, plan.gain + best.expected, before_s, rate)
                n_room -= best.n
        return chosen

    def _seconds(self, plan: _Plan) -> float:
        return self.cost.seconds(plan.n) + plan.before_s

    def _length(self, source: Drafter, most: int, plan: _Plan, limit_s: float) -> Choice | None:
        """The draft of this source that brings the most beside what is planned; None if none pays."""
        odds, alone_s = source.odds.of, self._seconds(plan)
        best, fastest = None, plan.gain / alone_s
        least = MARGIN * fastest
        chance, more = 1.0, 0.0
        for n in range(1, most + 1):
            chance *= odds(source.n_matched + n - 1)
            more += chance
            took_s = self.cost.seconds(plan.n + n) + max(plan.before_s, source.seconds(n))
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
