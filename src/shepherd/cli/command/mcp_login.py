"""`shepherd mcp login` and `logout`: a person logs in to a server in the browser, and Shepherd keeps the token.

Only `login` opens a browser; every other start names this command. Not here: the login itself (`tools/mcp/login.py`).
"""

from __future__ import annotations

import asyncio
import os
import sys
import webbrowser
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from shepherd.cli import configure, render, signals
from shepherd.core import InvalidRequest
from shepherd.tools.base import ToolError
from shepherd.tools.mcp.login_store import Login, LoginFile
from shepherd.tools.mcp.values import LoginOptions, ServerOptions, ServerStatus

if TYPE_CHECKING:
    from shepherd.config import McpServerConfig


def log_in(options: Mapping[str, Any], *, name: str, callback_port: int, no_browser: bool) -> int:
    """The exit status: 1 when the login fails. Raises: `InvalidRequest` for a server without logins."""
    server = replace(find(options, name), enabled=True)
    file = file_of(server)
    if file is None:
        raise InvalidRequest(
            f"{name} has no login: it is a program, or its url or headers hold the credentials; "
            "a login is for a server with a url, without an Authorization header",
            field="name",
        )
    if server.grant == "client_credentials":
        raise InvalidRequest(
            f"{name} logs in by itself (grant = client_credentials); 'shepherd mcp test {name}' tests it", field="name"
        )

    async def open_page(address: str) -> None:
        render.show(f"Log in on this page:\n\n{address}\n")
        if has_browser() and not no_browser:
            await asyncio.to_thread(webbrowser.open, address)
        else:
            ends_at = urlsplit(parse_qs(urlsplit(address).query)["redirect_uri"][0]).port
            render.show(
                "The page ends at this machine. From another one, open the tunnel first: "
                f"ssh -L {ends_at}:127.0.0.1:{ends_at} HOST ('--callback-port N' chooses the port)."
            )
        render.show("Waiting for the browser. Ctrl-C stops.")

    login = LoginOptions(open_page=open_page, port=callback_port)
    status, problem = signals.run(_try(server, login), stopped="the login was stopped; the tokens are as before")
    if problem:
        render.show_error(f"the MCP server {name} {problem}")
        return 1
    known = file.read()
    software = f"{status.software}, " if status.software else ""
    done = f"Logged in to {name}" if known.tokens else f"{name} answers without a login"
    render.show(f"{done}: {software}{status.n_tools} tools.")
    return 0


def log_out(options: Mapping[str, Any], *, name: str) -> None:
    """Forget the tokens of a server, and its registration. Raises: `InvalidRequest`."""
    file = file_of(find(options, name))
    was_in = file is not None and file.remove()
    if was_in:
        render.show(f"Logged out of {name}. The server itself may list Shepherd as an app until you remove it there.")
    else:
        render.show(f"There was no login at {name}.")


async def _try(server: McpServerConfig, login: LoginOptions) -> tuple[ServerStatus, str]:
    """Start the server and end it: its status, and why there is no login."""
    from shepherd.tools.mcp.servers import McpServerPool

    waiting = replace(ServerOptions.of(server), timeout=login.timeout_s + server.timeout)
    async with McpServerPool([waiting], env=os.environ, warn=lambda text: None, login=login) as servers:
        await servers.ready(None)
        (status,) = servers.statuses()
        connection = servers.connections[server.name]
        return status, connection.login_problem or connection.problem


def find(options: Mapping[str, Any], name: str) -> McpServerConfig:
    """Raises: `InvalidRequest` naming the servers."""
    known = {each.name: each for each in configure.load_config(options).mcp_servers}
    if name not in known:
        listed = ", ".join(known) or "none"
        raise InvalidRequest(f"no MCP server is called {name!r}; configured: {listed}", field="name")
    return known[name]


def file_of(server: McpServerConfig) -> LoginFile | None:
    """Where the login of a server is kept; None = it has none. Raises: `InvalidRequest` for a missing variable."""
    if server.url is None or any(header.lower() == "authorization" for header in server.headers):
        return None
    try:
        options = ServerOptions.of(server).expanded(os.environ)
    except ToolError as error:
        raise InvalidRequest(f"the MCP server {server.name}: {error.message}", field="name") from error
    assert options.url is not None
    return None if urlsplit(options.url).username else LoginFile.of(options)


def known_login(server: McpServerConfig) -> Login | None:
    """The login of a server, for a list; None = it has none, or its configuration needs a variable that is missing."""
    try:
        file = file_of(server)
    except InvalidRequest:
        return None
    return file.read() if file is not None else None


def has_browser() -> bool:
    """Whether a browser that opens here is one that the person sees."""
    if os.environ.get("BROWSER"):
        return True
    if os.environ.get("SSH_CONNECTION") or os.environ.get("SSH_TTY"):
        return False
    return sys.platform in {"darwin", "win32"} or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
