"""How well one message answers a question: BM25 of its best passage, and how much it looks like an answer.

A long message is scored by its best passage. Its other parts, and the context that it is indexed with, weigh less (two
fields, as in BM25F): a long answer neither wins by touching on everything nor loses by its length. The idf is Lucene's,
which is above zero for every frequency.

Pure. Words are those of the index's own tokenizer, so the counts here agree with the postings.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from shepherd.memory.search.query import AnswerType, Term
from shepherd.memory.search.scope import ReplyKind
from shepherd.memory.search.tokenizer import Tokenize
from shepherd.memory.search.words import NUMBERS, WHEN

if TYPE_CHECKING:
    from shepherd.memory.search.postings import Matches

# Tuned on generated conversations, half of them held out; the values agree with measurements on real ones.
SATURATION = 1.0
"""BM25's k1: how soon a repeated term stops counting."""
PASSAGE = 80
"""Words."""
BESIDE = {"": 0.35, "answered": 0.15, "reply": 0.5}
"""Weight of a term that is outside of the passage, by `ReplyKind`: less where the message before is mostly a model's,
and more where it is a question, which is half of the statement."""
DAY = 0.7
"""Weight of a term in the day of the message."""
NEAR_FORM = 0.3
PROXIMITY = 0.3
"""Bonus of two terms that stand side by side as in the question."""
SPEAKER = 0.4
"""Bonus of a message whose speaker the question names."""
QUESTION = 0.2
"""Malus of a short question, which asks for a fact and does not state it."""
BRIEF, FULL_WORDS = 0.4, 16
"""A message of half of `FULL_WORDS` counts 0.5 to the power of `BRIEF`: it is a remark, not a statement."""
DEFINITION, SHORT_WORDS = 0.3, 40
"""Bonus of a message to a model, so short, that defines a term of the question. It is no remark then. Measured: of 100
facts among long lists of the same words, 97 are found instead of 78."""
ANSWER_TYPE = 0.2
"""Bonus of a message with a time, a number or a name, where the question asks for that."""

_SPEAKER = re.compile(r"([^\W\d_][\w .'’-]{0,30}): ")
"""`Anna: ...`"""
_SENTENCE = re.compile(r"[^.!?\n]*[.!?\n]?")
_LOOKED_AT = 1_000
"""Characters in which an answer of the right type is searched."""
_SHORT_QUESTION = 12
"""Words; users state facts in longer ones."""
_NAME = re.compile(r"(?<![.!?:\n] )(?<!^)\b[^\W\d_a-z][^\W\d_]+")
"""A capitalised word that does not begin a sentence."""


_IS = r"(?:is|are|was|were|am|lives?|works?|means?|costs?|has|had)\b|[=:]|['’]s\b"
"""Stands between a thing and a statement about it."""
_WHOSE = r"(?:\b(?:my|our|your|his|her|their|the|this)|['’]s)"


def definition_pattern(terms: Sequence[Term]) -> re.Pattern[str] | None:
    """Matches a text that defines one of the terms: "the shop is", "my dog: ", "Rex is my dog", "a dog called"."""
    if not (words := sorted({re.escape(form) for term in terms for form in term.forms if len(form) > 1})):
        return None
    one = rf"\b(?:{'|'.join(words)})\w{{0,3}}"
    named = r"(?:called|named|name is)\b"
    return re.compile(
        rf"{one}(?: (?:of|for) (?:\w+ ){{0,2}}?\w+)?\s*(?:{_IS}|{named})"
        rf"|\b(?:is|are|was|were|call)\b {_WHOSE} (?:\w+ ){{0,2}}?{one}",
        re.IGNORECASE,
    )


class Score(NamedTuple):
    score: float
    """To compare messages of one table."""
    share: float
    """1.0 = has every term once; may be more."""
    coverage: float
    n_terms: int


class TermHit(NamedTuple):
    position: int
    """Of the word, from 0."""
    term: int
    weight: float


