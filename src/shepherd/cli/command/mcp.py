"""`shepherd mcp list` and `test`: the configured servers of the Model Context Protocol.

Not here: `add` and `remove` (`mcp_file.py`), `login` and `logout` (`mcp_login.py`), `serve` (`mcp_serve.py`), the
client (`shepherd.tools.mcp`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from shepherd.cli import configure, render, signals
from shepherd.cli.command.mcp_login import known_login
from shepherd.cli.text import clean
from shepherd.core import InvalidRequest
from shepherd.tools.base import ToolError
from shepherd.tools.mcp.values import ServerOptions, ServerStatus

if TYPE_CHECKING:
    from shepherd.config import McpServerConfig

COLOURS = {"ready": "green", "failed": "red", "off": None}
LOG_LINES = 5
"""Lines of its log that a failed server shows."""
DESCRIPTION_CHARS = 80


def show_list(options: Mapping[str, Any], *, as_json: bool) -> None:
    """Print the configured servers; starts none of them."""
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
    """Start servers, print what they offer, stop them again. The exit status is 1 when one of them fails."""
    config = configure.load_config(options)
    known = {each.name: each for each in config.mcp_servers}
    if unknown := [name for name in names if name not in known]:
        listed = ", ".join(known) or "none"
        raise InvalidRequest(f"no MCP server is called {unknown[0]!r}; configured: {listed}", field="name")
    chosen = [replace(known[name], enabled=True) for name in names] or [each for each in known.values() if each.enabled]
    if not chosen:
        raise InvalidRequest("no MCP server is enabled; 'shepherd mcp list' shows the configured ones")
    trying = _try([ServerOptions.of(each) for each in chosen])
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
