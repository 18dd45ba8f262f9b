"""The tests of `tests/unit/server/endpoints/test_mcp.py` that start programs."""

import json
import re
from functools import partial
from pathlib import Path

import pytest
from mcp import Client
from mcp.client.stdio import stdio_client
from mcp.shared.exceptions import MCPError
from tests.own_server import Listening
from tests.unit.server.endpoints.test_mcp import (  # noqa: F401 - fixtures  # noqa: F401 - fixtures
    HELLO,
    MEMORY,
    Speaking,
    alive,
    connected,
    folder,
    offered,
    opened,
    program,
    read,
    said,
    speaking,
    started,
)

pytestmark = pytest.mark.model


async def test_an_agent_over_stdio_has_what_is_enabled_and_can_chat(folder: Path) -> None:
    async with Client(stdio_client(program(folder))) as client:
        assert client.server_info is not None
        assert client.server_info.name == "shepherd"
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert {"read_file", "write_file", "http_get", "json_path", "chat", *MEMORY} <= set(tools)
        assert not {"execute_command", "call_mcp_tool"} & set(tools)
        for name, is_reader in {"read_file": True, "write_file": False}.items():
            annotations = tools[name].annotations
            assert annotations is not None
            assert annotations.read_only_hint is is_reader
        assert tools["read_file"].input_schema["required"] == ["path"]
        assert "one\ntwo" in await said(client, "read_file", path="notes.txt")
        assert "outside" in await said(client, "read_file", path="/etc/hostname")
        await said(client, "write_file", path="new.txt", content="three\n")
        assert (folder / "new.txt").read_text() == "three\n"
        assert "'path'" in await said(client, "read_file")
        with pytest.raises(MCPError, match="there is no tool 'nope'") as unknown:
            await said(client, "nope")
        assert unknown.value.code == -32602
        assert "not enabled" in await said(client, "execute_command", command="touch x")
        assert json.loads(await said(client, "set_fact", key="colour", value="blue")) == {"success": True}
        assert json.loads(await said(client, "get_fact", key="colour")) == {"value": "blue"}
        assert await said(client, "chat", prompt="Hello!")
        assert "model" in await said(client, "chat", prompt="Hello!", model="nobody")


async def test_without_its_model_only_chat_fails_and_says_why(folder: Path) -> None:
    async with offered(folder, model="./gone.gguf") as server, Client(server) as client:
        assert "one" in await said(client, "read_file", path="notes.txt")
        for _ in range(2):
            assert "gone.gguf" in await said(client, "chat", prompt="Hello!")


def test_a_call_that_the_agent_takes_back_is_ended_and_the_next_one_is_answered(speaking: Speaking) -> None:
    family = started(speaking.folder, speaking.tell)
    speaking.tell("notifications/cancelled", requestId=2)
    assert not alive(family)
    speaking.tell("tools/call", 3, name="read_file", arguments={"path": "notes.txt"})
    assert speaking.answers(1).keys() == {3}


CUT = re.compile(r'(result:\d+)", offset=(\d+)')


async def read_on(client: Client) -> str:
    """The line behind the cut of a result that was too long."""
    cut = await said(client, "execute_command", command="seq 100000 200000")
    place = CUT.search(cut)
    assert place is not None, cut[:200]
    return await said(client, "read_file", path=place[1], offset=int(place[2]), limit=1)


async def test_a_result_that_was_cut_can_be_read_on(folder: Path, listening: Listening) -> None:
    tools = {"enable_tools": ("command", "filesystem")}
    async with offered(folder, **tools) as server, Client(server) as client:
        assert (await read_on(client)).split("\n")[0].isdecimal()
    async with (
        opened(folder, **tools) as app,
        listening(app, tools=partial(app.offer, everything=True)) as address,
        connected(address, **{"x-shepherd-user": "ann"}) as ann,
        connected(address, **{"x-shepherd-user": "bob"}) as bob,
    ):
        assert (await read_on(ann)).split("\n")[0].isdecimal()
        assert "no result is stored" in await said(bob, "read_file", path="result:1")


async def test_an_older_agent_is_understood_too(folder: Path) -> None:
    async with offered(folder) as server, Client(server, mode="legacy") as client:
        assert client.protocol_version != "2026-07-28"
        assert "one" in await said(client, "read_file", path="notes.txt")


def test_the_tools_of_our_own_mcp_servers_are_there_from_the_first_list_on(speaking: Speaking) -> None:
    speaking.tell("tools/list", 4)
    speaking.tell("tools/call", 5, name="own_shout", arguments={"text": "hello"})
    answers = speaking.answers(2)
    assert "own_shout" in {tool["name"] for tool in answers[4]["result"]["tools"]}
    assert answers[5]["result"]["content"][0]["text"] == "HELLO"


def test_the_resources_and_prompts_of_our_own_mcp_servers_are_passed_on(speaking: Speaking) -> None:
    speaking.tell("resources/list", 6)
    speaking.tell("resources/read", 7, uri="note://one")
    speaking.tell("prompts/get", 8, name="own_greet", arguments={"name": "Ada"})
    answers = speaking.answers(3)
    assert "note://one" in {each["uri"] for each in answers[6]["result"]["resources"]}
    assert answers[7]["result"]["contents"][0]["text"] == "a note"
    assert answers[8]["result"]["messages"][0]["content"]["text"] == "Greet Ada!"
