"""The turns of a session, and what their tools change in files.

open: the changes of this conversation ─ begin_turn: those that follow belong to its last question
saved: they stay with this conversation ─ forked: those since then go with its copy
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shepherd.agent.session import Session
    from shepherd.core import Message
    from shepherd.tools.sandbox.journal import FileJournal


class TurnFiles:
    def __init__(self, session: Session, journal: FileJournal | None) -> None:
        """`journal`: None = nothing is kept."""
        self._session = session
        self.journal = journal
        self._asked: Message | None = None
        """The question of the last turn: a new one begins a turn of the journal, a repeated one does not."""

    def open(self) -> None:
        """The session is another conversation, or as another program has left it."""
        at, self._asked = self._last()
        if self.journal is not None:
            self.journal.open(self._session.id, at if self._asked else -1)
        self.saved()

    def saved(self) -> None:
        """The file of the conversation is as the session."""
        if self.journal is not None:
            self.journal.settle(len(self._session.messages))

    def forked(self) -> None:
        """The session has become a copy: another program has written the file of the conversation meanwhile."""
        if self.journal is not None:
            self.journal.fork(self._session.id)

    def begin_turn(self) -> None:
        """Tell the journal which question the following changes of files belong to."""
        at, question = self._last()
        if self.journal is not None and question is not None and question is not self._asked:
            self.journal.begin(at)
        self._asked = question

    def close(self) -> None:
        if self.journal is not None:
            self.journal.close()

    def take_notices(self) -> list[str]:
        """Sentences for a person about changes that cannot be put back."""
        return [] if self.journal is None else self.journal.take_notices()

    def questions(self) -> list[tuple[int, Message]]:
        """The messages of the user, with their places in the conversation."""
        return [(at, message) for at, message in enumerate(self._session.messages) if message.is_input]

    def _last(self) -> tuple[int, Message | None]:
        questions = self.questions()
        return questions[-1] if questions else (0, None)
