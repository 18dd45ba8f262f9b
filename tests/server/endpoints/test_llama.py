"""What clients of llama-server ask our server for: completions, its properties, its slots, a rendered prompt."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from tests.scripted_service import ScriptedService, playing, saying

from shepherd.core import Event, Finished, Progress, Started, TextDelta, Usage
from shepherd.core.status import ModelCard
from shepherd.engine.stats import CacheStats, SequenceStats
from shepherd.server.app import create_app

USAGE = Usage(input=7, cache_read=3, output=5)
CHAT: dict[str, Any] = {"model": "fake", "messages": [{"role": "user", "content": "Hi"}]}


@pytest.fixture
def service() -> ScriptedService:
    made = ScriptedService(saying("Hi", " there"))
    made.cards = (ModelCard("fake", 4096, 1, template="{{ messages }}"), ModelCard("bge", 512, 1, kind="embedding"))
    return made


def connected(service: ScriptedService, **options: Any) -> httpx2.AsyncClient:
    transport = httpx2.ASGITransport(create_app(service, **options))
    return httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1")


@pytest.fixture
async def client(service: ScriptedService) -> AsyncIterator[httpx2.AsyncClient]:
    async with connected(service) as made:
        yield made


def events_of(text: str) -> list[Any]:
    return [json.loads(line[6:]) for line in text.split("\n\n") if line.startswith("data: {")]


@pytest.mark.parametrize("path", ["/completion", "/completions"])
async def test_continue_gets_its_completion(client: httpx2.AsyncClient, service: ScriptedService, path: str) -> None:
    body: Any = {"prompt": "<|im_start|>user", "n_predict": 5, "stop": ["x"], "cache_prompt": True}
    whole = (await client.post(path, json=body)).json()
    assert (whole["content"], whole["stop"], whole["stop_type"]) == ("Hi there", True, "eos")
    assert whole["timings"]["predicted_per_second"] > 0
    assert whole["timings"]["prompt_n"] == 7
    (asked,) = service.requests
    assert asked.completion is not None
    assert asked.completion.special
    chunks = events_of((await client.post(path, json={**body, "stream": True})).text)
    assert [chunk["content"] for chunk in chunks] == ["Hi", " there", ""]
    assert [chunk["stop"] for chunk in chunks] == [False, False, True]
    assert service.endpoints == ["/completion"] * 2
    refused = await client.post(path, json={"prompt": 5})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "prompt")


@pytest.mark.parametrize("include_usage", [False, True])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
async def test_openais_answers_say_how_fast_they_were(
    client: httpx2.AsyncClient, path: str, include_usage: bool
) -> None:
    body = {**CHAT, "prompt": "Hi"}
    whole = (await client.post(path, json=body)).json()
    assert whole["timings"]["predicted_per_second"] > 0
    assert whole["system_fingerprint"].startswith("b")
    asked = {**body, "stream": True, "stream_options": {"include_usage": include_usage}}
    *chunks, last = events_of((await client.post(path, json=asked)).text)
    assert not any("timings" in chunk for chunk in chunks)
    assert (last["timings"]["predicted_n"], last["timings"]["cache_n"]) == (5, 3)
    assert last["timings"]["predicted_per_second"] > 0
    assert {chunk["system_fingerprint"] for chunk in (*chunks, last)} == {whole["system_fingerprint"]}


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/completion"])
async def test_a_long_prompt_is_reported_as_it_is_read(path: str) -> None:
    usage = Usage(input=8, cache_read=2)
    events: list[Event] = [Started("m", usage=usage), Progress(4, 8), TextDelta("x"), Finished("end", usage)]
    async with connected(ScriptedService(playing(*events))) as client:
        for wanted in (True, False):
            body = {**CHAT, "prompt": "Hi", "stream": True, "return_progress": wanted}
            chunks = events_of((await client.post(path, json=body)).text)
            found = [chunk["prompt_progress"]["processed"] for chunk in chunks if "prompt_progress" in chunk]
            assert found == ([2, 6, 10] if wanted else [])


async def test_the_context_is_where_clients_look(client: httpx2.AsyncClient, service: ScriptedService) -> None:
    props = (await client.get("/props")).json()
    assert props["default_generation_settings"]["n_ctx"] == 4096
    assert (props["model_alias"], props["chat_template"]) == ("fake", "{{ messages }}")
    assert (await client.get("/props?model=fake")).json() == props
    assert (await client.get("/props?model=bge")).status_code == 404
    model = (await client.get("/v1/models")).json()["data"][0]
    assert (model["context_length"], model["meta"]["n_ctx"]) == (4096, 4096)


async def test_slots_are_the_conversations_in_the_caches(client: httpx2.AsyncClient, service: ScriptedService) -> None:
    assert (await client.get("/slots")).json() == []
    busy = SequenceStats(0, "generate", "s", 40, 0, 10, 30, 5, 9.0, 0.0)
    service.caches["main"] = CacheStats(4096, sequences=(busy,))
    assert (await client.get("/slots")).json() == [
        {
            "id": 0,
            "cache": "main",
            "n_ctx": 4096,
            "speculative": False,
            "is_processing": True,
            "n_prompt_tokens": 40,
            "n_prompt_tokens_cache": 10,
            "next_token": {"n_decoded": 5, "has_next_token": True},
        }
    ]
    assert (await client.post("/slots/0?action=erase")).status_code in (404, 405)


async def test_a_conversation_is_rendered_and_counted(client: httpx2.AsyncClient) -> None:
    assert (await client.post("/apply-template", json=CHAT)).json() == {"prompt": "<user>Hi<assistant>"}
    refused = await client.post("/apply-template", json={**CHAT, "add_generation_prompt": False})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "add_generation_prompt")
    assert (await client.post("/v1/chat/completions/input_tokens", json=CHAT)).json() == {"input_tokens": 2}


@pytest.mark.parametrize("origin", ["https://chat.example", "https://other.example"])
async def test_the_operator_names_the_web_pages_that_may_use_it(service: ScriptedService, origin: str) -> None:
    asked = {"origin": origin, "access-control-request-method": "POST"}
    async with connected(service, origins=("https://chat.example",)) as client:
        preflight = await client.options("/completion", headers=asked)
        answer = await client.post("/completion", json={"prompt": "a"}, headers={"origin": origin})
    allowed = origin if origin == "https://chat.example" else None
    assert preflight.headers.get("access-control-allow-origin") == allowed
    assert answer.headers.get("access-control-allow-origin") == allowed
    assert answer.status_code == (200 if allowed else 403)


async def test_an_anthropic_body_without_messages_stays_a_400(client: httpx2.AsyncClient) -> None:
    answer = await client.post("/v1/messages", json={"model": "m", "max_tokens": 5, "messages": []})
    assert (answer.status_code, answer.json()["error"]["type"]) == (400, "invalid_request_error")
