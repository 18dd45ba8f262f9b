"""/tools, /permissions, and what MCP servers have for people."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.playing import Play, Scripted, Stage

from shepherd.agent.session import Session
from shepherd.core import (
    EngineError,
    Message,
    Text,
)
from shepherd.core.status import ActiveModel
from shepherd.tools.base import Result, ToolError
from shepherd.tools.mcp.values import Prompt, PromptArgument, Resource, ServerStatus
from shepherd.tools.permission import ConsentStore, Permission
from shepherd.tools.selection import NO_ROOM
from shepherd.tools.tool import Tool, ToolContext
from shepherd.tools.toolbox import ConversationToolbox

# -- tools and permissions --------------------------------------------------------------------------------------------


async def nothing(context: ToolContext, arguments: Mapping[str, Any]) -> Result:
    return Result("done")


TOOLS = (
    Tool("read_file", "Read a text file.", {"type": "object"}, nothing, "filesystem", "read"),
    Tool("write_file", "Write a file.", {"type": "object"}, nothing, "filesystem", "write"),
    Tool("http_get", "Get a page.", {"type": "object"}, nothing, "http", "net"),
    Tool("execute_command", "Run a command.", {"type": "object"}, nothing, "command_execution", "run"),
)


def box(permission: Permission | None = None, off: Mapping[str, str] | None = None) -> ConversationToolbox:
    return ConversationToolbox(
        lambda: TOOLS,
        context=ToolContext(count=lambda text: 1000),
        permission=permission or Permission(),
        n_ctx=4096,
        choose=lambda tools: {"execute_command": "disabled"} | dict(off or {}),
    )


async def test_the_context_with_room_for_all_tools_is_named(play: Play) -> None:
    played = await play("/tools", backend=Scripted(), box=box(off={"http_get": NO_ROOM}))
    assert "--context-size 32k has room for all" in " ".join(played.out.split()), (
        "an eighth of it for three of 1000 tokens"
    )
    assert "--context-size" not in (await play("/tools", backend=Scripted(), box=box())).out


async def test_tools_are_listed_with_the_reason_and_switched_on_and_off(play: Play) -> None:
    backend = Scripted()
    of = box()
    played = await play(
        "/tools", "/tools off http_get, filesystem", "Hello", "/tools on read_*", "Hello", "/tools read_file",
        "/tools on execute_command", "/tools on nope", "/tools nope", "/tools off", backend=backend, box=of,
    )  # fmt: skip
    assert "on  read_file        filesystem" in played.out
    assert "off execute_command  command_execution  disabled" in played.out
    assert [[tool.name for tool in request.tools] for request in backend.requests] == [[], ["read_file"]]
    for piece in (
        "http_get: off.",
        "read_file, write_file: off.",
        "read_file: on.",
        "Read a text file.",
        "execute_command: disabled",
        "no tool or category is called 'nope'",
        "no tool is called 'nope'; the tools are read_file, write_file, http_get, execute_command",
        "write /tools off NAME",
    ):
        assert piece in played.out, piece


async def test_what_was_switched_off_stays_off_with_another_model(play: Play) -> None:
    backend = Scripted()

    class Moving(Stage):
        async def switch(self, session: Session, name: str) -> ActiveModel:
            session.move(backend, model=name, n_ctx=100, toolbox=box())
            return await super().switch(session, name)

    stage = Moving(None, names=["lamb", "ram"])
    await play("/tools off http_get", "/model ram", "Hello", backend=backend, box=box(), stage=stage)
    assert [tool.name for tool in backend.requests[0].tools] == ["read_file", "write_file"]


async def test_answers_are_listed_and_forgotten(play: Play, tmp_path: Path) -> None:
    answers = ConsentStore(tmp_path / "answers.json")
    answers.add(tmp_path, ("write_file", "notes.txt"))
    answers.add(tmp_path, ("execute_command", "git status"))
    permission = Permission(answers=answers, folder=tmp_path)
    played = await play(
        "/permissions", "/permissions forget write_file", "/permissions", "/permissions forget all", "/permissions",
        "/permissions what", box=box(permission),
    )  # fmt: skip
    assert "write_file(notes.txt): yes, always in" in played.out
    assert played.out.count("execute_command(git status): yes, always in") == 2
    assert played.out.count("1 answer forgotten.") == 2
    assert "No answer is stored." in played.out
    assert "write /permissions, /permissions forget PATTERN or /permissions forget all" in played.out


# -- MCP servers ------------------------------------------------------------------------------------------------------


class Offering:
    """Two MCP servers with prompts and resources."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def statuses(self) -> list[ServerStatus]:
        return [ServerStatus("one", "ready", "thing 1.0", 1), ServerStatus("two", "failed", "it is not there")]

    async def restart(self, name: str) -> None:
        if name != "one":
            raise ToolError(f"there is no MCP server {name!r}; there are one, two")

    async def prompts(self) -> list[Prompt]:
        gaps = (PromptArgument("city", "Where?", True), PromptArgument("day"))
        return [Prompt("one", "weather", "How is it?", gaps), Prompt("one", "hi"), Prompt("two", "hi")]

    async def prompt(self, server: str, name: str, arguments: Mapping[str, str]) -> tuple[Message, ...]:
        self.asked.append((server, name, arguments))
        return (Message.user(f"{name} of {dict(arguments)}?"), *([Message.assistant("Well.")] if name == "hi" else []))

    async def resources(self) -> list[Resource]:
        return [Resource("one", "note://a", "A note")]

    async def read(self, server: str | None, uri: str) -> Result:
        if uri == "note://huge":
            return Result("x" * 10_000)
        if uri != "note://a":
            raise ToolError(f"no server has {uri}")
        return Result("soup is at noon")


