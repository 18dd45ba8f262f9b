"""OpenAI's own client library: all of chat completions that it has helpers for, on a script and on a model."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterator
from typing import Any

import openai
import pytest
from tests.official import connecting, openai_at
from tests.own_server import Listening
from tests.scripted_service import ScriptedService, playing, saying

from shepherd.core import (
    CallDelta,
    CallEnded,
    CallStarted,
    Event,
    Finished,
    ReasoningDelta,
    Request,
    Started,
    Text,
    TextDelta,
    ToolCall,
    ToolResult,
    Usage,
)

HELLO: Any = [{"role": "user", "content": "Hello!"}]
TOOL: Any = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the weather for a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
PATCH: Any = {"type": "custom", "custom": {"name": "patch", "description": "Edits a file."}}


@pytest.fixture(scope="module")
def client(server: str) -> Iterator[openai.OpenAI]:
    with openai_at(server) as made:
        yield made


def calling(*calls: ToolCall) -> tuple[Event, ...]:
    events: list[Event] = [Started("m")]
    for call in calls:
        events += CallStarted(call.id, call.name), CallDelta(call.arguments), CallEnded(call)
    return (*events, Finished("tool_calls", Usage(input=7, output=5)))


# ---- on a script


async def test_a_stream_of_thoughts_text_and_calls_is_put_together(listening: Listening) -> None:
    call = ToolCall("c1", "get_weather", '{"city": "Paris"}')
    thoughts: tuple[Event, ...] = (ReasoningDelta("I "), ReasoningDelta("look."), TextDelta("Now: "), TextDelta("é🐑"))
    events = (Started("m"), *thoughts, *calling(call)[1:])
    async with (
        connecting(listening, ScriptedService(playing(*events))) as client,
        client.chat.completions.stream(model="gpt-4", messages=HELLO, tools=[TOOL]) as stream,
    ):
        kinds = [event.type async for event in stream]
        final = await stream.get_final_completion()
    message = final.choices[0].message
    assert final.choices[0].finish_reason == "tool_calls"
    assert message.content == "Now: é🐑"
    extra = message.model_extra or {}
    assert (extra["reasoning_content"], extra["reasoning"]) == ("I look.", "I look.")
    assert message.tool_calls is not None
    assert json.loads(message.tool_calls[0].function.arguments) == {"city": "Paris"}
    assert "tool_calls.function.arguments.done" in kinds
    assert "content.done" in kinds


async def test_each_choice_of_a_stream_is_put_together(listening: Listening) -> None:
    async def script(request: Request) -> AsyncGenerator[Event, None]:
        yield Started("m")
        for word in ("a", str(request.sampling.seed), "z"):
            yield TextDelta(word)
        yield Finished("end", Usage(input=7, output=3))

    service = ScriptedService(script)
    async with connecting(listening, service) as client:
        asked: Any = {"model": "m", "messages": HELLO, "n": 3, "seed": 5}
        async with client.chat.completions.stream(**asked, stream_options={"include_usage": True}) as stream:
            streamed = await stream.get_final_completion()
        whole = await client.chat.completions.create(**asked)
    for answer in (streamed, whole):
        assert [(choice.index, choice.message.content) for choice in answer.choices] == [
            (0, "a5z"), (1, "a6z"), (2, "a7z"),
        ]  # fmt: skip
        assert [choice.finish_reason for choice in answer.choices] == ["stop"] * 3
        assert answer.usage is not None
        assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (7, 9)


async def test_a_tool_of_any_text_is_called_with_text_and_its_call_comes_back(listening: Listening) -> None:
    service = ScriptedService(playing(*calling(ToolCall("c1", "patch", '{"input": "*** Begin\\n+a\\""}'))))
    async with connecting(listening, service) as client:
        answer = await client.chat.completions.create(model="m", messages=HELLO, tools=[PATCH])
        message: Any = answer.choices[0].message
        (call,) = message.tool_calls
        assert call.type == "custom"
        assert (call.custom.name, call.custom.input) == ("patch", '*** Begin\n+a"')
        result: Any = {"role": "tool", "tool_call_id": call.id, "content": "done"}
        await client.chat.completions.create(model="m", messages=[*HELLO, message, result], tools=[PATCH])
        chunks = [
            chunk
            async for chunk in await client.chat.completions.create(
                model="m", messages=HELLO, tools=[PATCH], stream=True
            )
        ]
    (sent,) = service.requests[1].messages[1].calls
    assert json.loads(sent.arguments) == {"input": '*** Begin\n+a"'}
    assert service.requests[1].messages[2].parts == (ToolResult("c1", (Text("done"),), "patch"),)
    assert [chunk.choices[0].finish_reason for chunk in chunks][-1] == "tool_calls"


async def test_functions_are_called_in_the_old_way(listening: Listening) -> None:
    service = ScriptedService(playing(*calling(ToolCall("c1", "get_weather", '{"city": "Paris"}'))))
    function = TOOL["function"]
    async with connecting(listening, service) as client:
        answer = await client.chat.completions.create(model="m", messages=HELLO, functions=[function])
        message: Any = answer.choices[0].message
        result: Any = {"role": "function", "name": "get_weather", "content": "sunny"}
        await client.chat.completions.create(model="m", messages=[*HELLO, message, result], functions=[function])
    assert answer.choices[0].finish_reason == "function_call"
    assert json.loads(message.function_call.arguments) == {"city": "Paris"}
    assert message.tool_calls is None
    (call,) = service.requests[1].messages[1].calls
    assert service.requests[1].messages[2].parts == (ToolResult(call.id, (Text("sunny"),), "get_weather"),)


async def test_everything_a_client_may_send_along_is_taken(listening: Listening) -> None:
    service = ScriptedService(saying("Hi."))
    async with connecting(listening, service) as client:
        await client.chat.completions.create(
            model="m",
            messages=[{"role": "developer", "content": [{"type": "text", "text": "Be brief."}]}, *HELLO],
            modalities=["text"],
            prediction={"type": "content", "content": "x"},
            store=True,
            metadata={"a": "b"},
            service_tier="auto",
            reasoning_effort="minimal",
            max_completion_tokens=5,
            logit_bias={"7": -100},
            parallel_tool_calls=False,
            prompt_cache_key="k",
            safety_identifier="s",
            verbosity="low",
            stream_options=None,
        )
    (request,) = service.requests
    assert [message.role for message in request.messages] == ["system", "user"]
    assert (request.reasoning, request.max_tokens, request.session) == ("low", 5, "k")
    assert request.sampling.logit_bias == ((7, -100.0),)


async def test_a_responses_body_is_answered_as_chat(listening: Listening) -> None:
    """What Cursor does with a base URL of one's own."""
    service = ScriptedService(saying("Hi."))
    async with connecting(listening, service) as client:
        body = {"model": "gpt-4", "input": [{"role": "user", "content": "Hello!"}], "instructions": "Be brief.",
                "store": False, "include": [], "stream_options": {"include_usage": True}}  # fmt: skip
        answer = await client.post("/chat/completions", body=body, cast_to=object)
    assert isinstance(answer, dict)
    assert (answer["object"], answer["choices"][0]["message"]["content"]) == ("chat.completion", "Hi.")
    assert [message.text for message in service.requests[0].messages] == ["Be brief.", "Hello!"]


# ---- on the embedded model
