"""The vendors' own client libraries against a really started server."""

import asyncio
from typing import Any

import openai
import pydantic
import pytest
from openai.types.chat import ChatCompletionMessage
from tests.official import connecting, openai_at
from tests.own_server import Listening
from tests.scripted_service import ScriptedService, playing, saying

from shepherd.core import (
    BadReply,
    CallDelta,
    CallEnded,
    CallStarted,
    Completion,
    ContextFull,
    EngineError,
    Event,
    Finished,
    Message,
    RateLimited,
    ReasoningDelta,
    Started,
    TextDelta,
    TokenScore,
    ToolCall,
    Usage,
)

ASK: dict[str, Any] = {"model": "gpt-4", "messages": [{"role": "user", "content": "Hello"}]}
USAGE = Usage(input=7, cache_read=3, output=5, reasoning=2)
ANSWER: tuple[Event, ...] = (
    Started("m"),
    ReasoningDelta("Let me "),
    ReasoningDelta("look."),
    TextDelta("I look: "),
    TextDelta("é🐑"),
    CallStarted("c1", "look"),
    CallDelta('{"at": '),
    CallDelta("12345678901234567890}"),
    CallEnded(ToolCall("c1", "look", '{"at": 12345678901234567890}')),
    CallStarted("c2", "see"),
    CallDelta("{}"),
    CallEnded(ToolCall("c2", "see", "{}")),
    Finished("tool_calls", USAGE),
)


async def test_openai_reads_a_whole_answer(listening: Listening) -> None:
    async with connecting(listening, ScriptedService(playing(*ANSWER))) as client:
        answer = await client.chat.completions.create(**ASK)
    (choice,) = answer.choices
    assert answer.model == "gpt-4"
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content == "I look: é🐑"
    assert choice.message.model_extra == {"reasoning_content": "Let me look.", "reasoning": "Let me look."}
    calls = [call.model_dump() for call in choice.message.tool_calls or ()]
    assert calls == [
        {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at": 12345678901234567890}'}},
        {"id": "c2", "type": "function", "function": {"name": "see", "arguments": "{}"}},
    ]
    assert answer.usage is not None
    assert answer.usage.model_dump(exclude_none=True) == {
        "prompt_tokens": 10,
        "completion_tokens": 5,
        "total_tokens": 15,
        "prompt_tokens_details": {"cached_tokens": 3},
        "completion_tokens_details": {"reasoning_tokens": 2},
    }


@pytest.mark.parametrize("include_usage", [False, True])
async def test_openai_puts_a_stream_together(listening: Listening, include_usage: bool) -> None:
    ask = ASK | ({"stream_options": {"include_usage": True}} if include_usage else {})
    tools: Any = [{"type": "function", "function": {"name": name, "parameters": {}}} for name in ("look", "see")]
    async with connecting(listening, ScriptedService(playing(*ANSWER))) as client:
        async with client.chat.completions.stream(**ask, tools=tools) as stream:
            ids = {event.chunk.id async for event in stream if event.type == "chunk"}
        streamed = await stream.get_final_completion()
        whole = await client.chat.completions.create(**ASK)
    assert len(ids) == 1
    assert streamed.choices[0].finish_reason == whole.choices[0].finish_reason
    assert streamed.choices[0].message.content == whole.choices[0].message.content
    assert calls_of(streamed.choices[0].message) == calls_of(whole.choices[0].message)
    assert streamed.usage == (whole.usage if include_usage else None)


def calls_of(message: ChatCompletionMessage) -> list[tuple[str, str, str]]:
    calls = [call for call in message.tool_calls or () if call.type == "function"]
    return [(call.id, call.function.name, call.function.arguments) for call in calls]


async def test_openai_can_send_its_own_answer_back(listening: Listening) -> None:
    service = ScriptedService(playing(*ANSWER))
    async with connecting(listening, service) as client:
        answer = await client.chat.completions.create(**ASK)
        messages: list[Any] = [*ASK["messages"], answer.choices[0].message]
        messages += [{"role": "tool", "tool_call_id": id, "content": "seen"} for id in ("c1", "c2")]
        await client.chat.completions.create(model="gpt-4", messages=messages)
    roles = [message.role for message in service.requests[1].messages]
    assert roles == ["user", "assistant", "tool", "tool"]
    assert service.requests[1].messages[1].calls == (
        ToolCall("c1", "look", '{"at": 12345678901234567890}'),
        ToolCall("c2", "see", "{}"),
    )


@pytest.mark.parametrize("stream", [False, True])
async def test_openai_raises_bad_request_on_overflow(listening: Listening, stream: bool) -> None:
    async with connecting(listening, ScriptedService(playing(ContextFull(needed=9000, limit=4096)))) as client:
        with pytest.raises(openai.BadRequestError, match="9000 tokens > 4096") as caught:
            await client.chat.completions.create(**ASK, stream=stream)
    assert caught.value.code == "context_length_exceeded"
    assert caught.value.type == "invalid_request_error"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (RateLimited("slow down", backend="b"), openai.RateLimitError),
        (EngineError("broken"), openai.InternalServerError),
        (BadReply("nonsense", backend="b"), openai.InternalServerError),
    ],
)
async def test_openai_raises_its_own_error_for_each_of_ours(
    listening: Listening, error: Exception, expected: type[openai.APIStatusError]
) -> None:
    async with connecting(listening, ScriptedService(playing(error))) as client:
        with pytest.raises(expected, match=str(error)):
            await client.chat.completions.create(**ASK)


