"""Which messages of a lane may answer: the first, cheap look at an archive of any size.

A lane tells in 0.1 µs that a message holds a term. FTS5's own `bm25` takes ten times as long, and calls a term that is
in more than half of the messages worthless, which in a young archive is every term. So messages are counted here by
the rarity of what they hold, and `ranking` reads the best of them. However frequent a term is, no more of it is read
than the budget has left: then its newest messages stand for it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import apsw
import numpy as np

from shepherd.memory.search.query import Term, any_of

Ids = np.ndarray[Any, np.dtype[np.int64]]
NOTHING: Ids = np.empty(0, np.int64)

GLANCE = 256
"""Of each term so many of its newest messages are looked at first, to see how frequent it is."""
CROWD = 50_000
"""In a lane of more messages than this, contexts are not looked at: what they quote is found itself."""
WINDOW = 100_000
"""Of so many of the newest ids it is asked which hold two terms that are both above the budget."""
OWN = 1.5
"""What a term counts more in the message itself, when 1.0 in its context."""
NEARLY = 0.4
"""What a near form counts, when 1.0 the term itself."""


@dataclass(frozen=True, slots=True)
class Lane:
    """One lane, and where in it to look."""

    connection: apsw.Connection
    table: str
    required: str = ""
    """What every message must match, as FTS5 has it."""
    first: int = 0
    last: int = 2**62
    """Ids outside are not looked at."""

    def ids(self, match: str, most: int, *, first: int = 0) -> Ids:
        """The newest messages that match, at most so many, newest first."""
        match = " AND ".join(f"({part})" for part in (self.required, match) if part)
        found = self.connection.execute(
            f"SELECT group_concat(rowid) FROM (SELECT rowid FROM {self.table} WHERE {self.table} MATCH ? "
            "AND rowid BETWEEN ? AND ? ORDER BY rowid DESC LIMIT ?)",
            (match, max(first, self.first), self.last, most),
        ).get
        return np.fromstring(found, np.int64, sep=",") if found else NOTHING

    def knows(self, term: Term) -> bool:
        """Whether any message holds it."""
        found = f"SELECT 1 FROM {self.table} WHERE {self.table} MATCH ? LIMIT 1"
        return bool(self.connection.execute(found, (any_of(term.said),)).get)

    @property
    def n_messages(self) -> int:
        """How many messages it holds: the first number of FTS5's averages, 7 bits a byte, highest first."""
        number = 0
        for byte in self.connection.execute(f"SELECT block FROM {self.table}_data WHERE id = 1").get or b"":
            number = number << 7 | byte & 0x7F
            if byte < 0x80:
                break
        return number


@dataclass(frozen=True, slots=True)
class Found:
    """What a lane knows of a question."""

    ids: Ids
    """Those that may answer, best first."""
    rarity: tuple[float, ...]
    """Of each term, its inverse document frequency; above 0.0."""
    near_rarity: tuple[float, ...]
    """Of its near forms together; 0.0 = nobody says them."""
    unsaid: frozenset[int] = frozenset()
    """Terms that no message holds."""
    is_crowd: bool = False
    """The lane is too large for contexts to be looked at."""


def look(lane: Lane, terms: Sequence[Term], most: int | None, budget: int) -> Found:
    """The messages that hold the most of what is asked, at most so many (None = all), of equals the newest first.

    `budget`: so many messages are counted over all terms, beside those of the first glance.
    """
    n_messages = min(lane.n_messages, lane.last - lane.first + 1)
    is_crowd = n_messages > CROWD
    matches = [any_of(term.said) for term in terms]
    lists = [lane.ids(match, GLANCE) for match in matches]
    counts = [_count(ids, n_messages) for ids in lists]
    left, cut = budget, list[int]()
    for at in sorted(range(len(terms)), key=counts.__getitem__):
        is_whole = len(lists[at]) < GLANCE
        if not is_whole and counts[at] <= left:
            lists[at] = lane.ids(f"body : ({matches[at]})" if is_crowd else matches[at], left)
            is_whole = len(lists[at]) < left
            counts[at] = len(lists[at]) if is_whole and not is_crowd else counts[at]
            left -= len(lists[at])
        if not is_whole:
            cut.append(at)
    rarity = [_rarity(count, n_messages) for count in counts]
    near = [
        lane.ids(any_of(term.near), GLANCE) if term.near and not (is_crowd and count) else NOTHING
        for term, count in zip(terms, counts, strict=True)
    ]
    near_rarity = [_rarity(_count(ids, n_messages), n_messages) if len(ids) else 0.0 for ids in near]
    parts = list(zip(lists, rarity, strict=True)) + [
        (ids, NEARLY * worth) for ids, worth in zip(near, near_rarity, strict=True)
    ]
    if not is_crowd:
        for ids, match, worth in zip(lists, matches, rarity, strict=True):
            if len(ids):
                parts.append((lane.ids(f"body : ({match})", len(ids), first=int(ids.min())), OWN * worth))
    if len(cut) > 1:
        one, other = cut[:2]
        newest = int(max(lists[one][0], lists[other][0]))
        match = f"body : ({matches[one]}) AND body : ({matches[other]})"
        both = lane.ids(match, 4 * GLANCE, first=newest - WINDOW)
        own = 1.0 if is_crowd else 1 + OWN
        parts += [(np.setdiff1d(both, lists[at], assume_unique=True), own * rarity[at]) for at in (one, other)]
    unsaid = frozenset(at for at, count in enumerate(counts) if not count)
    return Found(_best(parts, most), tuple(rarity), tuple(near_rarity), unsaid, is_crowd)


def _rarity(count: int, n_messages: int) -> float:
    return math.log(1 + (max(n_messages - count, 0) + 0.5) / (count + 0.5))


def _count(newest: Ids, n_messages: int) -> int:
    """How many messages hold a term, judged by how close together the newest of them are."""
    if len(newest) < GLANCE:
        return len(newest)
    return max(GLANCE, round(n_messages * GLANCE / int(newest[0] - newest[-1] + 1)))


def _best(parts: Sequence[tuple[Ids, float]], most: int | None) -> Ids:
    """The ids that are worth most together, of equals the greatest first."""
    ids = np.concatenate([NOTHING, *(ids for ids, _ in parts)])
    if not len(ids):
        return ids
    worth = np.repeat([worth for _, worth in parts], [len(ids) for ids, _ in parts])
    order = np.argsort(ids, kind="stable")
    ids, worth = ids[order], worth[order]
    starts = np.flatnonzero(np.concatenate([[True], ids[1:] != ids[:-1]]))
    ids, worth = ids[starts], np.add.reduceat(worth, starts).round(9)
    if most is not None and most < len(ids):
        least = np.partition(worth, len(ids) - most)[len(ids) - most]
        ids, worth = ids[worth >= least], worth[worth >= least]
    return ids[np.lexsort((-ids, -worth))][:most]
