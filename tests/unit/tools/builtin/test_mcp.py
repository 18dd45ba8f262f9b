"""The tools by which a model reaches resources, and tools that it was not offered."""

import json
from typing import Any

import pytest

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
