"""What one request may hold, in every protocol; a large one delays no other request and does not outlive its client."""

import asyncio
import json
import threading
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from tests.fake_engine import FakeRuntime, FakeVocabulary, say
from tests.own_server import Listening
from tests.scripted_service import ScriptedService, saying

from shepherd.backends.local.backend import LocalBackend
from shepherd.core import Request
from shepherd.dialects import Template, detect
from shepherd.engine.engine import InProcessEngine
from shepherd.server.endpoints.handler import Limits
from shepherd.tools.toolbox import ConversationToolbox
from shepherd.wire.base import MAX_ELEMENTS, MAX_TOOLS, MAX_VALUES

Json = dict[str, Any]

PATIENCE_S = 60.0
"""Only a test that fails waits this long; the machine may be busy."""

SAY = [{"role": "user", "content": "Hello"}]
SCHEMA: Json = {"type": "object", "properties": {"a": {"type": "string"}}}


def functions(n: int) -> list[Json]:
    """Tools as chat completions and Ollama write them."""
    return [{"type": "function", "function": {"name": f"tool_{at}", "parameters": SCHEMA}} for at in range(n)]


def flat(n: int) -> list[Json]:
    """Tools as Responses and Anthropic's protocol write them."""
    return [{"name": f"tool_{at}", "parameters": SCHEMA, "input_schema": SCHEMA} for at in range(n)]


def messages(n: int) -> list[Json]:
    return [{"role": ("user", "assistant")[at % 2], "content": "Hm."} for at in range(n)]


def added(n: int) -> list[Json]:
    """A conversation of Anthropic's that defines tools, half of them in each of two messages."""
    halves = flat(n)[: n // 2], flat(n)[n // 2 :]
    return [
        {"role": "user", "content": [{"type": "tool_addition", "tool": {"definition": tool}} for tool in half]}
        for half in halves
    ]


TOO_MANY_TOOLS = f"tools has {MAX_TOOLS + 1} elements; at most {MAX_TOOLS} are accepted: send fewer"
TOO_MANY_MESSAGES = f"has {MAX_ELEMENTS + 1} elements; at most {MAX_ELEMENTS} are accepted: send fewer"
TOO_MANY_VALUES = f"the body holds more than {MAX_VALUES} JSON values"

ARGUMENTS = f'{{"x": [{"0," * (MAX_VALUES + 1)}0]}}'
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": ARGUMENTS}}
TOO_MANY_ARGUMENTS = f"holds more than {MAX_VALUES} JSON values; send fewer or shorter arrays"

# Functions, as bodies of megabytes: each of four workers imports this file, and one of them sends them.
BODIES: Sequence[tuple[str, Callable[[], Json], str]] = [
    (
        "/v1/chat/completions",
        lambda: {"messages": [*SAY, {"role": "assistant", "tool_calls": [CALL]}]},
        TOO_MANY_ARGUMENTS,
    ),
    ("/api/chat", lambda: {"messages": [*SAY, {"role": "assistant", "tool_calls": [CALL]}]}, TOO_MANY_ARGUMENTS),
    (
        "/v1/responses",
        lambda: {"input": [*SAY, {"type": "function_call", "call_id": "c1", "name": "f", "arguments": ARGUMENTS}]},
        TOO_MANY_ARGUMENTS,
    ),
    (
        "/v1/messages",
        lambda: {
            "max_tokens": 9,
            "messages": [
                *SAY,
                {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "f", "input": ARGUMENTS}]},
            ],
        },
        TOO_MANY_ARGUMENTS,
    ),
    ("/v1/chat/completions", lambda: {"messages": SAY, "tools": functions(MAX_TOOLS + 1)}, TOO_MANY_TOOLS),
    ("/v1/chat/completions", lambda: {"messages": messages(MAX_ELEMENTS + 1)}, f"messages {TOO_MANY_MESSAGES}"),
    ("/v1/responses", lambda: {"input": "Hi", "tools": flat(MAX_TOOLS + 1)}, TOO_MANY_TOOLS),
    ("/v1/responses", lambda: {"input": messages(MAX_ELEMENTS + 1)}, f"input {TOO_MANY_MESSAGES}"),
    (
        "/v1/responses",
        lambda: {
            "input": "Hi",
            "tools": [{"type": "namespace", "name": f"n{at}", "tools": flat(600)} for at in range(2)],
        },
        TOO_MANY_TOOLS,
    ),
    ("/v1/responses/input_tokens", lambda: {"input": "Hi", "tools": flat(MAX_TOOLS + 1)}, TOO_MANY_TOOLS),
    ("/v1/messages", lambda: {"max_tokens": 9, "messages": SAY, "tools": flat(MAX_TOOLS + 1)}, TOO_MANY_TOOLS),
    ("/v1/messages", lambda: {"max_tokens": 9, "messages": added(MAX_TOOLS + 1)}, TOO_MANY_TOOLS),
    (
        "/v1/messages",
        lambda: {"max_tokens": 9, "messages": messages(MAX_ELEMENTS + 1)},
        f"messages {TOO_MANY_MESSAGES}",
    ),
    ("/v1/messages/count_tokens", lambda: {"messages": SAY, "tools": flat(MAX_TOOLS + 1)}, TOO_MANY_TOOLS),
    ("/api/chat", lambda: {"messages": SAY, "tools": functions(MAX_TOOLS + 1)}, TOO_MANY_TOOLS),
    ("/api/chat", lambda: {"messages": messages(MAX_ELEMENTS + 1)}, f"messages {TOO_MANY_MESSAGES}"),
    *(
        (path, lambda: {"prompt": "Hi", "content": "Hi", "input": "Hi", "x": [0] * (MAX_VALUES + 2)}, TOO_MANY_VALUES)
        for path in (
            "/v1/completions", "/infill", "/api/generate", "/tokenize", "/detokenize", "/v1/embeddings", "/api/embed",
            "/v1/messages",
        )
    ),
]  # fmt: skip


