"""The paths over a real port: shapes of answers and errors, keys, hosts, broken bodies."""

import asyncio
import gzip
import json
import logging
import re
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import examples
from tests.in_process import client_of
from tests.own_server import Listening
from tests.scripted_service import ScriptedService, playing, saying

from shepherd.core import (
    BadReply,
    ContextFull,
    ContextTooSmall,
    EngineDown,
    EngineError,
    Event,
    Evicted,
    Finished,
    Message,
    Progress,
    RateLimited,
    Request,
    Sampling,
    Started,
    TextDelta,
    Usage,
)
from shepherd.core.status import Health
from shepherd.server.app import Limits, create_app
from shepherd.server.http.path import plain_path

CHAT = "/v1/chat/completions"
BODY: dict[str, Any] = {"model": "gpt-4", "messages": [{"role": "user", "content": "Hello"}]}


@pytest.fixture
async def client() -> AsyncIterator[httpx2.AsyncClient]:
    async with client_of(ScriptedService(saying("Hi", " there"))) as client:
        yield client


async def test_the_name_of_a_model_is_neither_a_header_nor_a_label(client: httpx2.AsyncClient) -> None:
    name = "long" * 10_000
    answer = await client.post("/api/generate", json={"model": name, "stream": False})  # Ollama's way to load a model
    assert (answer.status_code, answer.json()["model"]) == (200, name)
    assert answer.headers["x-shepherd-backend"] == "-"
    assert "longlong" not in (await client.get("/metrics")).text


async def test_a_conversation_is_answered(client: httpx2.AsyncClient) -> None:
    answer = await client.post(CHAT, json=BODY)
    body = answer.json()
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-shepherd-backend"] == "fake:fake"
    assert re.fullmatch(r"chatcmpl-[0-9a-f]{24}", body["id"])
    assert body["model"] == "gpt-4"
    assert body["choices"][0]["message"] == {"role": "assistant", "content": "Hi there", "refusal": None}
    assert body["usage"]["total_tokens"] == 15


async def test_a_stream_is_server_sent_events_that_no_proxy_collects(client: httpx2.AsyncClient) -> None:
    answer = await client.post("/chat/completions", json={**BODY, "stream": True})
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert answer.headers["cache-control"] == "no-cache"
    assert answer.headers["x-accel-buffering"] == "no"
    lines = [line for line in answer.text.split("\n") if line]
    assert lines[-1] == "data: [DONE]"
    deltas = [json.loads(line.removeprefix("data: "))["choices"][0]["delta"] for line in lines[:-1]]
    assert "".join(delta.get("content") or "" for delta in deltas) == "Hi there"


async def test_the_service_gets_the_request_and_the_canonical_endpoint() -> None:
    service = ScriptedService(saying("Hi"))
    async with client_of(service) as client:
        await client.post("/chat/completions", json={**BODY, "temperature": 0.5, "max_tokens": 9, "stop": "x"})
        await client.post("/chat/completions", json=BODY)
    asked = Request("gpt-4", (Message.user("Hello"),), sampling=Sampling(temperature=0.5), max_tokens=9, stop=("x",))
    assert service.requests == [asked, Request("gpt-4", (Message.user("Hello"),))]
    assert service.endpoints == [CHAT, CHAT]


@pytest.mark.parametrize("stream", [False, True])
async def test_evicted_messages_are_in_a_header_and_in_the_log(stream: bool, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="shepherd.server")
    events = (Started("m"), Evicted(2, 99), Progress(1, 2), Evicted(1, 9), TextDelta("a"), Finished("end"))
    async with client_of(ScriptedService(playing(*events))) as client:
        answer = await client.post(CHAT, json={**BODY, "stream": stream})
    assert answer.headers["x-shepherd-evicted"] == "3"
    assert " evicted=3 " in caplog.text


@pytest.mark.parametrize(
    ("path", "body", "details"),
    [
        (CHAT, BODY, "prompt_tokens_details"),
        ("/v1/responses", {"model": "gpt-4", "input": "Hello"}, "input_tokens_details"),
        ("/v1/messages", {**BODY, "max_tokens": 9}, ""),
    ],
)
async def test_recalled_tokens_are_in_a_header_in_the_usage_and_in_the_log(
    path: str, body: dict[str, Any], details: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="shepherd.server")
    usage = Usage(7, recalled=38)
    async with client_of(ScriptedService(playing(Started("m", usage=usage), Finished("end", usage)))) as client:
        answer = await client.post(path, json=body)
        caches = (await client.get("/v1/caches")).json()
    assert answer.headers["x-shepherd-recalled"] == "38"
    assert " recalled=38 " in caplog.text
    assert caches["server"]["recalled_tokens"] == 38
    assert not details or answer.json()["usage"][details]["recalled_tokens"] == 38


