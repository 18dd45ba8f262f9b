"""The options of a server, its log, its tools, prompts and resources, and its status: plain values."""

from __future__ import annotations

import hashlib
import logging
import re
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from shepherd.core import Message
from shepherd.core.dataclasses import dataclass, field, fields, replace
from shepherd.tools.base import Effect, ToolError

AskModel = Callable[[Sequence[Message], str | None, int | None], Awaitable[str]]
"""Our model's answer to these messages, with this system prompt and at most so many tokens."""

OpenPage = Callable[[str], Awaitable[None]]
"""Shows a person the page with this address."""

State = Literal["off", "starting", "ready", "failed", "closed"]

DAY_S = 86_400.0
LOG_LINES, LOG_CHARS = 200, 500
VARIABLE = re.compile(r"\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}")

logger = logging.getLogger(__name__)


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
    trust_annotations: bool = False
    """Run the tools that the server itself declares read-only without a question, also under `read_only`."""
    max_tools: int = 256
    """The first so many tools are used; the others cannot be called."""
    grant: Literal["authorization_code", "client_credentials"] = "authorization_code"
    client_id: str | None = None
    """How the authorization server knows us; None = we register."""
    client_secret: str | None = field(default=None, repr=False)
    client_key: str | None = None
    """The file of the private key that signs in place of a secret."""
    scopes: tuple[str, ...] = ()
    """Asked for beside those that the server names."""
    issuer: str | None = None
    """The authorization server that may get the secret; None = the first that the server names."""

    @classmethod
    def of(cls, configured: Any) -> ServerOptions:
        """From anything with fields of these names; a timeout that is not above 0 is none."""
        made = cls(**{each.name: getattr(configured, each.name) for each in fields(cls)})
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
            client_id=None if self.client_id is None else fill("client_id", self.client_id),
            client_secret=None if self.client_secret is None else fill("client_secret", self.client_secret),
        )

    def fingerprint(self, tool: ServerTool) -> str:
        """A digest of a tool and of the server that offers it."""
        parts = (self.name, self.command, *self.args, self.cwd, self.url, tool.digest)
        return hashlib.sha256(repr(parts).encode("utf-8", "surrogatepass")).hexdigest() if tool.digest else ""


@dataclass(frozen=True, slots=True)
class LoginOptions:
    """How logins are kept, and whether a person is here to log in."""

    folder: Path | None = None
    """None = the user's."""
    open_page: OpenPage | None = None
    """None = there is no person to ask: a server that needs a person's login does not start."""
    port: int = 0
    """Of the page on this machine at which a login ends; 0 = the one of the last login, or a free one."""
    timeout_s: float = 300.0
    """For the person."""


class ServerLog:
    """The last lines that a server wrote outside the protocol."""

    def __init__(self, server: str) -> None:
        self.server = server
        self.kept: deque[str] = deque(maxlen=LOG_LINES)
        self.last = ""
        """The last line on standard error, shortened for an error message."""

    def add(self, line: str, *, mark: str = "") -> None:
        """`mark`: the origin of the line, if it is not standard error."""
        if line.strip() and not mark:
            self.last = line.strip()[:200]
        self.kept.append(f"{mark}{line[:LOG_CHARS]}")
        logger.debug("MCP server %s: %s%s", self.server, mark, line[:LOG_CHARS])

    def clear(self) -> None:
        self.kept.clear()
        self.last = ""


@dataclass(frozen=True, slots=True)
class ServerTool:
    name: str
    description: str
    schema: Mapping[str, Any]
    """Of its arguments, untouched."""
    effect: Effect
    """As the server declares it."""
    digest: str = ""
    """Of its whole definition; empty = the server has not listed it yet."""

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
    is_template: bool = False

    def described(self) -> dict[str, Any]:
        """For the model, without empty fields."""
        row = {"server": self.server, "uriTemplate" if self.is_template else "uri": self.uri, "name": self.name,
               "mimeType": self.media_type, "description": self.description}  # fmt: skip
        return {key: value for key, value in row.items() if value}

    def fits(self, uri: str) -> bool:
        """Whether `uri` is the address of this resource, or of one of this template."""
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
    server: str
    name: str
    description: str = ""
    arguments: tuple[PromptArgument, ...] = ()


@dataclass(frozen=True, slots=True)
class ServerStatus:
    name: str
    state: State
    detail: str = ""
    """Its software, or why it failed, in one sentence."""
    n_tools: int = 0
    where: str = ""
    """Its command or its address, as configured: without the values of variables."""
    software: str = ""
    """Its own name, with its version."""
    protocol: str = ""
    """The revision in use, such as `2025-11-25`."""
    tools: tuple[str, ...] = ()
    """By our names."""
    skipped: tuple[str, ...] = ()
    """Tools that are not offered because their descriptions call them deprecated."""
    instructions: str = ""
    """The server's own text on its use."""
    log: tuple[str, ...] = ()
