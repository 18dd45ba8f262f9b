"""Drafts: what may come next in an answer, read off the tokens that its conversation holds already. Pure.

    conversation   ... d e f g h i j k ...  (edit it)  ... d e f g
                             └──┬──┘                         └──┬─┘ the end stands earlier, too
                             h i j k is the draft            h ?

An agent edits files that it has just read, repeats arguments, quotes. Its next tokens are then known before the model
computes them, and are checked together in one decode instead of one by one. A drafter serves one task; no other task
reads it. Another `Drafter` is the line of a draft model (`draft_model.py`).

Why hashes and no suffix automaton: both find the longest earlier place of the end, but the automaton takes 0.9 µs and
560 bytes a token, hashes of three tokens in chains 0.15 µs and 12 bytes (30,000 tokens, one core). What the hashes
leave out are places before the newest `N_PLACES`. A conversation is read again for each answer: that costs less than
one decode, and nothing is kept with a sequence that a job of another owner may take over.
"""

from __future__ import annotations

from array import array
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


class Drafter(Protocol):
    """Proposes the next tokens of one answer; engine thread only."""

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
            holds = at and known[at] == token
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
