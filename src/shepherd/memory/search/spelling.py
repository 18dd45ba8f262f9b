"""Corrections for a word of a question that no message has."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from shepherd.memory.search.query import Term
from shepherd.memory.search.tokenizer import Tokenize
from shepherd.memory.search.words import STOP

if TYPE_CHECKING:
    from shepherd.memory.search.postings import FtsTable

SHORTEST = 5
"""Letters; a shorter word has too many neighbours."""
LONGEST = 40
"""Letters; a longer one is hardly a word, and the time for its neighbours grows with the square of its length."""
KEPT = 3
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
        is_candidate = SHORTEST <= len(word) <= LONGEST and word.isalpha() and word not in STOP["en"]
        if n_left and is_candidate and not any(table.contains(terms[at]) for table in tables):
            n_left -= 1
            neighbours = {other: None for table in tables for other in _neighbours(table, word, tokenize)}
            corrected[at] = Term(terms[at].forms, (*terms[at].near, *neighbours))
    return corrected


def _neighbours(table: FtsTable, word: str, tokenize: Tokenize) -> list[str]:
    """Stems of the table with one letter missing, wrong, too many, or swapped with the next."""
    words, start = table.name.replace("fts_", "terms_"), word[:KEPT]
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
    for at in range(KEPT, len(word) + 1):
        for letter in letters:
            yield word[:at] + letter + word[at:]
            yield word[:at] + letter + word[at + 1 :]