@pytest.mark.parametrize("stream", [False, True])
async def test_openai_reads_when_to_try_a_full_queue_again(listening: Listening, stream: bool) -> None:
    full = RateLimited("64 requests are waiting", backend="main", retry_after_s=2.5)
    async with connecting(listening, ScriptedService(playing(full))) as client:
        with pytest.raises(openai.RateLimitError, match="64 requests are waiting") as caught:
            await client.chat.completions.create(**ASK, stream=stream)
    assert caught.value.response.headers["retry-after"] == "3"
    assert caught.value.type == "rate_limit_error"


async def read(client: openai.AsyncOpenAI, texts: list[str]) -> None:
    async for chunk in await client.chat.completions.create(**ASK, stream=True):
        texts.append(chunk.choices[0].delta.content or "")


async def test_openai_raises_in_the_middle_of_a_stream(listening: Listening) -> None:
    script = playing(Started("m"), TextDelta("a"), EngineError("the engine broke"))
    async with connecting(listening, ScriptedService(script)) as client:
        texts: list[str] = []
        with pytest.raises(openai.APIError, match="the engine broke"):
            await read(client, texts)
    assert texts == ["", "a"]


async def test_openai_reads_the_errors_of_a_wrong_field_and_a_missing_key(listening: Listening) -> None:
    async with connecting(listening, ScriptedService(saying("Hi")), api_keys=("sk",)) as client:
        with pytest.raises(openai.AuthenticationError):
            await client.chat.completions.create(**ASK)
        client.api_key = "sk"
        with pytest.raises(openai.BadRequestError) as caught:
            await client.chat.completions.create(**ASK, temperature=-1)
        assert caught.value.param == "temperature"


async def test_openai_lists_models(listening: Listening) -> None:
    async with connecting(listening, ScriptedService(saying("Hi"))) as client:
        assert [model.id async for model in client.models.list()] == ["fake"]
        assert (await client.models.retrieve("fake")).owned_by == "shepherd"
        with pytest.raises(openai.NotFoundError):
            await client.models.retrieve("nope")


async def test_openai_cancels_by_leaving_the_loop(listening: Listening) -> None:
    service = ScriptedService(saying(*["word "] * 100_000))
    async with connecting(listening, service) as client:
        stream = await client.chat.completions.create(**ASK, stream=True)
        async for _ in stream:
            break
        await stream.close()
        await service.ended.wait()
    assert service.requests[0].messages == (Message.user("Hello"),)


async def test_openai_without_a_loop_reads_whole_and_streamed_answers(listening: Listening) -> None:
    def ask(url: str) -> tuple[str | None, str, str | None]:
        with openai_at(url) as client:
            whole = client.chat.completions.create(**ASK).choices[0].message.content
            with client.chat.completions.stream(**ASK) as stream:
                pieces = "".join(event.delta for event in stream if event.type == "content.delta")
                last = stream.get_final_completion().choices[0].message.content
        return whole, pieces, last

    async with listening(ScriptedService(saying("Hello ", "é🐑"))) as url:
        assert await asyncio.to_thread(ask, url) == ("Hello é🐑",) * 3


class Sheep(pydantic.BaseModel):
    name: str
    age: int


async def test_openai_parses_an_answer_into_the_class_that_it_asked_for(listening: Listening) -> None:
    service = ScriptedService(saying('{"name": "Lamb", ', '"age": 1}'))
    async with connecting(listening, service) as client:
        answer = await client.chat.completions.parse(**ASK, response_format=Sheep)
        async with client.chat.completions.stream(**ASK, response_format=Sheep) as stream:
            streamed = await stream.get_final_completion()
    for each in (answer, streamed):
        assert each.choices[0].message.parsed == Sheep(name="Lamb", age=1)
    wanted = service.requests[0].schema
    assert wanted is not None
    assert set(wanted["properties"]) == {"name", "age"}


async def test_openai_reads_several_choices_and_what_each_token_was_worth(listening: Listening) -> None:
    scored = TextDelta("é", (TokenScore(7, "é".encode(), -0.5, ((7, "é".encode(), -0.5), (8, b"\xc3", -2.0))),))
    service = ScriptedService(playing(Started("m"), scored, Finished("end", USAGE)))
    async with connecting(listening, service) as client:
        answer = await client.chat.completions.create(**ASK, n=2, logprobs=True, top_logprobs=2)
    assert [choice.index for choice in answer.choices] == [0, 1]
    for choice in answer.choices:
        assert choice.logprobs is not None
        assert choice.logprobs.content is not None
        (token,) = choice.logprobs.content
        assert (token.token, token.bytes, token.logprob) == ("é", [0xC3, 0xA9], -0.5)
        assert [(top.bytes, top.logprob) for top in token.top_logprobs] == [([0xC3, 0xA9], -0.5), ([0xC3], -2.0)]


async def test_openai_continues_a_text_and_makes_vectors(listening: Listening) -> None:
    service = ScriptedService(saying("upon ", "a time"))
    async with connecting(listening, service) as client:
        whole = await client.completions.create(model="gpt-4", prompt="Once ", suffix=" there")
        stream = await client.completions.create(model="gpt-4", prompt="Once ", stream=True)
        pieces = [chunk.choices[0].text async for chunk in stream if chunk.choices]
        vectors = await client.embeddings.create(model="gpt-4", input=["one", "two"], dimensions=2)
    assert whole.choices[0].text == "".join(pieces) == "upon a time"
    assert whole.choices[0].finish_reason == "stop"
    asked = [request.completion for request in service.requests]
    assert asked == [Completion("Once ", suffix=" there"), Completion("Once ")]
    # The client asks for base64 by itself, and turns it back.
    assert [len(each.embedding) for each in vectors.data] == [2, 2]
    assert all(abs(sum(value * value for value in each.embedding) - 1) < 1e-6 for each in vectors.data)
