"""Exchanges that are stored by their question, in one conversation of the file.

The same question again replaces the answer. Search finds them like any exchange; they are never pruned.
"""

from __future__ import annotations

import uuid as uuids

import apsw

from shepherd.core import InvalidRequest
from shepherd.memory.archive import forget
from shepherd.memory.archive.history import NOTES, NewMessage, add_conversation, add_messages
from shepherd.memory.records import Entry, State, Trust

TITLE = "Notes"


def remember(connection: apsw.Connection, question: str, answer: str) -> list[int]:
    """Store an exchange, and replace the one with the same question; the ids of its two messages.

    Both messages have the trust of a model's. Raises: `InvalidRequest` for an empty question.
    """
    if not question.strip():
        raise InvalidRequest("question: must not be empty", field="question")
    forget.delete(connection, _found(connection, question))
    row = connection.execute("SELECT id FROM conversation WHERE uuid = ?", (NOTES,)).fetchone()
    conversation = row[0] if row else add_conversation(connection, uuid=NOTES, title=TITLE, source=NOTES)
    seq, turn = connection.execute(
        "SELECT seq + 1, turn + 1 FROM message WHERE conversation = ? ORDER BY seq DESC LIMIT 1", (conversation,)
    ).fetchone() or (0, 1)
    entries = Entry("user", question, trust=Trust.MODEL), Entry("assistant", answer, trust=Trust.MODEL)
    # No history contains them, so any unique chain will do.
    new = [NewMessage(entry, seq + n, turn, uuids.uuid4().bytes) for n, entry in enumerate(entries)]
    ids = list(add_messages(connection, conversation, new))
    connection.execute("UPDATE message SET state = ? WHERE id IN (?, ?)", (int(State.EVICTED), *ids))
    return ids


def clear(connection: apsw.Connection, question: str) -> bool:
    """Delete the exchange with this question; whether there was one."""
    found = _found(connection, question)
    forget.delete(connection, found)
    return bool(found)


def _found(connection: apsw.Connection, question: str) -> list[tuple[int, str]]:
    """Id and role of the messages of the turn with this question; case and blanks are ignored."""
    notes: list[tuple[int, str, int, str]] = connection.execute(
        "SELECT message.id, role, turn, body FROM conversation JOIN message ON message.conversation = conversation.id "
        "WHERE uuid = ?",
        (NOTES,),
    ).fetchall()  # type: ignore[assignment]  # the columns are NOT NULL and STRICT
    wanted = forget.folded(question)
    turns = {turn for _, role, turn, body in notes if role == "user" and forget.folded(body) == wanted}
    return [(id, role) for id, role, turn, _ in notes if turn in turns]
