"""The tokenizer of the FTS5 tables, for texts outside of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import apsw

Tokenize = Callable[[str], list[str]]
"""The words of a text, stemmed."""
Locate = Callable[[str], list[tuple[int, int, str]]]
"""The same, each after its span [start, stop) in bytes of the text's UTF-8."""


def word_tokenizer(connection: apsw.Connection) -> Tokenize:
    split = _split(connection)

    def tokenize(text: str) -> list[str]:
        flags = {"include_offsets": False, "include_colocated": False}
        return cast(list[str], split(text.encode(), apsw.FTS5_TOKENIZE_DOCUMENT, None, **flags))

    return tokenize


def span_tokenizer(connection: apsw.Connection) -> Locate:
    split = _split(connection)

    def locate(text: str) -> list[tuple[int, int, str]]:
        found = split(text.encode(), apsw.FTS5_TOKENIZE_DOCUMENT, None, include_colocated=False)
        return cast(list[tuple[int, int, str]], found)  # the stub returns the union of all forms

    return locate


def _split(connection: apsw.Connection) -> apsw.FTS5Tokenizer:
    return connection.fts5_tokenizer("porter", ["unicode61", "remove_diacritics", "2"])
