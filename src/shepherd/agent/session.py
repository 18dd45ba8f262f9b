"""A conversation over any back end: the transcript, and the next turn.

The session owns its history: it is the only writer of it. An answer that is cancelled or fails leaves the transcript
valid: what was said is kept, a turn in which nothing was said is taken back.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace

from shepherd.backends.base import Backend
from shepherd.core import Assembler, Event, Finished, Message, Request, Sampling, Started, ToolSpec, Usage


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
    ) -> None:
        self.system = system
        """The system prompt; may be changed between turns."""
        self.n_ctx = n_ctx
        """Tokens that the conversation can hold."""
        self.usage = Usage()
        """Of the last turn."""
        self._backend = backend
        self._template = Request(model, (), tools=tuple(tools), sampling=sampling or Sampling(), max_tokens=max_tokens)
        self._messages: list[Message] = []

    @property
    def messages(self) -> tuple[Message, ...]:
        """What was said, without the system prompt."""
        return tuple(self._messages)

    async def chat(self, text: str) -> AsyncGenerator[Event, None]:
        """Say `text` and stream the answer; close the iterator to stop it.

        Raises: as `Backend.stream`; the transcript is then as it was before the turn.
        """
        self._messages.append(Message.user(text))
        assembler = Assembler()
        finished = False
        try:
            async with aclosing(self._backend.stream(self._request())) as events:
                async for event in events:
                    assembler.feed(event)
                    match event:
                        case Started(usage=usage) | Finished(usage=usage):
                            self.usage = usage
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
        self.usage = Usage()

    def undo(self) -> str | None:
        """Take back the last exchange; the text of its user message, or None when there is none."""
        while self._messages:
            message = self._messages.pop()
            if message.role == "user":
                return message.text
        return None

    def _request(self) -> Request:
        system = (Message.system(self.system),) if self.system else ()
        return replace(self._template, messages=(*system, *self._messages))

    def _take_back(self, partial: Message) -> None:
        if partial.parts:
            self._messages.append(partial)
        else:
            self._messages.pop()
