"""A back end that carries out our own tools: a whole turn comes out of it as one answer.

    request without tools ─▶ turn ─▶ Started text [calls: hidden, carried out here] text ... Finished

For HTTP callers of an operator who said so (`--use-tools`); a request that brings tools of its own passes untouched,
since its calls are the client's to carry out (C7). Not here: the turn itself (`turn.py`).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace

from shepherd.agent.turn import MOST_REPEATS, MOST_ROUNDS, Returned, Working, turn
from shepherd.backends.base import Backend
from shepherd.core import (
    CallDelta,
    CallEnded,
    CallStarted,
    Event,
    Finished,
    Request,
    Started,
    TextDelta,
    Usage,
)
from shepherd.tools.tool import Toolbox


class Acting:
    """Satisfies `Backend`. Safe for concurrent use, as its parts are."""

    def __init__(
        self, backend: Backend, toolbox: Toolbox, *, max_rounds: int = MOST_ROUNDS, max_repeats: int = MOST_REPEATS
    ) -> None:
        self._backend = backend
        self._toolbox = toolbox
        self._max_rounds = max_rounds
        self._max_repeats = max_repeats

    async def stream(self, request: Request) -> AsyncGenerator[Event, None]:
        """See `Backend.stream`. The usage is that of all answers together: each of them was computed."""
        if not may_act(request):
            async with aclosing(self._backend.stream(request)) as events:
                async for event in events:
                    yield event
            return
        done, has_started, has_spoken, gap = Usage(), False, False, False
        last = Finished("end", Usage())
        backend = self._backend if request.max_tokens is None else _Limited(self._backend, request.max_tokens)
        happenings = turn(backend, request, self._toolbox, max_rounds=self._max_rounds, max_repeats=self._max_repeats)
        async with aclosing(happenings):
            async for happening in happenings:
                match happening:
                    case Started():
                        if not has_started:
                            yield happening
                        has_started = True
                    case Finished(usage=usage):
                        last, done = happening, done + usage
                    case CallStarted() | CallDelta() | CallEnded() | Working() | Returned():
                        gap = True
                    case TextDelta():
                        if has_spoken and gap:  # what is said before a call and what behind it are two paragraphs
                            yield TextDelta("\n\n")
                        has_spoken, gap = True, False
                        yield happening
                    case _:
                        yield happening
        # Its calls have been dealt with here: to the client the answer has simply ended.
        yield replace(last, reason="end" if last.reason == "tool_calls" else last.reason, usage=done)


class _Limited:
    """A back end all of whose answers together have so many tokens at most: what its caller asked for is one answer."""

    def __init__(self, backend: Backend, n_left: int) -> None:
        self._backend = backend
        self._n_left = n_left

    async def stream(self, request: Request) -> AsyncGenerator[Event, None]:
        if self._n_left < 1:
            yield Started(request.model)
            yield Finished("length", Usage())
            return
        async with aclosing(self._backend.stream(replace(request, max_tokens=self._n_left))) as events:
            async for event in events:
                if isinstance(event, Finished):
                    self._n_left -= event.usage.output
                yield event


def may_act(request: Request) -> bool:
    """Whether tools of ours belong into this request: a conversation whose client has brought none, and wants some."""
    is_chat = request.completion is None and bool(request.messages)
    return is_chat and not request.tools and request.tool_choice != "none" and not request.background
