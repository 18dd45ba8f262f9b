"""A provider as a back end: what fits, what leaves, what is counted, listed, embedded and kept."""

from __future__ import annotations

import asyncio
import json
import math
from dataclasses import replace
from typing import Any

import pytest
from tests.providers_replay import Answer, Way
from tests.unit.backends.cloud.providing import CHAT, LONG, SPOKEN, asking, listing, refusal, spoken, staged

from shepherd.backends.cloud.backend import Timeouts, TokenCount
from shepherd.core import (
    BadReply,
    Completion,
    ContextFull,
    Evicted,
    Finished,
    InvalidRequest,
    Message,
    Reasoning,
    Refused,
    Request,
    Sampling,
    Started,
    Text,
    ToolCall,
    ToolResult,
    Traced,
    fold,
)

TURNS = (
    *(message for n in range(6) for message in (Message.user(f"{n} {LONG}"), Message.assistant(f"answer {n}"))),
    Message.user("newest"),
)
WINDOW = listing({"data": [{"id": "m", "max_model_len": 16_384}]})
JSON = {"content-type": "application/json"}


def talk(*, on_full: Any = None, **more: Any) -> Request:
    return Request("m", TURNS, on_full=on_full, **more)


def said(body: Any) -> list[str]:
    return [str(message["content"])[:8] for message in body["messages"]]


# -- what fits


async def test_a_prompt_that_cannot_fit_is_refused_before_it_is_sent() -> None:
    async with staged(WINDOW) as stage:
        error = await stage.ask(Request("m", (Message.user(LONG * 20),)))
        assert isinstance(error, ContextFull)
        assert error.limit == 16_384
        assert error.needed > error.limit
        assert [each.method for each in stage.server.requests] == ["GET"]


async def test_oldest_turns_leave_where_the_request_allows_it() -> None:
    async with staged(WINDOW, spoken(), spoken()) as stage:
        assert await stage.ask(talk(on_full="evict")) is None
        started, evicted = stage.events[:2]
        assert isinstance(started, Started)
        assert isinstance(evicted, Evicted)
        assert evicted.gone == tuple(range(1, 1 + evicted.messages))
        assert evicted.tokens > 16_000
        sent = stage.server.requests[1].json
        assert said(sent)[0] == "0 some w"
        assert said(sent)[-1] == "newest"
        assert len(sent["messages"]) == len(TURNS) - evicted.messages
        fold(stage.events)
        again = stage.server.requests[1].body
        assert await stage.ask(talk(on_full="evict")) is None
        assert stage.server.requests[2].body == again  # the window is asked for once, and what leaves is the same


async def test_a_short_prompt_asks_for_no_window() -> None:
    async with staged(spoken()) as stage:
        assert await stage.ask() is None
        assert [each.path for each in stage.server.requests] == [CHAT]


async def test_a_provider_without_a_list_is_asked_once() -> None:
    request = Request("m", (Message.user(LONG),))
    no_list = Answer("/v1/models", b"no", 500, JSON, "GET")
    async with staged(no_list, spoken(), spoken()) as stage:
        assert await stage.ask(request) is None
        assert await stage.ask(request) is None
        assert [each.method for each in stage.server.requests] == ["GET", "POST", "POST"]


OVERFLOW = "This model's maximum context length is 16384 tokens. However, you requested 40000 tokens"
FULL = {"error": {"message": OVERFLOW, "code": "context_length_exceeded"}}


async def test_a_provider_that_refuses_for_length_gets_the_prompt_once_more() -> None:
    no_list = Answer("/v1/models", b'{"data": []}', 200, JSON, "GET")
    async with staged(no_list, refusal(400, FULL), spoken()) as stage:
        assert await stage.ask(talk(on_full="evict")) is None
        assert [type(event) for event in stage.events[:2]] == [Started, Evicted]
        first, second = (each.json for each in stage.server.requests[1:])
        assert len(first["messages"]) == len(TURNS)
        assert said(second) == ["0 some w", *said(first)[-len(second["messages"]) + 1 :]]
        assert stage.waits == []
    async with staged(no_list, refusal(400, FULL), refusal(400, FULL)) as stage:
        error = await stage.ask(talk(on_full="evict"))
        assert isinstance(error, ContextFull)
        assert (error.needed, error.limit) == (40_000, 16_384)
    async with staged(no_list, refusal(400, FULL)) as stage:
        assert isinstance(await stage.ask(talk()), ContextFull)
        assert len(stage.server.requests) == 2


