"""The exchanges that answer a question, best first, and their text for a model or a user.

`ranking` finds messages. Here the messages of one turn become one result, of near-duplicates the newest is shown, and
texts are shortened.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import apsw

from shepherd.core import InvalidRequest, Role
from shepherd.memory.records import Hit, Trust, clean, to_datetime
from shepherd.memory.search import tokenizer
from shepherd.memory.search.excerpt import ComparedText, shorten, snippet, term_spans
from shepherd.memory.search.query import NO_FILTERS, Filters, terms_of
from shepherd.memory.search.ranking import rank
from shepherd.memory.search.reranking import Reranking
from shepherd.memory.search.scope import newest

if TYPE_CHECKING:
    from shepherd.memory.search.vectors import Nearest

MOST_RESULTS = 50
SNIPPET_CHARS = 200
LONGEST_TURN = 200
"""Messages: question and answer are at most so far from the message that was found."""
TEXT_CHARS = 8_000
"""Of results as text: the most that a tool puts into a context at once."""
LEAST_CHARS = 40
"""Of each message, at least."""
LABEL_CHARS = 80
"""Of a result, beside its texts."""


def search(
    connection: apsw.Connection,
    query: str,
    max_results: int = 5,
    *,
    filters: Filters | None = None,
    without: Collection[int] = (),
    vectors: Nearest | None = None,
    reranking: Reranking | None = None,
) -> list[Hit]:
    """The exchanges that answer a question, best first; none when nothing does.

    A blank query finds the newest exchanges. Messages in `without` are not searched, but shown where they belong to a
    turn that is found.

    Raises: `InvalidRequest` for a number of results below 1 or above `MOST_RESULTS`, and as `rank` for filters.
    """
    if not 1 <= max_results <= MOST_RESULTS:
        raise InvalidRequest(f"max_results is {max_results}; give 1 to {MOST_RESULTS}", field="max_results")
    filters = filters or NO_FILTERS
    limit = 2 * max_results + 10  # messages of one turn, and near-duplicates, become one
    if query.strip() or filters.required:
        ranked = rank(
            connection, query, limit=limit, filters=filters, without=without, vectors=vectors, reranking=reranking
        )
        scores = {each.id: each.score for each in ranked}
    else:
        scores = dict.fromkeys(newest(connection, limit=limit, filters=filters, without=without), 1.0)
    exchanges = _exchanges(connection, scores, at_once=2 * max_results)
    terms, locate = terms_of(query), tokenizer.span_tokenizer(connection)
    return [
        Hit(
            score=score,
            user_message=exchange.asked,
            assistant_response=exchange.answered,
            timestamp=to_datetime(exchange.created_ms),
            message_id=exchange.id,
            role=exchange.role,
            conversation=exchange.uuid,
            title=exchange.title,
            snippet=snippet(exchange.body, term_spans(exchange.body, terms, locate), SNIPPET_CHARS),
            untrusted=exchange.trust == Trust.UNTRUSTED,
        )
        for exchange, score in _distinct(exchanges, max_results)
    ]


def as_text(hits: Sequence[Hit], query: str, *, most_chars: int = TEXT_CHARS) -> str:
    """The answer of the tool `search_memory`; long messages are shortened until all results fit.

    All lines of a message after the first are indented, so that none can be mistaken for the next result.
    """
    if not hits:
        return f"No archived conversations found matching: {clean(query)}"
    n_texts = 2 * len(hits) + sum(hit.untrusted for hit in hits)
    each = max(LEAST_CHARS, (most_chars - LABEL_CHARS * (len(hits) + 1)) // n_texts)
    results = [f"Found {len(hits)} archived conversation(s):"]
    for n, hit in enumerate(hits, 1):
        lines = [f"Result {n} [Relevance: {hit.score:.2f}]:", f"User: {_indented(hit.user_message, each)}"]
        lines.append(f"Assistant: {_indented(hit.assistant_response, each)}")
        if hit.untrusted:
            lines.append(f"Untrusted ({hit.role}): {_indented(hit.snippet, each)}")
        results.append("\n".join(lines))
    return "\n\n".join(results)


class Exchange(NamedTuple):
    id: int
    role: Role
    body: str
    created_ms: int
    trust: int
    uuid: str
    title: str
    conversation: int
    turn: int
    asked: str
    answered: str


_EXCHANGES = """
SELECT m.id, m.role, m.body, m.created_ms, m.trust, c.uuid, c.title, m.conversation, m.turn,
    coalesce((SELECT body FROM message u WHERE u.conversation = m.conversation AND u.turn = m.turn
        AND u.seq BETWEEN m.seq - ?2 AND m.seq AND u.role = 'user' ORDER BY u.seq LIMIT 1), ''),
    coalesce((SELECT body FROM message a WHERE a.conversation = m.conversation AND a.turn = m.turn
        AND a.seq BETWEEN m.seq - ?2 AND m.seq + ?2 AND a.role = 'assistant' AND a.body != ''
        ORDER BY a.seq DESC LIMIT 1), '')
FROM message m JOIN conversation c ON c.id = m.conversation WHERE m.id IN (SELECT value FROM json_each(?1))
"""


def _exchanges(
    connection: apsw.Connection, scores: dict[int, float], *, at_once: int
) -> Iterator[tuple[Exchange, float]]:
    """The best message of each turn, in order. `at_once`: messages read by one query."""
    ids, turns = list(scores), set[tuple[int, int]]()
    for start in range(0, len(ids), at_once):
        part = ids[start : start + at_once]
        rows = connection.execute(_EXCHANGES, (json.dumps(part), LONGEST_TURN))
        found = {row[0]: Exchange(*row) for row in rows}
        for exchange in (found[id] for id in part if id in found):
            if (turn := (exchange.conversation, exchange.turn)) not in turns:
                turns.add(turn)
                yield exchange, scores[exchange.id]


def _distinct(exchanges: Iterable[tuple[Exchange, float]], most: int) -> list[tuple[Exchange, float]]:
    """One of each near-duplicates: the newest, at the place of the best."""
    kept: list[tuple[Exchange, float]] = []
    compared: list[tuple[ComparedText, ComparedText]] = []
    for n_seen, (exchange, score) in enumerate(exchanges, 1):
        asked, answered = ComparedText(exchange.asked), ComparedText(exchange.answered)
        for place, (other_asked, other_answered) in enumerate(compared):
            if asked.is_near_duplicate_of(other_asked) and answered.is_near_duplicate_of(other_answered):
                if exchange.id > kept[place][0].id:
                    kept[place] = (exchange, kept[place][1])
                break
        else:
            if len(kept) < most:
                kept.append((exchange, score))
                compared.append((asked, answered))
        if len(kept) == most and n_seen >= 2 * most:  # the others may be newer versions of those that are kept
            break
    return kept


def _indented(text: str, chars: int) -> str:
    return shorten(text.strip().replace("\n", "\n  "), chars)
