"""OpenAI's own client library: all of chat completions that it has helpers for, on a script and on a model."""

from __future__ import annotations

import json
import math
import subprocess
from collections.abc import AsyncGenerator, Iterator
from typing import Any, Literal

import openai
import pydantic
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


@pytest.mark.model
@pytest.mark.parametrize("stream", [False, True])
def test_logprobs_spell_the_answer_and_are_probabilities(client: openai.OpenAI, stream: bool) -> None:
    asked: Any = {"model": "lamb", "messages": HELLO, "temperature": 0, "logprobs": True, "top_logprobs": 20}
    plain = client.chat.completions.create(**asked)
    if stream:
        with client.chat.completions.stream(**asked) as streaming:
            answer: Any = streaming.get_final_completion()
    else:
        answer = plain
    choice = answer.choices[0]
    tokens = choice.logprobs.content
    assert plain.usage is not None
    assert bytes(byte for token in tokens for byte in token.bytes).decode() == choice.message.content
    assert len(tokens) == plain.usage.completion_tokens - 1, "the end token is no text"
    for token in tokens:
        assert token.top_logprobs[0].token == token.token, "greedy takes the likeliest"
        assert len(token.top_logprobs) == 20
        logprobs = [top.logprob for top in token.top_logprobs]
        assert logprobs == sorted(logprobs, reverse=True)
        assert sum(map(math.exp, logprobs)) <= 1.0001


@pytest.mark.model
def test_logprobs_are_those_of_the_model_with_any_sampler(client: openai.OpenAI) -> None:
    def first(**fields: Any) -> dict[str, float]:
        answer = client.chat.completions.create(
            model="lamb", messages=HELLO, max_tokens=1, logprobs=True, top_logprobs=3, **fields
        )
        logprobs = answer.choices[0].logprobs
        assert logprobs is not None
        assert logprobs.content is not None
        return {top.token: round(top.logprob, 4) for top in logprobs.content[0].top_logprobs}

    plain = first(temperature=0)
    assert first(temperature=2, seed=1) == plain
    assert first(logit_bias={"300": 100}) == plain
    assert first(response_format={"type": "json_object"}) == plain


@pytest.mark.model
def test_three_choices_are_three_answers_of_one_prompt(client: openai.OpenAI) -> None:
    asked: Any = {"model": "lamb", "messages": HELLO, "seed": 3, "temperature": 20, "top_p": 1, "max_tokens": 12,
                  "extra_body": {"top_k": 0, "min_p": 0}}  # fmt: skip
    answer = client.chat.completions.create(**asked, n=3)
    texts = [choice.message.content for choice in answer.choices]
    assert len(set(texts)) == 3
    assert client.chat.completions.create(**asked).choices[0].message.content == texts[0], "a seed is a seed"
    single = client.chat.completions.create(**asked)
    assert answer.usage is not None
    assert single.usage is not None
    assert answer.usage.prompt_tokens == single.usage.prompt_tokens


class Place(pydantic.BaseModel):
    city: Literal["Paris", "Rome"]
    is_large: bool


@pytest.mark.model
def test_an_answer_is_parsed_into_a_class(client: openai.OpenAI) -> None:
    asked: Any = [{"role": "user", "content": "A city?"}]
    answer = client.chat.completions.parse(
        model="lamb", messages=asked, response_format=Place, temperature=0, max_tokens=200
    )
    assert isinstance(answer.choices[0].message.parsed, Place)


@pytest.mark.model
def test_a_bias_forbids_a_word(client: openai.OpenAI) -> None:
    plain = client.chat.completions.create(model="lamb", messages=HELLO, temperature=0, logprobs=True, max_tokens=1)
    word = plain.choices[0].message.content
    found: Any = client.post("/tokenize", body={"content": word}, cast_to=object)
    (token,) = found["tokens"]
    other = client.chat.completions.create(
        model="lamb", messages=HELLO, temperature=0, logit_bias={str(token): -100}, max_tokens=1
    )
    assert other.choices[0].message.content != word


CURL = """curl -sS -X POST ADDRESS/v1/chat/completions \\
  -H "Content-Type: application/json" \\
  -d '{
    "model": "gpt-4",
    "messages": [
      {"role": "user", "content": "What can you do?"}
    ]
  }'"""
CURL_WITH_TOOLS = CURL.replace(
    "\n    ]\n",
    """
    ],
    "tools": [
      {
        "type": "function",
        "function": {
          "name": "list_directory",
          "description": "List files",
          "parameters": {
            "type": "object",
            "properties": {
              "path": {"type": "string"}
            }
          }
        }
      }
    ]
""",
)


@pytest.mark.model
@pytest.mark.parametrize("command", [CURL, CURL_WITH_TOOLS], ids=["plain", "with tools"])
def test_6_curl_gets_a_completion(server: str, command: str) -> None:
    done = subprocess.run(
        command.replace("ADDRESS", server), shell=True, capture_output=True, text=True, check=True, timeout=60
    )
    answer = json.loads(done.stdout)
    choice, usage = answer["choices"][0], answer["usage"]
    assert (answer["object"], answer["model"]) == ("chat.completion", "gpt-4")
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    calls = choice["message"].get("tool_calls", [])
    assert choice["finish_reason"] in ({"tool_calls"} if calls else {"stop", "length"})
    assert all(isinstance(json.loads(call["function"]["arguments"]), dict) for call in calls)
