"""Where a block of calls ends whose notation is literals: quotes, brackets, names.

    lead ──[ { ( or a name──> value ──brackets closed──> after ──closer──> ended      after ──next call──> value
      └─other──> garbage <────cannot be read, text────── after ──text────> ended: the closer is missing

A closer within a string belongs to the string, unless the text before it can be read as complete calls: then the quote
that seemed to begin the string was none. Not here: the notations (`python_body`, `gemma_body`).
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable
from functools import cache

from shepherd.core.dataclasses import dataclass
from shepherd.dialects.parse.bodies.json_text import FENCE, FENCE_BEGUN, after_blanks
from shepherd.dialects.parse.bodies.machine import Machine
from shepherd.dialects.parse.call import Calls, Fault, Found, Read, Unreadable, is_found
from shepherd.dialects.parse.markup import Opening

STARTS = re.compile(r"[\[({]|[^\W\d]")
JUNK = re.compile(r"[\s\])},;`]+")
JUNK_BEFORE_FENCE = re.compile(r"[\s\])},;]+")
ENDS = (")", "]", "}")
READS = 8
"""A block is read so many times at most to find its end, so that the cost stays linear."""


@dataclass(frozen=True, slots=True)
class Notation:
    read: Read
    quotes: tuple[str, ...]
    """The quotes around strings; longest first."""
    escapes: tuple[str, ...]
    """Those of the quotes in whose strings a backslash escapes."""
    next_call: re.Pattern[str]
    """The beginning of another call where no list stands around the calls."""
    next_begun: re.Pattern[str]
    """Matches as a whole every beginning of that."""


class LiteralBody(Machine):
    """Calls, or a list of them, between an opener and its closers; JSON is found, too."""

    def __init__(self, opening: Opening, *, notation: Notation, begun: str = "") -> None:
        """`begun` is the part of a call in the opener: a name and its bracket."""
        super().__init__(opening)
        self._step = self._in_value if begun else self._lead
        self._markers = self._stops()
        self._notation = notation
        firsts = frozenset(closer[0] for closer in self._block.closers)
        self._outside, self._inside = patterns(notation, firsts)
        self._junk = JUNK_BEFORE_FENCE if "`" in firsts else JUNK
        self._bare = bool(begun)  # the calls stand without a list around them
        self._depth = len(begun[-1:])
        self._quote = ""
        self._last = ""  # character that is not blank
        self._reads = READS
        self._spelled = [begun]  # the text of the calls so far

    def _settle(self, *, cut: bool) -> None:
        self._finish()

    def _finish(self) -> None:
        self._report(self._read(whole=self._step == self._after))
        self._spelled = []

    def _read(self, *more: str, whole: bool = True) -> Calls:
        return self._notation.read("".join((*self._spelled, *more)), self._tools, whole)

    def _lead(self, text: str, at: int, final: bool) -> int:
        after = after_blanks(text, at)
        if after == len(text):
            self.ended = final
        elif marker := self._markers.standing(text, after):
            if marker != self._block.opener:
                self._step = self._after
                return self._close(marker, after)
            after += len(marker)  # written twice
        elif not final and (self._markers.is_begun(text, after) or FENCE_BEGUN.fullmatch(text, after)):
            return at
        elif fence := FENCE.match(text, after):
            after = fence.end()
        else:
            self._step = self._in_value if STARTS.match(text, after) else self._in_garbage
            self._bare = text[after] not in "[{("
        return after

    def _in_value(self, text: str, at: int, final: bool) -> int:
        stop = self._value_end(text, at, final)
        self._spelled.append(text[at:stop])
        self._last = text[at:stop].rstrip()[-1:] or self._last
        self.ended = final and stop == len(text) and self._step == self._in_value
        return stop

    def _value_end(self, text: str, at: int, final: bool) -> int:
        begun = at
        while found := (self._inside[self._quote] if self._quote else self._outside).search(text, at):
            start, at = found.span()
            sign = found[0]
            if sign == "\\":
                if at == len(text) and not final:
                    return start
                at += 1
            elif sign in ("(", "[", "{") and not self._quote:
                self._depth += 1
            elif sign in ENDS and not self._quote:
                self._depth -= 1
                if self._depth <= 0:
                    self._step = self._after
                    return at
            elif not final and self._may_be_longer(text, start):
                return start
            elif sign == self._quote:
                if len(sign) > 1 and text.startswith(sign[0], at) and sign == sign[0] * len(sign):
                    at = start + 1  # a run of quotes ends the string with its last ones
                else:
                    self._quote = ""
            elif sign in self._notation.quotes and not self._quote:
                self._quote = sign
            elif self._stops_at(text, begun, start):
                self._step = self._after
                return start
        return len(text)

    def _may_be_longer(self, text: str, at: int) -> bool:
        """Whether more text could make a quote or a marker of what begins at `at`."""
        rest = text[at : at + 8]
        if at + len(rest) == len(text):
            quotes = (self._quote,) if self._quote else self._notation.quotes
            is_run = len(rest) > 2 and rest == rest[0] * len(rest)
            if any(quote.startswith(rest) and (quote != rest or is_run) for quote in quotes):
                return True
        return self._markers.is_begun(text, at)

    def _stops_at(self, text: str, begun: int, at: int) -> bool:
        """Whether a marker at `at` ends the block: a closer, perhaps in an apparent string, or the opener of the next
        block if no bracket is open."""
        marker = self._markers.standing(text, at)
        if not self._quote:
            return marker in self._block.closers or (bool(marker) and not self._depth)
        if marker not in self._block.closers:
            return False
        if (text[begun:at].rstrip()[-1:] or self._last) not in ENDS or not self._reads:
            return False
        self._reads -= 1
        return is_found(self._read(text[begun:at]))

    def _after(self, text: str, at: int, final: bool) -> int:
        if junk := self._junk.match(text, at):
            return junk.end()
        if at == len(text):
            self.ended = final
            return at
        if marker := self._markers.standing(text, at):
            return self._close(marker, at)
        if final and self._markers.is_begun(text, at):
            self.ended = True  # the closer's beginning, as a rule
            return len(text)
        if not final and (
            self._markers.is_begun(text, at) or (self._bare and self._notation.next_begun.fullmatch(text, at))
        ):
            return at
        if text[at] in "[{":
            self._finish()
            self._bare = False
            self._step, self._depth = self._in_value, 0
        elif self._bare and self._notation.next_call.match(text, at):
            self._spelled.append("\n")
            self._step, self._depth = self._in_value, 0
        elif is_found(self._read()):
            self.ended = True
        else:
            self._step = self._in_garbage
        return at

    def _in_garbage(self, text: str, at: int, final: bool) -> int:
        stop = self._garbage_end(self._markers, self._after, text, at, final)
        self._spelled.append(text[at:stop])
        return stop


@cache
def patterns(notation: Notation, firsts: frozenset[str]) -> tuple[re.Pattern[str], dict[str, re.Pattern[str]]]:
    """The patterns to look for outside of strings, and inside of those of each quote; markers begin with `firsts`."""
    outside = one_of((*notation.quotes, *"()[]{}", *firsts))
    escapes = {quote: "\\" if quote in notation.escapes else "" for quote in notation.quotes}
    return outside, {quote: one_of((quote, quote[0], *escapes[quote], *firsts)) for quote in notation.quotes}


def one_of(signs: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, sorted(set(signs), key=len, reverse=True))))


class LiteralReader(ABC):
    """Reads calls from the front of one text to its end, once: what the readers of such notations share."""

    BLANKS: re.Pattern[str]
    """What may stand between two tokens."""
    BETWEEN: re.Pattern[str]
    """What may stand between two calls."""
    HOW: str
    """How to write a call, for the model."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._name = ""  # of the call that is being read

    def calls(self, whole: bool) -> Calls:
        """All calls up to the first that cannot be read; that one is a `Fault`. Never empty, never raises.

        `whole` is false when the output ended inside of the text.
        """
        cut = f"the output ended inside of the call; {self.HOW}"
        found: list[Found | Fault] = []
        try:
            while self._ahead(self.BETWEEN):
                found.append(self._call(whole))
                self._name = ""
        except (ValueError, RecursionError) as error:
            found.append(Fault(f"the call cannot be read ({error}); {self.HOW}" if whole else cut, self._name))
        return tuple(found) or (Fault(f"the call is empty; {self.HOW}" if whole else cut),)

    # Each of these reads what its name says from here on and passes it. Raises: `Unreadable`, `RecursionError`.

    @abstractmethod
    def _call(self, whole: bool) -> Found:
        """One call; sets `_name` as soon as it is known."""

    def _ahead(self, blanks: re.Pattern[str] | None = None) -> str:
        """The next character behind blanks; empty at the end."""
        match = (blanks or self.BLANKS).match(self._text, self._at)
        self._at = match.end() if match else self._at
        return self._text[self._at : self._at + 1]

    def _take(self, token: str) -> str:
        if self._ahead() != token:
            return ""
        self._at += 1
        return token

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        self._ahead()
        match = pattern.match(self._text, self._at)
        self._at = match.end() if match else self._at
        return match

    def _comma(self, closer: str) -> str:
        """The comma behind an item; empty when the closer comes instead."""
        comma = self._take(",")
        if not comma and self._ahead() != closer:
            raise self._unreadable("a comma is missing")
        return comma

    def _unreadable(self, reason: str) -> Unreadable:
        return Unreadable(f"{reason} at character {self._at}")
