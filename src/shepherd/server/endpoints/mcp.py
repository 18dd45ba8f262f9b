"""Our tools for other agents: a toolbox as an MCP server, over standard input and output or over HTTP.

    MCP client ─ tools/list, tools/call ─▶ official SDK ─▶ Toolbox ─▶ tools

The SDK speaks the protocol, in all its revisions; this file maps it to tools. A tool that fails is a result with
`isError`, which the calling model reads; only a name that no tool has is an error of the protocol. Not here: which tools there are and what they
may do (`app`).
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import json
import logging
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterator
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO, cast

from shepherd.core import Image, InvalidRequest, Text, ToolCall, ToolResult
from shepherd.core.lru import LruCache
from shepherd.memory.users import LOCAL
from shepherd.server.http.body import BodyTooLarge, ClientGone, json_bytes, read_body, send_json
from shepherd.server.http.caller import address_of, is_loopback, named_user
from shepherd.server.observe.record import CALLER, Caller
from shepherd.tools.base import ToolError
from shepherd.tools.signature import in_thread
from shepherd.wire.base import check_values

if TYPE_CHECKING:
    from fastapi import FastAPI
    from mcp.server import Server, ServerRequestContext
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
    from mcp_types import CallToolRequestParams, CallToolResult, ContentBlock, ListToolsResult, PaginatedRequestParams
    from mcp_types import Tool as McpTool
    from starlette.types import Message, Receive, Scope, Send

    from shepherd.server.endpoints.handler import Limits
    from shepherd.tools.tool import Tool
    from shepherd.tools.toolbox import ConversationToolbox

logger = logging.getLogger(__name__)

PATH = "/mcp"
INSTRUCTIONS = (
    "Tools of Shepherd, on the user's own machine: files, the web, JSON, earlier conversations, and language models, "
    "which `chat` asks. The user sets the limits of the tools; an error message explains what to do."
)
INVALID_REQUEST = -32600
"""JSON-RPC 2.0, section 5.1."""
SHORTEST_SILENCE_S = 0.1
"""Between two messages of progress: a command may print thousands of lines in a second."""
MOST_CONVERSATIONS = 16
"""Over HTTP: the server keeps the toolboxes, with their cut results, of so many conversations."""

Open = Callable[[str | None], Awaitable["ConversationToolbox"]]
"""The tools for one user; None = an unknown user."""


def make_server(open_box: Open) -> Server[Any]:
    """An MCP server over the tools that `open_box` gives, one box for each conversation."""
    from mcp.server import Server  # noqa: PLC0415 - 0.7 s
    from mcp.shared.exceptions import MCPError  # noqa: PLC0415
    from mcp_types import INVALID_PARAMS, ListToolsResult  # noqa: PLC0415

    numbers = itertools.count(1)
    boxes = LruCache["ConversationToolbox"](MOST_CONVERSATIONS)
    """A later request reads the rest of a result that was cut in the box that keeps it."""

    async def box_of(context: ServerRequestContext[Any, Any]) -> ConversationToolbox:
        place = _conversation(context)
        if (known := boxes.find(place)) is not None:
            return known
        opened = await open_box(_user(context))
        if (known := boxes.find(place)) is None:  # another request may have been faster
            boxes.keep(place, opened)
        return known or opened

    async def list_tools(
        context: ServerRequestContext[Any, Any], params: PaginatedRequestParams | None
    ) -> ListToolsResult:
        return ListToolsResult(tools=[_described(tool) for tool in (await box_of(context)).tools])

    async def call_tool(context: ServerRequestContext[Any, Any], params: CallToolRequestParams) -> CallToolResult:
        call = ToolCall(f"mcp-{next(numbers)}", params.name, json.dumps(params.arguments or {}, ensure_ascii=False))
        box = await box_of(context)
        try:
            box.get_known(params.name)
        except ToolError as error:
            raise MCPError(INVALID_PARAMS, error.message) from error
        async with _reporting(context) as tell:
            return _encode_result((await box.run(call, tell=tell)).result)

    return Server(
        "shepherd",
        version=version("shepherd"),
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


async def serve_stdio(open_box: Open, wire: Wire) -> None:
    """Serve until the client closes its end of the wire."""
    import anyio  # noqa: PLC0415 - the SDK's
    from mcp.server.stdio import stdio_server  # noqa: PLC0415

    server = make_server(open_box)
    # The SDK would read in a thread that cannot be interrupted: no signal could end us before the client does.
    lines = cast(Any, _lines(wire.input))  # it is only iterated over
    async with stdio_server(stdin=lines, stdout=anyio.wrap_file(wire.output)) as (read, write):
        await server.run(read, write, server.create_initialization_options())


class Wire(NamedTuple):
    """Standard input and output as the client's: closed never, since a thread may still be waiting for them."""

    input: TextIO
    output: TextIO


@contextlib.contextmanager
def standard_streams_taken() -> Iterator[Wire]:
    """Within the block only the protocol reads standard input and writes standard output. Everything else, such as a
    file of tools that prints when it is loaded, and a program that a tool starts, reads nothing and writes to standard
    error.
    """
    sys.stdout.flush()
    source, sink = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    try:
        yield Wire(
            open(source, encoding="utf-8", errors="replace", newline="\n", closefd=False),  # noqa: SIM115
            open(sink, "w", encoding="utf-8", newline="\n", closefd=False),  # noqa: SIM115
        )
    finally:
        sys.stdout.flush()
        os.dup2(source, 0)
        os.dup2(sink, 1)


