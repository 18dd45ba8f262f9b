"""Facts: values with a key, and their earlier values; instructions and preferences, once confirmed.

    set_fact("tea", "green")   tea = green                       current
    set_fact("tea", "black")   tea = green  past ─▶ tea = black  current
    propose("Call me Ann")     a candidate ─▶ confirm ─▶ current, in the profile
                                           └▶ reject  ─▶ cleared: never proposed again, and its words are deleted

Facts are small and matter more than messages: they are never pruned.
"""

from __future__ import annotations

import re
import unicodedata

import apsw

from shepherd.core import InvalidRequest
from shepherd.memory.archive.history import now_ms
from shepherd.memory.records import Fact, FactKind, FactStatus, Trust, clean, digest

KEY_CHARS = 200
VALUE_CHARS = 10_000
"""Facts are put into prompts, so they must be short."""

_FACT = "id, key, value, kind, status, created_ms, ended_ms, source"


def set_fact(
    connection: apsw.Connection, key: str, value: str, *, kind: FactKind = "fact", source: int | None = None
) -> Fact:
    """The new current fact; the earlier value of its key becomes past. The same value changes nothing.

    Keys are compared exactly, but for outer blanks: `room_1_2` is not `room_12`.

    Raises: `InvalidRequest` for a key or a value that is too long, an empty key, and an untrusted source.
    """
    name, text = clean(key).strip(), clean(value)
    _check_length("key", name, KEY_CHARS, least=1)
    _check_length("value", text, VALUE_CHARS)
    _check_source(connection, source)
    held = _first(connection, "kind = ? AND key = ? AND status = 'current' AND value = ?", kind, name, text)
    if held:
        return held
    _end_current(connection, kind, name)
    return _add(connection, name, text, kind, "current", source)


def get_fact(connection: apsw.Connection, key: str) -> Fact | None:
    """The current fact with this key; else the newest whose key differs only in case, blanks, `_` and `-`."""
    name = clean(key).strip()
    exact = _first(connection, "key = ? AND status = 'current' ORDER BY kind = 'fact' DESC, id DESC", name)
    return exact or next((fact for fact in reversed(facts(connection)) if folded(fact.key) == folded(name)), None)


def clear_fact(connection: apsw.Connection, key: str) -> bool:
    """Delete the fact that `get_fact` finds, and its earlier values; whether there was one."""
    name = _stored_key(connection, key)
    connection.execute("DELETE FROM fact WHERE key = ?", (name,))
    return connection.changes() > 0


def history(connection: apsw.Connection, key: str) -> list[Fact]:
    """The current and earlier values, newest first."""
    wanted = "key = ? AND status IN ('current', 'past') ORDER BY id DESC"
    return _where(connection, wanted, _stored_key(connection, key))


def facts(
    connection: apsw.Connection, *, kind: FactKind | None = None, status: FactStatus | None = "current"
) -> list[Fact]:
    """All facts, oldest first; None = every kind, every status."""
    return _where(connection, "kind = coalesce(?, kind) AND status = coalesce(?, status) ORDER BY id", kind, status)


def profile(connection: apsw.Connection) -> list[Fact]:
    """The current instructions and preferences, oldest first."""
    return _where(connection, "kind IN ('instruction', 'preference') AND status = 'current' ORDER BY id")


def propose(
    connection: apsw.Connection, value: str, kind: FactKind = "instruction", source: int | None = None
) -> Fact | None:
    """A new candidate for the profile; None when the same text is current, proposed or rejected.

    Raises: `InvalidRequest` for an empty or too long value, and an untrusted source.
    """
    text = clean(value).strip()
    _check_length("value", text, VALUE_CHARS, least=1)
    _check_source(connection, source)
    if _first(connection, "key = ?", key_of(text)):
        return None
    return _add(connection, key_of(text), text, kind, "candidate", source)


def adopt(connection: apsw.Connection, value: str, kind: FactKind = "instruction", source: int | None = None) -> Fact:
    """A new entry of the profile that needs no confirmation, even after a rejection. Raises as `propose`."""
    if fact := propose(connection, value, kind, source):
        return confirm(connection, fact.id)
    known = _first(connection, "key = ? ORDER BY status = 'current' DESC, id DESC", key_of(clean(value)))
    assert known is not None
    if known.status == "cleared":  # its words were deleted
        connection.execute("DELETE FROM fact WHERE id = ?", (known.id,))
        return _add(connection, known.key, clean(value).strip(), kind, "current", source)
    return confirm(connection, known.id)


