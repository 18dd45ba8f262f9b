"""Brings an answer in JSON to its end where a schema sets none: digits of a number, and exact repetition.

    mask of the grammar ─▶ Ending.restrict ─▶ fewer tokens        {"age": 6604876475938242│48...
                                                                  {"tags": ["a", "a", "a", ...│]}

A small model that is stuck writes the same digits, letters or items without end, and the answer is cut off in the
middle of its JSON. Numbers are bounded exactly: a whole number by 2**53, 16 decimal places, an exponent by 290. Only a
number that may end here, or never, is ended: what a schema bounds itself, or demands (a minimum of 10**20, a constant),
can be written. Repetition is ended once the same tokens have come again and again for `LONGEST` tokens, or for half of
those that are left: from there on only what closes a string, an array or an object may come, where the grammar allows
it. Each further time it is ended sooner, and in the end everything is closed as soon as it can be.

Free text, patterns of a client and thoughts are never touched: there a line's end or a quote may come. One per answer.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from shepherd.engine.grammar.numbers import EXACT

if TYPE_CHECKING:
    import numpy as np

    Marks = np.ndarray[Any, Any]

logger = logging.getLogger(__name__)

PLACES = 16
"""Digits of a fraction."""
FOREVER = 400
"""Digits of no number that has an end: constants have 330 at most."""
EXPONENT = 290
"""With 16 digits before it a number stays within a double."""
LONGEST = 2048
"""Tokens of exact repetition: a table of 32 by 32 zeros with their commas is whole."""
SHORTEST = 16
"""Tokens of repetition that are never too many."""
MAX_PERIOD = 128
"""Tokens that are repeated together."""
MAX_ENDS = 4
"""Repetitions of one answer before all is closed as soon as it can be."""

_NUMBER = re.compile(rb"(?P<exponent>\d[eE][+-]?)\d*\Z|(?P<fraction>\d\.)\d*\Z|\d+\Z")
_TAIL = 64
"""Bytes of an answer that are kept to find the number at its end."""


class Digits(NamedTuple):
    """The digits at the end of an answer, and how many and how large they may be."""

    text: bytes
    most: int
    largest: int | None

    def has_room(self, more: bytes) -> bool:
        n = len(self.text) + len(more)
        return n < self.most or (n == self.most and (self.largest is None or int(self.text + more) <= self.largest))


def digits_of(tail: bytes) -> Digits | None:
    """The digits that an answer ends with; None if it ends with others."""
    found = _NUMBER.search(tail)
    if found is None:
        return None
    if head := found["exponent"]:
        return Digits(found.group()[len(head) :], len(str(EXPONENT)), EXPONENT)
    if head := found["fraction"]:
        return Digits(found.group()[len(head) :], PLACES, None)
    return Digits(found.group(), len(str(EXACT)), EXACT)


class Letters:
    """What the tokens of a vocabulary begin with. Takes 0.1 s for 150,000 tokens."""

    def __init__(self, tokens: Sequence[bytes], end_tokens: Collection[int]) -> None:
        import numpy as np  # noqa: PLC0415 - only under a grammar

        first: dict[bytes, list[int]] = {}
        for n, token in enumerate(tokens):
            first.setdefault(token[:1], []).append(n)

        def marked(ids: Iterable[int]) -> Marks:
            marks = np.zeros(len(tokens), bool)
            marks[[*ids]] = True
            return marks

        def beginning(letters: str) -> list[int]:
            return [n for letter in letters for n in first.get(letter.encode(), ())]

        self.tokens = tokens
        self.heads = {n: found.group() for n in beginning("0123456789") if (found := re.match(rb"\d+", tokens[n]))}
        """The digits that tokens begin with."""
        self.many = [n for n, head in self.heads.items() if tokens[n] == head == b"0"][:1] * FOREVER
        """More digits than any number has that has an end."""
        self.most = max(map(len, self.heads.values()), default=0)
        """Digits of a token."""
        closing = [n for n in beginning("]}") if not tokens[n].strip(b"]}")]
        self.closing = marked([*closing, *end_tokens])
        """Tokens that only close arrays and objects, and the ends."""
        self.ending = marked([*closing, *end_tokens, *(n for n in beginning('"') if not tokens[n][1:].strip(b"]}"))])
        """Those, and the tokens that close a string before that."""
        self.behind_number = ~marked(beginning("0123456789.eE+-"))
        self.quotes = marked(beginning('"'))
        self.letters = marked(beginning("x"))
        """No word of JSON has this letter."""
        self.lines = marked(beginning("\n"))


class Ending:
    def __init__(self, letters: Letters, n_tokens: int | None = None) -> None:
        """`n_tokens`: of the answer at most."""
        import numpy as np  # noqa: PLC0415 - only under a grammar

        self._np, self._letters, self._n_left = np, letters, n_tokens
        self._tail = b""
        self._last = np.full(2 * MAX_PERIOD, -1, np.int64)
        self._n = MAX_PERIOD
        self._least = 2 * np.arange(1, MAX_PERIOD + 1)
        self._runs = np.zeros(MAX_PERIOD, np.int64)
        """For each period the number of tokens that are equal to the one a period before."""
        self.n_ends = 0
        """How often repetition was ended."""
        self.is_stuck = False
        """Whether the answer repeats itself."""

    def accept(self, token: int) -> None:
        if self.is_stuck and self._letters.ending[token]:
            self.n_ends += 1
            logger.info("an answer in JSON repeats itself, and is brought to its end")
        self._tail = (self._tail + self._letters.tokens[token])[-_TAIL:]
        if self._n_left is not None:
            self._n_left -= 1
        if self._n == len(self._last):
            self._last[:MAX_PERIOD] = self._last[MAX_PERIOD:]
            self._n = MAX_PERIOD
        same = self._last[self._n - MAX_PERIOD : self._n][::-1] == token
        self._runs += 1
        self._runs *= same
        self._last[self._n] = token
        self._n += 1
        self.is_stuck = self._repeats()

    def _repeats(self) -> bool:
        """Whether the same tokens have come three times at least, and too often."""
        if self.n_ends >= MAX_ENDS:
            return True
        if self._runs.max() < SHORTEST:  # nearly always
            return False
        most = LONGEST >> 2 * self.n_ends
        if self._n_left is not None:
            most = min(most, self._n_left >> self.n_ends + 1)
        return bool((self._runs >= self._np.maximum(self._least, max(SHORTEST, most))).any())

    def may_refuse(self, token: int) -> bool:
        """Whether `restrict` could take this token away."""
        head = self._letters.heads.get(token)
        if head and (digits := digits_of(self._tail)) and not digits.has_room(head):
            return True
        return self.is_stuck

    def restrict(self, allowed: Marks, takes: Callable[[Sequence[int]], bool]) -> None:
        """Take tokens away from those that the grammar allows next, but never all of them. `takes`: whether the grammar
        allows tokens one after the other."""
        found, letters = allowed.view(bool), self._letters
        has_quote, has_letter = bool(found[letters.quotes].any()), bool(found[letters.letters].any())
        digits = None if has_quote or has_letter else digits_of(self._tail)
        if digits and self._is_endless(found, digits, takes):
            found[[n for n in self._np.flatnonzero(found).tolist() if not self._fits(n, digits)]] = False
        if self.is_stuck and not (has_letter and found[letters.lines].any()):
            closing = found & (letters.ending if has_letter else letters.closing)
            if closing.any():
                found[:] = closing

    def _is_endless(self, found: Marks, digits: Digits, takes: Callable[[Sequence[int]], bool]) -> bool:
        """Whether a number may end here, after about as many digits as it may have, or never."""
        letters = self._letters
        is_due = len(digits.text) + letters.most >= digits.most and found[letters.behind_number].any()
        return bool(is_due and letters.many and takes(letters.many))

    def _fits(self, token: int, digits: Digits) -> bool:
        head = self._letters.heads.get(token)
        return head is None or digits.has_room(head)
