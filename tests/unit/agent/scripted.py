"""Back ends that answer by a function of the request, and a toolbox whose tools wait for a gate."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import TypeVar

from shepherd.core import (
    Event,
    Finished,
    Message,
    Request,
    StopReason,
    Text,
    ToolCall,
    ToolResult,
    ToolSpec,
    replay,
)
from shepherd.tools.base import CallOutcome

Answers = Callable[[Request], Message | Exception | tuple[Message, StopReason]]
Script = Callable[[Request], Sequence[Event | Exception]]
T = TypeVar("T")


async def play(events: AsyncGenerator[T, None], stop_after: int | None = None) -> list[T]:
    """The events of a stream, which is closed behind so many."""
    seen: list[T] = []
    async with aclosing(events):
        async for event in events:
            seen.append(event)
            if len(seen) == stop_after:
                break
    return seen


class Playing:
    """Plays the events of a script, and keeps what it was asked."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.requests: list[Request] = []
        self.n_closed = 0

    async def stream(self, request: Request) -> AsyncGenerator[Event, None]:
        self.requests.append(request)
        try:
            for step in self.script(request):
                if isinstance(step, Exception):
                    raise step
                yield step
        finally:
            self.n_closed += 1


def answering(text: str) -> Script:
    return lambda request: list(replay(Message.assistant(text), model="m"))


class Scripted:
    """Answers by a function of the request, and keeps what it was asked."""

    def __init__(self, answer: Answers) -> None:
        self.answer = answer
        self.requests: list[Request] = []
        self.n_open = 0

    async def stream(self, request: Request) -> AsyncGenerator[Event, None]:
        self.requests.append(request)
        self.n_open += 1
        try:
            told = self.answer(request)
            if isinstance(told, Exception):
                raise told
            message, reason = told if isinstance(told, tuple) else (told, None)
            for event in replay(message, model="m", reason=reason):
                await asyncio.sleep(0)
                yield event
        finally:
            self.n_open -= 1


class Doubling:
    """Doubles numbers once `gate` is open; the slower the smaller the number."""

    def __init__(self, *names: str) -> None:
        self.session: str | None = None
        self.specs: Sequence[ToolSpec] = [ToolSpec(name) for name in names or ("double",)]
        self.gate = asyncio.Event()
        self.gate.set()
        self.running = self.most_running = 0
        self.called = asyncio.Event()
        self.ran: list[int] = []
        """The numbers that were doubled to the end."""
        self.shares: list[int] = []

    async def run(
        self, call: ToolCall, *, share: int = 1, tell: Callable[[str], None] = lambda line: None
    ) -> CallOutcome:
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        self.shares.append(share)
        self.called.set()
        try:
            n = json.loads(call.arguments)["n"]
            tell(f"doubling {n}")
            for _ in range(10 - n):
                await asyncio.sleep(0)
            await self.gate.wait()
            self.ran.append(n)
            return CallOutcome(ToolResult(call.id, (Text(str(2 * n)),), call.name), f"{n} doubled")
        finally:
            self.running -= 1


def calling(*numbers: int, text: str = "I count.", name: str = "double") -> Message:
    calls = (ToolCall(f"c{n}", name, json.dumps({"n": n})) for n in numbers)
    return Message("assistant", (*([Text(text)] if text else []), *calls))


def results(request: Request) -> list[str]:
    """Of the calls in a request, `id=text`."""
    parts = [part for message in request.messages for part in message.parts if isinstance(part, ToolResult)]
    return [f"{part.call_id}={part.parts[0].text}" for part in parts if isinstance(part.parts[0], Text)]


def finished(events: Sequence[object]) -> list[StopReason]:
    return [event.reason for event in events if isinstance(event, Finished)]
