"""A conversation over any back end: the transcript, and the next turn.

Only the session writes its history. A turn that is stopped or fails leaves a valid transcript: complete parts are kept,
every call has its result, and a turn without any part leaves no trace.

    chat   a new message, and its answer         undo   removes the last exchange
    retry  another answer to the same message    edit   replaces the last message
    resume the rest of an interrupted answer     move   continues with another model
    rewind removes a question and all behind it

Turns that have left the model's context stay in the transcript: it is sent whole at every turn, and the back end finds
in it what it still holds. A notice at the head of the next user message reports them to the model (C29). It stays
there, so that every prompt begins like the one before.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Protocol, runtime_checkable

from shepherd.agent.storage import MOST_VERSIONS, Branch, Quote, SavedConversation, title_of
from shepherd.agent.turn import MAX_REPEATS, MAX_ROUNDS, TurnEvent, run_turn, unanswered
from shepherd.backends.base import Backend
from shepherd.backends.local.window import Window, WindowedBackend
from shepherd.core import (
    Audio,
    Evicted,
    Finished,
    Image,
    InvalidRequest,
    Message,
    OnFull,
    Request,
    Sampling,
    Started,
    Text,
    ToolSpec,
    Usage,
)
from shepherd.core.events import Measured
from shepherd.tools.tool import Toolbox


@runtime_checkable
class QuotingBackend(Protocol):
    """A back end that puts quotes from the memory in front of messages."""

    def quotes(self, request: Request) -> Mapping[int, Quote]:
        """The quotes of the request's messages, by their index."""
        ...

    def quote(self, request: Request, quotes: Mapping[int, Quote]) -> None:
        """Put these quotes back in front of the messages."""
        ...


