"""The messages that answer a question, best first.

    terms ─▶ postings, per lane ─▶ the likeliest hundred are read and marked ─▶ lanes, and vectors, are merged

Age is not relevance: it only decides between equals. What users say comes before what is said to them, unless the
question is about that.

Runs on any connection to the file; no thread of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from math import exp

import apsw

from shepherd.memory.archive.index import LANES
from shepherd.memory.records import Ranked
from shepherd.memory.search import tokenizer
from shepherd.memory.search.postings import Found, Lane, look
from shepherd.memory.search.query import Filters, Term, aim_of, is_about_answers, terms_of
from shepherd.memory.search.region import Region, region_of
from shepherd.memory.search.scoring import WEIGHTS, Mark, Scorer, Weights
from shepherd.memory.search.spelling import respelled

Nearest = Callable[[str, int], Sequence[tuple[int, float]]]
"""A text and how many: the messages closest in meaning with their cosine, best first."""

ANYWHERE = Filters()
USER, OTHER = "fts_user", "fts_other"
POOL = {USER: 100, OTHER: 30}
"""At most so many messages of a lane are read,"""
SPARE = 40
"""and no more than this above the number that is asked for."""
BUDGET = {USER: 16_000, OTHER: 4_000}
"""So many messages of a lane are counted that hold a term."""
NEWEST = 2_048
"""So many are looked at when nothing but a phrase or prefix is asked for."""
REPLIES = 0.25
"""What is said to users counts so much of what they say themselves."""
ANSWERED = 0.5
"""Where the question is about that, it counts in full, and so much more of the score of what it answers."""
SMOOTHING = 10
VECTORS = 0.4
"""Weight of the vectors' ranks, when 1.0 the words' ranks; more where the words say little."""
SURE = 0.5
"""Relevance of the best message from which on words are trusted so."""
UNSURE = 0.2
"""Below this share of `SURE` the vectors' weight grows no more."""
FULL = 0.95
"""Relevance of what says once all that was asked for."""


def rank(
    connection: apsw.Connection,
    query: str,
    *,
    limit: int,
    filters: Filters = ANYWHERE,
    without: Collection[int] = (),
    vectors: Nearest | None = None,
    weights: Weights = WEIGHTS,
) -> list[Ranked]:
    """The messages that answer a question, best first, at most `limit`; none when nothing does.

    `without` are ids that are not looked for. A query without a letter or digit finds nothing, unless the filters ask
    for a phrase or prefix: then the newest that have it.

    Raises: `InvalidRequest` for a phrase or prefix without a letter or digit.
    """
    terms, required = terms_of(query), filters.required
    region = region_of(connection, filters)
    if region is None or not (terms or required):
        return []
    asked = {LANES.get(role) for role in filters.roles} or set(POOL)
    lanes = [Lane(connection, table, required, region.first, region.last) for table in POOL if table in asked]
    task = Task(query, terms, tokenizer.words(connection), region, frozenset(without), limit + SPARE, weights)
    looked = {lane: task.look(lane) for lane in lanes}
    unsaid = frozenset[int].intersection(*(each.unsaid for each in looked.values())) if terms and lanes else ()
    if unsaid and (meant := respelled(lanes, terms, unsaid, task.tokenize)) != terms:
        task = replace(task, terms=meant)
        looked = {lane: task.look(lane) for lane in lanes}
    found = {lane.table: task.read(lane, each) for lane, each in looked.items()}
    told, replied = found.get(USER, []), found.get(OTHER, [])
    if is_about_answers(query):
        scores = {(each.conversation, each.turn): each.score for each in told}
        for each in replied:
            each.score += ANSWERED * scores.get((each.conversation, each.turn), 0.0)
    elif told:
        for each in replied:
            each.score *= REPLIES
    best = sorted(told + replied, key=lambda each: (-round(each.score, 6), -each.id))
    ranked = [Ranked(each.id, _relevance(each.mark.share), each.mark.coverage, each.mark.n_terms) for each in best]
    if vectors is not None:
        near = vectors(query, limit + len(without) + 100)
        inside = {each.id for each in region.read(connection, [id for id, _ in near], without)}
        if required:
            inside.intersection_update(each.id for each in ranked)
        weight = VECTORS / 4 if is_about_answers(query) else VECTORS  # there are none of most answers
        ranked = fused(ranked, [(id, cosine) for id, cosine in near if id in inside], weight)
    return _falling(ranked[:limit])