def confirm(connection: apsw.Connection, id: int) -> Fact:
    """Make a candidate current. Raises: `InvalidRequest` when there is no such candidate."""
    fact = _get(connection, id)
    if fact.status == "current":
        return fact
    if fact.status != "candidate":
        raise InvalidRequest(f"id: fact {id} is {fact.status}; only a candidate can be confirmed", field="id")
    _end_current(connection, fact.kind, fact.key)
    connection.execute("UPDATE fact SET status = 'current' WHERE id = ?", (id,))
    return _get(connection, id)


def reject(connection: apsw.Connection, id: int) -> None:
    """Remove a candidate or an entry of the profile: its words are deleted, and it is not proposed again.

    Raises: `InvalidRequest` when there is no such fact, or when it has a key (see `clear_fact`).
    """
    fact = _get(connection, id)
    if fact.key != key_of(fact.value) and fact.status != "cleared":
        raise InvalidRequest(f"id: fact {id} has the name {fact.key!r}; clear it by its name", field="id")
    connection.execute("UPDATE fact SET value = '', status = 'cleared', ended_ms = ? WHERE id = ?", (now_ms(), id))


def key_of(value: str) -> str:
    """A hash of the words of an instruction or a preference, without case and punctuation."""
    words = re.findall(r"\w+", unicodedata.normalize("NFKC", value).casefold()) or [value.strip()]
    return digest(" ".join(words).encode()).hex()


def folded(key: str) -> str:
    return re.sub(r"[\s_-]+", "", unicodedata.normalize("NFKC", key).casefold())


def _stored_key(connection: apsw.Connection, key: str) -> str:
    name = clean(key).strip()
    if _first(connection, "key = ?", name):
        return name
    found = get_fact(connection, name)
    return found.key if found else name


def _check_length(field: str, text: str, most: int, *, least: int = 0) -> None:
    if len(text) < least:
        raise InvalidRequest(f"{field}: must not be empty", field=field)
    if len(text) > most:
        raise InvalidRequest(f"{field}: has {len(text)} characters, at most {most} are kept; shorten it", field=field)


def _check_source(connection: apsw.Connection, source: int | None) -> None:
    """Raises: `InvalidRequest` for an untrusted source: a web page must not write facts."""
    if source is None:
        return
    rows = list(connection.execute("SELECT trust FROM message WHERE id = ?", (source,)))
    if not rows:
        raise InvalidRequest(f"source: there is no message {source}", field="source")
    if rows[0][0] == Trust.UNTRUSTED:
        raise InvalidRequest(
            f"source: message {source} came from a tool, a file or the web, and cannot become a fact; "
            "let the user state it",
            field="source",
        )


def _add(connection: apsw.Connection, *columns: int | str | None) -> Fact:
    connection.execute(
        "INSERT INTO fact(key, value, kind, status, source, created_ms) VALUES(?, ?, ?, ?, ?, ?)", (*columns, now_ms())
    )
    return _get(connection, connection.last_insert_rowid())


def _end_current(connection: apsw.Connection, kind: FactKind, key: str) -> None:
    sql = "UPDATE fact SET status = 'past', ended_ms = ? WHERE kind = ? AND key = ? AND status = 'current'"
    connection.execute(sql, (now_ms(), kind, key))


def _get(connection: apsw.Connection, id: int) -> Fact:
    fact = _first(connection, "id = ?", id)
    if fact is None:
        raise InvalidRequest(f"there is no fact {id}", field="id")
    return fact


def _first(connection: apsw.Connection, where: str, *values: int | str | None) -> Fact | None:
    return next(iter(_where(connection, f"{where} LIMIT 1", *values)), None)


def _where(connection: apsw.Connection, where: str, *values: int | str | None) -> list[Fact]:
    rows = connection.execute(f"SELECT {_FACT} FROM fact WHERE {where}", values)
    return [Fact(*row) for row in rows]
