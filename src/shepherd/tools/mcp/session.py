"""A session with one server: the SDK's client over our process or over HTTP, and its answers as our values.

`server/discover` comes first, as in the newest revision ("auto"). A server that refuses it gets `initialize`; one that
ends at an unknown request gets it over a new connection ("legacy"). The SDK waits ten seconds for a server that ignores
unknown requests, so a start with less time than that begins with `initialize`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.metadata import version
from typing import Any, Literal

import httpx2
import mcp_types as types
from mcp.client.client import Client
from mcp.client.session import DISCOVER_TIMEOUT_SECONDS
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from shepherd.core import Message
from shepherd.core.dataclasses import dataclass
from shepherd.process.guardian import Guardian
from shepherd.tools.base import Result, ToolError
from shepherd.tools.mcp import content, process
from shepherd.tools.mcp.framing import LINE_BYTES
from shepherd.tools.mcp.login import LOGIN, LOGIN_BYTES, REQUEST_S, ServerLogin, open_login
from shepherd.tools.mcp.mending import with_mended_results
from shepherd.tools.mcp.server_requests import ServerRequestHandler
from shepherd.tools.mcp.values import LoginOptions, Prompt, Resource, ServerLog, ServerOptions, ServerTool

logger = logging.getLogger(__name__)

PAGES = 100
"""Of a list; of an endless one, the first pages are used."""
ITEMS = 10_000
CONNECT_S = 30.0

ListKind = Literal["tools", "prompts", "resources"]
Mode = Literal["auto", "legacy"]
CHANGES: Mapping[type, ListKind] = {
    types.ToolListChangedNotification: "tools",
    types.PromptListChangedNotification: "prompts",
    types.ResourceListChangedNotification: "resources",
}


@dataclass(slots=True)
class Session:
    """A server that is ready. Any number of requests may run at the same time, from any task of the loop.

    Every method raises the SDK's errors; see `explain`.
    """

    name: str
    client: Client
    warn: Callable[[str], None]

    @property
    def software(self) -> str:
        info = self.client.server_info
        return f"{info.name} {info.version}".strip() if info else ""

    async def tools(self) -> tuple[ServerTool, ...]:
        """Each name once."""
        found: dict[str, ServerTool] = {}
        for tool in await self._pages("tools", self.client.list_tools):
            found.setdefault(tool.name, content.as_tool(tool))
        return tuple(found.values())

    async def prompts(self) -> tuple[Prompt, ...]:
        found = await self._pages("prompts", self.client.list_prompts)
        return tuple(content.as_prompt(self.name, each) for each in found)

    async def resources(self) -> tuple[Resource, ...]:
        """Resources, then templates."""
        found = await self._pages("resources", self.client.list_resources)
        found += await self._pages("resources", self.client.list_resource_templates, "resource_templates")
        return tuple(content.as_resource(self.name, each) for each in found)

    async def _pages(self, kind: ListKind, fetch: Callable[..., Awaitable[Any]], field: str = "") -> list[Any]:
        """The items of all pages; none if the server reports capabilities without this kind. `field`: of a page."""
        has = self.client.server_capabilities
        found: list[Any] = []
        if getattr(has, kind) is None and any(each is not None for each in (has.tools, has.prompts, has.resources)):
            return found
        cursor: str | None = None
        seen: set[str] = set()
        for _ in range(PAGES):
            try:
                page = await fetch(cursor=cursor)
            except MCPError as error:
                if error.code == types.METHOD_NOT_FOUND:
                    return found
                raise
            found += getattr(page, field or kind)
            cursor = page.next_cursor
            if not cursor:
                return found
            if cursor in seen or len(found) >= ITEMS:
                break
            seen.add(cursor)
        what = (field or kind).replace("_", " ")
        self.warn(f"its list of {what} does not end; the first {len(found)} are used")
        return found

    async def call(self, tool: str, arguments: Mapping[str, Any], tell: Callable[[str], None]) -> Result:
        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            of = f"{progress:g}/{total:g}" if total else f"{progress:g}"
            tell(f"{message} ({of})" if message else of)

        answer = await self.client.call_tool(tool, dict(arguments), progress_callback=on_progress)
        return content.as_result(self.name, answer)

    async def read(self, uri: str) -> Result:
        contents = (await self.client.read_resource(uri)).contents
        texts = [content.read_contents(each, is_alone=len(contents) == 1) for each in contents]
        return Result("\n".join(texts) if texts else f"(the resource {uri} of {self.name} is empty)")

    async def prompt(self, name: str, arguments: Mapping[str, str]) -> tuple[Message, ...]:
        answer = await self.client.get_prompt(name, dict(arguments))
        return tuple(content.as_message(self.name, each.role, [each.content]) for each in answer.messages)

    async def watch(self, changed: Callable[[ListKind], None]) -> None:
        """Until cancelled: reports the changes of a server of the newest revision. Older ones send notifications."""
        if self.client.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            return
        listen = self.client.listen(tools_list_changed=True, prompts_list_changed=True, resources_list_changed=True)
        try:
            async with listen as events:
                async for event in events:
                    kinds: dict[str, ListKind] = {"ToolsListChanged": "tools", "PromptsListChanged": "prompts"}
                    changed(kinds.get(type(event).__name__, "resources"))
        except Exception as error:  # without it, only the lists stay as they are
            logger.debug("MCP server %s: no news of changes: %s", self.name, explain(error))


@dataclass(slots=True)
class Connector:
    """How to reach one server, and what we offer to it. Each `open` is a new connection."""

    options: ServerOptions
    """With variables expanded."""
    asked: ServerRequestHandler
    guardian: Guardian
    log: ServerLog
    env: Mapping[str, str]
    warn: Callable[[str], None]
    on_end: Callable[[], None]
    """Called at the end of the server's output."""
    on_change: Callable[[ListKind], None]
    login_options: LoginOptions
    login: ServerLogin | None = None
    """Of the last connection over HTTP."""
    child: process.ServerProcess | None = None
    """The last one that was started."""
    status: int = 0
    """The last HTTP status that was an error."""

    @property
    def modes(self) -> tuple[Mode, Mode]:
        """The one to begin with, and the one for a server that `wants_other`."""
        return ("auto", "legacy") if self.options.timeout > DISCOVER_TIMEOUT_SECONDS else ("legacy", "auto")

    @asynccontextmanager
    async def open(self, mode: Mode = "auto") -> AsyncIterator[Session]:
        """A session, entered and left in one task. Raises: `ToolError`, and what `explain` explains."""
        # A server's mistake is no traceback in a user's terminal: only developers see the SDK's logs.
        level = logging.NOTSET if logging.getLogger().isEnabledFor(logging.DEBUG) else logging.CRITICAL
        for name in ("mcp", "client"):
            logging.getLogger(name).setLevel(level)
        logging.getLogger("mcp.client.auth").setLevel(logging.CRITICAL + 1)  # it quotes answers that contain tokens
        self.status = 0
        asked = self.asked
        client = Client(
            self._transport(),
            mode=mode,
            cache=None,
            client_info=types.Implementation(name="shepherd", version=version("shepherd")),
            message_handler=self._hear,
            logging_callback=self._hear_log,
            list_roots_callback=asked.list_roots if asked.roots else None,
            elicitation_callback=asked.elicit if asked.person() is not None else None,
            sampling_callback=asked.sample if asked.answer is not None and asked.person() is not None else None,
        )
        async with client:
            client.session.validate_tool_result = self._accept  # type: ignore[method-assign, assignment]  # see there
            yield Session(self.options.name, client, self.warn)

    @asynccontextmanager
    async def _transport(self) -> AsyncIterator[Any]:
        options = self.options
        if options.command is not None:
            async with process.run_server(options, self.log, self.guardian, self.env, self.on_end) as running:
                self.child, streams = running
                yield with_mended_results(streams)
            return
        assert options.url is not None

        async def look_at(response: httpx2.Response) -> None:
            if response.status_code >= 400:
                self.status = response.status_code
            if response.headers.get("content-encoding", "identity") != "identity":  # a few bytes can hold any number
                raise httpx2.ReadError("it compresses its answer, which it was asked not to do")
            assert isinstance(response.stream, httpx2.AsyncByteStream)
            if LOGIN in response.request.extensions:
                response.stream = Bounded(response.stream, LOGIN_BYTES, REQUEST_S)
            elif response.is_success and response.headers.get("content-type", "").startswith("text/event-stream"):
                response.stream = Bounded(response.stream, None)  # of its events, the SDK bounds each
            else:
                response.stream = Bounded(response.stream)

        # Reading has no time limit: each request has a clock, and the stream of notifications is silent for hours.
        limits, hooks = httpx2.Timeout(CONNECT_S, read=None), {"response": [look_at]}
        async with AsyncExitStack() as stack:
            self.login = await open_login(options, self.login_options, stack)
            client = httpx2.AsyncClient(
                headers={"accept-encoding": "identity", **options.headers},
                auth=self.login,
                timeout=limits,
                event_hooks=hooks,
            )
            http = await stack.enter_async_context(client)
            yield with_mended_results(
                await stack.enter_async_context(
                    streamable_http_client(options.url, http_client=http, max_sse_event_size=LINE_BYTES)
                )
            )

    async def _accept(self, tool: str, result: types.CallToolResult) -> None:
        """In place of the SDK's check against the schema that the tool declares for its result: a result that does not
        satisfy it is still what the tool has done, and the model reads it as text."""

    async def _hear(self, message: Any) -> None:
        kind = CHANGES.get(type(message))
        if kind is not None:
            self.on_change(kind)

    async def _hear_log(self, params: types.LoggingMessageNotificationParams) -> None:
        self.log.add(str(params.data), mark=f"({params.level}) ")


