"""The tests of `tests/unit/server/endpoints/test_mcp.py` that take long."""

import json
import signal
import subprocess
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.unit.server.endpoints.test_mcp import (
    alive,
    connected,
    folder,  # noqa: F401 - fixtures
    program,
    raw,
    said,
    started,
)

pytestmark = pytest.mark.model

Start = Callable[..., AbstractContextManager[str]]


PRINTING = """
import os
print("loaded")

class Shout:
    name = "shout"
    def execute(self, args):
        print("shouting")
        os.system("echo a program")
        os.write(1, b"the descriptor")
        return "shouted"
"""


def test_nothing_but_the_protocol_is_on_standard_output(folder: Path) -> None:
    asked = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": {"name": "raw", "version": "0"}}},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "list_directory", "arguments": {}}},
        {"jsonrpc": "2.0", "id": 3, "method": "no/such/method"},
        {"jsonrpc": "2.0", "id": 4, "method": "tools/call", "params": {"name": "shout", "arguments": {}}},
        {"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": {"name": "nope", "arguments": {}}},
    ]  # fmt: skip
    (folder / "own.py").write_text(PRINTING)
    (folder / "shepherd.toml").write_text("[tools]\nfiles = ['own.py']\n")
    settings = program(folder, "--log-level", "debug", "--config", "shepherd.toml")
    with subprocess.Popen(
        [settings.command, *settings.args], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        text=True, env=settings.env, cwd=folder,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("not json\n" + "".join(json.dumps(each) + "\n" for each in asked))
        process.stdin.flush()
        answers: dict[Any, Any] = {}
        while not {1, 2, 3, 4, 5} <= set(answers):
            message = json.loads(process.stdout.readline())
            assert message["jsonrpc"] == "2.0"
            answers[message.get("id")] = message
        process.stdin.close()
        assert process.stdout.read() == ""
        assert process.wait(60) == 0
    assert answers[1]["result"]["protocolVersion"] == "2024-11-05"
    assert "notes.txt" in answers[2]["result"]["content"][0]["text"]
    assert answers[3]["error"]["code"] == -32601
    assert answers[4]["result"]["content"][0]["text"] == "shouted"
    assert answers[5]["error"]["code"] == -32602


@pytest.mark.grid(0.2)
@pytest.mark.parametrize("how", ["closes", "terminates", "interrupts"])
def test_however_an_agent_ends_us_nothing_that_it_has_started_is_left(folder: Path, how: str) -> None:
    with raw(folder, "--enable-tools", "command") as (process, tell):
        family = started(folder, tell)
        assert process.stdin is not None
        if how == "closes":
            process.stdin.close()
        else:  # while our input stays open
            process.send_signal({"terminates": signal.SIGTERM, "interrupts": signal.SIGINT}[how])
        assert process.wait(60) == {"closes": 0, "terminates": 143, "interrupts": 130}[how]
        assert not alive(family)


async def test_over_http_the_operator_can_open_the_rest(start_server: Start, folder: Path) -> None:
    with start_server("--use-tools", "--root", str(folder)) as address, httpx2.Client(trust_env=False) as http:
        async with connected(address) as client:
            assert "one\ntwo" in await said(client, "read_file", path="notes.txt")
            refused = await said(client, "write_file", path="new.txt", content="x")
            assert "--allow-tools write_file" in refused, "being offered is not consent"
        hostile = {"host": "evil.example", "accept": "application/json, text/event-stream"}
        assert http.post(f"{address}/mcp", json={}, headers=hostile).status_code == 403
    assert not (folder / "new.txt").exists()