async def test_a_refusal_without_numbers_makes_the_prompt_shorter_too() -> None:
    full = {"error": {"message": "The input exceeds the context window.", "code": "context_length_exceeded"}}
    no_list = Answer("/v1/models", b'{"data": []}', 200, JSON, "GET")
    async with staged(no_list, refusal(400, full), spoken()) as stage:
        assert await stage.ask(talk(on_full="evict")) is None
        assert len(stage.server.requests[2].json["messages"]) < len(TURNS)
    async with staged(no_list, refusal(400, full)) as stage:
        error = await stage.ask(talk())
        assert isinstance(error, ContextFull)
        assert error.limit == 0
        assert "exceeds the context window" in str(error)


# -- counts


async def test_a_count_is_an_estimate_that_learns() -> None:
    request = asking("word " * 400)
    async with staged(spoken()) as stage:
        before = await stage.backend.count(request)
        assert not before.is_exact
        assert 400 <= before.tokens <= 600
        await stage.ask(request)
        after = await stage.backend.count(request)
        assert after == TokenCount(900, is_exact=False)


async def test_a_provider_that_counts_is_exact() -> None:
    counted = Answer("/v1/messages/count_tokens", b'{"input_tokens": 77}', 200, JSON)
    async with staged(counted, kind="anthropic") as stage:
        assert await stage.backend.count(asking()) == TokenCount(77, is_exact=True)
        assert stage.server.requests[0].headers["x-api-key"] == stage.backend.provider.key
    missing = refusal(404, b"not found", "/v1/messages/count_tokens")
    wrong = refusal(401, b"", "/v1/messages/count_tokens")
    broken = Answer("/v1/messages/count_tokens", b'{"x": 1}', 200, JSON)
    async with staged(missing, wrong, broken, kind="anthropic") as stage:
        assert not (await stage.backend.count(asking())).is_exact
        with pytest.raises(Refused):
            await stage.backend.count(asking())
        with pytest.raises(BadReply):
            await stage.backend.count(asking())


# -- lists and vectors


async def test_models_with_what_is_known_of_them() -> None:
    first = {"data": [{"id": "claude-sonnet-4-5", "max_input_tokens": 1_000_000}], "has_more": True, "last_id": "x"}
    async with staged(listing(first), listing({"data": [{"id": "claude-3-haiku"}]}), kind="anthropic") as stage:
        cards = await stage.backend.models()
        assert [(card.id, card.n_ctx) for card in cards] == [
            ("claude-sonnet-4-5", 1_000_000),
            ("claude-3-haiku", 200_000),
        ]
        assert "thinking" in cards[0].capabilities
        assert await stage.backend.n_ctx("claude-sonnet-4-5") == 1_000_000
        assert [each.query for each in stage.server.requests] == ["limit=1000", "limit=1000&after_id=x"]
    async with staged(listing({"error": "no"}), Answer("/v1/models", b"<html>", 200, {}, "GET")) as stage:
        assert await stage.backend.models() == []
        with pytest.raises(BadReply):
            await stage.backend.models()


