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
    return cast(Tokenize, _tokenizer(connection, include_offsets=False))


def span_tokenizer(connection: apsw.Connection) -> Locate:
    return cast(Locate, _tokenizer(connection))


def _tokenizer(connection: apsw.Connection, **options: bool) -> Callable[[str], object]:
    split = connection.fts5_tokenizer("porter", ["unicode61", "remove_diacritics", "2"])
    return lambda text: split(text.encode(), apsw.FTS5_TOKENIZE_DOCUMENT, None, include_colocated=False, **options)