class Scorer:
    def __init__(self, terms: Sequence[Term], matches: Matches, answer_type: AnswerType, tokenize: Tokenize) -> None:
        self._idf, self._answer_type, self._tokenize = matches.idf, answer_type, tokenize
        self._total, self._is_large = sum(matches.idf), matches.is_large
        self._definition = definition_pattern(terms)
        self._days: dict[str, list[TermHit]] = {}
        """The hits in a day, which many messages share."""
        self._asked = {word for term in terms for word in tokenize(term.forms[0])}
        self._starts: dict[str, list[tuple[list[str], int, float]]] = {}
        """First word of a form -> its other words, its term, its weight."""
        for at, term in enumerate(terms):
            near = NEAR_FORM * min(1.0, matches.near_idf[at] / matches.idf[at])
            for forms, weight in ((term.forms, 1.0), (term.near, near)):
                for form in forms:
                    if words := tokenize(form):
                        self._starts.setdefault(words[0], []).append((words[1:], at, weight))

    def score(self, body: str, context: str, reply_kind: ReplyKind = "") -> Score:
        """How well a message answers, by its text and the context that it is indexed with."""
        words = self._tokenize(body)
        hits, others = self._passage(self._hits(words))
        day, _, before = context.partition("\n")
        if reply_kind == "answered" and not hits:  # the model's own message is found instead
            return Score(0.0, 0.0, 0.0, 0)
        beside, counts, best = dict[int, float](), dict[int, float](), dict[int, float]()
        if not (self._is_large and reply_kind == "answered"):
            for _, term, weight in self._hits(self._tokenize(before)):
                beside[term] = max(beside.get(term, 0.0), weight * BESIDE[reply_kind])
        if day not in self._days:
            self._days[day] = self._hits(self._tokenize(day))
        for _, term, weight in self._days[day]:
            beside[term] = max(beside.get(term, 0.0), weight * DAY)
        for _, term, weight in hits:
            counts[term] = counts.get(term, 0.0) + weight
            best[term] = max(best.get(term, 0.0), weight)
        for _, term, weight in others:
            beside[term] = max(beside.get(term, 0.0), weight * BESIDE[""])
            best[term] = max(best.get(term, 0.0), weight)
        share = PROXIMITY * self._proximity(hits)
        for term in counts.keys() | beside.keys():
            count = counts.get(term, 0.0) + beside.get(term, 0.0)
            share += self._idf[term] * count * (1 + SATURATION) / (count + SATURATION)
        share /= self._total
        covered = sum(self._idf[term] * weight for term, weight in best.items())
        n_terms = sum(weight == 1.0 for weight in best.values())
        return Score(share * self._form_factor(body, len(words), reply_kind), share, covered / self._total, n_terms)

    def _hits(self, words: list[str]) -> list[TermHit]:
        starts, found = self._starts, list[TermHit]()
        if starts.keys().isdisjoint(words):
            return found
        for at, word in [(at, word) for at, word in enumerate(words) if word in starts]:
            for others, term, weight in starts[word]:
                if not others or words[at + 1 : at + 1 + len(others)] == others:
                    found.append(TermHit(at, term, weight))
        return found

    def _passage(self, hits: list[TermHit]) -> tuple[list[TermHit], list[TermHit]]:
        """The hits of the best passage, and the others."""
        if not hits or hits[-1].position - hits[0].position < PASSAGE:
            return hits, []
        inside: dict[int, int] = {}
        worth = best = 0.0
        first, span = 0, (0, 0)
        for last, hit in enumerate(hits):
            inside[hit.term] = inside.get(hit.term, 0) + 1
            worth += self._idf[hit.term] * (inside[hit.term] == 1)
            while hit.position - hits[first].position >= PASSAGE:
                inside[hits[first].term] -= 1
                worth -= self._idf[hits[first].term] * (inside[hits[first].term] == 0)
                first += 1
            if worth > best:
                best, span = worth, (first, last + 1)
        return hits[slice(*span)], hits[: span[0]] + hits[span[1] :]

    def _proximity(self, hits: list[TermHit]) -> float:
        """For each two neighbouring terms of the question: the lesser idf, divided by the square of their distance."""
        positions: dict[int, list[int]] = {}
        for position, term, _ in hits:
            positions.setdefault(term, []).append(position)
        close = 0.0
        for term, ones in positions.items():
            if twos := positions.get(term + 1):
                apart = min(abs(two - one) or 1 for one in ones for two in twos)
                close += min(self._idf[term], self._idf[term + 1]) / apart**2
        return close

    def _form_factor(self, body: str, n_words: int, reply_kind: ReplyKind) -> float:
        """How much a message looks like an answer, rather than a remark or a question; 1.0 = neither."""
        speaker = _SPEAKER.match(body)
        is_to_model = bool(reply_kind) or not speaker
        is_short = is_to_model and n_words <= SHORT_WORDS and body[-1:] != "?"
        if is_short and self._definition and self._definition.search(body):
            factor = 1 + DEFINITION
        else:
            factor = 1.0 if reply_kind == "reply" else min(1.0, max(n_words, 1) / FULL_WORDS) ** BRIEF
        if speaker and not self._asked.isdisjoint(self._tokenize(speaker[1])):
            factor *= 1 + SPEAKER
        if "?" in body and n_words <= PASSAGE:
            asked = (len(sentence.split()) for sentence in _SENTENCE.findall(body) if sentence.endswith("?"))
            factor *= 1 - QUESTION * min(1.0, sum(n for n in asked if n <= _SHORT_QUESTION) / max(n_words, 1))
        if self._answer_type and self._has_answer_type(body[:_LOOKED_AT]):
            factor *= 1 + ANSWER_TYPE
        return factor

    def _has_answer_type(self, body: str) -> bool:
        """Whether a message has a time, a number or a name, whichever the question asks for."""
        match self._answer_type:
            case "time":
                return not WHEN.isdisjoint(re.findall(r"[^\W\d_]+", body.lower()))
            case "number":
                return bool(re.search(r"\d", body)) or not NUMBERS.isdisjoint(re.findall(r"[^\W\d_]+", body.lower()))
            case _:
                names = (self._tokenize(name) for name in _NAME.findall(body))
                return any(not self._asked.issuperset(name) for name in names)
