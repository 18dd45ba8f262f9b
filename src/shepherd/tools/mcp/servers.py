"""All configured MCP servers as one: their tools under names of our own, their prompts and resources.

They start side by side and in the background; one that does not start costs a warning. The caller decides how long to
wait for them before the first request (`ready`): tools are at the head of the prompt, so a tool that appears later
makes a local model read the conversation again.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal

from shepherd.core import Message
from shepherd.process.guardian import Guardian
from shepherd.tools.base import Person, Result, ToolError
from shepherd.tools.mcp.connection import Connection
from shepherd.tools.mcp.values import AskModel, LoginOptions, Prompt, Resource, ServerOptions, ServerStatus, ServerTool
from shepherd.tools.registry import MOST_CHARS, free_name
from shepherd.tools.selection import normalized
from shepherd.tools.tool import Tool, ToolContext

logger = logging.getLogger(__name__)

PATIENCE_S = 3.0
"""For servers to become ready before the first request of a conversation in the terminal."""
WALL_S = 86_400.0
"""The toolbox's limit for a call: our own clock is stricter, and stops while a person is asked."""
ANYTHING: Mapping[str, Any] = {"type": "object"}


class McpServerPool:
    """The servers of one program, on one event loop. `person` may be assigned at any time, but servers know of a person
    only if there is one when they start.
    """

    def __init__(
        self,
        options: Iterable[ServerOptions],
        *,
        env: Mapping[str, str],
        roots: Sequence[str] = (),
        answer: AskModel | None = None,
        person: Person | None = None,
        warn: Callable[[str], None] = logger.warning,
        on_tools: Callable[[], None] = lambda: None,
        login: LoginOptions | None = None,
    ) -> None:
        """`env`: ours, for `${NAME}`; servers get little of it. `roots`: the folders that they should use. `on_tools`:
        called when the result of `tools` has changed. `login`: left out, no server can ask a person to log in.
        """
        self.person = person
        self.guardian = Guardian()
        self.connections = {
            each.name: Connection(
                each,
                env=env,
                guardian=self.guardian,
                person=lambda: self.person,
                answer=answer,
                roots=roots,
                warn=warn,
                on_tools=on_tools,
                login=login or LoginOptions(),
            )
            for each in options
        }
        self.names: dict[tuple[str, str], str] = {}
        """Server and tool -> our name, which stays."""
        self.made: dict[str, tuple[tuple[ServerTool, ...], tuple[Tool, ...]]] = {}
        self.tasks: list[asyncio.Task[None]] = []

    # -- life -------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to start all of them; needs the event loop, and waits for nothing."""
        if not self.tasks:
            self.tasks = [
                asyncio.create_task(each.run(), name=f"mcp server {name}") for name, each in self.connections.items()
            ]

    async def ready(self, patience_s: float | None = PATIENCE_S) -> None:
        """Wait until each is ready or has failed, at most for `patience_s`; None = for their own timeouts."""
        with suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                for each in self.connections.values():
                    await each.settled.wait()

    async def close(self) -> None:
        """End all of them, side by side, with everything they have started. Takes seconds if one does not end."""
        for each in self.connections.values():
            each.close()
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        self.tasks = []
        await asyncio.to_thread(self.guardian.close)

    async def __aenter__(self) -> McpServerPool:
        self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def restart(self, name: str) -> None:
        """Start one again, and wait until it is ready or has failed. Raises: `ToolError`."""
        await self._get(name).restart()

    def statuses(self) -> Sequence[ServerStatus]:
        """In the order of the configuration."""
        return [self._status(each) for each in self.connections.values()]

    def _status(self, connection: Connection) -> ServerStatus:
        options, session = connection.options, connection.session
        software = session.software if session is not None else ""
        names = tuple(tool.name for tool in self._tools_of(connection))
        details = {
            "ready": connection.login_problem or software,
            "starting": "is starting",
            "off": "switched off in the configuration",
        }
        return ServerStatus(
            name=options.name,
            state=connection.state,
            detail=details.get(connection.state, connection.problem),
            n_tools=len(names),
            where=options.url or " ".join((options.command or "", *options.args)),
            software=software,
            protocol=(session.client.protocol_version or "") if session is not None else "",
            tools=names,
            skipped=tuple(each.name for each in connection.tools if each.is_deprecated),
            instructions=(session.client.instructions or "") if session is not None else "",
            log=tuple(connection.log.kept),
        )

    @property
    def server_names(self) -> Sequence[str]:
        return tuple(self.connections)

    # -- tools ------------------------------------------------------------------------------------------------------

    def tools(self) -> tuple[Tool, ...]:
        """The tools so far, in the order of the configuration, then of the servers."""
        return tuple(tool for each in self.connections.values() for tool in self._tools_of(each))

    def _tools_of(self, connection: Connection) -> tuple[Tool, ...]:
        offers = connection.tools
        known = self.made.get(connection.name)
        if known is None or known[0] is not offers:
            made = tuple(self._make(connection, offer) for offer in offers if not offer.is_deprecated)
            known = self.made[connection.name] = (offers, made)
        return known[1]

    def _make(self, connection: Connection, offer: ServerTool) -> Tool:
        async def run(context: ToolContext, arguments: Mapping[str, Any]) -> Result:
            return await connection.call(offer.name, arguments, context.tell)

        return Tool(
            name=self._name(connection.name, offer.name),
            description=offer.description,
            parameters=offer.schema,
            run=run,
            category="mcp",
            effect="write" if offer.effect == "read" and not connection.options.trust_annotations else offer.effect,
            aliases=(f"{connection.name}:{offer.name}",),
            timeout_s=WALL_S,
            fingerprint=connection.options.fingerprint(offer),
        )

    def _name(self, server: str, tool: str) -> str:
        """Our name of a tool: unique, and the same for as long as the program runs."""
        key = (server, tool)
        if key not in self.names:
            self.names[key] = free_name(sanitised(server, tool), self.names.values())
        return self.names[key]

    def resolve_call(self, arguments: Mapping[str, Any]) -> tuple[Tool, Mapping[str, Any]]:
        """The tool and the arguments that a call of `call_mcp_tool` names; `arguments` fit its schema. A server that is
        still starting may have any tool. Raises: `ToolError` naming the servers, or the tools.
        """
        server, tool = str(arguments.get("server") or ""), str(arguments.get("tool") or "")
        head, colon, rest = tool.partition(":")
        if colon and (not server or head.casefold() == server.casefold()):
            server, tool = head, rest
        connection = self._get(server)
        inner: Mapping[str, Any] = arguments.get("arguments") or {}
        wanted = {tool, tool.casefold()}
        for offer in connection.tools:
            if {offer.name, self._name(connection.name, offer.name)} & wanted or offer.name.casefold() in wanted:
                return self._make(connection, offer), inner
        if connection.state == "starting" and not connection.tools:
            return self._make(connection, ServerTool(tool, "", ANYTHING, "write")), inner
        if not connection.tools and connection.state != "ready":
            raise ToolError(f"the MCP server {connection.name} {connection.problem or 'is ' + connection.state}")
        known = ", ".join(offer.name for offer in connection.tools) or "none"
        raise ToolError(f"the MCP server {connection.name} has no tool {tool[:80]!r}; it has: {known}")

    # -- prompts and resources --------------------------------------------------------------------------------------

    async def prompts(self) -> Sequence[Prompt]:
        """Of all servers; one that does not answer costs a warning."""
        return await self._gather(self._running(), "prompts")

    async def prompt(self, server: str, name: str, arguments: Mapping[str, str]) -> tuple[Message, ...]:
        """The messages of a prompt with its arguments filled in. Raises: `ToolError`."""
        connection = self._get(server)
        prompts = {each.name: each for each in await connection.listed("prompts")}
        if name not in prompts:
            known = ", ".join(prompts) or "none"
            raise ToolError(f"the MCP server {connection.name} has no prompt {name[:80]!r}; it has: {known}")
        takes = [each.name for each in prompts[name].arguments]
        missing = [each.name for each in prompts[name].arguments if each.required and each.name not in arguments]
        if missing:
            raise ToolError(f"the prompt {name} needs {', '.join(missing)}; write: {missing[0]}=...")
        if unknown := [key for key in arguments if key not in takes]:
            raise ToolError(f"the prompt {name} takes no {unknown[0]!r}; it takes: {', '.join(takes) or 'nothing'}")
        return await connection.prompt(name, arguments)

    async def resources(self, server: str | None = None) -> Sequence[Resource]:
        """Of one server or of all, templates included. Raises: `ToolError` if none of them answers."""
        return await self._gather([self._get(server)] if server else self._running(), "resources")

    async def read(self, server: str | None, uri: str) -> Result:
        """The content of a resource; without a server, of the one that has it. Raises: `ToolError`."""
        if server:
            return await self._get(server).read(uri)
        found = [each for each in await self.resources() if each.fits(uri)]
        found.sort(key=lambda each: each.is_template)
        names = [each.server for each in found] or [each.name for each in self._running()]
        if len(set(names)) == 1 or found:
            return await self._get(names[0]).read(uri)
        raise ToolError(f"no MCP server lists {uri[:200]!r}; name the server: {', '.join(names) or 'there is none'}")

    def _running(self) -> list[Connection]:
        return [each for each in self.connections.values() if each.state in {"starting", "ready"}]

    @staticmethod
    async def _gather(asked: Sequence[Connection], kind: Literal["prompts", "resources"]) -> list[Any]:
        answers = await asyncio.gather(*(each.listed(kind) for each in asked), return_exceptions=True)
        found: list[Any] = []
        problems: list[str] = []
        for answer in answers:
            if isinstance(answer, ToolError):
                problems.append(answer.message)
            elif isinstance(answer, BaseException):
                raise answer
            else:
                found += answer
        if kind == "resources" and problems and not found:
            raise ToolError("; ".join(problems))
        for problem in problems:
            logger.warning("%s", problem)
        return found

    def _get(self, name: str) -> Connection:
        """Raises: `ToolError` naming the servers."""
        if name in self.connections:
            return self.connections[name]
        near = [each for key, each in self.connections.items() if key.casefold() == name.casefold()]
        if len(near) == 1:
            return near[0]
        known = ", ".join(self.connections) or "none is configured"
        raise ToolError(f"there is no MCP server {name[:80]!r}; there are: {known}")


def sanitised(server: str, tool: str) -> str:
    """`server_tool` of letters that every provider takes; the end of a long one becomes a digest."""
    name = normalized(f"{server}_{tool}")
    if len(name) <= MOST_CHARS:
        return name
    return f"{name[: MOST_CHARS - 9]}_{hashlib.sha256(f'{server}:{tool}'.encode()).hexdigest()[:8]}"
