"""One server through its life: started, asked, lost, started once again, ended.

    starting ─▶ ready ─▶ lost ─▶ starting (once in a while) ─▶ ...
        └───────────────────┴──▶ failed ─▶ (a person says: again) ─▶ starting

One task per server lives in `run`: what the SDK opens must be closed in the task that opened it. Requests come from
any task of the same loop. No SDK is imported before there is a server to start.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from shepherd.core import Message
from shepherd.tools.base import Person, Result, ToolError
from shepherd.tools.mcp.values import AskModel, Prompt, Resource, ServerOptions, ServerTool, State
from shepherd.tools.sandbox.guardian import Guardian

if TYPE_CHECKING:
    from shepherd.tools.mcp.session import Connector, Kind, Session

logger = logging.getLogger(__name__)

AGAIN_S = 300.0
"""A server that is lost twice within this time is not started a third time: it would go on for ever."""
LONGEST_S = 3600.0
"""Of a request that keeps saying how far it is; without that, `timeout` is the limit."""
RELIST_S, MOST_RELIST_S = 1.0, 60.0
"""Between two looks at a list that changes; longer each time if it did not: some say so whenever they are asked."""
T = TypeVar("T")


class Connection:
    """One server. `tools` are those of its last list, also while it is away: they stand at the head of the prompt."""

    def __init__(
        self,
        options: ServerOptions,
        *,
        env: Mapping[str, str],
        guardian: Guardian,
        person: Callable[[], Person | None],
        answer: AskModel | None,
        roots: Sequence[str],
        warn: Callable[[str], None],
        on_tools: Callable[[], None],
    ) -> None:
        self.options = options
        self.env = env
        self.guardian = guardian
        self.person = person
        self.answer = answer if options.ask_model else None
        self.roots = roots
        self.warn = warn
        self.on_tools = on_tools
        self.state: State = "starting" if options.enabled else "off"
        self.problem = ""
        self.tools: tuple[ServerTool, ...] = ()
        self.session: Session | None = None
        self.connector: Connector | None = None
        self.settled = asyncio.Event()
        """Set while the server is ready, or known not to become so."""
        self.lost = asyncio.Event()
        self.over = asyncio.Event()
        """Set when it is known how a lost server ended, in `ending`."""
        self.ending = ""
        self.again = asyncio.Event()
        """Somebody wants it to be started anew."""
        self.restarted_at = float("-inf")
        self.stale: set[Kind] = set()
        self.is_stale = asyncio.Event()
        self.lists: dict[Kind, Any] = {}
        """Prompts and resources, until they change."""
        self.clocks: dict[asyncio.Timeout, float] = {}
        """Of the requests that run, with the time when each began."""
        self.n_asking = 0
        self._was_ready = False
        """Of the start that is under way."""

    @property
    def name(self) -> str:
        return self.options.name

    # -- life -------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until cancelled. Leaves no process behind."""
        if self.state == "off":
            self.settled.set()
            return
        try:
            while True:
                was_ready, self.problem = await self._live()
                if self.state == "closed":  # what goes wrong in the end hides that we were cancelled
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
        """Say that it is over, before `run` is cancelled: requests that still run are to know why they fail."""
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
        """Start it anew, whatever its state, and wait until it is ready or has failed again."""
        if self.state in {"off", "closed"}:
            raise ToolError(f"the MCP server {self.name} is {self.state}")
        self.restarted_at = float("-inf")
        self.settled.clear()
        self.again.set()
        self.lost.set()
        await self.settled.wait()

    async def _live(self) -> tuple[bool, str]:
        """From its start to its end: whether it was ready at all, and a predicate that says why it is no more."""
        self.lost.clear()
        self.over.clear()
        try:
            options = self.options.expanded(self.env)
        except ToolError as error:
            return False, f"is not started: {error.message}"
        session = await asyncio.to_thread(load_sdk)
        connector = self.connector = self._connector_for(session, options)
        modes: tuple[Literal["legacy", "auto"], ...] = ("legacy", "auto")
        for mode in modes:
            try:
                await self._open(connector, mode)
            except Exception as error:  # foreign code, which raises what it likes; and our own sentences
                if not self._was_ready and mode == "legacy" and session.refuses_handshake(error):
                    continue
                ending = await self._explain_end(session, connector, error)
            else:
                return True, self.ending
            break
        self.ending = self._with_last_words(connector, ending)
        self.over.set()
        return self._was_ready, self.ending

    async def _open(self, connector: Connector, mode: Literal["legacy", "auto"]) -> None:
        """Start it and keep it until it is lost."""
        self._was_ready = False
        async with AsyncExitStack() as stack:
            async with asyncio.timeout(connector.options.timeout):
                session = await stack.enter_async_context(connector.open(mode))
                self.tools = await session.tools()
            self._was_ready = True
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
            finally:  # from here on, calls wait for the next session
                self.session = None
                if self.state == "ready":
                    self.state = "starting"
                    self.settled.clear()
            how = await connector.child.how_it_ended() if connector.child is not None else "has closed the connection"
            self.ending = self._with_last_words(connector, how)
            self.over.set()

    def _connector_for(self, session: Any, options: ServerOptions) -> Connector:
        from shepherd.tools.mcp.process import ServerLog  # noqa: PLC0415
        from shepherd.tools.mcp.server_requests import ServerRequestHandler  # noqa: PLC0415 - imports the SDK

        made: Connector = session.Connector(
            options=options,
            asked=ServerRequestHandler(self.name, self.person, self.answer, self.roots, self.off_the_clock),
            guardian=self.guardian,
            log=self.connector.log if self.connector is not None else ServerLog(self.name),
            env=self.env,
            warn=lambda text: self.warn(f"the MCP server {self.name}: {text}"),
            on_end=self.lost.set,
            on_change=self._change,
        )
        return made

    async def _explain_end(self, session: Any, connector: Connector, error: Exception) -> str:
        if isinstance(session.first_of(error), ToolError):
            return f"is not started: {session.explain(error)}"
        if isinstance(session.first_of(error), TimeoutError):
            return f"did not start within {connector.options.timeout:g} s"
        if connector.child is not None and session.is_gone(error):
            how = await connector.child.how_it_ended()
            return how if self._was_ready else f"{how} before it was ready"
        if connector.status:
            hint = "; check its url and headers" if connector.status in {401, 403, 404, 405} else ""
            return f"answered with HTTP status {connector.status}{hint}"
        said: str = session.explain(error)
        return said

    @staticmethod
    def _with_last_words(connector: Connector, ending: str) -> str:
        return f"{ending} (its last output: {connector.log.last})" if connector.log.last else ending

    # -- what changes -----------------------------------------------------------------------------------------------

    def _change(self, kind: Kind) -> None:
        self.stale.add(kind)
        self.is_stale.set()

    async def _relist(self, session: Session) -> None:
        """Until cancelled: look at what the server says has changed."""
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
                        tools = await session.tools()
                except Exception as error:  # the old list is better than none
                    logger.info("MCP server %s: its tools have changed, but cannot be listed: %s", self.name, error)
                    tools = self.tools
                pause_s = min(2 * pause_s, MOST_RELIST_S) if tools == self.tools else RELIST_S
                if tools != self.tools:
                    self.tools = tools
                    self.on_tools()
            await asyncio.sleep(pause_s)

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

    async def prompts(self) -> tuple[Prompt, ...]:
        return await self._list("prompts", lambda session, _: session.prompts())

    async def resources(self) -> tuple[Resource, ...]:
        return await self._list("resources", lambda session, _: session.resources())

    async def _list(
        self, kind: Kind, send: Callable[[Session, Callable[[], None]], Awaitable[tuple[T, ...]]]
    ) -> tuple[T, ...]:
        if kind not in self.lists:
            self.lists[kind] = await self._request(f"the list of {kind}", send)
        found: tuple[T, ...] = self.lists[kind]
        return found

    async def _request(self, what: str, send: Callable[[Session, Callable[[], None]], Awaitable[T]]) -> T:
        session = await self._get_session()
        loop = asyncio.get_running_loop()
        begun = loop.time()
        try:
            async with asyncio.timeout(self.options.timeout) as clock:

                def alive() -> None:
                    if not self.n_asking:
                        self._set(clock, min(loop.time() + self.options.timeout, begun + LONGEST_S))

                self.clocks[clock] = begun
                try:
                    if self.n_asking:
                        self._set(clock, None)
                    return await send(session, alive)
                finally:
                    del self.clocks[clock]
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
        from shepherd.tools.mcp import session as sdk  # noqa: PLC0415 - it is loaded by now

        if not sdk.is_gone(error) and not self.lost.is_set():
            return f"the MCP server {self.name} {sdk.explain(error)}"
        self.lost.set()  # over HTTP, a session that has ended shows here first
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
        """While somebody is asked on the server's behalf, its requests do not run out of time."""
        self.n_asking += 1
        self._set_all(None)
        try:
            yield
        finally:
            self.n_asking -= 1
            if not self.n_asking:
                self._set_all(asyncio.get_running_loop().time() + self.options.timeout)

    def _set_all(self, when: float | None) -> None:
        for clock in self.clocks:
            self._set(clock, when)

    @staticmethod
    def _set(clock: asyncio.Timeout, when: float | None) -> None:
        with suppress(RuntimeError):  # it has run out at this very moment
            clock.reschedule(when)


def load_sdk() -> Any:
    """`session.py`, imported; in a thread, since it takes most of a second."""
    from shepherd.tools.mcp import session  # noqa: PLC0415

    return session
