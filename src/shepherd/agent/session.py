"""A conversation over any back end: the transcript, and the next turn.

The session owns its history: it is the only writer of it. An answer that is cancelled or fails leaves the transcript
valid: what was said is kept, a turn in which nothing was said is taken back.

Turns that have left the model's context stay in the transcript: it is sent whole at every turn, and the back end finds
in it what it still holds. The model is told of them at the head of the next user message (C29), and that stays there,
so that every prompt begins like the one before.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace

from shepherd.backends.base import Backend
from shepherd.core import (
    Assembler,
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
    ToolSpec,
    Usage,
)


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
        sampling: Sampling | None = None,
        max_tokens: int | None = None,
        on_full: OnFull | None = None,
        archive: bool = True,
    ) -> None:
        """`archive`: what leaves the context can be found again in the memory, and the model is told so."""
        self.system = system
        """The system prompt; may be changed between turns."""
        self.n_ctx = n_ctx
        """Tokens that the conversation can hold."""
        self.usage = Usage()
        """Of the last turn. An answer that was stopped counts one token for each piece of it that came."""
        self._backend = backend
        self._template = Request(
            model, (), tools=tuple(tools), sampling=sampling or Sampling(), max_tokens=max_tokens, on_full=on_full
        )
        self._archive = archive
        self._messages: list[Message] = []
        self._untold = 0
        """Messages that have left the context without the model's having been told."""
        self._told: dict[int, int] = {}
        """By index of the user message that tells it, how many."""

    @property
    def messages(self) -> tuple[Message, ...]:
        """What was said, without the system prompt."""
        return tuple(self._messages)

    async def chat(self, text: str) -> AsyncGenerator[Event, None]:
        """Say `text` and stream the answer; close the iterator to stop it.

        Raises: as `Backend.stream`; the transcript is then as it was before the turn.
        """
        self._say(text)
        assembler = Assembler()
        finished = False
        try:
            async with aclosing(self._backend.stream(self._request())) as events:
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

    def clear(self) -> None:
        """Forget the conversation, not the system prompt."""
        self._messages.clear()
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

    def _request(self) -> Request:
        system = (Message.system(self.system),) if self.system else ()
        return replace(self._template, messages=(*system, *self._messages))

    def _say(self, text: str) -> None:
        parts: tuple[Text, ...] = (Text(text),)
        if self._untold:
            where = " and archived to memory" if self._archive else ""
            parts = (Text(f"[NOTICE: {self._untold} messages evicted from context{where}]\n\n"), *parts)
            self._told[len(self._messages)] = self._untold
            self._untold = 0
        self._messages.append(Message("user", parts))

    def _unsay(self) -> Message:
        """Take the last message back; what it told the model is to be told again."""
        message = self._messages.pop()
        self._untold += self._told.pop(len(self._messages), 0)
        return message

    def _take_back(self, partial: Message) -> None:
        if partial.parts:
            self._messages.append(partial)
        else:
            self._unsay()
