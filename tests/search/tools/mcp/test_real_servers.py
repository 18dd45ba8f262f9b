"""The official servers, from npm: `pytest -m clients tests/unit/tools/mcp`."""

import asyncio
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.unit.tools.mcp.scene import Nod, Stage, call_tool

from shepherd.tools.mcp.values import ServerOptions
from shepherd.tools.tool import ToolContext

pytestmark = [pytest.mark.clients, pytest.mark.skipif(shutil.which("npx") is None, reason="there is no npx")]


def npm(name: str, *args: str) -> ServerOptions:
    return ServerOptions(name, "npx", ("-y", f"@modelcontextprotocol/server-{name}", *args), timeout=120)


async def four(messages: Any, system: str | None, max_tokens: int | None) -> str:
    return f"four, at most {max_tokens}"


async def test_everything_works_with_everything() -> None:
    person, reported = Nod({"name": "Ada"}), list[str]()
    stage = Stage(npm("everything"), person=person, answer=four, roots=[os.getcwd()])
    before = set(psutil.Process().children(recursive=True))  # of tests before it: Python's tracker of resources
    async with stage as servers:
        (status,) = servers.statuses()
        assert status.state == "ready", status.detail
        context = ToolContext(tell=reported.append)

        async def call(tool: str, **arguments: Any) -> str:
            return (await call_tool(servers, "everything", tool, arguments, context)).content

        assert await call("echo", message="hi") == "Echo: hi"
        assert "temperature" in await call("get-structured-content", location="New York")
        assert "[image, image/png" in await call("get-tiny-image")
        assert "read_resource(uri=" in await call("get-resource-links", count=2)
        assert "completed" in await call("trigger-long-running-operation", duration=1, steps=3)
        assert reported == ["1/3", "2/3", "3/3"]
        assert "four, at most 50" in await call("trigger-sampling-request", prompt="2+2?", maxTokens=50)
        assert person.forms[0].server == "everything"
        assert "Ada" in await call("trigger-elicitation-request")
        assert Path.cwd().as_uri() in await call("get-roots-list")
        resources = await servers.resources()
        assert any(each.is_template for each in resources)
        assert (await servers.read(None, resources[0].uri)).content
        prompts = {each.name: each for each in await servers.prompts()}
        assert await servers.prompt("everything", "simple-prompt", {})
        assert [gap.required for gap in prompts["args-prompt"].arguments] == [True, False]
        children = set(psutil.Process().children(recursive=True)) - before
        assert any("server-everything" in " ".join(each.cmdline()) for each in children)
    assert [each for each in children if each.is_running() and each.status() != psutil.STATUS_ZOMBIE] == []
    assert stage.warnings == []


async def test_the_file_server_keeps_to_its_folder(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hello\n")
    options = replace(npm("filesystem", str(tmp_path)), trust_annotations=True)
    async with Stage(options, roots=[str(tmp_path)]) as servers:
        tools = {tool.name: tool for tool in servers.tools()}
        assert "filesystem_read_file" not in tools  # deprecated
        assert tools["filesystem_read_text_file"].effect == "read"
        assert tools["filesystem_write_file"].effect == "write"
        read, context = tools["filesystem_read_text_file"], ToolContext()
        assert (await read.run(context, {"path": str(tmp_path / "a.txt")})).content == "hello\n"
        refused = await read.run(context, {"path": "/etc/passwd"})
        assert not refused.success
        assert "Access denied" in refused.error


async def test_both_start_side_by_side(tmp_path: Path) -> None:
    async with Stage(npm("everything"), npm("filesystem", str(tmp_path))) as servers:
        assert [each.state for each in servers.statuses()] == ["ready", "ready"]
        await asyncio.gather(*(servers.restart(each.name) for each in servers.statuses()))
        assert [each.state for each in servers.statuses()] == ["ready", "ready"]
