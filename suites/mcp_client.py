"""Our MCP client, for one client scenario of the conformance suite: `python -m suites.mcp_client URL`.

It uses the servers as the chat does: all are started, and tools are called by name. The user answers every form with
the defaults that the terminal shows, and yes where there is none. Not here: which scenarios there are (`mcp.py`).
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from shepherd.cli.terminal import form as terminal
from shepherd.core import Message
from shepherd.tools.base import Form, Question, ToolError, Verdict
from shepherd.tools.mcp.servers import McpServerPool
from shepherd.tools.mcp.values import ServerOptions

NAME = "suite"
CALLS: Mapping[str, Sequence[str]] = {
    "elicitation-sep1034-client-defaults": ("test_client_elicitation_defaults",),
    "sse-retry": ("test_reconnection",),
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


async def visit(url: str, scenario: str) -> None:
    """Connect, and do what the scenario looks at."""
    options = ServerOptions(NAME, url=url)
    servers = McpServerPool([options], env=os.environ, roots=(str(Path.cwd()),), answer=answer, person=User())
    async with servers:
        await servers.ready(None)
        (status,) = servers.statuses()
        if status.state != "ready":
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


if __name__ == "__main__":
    asyncio.run(visit(sys.argv[-1], os.environ["MCP_CONFORMANCE_SCENARIO"]))
