"""The vocabulary of tools: the effect, the result and the error of a call, and the questions to a person."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol

from shepherd.core import Audio, Image, ShepherdError
from shepherd.core import ToolResult as CallResult
from shepherd.core.dataclasses import dataclass, field

Effect = Literal["read", "write", "run", "net"]
"""The worst that a call may do: read things on this machine, change them, run programs, call other machines."""

CATEGORIES = ("filesystem", "command_execution", "http", "json", "memory", "mcp", "models")
"""Of our own tools; packages may have others."""

MOST_MEDIA_BYTES = 20 * 2**20
"""Of all images and recordings of a result."""


class ToolError(ShepherdError):
    """A call that cannot be carried out, in one sentence that says what the model should do instead."""


@dataclass(frozen=True, slots=True)
class Result:
    """What a tool returns, for the model and for a person."""

    content: str = ""
    """For the model."""
    success: bool = True
    summary: str = ""
    """One line for a person; empty = the beginning of the content."""
    error: str = ""
    """Where there is no success: one sentence that says what to do."""
    images: tuple[Image, ...] = ()
    audio: tuple[Audio, ...] = ()
    diff: str = ""
    """The change of a file, as a unified diff for a person."""
    more: str = ""
    """How to read what does not fit, such as `read_file(path="a.txt", offset=201) reads on`."""


@dataclass(frozen=True, slots=True)
class CallOutcome:
    """The end of a call: its result for the transcript; `summary` and `diff` as in `Result`."""

    result: CallResult
    summary: str = ""
    diff: str = ""


# -- questions to a person --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Question:
    """May this call be carried out?"""

    tool: str
    arguments: Mapping[str, Any]
    effect: Effect
    subject: str = ""
    """The path, the command, the address."""
    diff: str = ""
    """What it would change, if that is known."""
    why: str = ""
    """Such as `outside of the working folder`."""
    each_time: bool = False
    """The answer counts for this call only; `session` and `always` mean `once`."""


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
    """A page that the server asks the user to open."""


class Person(Protocol):
    """Answers questions; the terminal is one. Questions that come at the same time wait for each other."""

    async def allow(self, question: Question) -> Verdict: ...

    async def fill(self, form: Form) -> Mapping[str, Any] | None:
        """The values; None = refused."""
