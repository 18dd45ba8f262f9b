"""Which cases a run takes where there are too many: large grids, random searches, kills.

The gate (`uv run pytest`) takes the same cases at every commit: of a grid a fixed part, of a random search a few
examples that follow from the test's own source. `SHEPHERD_SEARCH=SEED`, which `make search` sets, takes every case of
every grid, and many more examples, which follow from the seed. A run that names files or tests takes their grids whole.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterable
from hashlib import blake2b
from typing import TypeVar

T = TypeVar("T")

SEED = int(os.environ["SHEPHERD_SEARCH"]) if os.environ.get("SHEPHERD_SEARCH") else None
"""Of a search; None in the gate."""


def seed() -> int:
    """Of random numbers that are not Hypothesis's."""
    return SEED or 0


def amount(gate: T, search: T) -> T:
    """The one of the two that this run wants."""
    return gate if SEED is None else search


def examples(n: int) -> int:
    """How many examples a random search by Hypothesis tries, where `n` find most faults: the gate a tenth of them."""
    return amount(max(5, n // 10), 5 * n)


def is_chosen(name: str, share: float) -> bool:
    """Whether the case of this name belongs to the part of its grid that the gate takes. Other cases change nothing."""
    drawn = blake2b(name.encode(), digest_size=8).digest()
    return int.from_bytes(drawn, "big") < share * 2**64


def few(
    cases: Iterable[T],
    share: float | Callable[[T], float],
    *,
    name: Callable[[T], str] = str,
    family: Callable[[T], Hashable] | None = None,
) -> list[T]:
    """The cases that this run takes: in the gate the first of each family (of all, if there are none) and a share.

    `share`: 0 to 1, the same for all or by case; `name`: what a case is chosen by.
    """
    every = list(cases)
    if SEED is not None:
        return every
    seen = set[Hashable]()
    taken = []
    for case in every:
        kind = family(case) if family else None
        if kind not in seen or is_chosen(name(case), share(case) if callable(share) else share):
            seen.add(kind)
            taken.append(case)
    return taken
