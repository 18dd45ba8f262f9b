"""What is configured, what servers offer, and how they are: plain values."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from shepherd.core import Message
from shepherd.tools.base import Effect, ToolError

AskModel = Callable[[Sequence[Message], str | None, int | None], Awaitable[str]]
"""Our model's answer to these messages, with this system prompt and at most so many tokens."""

State = Literal["off", "starting", "ready", "failed", "closed"]


DAY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """One server; the fields are those of `[[mcp_servers]]`. Exactly one of `command` and `url` is set."""

    name: str
    command: str | None = None
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    url: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    cwd: str | None = None
    enabled: bool = True
    timeout: float = 60.0
    """Seconds for the start, and for each request."""
    ask_model: bool = True

    @classmethod
    def of(cls, said: Any) -> ServerOptions:
        """From anything with fields of these names; a timeout that is not above 0 is none."""
        made = cls(**{each.name: getattr(said, each.name) for each in fields(cls)})
        return made if made.timeout > 0 else replace(made, timeout=DAY_S)

    def expanded(self, env: Mapping[str, str]) -> ServerOptions:
        """With the environment's values for `${NAME}` and `${NAME:-default}`. Raises: `ToolError` naming the field."""

        def fill(where: str, text: str) -> str:
            def value(found: re.Match[str]) -> str:
                name, default = found["name"], found["default"]
                known = env.get(name, default)
                if known is None:
                    raise ToolError(
                        f"{where} needs the environment variable {name}, which is not set; set it, or write "
                        f"${{{name}:-default}}"
                    )
                return known

            return VARIABLE.sub(value, text)

        return replace(
            self,
            command=None if self.command is None else fill("command", self.command),
            args=tuple(fill(f"args[{index}]", each) for index, each in enumerate(self.args)),
            env={name: fill(f"env.{name}", each) for name, each in self.env.items()},
            url=None if self.url is None else fill("url", self.url),
            headers={name: fill(f"headers.{name}", each) for name, each in self.headers.items()},
            cwd=None if self.cwd is None else fill("cwd", self.cwd),
        )


VARIABLE = re.compile(r"\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}")


@dataclass(frozen=True, slots=True)
class ServerTool:
    """A tool as its server describes it."""

    name: str
    description: str
    schema: Mapping[str, Any]
    """Of its arguments, untouched."""
    effect: Effect
    title: str = ""

    @property
    def is_deprecated(self) -> bool:
        """Not offered; `call_mcp_tool` can still call it."""
        return "DEPRECATED" in self.description


@dataclass(frozen=True, slots=True)
class Resource:
    """Something that can be read; a template has parameters in braces in its address."""

    server: str
    uri: str
    name: str = ""
    media_type: str = ""
    description: str = ""
    size_bytes: int | None = None
    is_template: bool = False

    def described(self) -> dict[str, Any]:
        """For the model: without what is empty."""
        said = {
            "server": self.server,
            "uriTemplate" if self.is_template else "uri": self.uri,
            "name": self.name,
            "mimeType": self.media_type,
            "description": self.description,
        }
        return {key: value for key, value in said.items() if value}

    def fits(self, uri: str) -> bool:
        """Whether this is what `uri` names."""
        if not self.is_template:
            return self.uri == uri
        pieces = re.split(r"\{[^{}]*\}", self.uri)
        return re.fullmatch(".*?".join(map(re.escape, pieces)), uri, re.DOTALL) is not None


@dataclass(frozen=True, slots=True)
class PromptArgument:
    name: str
    description: str = ""
    required: bool = False


@dataclass(frozen=True, slots=True)
class Prompt:
    """A text that a server has ready, with gaps to be filled."""

    server: str
    name: str
    description: str = ""
    arguments: tuple[PromptArgument, ...] = ()


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """How a server is, for people."""

    name: str
    state: State
    detail: str = ""
    """What it is, or why it failed, in one sentence."""
    n_tools: int = 0
    where: str = ""
    """Its command or its address, as configured: without the values of variables."""
    software: str = ""
    """What it calls itself, with its version."""
    protocol: str = ""
    """The revision that is spoken, such as `2025-11-25`."""
    tools: tuple[str, ...] = ()
    """By our names."""
    skipped: tuple[str, ...] = ()
    """Tools that are not offered because their descriptions call them deprecated."""
    instructions: str = ""
    """How the server wants to be used, in its own words."""
    log: tuple[str, ...] = ()
    """The last lines of what it wrote beside the protocol."""
