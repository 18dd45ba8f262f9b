"""The tools by which a model reaches resources, and tools that it was not offered."""

import json
from typing import Any

import pytest
from tests.unit.tools.mcp.scene import Stage, scripted

from shepherd.tools.arguments import read_arguments
from shepherd.tools.base import Result, ToolError
from shepherd.tools.builtin import mcp
from shepherd.tools.mcp.servers import McpServerPool
from shepherd.tools.tool import Tool, ToolContext


async def run(tool: Tool, servers: McpServerPool | None, /, **arguments: Any) -> Result:
    return await tool.run(ToolContext(servers=servers), arguments)


async def test_without_servers_they_say_so() -> None:
    for tool, arguments in [
        (mcp.list_resources, {}),
        (mcp.read_resource, {"uri": "a://b"}),
        (mcp.call_mcp_tool, {"server": "s", "tool": "t"}),
    ]:
        for servers in (None, McpServerPool([], env={})):
            with pytest.raises(ToolError, match="no MCP server is configured"):
                await run(tool, servers, **arguments)


async def test_resources_are_listed_and_read() -> None:
    async with Stage(scripted("one"), scripted("two")) as servers:
        listed = json.loads((await run(mcp.list_resources, servers)).content)
        assert [(each["server"], each.get("uri")) for each in listed][:2] == [("one", "note://1"), ("one", "note://2")]
        assert listed[2] == {"server": "one", "uriTemplate": "city://{name}/weather", "name": "weather"}
        assert len(listed) == 6
        only = json.loads((await run(mcp.list_resources, servers, server="two")).content)
        assert {each["server"] for each in only} == {"two"}
        assert (await run(mcp.read_resource, servers, uri="note://1")).content == "the text of note://1"
        assert (await run(mcp.read_resource, servers, uri="x://y", server="two")).content == "the text of x://y"
        with pytest.raises(ToolError, match="no MCP server lists 'x://y'; name the server: one, two"):
            await run(mcp.read_resource, servers, uri="x://y")
        with pytest.raises(ToolError, match="there is no MCP server 'three'; there are: one, two"):
            await run(mcp.list_resources, servers, server="three")


async def test_any_tool_can_be_called_by_its_server_and_name() -> None:
    async with Stage(scripted("one")) as servers:
        arguments = {"at": {"x": 1.5}, "path": [{"x": 2}]}
        result = await run(mcp.call_mcp_tool, servers, server="one", tool="echo", arguments=arguments)
        assert json.loads(result.content) == arguments
        assert (await run(mcp.call_mcp_tool, servers, server="one", tool="old")).content == "{}"


def test_the_arguments_of_a_servers_tool_may_be_json_text() -> None:
    named = {"server": "one", "tool": "echo"}
    given = read_arguments(json.dumps({**named, "arguments": '{"a": 1}'}), mcp.call_mcp_tool)
    assert given == {**named, "arguments": {"a": 1}}
    for wrong in ("{", [1]):
        with pytest.raises(ToolError, match="the argument 'arguments' must be an object, not "):
            read_arguments(json.dumps({**named, "arguments": wrong}), mcp.call_mcp_tool)


def test_their_schemas_are_short() -> None:
    assert mcp.call_mcp_tool.parameters["required"] == ["server", "tool"]
    assert mcp.read_resource.parameters["required"] == ["uri"]
    assert sum(len(json.dumps(each.parameters)) for each in (mcp.list_resources, mcp.read_resource)) < 500
