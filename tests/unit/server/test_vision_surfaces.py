"""The same image through every protocol, and from MCP servers: the greedy answer of OpenAI's chat protocol."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import threading
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import gguf
import pytest
from tests.own_server import serving
from tests.unit.engine.tiny_projector import png, write_seeing
from tests.unit.server.test_vision import N_VISIBLE, config, image, post, text

from shepherd.app.app import App

pytestmark = [pytest.mark.model]

N_ANSWER = 9
WORDS = "what is it?"


@dataclass
class Server:
    address: str
    app: App
    loop: asyncio.AbstractEventLoop

    def run(self, work: Awaitable[str]) -> str:
        """What this returns on the server's event loop."""

        async def awaited() -> str:
            return await work

        return asyncio.run_coroutine_threadsafe(awaited(), self.loop).result(60)


@contextlib.contextmanager
def hosting(folder: Path, kind: str) -> Iterator[Server]:
    """A server whose greedy answers have visible characters only."""
    model, projector = write_seeing(kind, folder)
    for tensor in gguf.GGUFReader(model, "r+").tensors:
        if tensor.name == "output.weight":
            tensor.data[N_VISIBLE:] = 0
    more = '[models.eyes.sampling]\ntemperature = 0\nignore_eos = true\n[images]\nhosts = ["127.0.0.1"]\n'
    made: list[tuple[App, asyncio.AbstractEventLoop]] = []

    def around(app: App) -> App:
        made.append((app, asyncio.get_running_loop()))
        return app

    with serving(folder, config(model, projector) + more, around=around) as address:
        ((app, loop),) = made
        yield Server(address, app, loop)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with hosting(tmp_path_factory.mktemp("seeing"), "qwen") as made:
        yield made


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def chat(server: Server, messages: list[dict[str, Any]], **more: Any) -> list[str]:
    body = {"model": "eyes", "messages": messages, "max_tokens": N_ANSWER, **more}
    return [choice["message"]["content"] for choice in post(server.address, body)["choices"]]


# What is asked in OpenAI's chat protocol.


def question(data: bytes) -> list[dict[str, Any]]:
    return [{"role": "user", "content": [image(data), text(WORDS)]}]


# The same in others.

Ask = Callable[[Server, bytes], str]


def posted(path: str, body: Callable[[bytes], dict[str, Any]], answer: Callable[[Any], str]) -> Ask:
    limits = {"max_tokens": N_ANSWER} if path == "/v1/messages" else {"options": {"num_predict": N_ANSWER}}
    limits = {"max_output_tokens": N_ANSWER} if path == "/v1/responses" else limits
    common = {"model": "eyes", "stream": False, **limits}
    return lambda server, data: answer(post(server.address, {**common, **body(data)}, path))


def of_responses(answer: Any) -> str:
    return str(answer["output"][-1]["content"][0]["text"])


def of_ollama(answer: Any) -> str:
    return str(answer["message"]["content"])


def test_an_address_is_fetched_once_for_all_choices_of_a_body(server: Server) -> None:
    paths: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            paths.append(self.path)
            self.send_response(200)
            self.send_header("content-type", "image/png")
            self.send_header("content-length", str(len(png(1))))
            self.end_headers()
            self.wfile.write(png(1))

        def log_message(self, format: str, *args: Any) -> None: ...

    site = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=site.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    try:
        link = {"type": "image_url", "image_url": {"url": f"http://127.0.0.1:{site.server_port}/a.png"}}
        answers = chat(server, [{"role": "user", "content": [link, text(WORDS)]}], n=3)
    finally:
        site.shutdown()
        site.server_close()
    assert answers == chat(server, question(png(1))) * 3
    assert paths == ["/a.png"]