@pytest.mark.parametrize("stream", [False, True])
async def test_a_changed_system_prompt_that_a_reminder_tells_of_is_in_a_header(stream: bool) -> None:
    for n_changed in (0, 3):
        events = (Started("m", n_changed=n_changed), TextDelta("a"), Finished("end"))
        async with client_of(ScriptedService(playing(*events))) as client:
            answer = await client.post(CHAT, json={**BODY, "stream": stream})
        assert answer.headers.get("x-shepherd-system-changes") == ("3" if n_changed else None)


@pytest.mark.parametrize("stream", [False, True])
async def test_what_an_answer_is_not_held_to_is_in_a_header(stream: bool) -> None:
    many = tuple(f"format.properties.p{n}.format" for n in range(500))
    for left_out, expected in (
        ((), None),
        (("format.properties.é, è.not",), "format.properties.%C3%A9%2C %C3%A8.not"),
        (("format.a\r\nx-own: 1", "b[0]"), "format.a%0D%0Ax-own: 1, b[0]"),
        (many, None),
    ):
        events = (Started("m", left_out=left_out), TextDelta("a"), Finished("end"))
        async with client_of(ScriptedService(playing(*events))) as client:
            answer = await client.post(CHAT, json={**BODY, "stream": stream})
        found = answer.headers.get("x-shepherd-left-out")
        if left_out is many:
            assert found is not None
            listed, _, more = found.rpartition(", and ")
            assert (len(found) < 2100, listed.split(", ")[0]) == (True, many[0])
            assert more == f"{len(many) - len(listed.split(', '))} more"
        else:
            assert found == expected


async def test_without_memories_nothing_is_said_of_them(client: httpx2.AsyncClient) -> None:
    answer = await client.post(CHAT, json=BODY)
    assert "x-shepherd-recalled" not in answer.headers
    assert "recalled" not in answer.text


async def test_messages_evicted_after_the_head_of_a_stream_are_in_the_stream_and_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, logger="shepherd.server")

    async def script(request: Request) -> AsyncGenerator[Event, None]:
        yield Started("m")
        await asyncio.sleep(0)
        yield TextDelta("a")
        yield Evicted(4, 50)
        yield TextDelta("b")
        yield Finished("end")

    async with client_of(ScriptedService(script)) as client:
        answer = await client.post(CHAT, json={**BODY, "stream": True})
    assert "x-shepherd-evicted" not in answer.headers
    assert answer.text.count("\n: evicted 4 messages, 50 tokens\n") == 1
    assert " evicted=4 " in caplog.text


async def test_without_an_eviction_there_is_no_header(client: httpx2.AsyncClient) -> None:
    assert "x-shepherd-evicted" not in (await client.post(CHAT, json=BODY)).headers


# ---- what is told without generating


async def test_models_are_listed_with_their_context(client: httpx2.AsyncClient) -> None:
    card = {
        "id": "fake",
        "object": "model",
        "created": 1_700_000_000,
        "owned_by": "shepherd",
        "max_model_len": 4096,
        "context_length": 4096,
        "meta": {"n_ctx": 4096, "n_cells": 4096, "size": 0},
        "aliases": ["fake"],
        "tags": [],
        "capabilities": ["completion"],
    }
    told = (await client.get("/v1/models")).json()  # what else is told, and to whom: test_models.py
    assert (told["object"], told["data"]) == ("list", [card])
    assert (await client.get("/v1/models/fake")).json() == card


@pytest.mark.parametrize("name", ["nope", "org/nope"])
async def test_an_unknown_model_is_a_404_that_names_the_known_ones(client: httpx2.AsyncClient, name: str) -> None:
    answer = await client.get(f"/v1/models/{name}")
    assert answer.status_code == 404
    assert answer.json() == {
        "error": {
            "message": f"model {name!r} does not exist; known: fake",
            "type": "invalid_request_error",
            "param": "model",
            "code": "model_not_found",
        }
    }


