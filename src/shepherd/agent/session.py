"""A conversation over any back end: the transcript, and the next turn.

The session owns its history: it is the only writer of it. An answer that is cancelled or fails leaves the transcript
valid: what was said is kept, every call has its result, a turn in which nothing was said is taken back.

    text ─▶ back end ─▶ answer ─ calls? ─▶ tools ─▶ results ─▶ back end ─▶ answer ...

Turns that have left the model's context stay in the transcript: it is sent whole at every turn, and the back end finds
in it what it still holds. The model is told of them at the head of the next user message (C29), and that stays there,
so that every prompt begins like the one before.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

from shepherd.backends.base import Backend
from shepherd.core import (
    Assembler,
    BadCall,
    CallDelta,
    Event,
    Evicted,
    Finished,
    Message,
    OnFull,
    ReasoningDelta,
    Request,
    Sampling,
    Started,
    Text,
    TextDelta,
    ToolCall,
    ToolResult,
    ToolSpec,
    Usage,
)
from shepherd.tools.base import Toolbox

MOST_ROUNDS = 12
"""Answers with calls in one turn; the one after them must do without tools."""


@dataclass(frozen=True, slots=True)
class Returned:
    """A call has been carried out: comes between the events of two answers of one turn."""

    call: ToolCall | BadCall
    result: ToolResult


class Session:
    """One conversation. Not for concurrent use: one turn at a time."""

    def __init__(
        self,
        backend: Backend,
        *,
        model: str,
        n_ctx: int,
        system: str | None = None,
        tools: Sequence[ToolSpec] = (),
        toolbox: Toolbox | None = None,
        sampling: Sampling | None = None,
        max_tokens: int | None = None,
        on_full: OnFull | None = None,
        user: str | None = None,
        archive: bool = True,
        recall: bool = False,
    ) -> None:
        """`user`: whose memory is used; None = none is. `archive`: what is said is kept in it, so that what leaves the
        context can be found again, and the model is told so. `recall`: what is in it is offered to the model.

        `tools` are offered only; those of the `toolbox` are carried out as well.
        """
        self.system = system
        """The system prompt; may be changed between turns."""
        self.n_ctx = n_ctx
        """Tokens that the conversation can hold."""
        self.usage = Usage()
        """Of the last turn. An answer that was stopped counts one token for each piece of it that came."""
        self.recall = recall
        """Whether memories are offered to the model; may be changed between turns."""
        self._backend = backend
        self._toolbox = toolbox
        self._begin()
        self._template = Request(
            model,
            (),
            tools=(*tools, *(toolbox.specs if toolbox else ())),
            sampling=sampling or Sampling(),
            max_tokens=max_tokens,
            on_full=on_full,
            user=user,
            archive=archive and user is not None,
        )
        self._archive = archive
        self._messages: list[Message] = []
        self._untold = 0
        """Messages that have left the context without the model's having been told."""
        self._told: dict[int, int] = {}
        """By index of the user message that tells it, how many."""

    @property
    def user(self) -> str | None:
        """Whose memory it has."""
        return self._template.user

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """What the model may call."""
        return self._template.tools

    @property
    def messages(self) -> tuple[Message, ...]:
        """What was said, without the system prompt."""
        return tuple(self._messages)

    async def chat(self, text: str) -> AsyncGenerator[Event | Returned, None]:
        """Say `text` and stream the answer; close the iterator to stop it.

        An answer that calls tools of the toolbox is followed by `Returned` for each call, and by the next answer: a
        turn is one stream of events after the other.

        Raises: as `Backend.stream`; the transcript is then as it was before the answer that failed.
        """
        self._say(text)
        for n_round in range(MOST_ROUNDS + 1):
            async with aclosing(self._answer(n_round)) as events:
                async for event in events:
                    yield event
            calls = _calls(self._messages[-1])
            if self._toolbox is None or not calls or n_round == MOST_ROUNDS:
                return
            async with aclosing(self._carry_out(calls)) as returns:
                async for returned in returns:
                    yield returned

    async def _answer(self, n_round: int) -> AsyncGenerator[Event, None]:
        """One answer, from the back end into the transcript."""
        assembler = Assembler()
        finished = False
        try:
            async with aclosing(self._backend.stream(self._request(n_round))) as events:
                async for event in events:
                    assembler.feed(event)
                    match event:
                        case Started(usage=usage) | Finished(usage=usage):
                            self.usage = usage
                        case TextDelta() | CallDelta():
                            self.usage = replace(self.usage, output=self.usage.output + 1)
                        case ReasoningDelta():
                            n, n_reasoning = self.usage.output + 1, self.usage.reasoning + 1
                            self.usage = replace(self.usage, output=n, reasoning=n_reasoning)
                        case Evicted(messages=n):
                            self._untold += n
                    if isinstance(event, Finished):
                        finished = True
                        self._messages.append(assembler.reply().message)
                    yield event
        finally:
            if not finished:
                self._take_back(assembler.partial())

    async def _carry_out(self, calls: Sequence[ToolCall | BadCall]) -> AsyncGenerator[Returned, None]:
        """Carry out all calls of an answer at the same time; their results go into the transcript in order (X6)."""
        assert self._toolbox is not None
        tasks = [asyncio.ensure_future(_run(self._toolbox, call)) for call in calls]
        results: list[ToolResult] = []
        try:
            for call, task in zip(calls, tasks, strict=True):
                results.append(await task)
                yield Returned(call, results[-1])
        finally:
            for task in tasks:
                task.cancel()
            results += [_error(call, "stopped by the user") for call in calls[len(results) :]]
            self._messages += [Message("tool", (result,)) for result in results]

    def clear(self) -> None:
        """Forget the conversation, not the system prompt."""
        self._messages.clear()
        self._begin()
        self._told.clear()
        self._untold = 0
        self.usage = Usage()

    def undo(self) -> str | None:
        """Take back the last exchange; what the user said in it, or None when there is none."""
        while self._messages:
            message = self._unsay()
            if message.role == "user":
                assert isinstance(message.parts[-1], Text)
                return message.parts[-1].text
        return None

    def _begin(self) -> None:
        """Give the conversation a name that no other one has."""
        self.id = str(uuid.uuid4())
        if self._toolbox is not None:
            self._toolbox.session = self.id

    def _request(self, n_round: int) -> Request:
        system = (Message.system(self.system),) if self.system else ()
        return replace(
            self._template,
            messages=(*system, *self._messages),
            session=self.id,
            recall=self.recall and self._template.user is not None,
            tool_choice="none" if n_round == MOST_ROUNDS else "auto",
        )

    def _say(self, text: str) -> None:
        parts: tuple[Text, ...] = (Text(text),)
        if self._untold:
            where = " and archived to memory" if self._archive else ""
            parts = (Text(f"[NOTICE: {self._untold} messages evicted from context{where}]\n\n", aside=True), *parts)
            self._told[len(self._messages)] = self._untold
            self._untold = 0
        self._messages.append(Message("user", parts))

    def _unsay(self) -> Message:
        """Take the last message back; what it told the model is to be told again."""
        message = self._messages.pop()
        self._untold += self._told.pop(len(self._messages), 0)
        return message

    def _take_back(self, partial: Message) -> None:
        """An answer has ended early: keep what was said of it, or take the question back."""
        if partial.parts:
            self._messages.append(partial)
            self._messages += [Message("tool", (_error(call, "stopped by the user"),)) for call in _calls(partial)]
        elif self._messages[-1].role == "user":
            self._unsay()


def _calls(message: Message) -> list[ToolCall | BadCall]:
    return [part for part in message.parts if isinstance(part, ToolCall | BadCall)]


async def _run(toolbox: Toolbox, call: ToolCall | BadCall) -> ToolResult:
    if isinstance(call, BadCall):
        return _error(call, f"{call.error} Call it again")
    return await toolbox.run(call)


def _error(call: ToolCall | BadCall, why: str) -> ToolResult:
    return ToolResult(call.id, (Text(f"Error: {why}"),), call.name, is_error=True)