@pytest.mark.parametrize(("path", "body", "told"), BODIES, ids=[f"{path}-{n}" for n, (path, *_) in enumerate(BODIES)])
@pytest.mark.grid(0.2)
async def test_what_is_too_much_is_refused_by_name_in_every_protocol(
    listening: Listening, path: str, body: Callable[[], Json], told: str
) -> None:
    service = ScriptedService(saying("Hi"))
    async with listening(service) as url, httpx2.AsyncClient(base_url=url, timeout=PATIENCE_S) as client:
        answer = await client.post(path, json={"model": "m", **body()})
    assert answer.status_code == 400, answer.text
    said = answer.json()["error"]
    assert told in (said if isinstance(said, str) else said["message"])
    assert service.requests == []


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", lambda: {"messages": SAY, "tools": functions(500)}),
        ("/v1/responses", lambda: {"input": "Hi", "tools": flat(500)}),
        ("/v1/messages", lambda: {"max_tokens": 9, "messages": SAY, "tools": flat(500)}),
        ("/api/chat", lambda: {"messages": messages(5_001), "tools": functions(500)}),
        ("/v1/completions", lambda: {"prompt": [7] * 131_072}),
        ("/v1/chat/completions", lambda: {"messages": [{"role": "user", "content": "[{,}]" * MAX_VALUES}]}),
    ],
    ids=["chat", "responses", "messages", "ollama", "tokens", "no JSON"],
)
async def test_what_real_clients_send_is_accepted(listening: Listening, path: str, body: Callable[[], Json]) -> None:
    service = ScriptedService(saying("Hi"))
    async with listening(service) as url, httpx2.AsyncClient(base_url=url, timeout=PATIENCE_S) as client:
        answer = await client.post(path, json={"model": "m", **body()})
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize(
    ("body", "status", "told"),
    [
        (b"x" * 4_000_001, 413, "the body is larger than 4000000 bytes"),
        (json.dumps({"params": [0] * (MAX_VALUES + 2)}).encode(), 400, TOO_MANY_VALUES),
    ],
    ids=["bytes", "values"],
)
async def test_what_an_mcp_client_sends_is_bounded_before_the_sdk_reads_it(
    listening: Listening, body: bytes, status: int, told: str
) -> None:
    async def no_tools(user: str | None) -> ConversationToolbox:
        raise AssertionError("it is asked for no tool")

    limits = Limits(max_body_bytes=4_000_000)
    async with (
        listening(ScriptedService(saying("Hi")), tools=no_tools, limits=limits) as url,
        httpx2.AsyncClient(base_url=url, timeout=PATIENCE_S) as client,
    ):
        answer = await client.post("/mcp", content=body, headers={"content-type": "application/json"})
        assert answer.status_code == status
        assert told in answer.json()["error"]["message"]