@pytest.mark.parametrize("path", ["/health", "/v1/health"])
async def test_health_reports_backend_model_and_caches(client: httpx2.AsyncClient, path: str) -> None:
    answer = await client.get(path)
    assert answer.status_code == 200
    assert answer.json() == {
        "status": "ok",
        "backend_connected": True,
        "backend": "llamacpp",
        "model": "fake.gguf",
        "caches": {"main": {"n_ctx": 4096, "used": 17, "model": "fake"}},
    }


async def test_while_the_model_is_loading_everything_says_so() -> None:
    loading = Health("loading", "llamacpp", "fake.gguf", detail="the model is still loading")
    service = ScriptedService(playing(EngineDown("the model is still loading; try again")), health=loading, stats={})
    async with client_of(service) as client:
        health = await client.get("/health")
        assert (health.status_code, health.json()["status"]) == (503, "loading")
        assert health.json()["detail"] == "the model is still loading"
        for answer in (
            await client.post(CHAT, json=BODY),
            await client.get("/v1/models"),
            await client.get("/v1/models/a"),
            await client.get("/v1/caches"),
            await client.delete("/v1/caches/main"),
        ):
            assert answer.status_code == 503
            assert answer.headers["retry-after"] == "5"
            assert answer.json()["error"]["type"] == "server_error"


async def test_the_root_names_the_endpoints(client: httpx2.AsyncClient) -> None:
    endpoints = (await client.get("/")).json()["endpoints"]
    assert {"POST /v1/chat/completions", "GET /v1/caches", "DELETE /v1/caches/{name}", "GET /metrics"} <= {*endpoints}
    head = await client.head("/")
    assert (head.status_code, head.content) == (200, b"")


async def test_the_page_of_the_docs_needs_no_script_and_no_other_host(client: httpx2.AsyncClient) -> None:
    answer = await client.get("/docs")
    page = answer.text
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    assert "<script" not in page
    assert "://" not in page
    paths = (await client.get("/openapi.json")).json()["paths"]
    for path, operations in paths.items():
        for method in operations:
            assert f"<code>{method.upper()} {path}</code>" in page
    assert "<code>messages</code> (required)<td>body<td>array" in page


async def test_the_document_declares_errors_and_requires_only_what_a_body_has(client: httpx2.AsyncClient) -> None:
    for path, operations in (await client.get("/openapi.json")).json()["paths"].items():
        for operation in operations.values():
            assert {"4XX", "5XX"} <= operation["responses"].keys(), path
            assert "422" not in operation["responses"], path
            body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
            assert {*body.get("required", ())} <= body.get("properties", {}).keys(), path


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("POST", "/v1/models", "GET, HEAD"),
        ("POST", "/v1/memory/facts/color", "DELETE, GET, HEAD, PUT"),
        ("PUT", "/v1/responses/resp_1", "DELETE, GET"),
        ("GET", "/api/delete", "DELETE"),
        ("GET", CHAT, "POST"),
    ],
)
async def test_a_wrong_method_is_answered_with_all_that_are_right(
    client: httpx2.AsyncClient, method: str, path: str, allowed: str
) -> None:
    answer = await client.request(method, path)
    assert (answer.status_code, answer.headers.get_list("allow")) == (405, [allowed])
    assert f"but {allowed};" in answer.text


async def test_the_telemetry_of_claude_code_is_accepted_and_dropped(client: httpx2.AsyncClient) -> None:
    for events in ([], [{"event_type": "x" * 200_000}]):
        answer = await client.post("/api/event_logging/batch", json={"events": events})
        assert (answer.status_code, answer.json()) == (200, {})


async def test_the_docs_describe_the_body_of_a_request(client: httpx2.AsyncClient) -> None:
    assert (await client.get("/docs")).status_code == 200
    paths = (await client.get("/openapi.json")).json()["paths"]
    schema = paths[CHAT]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert {"messages", "stream", "temperature"} <= schema["properties"].keys()
    assert "/chat/completions" not in paths


async def test_anthropics_client_reads_its_own_errors_on_paths_that_are_not_there(client: httpx2.AsyncClient) -> None:
    answer = await client.get("/v1/files", headers={"anthropic-version": "2023-06-01"})
    assert (answer.status_code, answer.json()["error"]["type"]) == (404, "not_found_error")
    assert answer.json()["request_id"] == answer.headers["request-id"]


