"""How well a choice fits what is typed: it begins with it, has it inside, or has its letters in order. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal, TypeVar

T = TypeVar("T")
Rank = Literal[0, 1, 2, 3, 4]

BEGINS: Rank = 1
"""The text begins with what is typed; 0: it is the same. Then: one of its words does, it has it inside, it has the
letters in order."""


def rank(typed: str, text: str) -> Rank | None:
    """How well a text fits, best first, in any case; None where it does not. Letters in order count from the beginning
    of a word on."""
    small, whole = typed.casefold(), text.casefold()
    if whole.startswith(small):
        return 0 if whole == small else BEGINS
    bare = small.lstrip("/")
    if len(bare) < 2:
        return None
    if re.search(rf"(?<![^\W_]){re.escape(bare)}", whole):
        return 2
    if bare in whole:
        return 3
    starts = (found.start() for found in re.finditer(rf"(?<![^\W_]){re.escape(bare[0])}", whole))
    return 4 if _is_in_order(bare, whole[next(starts, len(whole)) :]) else None  # the first start leaves the most


def _is_in_order(letters: str, text: str) -> bool:
    left = iter(text)
    return all(letter in left for letter in letters)


def fitting(typed: str, choices: Iterable[tuple[str, T]]) -> list[tuple[str, T]]:
    """The choices whose texts begin with what is typed; where there are none, those that fit otherwise. The best first,
    equal ones in their order."""
    found = [(how, choice) for choice in choices if (how := rank(typed, choice[0])) is not None]
    most = BEGINS if any(how <= BEGINS for how, _ in found) else 4
    return [choice for how, choice in sorted(found, key=lambda each: each[0]) if how <= most]
