"""The tests of `tests/unit/tools/builtin/test_mcp.py` that start programs."""

import json

import pytest
from tests.unit.tools.builtin.test_mcp import run
from tests.unit.tools.mcp.scene import Stage, scripted

from shepherd.tools.base import ToolError
from shepherd.tools.builtin import mcp


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
