"""Parts of a text: the spans of search terms, a snippet around them, a shorter version; and near-duplicate detection.

Pure, but for the tokenizer, which is the index's own.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import NamedTuple

from shepherd.memory.archive.index import spaced
from shepherd.memory.search.query import Term
from shepherd.memory.search.tokenizer import Locate

ALIKE = 0.72
"""The share of common shingles (runs of four characters) from which on two texts are near-duplicates."""
COMPARED_CHARS = 2_000
READ_CHARS = 20_000
"""Of a text, in which terms are searched."""
ELLIPSIS = "…"
NEAR_CHARS = 20
"""A snippet may lose so much at either end to have whole words."""

_NUMBER = re.compile(r"-?\d+")
_NEGATION = re.compile(r"\b(?:no|not|never|none|without|cannot|nicht|kein\w*|nie|pas|jamais|nunca|non)\b|n['’]t\b")


class TermSpan(NamedTuple):
    """Characters [start, stop)."""

    start: int
    stop: int
    term: int


def term_spans(text: str, terms: Sequence[Term], locate: Locate) -> list[TermSpan]:
    """The terms in a text, in its order; near forms included."""
    starts: dict[str, list[tuple[list[str], int]]] = {}
    for at, term in enumerate(terms):
        for form in (*term.forms, *term.near):
            if words := [word for _, _, word in locate(form)]:
                starts.setdefault(words[0], []).append((words[1:], at))
    text = text[:READ_CHARS]
    found = locate(spaced(text))
    words_found = [word for _, _, word in found]
    hits = []
    for n, (start, stop, word) in enumerate(found):
        for others, at in starts.get(word, ()):
            if words_found[n + 1 : n + 1 + len(others)] == others:
                hits.append((start, found[n + len(others)][1] if others else stop, at))
    return _in_characters(text, hits)


def snippet(text: str, found: Sequence[TermSpan], chars: int) -> str:
    """The piece of the text, at most `chars` long, with the most terms; white space becomes single blanks."""
    if len(text) <= chars:
        return " ".join(text.split())
    room = chars - 2 * len(ELLIPSIS)
    first, last = _densest(found, room)
    start = max(0, first - (room - (last - first)) // 2)
    start = min(start, len(text) - room)
    stop = start + room
    if start > 0 and not text[start - 1].isspace():  # begin with a whole word, if that costs little and no term
        blank = text.find(" ", start, min(start + NEAR_CHARS, max(first, start) if last else stop))
        start = blank if blank >= 0 else start
    if stop < len(text) and not text[stop].isspace():
        blank = text.rfind(" ", max(stop - NEAR_CHARS, last, start), stop)
        stop = blank if blank > start else stop
    before, after = ELLIPSIS if start > 0 else "", ELLIPSIS if stop < len(text) else ""
    return before + " ".join(text[start:stop].split()) + after


def _densest(found: Sequence[TermSpan], room: int) -> tuple[int, int]:
    """The span of at most `room` characters with the most terms; (0, 0) for none."""
    best, span, last = 0, (0, 0), 0
    inside: Counter[int] = Counter()
    for first, place in enumerate(found):
        last = max(last, first)
        while last < len(found) and found[last].stop <= place.start + room:
            inside[found[last].term] += 1
            last += 1
        n_terms = sum(count > 0 for count in inside.values())
        if n_terms > best:
            best, span = n_terms, (place.start, found[last - 1].stop)
        if last > first:
            inside[place.term] -= 1
    return span


def shorten(text: str, chars: int) -> str:
    """The text, at most `chars` long; the middle is left out."""
    if len(text) <= chars:
        return text
    head = (chars - 3 + 1) // 2
    tail = chars - 3 - head
    return f"{text[:head].rstrip()} {ELLIPSIS} {text[len(text) - tail :].lstrip()}" if tail > 0 else text[:chars]


FEW_WORDS = 6
"""With fewer words they are not compared: one may be a whole sentence of Chinese."""


class ComparedText:
    def __init__(self, text: str) -> None:
        self.text = text[:COMPARED_CHARS].casefold()
        self.plain = " ".join(re.findall(r"\w+", self.text)) or self.text  # such as one emoji
        self.numbers = _NUMBER.findall(self.text)
        self.words = frozenset(self.plain.split())

    @cached_property
    def shingles(self) -> frozenset[str]:
        return frozenset(self.plain[at : at + 4] for at in range(max(1, len(self.plain) - 3)))

    def is_near_duplicate_of(self, other: ComparedText) -> bool:
        """Whether nearly all letters, every number and the count of negations agree."""
        if self.numbers != other.numbers:
            return False
        if self.plain == other.plain:
            return True
        if min(len(self.plain), len(other.plain)) < ALIKE * max(len(self.plain), len(other.plain)):
            return False
        n_words = max(len(self.words), len(other.words))
        if n_words >= FEW_WORDS and 2 * len(self.words & other.words) < n_words:
            return False  # a cheap test first: most texts differ
        mine, theirs = self.shingles, other.shingles
        if len(mine & theirs) < ALIKE * len(mine | theirs):
            return False
        return len(_NEGATION.findall(self.text)) == len(_NEGATION.findall(other.text))


def _in_characters(text: str, hits: Iterable[tuple[int, int, int]]) -> list[TermSpan]:
    """Spans in bytes of the spaced text as spans in characters of the text."""
    if text.isascii():
        return [TermSpan(*hit) for hit in hits]
    starts, at = [], 0
    for char in text:
        wide = spaced(char)
        at += wide.index(char)
        starts.append(at)
        at += len(wide.encode()) - wide.index(char)
    return [TermSpan(bisect_right(starts, start) - 1, bisect_left(starts, stop), term) for start, stop, term in hits]