@pytest.mark.parametrize(
    ("method", "path", "status", "said"),
    [
        ("GET", "/nope", 404, "this server has no path /nope"),
        ("POST", "/v1/v1/chat/completions", 404, "already ends in /v1"),
        ("GET", CHAT, 405, "does not accept the method GET"),
        ("DELETE", "/v1/models", 405, "does not accept the method DELETE"),
        ("DELETE", "/v1/caches", 405, "does not accept the method DELETE"),
        ("POST", "/v1/caches", 405, "does not accept the method POST"),
        ("GET", "/v1/caches/main", 405, "does not accept the method GET"),
        ("POST", "/metrics", 405, "does not accept the method POST"),
        ("POST", "/health", 405, "does not accept the method POST"),
    ],
)
async def test_a_wrong_path_or_method_is_an_error_in_the_usual_shape(
    client: httpx2.AsyncClient, method: str, path: str, status: int, said: str
) -> None:
    answer = await client.request(method, path)
    error = answer.json()["error"]
    assert answer.status_code == status
    assert said in error["message"]
    assert (error["type"], error["code"]) == ("invalid_request_error", str(status))
    assert ("allow" in answer.headers) == (status == 405)


@pytest.mark.parametrize(
    ("written", "plain"),
    [
        ("/v1/models", "/v1/models"),
        ("//v1/models", "/v1/models"),
        ("/v1//chat/completions/", "/v1/chat/completions"),
        ("///", "/"),
        ("/", "/"),
        ("/v1/models/http://a//b/", "/v1/models/http://a/b"),
    ],
)
def test_slashes_that_mean_nothing_are_no_part_of_a_path(written: str, plain: str) -> None:
    assert plain_path(written) == plain


@pytest.mark.parametrize("path", ["//v1/chat/completions", "/v1//chat/completions", "/v1/chat/completions/"])
async def test_base_urls_that_end_in_a_slash_lead_to_the_same_paths(client: httpx2.AsyncClient, path: str) -> None:
    answer = await client.post(f"http://localhost{path}", json=BODY)
    assert answer.status_code == 200, answer.text
    assert (await client.get("/health/")).json() == (await client.get("/health")).json()


async def test_every_answer_has_a_request_id(client: httpx2.AsyncClient) -> None:
    answers = [
        await client.post(CHAT, json=BODY),
        await client.post(CHAT, json={**BODY, "stream": True}),
        await client.post(CHAT, content=b"{"),
        await client.get("/nope"),
        await client.get("/health"),
        await client.options(CHAT, headers={"origin": "http://localhost", "access-control-request-method": "POST"}),
    ]
    ids = [answer.headers["x-request-id"] for answer in answers]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch("req_[0-9a-f]{24}", id) for id in ids)


@pytest.mark.parametrize(("given", "kept"), [("abc-1.2:3", True), ("a b", False), ("x" * 129, False), ("é", False)])
async def test_a_sane_request_id_of_the_client_is_kept(client: httpx2.AsyncClient, given: str, kept: bool) -> None:
    answer = await client.get("/health", headers=[(b"x-request-id", given.encode())])
    assert (answer.headers["x-request-id"] == given) == kept


# ---- failures


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (ContextFull(needed=5000, limit=4096), 400, "context_length_exceeded"),
        (RateLimited("slow down", backend="b", retry_after_s=1.2), 429, "429"),
        (BadReply("nonsense", backend="b"), 502, "502"),
        (EngineError("the engine broke"), 500, "500"),
    ],
)
async def test_a_failure_before_the_first_event_is_a_status(
    error: Exception, status: int, code: str, stream: bool
) -> None:
    async with client_of(ScriptedService(playing(error))) as client:
        answer = await client.post(CHAT, json={**BODY, "stream": stream})
    assert answer.status_code == status
    assert answer.json()["error"]["code"] == code
    assert answer.json()["error"]["message"] == str(error)
    assert answer.headers.get("retry-after") == ("2" if status == 429 else None)


