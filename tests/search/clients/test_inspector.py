"""The MCP Inspector, as npm has it, against `shepherd mcp serve` and `/mcp`: `make clients`."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
from tests.search.clients.stage import User

pytestmark = pytest.mark.clients


@pytest.fixture
def inspect(user: User, installed: Callable[[str], None]) -> Callable[..., Any]:
    """What the Inspector says of a server, asked for one method."""
    installed("mcp-inspector")
    (user.project / "notes.txt").write_text("one\n")

    def run(*target: str, method: str, **said: str) -> Any:
        options = [word for name, value in said.items() for word in (f"--{name.replace('_', '-')}", value)]
        env = {**os.environ, "PATH": user.path, "HOME": str(user.home), "RAG_DB_PATH": str(user.home / "memory.db")}
        done = subprocess.run(
            ["mcp-inspector", "--cli", *target, "--method", method, *options],
            capture_output=True, text=True, env=env, cwd=user.project, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


STDIO = (sys.executable, "-m", "shepherd", "mcp", "serve", "--threads", "1")


def test_over_stdio_it_lists_our_tools_and_calls_one(inspect: Callable[..., Any]) -> None:
    tools = {tool["name"]: tool for tool in inspect(*STDIO, method="tools/list")["tools"]}
    assert {"read_file", "search_memory", "chat"} <= set(tools)
    assert tools["read_file"]["annotations"]["readOnlyHint"] is True
    result = inspect(*STDIO, method="tools/call", tool_name="read_file", tool_arg="path=notes.txt")
    assert result == {"content": [{"type": "text", "text": "one\n"}], "isError": False}


def test_over_http_it_needs_the_key_and_can_chat(
    inspect: Callable[..., Any], start_server: Callable[..., AbstractContextManager[str]]
) -> None:
    with start_server("--api-key", "secret") as address:
        known = {"header": "Authorization: Bearer secret"}
        listed = inspect(f"{address}/mcp", method="tools/list", **known)
        assert {"chat", "search_memory"} <= {tool["name"] for tool in listed["tools"]}
        assert "read_file" not in {tool["name"] for tool in listed["tools"]}
        said = inspect(f"{address}/mcp", method="tools/call", tool_name="chat", tool_arg="prompt=Hello!", **known)
        assert said["content"][0]["text"]
        with pytest.raises(AssertionError):
            inspect(f"{address}/mcp", method="tools/list")