async def _lines(file: TextIO) -> AsyncIterator[str]:
    """The lines of a file as they come, read by a thread that does not delay the end of the program."""
    while line := await in_thread(file.readline):
        yield line


def add_mcp_path(app: FastAPI, open_box: Open, limits: Limits) -> None:
    """Put the MCP server at `/mcp`, behind the middleware of the other paths."""
    from starlette.routing import Route  # noqa: PLC0415 - over stdio there are no paths

    app.router.routes.append(
        Route(PATH, _Endpoint(open_box, limits), methods=["GET", "POST", "DELETE"], include_in_schema=False)
    )


class _Endpoint:
    """The path, as an ASGI application. Its first request loads the SDK and starts its task.

    The SDK reads bodies of any length, and parses them on the event loop: this class reads and bounds them.
    """

    def __init__(self, open_box: Open, limits: Limits) -> None:
        self._open_box = open_box
        self._limits = limits
        self._sessions: asyncio.Future[StreamableHTTPSessionManager] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            body = await read_body(scope, receive, self._limits.max_body_bytes, self._limits.stall_s)
            check_values(body, "the body")
        except ClientGone:
            return
        except InvalidRequest as error:
            refusal = {"jsonrpc": "2.0", "id": None, "error": {"code": INVALID_REQUEST, "message": error.message}}
            await send_json(
                send, error.status, json_bytes(refusal), unread=receive if isinstance(error, BodyTooLarge) else None
            )
            return
        if self._sessions is None:
            self._sessions = asyncio.get_running_loop().create_future()
            scope["app"].state.server.active.background.add(asyncio.create_task(self._live(self._sessions)))
        sessions = await asyncio.shield(self._sessions)
        unread: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive_again() -> Message:
            return unread.pop() if unread else await receive()

        await sessions.handle_request(scope, receive_again, send)

    async def _live(self, started: asyncio.Future[StreamableHTTPSessionManager]) -> None:
        """Holds the SDK's task group, which must be entered and left by one task; ends with the server."""
        from mcp.server.streamable_http_manager import StreamableHTTPSessionManager  # noqa: PLC0415

        try:
            sessions = StreamableHTTPSessionManager(make_server(self._open_box))  # `AuthMiddleware` checks the host
            async with sessions.run():
                started.set_result(sessions)
                await asyncio.Event().wait()
        except Exception as error:
            logger.exception("the MCP server has ended")
            if not started.done():
                started.set_exception(error)


@contextlib.asynccontextmanager
async def _reporting(context: ServerRequestContext[Any, Any]) -> AsyncIterator[Callable[[str], None]]:
    """Within the block, lines of progress go to the client, if it wants them; the newest one counts."""
    newest: list[str] = []
    fresh = asyncio.Event()

    def tell(line: str) -> None:
        newest[:] = [line]
        fresh.set()

    async def report() -> None:
        for n in itertools.count(1):
            await fresh.wait()
            fresh.clear()
            await context.session.report_progress(n, message=newest[0])
            await asyncio.sleep(SHORTEST_SILENCE_S)

    task = asyncio.create_task(report())
    try:
        yield tell
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def _user(context: ServerRequestContext[Any, Any]) -> str | None:
    """The user whose memory is used, as for `/v1/memory`: the owner, unless the key or the header names another. None
    for a client on another machine without a key."""
    if context.request is None:
        return LOCAL
    scope = context.request.scope
    is_stranger = scope["app"].state.server.is_open and not is_loopback(address_of(scope))
    return None if is_stranger else named_user(scope) or LOCAL


def _conversation(context: ServerRequestContext[Any, Any]) -> Hashable:
    """The identity of a conversation; newer revisions of the protocol have only the caller."""
    if context.request is None:  # standard input has one agent at its other end
        return None
    caller: Caller | None = context.request.scope.get(CALLER)
    identity = (caller.key, caller.address) if caller else None
    return context.request.headers.get("mcp-session-id"), _user(context), identity


def _described(tool: Tool) -> McpTool:
    from mcp_types import Tool as McpTool  # noqa: PLC0415
    from mcp_types import ToolAnnotations  # noqa: PLC0415

    effect = tool.effect if isinstance(tool.effect, str) else "write"
    annotations = ToolAnnotations(
        read_only_hint=effect == "read", destructive_hint=effect in ("write", "run"), open_world_hint=effect == "net"
    )
    schema = {"type": "object", **tool.parameters}
    return McpTool(name=tool.name, description=tool.description, input_schema=schema, annotations=annotations)


def _encode_result(result: ToolResult) -> CallToolResult:
    from mcp_types import CallToolResult, ImageContent, TextContent  # noqa: PLC0415

    content: list[ContentBlock] = []
    for part in result.parts:
        match part:
            case Text(text=text):
                content.append(TextContent(text=text))
            case Image(data=bytes() as data, media_type=kind):
                content.append(ImageContent(data=base64.b64encode(data).decode(), mime_type=kind or "image/png"))
            case Image(url=url):
                content.append(TextContent(text=f"[image: {url}]"))
    return CallToolResult(content=content, is_error=result.is_error)
