"""The vocabulary of tools: what a tool is, what a call gets, what comes back, and who may be asked.

    Tool(name, description, parameters, run ...)     found by the registry: ours, packages', a user's, MCP servers'
    ToolContext ─▶ run(context, arguments) ─▶ Result
    Toolbox: the tools of one conversation; everything that stands between a model's call and `run` (toolbox.py)

Not here: how a function becomes a tool (`signature.py`), and which tools there are (`registry.py`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

from shepherd.core import Image, ShepherdError, ToolCall, ToolSpec
from shepherd.core import ToolResult as CallResult

if TYPE_CHECKING:
    from shepherd.memory.store import MemoryStore
    from shepherd.tools.builtin.ask_model import Models
    from shepherd.tools.builtin.shell import Commands
    from shepherd.tools.kept import KeptResults
    from shepherd.tools.mcp.servers import Servers
    from shepherd.tools.sandbox.network import Reach
    from shepherd.tools.sandbox.roots import Roots

Effect = Literal["read", "write", "run", "net"]
"""The worst that a call may do: look at things here, change them, run programs, talk to other machines."""

CATEGORIES = ("filesystem", "command_execution", "http", "json", "memory", "mcp", "models")
"""Of our own tools; a package's may have others."""


class ToolError(ShepherdError):
    """A call that cannot be carried out, in one sentence that tells the model what to do instead."""


@dataclass(frozen=True, slots=True)
class Result:
    """What a tool has to say to the model, and to the person who watches."""

    content: str = ""
    """For the model."""
    success: bool = True
    summary: str = ""
    """One line for a person; empty = the beginning of the content."""
    error: str = ""
    """Where there is no success: one sentence that says what to do."""
    images: tuple[Image, ...] = ()
    diff: str = ""
    """What has changed in a file, as a unified diff for a person."""
    more: str = ""
    """How to get at what does not fit: such as `read_file(path="a.txt", offset=201) reads on`."""


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
    reach: Reach | None = None
    """The addresses that HTTP tools may call."""
    commands: Commands | None = None
    """What programs may be given, and how much of what they print is kept."""
    memory: MemoryStore | None = None
    servers: Servers | None = None
    """The MCP servers."""
    models: Models | None = None
    """Other models that can be asked."""
    kept: KeptResults | None = None
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


@dataclass(frozen=True, slots=True)
class Ran:
    """A call that has been carried out, or not."""

    result: CallResult
    """For the transcript."""
    summary: str = ""
    """One line for a person."""
    diff: str = ""
    """What it has changed in a file."""


class Toolbox(Protocol):
    """Tools that can be called from one conversation. Safe for concurrent use from one event loop."""

    session: str | None
    """The name of the conversation that calls; it says so itself."""

    @property
    def specs(self) -> Sequence[ToolSpec]:
        """What is offered, in the order in which it is; may change between two turns."""
        ...

    async def run(self, call: ToolCall, *, share: int = 1, tell: Callable[[str], None] = lambda line: None) -> Ran:
        """Carry out one call. One that fails has a result, too, with `is_error`: the model is to read why.

        `share`: so many results share the room that results have. `tell`: see `ToolContext`.
        """
        ...


# -- who may be asked -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Question:
    """May this call be carried out?"""

    tool: str
    arguments: Mapping[str, Any]
    effect: Effect
    subject: str = ""
    """What it is about: a path, a command, an address."""
    diff: str = ""
    """What it would change, if that is known."""
    why: str = ""
    """Such as `outside of the working folder`."""


Verdict = Literal["once", "session", "always", "no", "never"]
"""`session`: this tool on this subject for the rest of the conversation; `always`: kept for this folder; `never`: not
again in this conversation."""


@dataclass(frozen=True, slots=True)
class Form:
    """An MCP server asks the user for something (elicitation), or for an answer of the model (sampling)."""

    server: str
    message: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    """JSON Schema of an object with flat properties; empty = only yes or no."""
    url: str = ""
    """A page that the server wants to be opened."""


class Person(Protocol):
    """Somebody who can be asked; the terminal, or nobody. Questions that come at the same time wait for each other."""

    async def allow(self, question: Question) -> Verdict: ...

    async def fill(self, form: Form) -> Mapping[str, Any] | None:
        """The values; None = refused."""
        ...
