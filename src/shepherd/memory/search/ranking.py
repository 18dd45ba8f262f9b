"""The messages that answer a question, best first.

    terms ─▶ postings, per FTS table ─▶ the likeliest hundred are read and scored ─▶ tables, and vectors, are merged
                                                           a model looks at the best once more, if there is one ◀┘

Age is not relevance: it only decides between equal scores. Users' messages rank above answers to them, unless the
question is about the answers.

Runs on any connection to the file, in the caller's thread.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import accumulate, islice
from math import exp
from typing import TYPE_CHECKING

import apsw

from shepherd.core.dataclasses import dataclass
from shepherd.memory.archive import queries
from shepherd.memory.archive.index import FTS_TABLES, TABLE_OF_ROLE
from shepherd.memory.records import RankedMessage
from shepherd.memory.search import tokenizer
from shepherd.memory.search.query import NO_FILTERS, Filters, Term, answer_type_of, is_about_answers, terms_of
from shepherd.memory.search.reranking import MOST, Reranking
from shepherd.memory.search.scope import MessageRow, find_scope
from shepherd.memory.search.scoring import Score, Scorer
from shepherd.memory.search.tokenizer import Tokenize
from shepherd.memory.search.words import STOP

if TYPE_CHECKING:
    from shepherd.memory.search.postings import FtsTable, Matches
    from shepherd.memory.search.vectors import Nearest

USER, OTHER = FTS_TABLES
MAX_READ = {USER: 100, OTHER: 30}
"""Messages of a table that are read, at most,"""
MARGIN = 40
"""and at most this many more than requested."""
MAX_COUNTED = {USER: 16_000, OTHER: 4_000}
"""Postings of a table that are counted, at most."""
MAX_NEWEST = 2_048
"""Messages that are looked at when the query is only a phrase or a prefix."""
REPLIES = 0.25
"""Weight of answers, when users' messages weigh 1.0."""
ANSWERED = 0.5
"""A question about answers gives them the weight 1.0, and adds this share of the score of the question they answer."""
SMOOTHING = 10
VECTORS = 0.4
"""Weight of the ranks by vectors, when the ranks by words weigh 1.0; greater where the words find little."""
SURE = 0.5
"""From this relevance of the best message on, the words have their full weight."""
UNSURE = 0.2
"""Below this share of `SURE` the weight of vectors does not grow further."""
FULL = 0.95
"""Relevance of a message that has every term once."""


def rank(
    connection: apsw.Connection,
    query: str,
    *,
    limit: int,
    filters: Filters = NO_FILTERS,
    without: Collection[int] = (),
    vectors: Nearest | None = None,
    reranking: Reranking | None = None,
) -> list[RankedMessage]:
    """The messages that answer a question, best first, at most `limit`; none when nothing does.

    Messages in `without` are skipped. A query without a letter or digit finds nothing, unless the filters have a phrase
    or prefix: then it finds the newest messages with that.

    Raises: `InvalidRequest` for a phrase or prefix without a letter or digit.
    """
    terms, required = terms_of(query), filters.required
    scope = find_scope(connection, filters)
    if scope is None or not (terms or required):
        return []
    from shepherd.memory.search.postings import FtsTable, Matches, find_matches  # noqa: PLC0415 - loads NumPy

    wanted = {TABLE_OF_ROLE.get(role) for role in filters.roles} or set(FTS_TABLES)
    tables = [FtsTable(connection, name, required, scope.first, scope.last) for name in FTS_TABLES if name in wanted]
    tokenize = tokenizer.word_tokenizer(connection)
    most = {table: min(MAX_READ[table.name], limit + MARGIN) for table in tables}

    def find(table: FtsTable) -> Matches:
        if not terms:
            return Matches(table.ids("", MAX_NEWEST), (), ())
        # Filters apply when a message is read. With them, every message that was counted may have to be read.
        n = None if scope.where else most[table] + len(frozenset(without))
        return find_matches(table, terms, n, MAX_COUNTED[table.name])

    matches = {table: find(table) for table in tables}
    missing = frozenset[int].intersection(*(each.missing for each in matches.values())) if terms and tables else ()
    if missing and (corrected := correct_spelling(tables, terms, missing, tokenize)) != terms:
        terms = corrected
        matches = {table: find(table) for table in tables}
    found = dict[str, list[ScoredMessage]]()
    for table, match in matches.items():
        scorer = Scorer(terms, match, answer_type_of(query), tokenize) if terms else None
        rows = scope.read(connection, match.ids.tolist(), without)
        found[table.name] = _scored(islice(rows, most[table]), scorer)
    questions, answers = found.get(USER, []), found.get(OTHER, [])
    if is_about_answers(query):
        scores = {(each.conversation, each.turn): each.rank_score for each in questions}
        for each in answers:
            each.rank_score += ANSWERED * scores.get((each.conversation, each.turn), 0.0)
    elif questions:
        for each in answers:
            each.rank_score *= REPLIES
    best = sorted(questions + answers, key=lambda each: (-round(each.rank_score, 6), -each.id))
    ranked = [
        RankedMessage(each.id, _relevance(each.score.share), each.score.coverage, each.score.n_terms) for each in best
    ]
    if vectors is not None:
        near = vectors(query, limit + len(without) + 100)
        inside = {each.id for each in scope.read(connection, [id for id, _ in near], without)}
        if required:
            inside.intersection_update(each.id for each in ranked)
        weight = VECTORS / 4 if is_about_answers(query) else VECTORS  # most answers have no vector
        ranked = fuse(ranked, [(id, cosine) for id, cosine in near if id in inside], weight)
    if reranking is not None and terms:
        ranked = _reranked(connection, query, ranked, reranking)
    return _monotonic(ranked[:limit])