class Session:
    """One conversation. Not for concurrent use: one turn at a time."""

    def __init__(
        self,
        backend: Backend,
        *,
        model: str,
        n_ctx: int | Callable[[], int],
        system: str | None = None,
        tools: Sequence[ToolSpec] = (),
        toolbox: Toolbox | None = None,
        sampling: Sampling | None = None,
        max_tokens: int | None = None,
        on_full: OnFull | None = None,
        user: str | None = None,
        owner: str = "",
        archive: bool = True,
        recall: bool = False,
        max_rounds: int = MAX_ROUNDS,
        max_repeats: int = MAX_REPEATS,
    ) -> None:
        """`user`: the user of the memory; None = no memory. `archive`: messages are stored in it, so that messages that
        leave the context can be found again. `recall`: it is searched for the model. `owner`: as that of a request.

        `tools` are only offered. Calls of the `toolbox` run, in at most `max_rounds` rounds of one turn; a call that
        comes `max_repeats` times with nothing new in between is refused.
        """
        self.system = system
        """The system prompt; may be changed between turns."""
        self.instructions = ""
        """What the folder says, behind the system prompt; it is not saved with the conversation, since a later start
        reads it again. May be changed between turns."""
        self.recall = recall
        """Whether memories are offered to the model; may be changed between turns."""
        self.toolbox = toolbox
        """Runs the calls; None without tools."""
        self.user = user
        self._backend = backend
        self._n_ctx = n_ctx
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
            owner=owner,
            archive=archive and user is not None,
        )
        self._archive = archive
        self._messages: list[Message] = []
        self._quotes: Mapping[int, Quote] | None
        """Quotes of a conversation that the back end has not recognised yet."""
        self.clear()

    # -- what it is ----------------------------------------------------------------------------------------------------

    @property
    def title(self) -> str:
        """Its title: the one that was set, or else the beginning of the first message."""
        return self._state.title or title_of(self._messages)

    @title.setter
    def title(self, title: str) -> None:
        self._state.title = " ".join(title.split())

    @property
    def model(self) -> str:
        return self._template.model

    @property
    def n_ctx(self) -> int:
        """Tokens that the conversation can hold, as far as that is known now."""
        return self._n_ctx() if callable(self._n_ctx) else self._n_ctx

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """The tools that the model may call now."""
        return (*self._template.tools, *(self.toolbox.specs if self.toolbox is not None else ()))

    @property
    def usage(self) -> Usage:
        """Of the last answer; a stopped one counts one token for each piece that came."""
        return self._measured.usage

    @property
    def messages(self) -> tuple[Message, ...]:
        """All messages but the system prompt."""
        return tuple(self._messages)

    @property
    def can_resume(self) -> bool:
        """Whether the last turn was interrupted: its answer was stopped or cut, or it ends with results of calls."""
        return bool(self._messages) and (self._state.is_cut or self._messages[-1].role != "assistant")

    # -- turns ---------------------------------------------------------------------------------------------------------

    def chat(self, text: str | Sequence[Text | Image | Audio]) -> AsyncGenerator[TurnEvent, None]:
        """Add a user message and stream its turn (`turn.run_turn`); close the iterator to stop it. Raises: as
        `Backend.stream`; the transcript is then as it was before the answer that failed."""
        return self._turn(partial(self._add, text))

    def retry(self, at: int | None = None) -> AsyncGenerator[TurnEvent, None]:
        """Answer the last question again, or the one that is message `at`; what was behind it becomes a branch. If
        nothing is answered, all stays as it was. Raises: `InvalidRequest` without a question; as `chat`."""

        def remove_answer() -> None:
            self._set_aside(self.question_at(at, "try again"), keeps_question=True)

        return self._turn(remove_answer)

    def edit(
        self, text: str | Sequence[Text | Image | Audio], at: int | None = None
    ) -> AsyncGenerator[TurnEvent, None]:
        """Replace the last question, or the one that is message `at`, and answer it; the old one becomes a branch, with
        all behind it. If nothing is answered, all stays as it was. Raises: as `retry`."""

        def replace_question() -> None:
            self._set_aside(self.question_at(at, "change"), keeps_question=False)
            self._add(text)

        return self._turn(replace_question)

    @property
    def branches(self) -> Mapping[int, tuple[int, int]]:
        """By index of a question with several versions: how many there are, and which is this conversation's."""
        found: dict[int, set[int]] = {}
        for branch in self._state.branches:
            found.setdefault(branch.at, set()).add(branch.place)
        return {at: (len(places) + 1, _free(places)) for at, places in found.items()}

    def switch(self, at: int, place: int) -> None:
        """Continue with another version of the question that is message `at`; this one becomes a branch. Raises:
        `InvalidRequest` for one that there is not."""
        n, current = self.branches.get(at, (1, 0))
        if not 0 <= place < n:
            raise InvalidRequest(
                f"message {at} has {n} version{'s' * (n > 1)}; their numbers begin at 0", field="branch"
            )
        if place == current:
            return
        wanted = next(each for each in self._state.branches if (each.at, each.place) == (at, place))
        self._set_aside(at, keeps_question=False, for_good=False)
        self._messages += wanted.messages
        self._state.branches = (*(each for each in self._state.branches if each != wanted), *wanted.branches)

    def resume(self) -> AsyncGenerator[TurnEvent, None]:
        """Continue an interrupted turn: its last answer, to which the rest is added, or behind its last results.
        Raises: `InvalidRequest` when the last answer is complete; as `chat`."""
        return self._turn(self.check_can_resume)

    def undo(self) -> str | None:
        """Remove the last exchange; the user's text in it, or None when there is none."""
        at = self._find_asked()
        return None if at is None else self.rewind(at)

    def rewind(self, at: int) -> str:
        """Remove the question that is message `at`, and all behind it; the user's text in it."""
        text = self._messages[at].own_text
        while len(self._messages) > at:
            self._remove_last()
        return text

    def clear(self) -> None:
        """Begin a new conversation with the same system prompt."""
        self.restore(SavedConversation(str(uuid.uuid4()), system=self.system))
        self._quotes = None
        self._measured = Measured()

    def move(
        self, backend: Backend, *, model: str, n_ctx: int | Callable[[], int], toolbox: Toolbox | None = None
    ) -> None:
        """Continue with another model, between two turns; the transcript stays."""
        self._quotes = self.to_saved().quotes
        self._backend, self.toolbox, self._n_ctx = backend, toolbox, n_ctx
        self._template = replace(self._template, model=model)
        self._state.unreported = 0  # the new model gets all messages
        if toolbox is not None:
            toolbox.session = self.id

    # -- saving -------------------------------------------------------------------------------------------------------

    def to_saved(self) -> SavedConversation:
        """The conversation as it is now; calls that still run count as stopped."""
        quotes: Mapping[int, Quote] = self._quotes or {}
        if self._quotes is None and isinstance(self._backend, QuotingBackend):
            n = len(self._system())
            found = self._backend.quotes(self._request(*self._messages))
            quotes = {at - n: quote for at, quote in found.items() if at >= n}
        open_calls = unanswered(self._messages) if self.toolbox is not None else ()
        return replace(self._here(), messages=(*self._messages, *open_calls), quotes=quotes)

    @property
    def sampling(self) -> Sampling:
        """How answers are drawn; may be changed between turns."""
        return self._template.sampling

    @sampling.setter
    def sampling(self, sampling: Sampling) -> None:
        self._template = replace(self._template, sampling=sampling)

    def detach(self) -> None:
        """Be another conversation from now on, with the same messages."""
        self.id = str(uuid.uuid4())
        self._state.id = self.id
        if self.toolbox is not None:
            self.toolbox.session = self.id

    def _here(self) -> SavedConversation:
        reported = dict(self._state.reported)
        return replace(
            self._state,
            messages=self.messages,
            system=self.system,
            model=self.model,
            reported=reported,
            sampling=self.sampling if self.sampling != Sampling() else None,
        )

    def restore(self, saved: SavedConversation) -> None:
        """Replace this conversation by the saved one, with the same model and tools."""
        open_calls = unanswered(saved.messages) if self.toolbox is not None else ()
        self._messages = [*saved.messages, *open_calls]
        self.id = saved.id
        """A name that no other conversation has."""
        self.system = saved.system
        self.sampling = saved.sampling or self.sampling
        self._state = replace(saved, messages=(), reported=dict(saved.reported), quotes={})
        """All but the messages and the quotes."""
        self._quotes = dict(saved.quotes)
        if self.toolbox is not None:
            self.toolbox.session = saved.id

    # -- the window of the model ------------------------------------------------------------------------------------

    async def window(self) -> Window:
        """Which turns are in the model's cache now, which have left, which never will. Raises: `InvalidRequest` for a
        back end that cannot show it."""
        return await (await self._holding()).window(self._request(*self._messages, tools=self.tools))

    async def evict(self, n_turns: int) -> Evicted:
        """Evict the oldest `n_turns` turns now, as far as they may leave; what has left. Raises: `InvalidRequest` where
        nothing is ever evicted, or the back end cannot do it."""
        if n_turns < 1:
            raise InvalidRequest(f"{n_turns} turns cannot be evicted; give a number of at least 1", field="n_turns")
        if not self._messages:
            return Evicted(0, 0)
        evicted = await (await self._holding()).evict(self._request(*self._messages, tools=self.tools), n_turns)
        self._state.unreported += evicted.messages
        return evicted

    async def _holding(self) -> WindowedBackend:
        if not isinstance(self._backend, WindowedBackend):
            raise InvalidRequest(f"the window of {self.model} is not known: it does not run in this process")
        await self._recognise()
        return self._backend

    async def _recognise(self) -> None:
        """Let the back end recognise a conversation that it has not seen, once."""
        if self._quotes is None:
            return
        n = len(self._system())
        request = self._request(*self._messages, tools=self.tools)
        if isinstance(self._backend, QuotingBackend):
            self._backend.quote(request, {at + n: quote for at, quote in self._quotes.items()})
        if isinstance(self._backend, WindowedBackend):
            await self._backend.recognise(request, self._state.began)
        self._quotes = None

    # -- private -------------------------------------------------------------------------------------------------------

    async def _turn(self, prepare: Callable[[], None]) -> AsyncGenerator[TurnEvent, None]:
        """`prepare` the messages, and answer the last one. If nothing is answered, all is as it was before."""
        before, state = self._here(), self._state
        prepare()
        begun, unreported = list(self._messages), state.unreported
        events = run_turn(
            self._backend,
            self._request(),
            self.toolbox,
            transcript=self._messages,
            max_rounds=self._max_rounds,
            max_repeats=self._max_repeats,
        )
        try:
            await self._recognise()
            async with aclosing(events):
                async for event in events:
                    self._measured.feed(event)
                    if isinstance(event, Started | Finished):
                        state.is_cut = isinstance(event, Started) or event.reason == "length"
                    elif isinstance(event, Evicted):
                        state.unreported += event.messages
                    yield event
        finally:
            if self._messages == begun:
                self._messages[:] = before.messages
                state.unreported += before.unreported - unreported
                state.reported, state.is_cut, state.branches = before.reported, before.is_cut, before.branches

    def _system(self) -> tuple[Message, ...]:
        text = "\n\n".join(filter(None, (self.system, self.instructions)))
        return (Message.system(text),) if text else ()

    def _request(self, *messages: Message, tools: Sequence[ToolSpec] | None = None) -> Request:
        return replace(
            self._template,
            messages=(*self._system(), *messages),
            tools=self._template.tools if tools is None else tuple(tools),
            session=self.id,
            recall=self.recall and self.user is not None,
        )

    def _add(self, text: str | Sequence[Text | Image | Audio]) -> None:
        parts: tuple[Text | Image | Audio, ...] = (Text(text),) if isinstance(text, str) else tuple(text)
        if not parts:
            raise InvalidRequest("a message needs a text, an image or a recording")
        state = self._state
        if state.unreported:
            where = " and archived to memory" if self._archive else ""
            parts = (Text(f"[NOTICE: {state.unreported} messages evicted from context{where}]\n\n", aside=True), *parts)
            state.reported[len(self._messages)] = state.unreported
            state.unreported = 0
        state.began = state.began or datetime.now().astimezone()
        self._messages.append(Message("user", parts))

    def _set_aside(self, at: int, *, keeps_question: bool, for_good: bool = True) -> None:
        """Make a branch of the question that is message `at` and all behind it, if it was answered, and remove it.
        `for_good`: another version comes in its place."""
        n, current = self.branches.get(at, (1, 0))
        if for_good and n > MOST_VERSIONS:
            raise InvalidRequest(
                f"this question has {n} versions, and no more are kept; take it back and ask it again", field="at"
            )
        branches, tail = self._state.branches, tuple(self._messages[at:])
        inner = tuple(each for each in branches if each.at > at)
        kept = tuple(each for each in branches if each.at <= at)
        while len(self._messages) > at + keeps_question:
            self._remove_last()
        made = (Branch(at, current, tail, inner),) if len(tail) > 1 or not for_good else ()
        self._state.branches = (*kept, *made)

    def check_can_resume(self) -> None:
        """Raises: `InvalidRequest` where `resume` does."""
        if not self.can_resume:
            why = "the last answer is complete" if self._messages else "there is no message yet"
            raise InvalidRequest(f"there is nothing to continue: {why}")

    def _remove_last(self) -> Message:
        """Remove the last message; its notice counts as not given."""
        message = self._messages.pop()
        self._state.unreported += self._state.reported.pop(len(self._messages), 0)
        self._state.is_cut = False
        n = len(self._messages)
        self._state.branches = tuple(each for each in self._state.branches if each.at < n)
        if self._quotes:
            self._quotes = {at: quote for at, quote in self._quotes.items() if at < n}
        return message

    def _find_asked(self) -> int | None:
        """The place of the last question."""
        return next((n for n in range(len(self._messages) - 1, -1, -1) if self._messages[n].is_input), None)

    def question_at(self, at: int | None, purpose: str) -> int:
        """The place of a question: `at`, or that of the last one. Raises: `InvalidRequest` where there is none."""
        if at is None and (at := self._find_asked()) is None:
            raise InvalidRequest(f"there is nothing to {purpose}: there is no message yet")
        if not (0 <= at < len(self._messages) and self._messages[at].is_input):
            raise InvalidRequest(
                f"there is nothing to {purpose}: message {at} is no question; name the index of one", field="at"
            )
        return at


def _free(places: set[int]) -> int:
    """The first number that is not among them."""
    return next(number for number in range(len(places) + 1) if number not in places)
