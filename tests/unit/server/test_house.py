"""Clients that share one server: none can stop, slow or use it for what it is not there for."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from tests.own_server import Listening
from tests.scripted_service import ScriptedService, playing

from shepherd.core import CallDelta, CallEnded, CallStarted, Event, Finished, Request, Started, TextDelta, ToolCall
from shepherd.server.app import Limits
from shepherd.wire.base import Json

PATIENCE_S = 30.0
"""Only a test that fails waits this long; the machine may be busy."""

USER = [{"role": "user", "content": "Hello"}]
BODIES: dict[str, Json] = {
    "/v1/chat/completions": {"model": "m", "messages": USER},
    "/v1/completions": {"model": "m", "prompt": "Hello"},
    "/v1/responses": {"model": "m", "input": "Hello"},
    "/v1/messages": {"model": "m", "messages": USER, "max_tokens": 100},
    "/api/chat": {"model": "m", "messages": USER},
    "/api/generate": {"model": "m", "prompt": "Hello"},
}
"""A body for every surface that generates."""


# ---- silence


@pytest.mark.parametrize("path", BODIES)
async def test_a_long_silence_is_filled_in_every_protocol(listening: Listening, path: str) -> None:
    """Before the first event, and after it."""
    begin, go_on = asyncio.Event(), asyncio.Event()

    async def script(request: Request) -> AsyncGenerator[Event, None]:
        await begin.wait()
        yield Started("m")
        yield TextDelta("first")
        await go_on.wait()
        yield TextDelta("second")
        yield Finished("end")

    ping = PINGS.get(path, ": ping\n\n")
    async with (
        listening(ScriptedService(script), limits=Limits(ping_s=0.02)) as url,
        httpx2.AsyncClient(timeout=PATIENCE_S) as client,
        client.stream("POST", url + path, json={**BODIES[path], "stream": True}) as answer,
    ):
        assert answer.status_code == 200
        pieces = answer.aiter_text()

        async def read_until(word: str, n: int = 1) -> str:
            told = ""
            while told.count(word) < n:
                told += await anext(pieces)
            return told

        if not path.startswith("/api/"):  # where a line is an object nothing can be said before there is one
            assert set((await read_until(": ping\n\n", 3)).split("\n\n")) == {": ping", ""}
        begin.set()
        before = await read_until("first")
        silence = await read_until(ping, 3)
        assert silence.endswith(ping)
        go_on.set()
        told = before + silence + "".join([piece async for piece in pieces])
    assert told.index("first") < told.index(ping) < told.index("second")
    for line in told.splitlines() if path.startswith("/api/") else ():
        json.loads(line)


PINGS = {
    "/v1/messages": 'event: ping\ndata: {"type":"ping"}\n\n',
    "/api/chat": '"content":""},"done":false}\n',
    "/api/generate": '"response":"","done":false}\n',
}
"""What is not a comment."""


# ---- nothing in a body makes the server do anything but answer


@contextmanager
def trapped_address() -> Iterator[str]:
    """An address that fails the test when a client connects to it."""
    with socket.create_server(("127.0.0.1", 0)) as trap:
        yield f"http://127.0.0.1:{trap.getsockname()[1]}/"
        trap.settimeout(0.2)
        with pytest.raises(TimeoutError):
            trap.accept()


def with_tools(path: str, url: str, touched: Path) -> Json:
    """A body that defines every kind of tool and server that some API runs by itself."""
    command = {"command": "touch", "args": [str(touched)]}
    function = {"name": "shell", "description": "Runs a command", "parameters": {"type": "object"}}
    tools: list[Json] = [
        {"type": "function", "function": function},
        {"type": "function", **function},
        {"type": "mcp", "server_label": "x", "server_url": url, "require_approval": "never", **command},
        {"type": "local_shell"},
        {"type": "web_search", "url": url},
        {"type": "code_interpreter", "container": {"type": "auto"}},
        {"type": "bash_20250124", "name": "bash"},
        {"name": "shell", "input_schema": {"type": "object"}, "url": url},
    ]
    if path == "/v1/chat/completions" or path.startswith("/api/"):
        tools = tools[:1]
    return {
        **BODIES[path],
        "tools": tools,
        "mcp_servers": [{"type": "url", "url": url, "name": "x", **command}, {"type": "stdio", **command}],
        "mcp": {"servers": {"x": command}},
        "container": {"skills": [{"type": "custom", "skill_id": url}]},
        "plugins": [url],
        "web_search_options": {"url": url},
        "webhook": url,
        "callback_url": url,
    }


@pytest.mark.parametrize("path", BODIES)
async def test_no_body_makes_the_server_run_or_fetch_anything(listening: Listening, path: str, tmp_path: Path) -> None:
    touched = tmp_path / "touched"
    arguments = json.dumps({"command": f"touch {touched}", "cmd": ["touch", str(touched)], "path": str(touched)})
    call = ToolCall("call_1", "shell", arguments)
    script = playing(
        Started("m"), CallStarted(call.id, call.name), CallDelta(arguments), CallEnded(call), Finished("tool_calls")
    )
    service = ScriptedService(script)
    with trapped_address() as trap:
        async with listening(service) as url, httpx2.AsyncClient(timeout=PATIENCE_S) as client:
            for stream in (False, True):
                answer = await client.post(url + path, json={**with_tools(path, trap, touched), "stream": stream})
                assert answer.status_code == 200, answer.text
            # One request, one answer: nobody has played the next turn with a result of the call.
            assert len(service.requests) == 2
            for admin in ("/v1/mcp", "/mcp", "/v1/tools", "/tools", "/v1/mcp/test", "/api/mcp", "/sse"):
                assert (
                    await client.post(url + admin, json={"command": "touch", "args": [str(touched)]})
                ).status_code == 404
    assert not touched.exists()


@pytest.mark.model
def test_the_real_server_has_no_tools_of_its_own_over_http(server: str, tmp_path: Path) -> None:
    body = with_tools("/v1/responses", "http://127.0.0.1:9/", tmp_path / "touched")
    for path, asked in (("/v1/responses", body), ("/v1/messages", {**body, **BODIES["/v1/messages"], "max_tokens": 8})):
        answer = httpx2.post(server + path, json={**asked, "max_output_tokens": 8}, timeout=PATIENCE_S)
        assert answer.status_code == 200, answer.text
    plain = httpx2.post(f"{server}/v1/messages/count_tokens", json=BODIES["/v1/messages"], timeout=PATIENCE_S)
    assert plain.json()["input_tokens"] < 100  # no tool of ours is described in a prompt
    assert not (tmp_path / "touched").exists()


# ---- slow readers


@pytest.mark.model
def test_a_client_that_does_not_read_slows_no_engine_and_no_other_client(server: str) -> None:
    address = urlsplit(server)
    body = {
        "messages": USER,
        "stream": True,
        "ignore_eos": True,
        "max_tokens": 400,
        "logprobs": True,
        "top_logprobs": 20,
    }
    content = json.dumps(body).encode()
    with socket.socket() as slow, httpx2.Client(base_url=server, timeout=PATIENCE_S) as client:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # so that little fits into the kernel's buffers
        slow.connect((address.hostname, address.port))
        slow.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%b"
            % (len(content), content)
        )
        assert slow.recv(12) == b"HTTP/1.1 200"
        answer = client.post("/v1/chat/completions", json={"messages": USER, "max_tokens": 20})
        assert answer.status_code == 200
        # The unread answer is computed to its end: what the engine is asked for is all done.
        caches: Any = {}
        for _ in range(3000):
            (caches,) = client.get("/v1/caches").json()["caches"].values()
            if not caches["live"] and not caches["waiting"]:
                break
        assert (caches["live"], caches["waiting"]) == (0, 0)


# ---- the end


CONFIG = """
[models.lamb]
path = "embedded"
[caches.main]
model = "lamb"
n_ctx = 2048
[kv]
disk = true
"""


@pytest.mark.model
@pytest.mark.skipif(sys.platform == "win32", reason="signals are different there")
def test_a_conversation_outlives_a_restart(tmp_path: Path) -> None:
    """SIGTERM in the middle of an answer: it ends, what was computed is kept, the next server goes on from there."""
    (tmp_path / "shepherd.toml").write_text(CONFIG)
    turns: list[Json] = [
        {"role": "user", "content": "Tell me about sheep. " + "They are many and they are white. " * 20}
    ]
    with running(tmp_path) as (process, url):
        body = {"messages": turns, "temperature": 0, "max_tokens": 60}
        first = httpx2.post(f"{url}/v1/chat/completions", json=body, timeout=PATIENCE_S).json()
        turns += [first["choices"][0]["message"], {"role": "user", "content": "And now?"}]
        with httpx2.stream(
            "POST", f"{url}/v1/messages", json={**BODIES["/v1/messages"], "stream": True}, timeout=PATIENCE_S
        ) as answer:
            process.send_signal(signal.SIGTERM)
            told = answer.read().decode()
        assert "event: message_stop" in told or "event: error" in told
        assert process.wait(PATIENCE_S) == 0
    with running(tmp_path) as (process, url):
        body = {"messages": turns, "max_tokens": 8}
        second = httpx2.post(f"{url}/v1/chat/completions", json=body, timeout=PATIENCE_S).json()
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] >= first["usage"]["prompt_tokens"] - 1


@contextmanager
def running(home: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A real server with its home in `home`, and its address; killed if it still runs at the end."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "SHEPHERD_"))}
    environment |= {"HOME": str(home), "SHEPHERD_TRUST": "1", "RAG_DB_PATH": str(home / "memory.db")}
    command = [sys.executable, "-m", "shepherd", "serve", "--port", "0", "--threads", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, cwd=home) as process:
        try:
            assert process.stdout is not None
            address = next(line for line in process.stdout if line.startswith("Listening on: "))
            yield process, address.removeprefix("Listening on: ").strip()
        finally:
            process.kill()
