"""The tools by which a model reaches what MCP servers have besides their own tools."""

from __future__ import annotations

from typing import Annotated, Any

from shepherd.tools.base import Result, ToolError
from shepherd.tools.signature import as_json, tool
from shepherd.tools.tool import McpServers, ToolContext


def servers_of(context: ToolContext) -> McpServers:
    if context.servers is None or not context.servers.server_names:
        raise ToolError("no MCP server is configured; continue without it")
    return context.servers


@tool(category="mcp", effect="read", aliases=("list_mcp_resources",))
async def list_resources(context: ToolContext, server: Annotated[str | None, "one server only"] = None) -> Result:
    """List what MCP servers have to read."""
    found = await servers_of(context).resources(server)
    if not found:
        return Result("[]", summary="no resources")
    lines = ",\n ".join(as_json(each.described()) for each in found)
    return Result(f"[{lines}]", summary=f"{len(found)} resources", more="list_resources(server=...) lists one server")


@tool(category="mcp", effect="read", aliases=("read_mcp_resource",), subject="uri")
async def read_resource(
    context: ToolContext, uri: str, server: Annotated[str | None, "needed where several have it"] = None
) -> Result:
    """Read a resource of an MCP server."""
    return await servers_of(context).read(server, uri)


@tool(category="mcp", effect="write", subject="tool", timeout_s=86_400.0)
async def call_mcp_tool(
    context: ToolContext, server: str, tool: str, arguments: Annotated[dict[str, Any] | None, "by their names"] = None
) -> Result:
    """Call any tool of an MCP server."""
    # A toolbox calls `resolve_call` first, so that its rules apply to the named tool; here the call is permitted.
    named = {"server": server, "tool": tool, "arguments": arguments}
    found, inner = servers_of(context).resolve_call(named)
    return await found.run(context, inner)
