"""The likeliest messages of an FTS5 table: the first, cheap pass over an archive of any size.

A posting list gives a message in 0.1 µs. FTS5's own `bm25` takes ten times as long, and gives no weight to a term that
is in more than half of the messages, which in a young archive is every term. So messages are weighed here by the
inverse document frequency (idf) of the terms they have, and `ranking` reads the best. A posting list is never read
beyond what is left of the budget: then its newest messages stand for all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import apsw
import numpy as np

from shepherd.core.dataclasses import dataclass
from shepherd.memory.search.query import Term, match_any

Ids = np.ndarray[Any, np.dtype[np.int64]]
NO_IDS: Ids = np.empty(0, np.int64)

SAMPLE = 256
"""Newest postings of a term that are read first, to estimate its frequency."""
LARGE_TABLE = 50_000
"""Messages from which on contexts are not searched: the messages that they quote are found themselves."""
WINDOW = 100_000
"""Newest ids that are searched for messages with two terms whose lists are both longer than the budget."""
BODY_WEIGHT = 1.5
"""Added weight of a term in the message itself, when it weighs 1.0 in the context."""
NEAR_WEIGHT = 0.4
"""Weight of a near form, when the term itself weighs 1.0."""


@dataclass(frozen=True, slots=True)
class FtsTable:
    connection: apsw.Connection
    name: str
    required: str = ""
    """A condition in FTS5's syntax that every message must match."""
    first: int = 0
    last: int = 2**62

    def ids(self, match: str, most: int, *, first: int = 0) -> Ids:
        """The newest messages that match, newest first, at most `most`."""
        match = " AND ".join(f"({part})" for part in (self.required, match) if part)
        found = self.connection.execute(
            f"SELECT group_concat(rowid) FROM (SELECT rowid FROM {self.name} WHERE {self.name} MATCH ? "
            "AND rowid BETWEEN ? AND ? ORDER BY rowid DESC LIMIT ?)",
            (match, max(first, self.first), self.last, most),
        ).get
        return np.fromstring(found, np.int64, sep=",") if found else NO_IDS

    def contains(self, term: Term) -> bool:
        found = f"SELECT 1 FROM {self.name} WHERE {self.name} MATCH ? LIMIT 1"
        return bool(self.connection.execute(found, (match_any(term.forms),)).get)

    @property
    def n_messages(self) -> int:
        """The number of messages: the first varint of FTS5's averages record, its highest 7 bits first."""
        number = 0
        for byte in self.connection.execute(f"SELECT block FROM {self.name}_data WHERE id = 1").get or b"":
            number = number << 7 | byte & 0x7F
            if byte < 0x80:
                break
        return number


@dataclass(frozen=True, slots=True)
class Matches:
    """The messages of a table that may answer a question, and the frequencies of its terms."""

    ids: Ids
    """Best first."""
    idf: tuple[float, ...]
    """Inverse document frequency of each term; above 0.0."""
    near_idf: tuple[float, ...]
    """Of the near forms of each term together; 0.0 = no message has one."""
    missing: frozenset[int] = frozenset()
    """Terms that no message has."""
    is_large: bool = False
    """The table is too large for contexts to be searched."""


def find_matches(table: FtsTable, terms: Sequence[Term], most: int | None, budget: int) -> Matches:
    """The messages with the greatest sum of idf, at most `most` (None = all); of equals the newest first.

    `budget`: postings that are read for all terms together, beside the first sample of each.
    """
    n_messages = min(table.n_messages, table.last - table.first + 1)
    is_large = n_messages > LARGE_TABLE
    matches = [match_any(term.forms) for term in terms]
    lists = [table.ids(match, SAMPLE) for match in matches]
    counts = [_estimated_count(ids, n_messages) for ids in lists]
    left, cut = budget, list[int]()
    for at in sorted(range(len(terms)), key=counts.__getitem__):
        is_whole = len(lists[at]) < SAMPLE
        if not is_whole and counts[at] <= left:
            lists[at] = table.ids(f"body : ({matches[at]})" if is_large else matches[at], left)
            is_whole = len(lists[at]) < left
            counts[at] = len(lists[at]) if is_whole and not is_large else counts[at]
            left -= len(lists[at])
        if not is_whole:
            cut.append(at)
    idf = [_idf(count, n_messages) for count in counts]
    near = [
        table.ids(match_any(term.near), SAMPLE) if term.near and not (is_large and count) else NO_IDS
        for term, count in zip(terms, counts, strict=True)
    ]
    near_idf = [_idf(_estimated_count(ids, n_messages), n_messages) if len(ids) else 0.0 for ids in near]
    parts = list(zip(lists, idf, strict=True)) + [
        (ids, NEAR_WEIGHT * weight) for ids, weight in zip(near, near_idf, strict=True)
    ]
    if not is_large:
        for ids, match, weight in zip(lists, matches, idf, strict=True):
            if len(ids):
                parts.append((table.ids(f"body : ({match})", len(ids), first=int(ids.min())), BODY_WEIGHT * weight))
    if len(cut) > 1:
        one, other = cut[:2]
        newest = int(max(lists[one][0], lists[other][0]))
        match = f"body : ({matches[one]}) AND body : ({matches[other]})"
        both = table.ids(match, 4 * SAMPLE, first=newest - WINDOW)
        own = 1.0 if is_large else 1 + BODY_WEIGHT
        parts += [(np.setdiff1d(both, lists[at], assume_unique=True), own * idf[at]) for at in (one, other)]
    missing = frozenset(at for at, count in enumerate(counts) if not count)
    return Matches(_heaviest(parts, most), tuple(idf), tuple(near_idf), missing, is_large)


def _idf(count: int, n_messages: int) -> float:
    return math.log(1 + (max(n_messages - count, 0) + 0.5) / (count + 0.5))


def _estimated_count(newest: Ids, n_messages: int) -> int:
    """How many messages have a term, by the distance between the newest of them."""
    if len(newest) < SAMPLE:
        return len(newest)
    return max(SAMPLE, round(n_messages * SAMPLE / int(newest[0] - newest[-1] + 1)))


def _heaviest(parts: Sequence[tuple[Ids, float]], most: int | None) -> Ids:
    """The ids with the greatest sum of weights; of equals the greatest first."""
    ids = np.concatenate([NO_IDS, *(ids for ids, _ in parts)])
    if not len(ids):
        return ids
    weight = np.repeat([weight for _, weight in parts], [len(ids) for ids, _ in parts])
    order = np.argsort(ids, kind="stable")
    ids, weight = ids[order], weight[order]
    starts = np.flatnonzero(np.concatenate([[True], ids[1:] != ids[:-1]]))
    ids, weight = ids[starts], np.add.reduceat(weight, starts).round(9)
    if most is not None and most < len(ids):
        least = np.partition(weight, len(ids) - most)[len(ids) - most]
        ids, weight = ids[weight >= least], weight[weight >= least]
    return ids[np.lexsort((-ids, -weight))][:most]