def _reranked(
    connection: apsw.Connection, query: str, ranked: Sequence[RankedMessage], reranking: Reranking
) -> list[RankedMessage]:
    """The best messages in the order of the model that reads them with the question, then the others."""
    head = ranked[:MOST]
    body = {each.id: each.body for each in queries.stored(connection, [each.id for each in head])}
    order = reranking.order(query, [body[each.id] for each in head])
    return [*(head[at] for at in order), *ranked[MOST:]]


@dataclass(slots=True)
class ScoredMessage:
    id: int
    conversation: int
    turn: int
    score: Score
    rank_score: float
    """To compare messages of all tables."""


def _scored(rows: Iterable[MessageRow], scorer: Scorer | None) -> list[ScoredMessage]:
    """The messages with a score above 0. Without a scorer all are equal."""
    made = []
    for row in rows:
        score = scorer.score(row.body, row.context, row.reply_kind) if scorer else Score(1.0, 1.0, 1.0, 0)
        if score.share > 0:
            made.append(ScoredMessage(row.id, row.conversation, row.turn, score, score.score))
    return made


def fuse(
    ranked: Sequence[RankedMessage], near: Sequence[tuple[int, float]], weight: float = VECTORS
) -> list[RankedMessage]:
    """Both lists as one by reciprocal rank fusion, since their scores cannot be compared."""
    best = ranked[0].score if ranked else 0.0
    weight /= min(1.0, max(best / SURE, UNSURE))
    points = {each.id: 1 / (SMOOTHING + place) for place, each in enumerate(ranked, 1)}
    for place, (id, _) in enumerate(near, 1):
        points[id] = points.get(id, 0.0) + weight / (SMOOTHING + place)
    known = {each.id: each for each in ranked}
    cosines = dict(near)
    merged = []
    for id in sorted(points, key=lambda id: (-points[id], -id)):
        each = known.get(id) or RankedMessage(id, 0.0, 0.0, 0)
        relevance = max(each.score, FULL * min(cosines.get(id, 0.0), 1.0))
        merged.append(RankedMessage(id, relevance, each.coverage, each.n_terms))
    return merged


def _monotonic(ranked: Sequence[RankedMessage]) -> list[RankedMessage]:
    """Each message becomes at least as relevant as all that follow."""
    scores = list(accumulate((each.score for each in reversed(ranked)), max))[::-1]
    pairs = zip(ranked, scores, strict=True)
    return [RankedMessage(each.id, score, each.coverage, each.n_terms) for each, score in pairs]


def _relevance(share: float) -> float:
    """0.0 to 1.0, rising: `FULL` for 1.0."""
    return FULL * share if share <= 1 else 1 - (1 - FULL) * exp(1 - share)


# -- spelling ---------------------------------------------------------------------------------------------------------


SHORTEST_WORD = 5
"""Letters; a shorter word has too many neighbours."""
LONGEST_WORD = 40
"""Letters; a longer one is hardly a word, and the time for its neighbours grows with the square of its length."""
KEPT_LETTERS = 3
"""Letters at the beginning that are taken as correct, unless two are swapped or one is too many."""
LETTERS = "abcdefghijklmnopqrstuvwxyz"
MOST_WORDS = 2_000
"""Words of the archive that are compared."""
MOST_TERMS = 3
"""Terms of a question that are corrected."""


def correct_spelling(
    tables: Sequence[FtsTable], terms: Sequence[Term], missing: Collection[int], tokenize: Tokenize
) -> list[Term]:
    """The terms. A term of `missing` that no table has gets the words at an edit distance of 1 as near forms."""
    n_left = MOST_TERMS
    corrected = list(terms)
    for at in sorted(missing):
        word = terms[at].forms[0]
        is_candidate = SHORTEST_WORD <= len(word) <= LONGEST_WORD and word.isalpha() and word not in STOP["en"]
        if n_left and is_candidate and not any(table.contains(terms[at]) for table in tables):
            n_left -= 1
            neighbours = {other: None for table in tables for other in _neighbours(table, word, tokenize)}
            corrected[at] = Term(terms[at].forms, (*terms[at].near, *neighbours))
    return corrected


def _neighbours(table: FtsTable, word: str, tokenize: Tokenize) -> list[str]:
    """Stems of the table with one letter missing, wrong, too many, or swapped with the next."""
    words, start = table.name.replace("fts_", "terms_"), word[:KEPT_LETTERS]
    rows = table.connection.execute(
        f"SELECT term FROM {words} WHERE term >= ? AND term < ? LIMIT ?", (start, start + "\U0010ffff", MOST_WORDS)
    )
    found = {term for (term,) in rows}.intersection(tokenize(" ".join(_replaced(word))))
    for stem in set(tokenize(" ".join(_shorter(word)))):
        if table.connection.execute(f"SELECT 1 FROM {words} WHERE term = ?", (stem,)).get:
            found.add(stem)
    return sorted(found)


def _shorter(word: str) -> Iterator[str]:
    for at in range(len(word) - 1):
        yield word[:at] + word[at + 1] + word[at] + word[at + 2 :]
    for at in range(len(word)):
        yield word[:at] + word[at + 1 :]


def _replaced(word: str) -> Iterator[str]:
    letters = dict.fromkeys(LETTERS + word)
    for at in range(KEPT_LETTERS, len(word) + 1):
        for letter in letters:
            yield word[:at] + letter + word[at:]
            yield word[:at] + letter + word[at + 1 :]
