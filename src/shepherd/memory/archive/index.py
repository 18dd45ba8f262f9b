"""The full-text lanes: what of a message is indexed, where, and how it is taken out again.

Every write of the lanes goes through `index` and `unindex`. A lane keeps no text, so what is taken out must be told
exactly as it was put in: `unindex` reads it from the message, before that changes.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from functools import lru_cache

import apsw

from shepherd.memory.records import Entry, clean, to_datetime

TABLE_OF_ROLE = {"user": "fts_user", "assistant": "fts_other", "tool": "fts_other"}
"""The FTS5 table of each role. System prompts are not indexed: every query would find them."""
FTS_TABLES = tuple(dict.fromkeys(TABLE_OF_ROLE.values()))
SHORT_CHARS = 400
"""A message shorter than this is indexed with what was said before it, too: on its own it may say too little."""
BEFORE_CHARS = 300
"""Of the end of each of the two messages before it."""
MS_A_DAY = 86_400_000

_UNSPACED = re.compile(
    "([\u2e80-\u2fdf\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\uff66-\uff9d\u0e00-\u0e7f"
    "\U00020000-\U0003ffff])"
)
"""Characters of scripts that are written without blanks between the words."""


def spaced(text: str) -> str:
    """Text with blanks around each character of Chinese, Japanese, Korean and Thai: each is a word of the index."""
    return text if text.isascii() else _UNSPACED.sub(r" \1 ", text)


def indexed(entry: Entry) -> str:
    """What is indexed of a message's own: its text, and what its calls ask for."""
    called = "".join(f"\n{call.name} {call.arguments}" for call in entry.calls)
    return spaced(entry.text + clean(called))


def context(created_ms: int, body: str, before: Sequence[str]) -> str:
    """What is indexed beside a message: its day in words, and for a short one the end of what came `before` it."""
    day = _day(created_ms // MS_A_DAY)
    if len(body) >= SHORT_CHARS:
        return day
    return spaced("\n".join([day, *(text[-BEFORE_CHARS:] for text in before[-2:])]))


@lru_cache(maxsize=64)
def _day(days: int) -> str:
    return f"{to_datetime(days * MS_A_DAY):%A %d %B %Y}"


def index(connection: apsw.Connection, id: int, role: str) -> None:
    """Put a stored message into its lane."""
    if table := TABLE_OF_ROLE.get(role):
        connection.execute(
            f"INSERT INTO {table}(rowid, body, context) SELECT id, body, context FROM fts_source WHERE id = ?", (id,)
        )


def index_from(connection: apsw.Connection, first: int, roles: Collection[str]) -> None:
    """Put all messages from the id `first` on into their lanes, of which none is there yet; `roles` are theirs."""
    for table in dict.fromkeys(TABLE_OF_ROLE[role] for role in roles if role in TABLE_OF_ROLE):
        its = [role for role, name in TABLE_OF_ROLE.items() if name == table]
        connection.execute(
            f"INSERT INTO {table}(rowid, body, context) SELECT id, coalesce(spaced, body), coalesce(context, '') "
            f"FROM message WHERE id >= ? AND role IN ({', '.join('?' * len(its))}) ORDER BY id",
            (first, *its),
        )


def unindex(connection: apsw.Connection, id: int, role: str) -> None:
    """Take a stored message out of its lane, before it is changed or deleted."""
    if table := TABLE_OF_ROLE.get(role):
        connection.execute(
            f"INSERT INTO {table}({table}, rowid, body, context) "
            "SELECT 'delete', id, body, context FROM fts_source WHERE id = ?",
            (id,),
        )