OPENAIS, LLAMAS = ("invalid_request_error", "context_length_exceeded"), ("exceed_context_size_error", 400)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("path", "body", "shape"),
    [
        ("/v1/chat/completions", BODY, OPENAIS),
        ("/v1/completions", {"prompt": "a"}, OPENAIS),
        ("/v1/responses", {"input": "a"}, OPENAIS),
        ("/responses", {"input": "a"}, OPENAIS),
        ("/chat/completions", BODY, LLAMAS),
        ("/completion", {"prompt": "a"}, LLAMAS),
        ("/completions", {"prompt": "a"}, LLAMAS),
        ("/infill", {"input_prefix": "a", "input_suffix": "b"}, LLAMAS),
    ],
)
async def test_a_full_context_has_the_type_and_code_of_its_path(
    path: str, body: dict[str, Any], shape: tuple[str, object], stream: bool
) -> None:
    async with client_of(ScriptedService(playing(ContextFull(needed=5000, limit=4096, n_prompt=4999)))) as client:
        answer = await client.post(path, json={"model": "m", **body, "stream": stream})
    error = answer.json()["error"]
    assert (answer.status_code, (error["type"], error["code"])) == (400, shape)
    assert (error["n_prompt_tokens"], error["n_ctx"]) == (4999, 4096)


SHORTEN_AND_TRY_AGAIN = (
    "context_length", "exceed", "too long", "too large", "context window", "context length", "context size",
    "maximum", "token limit", "too many tokens", "reduce the length", "configured context",
)  # fmt: skip
"""By these words agents and libraries know that a shorter conversation may fit; most then sum it up and ask again."""


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", BODY),
        ("/v1/responses", {"input": "a"}),
        ("/v1/messages", {**BODY, "max_tokens": 9}),
        ("/api/chat", BODY),
        ("/api/generate", {"prompt": "a"}),
        ("/chat/completions", BODY),
        ("/completion", {"prompt": "a"}),
    ],
)
async def test_a_context_too_small_for_the_tools_alone_makes_no_client_try_again(
    path: str, body: dict[str, Any], stream: bool
) -> None:
    error = ContextTooSmall("the system prompt and the tools", 14_240, limit=12_288, reserve=256, window=1_048_576)
    async with client_of(ScriptedService(playing(error))) as client:
        answer = await client.post(path, json={"model": "m", **body, "stream": stream})
    assert answer.status_code == 400, "413, 429 and 5xx are asked again"
    assert "14,240 tokens" in answer.text
    assert "--context-size 32k" in answer.text
    assert [word for word in SHORTEN_AND_TRY_AGAIN if word in answer.text.lower()] == []


async def test_the_error_of_a_full_context_has_both_token_counts() -> None:
    async with client_of(ScriptedService(playing(ContextFull(needed=5000, limit=4096)))) as client:
        message = (await client.post(CHAT, json=BODY)).json()["error"]["message"]
    assert "5000" in message
    assert "4096" in message
    assert "context window" in message


async def test_a_failure_in_the_middle_of_a_stream_is_an_error_event() -> None:
    service = ScriptedService(playing(Started("m"), TextDelta("a"), EngineError("the engine broke")))
    async with client_of(service) as client:
        answer = await client.post(CHAT, json={**BODY, "stream": True})
    assert answer.status_code == 200
    last = answer.text.rstrip("\n").split("\n\n")[-1]
    assert json.loads(last.removeprefix("data: "))["error"]["message"] == "the engine broke"
    assert "[DONE]" not in answer.text


async def test_a_failure_in_the_middle_of_a_whole_reply_is_a_status() -> None:
    service = ScriptedService(playing(Started("m"), TextDelta("a"), EngineError("the engine broke")))
    async with client_of(service) as client:
        assert (await client.post(CHAT, json=BODY)).status_code == 500


@pytest.mark.parametrize("script", [playing(Started("m"), TextDelta("a")), playing()])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_stream_that_ends_without_an_end_is_a_failure(script: Any, stream: bool) -> None:
    async with client_of(ScriptedService(script)) as client:
        answer = await client.post(CHAT, json={**BODY, "stream": stream})
    assert '"type":"server_error"' in answer.text.replace(" ", "")


async def test_an_unexpected_exception_is_in_the_log_and_not_in_the_answer(caplog: pytest.LogCaptureFixture) -> None:
    async with client_of(ScriptedService(playing(KeyError("secret")))) as client:
        answer = await client.post(CHAT, json=BODY)
    assert answer.status_code == 500
    assert "secret" not in answer.text
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert record.exc_info is not None
    assert "secret" in repr(record.exc_info[1])


