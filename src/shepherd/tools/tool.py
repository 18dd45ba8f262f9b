"""What a tool is, what a call of it may use, and the tools of one conversation as the agent sees them.

    Tool(name, description, parameters, run ...)     found by the registry: ours, packages', a user's, MCP servers'
    ToolContext ─▶ run(context, arguments) ─▶ Result
    Toolbox: the tools of one conversation; everything between a model's call and `run` (toolbox.py)

`Models` and `McpServers` are protocols: their implementations import this file.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from shepherd.core import ToolCall, ToolSpec
from shepherd.core.dataclasses import dataclass, field
from shepherd.tools.base import CallOutcome, Effect, Result

if TYPE_CHECKING:
    from shepherd.memory.store import MemoryStore
    from shepherd.tools.results import ResultStore
    from shepherd.tools.sandbox.network import NetworkPolicy
    from shepherd.tools.sandbox.roots import Roots

# -- what a call may use ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CommandOptions:
    """How `execute_command` runs programs."""

    max_bytes: int = 2**20
    """Bytes of output that are kept of each stream: its beginning and its end."""
    keep_env: tuple[str, ...] = ()
    """Names or globs of variables that programs see although they look like secrets."""
    allow_sudo: bool = False
    """Programs may become another user, and look into other processes."""


@dataclass(frozen=True, slots=True)
class AskableModel:
    name: str
    is_local: bool
    """Whether the question stays on this machine."""


class Models(Protocol):
    """Models that answer one question each, without tools, memory or history. One event loop."""

    def advisors(self) -> Sequence[AskableModel]:
        """The default model comes first."""

    async def ask(self, name: str, prompt: str, *, user: str | None, system: str | None = None, max_tokens: int) -> str:
        """The visible text of the answer. `user`: of the one that asks. Raises: as `Backend.stream`."""


class McpResource(Protocol):
    def described(self) -> Mapping[str, Any]:
        """For the model, without empty fields."""


class McpServers(Protocol):
    """The configured MCP servers. One event loop."""

    @property
    def server_names(self) -> Sequence[str]: ...

    async def resources(self, server: str | None = None) -> Sequence[McpResource]:
        """Of one server or of all, templates included. Raises: `ToolError` if none of them answers."""

    async def read(self, server: str | None, uri: str) -> Result:
        """The content of a resource. Raises: `ToolError`."""

    def resolve_call(self, arguments: Mapping[str, Any]) -> tuple[Tool, Mapping[str, Any]]:
        """The tool and the arguments that a call of `call_mcp_tool` names. Raises: `ToolError`."""


SearchLeft = Callable[[str], Awaitable[str]]
"""Quotes of what has left the model's context and has words of a query; empty for nothing."""


@dataclass(frozen=True, slots=True)
class ToolContext:
    """The user, the conversation, and what a call may use. A tool that lacks one of these says so in a sentence."""

    user: str | None = None
    """The owner of the memory; the model cannot choose it."""
    session: str | None = None
    """The name of the conversation."""
    budget: int = 8_000
    """Tokens of a result; longer ones are cut (toolbox.py)."""
    count: Callable[[str], int] = len
    """Tokens of a text."""
    tell: Callable[[str], None] = field(default=lambda line: None)
    """Shows progress to a person: one line, replaced by the next. From any thread."""
    roots: Roots | None = None
    """The folders that file tools may touch."""
    reach: NetworkPolicy | None = None
    """The addresses that HTTP tools may call."""
    commands: CommandOptions = CommandOptions()
    memory: MemoryStore | None = None
    search_left: SearchLeft | None = None
    """Of this conversation alone; None = nothing leaves it, or it is searched in the memory."""
    servers: McpServers | None = None
    models: Models | None = None
    kept: ResultStore | None = None
    """The whole of those results that were too long to be shown."""
    secrets: tuple[str, ...] = ()
    """Names of environment variables that are hidden from programs, besides those that look like secrets."""


Run = Callable[[ToolContext, Mapping[str, Any]], Awaitable[Result]]
"""Takes arguments that fit the schema. What it raises becomes an error result; it is cancelled as any task is."""
Preview = Callable[[ToolContext, Mapping[str, Any]], Any]
"""A unified diff of what a call would change, or an awaitable of it; changes nothing. Raises: `ToolError`."""
Overwrites = Callable[[ToolContext, Mapping[str, Any]], Any]
"""Whether a call would replace or delete what is stored, or an awaitable of that; changes nothing. Raises: `ToolError`.
"""


@dataclass(frozen=True, slots=True)
class Tool:
    name: str
    """Of `[A-Za-z0-9_-]`, at most 64 characters: every provider takes it."""
    description: str
    """A few words, since every prompt contains them."""
    parameters: Mapping[str, Any]
    """JSON Schema of the arguments object."""
    run: Run
    category: str = "other"
    effect: Effect | Callable[[Mapping[str, Any]], Effect] = "write"
    """Of any call, or of a call with these arguments."""
    aliases: Sequence[str] = ()
    """Other names by which models call it; they are not offered."""
    argument_aliases: Mapping[str, str] = field(default_factory=dict)
    """Other name -> the parameter that it means."""
    preview: Preview | None = None
    overwrites: Overwrites | None = None
    """Finds the calls that are asked for although others of this category are free."""
    subject: str = ""
    """The argument that permissions are about: the path, the command, the address."""
    offered: bool = True
    """False = offered only if the configuration enables its name or category."""
    timeout_s: float | None = None
    """None = the conversation's."""
    fingerprint: str = ""
    """A digest of a definition that others may change: an answer of a person is about this one. Empty = it is ours."""

    @property
    def spec(self) -> ToolSpec:
        return ToolSpec(self.name, self.description, self.parameters)

    def effect_of(self, arguments: Mapping[str, Any]) -> Effect:
        return self.effect(arguments) if callable(self.effect) else self.effect


class Toolbox(Protocol):
    """Tools that can be called from one conversation. Safe for concurrent use from one event loop."""

    session: str | None
    """The name of the conversation, which sets it."""

    @property
    def specs(self) -> Sequence[ToolSpec]:
        """The tools that are offered, in order; may change between two turns."""

    async def run(
        self, call: ToolCall, *, share: int = 1, tell: Callable[[str], None] = lambda line: None
    ) -> CallOutcome:
        """The outcome of one call. A call that fails has a result with `is_error`, so that the model reads the reason.
        `share`: so many results share the room that results have. `tell`: see `ToolContext`."""
