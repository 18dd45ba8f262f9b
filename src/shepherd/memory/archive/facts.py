"""Facts: what is remembered under a name, and what it was before; instructions and preferences, once confirmed.

    set_fact("tea", "green")   tea = green                       current
    set_fact("tea", "black")   tea = green  past ─▶ tea = black  current
    propose("Call me Ann")     a candidate ─▶ confirm ─▶ current, in the profile
                                           └▶ reject  ─▶ cleared: it is not proposed again, and its words are gone

Facts are small and count for more than what was said: they are never pruned.

Not here: how candidates are found in what a user says (`profile.py`), and how the profile is shown to a model.
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
"""A fact is put into prompts: what is longer belongs into a message."""

_FACT = "id, key, value, kind, status, created_ms, ended_ms, source"


def set_fact(
    connection: apsw.Connection, key: str, value: str, *, kind: FactKind = "fact", source: int | None = None
) -> Fact:
    """The fact, which is current from now on; what was current under its key is past. The same value changes nothing.

    Keys are the same when they are spelled the same, blanks at the ends aside: `room_1_2` is not `room_12`.

    Raises: `InvalidRequest` for a key or a value that is too long, an empty key, and a source that cannot be trusted.
    """
    name, told = clean(key).strip(), clean(value)
    _limit("key", name, KEY_CHARS, least=1)
    _limit("value", told, VALUE_CHARS)
    _vouched(connection, source)
    held = _first(connection, "kind = ? AND key = ? AND status = 'current'", kind, name)
    if held and held.value == told:
        return held
    if held:
        _end(connection, held.id, "past")
    return _add(connection, name, told, kind, "current", source)


def get_fact(connection: apsw.Connection, key: str) -> Fact | None:
    """What is current under this key; else under the newest one that is this but for case, blanks, `_` and `-`."""
    name = clean(key).strip()
    exact = _first(connection, "key = ? AND status = 'current' ORDER BY kind = 'fact' DESC, id DESC", name)
    return exact or next((fact for fact in reversed(facts(connection)) if folded(fact.key) == folded(name)), None)


def clear_fact(connection: apsw.Connection, key: str) -> bool:
    """Delete what `get_fact` finds, with all that it was before; whether there was anything."""
    name = _stored_key(connection, key)
    connection.execute("DELETE FROM fact WHERE key = ?", (name,))
    return connection.changes() > 0


def history(connection: apsw.Connection, key: str) -> list[Fact]:
    """What this key stands for and stood for, newest first."""
    wanted = "key = ? AND status IN ('current', 'past') ORDER BY id DESC"
    return _where(connection, wanted, _stored_key(connection, key))


def facts(
    connection: apsw.Connection, *, kind: FactKind | None = None, status: FactStatus | None = "current"
) -> list[Fact]:
    """All facts, oldest first; None = of every kind, in every status."""
    return _where(connection, "kind = coalesce(?, kind) AND status = coalesce(?, status) ORDER BY id", kind, status)


def profile(connection: apsw.Connection) -> list[Fact]:
    """The instructions and preferences that hold, oldest first."""
    return _where(connection, "kind IN ('instruction', 'preference') AND status = 'current' ORDER BY id")


def propose(
    connection: apsw.Connection, value: str, kind: FactKind = "instruction", source: int | None = None
) -> Fact | None:
    """A candidate for the profile; None when the same is known, be it held, proposed or rejected.

    Raises: `InvalidRequest` for an empty or too long value, and a source that cannot be trusted.
    """
    told = clean(value).strip()
    _limit("value", told, VALUE_CHARS, least=1)
    _vouched(connection, source)
    if _first(connection, "key = ?", key_of(told)):
        return None
    return _add(connection, key_of(told), told, kind, "candidate", source)


def adopt(connection: apsw.Connection, value: str, kind: FactKind = "instruction", source: int | None = None) -> Fact:
    """What the user puts into the profile: current at once, whatever became of it before. Raises as `propose`."""
    if fact := propose(connection, value, kind, source):
        return confirm(connection, fact.id)
    known = _first(connection, "key = ? ORDER BY status = 'current' DESC, id DESC", key_of(clean(value)))
    assert known is not None
    if known.status == "cleared":  # its words went with it
        connection.execute("DELETE FROM fact WHERE id = ?", (known.id,))
        return _add(connection, known.key, clean(value).strip(), kind, "current", source)
    return confirm(connection, known.id)


def confirm(connection: apsw.Connection, id: int) -> Fact:
    """The candidate, which is current from now on. Raises: `InvalidRequest` when there is no such candidate."""
    fact = _get(connection, id)
    if fact.status == "current":
        return fact
    if fact.status != "candidate":
        raise InvalidRequest(f"id: fact {id} is {fact.status}; only a candidate can be confirmed", field="id")
    held = _first(connection, "kind = ? AND key = ? AND status = 'current'", fact.kind, fact.key)
    if held:
        _end(connection, held.id, "past")
    connection.execute("UPDATE fact SET status = 'current' WHERE id = ?", (id,))
    return _get(connection, id)


def reject(connection: apsw.Connection, id: int) -> None:
    """Take a candidate, or something of the profile, away: its words are deleted, and it is not proposed again.

    Raises: `InvalidRequest` when there is no such fact, or when it has a name of its own (see `clear_fact`).
    """
    fact = _get(connection, id)
    if fact.key != key_of(fact.value) and fact.status != "cleared":
        raise InvalidRequest(f"id: fact {id} has the name {fact.key!r}; clear it by its name", field="id")
    connection.execute("UPDATE fact SET value = '' WHERE id = ?", (id,))
    _end(connection, id, "cleared")


def key_of(value: str) -> str:
    """The key of an instruction or a preference, which has no name: a hash of its words, however they are written."""
    words = re.findall(r"\w+", unicodedata.normalize("NFKC", value).casefold()) or [value.strip()]
    return digest(" ".join(words).encode()).hex()


def folded(key: str) -> str:
    """A key without what people and models spell differently from one time to the next."""
    return re.sub(r"[\s_-]+", "", unicodedata.normalize("NFKC", key).casefold())


def _stored_key(connection: apsw.Connection, key: str) -> str:
    """The key as it is stored, if it is."""
    name = clean(key).strip()
    if _first(connection, "key = ?", name):
        return name
    found = get_fact(connection, name)
    return found.key if found else name


def _limit(field: str, text: str, most: int, *, least: int = 0) -> None:
    if len(text) < least:
        raise InvalidRequest(f"{field}: must not be empty", field=field)
    if len(text) > most:
        raise InvalidRequest(
            f"{field}: has {len(text)} characters, at most {most} are kept; say it shorter", field=field
        )


def _vouched(connection: apsw.Connection, source: int | None) -> None:
    """Only what the user or the model says can become a fact: a web page must not write into the memory."""
    if source is None:
        return
    rows = list(connection.execute("SELECT trust FROM message WHERE id = ?", (source,)))
    if not rows:
        raise InvalidRequest(f"source: there is no message {source}", field="source")
    if rows[0][0] == Trust.UNTRUSTED:
        raise InvalidRequest(
            f"source: message {source} came from a tool, a file or the web, and cannot become a fact; "
            "let the user say it",
            field="source",
        )


def _add(connection: apsw.Connection, *columns: int | str | None) -> Fact:
    connection.execute(
        "INSERT INTO fact(key, value, kind, status, source, created_ms) VALUES(?, ?, ?, ?, ?, ?)", (*columns, now_ms())
    )
    return _get(connection, connection.last_insert_rowid())


def _end(connection: apsw.Connection, id: int, status: FactStatus) -> None:
    connection.execute("UPDATE fact SET status = ?, ended_ms = ? WHERE id = ?", (status, now_ms(), id))


def _get(connection: apsw.Connection, id: int) -> Fact:
    fact = _first(connection, "id = ?", id)
    if fact is None:
        raise InvalidRequest(f"id: there is no fact {id}", field="id")
    return fact


def _first(connection: apsw.Connection, where: str, *values: int | str | None) -> Fact | None:
    return next(iter(_where(connection, f"{where} LIMIT 1", *values)), None)


def _where(connection: apsw.Connection, where: str, *values: int | str | None) -> list[Fact]:
    rows = connection.execute(f"SELECT {_FACT} FROM fact WHERE {where}", values)
    return [Fact(*row) for row in rows]
