"""What we offer to other agents, as an MCP server over standard input and output or over HTTP.

    MCP client ─ tools/list, tools/call ──────────────▶ official SDK ─▶ Toolbox ─▶ tools
               ─ prompts, resources, completion ──────▶ `mcp_library.py` ─▶ `Offer`
               ─ logging/setLevel, a progressToken ───▶ the lines that a tool reports come as notifications

The SDK speaks the protocol, in all its revisions; this file maps it to tools. A tool that fails is a result with
`isError`, which the calling model reads; only a name that no tool has is an error of the protocol.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterator
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO, cast, get_args

from shepherd.core import Image, InvalidRequest, ToolCall, ToolResult
from shepherd.core.lru import LruCache
from shepherd.memory.users import LOCAL
from shepherd.server.http.body import BodyTooLarge, ClientGone, json_bytes, read_body, send_json
from shepherd.server.http.caller import address_of, is_loopback, named_user
from shepherd.server.observe.record import CALLER, Caller
from shepherd.tools.base import ToolError
from shepherd.tools.signature import in_thread
from shepherd.wire.base import check_values

if TYPE_CHECKING:
    import mcp_types as types
    from mcp.server import Server, ServerRequestContext
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
    from starlette.applications import Starlette
    from starlette.types import Message, Receive, Scope, Send

    from shepherd.server.endpoints.handler import Limits
    from shepherd.tools.offer import Offer
    from shepherd.tools.tool import Tool

    Context = ServerRequestContext[Any, Any]

logger = logging.getLogger(__name__)

PATH = "/mcp"
INSTRUCTIONS = (
    "Tools of Shepherd, on the user's own machine: files, the web, JSON, earlier conversations, and language models, "
    "which `chat` asks. The user sets the limits of the tools; an error message explains what to do."
)
INVALID_REQUEST = -32600
"""JSON-RPC 2.0, section 5.1."""
SHORTEST_SILENCE_S, LONGEST_SILENCE_S = 0.1, 10.0
"""Between two messages of progress: a command may print thousands of lines in a second, and an agent that hears nothing
for a minute drops the call.
"""
MOST_CONVERSATIONS = 16
"""Over HTTP: the server keeps the toolboxes, with their cut results, of so many conversations."""

Open = Callable[[str | None], Awaitable["Offer"]]
"""What there is for one user; None = an unknown user."""


def make_server(open_offer: Open, *, silence_s: float = LONGEST_SILENCE_S) -> Server[Any]:
    """An MCP server over what `open_offer` gives, once for each conversation."""
    import mcp_types as types  # noqa: PLC0415 - 0.7 s
    from mcp.server import Server  # noqa: PLC0415
    from mcp.shared.exceptions import MCPError  # noqa: PLC0415

    from shepherd.server.endpoints.mcp_library import add_library  # noqa: PLC0415

    numbers = itertools.count(1)
    offers = LruCache["Offer"](MOST_CONVERSATIONS)
    """A later request reads the rest of a result that was cut in the box that keeps it."""
    levels = LruCache["types.LoggingLevel"](MOST_CONVERSATIONS)
    """That a client has set; the newest revision has it in each request instead."""

    async def offer_of(context: Context) -> Offer:
        place = _conversation(context)
        if (known := offers.find(place)) is not None:
            return known
        opened = await open_offer(_user(context))
        if (known := offers.find(place)) is None:  # another request may have been faster
            offers.keep(place, opened)
        return known or opened

    async def list_tools(context: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[_described(tool) for tool in (await offer_of(context)).toolbox.tools])

    async def call_tool(context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        call = ToolCall(f"mcp-{next(numbers)}", params.name, json.dumps(params.arguments or {}, ensure_ascii=False))
        box = (await offer_of(context)).toolbox
        try:
            box.get_known(params.name)
        except ToolError as error:
            raise MCPError(types.INVALID_PARAMS, error.message) from error
        async with _reporting(context, levels.find(_conversation(context)), silence_s) as tell:
            return _encode_result((await box.run(call, tell=tell)).result)

    async def set_level(context: Context, params: types.SetLevelRequestParams) -> types.EmptyResult:
        levels.keep(_conversation(context), params.level)
        return types.EmptyResult()

    server = Server(
        "shepherd",
        version=version("shepherd"),
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )
    server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, set_level)
    add_library(server, offer_of)
    return server


async def serve_stdio(open_offer: Open, wire: Wire) -> None:
    """Serve until the client closes its end of the wire."""
    import anyio  # noqa: PLC0415 - the SDK's
    from mcp.server.stdio import stdio_server  # noqa: PLC0415

    server = make_server(open_offer)
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


def add_mcp_path(app: Starlette, make: Callable[[], Server[Any]], limits: Limits) -> None:
    """Put the MCP server that `make` returns at `/mcp`, behind the middleware of the other paths."""
    from starlette.routing import Route  # noqa: PLC0415 - over stdio there are no paths

    app.router.routes.append(
        Route(PATH, _Endpoint(make, limits), methods=["GET", "POST", "DELETE"], include_in_schema=False)
    )


class _Endpoint:
    """The path, as an ASGI application. Its first request loads the SDK and starts its task.

    The SDK reads bodies of any length, and parses them on the event loop: this class reads and bounds them.
    """

    def __init__(self, make: Callable[[], Server[Any]], limits: Limits) -> None:
        self._make = make
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
            sessions = StreamableHTTPSessionManager(self._make())  # `AuthMiddleware` checks the host
            async with sessions.run():
                started.set_result(sessions)
                await asyncio.Event().wait()
        except Exception as error:
            logger.exception("the MCP server has ended")
            if not started.done():
                started.set_exception(error)


@contextlib.asynccontextmanager
async def _reporting(
    context: Context, level: types.LoggingLevel | None, silence_s: float
) -> AsyncIterator[Callable[[str], None]]:
    """Within the block, lines of progress go to the client, if it wants them; the newest one counts. Without
    lines, a message without text says every `silence_s` that the call still runs. `level`: of the log that it wants.
    """
    is_logged = _is_wanted("info", context, level)
    numbers = itertools.count(1)
    newest: list[str] = []
    fresh, sending = asyncio.Event(), asyncio.Lock()

    def tell(line: str) -> None:
        newest[:] = [line]
        fresh.set()

    async def report() -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(silence_s):
                    await fresh.wait()
            await send()
            await asyncio.sleep(SHORTEST_SILENCE_S)

    async def send() -> None:
        async with sending:
            line = newest.pop() if newest else None
            fresh.clear()
            await context.session.report_progress(next(numbers), message=line)
            if is_logged and line is not None:
                await _log(context, "info", line)

    task = asyncio.create_task(report())
    try:
        yield tell
        async with sending:  # a message is sent whole
            task.cancel()
        if newest:
            await send()
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def _is_wanted(kind: types.LoggingLevel, context: Context, level: types.LoggingLevel | None) -> bool:
    """Whether the client wants such messages: in 2026-07-28 by this request, before by the `level` that it has set."""
    import mcp_types as types  # noqa: PLC0415
    from mcp_types.version import MODERN_PROTOCOL_VERSIONS  # noqa: PLC0415

    is_modern = context.protocol_version in MODERN_PROTOCOL_VERSIONS
    wanted = (context.meta or {}).get(types.LOG_LEVEL_META_KEY) if is_modern else level
    order = get_args(types.LoggingLevel)
    return wanted in order and order.index(kind) >= order.index(wanted)


async def _log(context: Context, kind: types.LoggingLevel, line: str) -> None:
    import mcp_types as types  # noqa: PLC0415

    name = context.params["name"] if context.params else None
    params = types.LoggingMessageNotificationParams(level=kind, logger=name, data=line)
    await context.session.send_notification(types.LoggingMessageNotification(params=params), context.request_id)


def _user(context: Context) -> str | None:
    """The user whose memory is used, as for `/v1/memory`: the owner, unless the key or the header names another. None
    for a client on another machine without a key."""
    if context.request is None:
        return LOCAL
    scope = context.request.scope
    is_stranger = scope["app"].state.server.is_open and not is_loopback(address_of(scope))
    return None if is_stranger else named_user(scope) or LOCAL


def _conversation(context: Context) -> Hashable:
    """The identity of a conversation; newer revisions of the protocol have only the caller."""
    if context.request is None:  # standard input has one agent at its other end
        return None
    caller: Caller | None = context.request.scope.get(CALLER)
    identity = (caller.key, caller.address) if caller else None
    return context.request.headers.get("mcp-session-id"), _user(context), identity


def _described(tool: Tool) -> types.Tool:
    import mcp_types as types  # noqa: PLC0415

    effect = tool.effect if isinstance(tool.effect, str) else "write"
    annotations = types.ToolAnnotations(
        read_only_hint=effect == "read", destructive_hint=effect in ("write", "run"), open_world_hint=effect == "net"
    )
    schema = {"type": "object", **tool.parameters}
    return types.Tool(name=tool.name, description=tool.description, input_schema=schema, annotations=annotations)


def _encode_result(result: ToolResult) -> types.CallToolResult:
    import mcp_types as types  # noqa: PLC0415

    from shepherd.server.endpoints.mcp_library import content_of  # noqa: PLC0415

    content: list[types.ContentBlock] = []
    for part in result.parts:
        if (found := content_of(part)) is not None:
            content.append(found)
        elif isinstance(part, Image):
            content.append(types.TextContent(text=f"[image: {part.url}]"))
    return types.CallToolResult(content=content, is_error=result.is_error)
