"""The person at a chat: questions of tools and forms of MCP servers, as events that any reader of the chat may answer.

A question that no reader hears waits a while, then counts as refused.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Collection, Mapping
from typing import Any, get_args

from shepherd.app.chats.event_log import EventLog
from shepherd.core import InvalidRequest
from shepherd.tools.base import Form, Question, Verdict
from shepherd.wire.base import shown

Json = dict[str, Any]

ABSENT_S = 10 * 60.0
"""How long a question waits while nothing reads the events of its chat."""
RETURN_S = 15.0
"""The same for a question of a command, during which no turn can begin: a browser may load the page again."""
MOST_WAITING = 32
"""Questions of one chat; more are refused at once."""
MOST_SHOWN_CHARS = 200_000
"""Of the difference in a question."""
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)


class PersonAtChats:
    """The `Person` that MCP servers ask: they do not say for which chat. It is the one at the only chat that runs a
    turn; where there are several, or none, all is refused."""

    def __init__(self) -> None:
        self.running: Callable[[], Collection[ChatPerson]] = tuple
        """Those at the chats that run a turn."""

    async def allow(self, question: Question) -> Verdict:
        person = self._find()
        return "no" if person is None else await person.allow(question)

    async def fill(self, form: Form) -> Mapping[str, Any] | None:
        person = self._find()
        return None if person is None else await person.fill(form)

    def _find(self) -> ChatPerson | None:
        running = [*self.running()]
        return running[0] if len(running) == 1 else None


class ChatPerson:
    """A `Person`. One event loop."""

    def __init__(self, log: EventLog, *, absent_s: float = ABSENT_S, return_s: float = RETURN_S) -> None:
        self._log = log
        self._absent_s = absent_s
        self._return_s = return_s
        self._open: dict[str, tuple[Json, asyncio.Future[Any]]] = {}

    @property
    def questions(self) -> list[Json]:
        """Those that wait, the oldest first."""
        return [question for question, _ in self._open.values()]

    async def allow(self, question: Question) -> Verdict:
        verdicts = [each for each in VERDICTS if not question.each_time or each not in ("session", "always")]
        asked: Json = {
            "kind": "consent",
            "tool": question.tool,
            "effect": question.effect,
            "subject": question.subject,
            "diff": _shown_part(question.diff),
            "why": question.why,
            "arguments": dict(question.arguments),
            "verdicts": verdicts,
        }
        verdict: Verdict = await self._ask(asked, refused="no")
        return verdict

    async def fill(self, form: Form) -> Mapping[str, Any] | None:
        asked: Json = {
            "kind": "form",
            "server": form.server,
            "message": form.message,
            "schema": dict(form.fields),
            "url": form.url,
        }
        values: Mapping[str, Any] | None = await self._ask(asked, refused=None)
        return values

    async def confirm(self, question: str, *, in_command: bool = False) -> bool:
        """The answer to a question of the program itself."""
        asked: Json = {"kind": "form", "server": "Shepherd", "message": question, "schema": {}, "url": ""}
        return await self._ask(asked, refused=None, in_command=in_command) is not None

    def answer(self, id: str, verdict: str | None, values: Mapping[str, Any] | None) -> None:
        """Raises: `InvalidRequest` for a question that does not wait, and for an answer that it does not take."""
        question, future = self._open.get(id, ({}, None))
        if future is None or future.done():
            raise InvalidRequest(
                f"no question {shown(id)} waits here: it has been answered, or its turn is over",
                field="question",
                status=404,
            )
        answer: Any = values
        if question["kind"] == "consent":
            if verdict not in question["verdicts"]:
                allowed = ", ".join(question["verdicts"])
                raise InvalidRequest(f"verdict must be one of {allowed}, not {shown(verdict)}", field="verdict")
            answer = verdict
        elif verdict is not None:
            raise InvalidRequest("this question is a form: send values, or null to refuse it", field="verdict")
        future.set_result(answer)

    async def _ask(self, asked: Json, refused: Any, *, in_command: bool = False) -> Any:
        if len(self._open) >= MOST_WAITING:
            return refused
        id = secrets.token_hex(8)
        asked = {"id": id, **asked}
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._open[id] = asked, future
        self._log.put("question", asked)
        absence = asyncio.create_task(self._log.unread_for(self._return_s if in_command else self._absent_s))
        try:
            await asyncio.wait((future, absence), return_when=asyncio.FIRST_COMPLETED)
            return future.result() if future.done() else refused
        finally:
            absence.cancel()
            del self._open[id]
            self._log.put("answered", {"id": id})


def _shown_part(text: str) -> str:
    more = len(text) - MOST_SHOWN_CHARS
    return text if more <= 0 else f"{text[:MOST_SHOWN_CHARS]}\n… {more:,} more characters are not shown"
