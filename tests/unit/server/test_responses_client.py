"""OpenAI's own client library on the Responses protocol, against a really started server."""

import asyncio
import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest
from openai.types.responses import Response
from pydantic import BaseModel
from tests.official import connecting
from tests.own_server import Listening
from tests.scripted_service import ScriptedService, playing, saying

from shepherd.core import (
    CallDelta,
    CallEnded,
    CallStarted,
    ContextFull,
    EngineError,
    Event,
    Finished,
    Message,
    Progress,
    RateLimited,
    Reasoning,
    ReasoningDelta,
    Request,
    Started,
    Text,
    TextDelta,
    ToolCall,
    ToolResult,
    Usage,
)
from shepherd.server.endpoints.handler import Limits
from shepherd.server.response_store import ResponseStore

ASK: dict[str, Any] = {"model": "gpt-5", "input": "Hello"}
USAGE = Usage(input=7, cache_read=3, output=5, reasoning=2)
BIG = '{"at": 12345678901234567890}'
TOOLS: list[Any] = [
    {"type": "function", "name": "look", "parameters": {"type": "object"}, "strict": False},
    {"type": "custom", "name": "patch"},
    {"type": "namespace", "name": "docs", "description": "Docs.", "tools": [{"type": "function", "name": "find"}]},
]
ANSWER: tuple[Event, ...] = (
    Started("m"),
    ReasoningDelta("Let me "),
    ReasoningDelta("look."),
    TextDelta("I look: "),
    TextDelta("é🐑"),
    CallStarted("c1", "look"),
    CallDelta(BIG),
    CallEnded(ToolCall("c1", "look", BIG)),
    CallStarted("c2", "patch"),
    CallDelta('{"input": "a\\n"}'),
    CallEnded(ToolCall("c2", "patch", '{"input": "a\\n"}')),
    CallStarted("c3", "docs__find"),
    CallDelta("{}"),
    CallEnded(ToolCall("c3", "docs__find", "{}")),
    Finished("tool_calls", USAGE),
)


def told(response: Response) -> dict[str, Any]:
    """The content of an answer, without its id, its times and the ids of its items."""
    body = response.model_dump(exclude_none=True, exclude={"id", "created_at", "completed_at"})
    for item in body["output"]:
        del item["id"]
    return body


async def test_openai_reads_a_whole_answer(listening: Listening) -> None:
    service = ScriptedService(playing(*ANSWER))
    async with connecting(listening, service) as client:
        answer = await client.responses.create(**ASK, tools=TOOLS, instructions="Be brief.")
    assert (answer.status, answer.model, answer.output_text) == ("completed", "gpt-5", "I look: é🐑")
    assert answer.id.startswith("resp_")
    kinds = [item.type for item in answer.output]
    assert kinds == ["reasoning", "message", "function_call", "custom_tool_call", "function_call"]
    look, patch, find = (item.model_dump() for item in answer.output[2:])
    assert (look["name"], look["call_id"], look["arguments"]) == ("look", "c1", BIG)
    assert (patch["name"], patch["call_id"], patch["input"]) == ("patch", "c2", "a\n")
    assert (find["name"], find["namespace"], find["call_id"]) == ("find", "docs", "c3")
    assert answer.usage is not None
    assert answer.usage.model_dump(exclude_none=True) == {
        "input_tokens": 10,
        "input_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 0},
        "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 2},
        "total_tokens": 15,
    }
    assert service.endpoints == ["/v1/responses"]
    assert [tool.name for tool in service.requests[0].tools] == ["look", "patch", "docs__find"]


@pytest.mark.parametrize("summary", [None, "auto"])
async def test_openai_puts_a_stream_together_that_is_the_whole_answer(listening: Listening, summary: Any) -> None:
    ask = ASK | {"tools": TOOLS, "reasoning": {"summary": summary}}
    async with connecting(listening, ScriptedService(playing(*ANSWER))) as client:
        async with client.responses.stream(**ask) as stream:
            events = [event async for event in stream]
            streamed = await stream.get_final_response()
        whole = await client.responses.create(**ask)
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert [event.type for event in events][:2] == ["response.created", "response.in_progress"]
    assert events[-1].type == "response.completed"
    assert streamed.output_text == whole.output_text
    assert told(streamed) == told(whole)


class City(BaseModel):
    name: str
    size: int


