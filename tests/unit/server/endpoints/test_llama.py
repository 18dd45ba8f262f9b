"""What clients of llama-server ask our server for: completions, its properties, its slots, a rendered prompt."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import httpx2
import pytest
from tests.in_process import client_of
from tests.scripted_service import ScriptedService, playing, saying

from shepherd.core import Event, Finished, Progress, ReadPrompt, Sampling, Started, TextDelta, Usage
from shepherd.core.status import ModelCard
from shepherd.engine.stats import CacheStats, SequenceStats

CHAT: dict[str, Any] = {"model": "fake", "messages": [{"role": "user", "content": "Hi"}]}


@pytest.fixture
def service() -> ScriptedService:
    made = ScriptedService(saying("Hi", " there"))
    made.cards = (
        ModelCard("fake", 4096, 1, template="{{ messages }}", n_slots=4, sampling=Sampling(seed=7)),
        ModelCard("bge", 512, 1, kind="embedding"),
    )
    return made


@pytest.fixture
async def client(service: ScriptedService) -> AsyncIterator[httpx2.AsyncClient]:
    async with client_of(service) as made:
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
    async with client_of(ScriptedService(playing(*events))) as client:
        for wanted in (True, False):
            body = {**CHAT, "prompt": "Hi", "stream": True, "return_progress": wanted}
            chunks = events_of((await client.post(path, json=body)).text)
            found = [chunk["prompt_progress"]["processed"] for chunk in chunks if "prompt_progress" in chunk]
            assert found == ([2, 6, 10] if wanted else [])


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/completion", "/v1/responses"])
async def test_each_piece_of_a_stream_says_how_fast_the_answer_is(path: str) -> None:
    usage = Usage(input=8, cache_read=2, output=3)
    pieces = (Progress(4, 8), TextDelta("x"), TextDelta("y"), TextDelta("z"))
    events: list[Event] = [Started("m", usage=usage), *pieces, Finished("end", usage)]
    async with client_of(ScriptedService(playing(*events))) as client:
        for wanted in (True, False):
            body = {**CHAT, "prompt": "Hi", "input": "Hi", "stream": True, "timings_per_token": wanted}
            if path == "/v1/responses":
                del body["messages"], body["prompt"]
            text = (await client.post(path, json=body)).text
            chunks = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
            found = [chunk["timings"] for chunk in chunks if "timings" in chunk]
            at_end = [] if path == "/v1/responses" and not wanted else [3]
            assert [timings["predicted_n"] for timings in found] == ([1, 2, 3] if wanted else []) + at_end
            assert {(timings["prompt_n"], timings["cache_n"]) for timings in found} == ({(8, 2)} if found else set())
            assert "timings" not in chunks[0] or not path.endswith("chat/completions")


async def test_responses_report_the_prompt_as_it_is_read() -> None:
    usage = Usage(input=8, cache_read=2)
    events: list[Event] = [Started("m", usage=usage), Progress(4, 8), TextDelta("x"), Finished("end", usage)]
    async with client_of(ScriptedService(playing(*events))) as client:
        body = {"model": "fake", "input": "Hi", "instructions": "Be brief.", "stream": True}
        for wanted in (True, False):
            text = (await client.post("/v1/responses", json={**body, "return_progress": wanted})).text
            chunks = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
            found = [chunk for chunk in chunks if "prompt_progress" in chunk]
            assert [chunk["prompt_progress"]["processed"] for chunk in found] == ([2, 6, 10] if wanted else [])
            assert {chunk["type"] for chunk in found} <= {"response.in_progress"}
            assert {chunk["response"]["instructions"] for chunk in found} <= {"Be brief."}
            assert [chunk["sequence_number"] for chunk in chunks] == [*range(len(chunks))]


async def test_the_context_is_where_clients_look(client: httpx2.AsyncClient, service: ScriptedService) -> None:
    made, props = service.cards, (await client.get("/props")).json()
    settings = props["default_generation_settings"]
    assert (settings["n_ctx"], props["total_slots"]) == (4096, 4)
    assert (settings["params"]["seed"], settings["params"]["temperature"]) == (7, 0.8)
    service.cards = (ModelCard("fake", 4096, 1),)
    assert (await client.get("/props")).json()["default_generation_settings"]["params"]["seed"] == 2**32 - 1
    service.cards = made
    assert (props["model_alias"], props["chat_template"]) == ("fake", "{{ messages }}")
    assert (await client.get("/props?model=fake")).json() == props
    assert (await client.get("/props?model=bge")).status_code == 404
    model = (await client.get("/v1/models")).json()["data"][0]
    assert (model["context_length"], model["meta"]["n_ctx"]) == (4096, 4096)


async def test_slots_are_the_conversations_in_the_caches(client: httpx2.AsyncClient, service: ScriptedService) -> None:
    free = {
        "cache": "",
        "n_ctx": 4096,
        "speculative": False,
        "is_processing": False,
        "n_prompt_tokens": 0,
        "n_prompt_tokens_cache": 0,
        "next_token": [{"has_next_token": False, "n_remain": -1, "n_decoded": 0}],
    }
    assert (await client.get("/slots")).json() == [{"id": at, **free} for at in range(4)]
    busy = SequenceStats(0, "generate", "s", 40, 0, 10, 30, 5, 9.0, 0.0, drafted=2)
    service.caches["main"] = CacheStats(4096, sequences=(busy, replace(busy, state="idle", drafted=0)))
    used = {**free, "cache": "main", "n_prompt_tokens": 40, "n_prompt_tokens_cache": 10}
    assert (await client.get("/slots")).json() == [
        {
            "id": 0,
            **used,
            "speculative": True,
            "is_processing": True,
            "next_token": [{"has_next_token": True, "n_remain": -1, "n_decoded": 5}],
        },
        {"id": 1, **used},
        {"id": 2, **free},
        {"id": 3, **free},
    ]
    assert (await client.post("/slots/0?action=erase")).status_code in (404, 405)


@pytest.mark.parametrize("body", [{"verbose": True}, {}, {"verbose": False}])
async def test_a_verbose_server_says_how_the_prompt_was_read_unless_the_body_forbids_it(body: dict[str, Any]) -> None:
    read = ReadPrompt("<s> Hi", (), Sampling(top_k=40))
    service = ScriptedService(playing(Started("m", read=read), TextDelta("x"), Finished("end")))
    for is_verbose in (True, False):
        async with client_of(service, verbose=is_verbose) as client:
            whole = (await client.post("/v1/chat/completions", json=CHAT | body)).json()
        assert whole.get("__verbose", {}).get("prompt") == ("<s> Hi" if body.get("verbose", is_verbose) else None)
        assert service.requests[-1].report == body.get("verbose", is_verbose)


async def test_the_operator_can_switch_paths_off(service: ScriptedService) -> None:
    async with client_of(service, disabled=("/slots", "/completion")) as client:
        for asked in ("GET /slots", "GET /v1/slots", "POST /completion", "POST /completions"):
            method, path = asked.split()
            answer = await client.request(method, path)
            assert (answer.status_code, path in answer.json()["error"]["message"]) == (501, True)
        assert (await client.get("/props")).status_code == 200


async def test_a_conversation_is_rendered_and_counted(client: httpx2.AsyncClient) -> None:
    assert (await client.post("/apply-template", json=CHAT)).json() == {"prompt": "<user>Hi<assistant>"}
    assert (await client.post("/v1/chat/completions/input_tokens", json=CHAT)).json() == {"input_tokens": 2}


@pytest.mark.parametrize("origin", ["https://chat.example", "https://other.example"])
async def test_the_operator_names_the_web_pages_that_may_use_it(service: ScriptedService, origin: str) -> None:
    asked = {"origin": origin, "access-control-request-method": "POST"}
    async with client_of(service, origins=("https://chat.example",)) as client:
        preflight = await client.options("/completion", headers=asked)
        answer = await client.post("/completion", json={"prompt": "a"}, headers={"origin": origin})
    allowed = origin if origin == "https://chat.example" else None
    assert preflight.headers.get("access-control-allow-origin") == allowed
    assert answer.headers.get("access-control-allow-origin") == allowed
    assert answer.status_code == (200 if allowed else 403)
    for told in (preflight, answer) if allowed else ():
        assert told.headers["access-control-allow-credentials"] == "true"
    if allowed:
        assert {"GET", "POST", "DELETE", "OPTIONS"} <= set(
            preflight.headers["access-control-allow-methods"].split(", ")
        )
        assert preflight.status_code == 200


@pytest.mark.parametrize("origins", [(), ("*",)])
async def test_no_page_may_send_credentials_unless_its_origin_is_named(
    service: ScriptedService, origins: tuple[str, ...]
) -> None:
    asked = {"origin": "http://localhost:3000", "access-control-request-method": "POST"}
    async with client_of(service, origins=origins) as client:
        preflight = await client.options("/completion", headers=asked)
    assert preflight.status_code == 200
    assert "access-control-allow-credentials" not in preflight.headers


async def test_an_anthropic_body_without_messages_stays_a_400(client: httpx2.AsyncClient) -> None:
    answer = await client.post("/v1/messages", json={"model": "m", "max_tokens": 5, "messages": []})
    assert (answer.status_code, answer.json()["error"]["type"]) == (400, "invalid_request_error")
