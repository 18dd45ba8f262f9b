"""The full-text indexes: which text of a message is indexed, in which FTS5 table, and how it is removed.

Every write of an FTS5 table goes through `index` and `unindex`. The tables store no text, so a removal must repeat the
exact text of the insertion: `unindex` reads it from the message, before that changes.
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
"""A shorter message is indexed with the two messages before it, since its own words may be too few."""
BEFORE_CHARS = 300
"""Of the end of each of these two messages."""
MS_A_DAY = 86_400_000

_UNSPACED = re.compile(
    "([\u2e80-\u2fdf\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\uff66-\uff9d\u0e00-\u0e7f"
    "\U00020000-\U0003ffff])"
)


EMOJI = "\u2300-\u23ff\u2600-\u27bf\u2b00-\u2bff\U0001f000-\U0001f3fa\U0001f400-\U0001faff"
"""Without the colours of skin, which only change the emoji before them."""
_EMOJI = re.compile(f"[{EMOJI}]")


def spaced(text: str) -> str:
    """Text with blanks around each character of Chinese, Japanese, Korean and Thai, so that the index treats it as a
    word, and with a word behind each emoji, which the index leaves out."""
    if text.isascii():
        return text
    return _EMOJI.sub(lambda found: f" {found[0]} {emoji_word(found[0])} ", _UNSPACED.sub(r" \1 ", text))


def emoji_word(emoji: str) -> str:
    return f"emoji{ord(emoji):x}"


def indexed(entry: Entry) -> str:
    """The indexed text of a message: its body, and the names and arguments of its calls."""
    called = "".join(f"\n{call.name} {call.arguments}" for call in entry.calls)
    return spaced(entry.text + clean(called))


def context(created_ms: int, body: str, before: Sequence[str]) -> str:
    """The indexed context of a message: its day in words, and for a short one the ends of the messages `before` it."""
    day = _day(created_ms // MS_A_DAY)
    if len(body) >= SHORT_CHARS:
        return day
    return spaced("\n".join([day, *(text[-BEFORE_CHARS:] for text in before[-2:])]))


@lru_cache(maxsize=64)
def _day(days: int) -> str:
    return f"{to_datetime(days * MS_A_DAY):%A %d %B %Y}"


def index(connection: apsw.Connection, id: int, role: str) -> None:
    if table := TABLE_OF_ROLE.get(role):
        connection.execute(
            f"INSERT INTO {table}(rowid, body, context) SELECT id, body, context FROM fts_source WHERE id = ?", (id,)
        )


def index_from(connection: apsw.Connection, first: int, roles: Collection[str]) -> None:
    """Insert all messages from the id `first` on, none of which is indexed yet; `roles` are their roles."""
    for table in dict.fromkeys(TABLE_OF_ROLE[role] for role in roles if role in TABLE_OF_ROLE):
        its = [role for role, name in TABLE_OF_ROLE.items() if name == table]
        connection.execute(
            f"INSERT INTO {table}(rowid, body, context) SELECT id, coalesce(spaced, body), coalesce(context, '') "
            f"FROM message WHERE id >= ? AND role IN ({', '.join('?' * len(its))}) ORDER BY id",
            (first, *its),
        )


def unindex(connection: apsw.Connection, id: int, role: str) -> None:
    """Remove a stored message from its FTS5 table, before it is changed or deleted."""
    if table := TABLE_OF_ROLE.get(role):
        connection.execute(
            f"INSERT INTO {table}({table}, rowid, body, context) "
            "SELECT 'delete', id, body, context FROM fts_source WHERE id = ?",
            (id,),
        )