async def test_openai_parses_what_must_have_a_form(listening: Listening) -> None:
    service = ScriptedService(saying('{"name": "Bern", ', '"size": 3}'))
    async with connecting(listening, service) as client:
        answer = await client.responses.parse(**ASK, text_format=City)
        async with client.responses.stream(**ASK, text_format=City) as stream:
            streamed = await stream.get_final_response()
    assert answer.output_parsed == streamed.output_parsed == City(name="Bern", size=3)
    schema = service.requests[0].schema
    assert schema is not None
    assert set(schema["properties"]) == {"name", "size"}


async def test_openai_can_send_its_own_answer_back(listening: Listening) -> None:
    service = ScriptedService(playing(*ANSWER))
    async with connecting(listening, service) as client:
        answer = await client.responses.create(**ASK, tools=TOOLS, store=False, include=["reasoning.encrypted_content"])
        items: list[Any] = [{"role": "user", "content": "Hello"}, *(item.model_dump() for item in answer.output)]
        items += [{"type": "function_call_output", "call_id": id, "output": "seen"} for id in ("c1", "c3")]
        items += [{"type": "custom_tool_call_output", "call_id": "c2", "output": "done"}]
        await client.responses.create(model="gpt-5", input=items, tools=TOOLS, store=False)
    assert service.requests[1].messages == (
        Message.user("Hello"),
        Message(
            "assistant",
            (
                Reasoning("Let me look."),
                Text("I look: é🐑"),
                ToolCall("c1", "look", BIG),
                ToolCall("c2", "patch", '{"input": "a\\n"}'),
                ToolCall("c3", "docs__find", "{}"),
            ),
        ),
        Message("tool", (ToolResult("c1", (Text("seen"),), "look"),)),
        Message("tool", (ToolResult("c3", (Text("seen"),), "docs__find"),)),
        Message("tool", (ToolResult("c2", (Text("done"),), "patch"),)),
    )


# ---- answers that are kept


def said(service: ScriptedService) -> list[str]:
    """What the model was given last."""
    return [message.text for message in service.requests[-1].messages]


@pytest.mark.parametrize("stream", [False, True])
async def test_openai_continues_an_answer_and_branches_off_from_it(listening: Listening, stream: bool) -> None:
    service = ScriptedService(saying("One"))
    async with connecting(listening, service) as client:

        async def ask(text: str, previous: str | None = None) -> str:
            if not stream:
                return (await client.responses.create(model="m", input=text, previous_response_id=previous)).id
            async with client.responses.stream(
                model="m", input=text, previous_response_id=previous or openai.omit
            ) as s:
                return (await s.get_final_response()).id

        first = await ask("a")
        second = await ask("b", first)
        assert said(service) == ["a", "One", "b"]
        await ask("c", second)
        assert said(service) == ["a", "One", "b", "One", "c"]
        await ask("d", first)
        assert said(service) == ["a", "One", "d"]


async def test_openai_sends_the_results_of_calls_only(listening: Listening) -> None:
    service = ScriptedService(playing(*ANSWER))
    async with connecting(listening, service) as client:
        answer = await client.responses.create(**ASK, tools=TOOLS)
        output: Any = [{"type": "function_call_output", "call_id": "c1", "output": "seen"}]
        await client.responses.create(model="m", input=output, tools=TOOLS, previous_response_id=answer.id)
    messages = service.requests[1].messages
    assert [message.role for message in messages] == ["user", "assistant", "tool"]
    assert [call.name for call in messages[1].calls] == ["look", "patch", "docs__find"]
    assert messages[2].parts == (ToolResult("c1", (Text("seen"),), "look"),)


async def test_openai_reads_and_deletes_what_is_kept(listening: Listening) -> None:
    async with connecting(listening, ScriptedService(saying("One"))) as client:
        answer = await client.responses.create(**ASK, metadata={"k": "v"})
        assert (await client.responses.retrieve(answer.id)).to_dict() == answer.to_dict()
        with pytest.raises(openai.BadRequestError, match="close the connection"):
            await client.responses.cancel(answer.id)
        await client.responses.delete(answer.id)
        for asking in (
            client.responses.retrieve(answer.id),
            client.responses.delete(answer.id),
            client.responses.cancel(answer.id),
            client.responses.input_items.list(answer.id),
        ):
            with pytest.raises(openai.NotFoundError, match=answer.id):
                await asking
        with pytest.raises(openai.BadRequestError, match=answer.id) as caught:
            await client.responses.create(**ASK, previous_response_id=answer.id)
        assert (caught.value.code, caught.value.param) == ("previous_response_not_found", "previous_response_id")


