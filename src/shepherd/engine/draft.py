"""Drafts: what may come next in an answer, read off the tokens that its conversation holds already. Pure.

    conversation   ... d e f g h i j k ...  (edit it)  ... d e f g
                             └──┬──┘                         └──┬─┘ the end stands earlier, too
                             h i j k is the draft            h ?

An agent edits files that it has just read, repeats arguments, quotes. Its next tokens are then known before the model
computes them, and are checked together in one decode instead of one by one. A drafter serves one task; no other task
reads it. Another `Drafter` is the line of a draft model (`draft_model.py`).

Hashes of three tokens in chains find it (why: docs/adr/0021); what they leave out are places before the newest
`N_PLACES`. A conversation is read again for each answer: nothing is kept with a sequence that another owner may take.
What is proposed is compared with what comes, drafted or not: so a drafter learns its odds at no cost.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from itertools import islice
from typing import Protocol

N_KEY = 3
"""Tokens that are hashed together: shorter matches say little."""
N_PLACES = 16
"""Places where the key stands that are compared, the newest first."""
LONGEST = 32
"""Tokens of the end that are compared with such a place; while a match holds, its length grows beyond."""
NEAR = 8
"""A match that has broken goes on so many tokens further on, at most: a word was replaced, or left out."""
PATIENCE = 16
"""Tokens for which such a place is looked for."""
N_TOKENS = 1 << 18
"""Most tokens that a drafter remembers; then it forgets the older half."""
_SMALLEST, _LARGEST = 10, 18
"""Of the table of hashes, as powers of two."""

_LENGTHS = (3, 4, 6, 10, 16, 32)
"""Where classes of matches by length begin, behind the first: shorter ones are breaks that were bridged."""
_AT_FIRST = (0.5, 0.5, 0.6, 0.7, 0.85, 0.93, 0.97)
"""How often the next token holds in each class, until that has been seen ..."""
_WEIGHT = 4.0
"""... which counts like so many tokens."""
_MEMORY = 48.0
"""Tokens after which what has been seen of a class counts half."""


class Odds:
    """How often the next token of a draft holds, by the length of the match before it."""

    def __init__(self, at_first: float | None = None) -> None:
        """`at_first`: how often in each class until that has been seen; None = as with matches in a text."""
        self._at_first = _AT_FIRST if at_first is None else (at_first,) * len(_AT_FIRST)
        self._tried = [_WEIGHT] * len(_AT_FIRST)
        self._held = [_WEIGHT * share for share in self._at_first]

    def of(self, n_matched: int) -> float:
        at = bisect_right(_LENGTHS, n_matched)
        return self._held[at] / self._tried[at]

    def observe(self, n_matched: int, holds: bool) -> None:
        """The token proposed behind `n_matched` tokens was drawn, or another one."""
        at = bisect_right(_LENGTHS, n_matched)
        if self._tried[at] >= _MEMORY:
            self._tried[at] /= 2
            self._held[at] /= 2
        self._tried[at] += 1
        self._held[at] += holds

    def forget(self, part: float) -> None:
        """Let what has been seen count a little less: it was longer ago."""
        for at, share in enumerate(self._at_first):
            self._tried[at] += part * (_WEIGHT - self._tried[at])
            self._held[at] += part * (_WEIGHT * share - self._held[at])


class Drafter(Protocol):
    """Proposes the next tokens of one answer; engine thread only."""

    @property
    def odds(self) -> Odds:
        """What `extend` has learnt of its proposals."""

    @property
    def n_matched(self) -> int:
        """How strong the grounds of the next proposal are, as the number of tokens that agree; 0 = it has none."""

    @property
    def size_bytes(self) -> int: ...

    def seconds(self, n: int) -> float:
        """What it takes to propose `n` tokens, besides the decode that checks them."""

    def extend(self, tokens: Sequence[int]) -> None:
        """These tokens come next in the conversation."""

    def propose(self, n: int) -> array[int]:
        """At most `n` tokens that may come next."""


class SuffixDrafter:
    """Proposes what stands behind the longest earlier place of the conversation's end; satisfies `Drafter`."""

    def __init__(self, n_expected: int = 0) -> None:
        """`n_expected`: tokens that it will read, about."""
        self.odds = Odds()
        self.n_matched = 0
        self._size = 1 << min(max(n_expected.bit_length(), _SMALLEST), _LARGEST)
        self._forget()

    def _forget(self) -> None:
        self._tokens = array("i")
        self._heads = array("i", bytes(4 * self._size))
        """By hash: behind which token its key stands last; 0 = nowhere."""
        self._before = array("i", bytes(4 * N_KEY))
        """By number of tokens: where the key at their end, or one of the same hash, stands before that."""
        self._next = 0
        """The token that the match says comes next; 0 = there is no match."""
        self._lost = 0
        """The token with which the last match broke ..."""
        self._patience = 0
        """... and for how many more tokens it may go on near there."""

    @property
    def size_bytes(self) -> int:
        return sum(each.itemsize * len(each) for each in (self._tokens, self._heads, self._before))

    def extend(self, tokens: Sequence[int]) -> None:
        if len(self._tokens) + len(tokens) > N_TOKENS:
            kept = self._tokens[len(self._tokens) + min(len(tokens), N_TOKENS // 2) - N_TOKENS // 2 :]
            self._forget()
            self._add(kept)
            tokens = tokens[-(N_TOKENS // 2) :]
        if len(tokens) > LONGEST:  # a prompt: only its end matters
            self._add(tokens)
            self._match(self._longest())
            return
        for token in tokens:
            at, known = self._next, self._tokens
            holds = at > 0 and known[at] == token
            if at:
                self.odds.observe(self.n_matched, holds)
            self._add((token,))
            if holds and self.n_matched >= N_KEY:
                self._next, self.n_matched = at + 1, self.n_matched + 1
                continue
            if at and not holds:
                self._lost, self._patience = at, PATIENCE
            place, length = self._longest()
            if not length and holds:
                place, length = at + 1, self.n_matched + 1
            self._match((place, length) if length else self._nearby(token))

    def seconds(self, n: int) -> float:
        return 0.0

    def propose(self, n: int) -> array[int]:
        if not self._next:
            return array("i")
        found = self._tokens[self._next : self._next + n]
        return (found * -(-n // len(found)))[:n]  # up to the end: it goes on as it has begun, over and over

    def _match(self, found: tuple[int, int]) -> None:
        self._next, self.n_matched = found

    def _add(self, tokens: Sequence[int]) -> None:
        """Remember tokens, and where each `N_KEY` of them stand. O(1) for each."""
        known, heads, before, mask = self._tokens, self._heads, self._before, self._size - 1
        at = max(len(known) + 1, N_KEY)
        known.extend(tokens)
        new = known[at - N_KEY :]
        for a, b, c in zip(new, islice(new, 1, None), islice(new, 2, None), strict=False):
            key = (a * 149_573 + b * 40_503 + c) & mask
            before.append(heads[key])
            heads[key] = at
            at += 1

    def _longest(self) -> tuple[int, int]:
        """Behind how many tokens the longest end of all tokens stands before, and its length; 0, 0 if there is none."""
        tokens, before = self._tokens, self._before
        n = len(tokens)
        best, longest = 0, N_KEY - 1
        at = before[n] if n >= N_KEY else 0
        for _ in range(N_PLACES):
            if at <= longest:
                break  # there is no place, or one too near the beginning
            if tokens[at - 1 - longest] == tokens[n - 1 - longest]:
                most, length = min(LONGEST, at), 0
                while length < most and tokens[at - 1 - length] == tokens[n - 1 - length]:
                    length += 1
                if length > longest:
                    best, longest = at, length
                    if length == LONGEST:
                        break
            at = before[at]
        return (best, longest) if best else (0, 0)

    def _nearby(self, token: int) -> tuple[int, int]:
        """Where a match that has broken goes on with this token."""
        if not self._patience:
            return 0, 0
        self._patience -= 1
        for at in range(self._lost, min(self._lost + NEAR, len(self._tokens) - 1)):
            if self._tokens[at] == token:
                return at + 1, 1
        return 0, 0
