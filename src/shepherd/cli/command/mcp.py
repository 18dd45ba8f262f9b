"""`shepherd mcp list`, `test`, `login`, `logout` and `serve`: the configured servers of the Model Context Protocol.

Only `login` opens a browser; every other start names this command.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
import webbrowser
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from shepherd.cli import configure, render, signals
from shepherd.cli.text import clean, format_count
from shepherd.config import Config, McpServerConfig
from shepherd.core import InvalidRequest
from shepherd.tools.base import ToolError
from shepherd.tools.mcp.login_store import Login, LoginFile
from shepherd.tools.mcp.values import LoginOptions, ServerOptions, ServerStatus

if TYPE_CHECKING:
    from shepherd.server.endpoints.mcp import Wire
    from shepherd.tools.offer import Offer

COLOURS = {"ready": "green", "failed": "red", "off": None}
LOG_LINES = 5
"""Lines of its log that a failed server shows."""
DESCRIPTION_CHARS = 80


def show_list(options: Mapping[str, Any], *, as_json: bool) -> None:
    config = configure.load_config(options, looks=True)
    if as_json:
        render.show_json([entry(each) for each in config.mcp_servers])
        return
    rows = [
        (
            each.name,
            each.url or " ".join((each.command or "", *each.args)),
            login.state if (login := known_login(each)) is not None and login.tokens else "",
            "" if each.enabled else "off",
        )
        for each in config.mcp_servers
    ]
    none = "No MCP servers are configured. 'shepherd mcp add NAME -- COMMAND ARGS' adds one."
    render.show_table(("NAME", "SERVER", "LOGIN", ""), rows, none)


def entry(server: McpServerConfig) -> dict[str, Any]:
    """A server for programs; only the names of its variables and headers, because the values are often secrets."""
    shown = asdict(server)
    del shown["client_secret"]
    login = known_login(server)
    return {
        **shown,
        "args": list(server.args),
        "env": sorted(server.env),
        "headers": sorted(server.headers),
        "scopes": list(server.scopes),
        "login": login.state if login is not None else None,
    }


# -- try --------------------------------------------------------------------------------------------------------------


def test(options: Mapping[str, Any], *, names: Sequence[str], as_json: bool) -> int:
    servers = configure.load_config(options).mcp_servers
    chosen = [find(servers, name) for name in names] or [each for each in servers if each.enabled]
    if not chosen:
        raise InvalidRequest("no MCP server is enabled; 'shepherd mcp list' shows the configured ones")
    trying = _try([ServerOptions.of(replace(each, enabled=True)) for each in chosen])
    tried = signals.run(trying, stopped="the test was stopped before every server was ready")
    if as_json:
        render.show_json([report for _, report in tried])
    else:
        for status, report in tried:
            _show(status, report)
    return int(any(status.state != "ready" for status, _ in tried))


async def _try(options: Sequence[ServerOptions]) -> list[tuple[ServerStatus, dict[str, Any]]]:
    from shepherd.tools.mcp.servers import McpServerPool

    began = time.monotonic()
    async with McpServerPool(options, env=os.environ, warn=lambda text: None) as servers:
        await servers.ready(None)
        seconds = time.monotonic() - began
        tools = {tool.name: tool for tool in servers.tools()}
        tried = []
        for status in servers.statuses():
            report = {
                "name": status.name,
                "state": status.state,
                "detail": status.detail,
                "protocol": status.protocol,
                "seconds": round(seconds, 2),
                "tools": [
                    {"name": name, "effect": tools[name].effect_of({}), "description": tools[name].description}
                    for name in status.tools
                ],
                "skipped": list(status.skipped),
                "resources": [],
                "prompts": [],
                "log": list(status.log),
            }
            if status.state == "ready":
                connection = servers.connections[status.name]
                try:
                    report["resources"] = [each.uri for each in await connection.listed("resources")]
                    report["prompts"] = [each.name for each in await connection.listed("prompts")]
                except ToolError as error:
                    report["problem"] = error.message
            tried.append((status, report))
    return tried


def _show(status: ServerStatus, report: Mapping[str, Any]) -> None:
    detail = ", ".join(filter(None, (status.detail, status.protocol and f"MCP {status.protocol}")))
    render.show(f"{status.name}: {status.state}, {detail}", colour=COLOURS.get(status.state), bold=True)
    if status.state != "ready":
        for line in status.log[-LOG_LINES:]:
            render.show(f"  | {line}")
        return
    rows = [
        (each["name"], each["effect"], each["description"].partition("\n")[0][:DESCRIPTION_CHARS])
        for each in report["tools"]
    ]
    if rows:
        render.show_table(("TOOL", "MAY", ""), rows)
    offers = (
        f"{len(report[what])} {what}: {', '.join(map(clean, report[what]))}" if report[what] else f"no {what}"
        for what in ("resources", "prompts")
    )
    render.show("; ".join(offers))
    if report["skipped"]:
        render.show(f"Not offered, because they are deprecated: {', '.join(report['skipped'])}")
    if "problem" in report:
        render.show_warning(report["problem"])


# -- login and logout -------------------------------------------------------------------------------------------------


def log_in(options: Mapping[str, Any], *, name: str, callback_port: int, no_browser: bool) -> int:
    """The exit status: 1 when the login fails. Raises: `InvalidRequest` for a server without logins."""
    server = replace(find(configure.load_config(options).mcp_servers, name), enabled=True)
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
    status, problem = signals.run(
        _tried_login(server, login), stopped="the login was stopped; the tokens are as before"
    )
    if problem:
        render.show_error(f"the MCP server {name} {problem}")
        return 1
    known = file.read()
    software = f"{status.software}, " if status.software else ""
    done = f"Logged in to {name}" if known.tokens else f"{name} answers without a login"
    render.show(f"{done}: {software}{format_count(status.n_tools, 'tool')}.")
    return 0


def log_out(options: Mapping[str, Any], *, name: str) -> None:
    file = file_of(find(configure.load_config(options).mcp_servers, name))
    was_in = file is not None and file.remove()
    if was_in:
        render.show(f"Logged out of {name}. The server itself may list Shepherd as an app until you remove it there.")
    else:
        render.show(f"There was no login at {name}.")


async def _tried_login(server: McpServerConfig, login: LoginOptions) -> tuple[ServerStatus, str]:
    """Start the server and end it: its status, and why there is no login."""
    from shepherd.tools.mcp.servers import McpServerPool

    waiting = replace(ServerOptions.of(server), timeout=login.timeout_s + server.timeout)
    async with McpServerPool([waiting], env=os.environ, warn=lambda text: None, login=login) as servers:
        await servers.ready(None)
        (status,) = servers.statuses()
        connection = servers.connections[server.name]
        return status, connection.login_problem or connection.problem


# -- serve ------------------------------------------------------------------------------------------------------------


def serve(options: Mapping[str, Any]) -> None:
    """Offer the tools to the agent that started this program, until it closes standard input, or Ctrl-C. Standard error
    has the log: standard output carries the protocol only."""
    from shepherd.server.endpoints.mcp import standard_streams_taken

    with standard_streams_taken() as wire:
        signals.run(_serve(configure.load_config({**options, "server": True}), wire))


async def _serve(config: Config, wire: Wire) -> None:
    from shepherd.app.app import App
    from shepherd.server.endpoints.mcp import serve_stdio

    app = App(config)
    offer = partial(app.offer, everything=True, allow=("*",))  # the agent asks its own user

    async def open_offer(user: str | None) -> Offer:
        # An agent asks for the tools once, so wait for all MCP servers. Each has its own `timeout` to start.
        await asyncio.shield(equipping)
        return await offer(user)

    try:
        # A wrong configuration fails before anything is served.
        await offer(None)
        equipping = asyncio.create_task(app.toolbox())
        try:
            # The greeting is answered at once: agents drop a server after some seconds. A model is loaded at its first
            # call: most agents never chat.
            await serve_stdio(open_offer, wire)
        finally:
            equipping.cancel()
    finally:
        await app.aclose()


# -- parts ------------------------------------------------------------------------------------------------------------


def find(servers: Sequence[McpServerConfig], name: str) -> McpServerConfig:
    """Raises: `InvalidRequest` naming the servers."""
    for each in servers:
        if each.name == name:
            return each
    listed = ", ".join(each.name for each in servers) or "none"
    raise InvalidRequest(f"no MCP server is called {name!r}; configured: {listed}", field="name")


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