async def test_openai_pages_through_the_input(listening: Listening) -> None:
    items: Any = [{"role": "user", "content": str(number)} for number in range(7)]
    async with connecting(listening, ScriptedService(saying("One"))) as client:
        answer = await client.responses.create(model="m", input=items)
        listing = client.responses.input_items.list
        newest = [item async for item in listing(answer.id, limit=3)]
        oldest = [item async for item in listing(answer.id, limit=2, order="asc")]
        page = await listing(answer.id, limit=3, order="asc", after=oldest[1].id or "")
        wrongs: list[dict[str, Any]] = [{"limit": 0}, {"limit": 101}, {"order": "up"}, {"after": "nobody"}]
        for wrong in wrongs:
            with pytest.raises(openai.BadRequestError, match=next(iter(wrong))):
                await listing(answer.id, **wrong)
    assert [item.to_dict()["content"] for item in newest] == [
        [{"type": "input_text", "text": text}] for text in "6543210"
    ]
    assert [item.id for item in oldest] == [item.id for item in reversed(newest)]
    assert [item.id for item in page.data] == [item.id for item in oldest[2:5]]
    assert page.has_more


async def test_openai_counts_the_input_of_a_chain(listening: Listening) -> None:
    service = ScriptedService(saying("One"))
    async with connecting(listening, service) as client:
        assert (await client.responses.input_tokens.count(model="m", input="abc")).input_tokens == 3
        answer = await client.responses.create(model="m", input="abc")
        count = await client.responses.input_tokens.count(model="m", input="d", previous_response_id=answer.id)
        assert (count.object, count.input_tokens) == ("response.input_tokens", 7)
        assert (await client.responses.input_tokens.count(model="m", instructions="ab")).input_tokens == 2
        with pytest.raises(openai.BadRequestError, match="not stored"):
            await client.responses.input_tokens.count(model="m", previous_response_id="resp_9")


async def test_openai_continues_after_a_restart_of_the_server(listening: Listening, tmp_path: Path) -> None:
    ids: list[str] = []
    for text in ("a", "b"):
        service = ScriptedService(saying("One"))
        kept = ResponseStore(tmp_path / "answers.db")
        async with connecting(listening, service, responses=kept) as client:
            previous = ids[-1] if ids else openai.omit
            ids.append((await client.responses.create(model="m", input=text, previous_response_id=previous)).id)
        kept.close()
    assert said(service) == ["a", "One", "b"]


async def test_an_answer_that_fails_is_not_kept(listening: Listening) -> None:
    script = playing(Started("m"), TextDelta("a"), EngineError("the engine broke"))
    kept = ResponseStore()
    async with connecting(listening, ScriptedService(script), responses=kept) as client:
        with pytest.raises(openai.InternalServerError):
            await client.responses.create(**ASK)
        with pytest.raises(openai.APIError, match="the engine broke"):
            async with client.responses.stream(**ASK) as stream:
                await stream.until_done()
    assert kept.n_bytes == 0


# ---- what goes wrong


@pytest.mark.parametrize("stream", [False, True])
async def test_openai_raises_bad_request_on_overflow(listening: Listening, stream: bool) -> None:
    async with connecting(listening, ScriptedService(playing(ContextFull(needed=9000, limit=4096)))) as client:
        with pytest.raises(openai.BadRequestError, match="9000 tokens > 4096") as caught:
            await client.responses.create(**ASK, stream=stream)
    assert (caught.value.code, caught.value.type) == ("context_length_exceeded", "invalid_request_error")


async def test_openai_reads_when_to_try_again(listening: Listening) -> None:
    full = RateLimited("64 requests are waiting", backend="main", retry_after_s=2.5)
    async with connecting(listening, ScriptedService(playing(full))) as client:
        with pytest.raises(openai.RateLimitError, match="64 requests") as caught:
            await client.responses.create(**ASK, stream=True)
    assert caught.value.response.headers["retry-after"] == "3"


