"""What a tool is, what a call of it may use, and the tools of one conversation as the agent sees them.

    Tool(name, description, parameters, run ...)     found by the registry: ours, packages', a user's, MCP servers'
    ToolContext ─▶ run(context, arguments) ─▶ Result
    Toolbox: the tools of one conversation; everything between a model's call and `run` (toolbox.py)

`ToolContext` names what tools work with. What lies above this file is named by a small protocol (`Models`,
`McpServers`), so that nothing imports in a circle.

Not here: how a function becomes a tool (`signature.py`), and which tools there are (`registry.py`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from shepherd.core import ToolCall, ToolSpec
from shepherd.tools.base import CallOutcome, Effect, Result

if TYPE_CHECKING:
    from shepherd.memory.store import MemoryStore
    from shepherd.tools.result_store import ResultStore
    from shepherd.tools.sandbox.network import NetworkPolicy
    from shepherd.tools.sandbox.roots import Roots

# -- what a call may use ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CommandOptions:
    """What `execute_command` may do."""

    max_bytes: int = 2**20
    """Bytes of output that are kept of each stream: its beginning and its end."""
    keep_env: tuple[str, ...] = ()
    """Names or globs of variables that programs see although they look like secrets."""


@dataclass(frozen=True, slots=True)
class AskableModel:
    """A model that can be asked."""

    name: str
    is_local: bool
    """Whether the question stays on this machine."""


class Models(Protocol):
    """Models that answer one question each, without tools, memory or history. One event loop."""

    def advisors(self) -> Sequence[AskableModel]:
        """The default model comes first."""
        ...

    async def ask(self, name: str, prompt: str, *, system: str | None = None, max_tokens: int) -> str:
        """The visible text of the answer. Raises: as `Backend.stream`."""
        ...


class McpResource(Protocol):
    """Something that an MCP server has to read."""

    def described(self) -> Mapping[str, Any]:
        """For the model: without what is empty."""
        ...


class McpServers(Protocol):
    """The configured MCP servers. One event loop."""

    @property
    def server_names(self) -> Sequence[str]: ...

    async def resources(self, server: str | None = None) -> Sequence[McpResource]:
        """Of one server or of all, templates included. Raises: `ToolError` if none of them answers."""
        ...

    async def read(self, server: str | None, uri: str) -> Result:
        """The content of a resource. Raises: `ToolError`."""
        ...

    def resolve_call(self, arguments: Mapping[str, Any]) -> tuple[Tool, Mapping[str, Any]]:
        """The tool and the arguments that a call of `call_mcp_tool` names. Raises: `ToolError`."""
        ...

    async def call(self, server: str, tool: str, arguments: Mapping[str, Any], context: ToolContext) -> Result:
        """Call a tool by its name on the server. Raises: `ToolError`."""
        ...


@dataclass(frozen=True, slots=True)
class ToolContext:
    """Who calls, and what a call may reach. A tool whose means are missing says so in a sentence."""

    user: str | None = None
    """Whose memory it is; never something that the model can say."""
    session: str | None = None
    """The name of the conversation."""
    budget: int = 8_000
    """Tokens that the content should keep to; what is longer is cut (toolbox.py)."""
    count: Callable[[str], int] = len
    """Tokens of a text."""
    tell: Callable[[str], None] = field(default=lambda line: None)
    """Show a person how far the call is: one line, replaced by the next. From the event loop only."""
    roots: Roots | None = None
    """The folders that file tools may touch."""
    reach: NetworkPolicy | None = None
    """The addresses that HTTP tools may call."""
    commands: CommandOptions | None = None
    """What programs may be given, and how much of what they print is kept."""
    memory: MemoryStore | None = None
    servers: McpServers | None = None
    models: Models | None = None
    """Other models that can be asked."""
    kept: ResultStore | None = None
    """Results of this conversation that were too long to be shown whole."""
    secrets: tuple[str, ...] = ()
    """Names of environment variables that no program a tool starts may see, besides the usual suspects."""


Run = Callable[[ToolContext, Mapping[str, Any]], Awaitable[Result]]
"""Takes arguments that fit the schema. Whatever it raises becomes an error result; it is cancelled as any task is."""


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool."""

    name: str
    """Of `[A-Za-z0-9_-]`, at most 64 characters: every provider takes it."""
    description: str
    """Paid for in every prompt: a few words."""
    parameters: Mapping[str, Any]
    """JSON Schema of the arguments object."""
    run: Run
    category: str = "other"
    effect: Effect | Callable[[Mapping[str, Any]], Effect] = "write"
    """Of any call, or of a call with these arguments."""
    aliases: tuple[str, ...] = ()
    """Other names by which models call it; they are not offered."""
    argument_aliases: Mapping[str, str] = field(default_factory=dict)
    """Other name -> the parameter that it means."""
    preview: Callable[[ToolContext, Mapping[str, Any]], Awaitable[str]] | None = None
    """What a call would change, as a unified diff, without changing it. Raises: `ToolError`."""
    subject: str = ""
    """The argument that permissions are about: the path, the command, the address."""
    offered: bool = True
    """False: only when somebody asks for it by name or category."""
    timeout_s: float | None = None
    """None = the conversation's."""

    @property
    def spec(self) -> ToolSpec:
        return ToolSpec(self.name, self.description, self.parameters)

    def effect_of(self, arguments: Mapping[str, Any]) -> Effect:
        return self.effect(arguments) if callable(self.effect) else self.effect


class Toolbox(Protocol):
    """Tools that can be called from one conversation. Safe for concurrent use from one event loop."""

    session: str | None
    """The name of the conversation that calls; it says so itself."""

    @property
    def specs(self) -> Sequence[ToolSpec]:
        """What is offered, in the order in which it is; may change between two turns."""
        ...

    async def run(
        self, call: ToolCall, *, share: int = 1, tell: Callable[[str], None] = lambda line: None
    ) -> CallOutcome:
        """Carry out one call. One that fails has a result, too, with `is_error`: the model is to read why.

        `share`: so many results share the room that results have. `tell`: see `ToolContext`.
        """
        ...
