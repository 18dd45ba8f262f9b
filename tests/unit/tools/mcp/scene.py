"""Servers for tests: the scripted one with a fault, and who is asked."""

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil

from shepherd.tools.base import Form, Question, Result, Verdict
from shepherd.tools.builtin.mcp import call_mcp_tool
from shepherd.tools.mcp.servers import McpServerPool
from shepherd.tools.mcp.values import ServerOptions
from shepherd.tools.tool import ToolContext

SCRIPT = str(Path(__file__).with_name("scripted.py"))


def scripted(name: str = "s", *, timeout: float = 120, ask_model: bool = True, **faults: Any) -> ServerOptions:
    """`faults`: see scripted.py."""
    return ServerOptions(
        name, sys.executable, ("-I", "-S", SCRIPT, json.dumps(faults)), timeout=timeout, ask_model=ask_model
    )


class Stage:
    """Servers with their warnings."""

    def __init__(self, *options: ServerOptions, env: Mapping[str, str] = os.environ, **settings: Any) -> None:
        self.warnings: list[str] = []
        self.changed = asyncio.Event()
        self.servers = McpServerPool(options, env=env, warn=self.warnings.append, on_tools=self.changed.set, **settings)

    async def __aenter__(self) -> McpServerPool:
        await self.servers.__aenter__()
        await self.servers.ready(None)
        return self.servers

    async def __aexit__(self, *_: Any) -> None:
        await self.servers.close()


async def call_tool(
    servers: McpServerPool, server: str, tool: str, arguments: Mapping[str, Any], context: ToolContext
) -> Result:
    named = {"server": server, "tool": tool, "arguments": arguments}
    return await call_mcp_tool.run(replace(context, servers=servers), named)


class Nod:
    """A person who fills in every form in the same way."""

    def __init__(self, values: Mapping[str, Any] | None) -> None:
        self.values = values
        self.forms: list[Form] = []

    async def allow(self, question: Question) -> Verdict:
        raise AssertionError(question)

    async def fill(self, form: Form) -> Mapping[str, Any] | None:
        self.forms.append(form)
        return self.values


def pids_in(file: Path) -> list[psutil.Process]:
    """The processes that scripted servers have noted, those that live."""
    found = []
    for line in file.read_text().split():
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(int(line))
            if process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def seen_in(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]
