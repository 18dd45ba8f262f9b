"""Fuzzes the search with whatever a user may type: any text is a safe query, and every list of results is sound.

    uv run --no-sync python -m tests.search.fuzz.memory                            20,000 texts
    uv run --no-sync python -m tests.search.fuzz.memory --texts 1000000 --seed 7

Each text is asked for, given as a phrase and as a prefix, and archived. What fails is made as short as it goes and
printed; the exit status tells of it.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import unicodedata

import apsw

from shepherd.core import InvalidRequest
from shepherd.memory.archive.history import archive
from shepherd.memory.records import Entry
from shepherd.memory.schema import open_file
from shepherd.memory.search.query import Filters
from shepherd.memory.search.ranking import rank
from shepherd.memory.search.search import as_text, search

PIECES = (
    *"\"'*:()^{}[]+-~,.;!?/\\|&%$#@<>=_` \n\t\0\ud800\udfff\ufeff\u200b\u202e\u0301",
    *(
        "AND",
        "OR",
        "NOT",
        "NEAR",
        "NEAR(",
        "body :",
        "context:",
        "{body}",
        "rowid",
        "rank",
        "--",
        "/*",
        "'); DROP TABLE",
    ),
    *(
        "設備",
        "テスト",
        "배포",
        "แมว",
        "हिन्दी",
        "עברית",
        "العربية",
        "ﬁ",
        "ＡＢ",
        "🦊",
        "👩‍👩‍👧",
        "é",
        "e\u0301",
        "ß",
        "İ",
    ),
    *("capital", "of", "France", "went", "3.11", "2026-03-02", "don't", "foo_bar", "x" * 300, "the", "a"),
)
ALWAYS = ("What is the capital of France?", "設備 went 3.11 foo_bar", "the a of don't")
"""Archived from the start, so that something is found."""


def random_text(chance: random.Random) -> str:
    parts = []
    for _ in range(chance.randrange(12)):
        part = chance.choice(PIECES) if chance.random() < 0.7 else chr(chance.randrange(0x110000))
        parts.append(part + (" " if chance.random() < 0.5 else ""))
    return "".join(parts)


def fault(connection: apsw.Connection, text: str) -> str:
    """What is wrong with the answers to a text; empty when nothing is."""
    try:
        ranked = rank(connection, text, limit=5)
        for each in ranked:
            if not (0 < each.score <= 1 and 0 <= each.coverage <= 1 + 1e-9):
                return f"out of bounds: {each}"
        if sorted((each.score for each in ranked), reverse=True) != [each.score for each in ranked]:
            return "not monotone"
        as_text(search(connection, text), text)
        for filters in (Filters(phrase=text), Filters(prefix=text), Filters(conversation=text), Filters(session=text)):
            try:
                rank(connection, text, limit=5, filters=filters)
            except InvalidRequest as refused:
                if any(unicodedata.category(char)[0] in "LN" for char in text if ord(char) < 0x250):
                    return f"refused: {refused}"
    except Exception as error:  # nothing that is typed may raise: that is what is looked for
        return f"{type(error).__name__}: {error}"
    return ""


def shortest(connection: apsw.Connection, text: str) -> str:
    """The text without all that the fault does not need."""
    for size in (64, 16, 4, 1):
        at = 0
        while at < len(text):
            shorter = text[:at] + text[at + size :]
            if fault(connection, shorter):
                text = shorter
            else:
                at += 1
    return text


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--texts", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    chance = random.Random(options.seed)
    connection = open_file(":memory:")
    archive(connection, [Entry("user", text) for text in ALWAYS])
    n_faults = 0
    for n in range(options.texts):
        text = random_text(chance)
        if n % 50 == 0:
            archive(connection, [Entry(chance.choice(("user", "assistant", "tool")), text)], session=str(n))
        if fault(connection, text) and n_faults < 10:
            n_faults += 1
            text = shortest(connection, text)
            print(f"{text!r}\n    {fault(connection, text)}", flush=True)
    print(f"{options.texts} texts, seed {options.seed}, {n_faults} faults")
    return int(n_faults > 0)


if __name__ == "__main__":
    sys.exit(main())
