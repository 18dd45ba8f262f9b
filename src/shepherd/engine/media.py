"""Images and recordings in a prompt, as tokens: what tells one from another, and where a prompt may be cut. Pure.

    ... describe <|vision_start|> [ -1879048192 -40311 -88420173 ... ] <|vision_end|> ...
                                    └ the first of an image            all of one image: numbers from the hash of it

The cells of an image are computed from its pixels, so it has no tokens of the vocabulary. It gets numbers below zero
in their place, drawn from a hash of its pixels' file and of the projector that reads it: equal images have equal
numbers and other images have others, so that ledger, snapshots and forks compare images when they compare tokens. The
first number of an image is marked, which shows where the image before it ends. A recording counts as an image of
several parts.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from hashlib import shake_256

from shepherd.engine.base import Media

_FIRST = 1 << 30
"""Set in the first number of an image; each has 30 bits of the hash."""


def tokens_of(media: Media) -> array[int]:
    """The numbers that stand for it in a prompt."""
    drawn = array("I", shake_256(media.key).digest(4 * media.n_tokens))
    return array("i", (-1 - (number % _FIRST | (0 if at else _FIRST)) for at, number in enumerate(drawn)))


def is_inside(tokens: Sequence[int], index: int) -> bool:
    """Whether the token at `index` belongs to the same image as the one before it."""
    return 0 < index < len(tokens) and -_FIRST <= tokens[index] < 0


def whole(tokens: Sequence[int], length: int) -> int:
    """The largest length, at most `length`, that cuts no image in two. O(tokens of that image)."""
    while is_inside(tokens, length):
        length -= 1
    return length


def edges(media: Mapping[int, Media]) -> set[int]:
    return {at for start, each in media.items() for at in (start, start + each.n_tokens)}


def within(media: Mapping[int, Media], ranges: Sequence[tuple[int, int]]) -> list[Media]:
    """Those that begin in one of these ranges of tokens."""
    return [each for at, each in media.items() if any(start <= at < stop for start, stop in ranges)]