async def test_a_bug_outside_of_an_exchange_is_a_500_in_the_usual_shape() -> None:
    class Broken(ScriptedService):
        def health(self) -> Health:
            raise KeyError("secret")

    transport = httpx2.ASGITransport(create_app(Broken(saying("a"))), raise_app_exceptions=False)
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
        answer = await client.get("/health")
    assert answer.status_code == 500
    assert answer.json()["error"]["type"] == "server_error"
    assert answer.headers["x-request-id"].startswith("req_")
    assert "secret" not in answer.text


@pytest.mark.parametrize(
    ("seconds", "header"), [(1.2, "2"), (0, "0"), (-3.0, "0"), (None, None), (float("inf"), None), (float("nan"), None)]
)
async def test_a_full_queue_is_a_429_that_says_when_to_come_back(seconds: float | None, header: str | None) -> None:
    error = RateLimited("64 requests are waiting for cache 'main'; try later", backend="main", retry_after_s=seconds)
    async with client_of(ScriptedService(playing(error))) as client:
        answer = await client.post(CHAT, json=BODY)
    assert answer.status_code == 429
    assert answer.headers.get("retry-after") == header
    assert answer.json()["error"] == {
        "message": "64 requests are waiting for cache 'main'; try later",
        "type": "rate_limit_error",
        "param": None,
        "code": "429",
    }


# ---- broken bodies


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "the body is empty"),
        (b"{", "line 1, column 2"),
        (b'{"messages": 1}', "messages must be an array"),
        (b'{"model": "m"}', "messages is missing"),
        (b"\xff", "UTF-8"),
        (b"[" * 200_000, "nested deeper"),
        (b'{"messages": [{"role": "wizard", "content": "x"}]}', "messages[0].role"),
    ],
)
async def test_a_broken_body_is_a_400_that_says_what_is_wrong(
    client: httpx2.AsyncClient, body: bytes, said: str
) -> None:
    answer = await client.post(CHAT, content=body)
    assert answer.status_code == 400
    assert said in answer.json()["error"]["message"]
    assert answer.json()["error"]["type"] == "invalid_request_error"


async def test_half_an_emoji_is_answered() -> None:
    service = ScriptedService(saying("Hi \ud83d"))
    async with client_of(service) as client:
        answer = await client.post(CHAT, content=rb'{"messages": [{"role": "user", "content": "\ud83d"}]}')
    assert answer.status_code == 200
    assert service.requests[0].messages == (Message.user("\ufffd"),)


async def test_a_compressed_body_is_read_and_another_encoding_is_refused_with_those_that_are(
    client: httpx2.AsyncClient,
) -> None:
    body = gzip.compress(b'{"messages": [{"role": "user", "content": "Hi"}]}')
    assert (await client.post(CHAT, content=body, headers={"content-encoding": "gzip"})).status_code == 200
    answer = await client.post(CHAT, content=b"\x28\xb5", headers={"content-encoding": "br"})
    assert (answer.status_code, answer.headers["accept-encoding"]) == (415, "zstd, gzip, deflate")
    assert "'br'" in answer.json()["error"]["message"]


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=5), children, max_size=3),
)
FIELDS = st.sampled_from(["messages", "tools", "tool_choice", "stop", "stream", "model", "temperature", "logit_bias"])


@settings(max_examples=examples(60), deadline=None)
@given(st.binary(max_size=60) | st.dictionaries(FIELDS, ANY_JSON).map(lambda body: json.dumps(body).encode()))
async def test_no_body_is_ever_a_500(body: bytes) -> None:
    async with client_of(ScriptedService(saying("Hi"))) as client:
        answer = await client.post(CHAT, content=body)
    assert answer.status_code in (200, 400)
    assert answer.status_code == 200 or answer.json()["error"]["message"]


async def test_twenty_megabytes_are_answered_and_the_server_continues(listening: Listening) -> None:
    service = ScriptedService(saying("Hi"))
    async with listening(service) as url, httpx2.AsyncClient(base_url=url, timeout=60) as client:
        text = "é" * 10_000_000
        answer = await client.post(CHAT, json={"messages": [{"role": "user", "content": text}]})
        assert answer.status_code == 200
        assert service.requests[0].messages == (Message.user(text),)
        broken = await client.post(CHAT, content=b'{"messages": [' + b"1," * 10_000_000)
        assert broken.status_code == 400
        assert (await client.post(CHAT, json=BODY)).status_code == 200


