"""The servers that the suites of npm packages ask: one with the embedded model, one that plays a script.

    real()       answers what the embedded model can
    scripted()   what it cannot: think, call twice at once, break off

The last message of a request names the script's answer: a key of `ANSWERS`. What begins with "wait once" is refused the
first time; what ends with ", slowly" comes with pings between its events. The answer to images says what they are.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncGenerator, Callable, Iterator
from pathlib import Path

from tests.own_server import in_thread, serving
from tests.scripted_service import Script, ScriptedService

from shepherd.core import (
    BadCall,
    CallDelta,
    CallEnded,
    CallStarted,
    EngineError,
    Event,
    Finished,
    Image,
    RateLimited,
    ReasoningDelta,
    Request,
    Started,
    TextDelta,
    ToolCall,
    Usage,
)
from shepherd.server.app import create_app, serve
from shepherd.server.endpoints.handler import Limits

KEY = "right"
"""Of both servers."""
PING_S = 0.02
"""How long the second one is silent before it sends a ping."""
CONFIG = """
max_tokens = 128
[memory]
database_path = "memory.db"
[caches.main]
n_ctx = 4096
[[routes]]
match = "lamb"
cache = "main"
"""
"""The embedded model rarely ends a long answer by itself; without a route every name would be known."""

USAGE = Usage(input=7, cache_read=3, output=9, reasoning=4)
STARTED = Started("lamb", "local:lamb", Usage(input=7, cache_read=3))
END = Finished("end", USAGE)
CALLS = (
    ToolCall("call_1", "get_weather", '{"city": "Paris"}'),
    ToolCall("call_2", "get_weather", '{"city": "Rome"}'),
)


def _calling(call: ToolCall) -> tuple[Event, ...]:
    half = len(call.arguments) // 2
    pieces = (CallDelta(call.arguments[:half]), CallDelta(call.arguments[half:]))
    return (CallStarted(call.id, call.name), *pieces, CallEnded(call))


ODD = ("a\u2028b\r\n\ndata: x\n\n", '{}\\"', "🐑 é\t\x00", "</think><tool_call>")
"""Text that breaks whoever splits lines carelessly."""
THOUGHTS = (ReasoningDelta("Two and "), ReasoningDelta("two.", signature="signed"))
CALLED = Finished("tool_calls", USAGE)
ANSWERS: dict[str, tuple[Event | Exception, ...]] = {
    "think": (STARTED, *THOUGHTS, TextDelta("Fo"), TextDelta("ur."), END),
    "call twice": (STARTED, *_calling(CALLS[0]), *_calling(CALLS[1]), CALLED),
    "think, speak, call": (STARTED, *THOUGHTS, TextDelta("I look."), *_calling(CALLS[0]), CALLED),
    "odd text": (STARTED, *map(TextDelta, ODD), END),
    "call without arguments": (STARTED, *_calling(ToolCall("call_1", "now", "{}")), CALLED),
    "call badly": (
        STARTED,
        CallStarted("call_1", "now"),
        CallEnded(BadCall('{"a": ', "the arguments end early", "call_1", "now")),
        CALLED,
    ),
    "nothing": (STARTED, Finished("end", Usage(input=7))),
    "thoughts only": (STARTED, *THOUGHTS, END),
    "filter": (STARTED, TextDelta("No."), Finished("filtered", USAGE)),
    "fail in the middle": (STARTED, TextDelta("Half"), EngineError("the engine failed")),
    "fail at once": (EngineError("the engine failed"),),
    "wait": (RateLimited("too many requests", backend="script", retry_after_s=0.01),),
    "results": (STARTED, TextDelta("Mild in both."), END),
}


def _player() -> Script:
    refused = set()

    async def play(request: Request) -> AsyncGenerator[Event, None]:
        asked = request.messages[-1].text.strip()
        if asked.startswith("wait once") and asked not in refused:
            refused.add(asked)
            asked = "wait"
        answer = ANSWERS.get(asked.removesuffix(", slowly"), ANSWERS["results"])
        if images := [part for part in request.messages[-1].parts if isinstance(part, Image)]:
            answer = (
                STARTED,
                *(TextDelta(f"{image.media_type}, {len(image.data or b'')} bytes") for image in images),
                END,
            )
        for event in answer:
            if asked.endswith(", slowly"):
                await asyncio.sleep(3 * PING_S)
            if isinstance(event, Exception):
                raise event
            yield event

    return play


@contextlib.contextmanager
def real() -> Iterator[str]:
    """The address of the server with the embedded model."""
    with tempfile.TemporaryDirectory() as name, serving(Path(name), CONFIG, api_keys=[KEY]) as url:
        yield url


@contextlib.contextmanager
def scripted() -> Iterator[str]:
    """The address of the server that plays a script."""

    async def run(on_ready: Callable[[int], None]) -> None:
        app = create_app(ScriptedService(_player()), api_keys=[KEY], limits=Limits(ping_s=PING_S))
        await serve(app, host="127.0.0.1", port=0, on_ready=on_ready)

    with in_thread(run) as port:
        yield f"http://127.0.0.1:{port}"