class Bounded(httpx2.AsyncByteStream):
    """A body that ends with an error when it is longer than `most_bytes`, or takes longer than `within_s`; the SDK
    reads it to its end. Other tasks get their turn however much comes at once."""

    def __init__(
        self, stream: httpx2.AsyncByteStream, most_bytes: int | None = LINE_BYTES, within_s: float | None = None
    ) -> None:
        self.stream, self.most_bytes, self.within_s = stream, most_bytes, within_s

    async def __aiter__(self) -> AsyncIterator[bytes]:
        n_bytes = 0
        until = None if self.within_s is None else asyncio.get_running_loop().time() + self.within_s
        pieces = aiter(self.stream)
        while True:
            try:
                async with asyncio.timeout_at(until):
                    piece = await anext(pieces, b"")
            except TimeoutError as error:
                raise httpx2.ReadError(f"the answer has not ended in {self.within_s:g} s") from error
            if not piece:
                return
            n_bytes += len(piece)
            if self.most_bytes is not None and n_bytes > self.most_bytes:
                raise httpx2.ReadError(f"the answer is longer than {self.most_bytes // 2**20} MiB")
            yield piece
            await asyncio.sleep(0)

    async def aclose(self) -> None:
        await self.stream.aclose()


def first_of(error: BaseException) -> BaseException:
    """The error within a group: the SDK's task groups wrap every error."""
    return first_of(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


def wants_other(mode: Mode, error: BaseException) -> bool:
    """Whether a server that failed to start in this mode may start in the other one."""
    error = first_of(error)
    if mode == "auto":
        return is_gone(error)
    if isinstance(error, RuntimeError):  # the SDK's, for `initialize` answered with a revision that has none
        return "protocol version" in str(error)
    return isinstance(error, MCPError) and error.code not in {types.CONNECTION_CLOSED, types.REQUEST_TIMEOUT}


def is_gone(error: BaseException) -> bool:
    """Whether the connection has ended, and not only the request."""
    error = first_of(error)
    return isinstance(error, MCPError) and (
        error.code == types.CONNECTION_CLOSED or error.error.message == "Session terminated"  # the SDK's word for a 404
    )


def explain(error: BaseException) -> str:
    """An error of the SDK as the predicate of a sentence."""
    error = first_of(error)
    match error:
        case ToolError():
            return error.message
        case MCPError():
            return f"says: {error.error.message[:1000]}" if error.error.message else f"reports error {error.code}"
        case ValidationError():
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            return f"gave an answer that is not valid MCP ({where}: {first['msg']})"
        case httpx2.TransportError():
            return f"cannot be reached: {error or type(error).__name__}"
        case TimeoutError():
            return "did not answer in time"
        case RuntimeError():
            return f"gave an answer that cannot be used: {str(error).partition(chr(10))[0][:500]}"
        case _:
            return f"failed: {type(error).__name__}: {str(error)[:500]}"
