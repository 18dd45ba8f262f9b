"""What lies between a request and the first token of a provider: no thread, and two tasks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import pytest
from starlette.types import Message, Scope
from tests.providers_replay import Answer, Way, replaying
from tests.unit.app.test_providers import mine, running
from tests.unit.backends.cloud.providing import CHAT, SPOKEN

from shepherd.server.app import create_app

T = TypeVar("T")
PATHS = ("/v1/chat/completions", "/v1/messages", "/v1/responses", "/api/chat")
AT_WIDE = SPOKEN.index(b'" wide')


class Threads(ThreadPoolExecutor):
    """Counts what is handed to a thread."""

    n = 0

    def submit(self, call: Callable[..., T], /, *given: Any, **named: Any) -> Future[T]:
        self.n += 1
        return super().submit(call, *given, **named)


@pytest.mark.parametrize("path", PATHS)
async def test_nothing_hops_before_the_first_token(tmp_path: Path, path: str) -> None:
    loop, threads, names = asyncio.get_running_loop(), Threads(), list[str]()
    loop.set_default_executor(threads)
    hello = "Hello" if path == "/v1/responses" else [{"role": "user", "content": "Hello"}]
    key = "input" if path == "/v1/responses" else "messages"
    body = json.dumps({"model": "m", key: hello, "max_tokens": 9, "stream": True}).encode()
    answers = Answer(CHAT, SPOKEN), Answer(CHAT, SPOKEN, way=Way(hang_at=AT_WIDE))
    async with replaying(*answers) as server, running(tmp_path, mine(server)) as app:
        application = create_app(app)
        sent: list[Message] = []
        has_text, has_read = asyncio.Event(), False

        async def receive() -> Message:
            nonlocal has_read
            if has_read:
                await asyncio.Event().wait()
            has_read = True
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Message) -> None:
            sent.append(message)
            if b"Hello" in message.get("body", b""):
                has_text.set()

        async def ask() -> None:
            await application({**SCOPE, "path": path, "raw_path": path.encode()}, receive, send)

        await ask()  # what the first request opens and imports
        sent.clear()
        has_text.clear()
        has_read, threads.n = False, 0

        def made(loop: asyncio.AbstractEventLoop, coroutine: Any, **named: Any) -> asyncio.Task[Any]:
            names.append(coroutine.__qualname__)
            return asyncio.Task(coroutine, loop=loop, **named)

        asked = asyncio.create_task(ask())
        loop.set_task_factory(made)
        try:
            await asyncio.wait_for(has_text.wait(), 20)
        finally:
            loop.set_task_factory(None)
        ours = [name for name in names if "replaying" not in name and "ReplayServer" not in name]
        assert threads.n == 0
        assert sorted(ours) == ["Event.wait", "RequestContext._disconnected", "_Answer._pump"], names
        assert server.n_connections == 1
        asked.cancel()
        await asyncio.wait((asked,))


SCOPE: Scope = {
    "type": "http", "http_version": "1.1", "method": "POST", "scheme": "http", "query_string": b"", "root_path": "",
    "headers": [(b"host", b"localhost"), (b"content-type", b"application/json")], "client": ("127.0.0.1", 4),
    "server": ("127.0.0.1", 8000),
}  # fmt: skip
