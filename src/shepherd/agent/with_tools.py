"""A back end that carries out our own tools: a whole turn comes out of it as one answer.

    request without tools ─▶ turn ─▶ Started text [calls: hidden, carried out here] text ... Finished

For HTTP clients, where the operator allows it (`--use-tools`). A request with tools of its own passes unchanged, since
its client carries out the calls (C7).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace

from shepherd.agent.turn import MAX_REPEATS, MAX_ROUNDS, CallProgress, CallReturned, run_turn
from shepherd.backends.base import Backend
from shepherd.core import CallDelta, CallEnded, CallStarted, Event, Finished, Request, Started, TextDelta
from shepherd.core.events import Measured
from shepherd.tools.tool import Toolbox


class ToolBackend:
    """Satisfies `Backend`. Safe for concurrent use, as its parts are."""

    def __init__(
        self, backend: Backend, toolbox: Toolbox, *, max_rounds: int = MAX_ROUNDS, max_repeats: int = MAX_REPEATS
    ) -> None:
        self._backend = backend
        self._toolbox = toolbox
        self._max_rounds = max_rounds
        self._max_repeats = max_repeats

    def stream(self, request: Request) -> AsyncGenerator[Event, None]:
        """See `Backend.stream`. The usage is that of all answers together: each of them was computed."""
        return self._whole_turn(request) if takes_our_tools(request) else self._backend.stream(request)

    async def _whole_turn(self, request: Request) -> AsyncGenerator[Event, None]:
        measured, has_started, has_spoken, gap = Measured(), False, False, False
        last = Finished("end")
        backend = self._backend if request.max_tokens is None else _BudgetedBackend(self._backend, request.max_tokens)
        events = run_turn(backend, request, self._toolbox, max_rounds=self._max_rounds, max_repeats=self._max_repeats)
        async with aclosing(events):
            async for event in events:
                measured.feed(event)
                match event:
                    case Started():
                        if not has_started:
                            yield event
                        has_started = True
                    case Finished():
                        last = event
                    case CallStarted() | CallDelta() | CallEnded() | CallProgress() | CallReturned():
                        gap = True
                    case TextDelta():
                        if has_spoken and gap:  # the text before a call and the text behind it are two paragraphs
                            yield TextDelta("\n\n")
                        has_spoken, gap = True, False
                        yield event
                    case _:
                        yield event
        # The calls were carried out here: for the client the answer has simply ended.
        yield replace(last, reason="end" if last.reason == "tool_calls" else last.reason, usage=measured.total)


class _BudgetedBackend:
    """A back end whose answers together have at most this many tokens: its caller asked for one answer."""

    def __init__(self, backend: Backend, n_left: int) -> None:
        self._backend = backend
        self._n_left = n_left

    async def stream(self, request: Request) -> AsyncGenerator[Event, None]:
        if self._n_left < 1:
            yield Started(request.model)
            yield Finished("length")
            return
        async with aclosing(self._backend.stream(replace(request, max_tokens=self._n_left))) as events:
            async for event in events:
                if isinstance(event, Finished):
                    self._n_left -= event.usage.output
                yield event


def takes_our_tools(request: Request) -> bool:
    """Whether a request gets our tools: a conversation without tools of its own, where tools are allowed."""
    is_chat = request.completion is None and bool(request.messages)
    return is_chat and not request.tools and request.tool_choice != "none" and not request.background