async def test_an_answer_that_is_cut_off_says_so(listening: Listening) -> None:
    script = playing(Started("m"), TextDelta("a"), Finished("length", USAGE))
    async with connecting(listening, ScriptedService(script)) as client:
        answer = await client.responses.create(**ASK, max_output_tokens=1)
        assert answer.status == "incomplete"
        assert answer.incomplete_details is not None
        assert answer.incomplete_details.reason == "max_output_tokens"
        kinds = [event.type async for event in await client.responses.create(**ASK, stream=True)]
        assert kinds[-1] == "response.incomplete"
        again = await client.responses.retrieve(answer.id)
        assert again.status == "incomplete"


async def test_a_failure_after_a_long_silence_ends_the_stream_in_the_words_of_the_protocol(
    listening: Listening,
) -> None:
    has_pinged = asyncio.Event()

    async def slow(request: Request) -> AsyncGenerator[Event, None]:
        await has_pinged.wait()
        async for event in playing(ContextFull(needed=9000, limit=4096))(request):
            yield event

    text = ""
    async with (
        listening(ScriptedService(slow), limits=Limits(ping_s=0.01)) as url,
        httpx2.AsyncClient() as client,
        client.stream("POST", f"{url}/v1/responses", json={**ASK, "stream": True}) as answer,
    ):
        async for piece in answer.aiter_text():
            text += piece
            if ": ping" in text:
                has_pinged.set()
    assert answer.status_code == 200
    records = [record for record in text.split("\n\n") if record.startswith("event: ")]
    assert [record.split("\n")[0] for record in records] == [
        "event: response.created", "event: response.in_progress", "event: error", "event: response.failed",
    ]  # fmt: skip
    failed = json.loads(records[-1].split("data: ")[1])["response"]
    assert (failed["status"], failed["error"]["code"]) == ("failed", "context_length_exceeded")


async def test_the_path_without_v1_and_errors_below_it_are_in_the_shape_of_the_protocol(listening: Listening) -> None:
    async with listening(ScriptedService(saying("Hi"))) as url, httpx2.AsyncClient(base_url=url) as client:
        assert (await client.post("/responses", json=ASK)).json()["object"] == "response"
        counted = await client.post("/responses/input_tokens", json=ASK)
        assert counted.json() == {"object": "response.input_tokens", "input_tokens": 5}
        for method, path in (
            ("GET", "/v1/responses/resp_9"),
            ("GET", "/responses/resp_9"),
            ("GET", "/v1/responses/a/b"),
        ):
            answer = await client.request(method, path)
            assert (answer.status_code, answer.json()["error"]["type"]) == (404, "invalid_request_error")
        assert (await client.get("/v1/responses/resp_9?stream=true")).status_code == 400


# ---- Cursor: such a body sent to chat completions


async def test_cursor_gets_chunks_of_chat_for_a_body_of_responses(listening: Listening) -> None:
    body = {**ASK, "tools": TOOLS, "stream": True, "stream_options": {"include_usage": True}}
    service = ScriptedService(
        playing(
            *ANSWER,
        )
    )
    async with listening(service) as url, httpx2.AsyncClient(base_url=url) as client:
        streamed = (await client.post("/v1/chat/completions", json=body)).text
        whole = (await client.post("/v1/chat/completions", json={**body, "stream": False})).json()
    *chunks, done = [record.removeprefix("data: ") for record in streamed.split("\n\n") if record]
    assert done == "[DONE]"
    bodies = [json.loads(chunk) for chunk in chunks]
    assert {chunk["object"] for chunk in bodies} == {"chat.completion.chunk"}
    assert bodies[-1]["usage"]["prompt_tokens"] == 10
    calls = whole["choices"][0]["message"]["tool_calls"]
    assert [(call["function"]["name"], call["function"]["arguments"]) for call in calls] == [
        ("look", BIG), ("patch", '{"input": "a\\n"}'), ("docs__find", "{}"),
    ]  # fmt: skip
    assert service.requests[0].messages == (Message.user("Hello"),)


async def test_progress_is_no_event_of_the_protocol(listening: Listening) -> None:
    script = playing(Started("m"), Progress(1, 2), TextDelta("a"), Finished("end"))
    async with connecting(listening, ScriptedService(script)) as client:
        kinds = [event.type async for event in await client.responses.create(**ASK, stream=True)]
    assert len(kinds) == 9
