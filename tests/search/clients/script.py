"""A back end that plays an agent's model from a script: it calls the tools that the client has offered, in order, and
then says its last words. Which line comes next is read off the conversation: a client may resend, resume or retry."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.scripted_service import Script

from shepherd.core import (
    CallDelta,
    CallEnded,
    CallStarted,
    Event,
    Finished,
    ReasoningDelta,
    Request,
    Started,
    TextDelta,
    ToolCall,
    Usage,
)

TITLE = "A title"
"""What is said to a request that offers no tools: clients let conversations be named, and the like."""


@dataclass(frozen=True, slots=True)
class Use:
    """A line in which the model calls a tool."""

    tool: str
    arguments: Mapping[str, Any]
    saying: str = ""
    thinking: str = ""


Line = Use | str


def play(lines: Sequence[Line]) -> Script:
    """A script that says line n to a conversation in which n lines have been said."""

    def next_line(request: Request) -> Line:
        if not request.tools:
            return TITLE
        said = sum(message.role == "assistant" for message in request.messages)
        return lines[min(said, len(lines) - 1)]

    return performing(next_line)


def performing(next_line: Callable[[Request], Line]) -> Script:
    """A script that says whatever `next_line` makes of the request, in small pieces."""

    async def script(request: Request) -> AsyncGenerator[Event, None]:
        line = next_line(request)
        usage = Usage(input=1000, cache_read=500, output=20)
        yield Started("fake", "fake:fake", usage)
        if isinstance(line, str):
            for piece in pieces(line):
                yield TextDelta(piece)
            yield Finished("end", usage)
            return
        for piece in pieces(line.thinking):
            yield ReasoningDelta(piece)
        for piece in pieces(line.saying):
            yield TextDelta(piece)
        id = f"play_{len(request.messages)}"
        arguments = json.dumps(dict(line.arguments), ensure_ascii=False)
        yield CallStarted(id, line.tool)
        for piece in pieces(arguments):
            yield CallDelta(piece)
        yield CallEnded(ToolCall(id, line.tool, arguments))
        yield Finished("tool_calls", usage)

    return script


def pieces(text: str, size: int = 7) -> list[str]:
    return [text[start : start + size] for start in range(0, len(text), size)]