async def test_vectors_of_three_protocols() -> None:
    openai = {
        "data": [{"index": 1, "embedding": [0, 2]}, {"index": 0, "embedding": [3, 4]}],
        "usage": {"prompt_tokens": 9},
    }
    gemini = {"embeddings": [{"values": [3, 4]}, {"values": [0, 2]}]}
    ollama = {"embeddings": [[3, 4], [0, 2]], "prompt_eval_count": 9}
    paths = {"openai": "/v1/embeddings", "gemini": "/v1beta/models/e:batchEmbedContents", "ollama": "/api/embed"}
    for kind, body in (("openai", openai), ("gemini", gemini), ("ollama", ollama)):
        async with staged(Answer(paths[kind], json.dumps(body).encode(), 200, JSON), kind=kind) as stage:
            found = await stage.backend.embed("e", ["some text", "more"])
            assert [*map(list, found.vectors)] == [[0.6, 0.8], [0.0, 1.0]]
            assert len(found.n_tokens) == 2
            assert all(math.isclose(math.hypot(*vector), 1) for vector in found.vectors)
    async with staged(kind="anthropic") as stage:
        with pytest.raises(InvalidRequest, match="no embeddings"):
            await stage.backend.embed("e", ["x"])
    few = Answer("/v1/embeddings", b'{"data": [{"embedding": [1]}, {"embedding": null}]}', 200, JSON)
    async with staged(refusal(429, b"", "/v1/embeddings"), few, kind="openai") as stage:
        with pytest.raises(BadReply, match="a vector for each input"):
            await stage.backend.embed("e", ["x", "y"])
        assert stage.waits == [0.25]


# -- the rest


async def test_another_protocol_where_the_server_lacks_the_first() -> None:
    missing = refusal(404, b'{"detail": "Not Found"}', "/v1/responses")
    async with staged(missing, spoken(), spoken(), kind="openai") as stage:
        assert await stage.ask() is None
        assert await stage.ask() is None
        assert [each.path for each in stage.server.requests] == ["/v1/responses", CHAT, CHAT]
    answers = [missing, missing, spoken(), spoken()]
    async with staged(*answers, kind="openai") as stage:
        assert list(await asyncio.gather(stage.ask(), stage.ask())) == [None, None]
    unknown = refusal(
        404, {"error": {"message": "The model `m` does not exist", "code": "model_not_found"}}, "/v1/responses"
    )
    async with staged(unknown, kind="openai") as stage:
        error = await stage.ask()
        assert isinstance(error, Refused)
        assert error.status == 404


async def test_a_path_that_has_answered_is_not_left_for_another_protocol() -> None:
    missing = refusal(404, {"error": "No handler found on route."})
    other = replace(missing, path="/v1/responses")
    async with staged(spoken(), missing, spoken()) as stage:  # one of many routes behind one address
        found = [await stage.ask() for _ in range(3)]
        assert [type(each) for each in found] == [type(None), Refused, type(None)]
    async with staged(missing, other, spoken()) as stage:  # it has neither, for now
        assert [type(await stage.ask()) for _ in range(2)] == [Refused, type(None)]
    async with staged(missing, spoken(), protocol="openai.chat") as stage:  # the user has decided
        assert [type(await stage.ask()) for _ in range(2)] == [Refused, type(None)]


def refused(field: str, words: str) -> Answer:
    return refusal(400, {"error": {"message": words, "param": field, "code": "unsupported_parameter"}})


async def test_a_field_that_a_model_refuses_is_not_sent_again() -> None:
    request = asking(sampling=Sampling(temperature=0.5, top_p=0.9), max_tokens=5)
    answers = [
        refused("temperature", "Unsupported value: 'temperature' does not support 0.5 with this model."),
        refused("max_tokens", "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."),
        spoken(),
        spoken(),
        refused("messages[0].role", "Unsupported value: 'messages[0].role' does not support 'system'."),
        refused("top_p", "top_p must be at most 1"),
    ]
    async with staged(*answers) as stage:
        assert await stage.ask(request) is None
        assert await stage.ask(request) is None
        bodies = [each.json for each in stage.server.requests]
        assert ["temperature" in body for body in bodies] == [True, False, False, False]
        assert [body.get("max_tokens", body.get("max_completion_tokens")) for body in bodies] == [5] * 4
        assert "max_completion_tokens" in bodies[2]
        assert bodies[3] == bodies[2]
        for _ in range(2):
            assert isinstance(await stage.ask(request), InvalidRequest)
        assert stage.waits == []
    again = [refused("temperature", "Unsupported parameter: 'temperature'")] * 2
    async with staged(*again) as stage:
        assert isinstance(await stage.ask(request), InvalidRequest)
        assert len(stage.server.requests) == 2


