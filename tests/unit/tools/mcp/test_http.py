"""Servers over HTTP: one of the SDK's own, and one that answers nonsense."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Annotated, Any

import pytest
import uvicorn
from tests.unit.tools.mcp.scene import Nod, Stage, call_tool

from shepherd.tools.base import ToolError
from shepherd.tools.mcp.values import ServerOptions
from shepherd.tools.tool import ToolContext

App = Callable[[Any, Any, Any], Awaitable[None]]


@asynccontextmanager
async def served(app: App, lifespan: str = "off") -> AsyncIterator[str]:
    """The address of a server for this app."""
    bound = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(app, log_level="critical", lifespan=lifespan, timeout_graceful_shutdown=1)  # type: ignore[arg-type]
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve([bound]))
    try:
        yield f"http://127.0.0.1:{bound.getsockname()[1]}/mcp"
    finally:
        server.should_exit = True
        await task
        bound.close()


def sdk_app() -> App:
    from mcp.server.mcpserver import Context, Elicit, MCPServer, Resolve
    from pydantic import BaseModel

    class Name(BaseModel):
        name: str

    server = MCPServer("web")

    @server.tool()
    async def add(a: int, b: int) -> int:
        return a + b

    @server.tool()
    async def big(n: int) -> str:
        return "x" * n

    @server.tool()
    async def slow(ctx: Context) -> str:
        for step in range(3):
            await ctx.report_progress(step, 3, "on")
        return "done"

    async def asked() -> Elicit[Name]:
        return Elicit("who?", Name)

    async def who(name: Any) -> str:
        return str(name)

    who.__annotations__["name"] = Annotated[Name, Resolve(asked)]
    server.tool()(who)

    @server.resource("note://x")
    def note() -> str:
        return "a note"

    return server.streamable_http_app()


async def test_a_server_over_http_is_like_any_other() -> None:
    reported: list[str] = []
    person = Nod({"name": "Ada"})
    async with (
        served(sdk_app(), "on") as url,
        Stage(ServerOptions("web", url=url, timeout=20), person=person) as servers,
    ):
        context = ToolContext(tell=reported.append)
        assert (await call_tool(servers, "web", "add", {"a": 1, "b": 2}, context)).content == "3"
        assert (await call_tool(servers, "web", "slow", {}, context)).content == "done"
        assert len((await call_tool(servers, "web", "big", {"n": 3_000_000}, context)).content) == 3_000_000
        assert "Ada" in (await call_tool(servers, "web", "who", {}, context)).content
        assert (await servers.read(None, "note://x")).content == "a note"
    assert reported == ["on (0/3)", "on (1/3)", "on (2/3)"]


def odd(status: int, body: bytes, kind: str, after: int = 0) -> App:
    """Answers in this way, from request number `after` on; before that, as a server should."""
    n_requests = 0

    async def app(scope: Any, receive: Any, send: Any) -> None:
        nonlocal n_requests
        message, more = b"", True
        while more:
            event = await receive()
            message, more = message + event.get("body", b""), event.get("more_body", False)
        asked = json.loads(message or b"{}")
        code, text, form = status, body, kind
        if n_requests < after:
            code, form = 200, "application/json"
            text = json.dumps(
                {"jsonrpc": "2.0", "id": asked.get("id"), "result": RESULTS.get(asked.get("method"), {})}
            ).encode()
        if asked.get("method") != "notifications/initialized":
            n_requests += 1
        await send({"type": "http.response.start", "status": code, "headers": [(b"content-type", form.encode())]})
        await send({"type": "http.response.body", "body": text})

    return app


RESULTS: dict[str, Any] = {
    "initialize": {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "odd", "version": "1"},
    },
    "tools/list": {"tools": [{"name": "t", "inputSchema": {"type": "object"}}]},
}
UNKNOWN = "answered with HTTP status 401; check its url and headers, or log in with 'shepherd mcp login odd'"
ODD: list[tuple[int, bytes, str, str]] = [
    (401, b"", "text/plain", UNKNOWN),
    (404, b"", "text/plain", "answered with HTTP status 404; check its url and headers"),
    (500, b"<html>", "text/html", "answered with HTTP status 500"),
    (200, b"<html>", "text/html", "says: Unexpected content type: text/html"),
    (200, b"{", "application/json", "says: Failed to parse JSON response"),
    (200, b"data: {\n\n", "text/event-stream", "says: "),
    (200, b"", "text/event-stream", "says: "),
    (202, b"", "text/plain", "says: "),
]


@pytest.mark.parametrize(("status", "body", "kind", "problem"), ODD)
async def test_an_address_that_is_no_server_costs_one_warning(
    status: int, body: bytes, kind: str, problem: str, capfd: pytest.CaptureFixture[str]
) -> None:
    async with served(odd(status, body, kind)) as url:
        stage = Stage(ServerOptions("odd", url=url, timeout=60))
        async with stage as servers:
            assert servers.statuses()[0].detail.startswith(problem)
    (warning,) = stage.warnings
    assert warning.startswith(f"the MCP server odd {problem}")
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(("status", "body", "kind", "problem"), ODD)
async def test_a_call_that_is_answered_with_nonsense_fails_in_a_sentence(
    status: int, body: bytes, kind: str, problem: str
) -> None:
    app = odd(status, body, kind, after=2)
    async with served(app) as url, Stage(ServerOptions("odd", url=url, timeout=60)) as servers:
        with pytest.raises(ToolError, match=r"^the MCP server odd "):
            await call_tool(servers, "odd", "t", {}, ToolContext())


async def test_headers_are_sent_and_never_shown() -> None:
    seen: list[bytes] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(dict(scope["headers"]).get(b"authorization", b""))
        await odd(500, b"", "text/plain")(scope, receive, send)

    async with served(app) as url:
        options = ServerOptions("s", url=url, headers={"Authorization": "Bearer ${TOKEN_X}"})
        stage = Stage(options, env={"TOKEN_X": "hush"})
        async with stage as servers:
            shown = repr((servers.statuses(), stage.warnings, options))
    assert seen[0] == b"Bearer hush"
    assert "hush" not in shown
