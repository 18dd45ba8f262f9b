"""What a request has done is reported before its client can read the end of the answer: a client that looks then, in
/metrics, /v1/caches, /slots or the log, sees no older figures than one that looks later."""

from __future__ import annotations

import logging
import re
from array import array
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from tests.own_app import app_of, loaded
from tests.scripted_service import ScriptedService

from shepherd.app.app import App
from shepherd.core import EngineError, Event, Request, Started, TextDelta
from shepherd.engine.base import UNOWNED
from shepherd.server.app import create_app

SAY: dict[str, Any] = {"model": "lamb", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 6}
REQUESTS: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": ("/v1/chat/completions", SAY),
    "chat that a stop string ends": ("/v1/chat/completions", {**SAY, "max_tokens": 200, "stop": ["e", "a", "i"]}),
    "chat of two answers": ("/v1/chat/completions", {**SAY, "n": 2}),
    "anthropic": ("/v1/messages", SAY),
    "responses": ("/v1/responses", {"model": "lamb", "input": "Hi", "max_output_tokens": 16}),
    "ollama": ("/api/chat", SAY),
    "completions": ("/v1/completions", {"model": "lamb", "prompt": "Hi", "max_tokens": 6}),
    "a request that is refused": ("/v1/chat/completions", {**SAY, "max_tokens": -1}),
    "a prompt that does not fit": ("/v1/chat/completions", {**SAY, "max_tokens": 10**6, "strict": True}),
    "a count": ("/v1/messages/count_tokens", SAY),
    "embeddings of a model that has none": ("/v1/embeddings", {"model": "lamb", "input": "Hi"}),
    "a pull that is not allowed": ("/api/pull", {"model": "lamb-of-others"}),
}
ENDS = (
    b"data: [DONE]", b"event: message_stop", b"event: response.completed", b'"done":true', b'"status":"success"',
    b'{"error"', b'"type":"error"',
)  # fmt: skip
"""What ends an answer for its client, before the last byte."""


Figures = tuple[list[str], Any, Any, list[str]]
"""Of /metrics, /v1/caches and /slots, and the log."""


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[App]:
    async with loaded(app_of(tmp_path)) as app:
        yield app


def timeless(value: Any) -> Any:
    """JSON without what a clock changes."""
    if isinstance(value, dict):
        return {name: timeless(each) for name, each in value.items() if not name.endswith(("_s", "_ms"))}
    return [timeless(each) for each in value] if isinstance(value, list) else value


def watched(server: ASGIApp, look: Callable[[], Awaitable[None]]) -> ASGIApp:
    """The same server; `look` is awaited before bytes go out that end an answer for its client."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        async def sent(message: Message) -> None:
            if message["type"] == "http.response.body" and (
                not message.get("more_body") or any(end in message["body"] for end in ENDS)
            ):
                await look()
            await send(message)

        await server(scope, receive, sent)

    return app


def client_of(server: ASGIApp) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(server), base_url="http://localhost")


@pytest.mark.model
@pytest.mark.parametrize("stream", [False, True])
async def test_every_figure_of_a_request_is_there_when_its_answer_ends(
    app: App, stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="shepherd.engine")
    caplog.set_level(logging.INFO, logger="shepherd.server")
    server = create_app(app)
    seen: list[Figures] = []

    async def figures() -> Figures:
        async with client_of(server) as reader:
            metrics, caches, slots = [(await reader.get(path)) for path in ("/metrics", "/v1/caches", "/slots")]
        rows = re.findall(r"^(?:shepherd|llamacpp)\S* \S+$", metrics.text, re.MULTILINE)
        counted = [row for row in rows if "_seconds" not in row.split("{")[0] or "_count" in row]
        return counted, timeless(caches.json()), timeless(slots.json()), [each.getMessage() for each in caplog.records]

    async def look() -> None:
        seen.append(await figures())

    async with client_of(watched(server, look)) as client:
        for name, (path, body) in REQUESTS.items():
            seen.clear()
            await client.post(path, json={**body, "stream": stream} if "count" not in path else body)
            for backend in app._backends().values():  # behind it, an engine has nothing left to do
                await backend.engine.held(array("i", [1]), (), UNOWNED, holes=False)
            later = await figures()
            assert seen, name
            for each in seen:
                for one, other in zip(each, later, strict=True):
                    assert one == other, name


class Failing(ScriptedService):
    """Its answers break off; it pulls everything at once."""

    def __init__(self) -> None:
        super().__init__(breaks_off)

    async def pull(self, name: str, show: object) -> None:
        pass


async def breaks_off(request: Request) -> AsyncGenerator[Event, None]:
    yield Started("m")
    yield TextDelta("x" * 200_000)  # more than is written at once
    raise EngineError("a planted failure")


OTHERS: dict[str, tuple[str, dict[str, Any], str]] = {
    "an answer that breaks off": ("/v1/chat/completions", {**SAY, "stream": True}, "stop=engine_error"),
    "the same of Anthropic": ("/v1/messages", {**SAY, "stream": True}, "stop=engine_error"),
    "the same as a whole": ("/v1/chat/completions", SAY, "status=500 stop=engine_error"),
    "vectors": ("/v1/embeddings", {"model": "m", "input": ["word " * 50_000] * 9}, "status=200 stop=answered"),
    "scores": ("/v1/rerank", {"model": "m", "query": "a", "documents": ["b"]}, "status=200 stop=answered"),
    "a pull": ("/api/pull", {"model": "other"}, "status=200 stop=answered"),
    "a pull without a stream": ("/api/pull", {"model": "other", "stream": False}, "status=200 stop=answered"),
}


@pytest.mark.parametrize("name", OTHERS)
async def test_the_record_of_any_request_is_complete_when_its_answer_ends(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="shepherd.server")
    path, body, line = OTHERS[name]
    server = create_app(Failing())
    lines: list[str] = []

    async def look() -> None:
        async with client_of(server) as reader:
            totals = (await reader.get("/v1/caches")).json()["server"]
        assert (totals["requests"], totals["active"]) == (1, 0)
        lines.append([line for record in caplog.records if "stop=" in (line := record.getMessage())][-1])

    async with client_of(watched(server, look)) as client:
        answer = await client.post(path, json=body)
    assert lines
    for each in lines:
        assert line in each
        assert f"sent={len(answer.content)} " in each, "with the bytes that are on their way"