async def test_stop_strings_where_the_provider_has_none() -> None:
    where = {"output_index": 0, "content_index": 0, "item_id": "i"}
    words = ("one, t", "w", "o; EN", "D three")
    deltas = ({"type": "response.output_text.delta", **where, "delta": each} for each in words)
    item = {"type": "message", "id": "i", "role": "assistant", "content": []}
    begun: list[dict[str, Any]] = [
        {"type": "response.created", "response": {"id": "r", "model": "m", "status": "in_progress", "output": []}},
        {"type": "response.output_item.added", "output_index": 0, "item": item},
    ]
    answer = Answer("/v1/responses", records(*begun, *deltas), way=Way(linger=True))
    async with staged(answer, kind="openai") as stage:
        assert await stage.ask(asking(stop=("END", "never"))) is None
        assert stage.text == "one, two; "
        finished = stage.events[-1]
        assert isinstance(finished, Finished)
        assert (finished.reason, finished.stop) == ("stop", "END")
        assert finished.usage.output > 0
        await asyncio.wait_for(stage.server.requests[0].has_left.wait(), 10)
        fold(stage.events)
    async with staged(spoken()) as stage:  # chat completions have them
        await stage.ask(asking(stop=("wide",)))
        assert stage.server.requests[0].json["stop"] == ["wide"]
        assert "wide" in stage.text


async def test_a_bare_prompt_is_refused() -> None:
    async with staged() as stage:
        error = await stage.ask(Request("m", completion=Completion("x")))
        assert isinstance(error, InvalidRequest)


async def test_a_trace_shows_the_body() -> None:
    async with staged(spoken()) as stage:
        await stage.ask(asking("hi", trace=True))
        (traced,) = (event for event in stage.events if isinstance(event, Traced))
        assert json.loads(traced.text) == stage.server.requests[0].json


def records(*events: dict[str, Any]) -> bytes:
    return "".join(f"event: {each['type']}\ndata: {json.dumps(each)}\n\n" for each in events).encode()


def block(index: int, start: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"type": "content_block_start", "index": index, "content_block": start},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


THOUGHT = records(
    {"type": "message_start", "message": {"id": "m1", "model": "claude-x", "role": "assistant", "content": [],
        "usage": {"input_tokens": 10, "output_tokens": 1}}},
    *block(0, {"type": "thinking", "thinking": "", "signature": ""}, {"type": "thinking_delta", "thinking": "Hm."},
        {"type": "signature_delta", "signature": "c2ln"}),
    *block(1, {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}},
        {"type": "input_json_delta", "partial_json": '{"at": 1}'}),
    {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 9}},
    {"type": "message_stop"},
)  # fmt: skip


async def test_thoughts_come_back_for_a_client_that_dropped_them() -> None:
    thought = Answer("/v1/messages", THOUGHT)
    async with staged(thought, thought, thought, kind="anthropic") as stage:
        assert await stage.ask(asking("q", owner="me")) is None
        answer = fold(stage.events).message
        assert isinstance(answer.parts[0], Reasoning)
        bare = Message("assistant", (ToolCall("toolu_1", "look", '{"at":1}'),))
        history = (Message.user("q"), bare, Message("tool", (ToolResult("toolu_1", (Text("r"),)),)))
        assert await stage.ask(Request("m", history, owner="me")) is None
        assert await stage.ask(Request("m", history, owner="you")) is None
        mine, others = (each.json["messages"][1]["content"] for each in stage.server.requests[1:])
        assert mine[0] == {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
        assert [part["type"] for part in others] == ["tool_use"]


async def test_a_cached_prefix_is_the_same_bytes() -> None:
    async with staged(spoken(), spoken()) as stage:
        await stage.ask(asking("one"))
        await stage.ask(asking("one", "two"))
        first, second = (each.body for each in stage.server.requests)
        n = first.index(b'"one"') + 5
        assert second[:n] == first[:n]


async def test_the_answer_ends_with_its_counts() -> None:
    async with staged(spoken(body=SPOKEN), timeouts=Timeouts(attempts=1)) as stage:
        await stage.ask()
        finished = stage.events[-1]
        assert isinstance(finished, Finished)
        assert finished.usage.total == 906
