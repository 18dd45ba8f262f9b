"""One server through its life: started, asked, lost, started once again, ended.

    starting ─▶ ready ─▶ lost ─▶ starting (not twice in 5 minutes) ─▶ ...
        └───────────────────┴──▶ failed ─▶ `restart` ─▶ starting

One task per server runs `run`: the task that opens the SDK's client must also close it. Requests come from any task of
the same loop. The SDK is imported by the first start of a server.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from shepherd.core import Message
from shepherd.core.dataclasses import dataclass, field
from shepherd.process.guardian import Guardian
from shepherd.tools.base import Person, Result, ToolError
from shepherd.tools.mcp.values import AskModel, LoginOptions, ServerLog, ServerOptions, ServerTool, State

if TYPE_CHECKING:
    from shepherd.tools.mcp.session import Connector, ListKind, Mode, Session

logger = logging.getLogger(__name__)

AGAIN_S = 300.0
"""A server that is lost twice within this time is not started a third time."""
LONGEST_S = 3600.0
"""Of a request that reports progress; without progress, `timeout` is the limit."""
RELIST_S, MOST_RELIST_S = 1.0, 60.0
"""Between two lists of tools; longer each time without a change: some servers report one whenever they are asked."""
MOST_NAMED, NAMED_CHARS = 20, 64
"""Of the tools in a warning."""
T = TypeVar("T")


@dataclass(eq=False)
class Connection:
    """One server. `tools` are those of its last list, also while it is lost: they are at the head of the prompt."""

    options: ServerOptions
    env: Mapping[str, str]
    guardian: Guardian
    person: Callable[[], Person | None]
    answer: AskModel | None
    roots: Sequence[str]
    warn: Callable[[str], None]
    on_tools: Callable[[], None]
    login: LoginOptions = field(default_factory=LoginOptions)
    state: State = "starting"
    problem: str = ""
    tools: tuple[ServerTool, ...] = ()
    unused: tuple[str, ...] = ()
    """The names of those above the limit of a server."""
    session: Session | None = None
    connector: Connector | None = None
    settled: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while the server is ready, or will not become so."""
    lost: asyncio.Event = field(default_factory=asyncio.Event)
    over: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when `ending` says how a lost server ended."""
    ending: str = ""
    again: asyncio.Event = field(default_factory=asyncio.Event)
    """Set by `restart`."""
    restarted_at: float = float("-inf")
    stale: set[ListKind] = field(default_factory=set)
    is_stale: asyncio.Event = field(default_factory=asyncio.Event)
    lists: dict[ListKind, Any] = field(default_factory=dict)
    """Prompts and resources, until they change."""
    clocks: set[asyncio.Timeout] = field(default_factory=set)
    n_asking: int = 0
    """Questions of the server that a person is answering."""
    was_ready: bool = False
    """Of the current start."""

    def __post_init__(self) -> None:
        self.log = ServerLog(self.name)
        if not self.options.enabled:
            self.state = "off"

    @property
    def name(self) -> str:
        return self.options.name

    @property
    def login_problem(self) -> str:
        """A predicate: why the server lets no request in; empty = it does, or needs no login."""
        login = self.connector.login if self.connector is not None else None
        return login.problem if login is not None else ""

    # -- life -------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until cancelled. Leaves no process behind."""
        if self.state == "off":
            self.settled.set()
            return
        try:
            while True:
                was_ready, self.problem = await self._live()
                if self.state == "closed":  # an error at the end hides that we were cancelled
                    logger.debug("MCP server %s: its end: %s", self.name, self.problem)
                    return
                if self.again.is_set():
                    self._begin()
                elif was_ready and self._may_restart():
                    self.restarted_at = asyncio.get_running_loop().time()
                    self.warn(f"the MCP server {self.name} {self.problem}; it is being started again")
                    self._begin()
                else:
                    twice = "; that was the second time, and it is not started again" if was_ready else ""
                    self.warn(f"the MCP server {self.name} {self.problem}{twice}")
                    self.state = "failed"
                    self.settled.set()
                    await self.again.wait()
                    self._begin()
        finally:
            self.close()

    def close(self) -> None:
        """Called before `run` is cancelled, so that running requests know why they fail."""
        self.state, self.session = "closed", None
        self.over.set()
        self.settled.set()

    def _begin(self) -> None:
        self.state, self.problem = "starting", ""
        self.settled.clear()
        self.again.clear()

    def _may_restart(self) -> bool:
        return asyncio.get_running_loop().time() - self.restarted_at > AGAIN_S

    async def restart(self) -> None:
        """Start it again, in any state but two, and wait until it is ready or has failed."""
        if self.state in {"off", "closed"}:
            raise ToolError(f"the MCP server {self.name} is {self.state}")
        self.restarted_at = float("-inf")
        self.settled.clear()
        self.again.set()
        self.lost.set()
        await self.settled.wait()

    async def _live(self) -> tuple[bool, str]:
        """From its start to its end: whether it was ready, and a predicate that says how it ended."""
        self.lost.clear()
        self.over.clear()
        self.log.last = ""  # an earlier process has said it, and it explains no end of this one
        try:
            options = self.options.expanded(self.env)
        except ToolError as error:
            return False, f"is not started: {error.message}"
        sdk = await asyncio.to_thread(import_module, "shepherd.tools.mcp.session")  # takes most of a second
        from shepherd.tools.mcp.server_requests import ServerRequestHandler  # noqa: PLC0415 - imports the SDK

        answer = self.answer if options.ask_model else None
        connector: Connector = sdk.Connector(
            options=options,
            asked=ServerRequestHandler(self.name, self.person, answer, self.roots, self.off_the_clock),
            guardian=self.guardian,
            log=self.log,
            env=self.env,
            warn=lambda text: self.warn(f"the MCP server {self.name}: {text}"),
            on_end=self.lost.set,
            on_change=self._change,
            login_options=self.login,
        )
        self.connector = connector
        first, _ = connector.modes
        for mode in connector.modes:
            try:
                await self._open(connector, mode)
                break
            except Exception as error:  # foreign code may raise anything
                if not self.was_ready and mode == first and sdk.wants_other(mode, error):
                    self.log.clear()  # the second start says the same again
                    continue
                self._end(await self._explain_end(sdk, connector, error))
                break
        return self.was_ready, self.ending

    async def _open(self, connector: Connector, mode: Mode) -> None:
        """Start it and keep it until it is lost."""
        self.was_ready = False
        async with AsyncExitStack() as stack:
            async with asyncio.timeout(connector.options.timeout):
                session = await stack.enter_async_context(connector.open(mode))
                self.tools = self._within_limit(await session.tools())
            self.was_ready = True
            self.session, self.state = session, "ready"
            self.lists.clear()
            self.settled.set()
            self.on_tools()
            try:
                async with asyncio.TaskGroup() as tasks:
                    others = [tasks.create_task(self._relist(session)), tasks.create_task(session.watch(self._change))]
                    await self.lost.wait()
                    for task in others:
                        task.cancel()
            finally:  # now calls wait for the next session
                self.session = None
                if self.state == "ready":
                    self.state = "starting"
                    self.settled.clear()
            self._end(
                await connector.child.how_it_ended() if connector.child is not None else "has closed the connection"
            )

    def _end(self, how: str) -> None:
        self.ending = f"{how} (its last output: {self.log.last})" if self.log.last else how
        self.over.set()

    async def _explain_end(self, sdk: Any, connector: Connector, error: Exception) -> str:
        if connector.login is not None and connector.login.open_problem:
            return connector.login.open_problem
        if isinstance(sdk.first_of(error), ToolError):
            return f"is not started: {sdk.explain(error)}"
        if isinstance(sdk.first_of(error), TimeoutError):
            return f"did not start within {connector.options.timeout:g} s"
        if connector.child is not None and sdk.is_gone(error):
            how = await connector.child.how_it_ended()
            return how if self.was_ready else f"{how} before it was ready"
        if connector.status:
            hint = "; check its url and headers" if connector.status in {401, 403, 404, 405} else ""
            return f"answered with HTTP status {connector.status}{hint}"
        explained: str = sdk.explain(error)
        return explained

    # -- changes ----------------------------------------------------------------------------------------------------

    def _change(self, kind: ListKind) -> None:
        self.stale.add(kind)
        self.is_stale.set()

    async def _relist(self, session: Session) -> None:
        """Until cancelled: list what the server reports as changed."""
        pause_s = RELIST_S
        while True:
            await self.is_stale.wait()
            self.is_stale.clear()
            kinds, self.stale = self.stale, set()
            for kind in kinds:
                self.lists.pop(kind, None)
            if "tools" in kinds:
                try:
                    async with asyncio.timeout(self.options.timeout):
                        tools = self._within_limit(await session.tools())
                except Exception as error:  # the old list is better than none
                    logger.info("MCP server %s: its tools have changed, but cannot be listed: %s", self.name, error)
                    tools = self.tools
                pause_s = min(2 * pause_s, MOST_RELIST_S) if tools == self.tools else RELIST_S
                if tools != self.tools:
                    self.tools = tools
                    self.on_tools()
            await asyncio.sleep(pause_s)

    def _within_limit(self, tools: tuple[ServerTool, ...]) -> tuple[ServerTool, ...]:
        """The first of them; a warning names the others, once."""
        most = self.options.max_tools
        unused = tuple(each.name for each in tools[most:])
        if unused and unused != self.unused:
            left = len(unused) - MOST_NAMED
            names = ", ".join(name[:NAMED_CHARS] for name in unused[:MOST_NAMED]) + (
                f" and {left} more" if left > 0 else ""
            )
            self.warn(
                f"the MCP server {self.name} has {len(tools)} tools, and the first {most} are used "
                f"(max_tools = {most}); not used: {names}"
            )
        self.unused = unused
        return tools[:most]

    # -- requests ---------------------------------------------------------------------------------------------------

    async def call(self, tool: str, arguments: Mapping[str, Any], tell: Callable[[str], None]) -> Result:
        """Raises: `ToolError`, as all requests do."""

        async def send(session: Session, alive: Callable[[], None]) -> Result:
            def progress(line: str) -> None:
                alive()
                tell(line)

            return await session.call(tool, arguments, progress)

        return await self._request(f"the call of {tool}", send)

    async def read(self, uri: str) -> Result:
        return await self._request(f"the reading of {uri}", lambda session, _: session.read(uri))

    async def prompt(self, name: str, arguments: Mapping[str, str]) -> tuple[Message, ...]:
        return await self._request(f"the prompt {name}", lambda session, _: session.prompt(name, arguments))

    async def listed(self, kind: ListKind) -> Sequence[Any]:
        """Its prompts or resources, requested once until they change."""
        if kind not in self.lists:
            self.lists[kind] = await self._request(f"the list of {kind}", lambda session, _: getattr(session, kind)())
        found: Sequence[Any] = self.lists[kind]
        return found

    async def _request(self, what: str, send: Callable[[Session, Callable[[], None]], Awaitable[T]]) -> T:
        session = await self._get_session()
        loop = asyncio.get_running_loop()
        begun = loop.time()
        try:
            async with asyncio.timeout(self.options.timeout) as clock:

                def alive() -> None:
                    if not self.n_asking:
                        reschedule({clock}, min(loop.time() + self.options.timeout, begun + LONGEST_S))

                self.clocks.add(clock)
                try:
                    if self.n_asking:
                        reschedule({clock}, None)
                    return await send(session, alive)
                finally:
                    self.clocks.discard(clock)
        except TimeoutError as error:
            raise ToolError(
                f"the MCP server {self.name} did not answer {what} within {self.options.timeout:g} s; "
                "the request was cancelled; try something smaller, or continue without it"
            ) from error
        except ToolError:
            raise
        except Exception as error:  # foreign code: translated here, and nowhere else
            raise ToolError(await self._failure(what, error)) from error

    async def _failure(self, what: str, error: Exception) -> str:
        from shepherd.tools.mcp import session as sdk  # noqa: PLC0415 - is imported already

        if not sdk.is_gone(error) and not self.lost.is_set():
            return f"the MCP server {self.name} {self.login_problem or sdk.explain(error)}"
        self.lost.set()  # over HTTP, the end of a session is noticed here first
        may_restart = self._may_restart()
        with suppress(TimeoutError):
            async with asyncio.timeout(2.0):
                await self.over.wait()
        if self.state == "closed":
            return f"the MCP server {self.name} has been stopped during {what}"
        next_step = (
            "it is being started again; repeat the call if doing it twice does no harm"
            if may_restart
            else ("that was the second time, and it is not started again; continue without it")
        )
        return f"the MCP server {self.name} {self.ending or 'is gone'} during {what}; {next_step}"

    async def _get_session(self) -> Session:
        """The session; waits for a server that is starting. Raises: `ToolError`."""
        try:
            async with asyncio.timeout(self.options.timeout):
                await self.settled.wait()
        except TimeoutError as error:
            raise ToolError(f"the MCP server {self.name} is still starting; try again later") from error
        if self.session is None:
            why = {"off": "is switched off in the configuration", "closed": "has been stopped"}.get(self.state)
            raise ToolError(f"the MCP server {self.name} {why or self.problem or 'is gone'}")
        return self.session

    @contextmanager
    def off_the_clock(self) -> Iterator[None]:
        """While a person is asked on behalf of the server, its requests do not time out."""
        self.n_asking += 1
        reschedule(self.clocks, None)
        try:
            yield
        finally:
            self.n_asking -= 1
            if not self.n_asking:
                reschedule(self.clocks, asyncio.get_running_loop().time() + self.options.timeout)


def reschedule(clocks: set[asyncio.Timeout], when: float | None) -> None:
    for clock in clocks:
        with suppress(RuntimeError):  # it has just run out
            clock.reschedule(when)
