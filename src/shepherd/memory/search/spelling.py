"""What a word was meant to be that nobody has ever said."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from shepherd.memory.search.postings import Lane
from shepherd.memory.search.query import Term
from shepherd.memory.search.tokenizer import Tokenize
from shepherd.memory.search.words import STOP

SHORTEST = 5
"""Letters; a shorter word has too many neighbours."""
LONGEST = 40
"""Letters; a longer one is no word, and its neighbours take time with the square of its length."""
KEPT = 3
"""Letters at the beginning that are taken as right, unless two of them are swapped or one is too many."""
LETTERS = "abcdefghijklmnopqrstuvwxyz"
MOST_WORDS = 2_000
"""Of the archive that are compared with it."""
MOST_TERMS = 3
"""Of a question that are looked up."""


def respelled(lanes: Sequence[Lane], terms: Sequence[Term], unsaid: Collection[int], tokenize: Tokenize) -> list[Term]:
    """The terms; of those `unsaid` each that no lane knows has words that are one slip away among its near forms."""
    left = MOST_TERMS
    found = list(terms)
    for at in sorted(unsaid):
        word = terms[at].said[0]
        may_be = SHORTEST <= len(word) <= LONGEST and word.isalpha() and word not in STOP["en"]
        if left and may_be and not any(lane.knows(terms[at]) for lane in lanes):
            left -= 1
            meant = {other: None for lane in lanes for other in _neighbours(lane, word, tokenize)}
            found[at] = Term(terms[at].said, (*terms[at].near, *meant))
    return found


def _neighbours(lane: Lane, word: str, tokenize: Tokenize) -> list[str]:
    """Stems of the lane that are one slip away: a letter missing, wrong, too many, or swapped with the next."""
    words, start = lane.table.replace("fts_", "terms_"), word[:KEPT]
    rows = lane.connection.execute(
        f"SELECT term FROM {words} WHERE term >= ? AND term < ? LIMIT ?", (start, start + "\U0010ffff", MOST_WORDS)
    )
    found = {term for (term,) in rows}.intersection(tokenize(" ".join(_replaced(word))))
    for stem in set(tokenize(" ".join(_shorter(word)))):
        if lane.connection.execute(f"SELECT 1 FROM {words} WHERE term = ?", (stem,)).get:
            found.add(stem)
    return sorted(found)


def _shorter(word: str) -> Iterator[str]:
    """The word with two letters swapped, or without one."""
    for at in range(len(word) - 1):
        yield word[:at] + word[at + 1] + word[at] + word[at + 2 :]
    for at in range(len(word)):
        yield word[:at] + word[at + 1 :]


def _replaced(word: str) -> Iterator[str]:
    """The word with one more letter, or another one, behind those that are taken as right."""
    letters = dict.fromkeys(LETTERS + word)
    for at in range(KEPT, len(word) + 1):
        for letter in letters:
            yield word[:at] + letter + word[at:]
            yield word[:at] + letter + word[at + 1 :]
