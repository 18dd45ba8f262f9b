"""MCP both ways against what one would take instead, on this machine, side by side.

    uv run python -m bench.agent.mcp_servers [--rounds 5] [--calls 300] [--quick]

*Served*: the official client over stdio, to `shepherd mcp serve` and to the official filesystem server from npm: the
time until its tools are listed, a call that reads a small file, a call that reads 100 kB, and the memory of the
server's processes. *Used*: a call of the official `everything` server through our `McpServerPool`, and through the bare
SDK.

Milliseconds, one number per round; programs are looked for in SHEPHERD_CLIENTS_DIR (`make clients` fills it).
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import psutil
from bench.rig import machine
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from rich.console import Console
from rich.table import Table

from shepherd.tools.builtin.mcp import call_mcp_tool
from shepherd.tools.mcp.servers import McpServerPool
from shepherd.tools.mcp.values import ServerOptions
from shepherd.tools.tool import ToolContext

CLIENTS = Path(os.environ.get("SHEPHERD_CLIENTS_DIR", Path.home() / ".cache" / "shepherd-clients"))
Rounds = dict[str, list[float]]


def program(name: str) -> str:
    found = shutil.which(name, path=f"{CLIENTS / 'node_modules' / '.bin'}{os.pathsep}{os.environ['PATH']}")
    if found is None:
        sys.exit(f"there is no {name}: run 'make clients' first")
    return found


async def p50_ms(work: Callable[[], Awaitable[Any]], n: int) -> float:
    times = []
    for _ in range(n):
        began = time.perf_counter()
        await work()
        times.append(time.perf_counter() - began)
    return statistics.median(times) * 1e3


async def served(rounds: Rounds, side: str, command: list[str], folder: Path, n_calls: int) -> None:
    """One server, from its start to its end."""
    env = {**os.environ, "RAG_DB_PATH": str(folder / ".memory.db")}
    settings = StdioServerParameters(command=command[0], args=command[1:], env=env, cwd=folder)
    tool = "read_file" if side == "shepherd" else "read_text_file"
    began = time.perf_counter()
    async with Client(stdio_client(settings)) as client:
        listed = await client.list_tools()
        rounds.setdefault(f"{side}: start to tools/list", []).append((time.perf_counter() - began) * 1e3)
        assert tool in {each.name for each in listed.tools}
        for name in ("small.txt", "large.txt"):
            path = str(folder / name)

            async def read(path: str = path) -> None:
                result = await client.call_tool(tool, {"path": path})
                assert not getattr(result, "is_error", False), result

            rounds.setdefault(f"{side}: read {name}", []).append(await p50_ms(read, n_calls))
        children = psutil.Process().children(recursive=True)
        size = sum(each.memory_info().rss for each in children if each.name() != "sh")
        rounds.setdefault(f"{side}: resident MiB", []).append(size / 2**20)


async def used(rounds: Rounds, n_calls: int) -> None:
    """One call of another server, through us and through the bare SDK."""
    command = program("mcp-server-everything")
    async with Client(stdio_client(StdioServerParameters(command=command))) as client:

        async def bare() -> None:
            await client.call_tool("echo", {"message": "hello"})

        await p50_ms(bare, 20)
        rounds.setdefault("bare SDK: call", []).append(await p50_ms(bare, n_calls))
    servers = McpServerPool([ServerOptions("everything", command)], env=os.environ)
    named = {"server": "everything", "tool": "echo", "arguments": {"message": "hello"}}
    async with servers:
        await servers.ready(None)

        async def ours() -> None:
            result = await call_mcp_tool.run(ToolContext(servers=servers), named)
            assert "hello" in result.content

        await p50_ms(ours, 20)
        rounds.setdefault("our Servers: call", []).append(await p50_ms(ours, n_calls))


async def play(folder: Path, n_rounds: int, n_calls: int) -> Rounds:
    rounds: Rounds = {}
    sides = {
        "shepherd": [sys.executable, "-m", "shepherd", "mcp", "serve", "--threads", "1"],
        "filesystem server": [program("mcp-server-filesystem"), str(folder)],
    }
    for number in range(n_rounds):
        for side in sorted(sides, reverse=number % 2 == 1):  # who runs first changes every round
            await served(rounds, side, sides[side], folder, n_calls)
        await used(rounds, n_calls)
    return rounds


def table(rounds: Rounds) -> Table:
    shown = Table("what", "median", "rounds")
    for name, values in rounds.items():
        shown.add_row(name, f"{statistics.median(values):.2f}", " ".join(f"{value:.2f}" for value in values))
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--calls", type=int, default=300)
    parser.add_argument("--quick", action="store_true", help="one round, few calls; not kept")
    asked = parser.parse_args()
    n_rounds, n_calls = (1, 20) if asked.quick else (asked.rounds, asked.calls)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made).resolve()
        (folder / "small.txt").write_text("one line\n")
        (folder / "large.txt").write_text("a line of forty characters, more or less\n" * 2_500)
        rounds = asyncio.run(play(folder, n_rounds, n_calls))
    Console(width=110).print(table(rounds))
    medians = {name: statistics.median(values) for name, values in rounds.items()}
    print(machine.save("mcp", {"unit": "ms", "medians": medians, "rounds": rounds}, quick=asked.quick))


if __name__ == "__main__":
    main()