@pytest.mark.parametrize("line", ["/mcp", "/prompts", "/prompt x", "/resource", "/resource note://a"])
async def test_without_tools_the_flag_is_named_that_starts_no_server(play: Play, line: str) -> None:
    played = await play(line, stage=Stage(None, wants_tools=False))
    assert "--notools starts no MCP server; start the chat without it" in played.out


async def test_prompts_of_servers_are_listed_filled_and_asked(play: Play) -> None:
    backend, servers = Scripted(), Offering()
    played = await play(
        "/prompts", "/prompt weather", '/prompt weather "New York" day=today', "/prompt hi", "/prompt two/hi",
        "/prompt nope", "/prompt hi x y", "/prompt one/weather", "/prompt weather a b c", '/prompt "', "/prompt",
        backend=backend, stage=Stage(None, servers=servers),
    )  # fmt: skip
    assert "one/weather city [day]  How is it?" in played.out
    assert servers.asked == [("one", "weather", {"city": "New York", "day": "today"}), ("two", "hi", {})]
    said = [request.messages[-1].text for request in backend.requests]
    assert said[0] == "weather of {'city': 'New York', 'day': 'today'}?"
    assert said[1] == "User: hi of {}?\n\nAssistant: Well."
    for piece in (
        "weather needs city; write /prompt weather city=...",
        "one/weather needs city; write /prompt one/weather city=...",
        "several servers have a prompt 'hi': one/hi, two/hi; write one of these names",
        "no server has a prompt 'nope'; the prompts are: one/weather, one/hi, two/hi",
        "weather takes city, day; 'c' is one too many",
        "the arguments cannot be read: No closing quotation",
        "write /prompt NAME; /prompts lists them",
    ):
        assert piece in played.out, piece


async def test_a_resource_goes_along_with_the_next_message_alone(play: Play) -> None:
    backend = Scripted(EngineError("not now"))
    played = await play(
        "/resource", "/resource note://a", "When is soup?", "When?", "And now?", "/resource note://b",
        "/resource note://huge", "/mcp", "/mcp restart one", "/mcp restart x", "/mcp x",
        backend=backend, stage=Stage(None, servers=Offering()),
    )  # fmt: skip
    assert "note://a  one  A note" in played.out
    texts = [request.messages[-1].text for request in backend.requests]
    assert ["soup is at noon" in text for text in texts] == [True, True, False], "an answer that failed takes nothing"
    assert backend.requests[1].messages[-1].parts[-1] == Text("When?")
    for piece in (
        "note://a is attached to your next message: 15 characters.",
        "no server has note://b",
        "note://huge has 10,000 characters, and the context has room for 600",
        "ready    one  1 tool, thing 1.0",
        "failed   two  it is not there",
        "there is no MCP server 'x'; there are one, two",
        "write /mcp, or /mcp restart NAME",
    ):
        assert piece in played.out, piece
