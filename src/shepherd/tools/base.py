"""The vocabulary of tools: what a call does and returns, how it fails, and how a person is asked.

    Question ─▶ Person.allow ─▶ Verdict          a permission
    Form ─▶ Person.fill ─▶ values                a request of an MCP server

Not here: what a tool is, and what a call may use (`tool.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from shepherd.core import Image, ShepherdError
from shepherd.core import ToolResult as CallResult

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
class CallOutcome:
    """A call that has been carried out, or not."""

    result: CallResult
    """For the transcript."""
    summary: str = ""
    """One line for a person."""
    diff: str = ""
    """What it has changed in a file."""


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