def recent(
    connection: apsw.Connection, *, limit: int, filters: Filters = ANYWHERE, without: Collection[int] = ()
) -> list[int]:
    """The ids of the newest messages that say something, newest first."""
    region = region_of(connection, filters)
    return region.newest(connection, limit, without) if region else []


@dataclass(slots=True)
class Candidate:
    """A message that was read."""

    id: int
    conversation: int
    turn: int
    mark: Mark
    score: float


@dataclass(frozen=True, slots=True)
class Task:
    """One question, and where to look."""

    query: str
    terms: Sequence[Term]
    tokenize: tokenizer.Tokenize
    region: Region
    without: frozenset[int]
    most: int
    """Messages of a lane that are read."""
    weights: Weights

    def look(self, lane: Lane) -> Found:
        """The messages of a lane that may answer."""
        if not self.terms:
            return Found(lane.ids("", NEWEST), (), ())
        # Filters are looked at only when a message is read: with them all that were counted may have to be.
        enough = None if self.region.where else min(POOL[lane.table], self.most) + len(self.without)
        return look(lane, self.terms, enough, BUDGET[lane.table])

    def read(self, lane: Lane, found: Found) -> list[Candidate]:
        """The likeliest of them, with their marks."""
        scorer = Scorer(self.terms, found, aim_of(self.query), self.tokenize, self.weights)
        made = []
        rows = self.region.read(lane.connection, found.ids.tolist(), self.without)
        for row in islice(rows, min(POOL[lane.table], self.most)):
            mark = scorer.mark(row.body, row.context, row.place) if self.terms else Mark(1.0, 1.0, 1.0, 0)
            if mark.share > 0:
                made.append(Candidate(row.id, row.conversation, row.turn, mark, mark.score))
        return made


def fused(ranked: Sequence[Ranked], near: Sequence[tuple[int, float]], weight: float = VECTORS) -> list[Ranked]:
    """Both lists as one by reciprocal ranks: either order is worth something, their scores cannot be compared."""
    best = ranked[0].score if ranked else 0.0
    weight /= min(1.0, max(best / SURE, UNSURE))
    points = {each.id: 1 / (SMOOTHING + place) for place, each in enumerate(ranked, 1)}
    for place, (id, _) in enumerate(near, 1):
        points[id] = points.get(id, 0.0) + weight / (SMOOTHING + place)
    known = {each.id: each for each in ranked}
    cosines = dict(near)
    merged = []
    for id in sorted(points, key=lambda id: (-points[id], -id)):
        each = known.get(id) or Ranked(id, 0.0, 0.0, 0)
        relevance = max(each.score, FULL * min(cosines.get(id, 0.0), 1.0))
        merged.append(Ranked(id, relevance, each.coverage, each.n_terms))
    return merged


def _falling(ranked: Sequence[Ranked]) -> list[Ranked]:
    """The same, each at least as relevant as all that follow."""
    fallen: list[Ranked] = []
    for each in reversed(ranked):
        score = max(each.score, fallen[-1].score) if fallen else each.score
        fallen.append(Ranked(each.id, score, each.coverage, each.n_terms))
    return fallen[::-1]


def _relevance(share: float) -> float:
    """0.0 to 1.0: `FULL` for 1.0, and never less for more."""
    return FULL * share if share <= 1 else 1 - (1 - FULL) * exp(1 - share)
