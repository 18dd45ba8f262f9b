"""Our MCP client, for one client scenario of the conformance suite: `python -m suites.mcp_client URL`.

It uses the servers as the chat does: all are started, and tools are called by name. The user answers every form with
the defaults that the terminal shows, and yes where there is none. Where a server needs a login, the user does what the
message says, `shepherd mcp login`, with a browser that follows the page; then the calls are repeated.
Not here: which scenarios there are (`mcp.py`).
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2

from shepherd.cli.terminal import form as terminal
from shepherd.core import Message
from shepherd.tools.base import Form, Question, ToolError, Verdict
from shepherd.tools.mcp.servers import McpServerPool
from shepherd.tools.mcp.values import LoginOptions, ServerOptions

NAME = "suite"
MOST_LOGINS = 3
CLIENT_DOCUMENT = "https://conformance-test.local/client-metadata.json"
"""The address of the document that describes this client, for servers that take one; the suite's."""
CALLS: Mapping[str, Sequence[str]] = {
    "elicitation-sep1034-client-defaults": ("test_client_elicitation_defaults",),
    "sse-retry": ("test_reconnection",),
    "auth/scope-step-up": ("test-tool",),
    "auth/scope-retry-limit": ("test-tool",),
    "auth/authorization-server-migration": ("test-tool", "test-tool"),
    "sep-2322-client-request-state": (
        "test_mrtr_echo_state", "test_mrtr_unrelated", "test_mrtr_no_state", "test_mrtr_no_result_type",
    ),
}  # fmt: skip
"""Tools without arguments, by scenario."""


class User:
    """Accepts what a form proposes."""

    async def allow(self, question: Question) -> Verdict:
        return "once"

    async def fill(self, form: Form) -> Mapping[str, Any] | None:
        fields = terminal.fields(form.fields)
        values = {each.name: each.read(each.default or "yes") for each in fields}
        return {name: value for name, value in values.items() if value is not None}


async def answer(messages: Sequence[Message], system: str | None, max_tokens: int | None) -> str:
    return "An answer."


async def browse(address: str) -> None:
    """A browser in which the user says yes: the suite's servers ask nothing."""
    async with httpx2.AsyncClient(follow_redirects=True) as browser:
        await browser.get(address)


def options_of(url: str, scenario: str, folder: Path) -> ServerOptions:
    """The configuration that a user writes for this server."""
    options = ServerOptions(NAME, url=url)
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    if scenario == "auth/basic-cimd":
        return replace(options, client_id=CLIENT_DOCUMENT)
    if not scenario.startswith("auth/") or "client_id" not in context:
        return options
    if "private_key_pem" in context:
        (key := folder / "key.pem").write_text(context["private_key_pem"], encoding="utf-8")
        options = replace(options, client_key=str(key))
    if "client-credentials" in scenario:
        options = replace(options, grant="client_credentials")
    names = ("client_id", "client_secret", "issuer")
    return replace(options, **{name: context[name] for name in names if name in context})


async def visit(url: str, scenario: str, folder: Path) -> None:
    """Connect, log in where a login is needed, and do what the scenario looks at."""
    options = options_of(url, scenario, folder)
    for _ in range(MOST_LOGINS):
        if not await use(options, scenario, folder):
            return
        login = LoginOptions(folder, browse)
        async with McpServerPool([replace(options, timeout=login.timeout_s)], env=os.environ, login=login) as servers:
            await servers.ready(None)
            (status,) = servers.statuses()
        if status.state != "ready" and "mcp login" not in status.detail:
            sys.exit(status.detail)


async def use(options: ServerOptions, scenario: str, folder: Path) -> bool:
    """Whether a login is needed."""
    servers = McpServerPool(
        [options], env=os.environ, roots=(str(Path.cwd()),), answer=answer, person=User(), login=LoginOptions(folder)
    )
    async with servers:
        await servers.ready(None)
        (status,) = servers.statuses()
        if status.state != "ready":
            if "mcp login" in status.detail:
                return True
            sys.exit(status.detail)
        connection = servers.connections[NAME]
        known = {tool.name: tool.schema for tool in connection.tools}
        calls: list[tuple[str, Any]] = [(name, {}) for name in CALLS.get(scenario, ())]
        match scenario:
            case "tools_call" | "request-metadata" | "http-standard-headers":
                calls = (
                    [("add_numbers", {"a": 5, "b": 3})] if "add_numbers" in known else [(name, {}) for name in known]
                )
            case "http-custom-headers":
                listed = json.loads(os.environ["MCP_CONFORMANCE_CONTEXT"])["toolCalls"]
                calls = [(call["name"], call.get("arguments") or {}) for call in listed if call["name"] in known]
            case "http-invalid-tool-headers":
                calls = [(name, dict.fromkeys(schema.get("required", ()), "x")) for name, schema in known.items()]
            case "json-schema-2020-12-preservation":
                calls = [("json_schema_echo", {"schema": known["json_schema_2020_12_tool"]})]
        if scenario == "http-standard-headers":
            for resource in await connection.listed("resources"):
                await connection.read(resource.uri)
            for prompt in await connection.listed("prompts"):
                await connection.prompt(prompt.name, {each.name: "x" for each in prompt.arguments})
        for name, arguments in calls:
            try:
                sys.stdout.write(f"{name}: {(await connection.call(name, arguments, lambda line: None)).content}\n")
            except ToolError as error:
                sys.stdout.write(f"{name}: {error.message}\n")
                if "mcp login" in error.message:
                    return True
    return False


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as private:
        asyncio.run(visit(sys.argv[-1], os.environ["MCP_CONFORMANCE_SCENARIO"], Path(private)))
