"""A conversation over any back end: the transcript, and the next turn.

The session owns its history: it is the only writer of it. A turn that is stopped or fails leaves the transcript valid:
what was said is kept, every call has its result, and a turn in which nothing was said has never been.

    chat   say something, and answer it          undo   take the last exchange back
    retry  another answer to the same            edit   another question in place of the last
    resume the rest of an answer that broke off  move   on with another model

Turns that have left the model's context stay in the transcript: it is sent whole at every turn, and the back end finds
in it what it still holds. The model is told of them at the head of the next user message (C29), and that stays there,
so that every prompt begins like the one before.

Not here: what happens within a turn (`turn.py`), and how a conversation is kept in a file (`storage.py`).
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from datetime import datetime
from typing import Any, Protocol, runtime_checkable

from shepherd.agent.storage import Quoted, Saved, title_of
from shepherd.agent.turn import MOST_REPEATS, MOST_ROUNDS, Happening, Returned, Working, turn, unanswered
from shepherd.backends.base import Backend
from shepherd.backends.local.window import Holding, Window
from shepherd.core import (
    CallDelta,
    Evicted,
    Finished,
    Image,
    InvalidRequest,
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
from shepherd.tools.tool import Toolbox

__all__ = ["MOST_ROUNDS", "Returned", "Session", "Working"]


@runtime_checkable
class Quoting(Protocol):
    """A back end that recalls things for what is said, and remembers where it has put them."""

    def quotes(self, request: Request) -> Mapping[int, Quoted]:
        """What was recalled for the messages of the request, by their index."""
        ...

    def quote(self, request: Request, quotes: Mapping[int, Quoted]) -> None:
        """That is what was recalled for them."""
        ...


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
        max_rounds: int = MOST_ROUNDS,
        max_repeats: int = MOST_REPEATS,
    ) -> None:
        """`user`: whose memory is used; None = none is. `archive`: what is said is kept in it, so that what leaves the
        context can be found again, and the model is told so. `recall`: what is in it is offered to the model.

        `tools` are offered only; those of the `toolbox` are carried out as well, at most `max_rounds` times in one
        turn, and a call that comes `max_repeats` times with nothing new in between is refused.
        """
        self.system = system
        """The system prompt; may be changed between turns."""
        self.n_ctx = n_ctx
        """Tokens that the conversation can hold."""
        self.usage = Usage()
        """Of the last answer: prompt and output together are what the context has taken up. An answer that was stopped
        counts one token for each piece of it that came."""
        self.recall = recall
        """Whether memories are offered to the model; may be changed between turns."""
        self._backend = backend
        self._toolbox = toolbox
        self._max_rounds = max_rounds
        self._max_repeats = max_repeats
        self._template = Request(
            model,
            (),
            tools=tuple(tools),
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
        self._is_cut = False
        """The last answer broke off."""
        self._quotes: Mapping[int, Quoted] | None = None
        """Of a conversation that the back end is still to recognise."""
        self._begin(str(uuid.uuid4()))

    @classmethod
    def from_saved(cls, saved: Saved, backend: Backend, **options: Any) -> Session:
        """A conversation that goes on where it was saved, with its own system prompt; for the rest see `__init__`."""
        session = cls(backend, **options)
        session.restore(saved)
        return session

    # -- what it is ----------------------------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        """A name that no other conversation has."""
        return self._id

    @property
    def title(self) -> str:
        """What it is about: as somebody has said, or else the beginning of the first message."""
        return self._title or title_of(self._messages)

    @title.setter
    def title(self, title: str) -> None:
        self._title = " ".join(title.split())

    @property
    def model(self) -> str:
        """Who answers."""
        return self._template.model

    @property
    def user(self) -> str | None:
        """Whose memory it has."""
        return self._template.user

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """What the model may call now."""
        return (*self._template.tools, *(self._toolbox.specs if self._toolbox is not None else ()))

    @property
    def toolbox(self) -> Toolbox | None:
        """What carries out its calls."""
        return self._toolbox

    @property
    def messages(self) -> tuple[Message, ...]:
        """What was said, without the system prompt."""
        return tuple(self._messages)

    @property
    def can_resume(self) -> bool:
        """Whether the last turn broke off: an answer that was stopped or cut, or results that nobody has answered."""
        return bool(self._messages) and (self._is_cut or self._messages[-1].role != "assistant")

    # -- turns ---------------------------------------------------------------------------------------------------------

    async def chat(self, said: str | Sequence[Text | Image]) -> AsyncGenerator[Happening, None]:
        """Say something and stream the answer; close the iterator to stop it.

        An answer that calls tools of the toolbox is followed by `Working` and a `Returned` for each call, and by the
        next answer: a turn is one stream of events after the other.

        Raises: as `Backend.stream`; the transcript is then as it was before the answer that failed.
        """
        before = self._here()
        self._say(said)
        async with aclosing(self._turn(before)) as happenings:
            async for happening in happenings:
                yield happening

    async def retry(self) -> AsyncGenerator[Happening, None]:
        """Answer the last question once more; where nothing is said, the old answer stays.

        Raises: `InvalidRequest` when nothing was asked yet; as `chat`.
        """
        before = self._here()
        del self._messages[self._asked_at("try again") + 1 :]
        async with aclosing(self._turn(before)) as happenings:
            async for happening in happenings:
                yield happening

    async def edit(self, said: str | Sequence[Text | Image]) -> AsyncGenerator[Happening, None]:
        """Say something in place of the last question, and answer it; where nothing is said, all stays as it was.

        Raises: `InvalidRequest` when nothing was asked yet; as `chat`.
        """
        before = self._here()
        at = self._asked_at("change")
        while len(self._messages) > at:
            self._unsay()
        self._say(said)
        async with aclosing(self._turn(before)) as happenings:
            async for happening in happenings:
                yield happening

    async def resume(self) -> AsyncGenerator[Happening, None]:
        """Go on with a turn that broke off: with its last answer, to which the rest is added, or its last results.

        Raises: `InvalidRequest` when the last answer is complete; as `chat`.
        """
        if not self.can_resume:
            why = "the last answer is complete" if self._messages else "nothing has been said yet"
            raise InvalidRequest(f"there is nothing to go on with: {why}")
        async with aclosing(self._turn(self._here())) as happenings:
            async for happening in happenings:
                yield happening

    def undo(self) -> str | None:
        """Take back the last exchange; what the user said in it, or None when there is none."""
        while self._messages:
            message = self._unsay()
            if message.is_input:
                return "".join(part.text for part in message.parts if isinstance(part, Text) and not part.aside)
        return None

    def clear(self) -> None:
        """Forget the conversation, not the system prompt."""
        self.restore(Saved(str(uuid.uuid4()), system=self.system))
        self._quotes = None
        self.usage = Usage()

    def move(self, backend: Backend, *, model: str, n_ctx: int, toolbox: Toolbox | None = None) -> None:
        """Go on with another model, between two turns; the transcript stays."""
        self._quotes = self.to_saved().quotes
        self._backend, self._toolbox, self.n_ctx = backend, toolbox, n_ctx
        self._template = replace(self._template, model=model)
        self._untold = 0  # it begins with everything
        if toolbox is not None:
            toolbox.session = self._id

    # -- keeping -------------------------------------------------------------------------------------------------------

    def to_saved(self) -> Saved:
        """The conversation as it is now; calls that are still being carried out have been stopped in it."""
        quotes: Mapping[int, Quoted] = self._quotes or {}
        if self._quotes is None and isinstance(self._backend, Quoting):
            n = len(self._system())
            found = self._backend.quotes(self._request(*self._messages))
            quotes = {at - n: quote for at, quote in found.items() if at >= n}
        open_calls = unanswered(self._messages) if self._toolbox is not None else ()
        return replace(self._here(), messages=(*self._messages, *open_calls), quotes=quotes)

    def _here(self) -> Saved:
        return Saved(
            self._id,
            self.messages,
            system=self.system,
            title=self._title,
            model=self.model,
            began=self._began,
            is_cut=self._is_cut,
            untold=self._untold,
            told=dict(self._told),
        )

    def restore(self, saved: Saved) -> None:
        """Go on with that conversation instead of this one, with the same model and tools."""
        open_calls = unanswered(saved.messages) if self._toolbox is not None else ()
        self._messages = [*saved.messages, *open_calls]
        self.system = saved.system
        self._untold, self._told, self._is_cut = saved.untold, dict(saved.told), saved.is_cut
        self._quotes = dict(saved.quotes)
        self._begin(saved.id, saved.title, saved.began)

    # -- what the model has in view ------------------------------------------------------------------------------------

    async def window(self) -> Window:
        """Which turns are in the model's cache now, which have left, which never will.

        Raises: `InvalidRequest` for a back end that does not tell.
        """
        return await (await self._holding()).window(self._request(*self._messages, tools=self.tools))

    async def evict(self, n_turns: int) -> Evicted:
        """Let the oldest `n_turns` turns leave the context now, as far as they may; what has left.

        Raises: `InvalidRequest` where nothing ever leaves, or nobody tells.
        """
        if n_turns < 1:
            raise InvalidRequest(f"{n_turns} turns cannot leave; say how many, at least 1", field="n_turns")
        if not self._messages:
            return Evicted(0, 0)
        evicted = await (await self._holding()).evict(self._request(*self._messages, tools=self.tools), n_turns)
        self._untold += evicted.messages
        return evicted

    async def _holding(self) -> Holding:
        if not isinstance(self._backend, Holding):
            raise InvalidRequest(f"what {self.model} holds of this conversation is not known: it runs somewhere else")
        await self._recognise()
        return self._backend

    async def _recognise(self) -> None:
        """Tell the back end about a conversation that it has not seen, once."""
        if self._quotes is None:
            return
        n = len(self._system())
        request = self._request(*self._messages, tools=self.tools)
        if isinstance(self._backend, Quoting):
            self._backend.quote(request, {at + n: quote for at, quote in self._quotes.items()})
        if isinstance(self._backend, Holding):
            await self._backend.recognise(request, self._began)
        self._quotes = None

    # -- within --------------------------------------------------------------------------------------------------------

    async def _turn(self, before: Saved) -> AsyncGenerator[Happening, None]:
        """Answer what was said last. Where nothing is said, the conversation is as it was `before`."""
        begun, untold = list(self._messages), self._untold
        happenings = turn(
            self._backend,
            self._request(),
            self._toolbox,
            said=self._messages,
            max_rounds=self._max_rounds,
            max_repeats=self._max_repeats,
        )
        try:
            await self._recognise()
            async with aclosing(happenings):
                async for happening in happenings:
                    self._note(happening)
                    yield happening
        finally:
            if self._messages == begun:
                self._messages[:] = before.messages
                self._untold, self._told = before.untold + self._untold - untold, dict(before.told)
                self._is_cut = before.is_cut

    def _note(self, happening: Happening) -> None:
        match happening:
            case Started(usage=usage):
                self.usage, self._is_cut = usage, True
            case Finished(reason=reason, usage=usage):
                self.usage, self._is_cut = usage, reason == "length"
            case TextDelta() | CallDelta():
                self.usage = replace(self.usage, output=self.usage.output + 1)
            case ReasoningDelta():
                n, n_reasoning = self.usage.output + 1, self.usage.reasoning + 1
                self.usage = replace(self.usage, output=n, reasoning=n_reasoning)
            case Evicted(messages=n):
                self._untold += n
            case _:
                pass

    def _begin(self, id: str, title: str = "", began: datetime | None = None) -> None:
        self._id, self._title = id, title
        self._began = began
        """When the first message came."""
        if self._toolbox is not None:
            self._toolbox.session = id

    def _system(self) -> tuple[Message, ...]:
        return (Message.system(self.system),) if self.system else ()

    def _request(self, *messages: Message, tools: Sequence[ToolSpec] | None = None) -> Request:
        return replace(
            self._template,
            messages=(*self._system(), *messages),
            tools=self._template.tools if tools is None else tuple(tools),
            session=self._id,
            recall=self.recall and self._template.user is not None,
        )

    def _say(self, said: str | Sequence[Text | Image]) -> None:
        parts: tuple[Text | Image, ...] = (Text(said),) if isinstance(said, str) else tuple(said)
        if not parts:
            raise InvalidRequest("a message needs a text or an image")
        if self._untold:
            where = " and archived to memory" if self._archive else ""
            parts = (Text(f"[NOTICE: {self._untold} messages evicted from context{where}]\n\n", aside=True), *parts)
            self._told[len(self._messages)] = self._untold
            self._untold = 0
        self._began = self._began or datetime.now().astimezone()
        self._messages.append(Message("user", parts))

    def _unsay(self) -> Message:
        """Take the last message back; what it told the model is to be told again."""
        message = self._messages.pop()
        self._untold += self._told.pop(len(self._messages), 0)
        self._is_cut = False
        return message

    def _asked_at(self, purpose: str) -> int:
        """The index of the last question. Raises: `InvalidRequest`."""
        at = next((n for n in range(len(self._messages) - 1, -1, -1) if self._messages[n].is_input), None)
        if at is None:
            raise InvalidRequest(f"there is nothing to {purpose}: nothing has been said yet")
        return at