# ---- clients that go away from a question


class Counting(ScriptedService):
    """Counts for as long as it is let."""

    def __init__(self) -> None:
        super().__init__(saying("Hi"))
        self.begun, self.cancelled = asyncio.Event(), asyncio.Event()

    async def count(self, request: Request, *, endpoint: str) -> int:
        self.begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return 0


@pytest.mark.parametrize("path", ["/v1/messages/count_tokens", "/v1/responses/input_tokens"])
async def test_a_client_that_goes_away_cancels_what_it_has_asked(listening: Listening, path: str) -> None:
    service = Counting()
    content = json.dumps({"model": "m", "messages": SAY, "input": "Hi"}).encode()
    async with listening(service) as url:
        _, writer = await asyncio.open_connection("127.0.0.1", urlsplit(url).port)
        writer.write(
            b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s"
            % (path.encode(), len(content), content)
        )
        await asyncio.wait_for(service.begun.wait(), PATIENCE_S)
        writer.transport.abort()
        await asyncio.wait_for(service.cancelled.wait(), PATIENCE_S)


# ---- the others


class Rendering(ScriptedService):
    """Counts with a real back end, whose template waits at a clock until it is let, if that is in a thread."""

    def __init__(self) -> None:
        super().__init__(saying("Hi"))
        self.asked, self.go_on = threading.Event(), threading.Event()
        template = "{{ strftime_now('%Y') }}{% for m in messages %}{{ m.content }}{% endfor %}"
        vocabulary = FakeVocabulary()
        self.engine = InProcessEngine(FakeRuntime(say(vocabulary), frozenset({0}), n_ctx=10_000_000))
        self.backend = LocalBackend(
            self.engine, vocabulary, template=Template(template, clock=self.clock), dialect=detect(template), model="m"
        )

    def clock(self) -> datetime:
        if threading.current_thread() is not threading.main_thread():
            self.asked.set()
            assert self.go_on.wait(PATIENCE_S)
        return datetime(2026, 1, 1)

    async def count(self, request: Request, *, endpoint: str) -> int:
        return await self.backend.count(request)


async def test_health_is_reported_while_a_large_request_is_rendered(listening: Listening) -> None:
    service = Rendering()
    try:
        async with listening(service) as url, httpx2.AsyncClient(base_url=url, timeout=PATIENCE_S) as client:
            body = {"model": "m", "messages": SAY, "tools": flat(500)}
            counting = asyncio.create_task(client.post("/v1/messages/count_tokens", json=body))
            assert await asyncio.to_thread(service.asked.wait, PATIENCE_S)
            for _ in range(20):
                assert (await client.get("/health")).status_code == 200
            assert not counting.done()
            service.go_on.set()
            assert (await counting).json()["input_tokens"] > 0
    finally:
        service.go_on.set()
        await asyncio.to_thread(service.engine.close)