async def test_a_body_above_the_limit_is_refused_and_the_rest_is_not_kept(listening: Listening) -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(64):
            yield b" " * 1_000_000

    limits = Limits(max_body_bytes=1_000_000)
    service = ScriptedService(saying("Hi"))
    async with listening(service, limits=limits) as url, httpx2.AsyncClient(base_url=url, timeout=60) as client:
        for content in (b" " * 2_000_000, endless()):
            answer = await client.post(CHAT, content=content)
            assert answer.status_code == 413
            assert "1000000 bytes" in answer.json()["error"]["message"]
        assert (await client.post(CHAT, json=BODY)).status_code == 200


# ---- the log


async def test_each_request_is_one_line_without_a_word_of_what_was_said(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="shepherd.server")
    events: list[Event] = [
        Started("m", "local:m"),
        TextDelta("answer-text"),
        TextDelta("more"),
        Finished("length", Usage(3, 4, 0, 9)),
    ]
    body = {"model": "a b\n", "messages": [{"role": "user", "content": "prompt-text"}]}
    async with client_of(ScriptedService(playing(*events))) as client:
        await client.post(CHAT, json=body, headers={"x-request-id": "id-1"})
        await client.post(CHAT, json={**body, "temperature": "prompt-text"}, headers={"x-request-id": "id-2"})
    lines = [record.getMessage() for record in caplog.records if record.name == "shepherd.server"]
    assert len(lines) == 2
    assert re.fullmatch(
        r"id-1 openai-chat model=a\?b\? backend=local:m cache=- upstream=- in=7 cached=4 recalled=0 out=9 drafted=0 "
        r"accepted=0 evicted=0 first_ms=[\d.]+ tokens_per_s=[\d.]+ queue_ms=[\d.]+ received=\d+ sent=\d+ key=- "
        r"session=- status=200 stop=length",
        lines[0],
    )
    assert re.fullmatch(
        r"id-2 openai-chat model=- backend=- cache=- upstream=- in=0 cached=0 recalled=0 out=0 drafted=0 accepted=0 "
        r"evicted=0 first_ms=- tokens_per_s=- queue_ms=- received=\d+ sent=\d+ key=- session=- status=400 "
        r"stop=invalid_request field=temperature",
        lines[1],
    )
    assert "-text" not in caplog.text


async def test_the_document_describes_a_row_by_its_table_or_by_its_handler(client: httpx2.AsyncClient) -> None:
    document = (await client.get("/openapi.json")).json()
    assert (document["openapi"], document["info"]["title"], {*document}) == (
        "3.1.0", "Shepherd", {"openapi", "info", "paths"},
    )  # fmt: skip
    clear = document["paths"]["/v1/caches/{name}"]["delete"]
    del clear["responses"]["4XX"], clear["responses"]["5XX"]
    assert clear == {
        "summary": "Clear",
        "description": "Empty a cache; running answers continue.",
        "operationId": "clear_v1_caches__name__delete",
        "parameters": [{"name": "name", "in": "path", "required": True, "schema": {"type": "string", "title": "Name"}}],
        "responses": {"200": {"description": "Successful Response", "content": {"application/json": {"schema": {}}}}},
    }
    chat = document["paths"][CHAT]["post"]
    assert (chat["operationId"], chat["requestBody"]["required"]) == ("openai_chat_v1_chat_completions_post", True)
    assert chat["responses"]["200"] == {"description": "Successful Response"}
    fact = document["paths"]["/v1/memory/facts/{key}"]
    assert [*fact] == ["get", "put", "delete"]
    assert (fact["get"]["operationId"], fact["get"]["tags"]) == ("get_v1_memory_facts_key_path", ["memory"])
    ids = [each["operationId"] for operations in document["paths"].values() for each in operations.values()]
    assert len({*ids}) == len(ids)
    seed = chat["requestBody"]["content"]["application/json"]["schema"]["properties"]["seed"]
    assert seed["maximum"] == 2**64 - 1, "exactly: 2**64 is refused"
