"""How much a run proves of what is too much for every run: large grids, random searches, kills.

| `SHEPHERD_THOROUGH` | what is proved                                                         | two cores        |
| ------------------- | ---------------------------------------------------------------------- | ---------------- |
| `-1`                | the first case of every test; nothing `costly`                        | under a minute   |
|                     | `make check` sets it, for the tests that need no model                 |                  |
| not set             | the first case of every test, and half of the others; of a grid        | under 4 minutes  |
|                     | (`sampled`) its share; short searches; one in 25 of the tests that     |                  |
|                     | take longest (`costly`)                                                |                  |
| `1`                 | all of it; `.ci/run` sets it                                           | under 30 minutes |
| `2`                 | longer searches from other random numbers, a thousand kills            | hours            |

The share turns with the commit, so that what one commit leaves out another one proves. `SHEPHERD_SAMPLE` repeats the
share of the run that printed it. A run that names its tests (`file.py::test`, `-k`) leaves nothing out.
"""

from __future__ import annotations

import functools
import os
import subprocess
from collections.abc import Callable, Hashable, Iterable
from hashlib import blake2b
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

LEVEL = int(os.environ.get("SHEPHERD_THOROUGH") or 0)

QUICK = 0.04
"""Share of the tests marked `costly` that a quick run takes."""

COSTLY = QUICK if LEVEL == 0 else 0.0
"""The share that this run takes where it takes shares at all."""

HALF = 0.5
"""Share of the cases behind the first one that a quick run takes of every test that names no share."""

GLANCE = 0.02
"""Share of the cases behind the first one that `SHEPHERD_THOROUGH=-1` takes of every test."""


def amount(quick: T, thorough: T, exhaustive: T | None = None) -> T:
    """The one of the three that this run wants; without a third, the second is all there is."""
    return (quick, thorough, thorough if exhaustive is None else exhaustive)[max(0, min(LEVEL, 2))]


def examples(thorough: int) -> int:
    """Of a random search by Hypothesis: a fifth in a quick run."""
    return amount(max(5, thorough // (5 if LEVEL == 0 else 20)), thorough)


@functools.cache
def turn() -> str:
    """What the share of this run depends on: the commit, if `SHEPHERD_SAMPLE` is not set."""
    if asked := os.environ.get("SHEPHERD_SAMPLE"):
        return asked
    command = ["git", "rev-parse", "--short=10", "HEAD"]
    try:
        found = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    except OSError:  # no git
        return "none"
    return found.stdout.strip() or "none"  # no repository


def seed() -> int:
    """Of the random searches of this run."""
    return int.from_bytes(blake2b(turn().encode(), digest_size=4).digest(), "big")


def is_chosen(name: str, share: float, of: str | None = None) -> bool:
    """Whether this case belongs to the share of this run, or of the run whose turn is given."""
    drawn = blake2b(f"{of or turn()} {name}".encode(), digest_size=8).digest()
    return int.from_bytes(drawn, "big") < share * 2**64


def sampled(
    cases: Iterable[T],
    share: float | Callable[[T], float],
    *,
    name: Callable[[T], str] = str,
    family: Callable[[T], Hashable] | None = None,
) -> list[T]:
    """This run's share of some cases: the first of each family (of all, if there are none), and others by chance.

    `share`: 0 to 1, of a run that is not thorough, the same for all or by case; `name`: what a case is drawn by.
    """
    every = list(cases)
    if LEVEL > 0:
        return every
    seen = set[Hashable]()
    chosen = []
    for case in every:
        kind = family(case) if family else None
        if kind not in seen or is_chosen(name(case), share(case) if callable(share) else share):
            seen.add(kind)
            chosen.append(case)
    return chosen
