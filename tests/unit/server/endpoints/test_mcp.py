"""Our tools for other agents: the official client against a really started server, over stdio and over HTTP."""

import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import psutil
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.server import Server
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CallToolResult,
    EmptyResult,
    LoggingLevel,
    ResourceTemplateReference,
    SetLevelRequest,
    SetLevelRequestParams,
    TextResourceContents,
)
from tests.own_server import Listening
from tests.proven import proven

from shepherd import config as configuration
from shepherd.app.app import App
from shepherd.core import Audio, Message, Text, ToolResult
from shepherd.memory import Entry
from shepherd.memory.users import LOCAL
from shepherd.server.endpoints import mcp, mcp_library
from shepherd.server.endpoints.mcp import make_server
from shepherd.server.http.auth import Key
from shepherd.tools.mcp.content import as_message

pytestmark = pytest.mark.model

MEMORY = {"search_memory", "get_fact", "set_fact", "clear_fact", "store_memory", "clear_memory"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder that a server works in."""
    (tmp_path / "notes.txt").write_text("one\ntwo\n")
    return tmp_path


def environment(folder: Path) -> dict[str, str]:
    """That of a program in this folder, with a memory of its own."""
    return {**os.environ, "RAG_DB_PATH": str(folder / "memory.db"), "XDG_CONFIG_HOME": str(folder / "none")}


def program(folder: Path, *arguments: str) -> StdioServerParameters:
    """`shepherd mcp serve` in a folder."""
    env = environment(folder)
    command = ["-m", "shepherd", "mcp", "serve", "--threads", "1", *arguments]
    return StdioServerParameters(command=sys.executable, args=command, env=env, cwd=folder)


ECHO = """
from mcp.server.mcpserver import MCPServer
server = MCPServer('echo')

@server.tool()
def shout(text: str) -> str:
    return text.upper()

@server.resource("note://one")
def note() -> str:
    return "a note"

@server.prompt()
def greet(name: str) -> str:
    return f"Greet {name}!"

server.run()
"""


async def said(client: Client, name: str, **arguments: Any) -> str:
    result = await client.call_tool(name, arguments)
    assert isinstance(result, CallToolResult)
    text = "".join(each.text for each in result.content if each.type == "text")
    return f"Error: {text}" if result.is_error and not text.startswith("Error: ") else text


@asynccontextmanager
async def opened(folder: Path, **flags: Any) -> AsyncIterator[App]:
    """The application of a program in this folder, in this process; its model is loaded when it is asked for."""
    config = configuration.load(
        flags={"threads": 1, "roots": (str(folder),), **flags}, env={}, cwd=folder, user_dir=folder / "none"
    )
    app = App(config, cache_folder=proven(folder.with_name("cache")), env=environment(folder))
    try:
        yield app
    finally:
        await app.aclose()


@asynccontextmanager
async def offered(folder: Path, **flags: Any) -> AsyncIterator[Server[Any]]:
    """What `shepherd mcp serve` offers, without the program: the same over any transport."""
    async with opened(folder, **flags) as app:
        yield make_server(partial(app.offer, everything=True, allow=("*",)))


async def read(client: Client, uri: str) -> str:
    (found,) = (await client.read_resource(uri)).contents
    assert isinstance(found, TextResourceContents)
    return found.text


def conversed(app: App, user: str, *texts: str) -> str:
    """A conversation in the memory of a user; its uuid."""
    store = app.memory(user)
    assert store is not None
    store.archive([Entry("user" if n % 2 == 0 else "assistant", text) for n, text in enumerate(texts)])
    return store.conversations()[0].uuid


async def test_an_agent_reads_the_memory_as_resources_and_asks_with_a_prompt(folder: Path) -> None:
    async with opened(folder) as app:
        offer = partial(app.offer, everything=True, allow=("*",))
        uuid = conversed(app, LOCAL, "The cat is called Lamb.", "Noted.")
        async with Client(make_server(offer)) as client:
            await said(client, "set_fact", key="favourite colour/1", value="blue")
            names = {each.uri: each.name for each in (await client.list_resources()).resources}
            fact, conversation = "memory://facts/favourite%20colour%2F1", f"memory://conversations/{uuid}"
            assert names[fact] == "favourite colour/1"
            assert conversation in names
            assert await read(client, fact) == "blue"
            assert await read(client, conversation) == "user: The cat is called Lamb.\n\nassistant: Noted."
            assert await read(client, f"{conversation[:-20]}?after=0") == "assistant: Noted."
            templates = [each.uri_template for each in (await client.list_resource_templates()).resource_templates]
            assert templates == ["memory://facts/{key}", "memory://conversations/{conversation}{?after}"]
            for uri, name, begun, wanted in [
                (templates[0], "key", "fav", ["favourite colour/1"]),
                (templates[0], "key", "x", []),
                (templates[1], "conversation", uuid[:8], [uuid]),
                (templates[1], "after", "", []),
                ("memory://else/{key}", "key", "", []),
            ]:
                reference = ResourceTemplateReference(uri=uri)
                found = await client.complete(reference, {"name": name, "value": begun})
                assert found.completion.values == wanted, (uri, name, begun)
            assert [each.name for each in (await client.list_prompts()).prompts] == ["recall"]
            (message,) = (await client.get_prompt("recall", {"question": "What is the cat called?"})).messages
            assert "called Lamb" in str(message.content)
            for name, problem in [("recall", "needs question"), ("nope", "there are: recall")]:
                with pytest.raises(MCPError, match=problem) as refused:
                    await client.get_prompt(name)
                assert refused.value.code == -32602


@pytest.mark.parametrize(("mode", "code"), [("auto", -32602), ("legacy", -32002)])
@pytest.mark.parametrize(
    "uri", ["memory://facts/nope", "memory://conversations/nope", "memory://x", "file:///etc/hostname"]
)
async def test_an_address_of_nothing_is_an_error_of_the_revision(folder: Path, mode: str, code: int, uri: str) -> None:
    async with offered(folder) as server, Client(server, mode=mode) as client:
        with pytest.raises(MCPError, match="there is no resource") as unknown:
            await client.read_resource(uri)
        assert unknown.value.code == code


@pytest.mark.parametrize("key", ["disabled", "deny"])
async def test_a_memory_whose_tools_are_closed_is_closed_as_resources_too(folder: Path, key: str) -> None:
    (folder / "none").mkdir()
    (folder / "none" / "config.toml").write_text(f"[tools]\n{key} = ['get_fact', 'search_memory']\n")
    async with opened(folder) as app, offering(app) as client:
        uuid = conversed(app, LOCAL, "secret", "sure")
        for uri in (f"memory://conversations/{uuid}", "memory://facts/x"):
            with pytest.raises(MCPError):
                await client.read_resource(uri)
        with pytest.raises(MCPError):
            await client.get_prompt("recall", {"question": "secret"})


@asynccontextmanager
async def offering(app: App) -> AsyncIterator[Client]:
    async with Client(make_server(partial(app.offer, everything=True, allow=("*",)))) as client:
        yield client


async def test_a_long_conversation_is_read_in_pages(folder: Path) -> None:
    async with opened(folder) as app, offering(app) as client:
        uuid = conversed(app, LOCAL, *(f"text {n}" for n in range(450)))
        uri, n_pages, whole = f"memory://conversations/{uuid}", 0, ""
        while uri:
            page, _, more = (await read(client, uri)).partition("[more: ")
            n_pages, whole, uri = n_pages + 1, whole + page, more.removesuffix("]")
        assert n_pages == 3
        assert re.findall(r"text (\d+)", whole) == [str(n) for n in range(450)]


REPORTING = """
import asyncio
from shepherd.tools import ToolContext, tool

@tool(effect="read")
async def report(context: ToolContext) -> str:
    context.tell("halfway")
    return "done"

@tool(effect="read")
async def be_silent() -> str:
    await asyncio.sleep(0.3)
    return "done"
"""


async def test_a_client_that_wants_progress_or_the_log_gets_the_lines_of_a_tool(folder: Path) -> None:
    logged: list[Any] = []
    told: list[str | None] = []

    async def log(params: Any) -> None:
        logged.append((params.level, params.logger, params.data))

    async def progress(progress: float, total: float | None, message: str | None) -> None:
        told.append(message)

    (folder / "own.py").write_text(REPORTING)
    (folder / "none").mkdir()
    (folder / "none" / "config.toml").write_text("[tools]\nfiles = ['../own.py']\n")
    async with opened(folder) as app:
        server = make_server(partial(app.offer, everything=True, allow=("*",)), silence_s=0.01)
        levels: list[tuple[LoggingLevel | None, list[Any]]] = [
            (None, []),
            ("error", []),
            ("info", [("info", "report", "halfway")]),
        ]
        for level, expected in levels:
            logged.clear()
            async with Client(server, mode="legacy", logging_callback=log) as client:
                if level is not None:
                    await client.session.send_request(
                        SetLevelRequest(params=SetLevelRequestParams(level=level)), EmptyResult
                    )
                await client.call_tool("report", {}, progress_callback=progress)
            assert logged == expected, level
        assert told == ["halfway"] * 3
        async with Client(server, logging_callback=log, log_level="info") as client:  # the newest revision
            logged.clear()
            await client.call_tool("report", {})
            assert logged == expected
            await client.call_tool("be_silent", {}, progress_callback=progress)
            assert told[3:][:1] == [None], "a silent tool still runs"
            assert logged == expected


async def test_what_the_operator_closes_is_closed_for_agents(folder: Path) -> None:
    closing: dict[str, Any] = {
        "disable_tools": ("delete_file", "http"),
        "read_only": True,
        "enable_tools": ("filesystem", "http", "command"),
    }
    async with offered(folder, **closing) as server, Client(server) as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
        assert {"read_file", "execute_command"} <= names
        assert not {"delete_file", "http_get", "set_fact"} & names
        assert "read-only" in await said(client, "write_file", path="new.txt", content="x")
        assert "read-only" in await said(client, "execute_command", command="touch x")
        assert "disabled" in await said(client, "delete_file", path="notes.txt")
    assert {path.name for path in folder.iterdir()} <= {"notes.txt", "memory.db", "memory.db-wal", "memory.db-shm"}


HELLO = (
    {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "raw", "version": "0"}}},
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
)  # fmt: skip


@contextmanager
def raw(folder: Path, *arguments: str) -> Iterator[tuple["subprocess.Popen[str]", Callable[..., None]]]:
    """The program, spoken to in plain lines: `tell(method, id=None, **params)`."""
    settings = program(folder, *arguments)
    with subprocess.Popen(
        [settings.command, *settings.args], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        text=True, env=settings.env, cwd=folder,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        lines = process.stdin

        def tell(method: str, number: int | None = None, **params: Any) -> None:
            message = {"jsonrpc": "2.0", "method": method, "params": params}
            lines.write(json.dumps(message if number is None else {**message, "id": number}) + "\n")
            lines.flush()

        lines.write("".join(json.dumps(each) + "\n" for each in HELLO))
        lines.flush()
        try:
            yield process, tell
        finally:
            process.kill()


def alive(processes: list[psutil.Process]) -> list[psutil.Process]:
    psutil.wait_procs(processes, timeout=30)
    return [each for each in processes if each.is_running() and each.status() != psutil.STATUS_ZOMBIE]


def started(folder: Path, tell: Callable[..., None]) -> list[psutil.Process]:
    """The processes of a command that has begun and would last for an hour."""
    fifo = folder / "started"
    if not fifo.exists():
        os.mkfifo(fifo)
    arguments = {"command": "sleep 3600 & echo $$ > started; wait", "timeout": 3600}
    tell("tools/call", 2, name="execute_command", arguments=arguments)
    shell = psutil.Process(int(fifo.read_text()))
    return [shell, *shell.children()]


class Speaking(NamedTuple):
    """The program, and the folder that it works in."""

    folder: Path
    process: "subprocess.Popen[str]"
    tell: Callable[..., None]

    def answers(self, n: int) -> dict[Any, Any]:
        """The next ones, by their ids."""
        assert self.process.stdout is not None
        return {answer["id"]: answer for answer in (json.loads(self.process.stdout.readline()) for _ in range(n))}


@pytest.fixture(scope="module")
def speaking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Speaking]:
    """One program, with an MCP server of its own, for the tests that only ask; its greeting has been read."""
    folder = tmp_path_factory.mktemp("speaking")
    (folder / "notes.txt").write_text("one\ntwo\n")
    (folder / "echo.py").write_text(ECHO)
    # However busy the machine is, the other server has started by then.
    own = f"[[mcp_servers]]\nname = 'own'\ncommand = {sys.executable!r}\nargs = ['echo.py']\ntimeout = 600\n"
    (folder / "shepherd.toml").write_text(own)
    with raw(folder, "--config", "shepherd.toml", "--enable-tools", "command,filesystem,mcp") as (process, tell):
        spoken = Speaking(folder, process, tell)
        assert spoken.answers(1).keys() == {1}
        yield spoken


@asynccontextmanager
async def connected(address: str, **headers: str) -> AsyncIterator[Client]:
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60, trust_env=False) as http,
        Client(streamable_http_client(f"{address}/mcp", http_client=http)) as client,
    ):
        yield client


async def test_over_http_the_memory_and_chat_are_open_and_nothing_else(folder: Path, listening: Listening) -> None:
    keys = ("secret", Key.of("anns", name="ann", user="ann"))
    async with (
        opened(folder) as app,
        listening(app, api_keys=keys, tools=partial(app.offer, everything=False)) as address,
    ):
        async with httpx2.AsyncClient(trust_env=False) as http:
            assert (await http.post(f"{address}/mcp", json={})).status_code == 401
        headers = {"authorization": "Bearer secret", "x-shepherd-user": "ann"}
        async with connected(address, **headers) as client:
            names = {tool.name for tool in (await client.list_tools()).tools}
            assert names == {"chat", *MEMORY}
            await said(client, "set_fact", key="colour", value="blue")
            assert "blue" in await said(client, "get_fact", key="colour")
            assert [each.uri for each in (await client.list_resources()).resources] == ["memory://facts/colour"]
            assert "not enabled" in await said(client, "read_file", path=str(folder / "notes.txt"))
            assert await said(client, "chat", prompt="Hello!")
        async with connected(address, authorization="Bearer secret") as client:
            assert "blue" not in await said(client, "get_fact", key="colour"), "the owner's memory is another one"
            assert not (await client.list_resources()).resources
            with pytest.raises(MCPError, match="there is no resource"):
                await client.read_resource("memory://facts/colour")
        async with connected(address, **{**headers, "x-shepherd-user": "bob"}) as client:
            assert "blue" not in await said(client, "get_fact", key="colour")
        async with connected(address, authorization="Bearer anns") as client:
            assert "blue" in await said(client, "get_fact", key="colour"), "the key acts as its user"
        async with httpx2.AsyncClient(trust_env=False) as http:
            other = {"authorization": "Bearer anns", "x-shepherd-user": "bob"}
            assert (await http.post(f"{address}/mcp", json={}, headers=other)).status_code == 403


def test_a_recording_is_a_recording_for_agents() -> None:
    result = ToolResult("1", (Text("Hear:"), Audio("audio/wav", b"RIFF")))
    text, sound = mcp._encode_result(result).content
    assert sound.model_dump(exclude_none=True, by_alias=True) == {
        "type": "audio",
        "data": "UklGRg==",
        "mimeType": "audio/wav",
    }
    (said,) = mcp_library._as_messages(Message("user", (Audio("audio/wav", b"RIFF"),)))
    assert (said.role, said.content) == ("user", sound)
    assert as_message("s", "user", [text, said.content]).parts == (Text("Hear:"), Audio("audio/wav", b"RIFF"))
