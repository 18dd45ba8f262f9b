"""Clients that share one server: none can stop, slow or use it for what it is not there for."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest
from tests.own_server import Listening
from tests.scripted_service import ScriptedService, playing

from shepherd.core import CallDelta, CallEnded, CallStarted, Event, Finished, Request, Started, TextDelta, ToolCall
from shepherd.server.app import Limits
from shepherd.wire.base import Json

PATIENCE_S = 30.0
"""Only a test that fails waits this long; the machine may be busy."""

USER = [{"role": "user", "content": "Hello"}]
BODIES: dict[str, Json] = {
    "/v1/chat/completions": {"model": "m", "messages": USER},
    "/v1/completions": {"model": "m", "prompt": "Hello"},
    "/v1/responses": {"model": "m", "input": "Hello"},
    "/v1/messages": {"model": "m", "messages": USER, "max_tokens": 100},
    "/api/chat": {"model": "m", "messages": USER},
    "/api/generate": {"model": "m", "prompt": "Hello"},
}
"""A body for every surface that generates."""


# ---- silence


@pytest.mark.parametrize("path", BODIES)
async def test_a_long_silence_is_filled_in_every_protocol(listening: Listening, path: str) -> None:
    """Before the first event, and after it."""
    begin, go_on = asyncio.Event(), asyncio.Event()

    async def script(request: Request) -> AsyncGenerator[Event, None]:
        await begin.wait()
        yield Started("m")
        yield TextDelta("first")
        await go_on.wait()
        yield TextDelta("second")
        yield Finished("end")

    ping = PINGS.get(path, ": ping\n\n")
    async with (
        listening(ScriptedService(script), limits=Limits(ping_s=0.02)) as url,
        httpx2.AsyncClient(timeout=PATIENCE_S) as client,
        client.stream("POST", url + path, json={**BODIES[path], "stream": True}) as answer,
    ):
        assert answer.status_code == 200
        pieces = answer.aiter_text()

        async def read_until(word: str, n: int = 1) -> str:
            told = ""
            while told.count(word) < n:
                told += await anext(pieces)
            return told

        if not path.startswith("/api/"):  # where a line is an object nothing can be said before there is one
            assert set((await read_until(": ping\n\n", 3)).split("\n\n")) == {": ping", ""}
        begin.set()
        before = await read_until("first")
        silence = await read_until(ping, 3)
        assert silence.endswith(ping)
        go_on.set()
        told = before + silence + "".join([piece async for piece in pieces])
    assert told.index("first") < told.index(ping) < told.index("second")
    for line in told.splitlines() if path.startswith("/api/") else ():
        json.loads(line)


PINGS = {
    "/v1/messages": 'event: ping\ndata: {"type":"ping"}\n\n',
    "/api/chat": '"content":""},"done":false}\n',
    "/api/generate": '"response":"","done":false}\n',
}
"""What is not a comment."""


# ---- nothing in a body makes the server do anything but answer


@contextmanager
def trapped_address() -> Iterator[str]:
    """An address that fails the test when a client connects to it."""
    with socket.create_server(("127.0.0.1", 0)) as trap:
        yield f"http://127.0.0.1:{trap.getsockname()[1]}/"
        trap.settimeout(0.2)
        with pytest.raises(TimeoutError):
            trap.accept()


def with_tools(path: str, url: str, touched: Path) -> Json:
    """A body that defines every kind of tool and server that some API runs by itself."""
    command = {"command": "touch", "args": [str(touched)]}
    function = {"name": "shell", "description": "Runs a command", "parameters": {"type": "object"}}
    tools: list[Json] = [
        {"type": "function", "function": function},
        {"type": "function", **function},
        {"type": "mcp", "server_label": "x", "server_url": url, "require_approval": "never", **command},
        {"type": "local_shell"},
        {"type": "web_search", "url": url},
        {"type": "code_interpreter", "container": {"type": "auto"}},
        {"type": "bash_20250124", "name": "bash"},
        {"name": "shell", "input_schema": {"type": "object"}, "url": url},
    ]
    if path == "/v1/chat/completions" or path.startswith("/api/"):
        tools = tools[:1]
    return {
        **BODIES[path],
        "tools": tools,
        "mcp_servers": [{"type": "url", "url": url, "name": "x", **command}, {"type": "stdio", **command}],
        "mcp": {"servers": {"x": command}},
        "container": {"skills": [{"type": "custom", "skill_id": url}]},
        "plugins": [url],
        "web_search_options": {"url": url},
        "webhook": url,
        "callback_url": url,
    }


@pytest.mark.parametrize("path", BODIES)
async def test_no_body_makes_the_server_run_or_fetch_anything(listening: Listening, path: str, tmp_path: Path) -> None:
    touched = tmp_path / "touched"
    arguments = json.dumps({"command": f"touch {touched}", "cmd": ["touch", str(touched)], "path": str(touched)})
    call = ToolCall("call_1", "shell", arguments)
    script = playing(
        Started("m"), CallStarted(call.id, call.name), CallDelta(arguments), CallEnded(call), Finished("tool_calls")
    )
    service = ScriptedService(script)
    with trapped_address() as trap:
        async with listening(service) as url, httpx2.AsyncClient(timeout=PATIENCE_S) as client:
            for stream in (False, True):
                answer = await client.post(url + path, json={**with_tools(path, trap, touched), "stream": stream})
                assert answer.status_code == 200, answer.text
            # One request, one answer: nobody has played the next turn with a result of the call.
            assert len(service.requests) == 2
            for admin in ("/v1/mcp", "/mcp", "/v1/tools", "/tools", "/v1/mcp/test", "/api/mcp", "/sse"):
                assert (
                    await client.post(url + admin, json={"command": "touch", "args": [str(touched)]})
                ).status_code == 404
    assert not touched.exists()


# ---- slow readers


# ---- the end
